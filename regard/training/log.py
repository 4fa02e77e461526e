"""Two JSONL files of a run: `log.jsonl`, what was learned (equal for equal seeds), and `clock.jsonl`, how fast."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from regard.errors import RegardError

LOG, CLOCK = "log.jsonl", "clock.jsonl"


class RunLog:
    """Rows are appended; on resume both files are cut back to what the checkpoint had seen."""

    def __init__(self, folder: Path) -> None:
        self._paths = {name: folder / name for name in (LOG, CLOCK)}

    def write(self, row: dict[str, Any], name: str = LOG) -> None:
        try:
            with open(self._paths[name], "a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        except OSError as error:
            raise RegardError(f"cannot write {self._paths[name]}: {error.strerror or error}") from error

    def sizes(self) -> dict[str, int]:
        """How long the files are, once they are safely on disk."""
        try:
            for path in self._paths.values():
                with open(path, "ab") as file:
                    os.fsync(file.fileno())
        except OSError as error:
            raise RegardError(f"cannot write {path}: {error.strerror or error}") from error
        return {name: path.stat().st_size for name, path in self._paths.items()}

    def cut_back(self, sizes: dict[str, int]) -> None:
        for name, path in self._paths.items():
            if path.exists():
                os.truncate(path, min(sizes.get(name, 0), path.stat().st_size))  # truncating never lengthens

    def rows(self) -> list[dict[str, Any]]:
        path = self._paths[LOG]
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_bytes().splitlines()]  # bytes: only a line feed ends a row
