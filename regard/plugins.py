"""Plugins: Python files of a person's own that add to the package when they are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from regard.errors import UsageError


def load_plugins(paths: Sequence[str]) -> None:
    """Read each of these files as a module named `regard_plugin_<its name>`; one that is read already is left alone."""
    for path in paths:
        _load(Path(path))


def _load(path: Path) -> None:
    name = f"regard_plugin_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and Path(str(known.__file__)) == path.absolute():
        return
    spec = spec_from_file_location(name, path.absolute())
    if not path.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"there is no plugin {path}; name a Python file: regard --plugin mine.py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"the plugin {path} fails: {type(error).__name__}: {error}") from error
