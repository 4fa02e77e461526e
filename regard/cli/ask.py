"""`regard ask`: a story and questions in, answers out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model import check_out, load_model, newest_run
from regard.cli.options import Device, Model
from regard.cli.output import json_line, one_line, printable, results, say
from regard.data.stories import split_story
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.ask.predictor import StoryAnswer, StoryReader


def ask(
    story: Annotated[
        str,
        typer.Argument(
            metavar="STORY", help="A file with a sentence a line, the text itself, or - for stdin.", show_default=False
        ),
    ],
    questions: Annotated[
        list[str], typer.Argument(metavar="QUESTION", help="One or more questions about it.", show_default=False)
    ],
    model: Model = None,
    hops: Annotated[bool, typer.Option("--hops", help="Show which sentence each hop read.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Draw what each hop read (.png .svg .html .json .csv)."),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Put the probability behind each answer.")] = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with every answer, one line for each question.")
    ] = False,
) -> None:
    """The answer to each question about a story, one a line."""
    if out is not None and len(questions) != 1:
        raise UsageError("-o draws one question; ask one QUESTION")
    check_out(out)
    told = story_text(story)
    reader: StoryReader = load_model(model or newest_run("ask"), device, "ask")
    wants_hops = hops or out is not None
    if wants_hops and not reader.has_hops:
        raise UsageError(
            f"a {reader.config.model.kind} reads in no hops", "leave out --hops and -o, or ask a memory-network"
        )
    _say_unknown(reader, [told, *questions])
    if (count := len(split_story(told))) > reader.most_sentences:
        say(f"it reads the last {reader.most_sentences} of {count} sentences")
    for found in reader.ask(told, questions, hops=wants_hops or as_json):
        if out is not None:
            say(f"wrote {found.attention.save(out)}")
        if as_json:
            print(json_line(found.data()))
            continue
        print("\t".join([printable(found.answer), f"{found.probability:.4f}"] if scores else [printable(found.answer)]))
        if hops:
            for line in hop_lines(found):
                results().print(line, markup=False, highlight=False)


def story_text(given: str) -> str:
    """A story: that of a file, of standard input, or the words themselves."""
    if given == "-":
        return sys.stdin.read()
    path = Path(given)
    if " " in given and not path.exists():
        return given
    if not path.is_file():
        raise UsageError(
            f"there is no file {given}", "name a file with a sentence a line, or write the story in quotes"
        )
    from regard.data.lines import read_lines

    return "\n".join(read_lines(path))


def hop_lines(found: StoryAnswer) -> list[str]:
    """A line for each sentence, with how much every hop read of it; the most of each hop has a star."""
    best = [max(range(len(hop)), key=hop.__getitem__) for hop in found.hops]
    head = "".join(f"  hop {number}" for number in range(1, len(found.hops) + 1))
    lines = [f"{head}  {one_line(found.question)}"]
    for place, sentence in enumerate(found.story):
        cells = [f"{100 * hop[place]:5.0f}%{'*' if best[n] == place else ' '}" for n, hop in enumerate(found.hops)]
        lines.append(f"{''.join(cells)}  {printable(sentence)}")
    return lines


def _say_unknown(reader: StoryReader, texts: list[str]) -> None:
    """Words that no story of the training had: the model reads them all alike."""
    unknown = dict.fromkeys(word for text in texts for word in reader.tokenizer.unknown_in(text))
    if unknown:
        say(f"not among the words that it learned from: {', '.join(map(one_line, unknown))}")
