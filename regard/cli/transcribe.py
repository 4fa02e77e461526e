"""`regard transcribe`: sounds in, words out, with their times, and where the model looked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.inputs import Answered, Item, answers, sounds
from regard.cli.model import check_model, check_out, load_model, newest_run
from regard.cli.options import Beam, Device, Model, given
from regard.cli.output import json_line, one_line, printable, results, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.transcribe.predictor import Transcriber, Transcript

FORMS = (".png", ".svg", ".html", ".json")
EVERY = 10.0  # seconds after which is told how much of a long sound was heard


def transcribe(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOUND", help="Sound files; without, those that standard input names, one a line."),
    ] = None,
    model: Model = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Draw what it heard and where it looked (.png .svg .html .json)."
        ),
    ] = None,
    times: Annotated[
        bool, typer.Option("--times", help="Print each word with when it was said, in seconds, if CTC tells it.")
    ] = False,
    attention: Annotated[bool, typer.Option("--attention", help="Show what it heard and where it looked.")] = False,
    piece: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Longer sounds are heard in pieces of this length.")
    ] = 20.0,
    ctc: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of CTC beside a decoder, 0 to 1.", show_default="as in training"),
    ] = None,
    beam: Beam = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with times, one line for each sound.")] = False,
) -> None:
    """Write down what is said in each sound, one line each; of several sounds, with its name before it.

    A sound that cannot be read is named on stderr and gets an empty line; the exit code is 1.
    """
    if out is not None and len(files or []) != 1:
        raise UsageError("-o draws one sound; name one SOUND")
    check_out(out, FORMS)
    run, options = model or newest_run("transcribe"), given(beam=beam)
    check_model(run, device, "transcribe", decode=options)
    asked = sounds(files, "transcribe")
    transcriber: Transcriber = load_model(run, device, "transcribe")
    looks = attention or out is not None

    def ask(items: list[Item]) -> Sequence[Transcript]:
        files = [item.value for item in items]
        return transcriber.transcribe(
            files, attention=looks, piece=piece, ctc=ctc, listening=_listening(files[0]), **options
        )

    with answers(asked, ask, 1, "transcribing") as answered:
        for each in answered:
            look = None if each.found is None else each.found.attention
            if out is not None and look is not None:  # before what is printed: the reader of stdout may have gone
                say(f"wrote {look.save(out)}")
            for line in _as_lines(each, names=not asked.alone, times=times, as_json=as_json):
                print(line)
            if attention and out is None and look is not None and not as_json:
                results().print(look)


def _listening(name: str) -> Callable[[float, float], None]:
    """Tells of a long sound, now and then, how much of it was heard and how long the rest takes."""
    started = last = time.monotonic()

    def listening(done: float, total: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY and done < total:
            last = now
            left = (now - started) * (total - done) / done
            say(f"{name}: heard {done / 60:.1f} of {total / 60:.1f} minutes, about {left:,.0f} s left")

    return listening


def _as_lines(each: Answered[Transcript], *, names: bool, times: bool, as_json: bool) -> list[str]:
    """The text of a sound, or its words with their times."""
    name = f"{printable(each.item.where)}\t" if names else ""
    if each.found is None:
        return [json_line({"audio": each.item.value, "error": str(each.error)}) if as_json else name]
    if as_json:
        return [json_line(each.found.data())]
    if not times:
        return [f"{name}{one_line(each.found.text)}"]
    if each.found.text and not each.found.words:  # without CTC, or where the text has no room in the frames
        return [f"{name}\t\t{one_line(each.found.text)}"]
    return [f"{name}{word.start:.2f}\t{word.end:.2f}\t{word.text}" for word in each.found.words]
