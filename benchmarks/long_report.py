"""Figures and Markdown tables of what benchmarks/long.py and benchmarks/positions.py found, for docs/long.md.

python benchmarks/long_report.py docs/results/long.json docs/results/positions.json --images docs/images
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.files import write_bytes
from regard.look.comparison import LengthLine
from regard.look.figures.comparison import save_lengths
from regard.look.figures.sheet import DPI, QUIET, legend, render, style, tidy

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=Path, nargs="?", default=RESULTS / "long.json")
    parser.add_argument("positions", type=Path, nargs="?", default=RESULTS / "positions.json")
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    parser.add_argument("--tiny", action="store_true", help="the recorded results, and the figures thrown away")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        write_all(options, Path(folder) if options.tiny else options.images)


def write_all(options: argparse.Namespace, images: Path) -> None:
    print(quality(json.loads(options.kernels.read_text())))
    found = json.loads(options.positions.read_text())
    print(reach(found["extrapolate"]))
    print(sums(found["addition"]))
    save_lengths(lines(found["extrapolate"]), images / "extrapolation.png")
    write_bytes(images / "addition.png", render(draw_sums(found["addition"]), "png"))


def quality(found: dict[str, Any]) -> str:
    """One row for each kernel: what it scored on each task, and its share of exact attention's processor time."""
    rows = ["| | ListOps | time | IMDb bytes | time | Shakespeare, loss | time |", "|---|---|---|---|---|---|---|"]
    for kernel in dict.fromkeys(
        kernel for task in ("listops", "imdb", "shakespeare") for kernel in found.get(task, {})
    ):
        cells = []
        for task in ("listops", "imdb", "shakespeare"):
            entry, exact = found.get(task, {}).get(kernel), found.get(task, {}).get("exact")
            if entry is None or exact is None:
                cells += ["–", "–"]
                continue
            low, high = entry["test"]["interval"] if "test" in entry else (0, 0)
            score = f"{entry['validation']['loss']:.3f}"
            cells.append(f"{entry['test']['accuracy']:.1f} [{low:.1f}, {high:.1f}]" if "test" in entry else score)
            cells.append(f"{entry['processor_seconds'] / exact['processor_seconds']:.2f}")
        rows.append(f"| `{kernel}` | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def reach(found: dict[str, Any]) -> str:
    rows = ["| | 1× | 2× | 4× | 8× |", "|---|---|---|---|---|"]
    for name, entry in found.items():
        for way, lengths in entry["lengths"].items():
            cells = [f"{each['loss']:.3f}" if not each["cannot"] else "cannot" for each in lengths]
            label = f"{name}, {way}" if way == "interpolated" else name
            rows.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def sums(found: dict[str, Any]) -> str:
    digits = list(next(iter(found.values()))["exact"])
    rows = [f"| | {' | '.join(digits)} |", "|---" * (len(digits) + 1) + "|"]
    rows += [
        f"| {name} | {' | '.join(f'{each:.0f}' for each in entry['exact'].values())} |" for name, entry in found.items()
    ]
    return "\n".join(rows) + "\n"


def lines(found: dict[str, Any]) -> list[LengthLine]:
    """Each kind of positions over the length of the window."""
    out = []
    for name, entry in found.items():
        for way, lengths in entry["lengths"].items():
            known = [each for each in lengths if not each["cannot"]]
            parts, window = known[-1]["by_place"], known[0]["window"]
            out.append(
                LengthLine(
                    f"{name}, {way}" if way == "interpolated" else name,
                    [each["times"] for each in known],
                    [each["loss"] for each in known],
                    [(part["first"] + part["end"]) / 2 / window for part in parts],
                    [part["change"] for part in parts],
                )
            )
    return out


def draw_sums(found: dict[str, Any]) -> Figure:
    """How many sums are right, over the digits of both numbers."""
    figure = Figure(figsize=(8.4, 3.9), dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, (name, entry) in enumerate(found.items()):
        digits = [int(each) for each in entry["exact"]]
        axes.plot(digits, list(entry["exact"].values()), linewidth=1.6, markersize=5, label=name, **style(number))
    tidy(axes)
    axes.axvline(5, color=QUIET, linewidth=0.9, linestyle=(0, (3, 3)), zorder=1)
    axes.set_xlabel("digits of both numbers (training: up to 5)")
    axes.set_ylabel("% exactly right")
    axes.set_xticks(digits)
    legend(figure, axes)
    return figure


if __name__ == "__main__":
    main()
