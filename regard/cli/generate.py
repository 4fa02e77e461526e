"""`regard generate`: how a text begins in, how it goes on out; music, sound and pictures into files."""

from __future__ import annotations

import random
import sys
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.inputs import Answered, AsText, InputReader, Item, answers, arguments, output_to, texts_or_lines
from regard.cli.model import check_engine_for, check_model, load_model, newest_run, stopping_of
from regard.cli.options import Device, EngineName, Model, Removals, Stopping, given, removing
from regard.cli.output import json_line, progress, results, say
from regard.cli.shards import batch_of, check_alone, write_in_shards
from regard.config import Tables
from regard.data.lines import decode_lines
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.generate.predictor import Generator
    from regard.tasks.generate.results import Generated

CHUNK = 16  # texts written together
NO_TEXT = (".mid", ".wav", ".png", ".svg", ".html")  # what no text is written to


def generate(
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="How the text begins, or a file of such lines; - is standard input as one."
        ),
    ] = None,
    model: Model = None,
    length: Annotated[
        int | None, typer.Option("-n", "--length", metavar="N", help="Most tokens to write.", show_default="200")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="X", help="Under 1 is more cautious, over 1 more daring, 0 is greedy.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Draw among the N most likely tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="X", help="Draw among the top tokens with this probability.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(metavar="X", help="Draw among tokens at least so likely as X times the likeliest.")
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the most likely token.")] = False,
    beam: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Search for the likeliest text with N hypotheses.")
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", metavar="N", min=1, help="Write N of them.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of the draws.", show_default="random")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text (may be repeated).")
    ] = None,
    stopping: Stopping = None,
    min_length: Annotated[int | None, typer.Option(metavar="N", help="Fewest tokens.")] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Of music, sound or pictures: go on with this file (.mid, .wav, .png)."),
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="With --start of a picture: how much of it stays.", show_default="0.5"),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of sound and pictures: what it shall be, such as a word.")
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Write texts there; of music, sound, pictures: write (.mid .wav .png), draw (.svg), film (.gif).",
        ),
    ] = None,
    beside: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Of sound: draw these beside it (may be repeated).")
    ] = None,
    remove: Removals = None,
    as_text: AsText = False,
    device: Device = "auto",
    engine: EngineName = "regard",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each text.")] = False,
) -> None:
    """Go on with a text.

    The text is printed as it is written, whole letters only; whatever else there is to say goes to stderr.
    """
    decode = _decode(locals())
    check_engine_for(engine, remove)
    run = model or newest_run("generate")
    check_model(run, device, "generate", decode=decode)
    generator: Generator = load_model(run, device, "generate")
    generator.check(stop or [], **decode)  # what is wrong is told before anything is written
    asking = {**decode, "engine": engine, "stop": stop or []}
    if generator.writes_pictures:
        check_alone("a sheet of pictures", "write it with one")
        with removing(generator, remove or ()):
            _paint(generator, prompts, start, label, keep, samples or 1, asking, out or [], as_json)
        return
    if keep is not None:
        raise UsageError("--keep is for models that write pictures; leave it out")
    file = _text_file(generator, out)
    begins = _begins(generator, prompts, start, label, None if file else out, beside)
    asked = _asked(begins, as_text)
    if engine != "regard":
        generator.generate([], **asking)  # so is what the engine cannot do

    def ask(items: list[Item], **chosen: int) -> Sequence[Generated]:
        places = [item.place for item in items]
        return generator.generate([item.value for item in items], places=places, **(asking | chosen))

    def lines(each: Answered[Generated]) -> list[str]:
        return _as_lines(each, as_json)

    if out and file is None:
        check_alone("a piece of music or sound", "write it with one")
        with removing(generator, remove or ()):
            _write(generator, begins, asking, out, beside or [], as_json)
        return
    drawn = {"seed": asking["seed"]} if seed is None and "seed" in asking else {}
    told = {name: value for name, value in asking.items() if name not in drawn} | {"remove": remove, "json": as_json}
    batch = batch_of(file, asked, CHUNK, verb="generate", run=run, options=told, chosen=drawn)
    with removing(generator, remove or ()):
        if batch is not None:
            write_in_shards(batch, ask, lines, "writing")
        elif asked.alone and not (samples or beam or as_json or file) and engine == "regard":
            _stream(generator, next(asked.chunks(1))[0].value, stop or [], decode)
        else:
            with output_to(file), answers(asked, ask, CHUNK, "writing") as answered:
                for each in answered:
                    for line in lines(each):
                        print(line)


def _text_file(generator: Generator, out: list[Path] | None) -> Path | None:
    """The file that texts are written to; None where none is named, or a piece of music, a sound, a picture."""
    from regard.tasks.generate.compose import notation_of_model

    if not out or len(out) > 1 or out[0].suffix.lower() in NO_TEXT or notation_of_model(generator) is not None:
        return None
    return out[0]


def _begins(
    generator: Generator,
    prompts: list[str] | None,
    start: str | None,
    label: str | None,
    out: list[Path] | None,
    beside: list[str] | None,
) -> list[str]:
    """How texts begin: as typed, or by a file and a label. Refuses what does not go together before anything is written."""
    tokens = generator.config.tokens
    if tokens is not None and tokens.kind == "samples" and not out:
        raise UsageError("this model writes sound, which cannot be printed; say where it goes: -o sound.wav")
    if beside and not out:
        raise UsageError("--beside draws sounds beside what is written; say where: -o sound.png")
    if not out and start is None and label is None:
        return prompts or [""]
    from regard.tasks.generate import compose

    for path in out or ():
        compose.check_saving(generator, path)
    if start is None and label is None:
        return prompts or [""]
    if prompts:
        raise UsageError("a text that is typed and --start or --label both say how it begins; leave one out")
    return [compose.beginning(generator, start, label)]


def _write(
    generator: Generator, begins: list[str], asking: Tables, out: list[Path], beside: list[str], as_json: bool
) -> None:
    """Write what a model of music or sound makes of one beginning; of several samples, numbered files."""
    from regard.tasks.generate import compose

    if len(begins) > 1:
        raise UsageError(f"-o is for one beginning, not {len(begins)}; name one")
    began = time.perf_counter()
    every = generator.generate(begins[0], **asking).each()
    seconds = time.perf_counter() - began
    for number, each in enumerate(every, start=1):
        for path in out:
            place = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
            say(f"wrote {compose.save_written(generator, each, place, beside)}")
    count = sum(len(each.ids) for each in every)
    say(f"{count:,} tokens in {seconds:.1f} s, {count / max(seconds, 1e-9):,.0f} a second")
    if as_json:
        for each in every:
            print(json_line(each.data()))


def _paint(
    generator: Generator,
    prompts: list[str] | None,
    start: str | None,
    label: str | None,
    keep: float | None,
    samples: int,
    asking: Tables,
    out: list[Path],
    as_json: bool,
) -> None:
    """Write pictures, or go on with some: into files, else as characters."""
    from regard.look.pixels import check_picture_file
    from regard.tasks.generate import paint

    if prompts:
        raise UsageError("this model writes pictures; say how they begin with --label or --start, or say nothing")
    if keep is not None and start is None:
        raise UsageError("--keep says how much of a picture stays; name it: --start picture.png")
    for path in out:
        check_picture_file(path)
    if start is None:
        begins = paint.beginnings(generator, samples, label)
    else:
        begins = paint.continued(generator, start, samples, label, paint.KEEP if keep is None else keep)
    began = time.perf_counter()
    with progress("writing pixels") as advance:
        found = paint.written(generator, begins, progress=advance, **asking)
    seconds, pixels = time.perf_counter() - began, sum(len(each.tokens) for each in found)
    for path in out:
        say(f"wrote {paint.save_written(generator, begins, found, path)}")
    count = f"{len(found):,} picture{'s' if len(found) > 1 else ''}"
    say(f"{count} in {seconds:.1f} s, {pixels / max(seconds, 1e-9):,.0f} pixels a second")
    if as_json:
        for each in found:
            print(json_line(each.data()))
    elif not out:
        results().print(paint.sheet_of(generator, begins, found))


def _asked(prompts: list[str], as_text: bool) -> InputReader:
    if "-" in prompts:
        return arguments([_read(text) for text in prompts])
    return texts_or_lines(prompts, as_text=as_text)


def _as_lines(each: Answered[Generated], as_json: bool) -> list[str]:
    """Every text that was written, and where it ends."""
    if each.found is None:
        return [json_line({"prompt": each.item.value, "error": str(each.error)}) if as_json else "\n---"]
    every = each.found.each()
    if as_json:
        return [json_line(one.data()) for one in every]
    return [f"{for_terminal(str(one))}\n---" for one in every]


def for_terminal(text: str) -> str:
    """A terminal is not given control characters, which a model may say and which could rearrange it."""
    if not sys.stdout.isatty():
        return text
    return "".join(each for each in text if each in "\n\t" or unicodedata.category(each) != "Cc")


def _decode(options: Tables) -> Tables:
    """The options of decoding that the person gave."""
    shapes = {name: options[name] for name in ("temperature", "top_k", "top_p", "min_p")}
    if options["temperature"] == 0 and not options["beam"]:  # then no other shape of a draw matters
        options, shapes = {**options, "greedy": True}, {}
    if (options["greedy"] or options["beam"]) and given(**shapes):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given(**shapes))
        raise UsageError(f"{names} shape random draws, which --greedy and --beam do not make; leave one out")
    if options["greedy"] and not options["beam"] and (options["samples"] or 1) > 1:
        count = options["samples"]
        raise UsageError(
            f"--greedy and --temperature 0 find one text, not --samples {count}; leave them out for {count} random ones, or "
            f"say --beam {count} for the {count} best"
        )
    lengths = given(max_length=options["length"], min_length=options["min_length"])
    decode = {**lengths, **given(stopping=stopping_of(options["engine"], options["stopping"]), **shapes)}
    if options["greedy"] or options["beam"]:
        decode |= {"sample": False, "beam": options["beam"] or 1}
    else:
        decode |= {"sample": True}
        decode |= {"seed": options["seed"] if options["seed"] is not None else random.randrange(2**32)}
    if options["samples"]:
        decode |= {"n_best": options["samples"]}
    return decode


def _read(text: str) -> str:
    if text != "-":
        return text
    return "\n".join(decode_lines(sys.stdin.buffer, "stdin"))


def _stream(generator: Generator, prompt: str, stop: list[str], decode: Tables) -> None:
    """Print the prompt, then each piece as it comes."""
    from regard.tasks.generate.pieces import TextPiece

    events = generator.stream(prompt, stop=stop, **decode)  # what is no text is told before anything is printed
    print("" if generator.answers else for_terminal(prompt), end="", flush=True)
    for event in events:
        if isinstance(event, TextPiece):
            print(for_terminal(event.text), end="", flush=True)
        elif not event.finished and sys.stderr.isatty():
            print()
            say(f"(stopped after {len(event.tokens)} tokens; -n N writes more)")
        else:
            print()
