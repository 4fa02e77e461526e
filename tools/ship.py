"""Make the small bundles that come with Regard: trained on its own built-in data, scored, and laid into the package.

    python tools/ship.py                      all of them, in about half an hour of two cores
    python tools/ship.py dates python         some
    python tools/ship.py names --run RUN      from a run of the same command that is there already

Each folder of `regard/shipped/` has the command that trained it and its score on test data of the same kind in its README.md.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from regard.cli.main import run as run_command
from regard.files import new_folder, read_json, write_text
from regard.runs import SHIPPED, bundle_folder


@dataclass(frozen=True)
class Shipped:
    """One bundle: the words after `regard train`, those after `regard eval RUN --on`, and what the score is called."""

    train: str
    test: str  # empty: there is no test set, and the score is that on validation data
    metric: str
    about: str  # what it does, in a sentence


SMALL = "--set model.layers=4 --set model.width=128 --set model.heads=4 --set model.feed_forward=344"
BUNDLES = {
    "dates": Shipped(
        "translate --preset demo --set tokens.kind=character --languages dates,iso-8601 --budget 3m",
        "builtin/dates/test",
        "exact",
        "Reads dates in eighteen languages and writes them as ISO 8601: 3 mai 2004 becomes 2004-05-03.",
    ),
    "names": Shipped(
        "classify --budget 3m",
        "builtin/names/test/5",
        "accuracy",
        "Tells by their letters which of twenty languages names of places, languages and currencies are in.",
    ),
    "scenes": Shipped(
        "caption --budget 200s", "builtin/shapes/test", "exact", "Says in a sentence what shapes a drawn picture shows."
    ),
    "questions": Shipped(
        "answer --budget 230s", "builtin/shapes/test", "accuracy", "Answers questions about drawn pictures of shapes."
    ),
    "letters": Shipped(
        "classify --data builtin/glyphs --budget 2m", "builtin/glyphs/test", "accuracy", "Reads one drawn letter."
    ),
    "python": Shipped(
        f"generate --budget 8m {SMALL}",
        "",
        "perplexity",
        "Goes on with Python's source: a language model of the standard library.",
    ),
    "gaps": Shipped(
        f"fill --budget 5m {SMALL.replace('344', '512')}",
        "",
        "perplexity",
        "Fills gaps in Python's source, and gives texts vectors.",
    ),
}


def in_a_process(*words: str) -> str:
    """What a command prints, whose time begins with its process."""
    return subprocess.run(
        [sys.executable, "-m", "regard", *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def in_this_process(*words: str) -> str:
    """The same in the tiny mode, which has no time for imports."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        if code := run_command(words):
            sys.exit(code)
    return printed.getvalue()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BUNDLES))
    parser.add_argument("--run", type=Path, help="a run that is there already, of the one bundle that is named")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--tiny", action="store_true", help="names learned for a few updates, thrown away")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as place:
            few = Shipped("classify --steps 20", "builtin/names/test/5", "accuracy", BUNDLES["names"].about)
            ship("names", few, None, Path(place), in_this_process)
        return
    for name in options.names or BUNDLES:
        if name not in BUNDLES:
            parser.error(f"no bundle {name}: {', '.join(BUNDLES)}")
        ship(name, BUNDLES[name], options.run, options.out)


def ship(name: str, bundle: Shipped, run: Path | None, out: Path, regard: Callable[..., str] = in_a_process) -> None:
    """Train it, unless its run is there; score it; lay it into the package with what was done."""
    with tempfile.TemporaryDirectory() as place:
        if run is None:
            run = Path(place) / "run"
            regard("train", *bundle.train.split(), "-o", str(run))
        lay(name, bundle, bundle_folder(run), score(bundle, run, regard), out)


def score(bundle: Shipped, run: Path, regard: Callable[..., str]) -> str:
    if bundle.test:
        told = json.loads(regard("eval", str(run), "--on", *bundle.test.split(), "--json"))
        return f"{bundle.metric} on `{bundle.test}`: {told[bundle.metric]:.1f}%"
    told = read_json(bundle_folder(run) / "metrics.json")
    return f"{bundle.metric} on validation data: {told[bundle.metric]:.2f}"


def lay(name: str, bundle: Shipped, made: Path, scored: str, out: Path) -> None:
    """Copy a bundle in the place of the former one, its card with the command and the score."""
    card = (made / "README.md").read_text(encoding="utf-8").replace("-m . ", f"-m {name} ")
    command = f"{bundle.about}\n\n    regard train {bundle.train}\n\n{scored}\n\n"
    first, _, rest = card.partition("\n\n")
    with new_folder(out / name) as inside:
        for path in made.iterdir():
            shutil.copy(path, inside / path.name)
        write_text(inside / "README.md", f"{first}\n\n{command}{rest}")
    size = sum(path.stat().st_size for path in (out / name).iterdir()) / 1e6
    print(f"{out / name}: {size:.1f} MB, {scored}")


if __name__ == "__main__":
    main()
