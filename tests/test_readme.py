"""The Python of the README runs, and every page reads as it was meant; commands of all pages: test_docs.py."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
from markdown_it import MarkdownIt
from markdown_it.token import Token

import regard
from regard.data.pairs import builtin_pairs
from regard.tasks import train

ROOT = Path(regard.__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, but for the size of model and run: a test cannot train for an hour."""
    (block,) = (block for block in BLOCKS if "regard.train" in block)
    rows = "".join(f"{source}\t{target}\n" for source, target in builtin_pairs("train", 300))
    (tmp_path / "pairs.tsv").write_text(rows, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    small = {
        "model": {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 32},
        "train": {"steps": 4, "validate_every": 2, "warmup": 2},
        "tokens": {"size": 300},
        "validate": {"sentences": 3},
        "decode": {"max_length": 5},
    }
    monkeypatch.setattr(regard, "train", partial(train, **small), raising=False)
    names: dict[str, object] = {}
    exec(block, names)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert names["seen"].check() < 1e-4  # type: ignore[attr-defined]


def test_the_python_about_other_models_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, with a smaller model."""
    import transformers

    (block,) = (block for block in BLOCKS if "transformers" in block)
    small = partial(
        transformers.GPT2Config, n_layer=4, n_head=4, n_embd=16, vocab_size=50, bos_token_id=0, eos_token_id=0
    )
    monkeypatch.setattr(transformers, "GPT2Config", small)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"input_ids": torch.arange(12)[None]}
    exec(block, names)
    seen = names["seen"]
    assert len(seen.calls) == 4 and seen.check() < 1e-5  # type: ignore[attr-defined]
    assert (tmp_path / "map.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_files_that_the_readme_links_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) >= 5
    assert [link for link in links if not (ROOT / link).exists()] == []


# --- Every page as it is rendered

PAGES = sorted(page for pattern in ("*.md", "docs/**/*.md", ".github/**/*.md") for page in ROOT.glob(pattern))
RUN_TOGETHER = re.compile(r"[.:;)*`]\s+[-*•]\s+[A-Z*`\[]|\s[-•]$|[.:]\s[2-9]\.\s[A-Z*`]|\S {2,}\S", re.MULTILINE)
DELIMITER = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*$", re.MULTILINE)


def troubles(text: str, beside: Path) -> list[str]:
    """What a reader of the rendered page would stumble over, each with its line."""
    lines, found = text.split("\n"), list[str]()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token in tokens:
        at = f"line {token.map[0] + 1}" if token.map else "somewhere"
        if token.type == "inline" and token.children is not None:
            shown = "".join(map(shown_as, token.children))
            if RUN_TOGETHER.search(shown):
                found.append(f"{at}: a list has run together: {RUN_TOGETHER.search(shown)!r}")
            if DELIMITER.search(shown):
                found.append(f"{at}: a table is no table: its head has another number of cells than the line below")
            links = [str(part.attrs.get("href") or part.attrs.get("src") or "") for part in token.children]
            found += [
                f"{at}: {link} leads nowhere" for link in links if link and not leads_somewhere(link, text, beside)
            ]
        if token.type == "fence" and token.map and not lines[token.map[1] - 1].strip().startswith(token.markup):
            found.append(f"{at}: a block of code is not closed")
        if token.type == "table_open" and token.map:
            rows = [line for line in lines[token.map[0] : token.map[1]] if line.strip()]
            counts = [len(re.split(r"(?<!\\)\|", row.strip().strip("|"))) for row in rows]
            found += [
                f"{at}: row {n + 1} has {c} cells, the head {counts[0]}" for n, c in enumerate(counts) if c != counts[0]
            ]
    return found


def shown_as(part: Token) -> str:
    """A part of a line, with marks where emphasis and code begin."""
    if part.type == "softbreak":
        return "\n"
    return "`code`" if part.type == "code_inline" else part.content or part.markup


def leads_somewhere(link: str, text: str, beside: Path) -> bool:
    """Whether a link names something outside, a file that is there, or a heading of a page."""
    if re.match(r"[a-z]+:", link):
        return True
    name, _, anchor = unquote(link).partition("#")
    if name and not (beside / name).exists():
        return False
    if not anchor or (name and not name.endswith(".md")):
        return True
    page = (beside / name).read_text(encoding="utf-8") if name else text
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_reads_as_it_was_meant(page: Path) -> None:
    """In one, the points of a list had run together into a paragraph."""
    assert troubles(page.read_text(encoding="utf-8"), page.parent) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- One. - **Two** and\n  more", "run together"),
        ("- One is here. -\n**Two** is", "run together"),
        ("1. One. 2. Two", "run together"),
        ("- words that   were wrapped", "run together"),
        ("| a | b |\n|---|---|\n| 1 | 2 | 3 |", "row 3 has 3 cells, the head 2"),
        ("| a | b |\n|---|---|\n| 1 |", "row 3 has 1 cells"),
        ("| a | b | c |\n|---|---|\n| 1 | 2 |", "no table"),
        ("[x](nowhere.md)", "nowhere.md leads nowhere"),
        ("![x](images/nothing.png)", "nothing.png leads nowhere"),
        ("# Two words\n\n[x](#two-word)", "#two-word leads nowhere"),
        ("```\ncode", "not closed"),
    ],
)
def test_a_page_that_is_damaged_is_told(text: str, words: str, tmp_path: Path) -> None:
    (found,) = troubles(text, tmp_path)
    assert words in found


def test_a_page_that_is_whole_passes(tmp_path: Path) -> None:
    (tmp_path / "a b.md").write_text("# Name: `x`, y\n")
    text = (
        "# Two words\n\n- One - or two.\n- **Two**\n  - three\n\n| a | `b \\| c` |\n|---|:-:|\n| 1 | 2 |\n\n"
        "[x](#two-words) [y](a%20b.md#name-x-y) <https://example.org>\n\n```\na   b\n```\n\nIt is 3 - 2 `a   b`."
    )
    assert troubles(text, tmp_path) == []
