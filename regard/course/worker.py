"""The other side of `answers.py`: run a reader's file in this process, and answer questions about it as lines of JSON.

It is started by its path and imports nothing of Regard. What the file prints goes to stderr, out of the way of the answers.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any


def main(path: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    sys.path[0] = str(Path(path).resolve().parent)

    def say(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=answers, flush=True)

    names: dict[str, Any] = {"__name__": "answer", "__file__": path}
    try:
        exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), names)
    except BaseException as error:
        say({"failed": told(error, path)})
        return
    say({"ready": True})
    for line in sys.stdin:
        say(answered(json.loads(line), names, path))


def answered(question: dict[str, Any], names: dict[str, Any], path: str) -> dict[str, Any]:
    """A value, or what a function gives; or that it is missing, or how it failed."""
    name = question["name"]
    if name not in names:
        return {"missing": name}
    if "arguments" not in question:
        return {"value": packed(names[name])}
    if not callable(names[name]):
        return {"failed": f"{name} is no function any more"}
    try:
        return {"value": packed(names[name](*unpacked(question["arguments"])))}
    except BaseException as error:
        return {"failed": told(error, path)}


def told(error: BaseException, path: str) -> str:
    """An error in one line, with the line of the reader's file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    said = " ".join(str(error).split())
    return f"{'' if line is None else f'line {line}: '}{type(error).__name__}: {said}".rstrip(": ")


def unpacked(value: Any) -> Any:
    """Return a value that was sent, with its arrays as NumPy's."""
    if isinstance(value, list):
        return [unpacked(each) for each in value]
    if isinstance(value, dict):
        import numpy as np

        return np.array(value["array"])
    return value


def packed(value: Any) -> Any:
    """An answer in the forms of JSON: arrays as lists, dictionaries as pairs, what has no form by its name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):
        return packed(value.tolist())
    if isinstance(value, dict):
        return {"pairs": [[packed(key), packed(each)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return [packed(each) for each in value]
    return {"other": type(value).__name__}


if __name__ == "__main__":
    main(sys.argv[1])
