"""Which way imports point, what is imported before it is needed, and what is never imported: read from the source."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# A row may import from the rows above it and from itself.
ORDER = [
    {"shapes", "errors", "plugins", "brief", "files", "noise", "tensors", "threads", "trials", "world", "shards"},
    {"config"},
    {"tokens"},
    {"data"},
    {"native"},
    {"attention"},
    {"embed"},
    {"blocks"},
    {"models"},
    {"decode"},
    {"bundle", "runs"},
    {"evaluate"},
    {"check"},
    {"training"},
    {"look"},
    {"predictor"},
    {"inspect"},
    {"interop"},
    {"tasks"},
    {"compare"},
    {"bench"},
    {"verify"},
    {"scale"},
    {"experiments"},
    {"course"},
    {"doctor", "world_doctor"},
    {"studio"},
    {"cli", "__main__"},
]
ROWS = {name: row for row, names in enumerate(ORDER) for name in names}
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def module_name(path: Path) -> str:
    parts = ("regard", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(source: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Every imported name with its line, also inside functions and under TYPE_CHECKING: `from a import b` is a.b."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from ((node.lineno, f"{base}.{name.name}") for name in node.names)


def wrong_arrows(source: ast.Module, module: str, package: str) -> list[str]:
    """Imports of this module that point down the order, or at something that has no place in it."""
    own, wrong = module.split(".")[1], []
    for line, name in imports(source, package):
        top, *rest = name.split(".")
        if top != "regard" or rest == ["__version__"]:
            continue
        if not rest and ROWS[own] == len(ORDER) - 1:
            continue  # the command line is behind all rooms, and may use the front door
        if not rest or rest[0] not in ROWS:
            wrong.append(f"{module}:{line} imports {name}, which has no place in the order")
        elif ROWS[rest[0]] > ROWS[own]:
            wrong.append(f"{module}:{line} imports {name}, which comes later")
    return wrong


def modules() -> list[Path]:
    return [path for path in FILES if path != ROOT / "__init__.py"]  # the package's own front door may open any room


def test_every_file_has_a_place_in_the_order() -> None:
    unknown = {module_name(path).split(".")[1] for path in modules()} - set(ROWS)
    assert not unknown, f"{sorted(unknown)}: put them into ORDER"


def test_no_import_points_down_the_order() -> None:
    wrong = []
    for path in modules():
        module = module_name(path)
        if module.split(".")[1] in ROWS:
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            wrong += wrong_arrows(tree(path), module, package)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("regard.attention.heads", "from regard.models.config import TransformerConfig"),
        ("regard.attention.heads", "import regard.blocks"),
        ("regard.decode.search", "def f():\n    from regard import models, tasks"),
        ("regard.data.batch", "from ..models import table"),
        ("regard.config", "from regard import record"),
        ("regard.config", "import regard"),
        ("regard.plugins", "import regard"),
        ("regard.evaluate.translation", "from regard.training.loop import train"),
    ],
)
def test_the_check_sees_a_wrong_arrow(module: str, line: str) -> None:
    assert wrong_arrows(ast.parse(line), module, module.rpartition(".")[0])


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("regard.models.table", "from regard.models.config import ModelConfig"),
        ("regard.models.table", "from . import config"),
        ("regard.bundle", "from regard import __version__"),
        ("regard.bundle", "from regard import decode"),
        ("regard.data.batch", "import torch"),
        ("regard.cli.walk", "import regard"),
    ],
)
def test_the_check_lets_a_right_arrow_pass(module: str, line: str) -> None:
    assert not wrong_arrows(ast.parse(line), module, module.rpartition(".")[0])


# --- Without torch


def torch_free() -> list[str]:
    configs = [module_name(path) for path in FILES if path.name == "config.py"]
    return ["regard", "regard.runs", *configs, "regard.cli.main"]


def test_configurations_runs_and_the_command_line_do_not_import_torch() -> None:
    """`regard --help` is instant. All in one process, one after another: the first culprit is named."""
    names = torch_free()
    assert {"regard.config", "regard.models.config", "regard.tasks.config"} <= set(names)
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules:\n"
        "        sys.exit(f'importing {name} imports torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.returncode == 0, done.stderr


# --- Nothing unpickles


def pickling(source: ast.Module, package: str) -> list[str]:
    """Imports of pickling modules, uses of torch.load and torch.save, and NumPy's allow_pickle."""
    found = [
        f"line {line} imports {name}"
        for line, name in imports(source, package)
        if name.split(".")[0] in PICKLES or name in ("torch.load", "torch.save")
    ]
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and node.attr in ("load", "save") and ast.unparse(node.value) == "torch":
            found.append(f"line {node.lineno} uses {ast.unparse(node)}")
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            found.append(f"line {node.value.lineno} allows pickles")
        if isinstance(node, ast.Attribute) and node.attr in ("read_pickle", "to_pickle"):
            found.append(f"line {node.lineno} uses {ast.unparse(node)}")
    return found


def test_nothing_pickles() -> None:
    found = {path.relative_to(ROOT): pickling(tree(path), module_name(path)) for path in FILES}
    assert not {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import save",
        "save = torch.save",
        "numpy.load('x', allow_pickle=True)",
    ],
)
def test_the_check_sees_a_pickle(line: str) -> None:
    assert pickling(ast.parse(line), "regard")


def test_a_pickle_may_be_spoken_of() -> None:
    assert not pickling(
        ast.parse("'torch.load(x)'\nsafetensors.torch.load(data)\nnumpy.load(x, allow_pickle=False)"), ""
    )


def test_architecture_names_every_package_and_no_other() -> None:
    page = (ROOT.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = {name.rstrip("/") for name in re.findall(r"`(regard/[\w/]+/)`", page)}
    packages = {str(path.parent.relative_to(ROOT.parent)) for path in FILES if path.name == "__init__.py"} - {"regard"}
    assert named == packages


def test_the_paths_of_architecture_pass_functions_that_are_there() -> None:
    page = (ROOT.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    passed = re.findall(r"([\w/]+\.py):(\w+)", page)
    assert len(passed) > 30
    for file, name in passed:
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        names = {node.name for node in ast.walk(tree(ROOT / file)) if isinstance(node, functions)}
        assert name in names, f"{file} has no {name}"


def test_the_front_door_shows_what_is_public_and_nothing_else() -> None:
    """The bug: `dir(regard)` also held annotations, TYPE_CHECKING, import_module and the names of tables."""
    shown = dir(regard)
    assert shown == sorted({*regard.__all__, "__version__", "events", "look"})
    assert all(hasattr(regard, name) for name in shown)
    assert issubclass(regard.UsageError, regard.RegardError)  # what a script catches has a public name
    with pytest.raises(AttributeError, match="regard has no import_modul"):
        regard.import_modul  # noqa: B018
