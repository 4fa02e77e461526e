"""`regard extrapolate`: language models on windows longer than those they were trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model import about, check_device, check_files, check_out, choose_device
from regard.cli.options import AsJson, Device
from regard.cli.output import print_json, print_table, progress, results, say
from regard.errors import UsageError
from regard.files import finite, write_json

if TYPE_CHECKING:
    from regard.bench.extrapolate import AtLength, Extrapolation

COLUMNS = ("model", "positions", "window", "loss", "perplexity", "bits per byte", "at its end")
AT_ITS_END = (
    "at its end: how much worse (+) or better (-) the last part of a window is, as long as one of training,\n"
    "against the same predictions read in windows of training"
)
SUFFIXES = (".png", ".svg", ".json")


def extrapolate(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN [RUN...]", help="Runs, or bundles, of language models.", show_default=False),
    ],
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="FILE...", help="A text to read.", show_default="the runs' validation text"),
    ] = None,
    times: Annotated[
        str, typer.Option(metavar="N,N", help="Windows, in multiples of the context of training.")
    ] = "1,2,4,8",
    interpolate: Annotated[
        bool,
        typer.Option("--interpolate", help="Also with rotary positions divided by the multiple (Chen et al. 2023)."),
    ] = False,
    context: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tokens of a window in training.", show_default="the run's"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Draw or save it (.png .svg .json).")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """The loss of language models on windows longer than in training: where positions still reach, and where they break.

    The same predictions count at every length. Learned positions end where their table does.
    """
    factors = read_times(times)
    check_out(out, SUFFIXES)
    check_device(device)
    check_files(on or ())
    for run in runs:
        about(run)
    say(
        f"reading {' '.join(on or ()) or 'the validation text'} with {', '.join(runs)}, in windows of "
        f"{', '.join(f'{factor}×' for factor in factors)} the context of training; each takes about as long as the first"
    )
    from regard.bench.extrapolate import extrapolate as measure

    with progress("windows read", every=5.0) as advance:
        found = measure(
            runs, on or (), times=factors, interpolate=interpolate, context=context,
            device=choose_device(device), progress=advance,
        )  # fmt: skip
    written = None if out is None else save(found, on or [], out)  # a reader that leaves early loses nothing
    if as_json:
        print_json({"on": on or [], "models": [each.data() for each in found]})
    else:
        print_lengths(found, on or [])
    if written is not None:
        say(f"wrote {written}")


def read_times(text: str) -> tuple[int, ...]:
    """`1,2,4` as numbers, each once, from short to long."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise UsageError(f"--times are whole numbers with commas between them, as 1,2,4,8; not {text!r}")
    return tuple(found)


def print_lengths(found: list[Extrapolation], on: list[str]) -> None:
    rows = [
        [model.name if first else "", model.positions if first else "", *cells(each)]
        for model in found
        for first, each in zip([True, *[False] * len(model.lengths)], model.lengths, strict=False)
    ]
    print_table(COLUMNS, rows, right=COLUMNS[2:], fold=("model",))
    tokens = max(each.tokens for model in found for each in model.lengths)
    console, text = results(), " ".join(on) or "the validation text"
    console.print(f"{tokens:,} predictions of {text}, the same ones in every window", markup=False)
    console.print(AT_ITS_END, style="dim", soft_wrap=True)


def cells(each: AtLength) -> list[str]:
    window = f"{each.window:,} ({each.times}×)"
    if each.cannot:
        return [window, f"cannot ({each.cannot})", "", "", ""]
    change = "" if each.times == 1 else f"{each.by_place[-1].change:+.4f}"
    return [window, f"{each.loss:.4f}", f"{each.perplexity:.2f}", f"{each.bits_per_byte:.3f}", change]


def save(found: list[Extrapolation], on: list[str], path: Path) -> Path:
    if path.suffix.lower() == ".json":
        return write_json(path, finite({"on": on, "models": [each.data() for each in found]}))
    from regard.look.comparison import LengthLine
    from regard.look.figures.comparison import save_lengths

    lines = []
    for model in found:
        could = [each for each in model.lengths if not each.cannot]
        longest = could[-1].by_place if could else ()
        line = LengthLine(
            model.name,
            [float(each.times) for each in model.lengths],
            [each.loss for each in model.lengths],
            [(each.first + each.end) / 2 / model.trained for each in longest],
            [each.change for each in longest],
        )
        lines.append(line)
    return save_lengths(lines, path)
