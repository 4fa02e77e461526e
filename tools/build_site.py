"""Build the documentation site from README, docs/ and the generated reference: make docs does all of it.

    python tools/build_site.py --reference build/reference -o site
    python tools/build_site.py --pages-only build/docs       only the pages and the configuration, nothing is rendered

The pages are the Markdown of the repository, as it is read there. On the way into the site each link to a file goes to the
page made of that file, or to a copy of it; a second word behind the language of a block of code goes; and lists are indented as
Python-Markdown wants them. The navigation follows from the pages that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = Path("docs/site")  # of the site itself: its theme and its versions
FRONT = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md",
         "CONTRIBUTING.md": "contributing.md"}  # fmt: skip
GUIDES = {
    "Data and training": (
        "data",
        "how-much",
        "tuning",
        "finetuning",
        "preferences",
        "training",
        "processes",
        "scaling",
        "scale",
        "known",
        "plugins",
    ),
    "Looking inside": ("walk", "views"),
    "Using and serving": ("http", "engine", "json", "exporting"),
}
RESULTS = (
    "results", "benchmarks", "results/bench", "experiments", "lineage", "looking", "language", "long", "seeing", "captioning"
)  # fmt: skip
REFERENCE = ("verbs", "settings", "python", "http")
ALONE = "---\nhide: [navigation]\n---\n\n"  # before a page that has no others beside it

LINK = re.compile(r"(?P<before>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<link>[^()\s]+)(?P<after>\))")
CODE = re.compile(r"^(```+|~~~+)[^\n]*\n.*?^\1 *$|(?<=\n\n)(?: {4}[^\n]*\n+)+|`[^`\n]+`", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^(?P<indent>\s*)(?P<marks>```+|~~~+)(?P<language>[\w-]*)(?P<more>.*)$")
ITEM = re.compile(r"^(?P<indent> *)(?P<mark>[-*+]|\d+[.)])(?P<space> +)(?=\S)")


# --- Pages


@dataclass
class Pages:
    """Which file becomes which page, and what else must be copied beside the pages because one links to it."""

    root: Path
    places: dict[Path, str]  # of each Markdown file in the site
    copied: dict[Path, str] = field(default_factory=dict)
    listed: dict[Path, str] = field(default_factory=dict)  # folders, each a page with the names of its files

    def place_of(self, target: Path) -> str | None:
        """Where a file or folder of the repository stands in the site; None if there is no such thing."""
        if target in self.places:
            return self.places[target]
        if target / "README.md" in self.places:
            return self.places[target / "README.md"]
        if not target.exists():
            return None
        name = str(target.relative_to(self.root)).replace(os.sep, "/")
        name = name.removeprefix("docs/") if name.startswith("docs/") else f"files/{name}"
        if target.is_dir():
            self.listed[target] = f"{name}/index.md"
            for each in sorted(target.iterdir()):
                self.place_of(each)
            return self.listed[target]
        return self.copied.setdefault(target, name)


def find_pages(root: Path, reference: Path | None = None) -> Pages:
    """Every page: those of the repository's front, of docs/ with all its folders, and of the reference if it was made."""
    places = {root / name: place for name, place in FRONT.items() if (root / name).exists()}
    for page in sorted((root / "docs").rglob("*.md")):
        place = str(page.relative_to(root / "docs")).replace(os.sep, "/")
        if not page.is_relative_to(root / SETTINGS):
            places[page] = re.sub(r"(^|/)README\.md$", r"\1index.md", place)
    if reference is not None:
        places |= {page.resolve(): f"reference/{page.name}" for page in sorted(reference.glob("*.md"))}
    return Pages(root, places)


def for_site(text: str, source: Path, pages: Pages) -> tuple[str, list[str]]:
    """The text of a page as the site wants it, and the links that lead nowhere."""
    wrong: list[str] = []
    code = [each.span() for each in CODE.finditer(text)]

    def follow(found: re.Match[str]) -> str:
        link = found["link"]
        if re.match(r"[a-z]+:|#", link) or any(start <= found.start() < end for start, end in code):
            return found[0]
        name, mark, anchor = unquote(link).partition("#")
        place = pages.place_of((source.parent / name).resolve())
        if place is None:
            wrong.append(f"{source.relative_to(pages.root)}: {link} leads nowhere")
            return found[0]
        here = os.path.dirname(pages.places[source])
        there = os.path.relpath(place, here or ".").replace(os.sep, "/")
        return f"{found['before']}{there.replace(' ', '%20')}{mark}{anchor}{found['after']}"

    return indented(LINK.sub(follow, text)), wrong


def indented(text: str) -> str:
    """Lists as Python-Markdown reads them: a blank line before, four spaces a level; and fences with a language alone."""
    lines: list[str] = []
    levels: list[int] = []  # of each list that is open, the column at which the text of its item begins
    fence, shift, blank = "", 0, True
    for line in text.split("\n"):
        found, item = FENCE.match(line), ITEM.match(line)
        column = len(line) - len(line.lstrip(" "))
        if fence:
            lines.append(_shifted(line, shift))
            fence = "" if line.strip() == fence else fence
            continue
        if not line.strip():
            lines.append("")
        elif item and column <= (levels[-1] if levels else 0) + 3 and (levels or blank or item["mark"] in "1.-*+"):
            begins = not levels and not blank
            while levels and column < levels[-1]:
                levels.pop()
            if begins:
                lines.append("")
            lines.append(" " * 4 * len(levels) + line[column:])
            levels.append(item.end())
        else:
            while blank and levels and column < levels[-1]:
                levels.pop()
            shift = 4 * len(levels) - levels[-1] if levels and column >= levels[-1] else 0
            if found:
                fence = found["marks"]
                line = f"{found['indent']}{fence}{found['language']}"
            lines.append(_shifted(line, shift))
        blank = not line.strip()
    return "\n".join(lines)


def _shifted(line: str, shift: int) -> str:
    if shift >= 0 or not line.strip():
        return " " * shift + line if line.strip() else line
    return line[min(-shift, len(line) - len(line.lstrip(" "))) :]


# --- Navigation


def navigation(places: Sequence[str]) -> list[dict[str, Any]]:
    """The navigation over the pages that are there; one that no group names stands under Guides, and none is lost."""
    there = set(places)
    course = sorted(place for place in there if place.startswith("course/"))
    index = [place for place in course if place == "course/index.md"]
    course = [*index, *(place for place in course if place not in index and place.count("/") == 1)]
    groups = {title: [f"{name}.md" for name in names if f"{name}.md" in there] for title, names in GUIDES.items()}
    results = [f"{name}.md" for name in RESULTS if f"{name}.md" in there]
    reference = [f"reference/{name}.md" for name in REFERENCE if f"reference/{name}.md" in there]
    named = {*course, *results, *reference, *FRONT.values(), "syllabus.md"}
    more = sorted(there - named.union(*groups.values()))
    found: list[tuple[str, Any]] = [
        ("Start", "index.md"),
        ("Course", [*course, *(["syllabus.md"] if "syllabus.md" in there else [])]),
        ("Guides", [{title: group} for title, group in {**groups, "More": more}.items() if group]),
        ("Reference", reference),
        ("Results", results),
        ("Architecture", [each for each in ("architecture.md", "contributing.md") if each in there]),
        ("Changelog", "changelog.md"),
    ]
    return [{title: part} for title, part in found if part and (isinstance(part, list) or part in there)]


# --- The folder that the site is built from


def write_pages(folder: Path, root: Path = ROOT, reference: Path | None = None) -> list[str]:
    """Write pages, copies and configuration into a folder that is new; return the links that lead nowhere."""
    pages, wrong = find_pages(root, reference), list[str]()
    shutil.rmtree(folder, ignore_errors=True)
    for source, place in pages.places.items():
        text, missing = for_site(source.read_text(encoding="utf-8"), source, pages)
        wrong += missing
        _write(folder / "pages" / place, (ALONE if place in ("index.md", "changelog.md") else "") + text)
    for target, place in pages.listed.items():
        _write(folder / "pages" / place, "\n".join(_listing(target, pages)) + "\n")
    for target, place in pages.copied.items():
        (folder / "pages" / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, folder / "pages" / place)
    shutil.copyfile(root / SETTINGS / "site.css", folder / "pages" / "site.css")
    settings = (root / SETTINGS / "mkdocs.yml").read_text(encoding="utf-8")
    nav = json.dumps(navigation(list(pages.places.values())), ensure_ascii=False)  # which is YAML as well
    _write(folder / "mkdocs.yml", re.sub(r"^nav: \[\]$", lambda _: f"nav: {nav}", settings, flags=re.MULTILINE))
    return wrong


def _listing(target: Path, pages: Pages) -> Iterator[str]:
    """The page of a folder: its name, and a line for each file."""
    yield f"# {target.relative_to(pages.root)}\n"
    for each in sorted(target.iterdir()):
        place = pages.place_of(each)
        if place is not None:
            there = os.path.relpath(place, os.path.dirname(pages.listed[target])).replace(os.sep, "/")
            yield f"- [{each.name}]({there.replace(' ', '%20')})"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def render(folder: Path, out: Path) -> None:
    """Make HTML of the pages in a folder, and put it where it is wanted; a warning is an error."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tools"),
        "NO_MKDOCS_2_WARNING": "1",
    }  # formulas: tools/mathml.py
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--clean"]
    command += ["--config-file", str(folder / "mkdocs.yml"), "--site-dir", str(out.resolve())]
    subprocess.run(command, env=environment, check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--reference", type=Path, help="the folder that tools/reference.py has written")
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "site", help="where the site goes")
    parser.add_argument("--pages-only", type=Path, metavar="DIR", help="write only the pages, and render nothing")
    asked = parser.parse_args(arguments)
    folder = asked.pages_only or ROOT / "build" / "docs"
    wrong = write_pages(folder, reference=asked.reference)
    for each in wrong:
        print(each, file=sys.stderr)
    if wrong:
        return 1
    if asked.pages_only is None:
        render(folder, asked.out)
        print(f"wrote {asked.out}; look at it with: python -m http.server -d {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
