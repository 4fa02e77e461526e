"""Make the notebooks of the course from its chapters: docs/course/NN-name.md becomes docs/course/notebooks/NN-name.ipynb.

    python tools/notebooks.py             write those that have changed
    python tools/notebooks.py --check     fail if one is out of date
    python tools/notebooks.py --tiny      write all into a temporary folder, and check them there

A chapter's Markdown is the source: nobody edits a notebook. No outputs are stored; the same chapter gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from regard.course.pages import notebook_of
from regard.course.table import CHAPTERS, PAGES
from regard.files import write_text


def made() -> dict[str, str]:
    """Every notebook by the name of its file."""
    found = {}
    for chapter in CHAPTERS.values():
        name = Path(chapter.file).stem
        notebook = notebook_of(chapter.page.read_text(encoding="utf-8"), name)
        found[f"{name}.ipynb"] = json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    return found


def differing(folder: Path) -> list[str]:
    """Notebooks in the folder that are missing, out of date, or of no chapter."""
    wanted = made()
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.ipynb")}
    return sorted(name for name in {*wanted, *there} if wanted.get(name) != there.get(name))


def write(folder: Path) -> list[str]:
    """Bring a folder up to date; the names of what was written or removed."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted, changed = made(), differing(folder)
    for name in changed:
        if name in wanted:
            write_text(folder / name, wanted[name])
        else:
            (folder / name).unlink()
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the notebooks of the course from its chapters.")
    parser.add_argument("--check", action="store_true", help="fail if a notebook is out of date")
    parser.add_argument("--tiny", action="store_true", help="in a temporary folder")
    options = parser.parse_args(arguments)
    if options.tiny:
        with tempfile.TemporaryDirectory() as folder:
            changed = write(Path(folder))
            print(f"{len(changed)} notebooks, {len(differing(Path(folder)))} out of date")
            return len(differing(Path(folder)))
    folder = PAGES / "notebooks"
    if options.check:
        changed = differing(folder)
        print(f"out of date: {', '.join(changed)}; type: python tools/notebooks.py" if changed else "all up to date")
        return 1 if changed else 0
    changed = write(folder)
    print("\n".join(f"wrote {name}" for name in changed) or "all up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
