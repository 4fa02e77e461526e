"""The file of a reader, run in a process of its own: an endless loop there ends by the clock; what it prints is shown."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from regard.course import worker
from regard.course.exercise import AnswerError


class AnswerFile:
    """Values and functions of a reader's file; use it in a `with` block."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self._late = False

    def __enter__(self) -> AnswerFile:
        command = [sys.executable, worker.__file__, str(self.path)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._clock = threading.Timer(self.seconds, self._stop)
        self._clock.daemon = True
        self._clock.start()
        self._failed = ""
        try:
            self._failed = self._hear().get("failed", "")
        except AnswerError as error:
            self._failed = error.wrong
        return self

    def __exit__(self, *error: object) -> None:
        self._clock.cancel()
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # what was not sent any more
                    stream.close()

    def value(self, name: str) -> Any:
        """A value by its name; one that is still None is not filled in."""
        found = self._ask({"name": name})
        if found is None or found == {"other": "ellipsis"}:
            raise AnswerError(f"{name} is not filled in yet", f"replace None behind {name} = in {self.path.name}")
        return _restored(found)

    def call(self, name: str, *arguments: Any) -> Any:
        """Return what a function of the file gives for these arguments."""
        found = self._ask({"name": name, "arguments": _sent(list(arguments))})
        if found is None or found == {"other": "ellipsis"}:
            raise AnswerError(f"{name} gives nothing back", f"write its lines in {self.path.name}, and end with return")
        return _restored(found)

    def _ask(self, question: dict[str, Any]) -> Any:
        if self._failed:
            raise AnswerError(f"{self.path.name} does not run: {self._failed}", "mend that first, then check again")
        assert self._process.stdin is not None
        with suppress(OSError):  # if it has ended, hearing it says why
            print(json.dumps(question), file=self._process.stdin, flush=True)
        found = self._hear()
        if "missing" in found:
            raise AnswerError(f"{self.path.name} has no {found['missing']}", "keep the names of the template")
        if "failed" in found:
            hint = f"look at that line of {self.path.name}; print(x.shape) above it shows the shape of x, an array"
            raise AnswerError(f"{question['name']} failed: {found['failed']}", hint)
        return found["value"]

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        if self._late:
            raise AnswerError(
                f"it took more than {self.seconds:g} s and was stopped", "is there a loop without an end?"
            )
        raise AnswerError("the program ended before it answered", "leave out exit and quit")

    def _stop(self) -> None:
        self._late = True
        self._process.kill()


def _sent(value: Any) -> Any:
    """Arguments in the forms of JSON, arrays marked as such."""
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    return [_sent(each) for each in value] if isinstance(value, list | tuple) else value


def _restored(value: Any) -> Any:
    """An answer as it was: pairs become a dictionary again, with tuples for keys that were."""
    if isinstance(value, list):
        return [_restored(each) for each in value]
    if isinstance(value, dict) and "pairs" in value:
        return {_key(key): _restored(each) for key, each in value["pairs"]}
    return value


def _key(value: Any) -> Any:
    return tuple(map(_key, value)) if isinstance(value, list) else value
