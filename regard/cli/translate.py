"""`regard translate`: text in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from regard.cli.inputs import Answered, AsText, InputReader, Item, answers, output_to, texts_or_lines
from regard.cli.model import check_engine_for, check_model, check_weights_for, load_translator, newest_run, stopping_of
from regard.cli.options import Beam, Device, EngineName, Removals, Softness, Stopping, WeightsName, given, removing
from regard.cli.output import json_line, one_line, results, say
from regard.cli.shards import batch_of, write_in_shards
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.decode.config import Weights
    from regard.inspect.looking import Shown
    from regard.tasks.translate.predictor import Translator
    from regard.tasks.translate.results import Translation

CHUNK = 1024  # lines translated together: those of like length, in groups, side by side
MAPS = (".png", ".svg", ".json", ".csv", ".html")  # the endings of an attention map
DRAWN = (".png", ".svg", ".html")  # what no translation is written to


def translate(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts, or a file of lines; without, standard input.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="RUN", help="A run or a bundle.", show_default="the newest run here"),
    ] = None,
    beam: Beam = None,
    n_best: Annotated[int | None, typer.Option(metavar="N", help="Print the N best of the beam, or N samples.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching for the best.")] = False,
    temperature: Annotated[
        float | None, typer.Option(metavar="X", help="Of samples: under 1 is more cautious, 0 is greedy.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Sample among the N most likely tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="X", help="Sample among the top tokens with this probability.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of samples.")] = None,
    length_penalty: Annotated[str | None, typer.Option(metavar="NAME", help="gnmt, power or none.")] = None,
    alpha: Annotated[float | None, typer.Option(metavar="X", help="Exponent of the length penalty.")] = None,
    stopping: Stopping = None,
    min_length: Annotated[int | None, typer.Option(metavar="N", help="Fewest tokens.")] = None,
    max_length: Annotated[int | None, typer.Option(metavar="N", help="Most tokens.")] = None,
    softness: Softness = None,
    remove: Removals = None,
    attention: Annotated[bool, typer.Option("--attention", help="Show where the model looked.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE",
            help="Write the translation there; with --attention the map (.png .svg .html .json .csv).",
        ),
    ] = None,
    as_text: AsText = False,
    scores: Annotated[bool, typer.Option("--scores", help="Put score and log-probability before each text.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    device: Device = "auto",
    engine: EngineName = "regard",
    weights: WeightsName = "float32",
) -> None:  # fmt: skip
    """Translate texts, a file line by line, or standard input as it comes: text in, text out.

    Line n of the output translates line n of the input; what cannot be translated is named on stderr and leaves its line
    empty, and the exit code is 1. Whatever else there is to say goes to stderr.
    """
    _check(texts or [], attention, out)
    check_engine_for(engine, remove)
    check_weights_for(engine, weights)
    asked = texts_or_lines(texts, as_text=as_text, what="a sentence")
    _check_map(asked, attention, out)
    decode = given(
        beam=beam, n_best=n_best, sample=sample or None, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
        length_penalty=length_penalty, alpha=alpha, stopping=stopping_of(engine, stopping), min_length=min_length,
        max_length=max_length, softness=softness,
    )  # fmt: skip
    run = model or newest_run("translate")
    check_model(run, device, "translate", decode=decode)
    translator = load_translator(run, device)
    translator.use_weights(cast("Weights", weights))
    several = translator.options(decode).n_best > 1  # a wrong option is told before anything is read
    decode |= {"engine": engine, "scores": scores or as_json}
    if engine != "regard":
        translator.translate([], **decode)  # so is what the engine cannot do

    def ask(items: list[Item]) -> Sequence[Translation]:
        places = [item.place for item in items]
        return translator.translate([item.value for item in items], attention=attention, places=places, **decode)

    def lines(each: Answered[Translation]) -> list[str]:
        return as_json_lines(each) if as_json else as_lines(each, several, scores)

    told = {**decode, "weights": weights, "remove": remove, "json": as_json, "text": scores}
    batch = batch_of(None if attention else out, asked, CHUNK, verb="translate", run=run, options=told)
    if batch is not None:
        with removing(translator, remove or ()):
            write_in_shards(batch, ask, lines, "translating")
        return
    with (
        output_to(None if attention else out),
        removing(translator, remove or ()),
        answers(asked, ask, CHUNK, "translating") as answered,
    ):
        for each in answered:
            shown = _map(translator, each.found) if attention else None
            if each.found is not None and shown is not None and out is not None:
                _save(each.found, shown, out)  # before anything is printed: the reader of stdout may have gone
            for line in lines(each):
                print(line)
            if shown is not None and out is None and not as_json:
                results().print(shown)


def _map(translator: Translator, found: Translation | None) -> Shown | None:
    """Where the model looked, in words as `regard look` shows it."""
    from regard.inspect.looking import AskedView, has_pieces, shown

    if found is None or found.attention is None:
        return None
    return (
        shown(found.attention, AskedView(), has_pieces(translator)) if found.attention.layers else found.attention.map()
    )


def _save(found: Translation, shown: Shown, out: Path) -> None:
    """Save the map; JSON has every layer and head, in pieces."""
    whole = found.attention if out.suffix.lower() == ".json" else None
    say(f"wrote {(shown if whole is None else whole).save(out)}")


def as_lines(each: Answered[Translation], several: bool, scores: bool) -> list[str]:
    """The text alone; with its scores before it; or all alternatives, each with the number of its source as well."""
    number, found = each.item.place + 1, each.found
    if found is None:
        return [f"{number}\t\t\t" if several else "\t\t" if scores else ""]
    if several:
        return [f"{number}\t{_scored(one)}" for one in (found, *found.alternatives)]
    return [_scored(found) if scores else one_line(found.text)]


def as_json_lines(each: Answered[Translation]) -> list[str]:
    data = {"source": each.item.value, "error": str(each.error)} if each.found is None else each.found.data()
    return [json_line(data)]


def _scored(found: Translation) -> str:
    return f"{found.score:.4f}\t{found.log_probability:.4f}\t{one_line(found.text)}"


def _check(texts: list[str], attention: bool, out: Path | None) -> None:
    if attention and not texts:
        raise UsageError('attention needs a TEXT, not standard input: regard translate "a sentence" --attention')
    if out is None:
        return
    if not attention and out.suffix.lower() in DRAWN:
        raise UsageError(f"-o {out}: a {out.suffix} file holds an attention map; add --attention, or name a text file")
    if attention and out.suffix.lower() not in MAPS:
        raise UsageError(f"-o {out}: a map is saved as {', '.join(MAPS)}")


def _check_map(asked: InputReader, attention: bool, out: Path | None) -> None:
    if attention and out is not None and not asked.alone:
        raise UsageError(f"-o saves the map of one text, and there are {asked.total}; a text with spaces needs quotes")
