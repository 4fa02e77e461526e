"""The documentation site: every page comes into it with links that lead somewhere, and the reference lacks no description."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_site  # noqa: E402
import reference  # noqa: E402

from regard.cli.main import VERBS  # noqa: E402
from regard.tasks.table import TASKS  # noqa: E402

# --- The reference


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the reference; nothing of them lacks a description."""
    folder = tmp_path_factory.mktemp("reference")
    assert reference.write_reference(folder) == []
    return folder


def test_the_reference_has_every_verb_with_its_options(made: Path) -> None:
    page = (made / "verbs.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^### regard (.*)$", page, re.MULTILINE))
    assert set(VERBS) <= headings and {"bench attention", "data check"} <= headings
    training = page.partition("### regard train\n")[2].partition("\n### ")[0]
    assert "`--budget TIME`" in training and "[default: (15m)]" in training and "| `--set A.B=C` |" in training


def test_the_reference_has_every_setting_with_its_tasks(made: Path) -> None:
    page = (made / "settings.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| (.*) \|$", page, re.MULTILINE))
    assert rows["train.clip"].endswith("| all") and rows["decode.beam"].count("translate") == 1
    assert "number over 0" in rows["train.lr"] and "`0.01` (generate, ask)" in rows["train.lr"]
    assert "### linformer" not in page and "### model.attention = linformer" in page
    assert all(f"\n### {kind}\n" in page for kind in ("bahdanau", "llama", "tfidf", "vit", "answerer"))


def test_the_reference_has_the_python_api_and_the_routes(made: Path) -> None:
    page = (made / "python.md").read_text(encoding="utf-8")
    assert "```python\nregard.load(" in page and "### regard.RegardError" in page
    assert all(f"({task})" in page for task in TASKS) and "- `.translate(" in page
    routes = (made / "http.md").read_text(encoding="utf-8")
    assert "### POST /api/translate" in routes and "## OpenAI" in routes and "### GET /health" in routes


def test_what_has_no_description_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(count: int = 3) -> None:
        pass

    monkeypatch.setattr(reference, "PAGES", {"python": lambda missing: reference._object(silent, "silent", missing)})
    assert reference.main(["-o", str(tmp_path)]) == 1
    assert "silent has no docstring" in capsys.readouterr().err
    assert "silent(count: int = 3) -> None" in (tmp_path / "python.md").read_text()


# --- The pages


def leading(folder: Path) -> list[str]:
    """Links of the written pages that lead nowhere: found again, from the files alone."""
    wrong = []
    for page in (folder / "pages").rglob("*.md"):
        text = re.sub(
            r"^```.*?^```|^    .*?$|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
            if not re.match(r"[a-z]+:", link) and not (page.parent / link.replace("%20", " ")).exists():
                wrong.append(f"{page.name}: {link}")
    return wrong


def navigation(settings: str) -> list[object]:
    """The navigation that was written into the settings, in a line."""
    (found,) = re.findall(r"^nav: (.*)$", settings, re.MULTILINE)
    return list(json.loads(found))


def entries(part: object) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [each for below in (part.values() if isinstance(part, dict) else part) for each in entries(below)]  # type: ignore[attr-defined]


def test_every_page_comes_into_the_site_once(tmp_path: Path, made: Path) -> None:
    assert build_site.write_pages(tmp_path / "site", reference=made) == []
    assert leading(tmp_path / "site") == []
    settings = (tmp_path / "site/mkdocs.yml").read_text(encoding="utf-8")
    pages = entries(navigation(settings))
    assert len(pages) == len(set(pages)) and all((tmp_path / "site/pages" / page).exists() for page in pages)
    documents = {str(each.relative_to(ROOT / "docs")) for each in (ROOT / "docs").glob("*.md")}
    assert documents | {"index.md", "changelog.md", "reference/verbs.md"} <= set(pages)
    assert "font: false" in settings and not re.search(r"https?://", settings)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small one, with a course and a page that nobody has placed."""
    root = tmp_path / "root"
    (root / "docs/course/images").mkdir(parents=True)
    shutil.copytree(ROOT / "docs/site", root / "docs/site")
    (root / "README.md").write_text("# Front\n\n[c](docs/course/) [l](LICENSE) [x](docs/new.md#a) [d](data/)\n")
    (root / "LICENSE").write_text("free")
    (root / "data").mkdir()
    (root / "data/a b.json").write_text("{}")
    (root / "docs/new.md").write_text("# New\n\n## A\n\nText:\n- one\n  - two\n\n![i](course/images/i.svg)\n")
    (root / "docs/course/README.md").write_text("# Course\n\n[1](01-one.md)\n")
    (root / "docs/course/02-two.md").write_text("# Two\n\n```sh long\nregard demo\n```\n")
    (root / "docs/course/01-one.md").write_text("# One\n\n[up](../../README.md) [n](02-two.md)\n")
    (root / "docs/course/images/i.svg").write_text("<svg/>")
    return root


def test_a_course_is_found_and_a_new_page_is_not_lost(repository: Path, tmp_path: Path) -> None:
    assert build_site.write_pages(tmp_path / "site", repository) == []
    pages = tmp_path / "site/pages"
    assert navigation((tmp_path / "site/mkdocs.yml").read_text(encoding="utf-8")) == [
        {"Start": "index.md"},
        {"Course": ["course/index.md", "course/01-one.md", "course/02-two.md"]},
        {"Guides": [{"More": ["new.md"]}]},
    ]
    assert (
        "[c](course/index.md) [l](files/LICENSE) [x](new.md#a) [d](files/data/index.md)"
        in (pages / "index.md").read_text()
    )
    assert (
        "[a b.json](a%20b.json)" in (pages / "files/data/index.md").read_text()
        and (pages / "files/data/a b.json").exists()
    )
    assert "[up](../index.md)" in (pages / "course/01-one.md").read_text()
    assert "```sh\nregard" in (pages / "course/02-two.md").read_text()
    assert "Text:\n\n- one\n    - two\n" in (pages / "new.md").read_text() and (pages / "course/images/i.svg").exists()


def test_a_link_that_leads_nowhere_is_told(repository: Path, tmp_path: Path) -> None:
    (repository / "docs/new.md").write_text("# New\n\n[y](nothing.md)\n")
    assert build_site.write_pages(tmp_path / "site", repository) == ["docs/new.md: nothing.md leads nowhere"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n- b\n- c", "a\n\n- b\n- c"),
        ("- a\n  - b\n    - c\n  - d\n- e", "- a\n    - b\n        - c\n    - d\n- e"),
        ("1. a\n   b\n\n   c\n\nd", "1. a\n    b\n\n    c\n\nd"),
        ("- a\n\n  ```sh long\n    b\n  ```\n\nc", "- a\n\n    ```sh\n      b\n    ```\n\nc"),
        ("a\n\n    - code\n    - code", "a\n\n    - code\n    - code"),
        ("It was in\n2016. Then", "It was in\n2016. Then"),
        ("```\n- a\nb\n- c\n```", "```\n- a\nb\n- c\n```"),
        ("- a\nlazy\n\nb\n\n    code", "- a\nlazy\n\nb\n\n    code"),
    ],
)
def test_lists_as_the_site_reads_them(text: str, expected: str) -> None:
    assert build_site.indented(text) == expected


# --- Formulas, where the tools of the site are installed


def test_formulas_become_mathml() -> None:
    pytest.importorskip("latex2mathml")
    markdown = pytest.importorskip("markdown")
    text = "A weight $\\alpha_{ij}$ is `$not$` 5 $ or 6 $, costs \\$7.\n\n$$\ny = \\sqrt{d}\n$$\n\n    $C/code $D"
    page = markdown.markdown(text, extensions=["mathml"])
    assert page.count("<math") == 2 and page.count('display="block"') == 1 and "<msqrt>" in page
    assert "<code>$not$</code>" in page and "5 $ or 6 $, costs $7." in page and "<code>$C/code $D" in page


# --- The site itself, where it is built


def test_the_built_site_asks_nobody_and_can_be_searched() -> None:
    site = ROOT / "site"
    if not (site / "index.html").exists():
        pytest.skip("the site is not built; make docs builds it")
    import site_check
    from studio.browsing import chromium

    assert site_check.check(site, chromium()) == []
