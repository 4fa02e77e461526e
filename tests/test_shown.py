"""What everything that shows itself has in common: a table of renderers, each importable, none imported too early."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from regard.errors import RegardError, UsageError
from regard.look.colors import INK, hexadecimal
from regard.look.layers import ChannelWeights, MixingMatrices
from regard.look.map import AttentionMap
from regard.look.pages import template
from regard.look.renderers import FIGURE_FILE, RENDERERS, TERMINAL_TEXT
from regard.look.shown import Shown, Written, function
from regard.look.words import RowTexts

MODULES = (
    *("map", "sentence", "recorded", "lines", "words", "pictures", "heads", "formation", "layers", "walk.steps"),
    *("panels", "written", "graph", "hearing", "spectrograms", "roll", "pixels"),
)
DATA = (
    *("map", "sentence", "lines", "words", "pictures", "layers", "walk.steps"),
    "walk.examples.table",
    *("panels", "states", "features", "positions", "routing", "written", "graph"),
)
NAMES = [name for kind in RENDERERS.values() for name in asdict(kind).values() if name]


@pytest.mark.parametrize("name", [*NAMES, FIGURE_FILE, TERMINAL_TEXT])
def test_every_renderer_of_the_table_is_there(name: str) -> None:
    assert callable(function(name))


def test_the_table_has_every_class_that_shows_itself() -> None:
    modules = [importlib.import_module(f"regard.look.{name}") for name in MODULES]
    shown = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    shown = {each for each in shown - {Written, Shown} if issubclass(each, (Written, Shown))}
    own = {each.__name__ for each in shown if each.__base__ in (Written, Shown)}
    assert own <= set(RENDERERS) <= {each.__name__ for each in shown}  # a kind of panels may be drawn in its own way


def test_data_imports_no_renderer() -> None:
    """Who only computes waits for neither matplotlib nor rich nor templates."""
    imports = ", ".join(f"regard.look.{name}" for name in DATA)
    heavy = {"matplotlib", "rich", "jinja2", "torch"}
    code = f"import sys, {imports}; sys.exit(str({heavy} & set(sys.modules)) if {heavy} & set(sys.modules) else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "shown",
    [
        ChannelWeights({"block.0": np.array([0.2, 0.9, 0.5])}, "a cat"),
        MixingMatrices((np.eye(4), np.ones((4, 4))), (2, 2), "mixer"),
        RowTexts(AttentionMap(np.full((2, 3), 1 / 3), (" a", " b", " c"), ("x", "y"))),
    ],
)
def test_every_medium_shows_it(shown: Shown, tmp_path: Path) -> None:
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".json", b"{")):
        assert shown.save(tmp_path / f"shown{suffix}").read_bytes().startswith(start)
    assert shown.png(tmp_path / "any.name").read_bytes().startswith(b"\x89PNG")
    assert shown._repr_html_().startswith("<")
    console = Console(width=80, file=io.StringIO())
    console.print(shown)
    assert isinstance(console.file, io.StringIO) and console.file.getvalue().strip()
    with pytest.raises(UsageError, match=r"to shown\.pdf, which ends in \.pdf; use \.png, \.svg"):
        shown.save(tmp_path / "shown.pdf")


def test_a_class_without_a_renderer_says_so() -> None:
    class Unknown(Shown):
        pass

    with pytest.raises(RegardError, match="Unknown has no renderer for figure"):
        Unknown().figure()


# --- Files that pages are made of

LOOK = Path(importlib.import_module("regard.look").__file__ or "").parent


@pytest.mark.parametrize("path", sorted((LOOK / "static").iterdir()), ids=lambda path: path.name)
def test_styles_and_scripts_stand_in_xml_as_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not set("<&") & set(text) and "url(" not in text and "http" not in text


def test_a_script_in_a_page_is_one_function_without_modules() -> None:
    text = template.script("heatmap.js", "formation.js", call="formation(1, 2);")
    assert text.startswith("(() => {") and text.rstrip().endswith("formation(1, 2);\n})();")
    assert "import" not in text and "export" not in text and "function paint(" in text


def test_the_ramp_of_the_theme_is_the_ramp_of_the_figures() -> None:
    ramp = ", ".join(hexadecimal(each) for each in INK)
    assert f"--ramp: linear-gradient(to right, {ramp});" in template.stylesheet("theme.css")


def test_every_page_has_the_theme_and_every_text_is_escaped() -> None:
    page = template.render("base.html", title='<b> & "x" \x1b')
    assert "&lt;b&gt; &amp; &quot;x&quot; \\x1b" in page and "prefers-color-scheme: dark" in page


def test_the_package_declares_its_templates_styles_and_scripts() -> None:
    declared = tomllib.loads((LOOK.parents[1] / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    files = {path for pattern in declared["regard"] for path in LOOK.parent.glob(pattern)}
    assert {path for name in ("templates", "static") for path in (LOOK / name).iterdir()} <= files
