"""How a sentence-transformers folder makes one vector of a text, in and out: modules.json and 1_Pooling/config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.files import read_json, write_json
from regard.models.config import BertConfig

MODULES, POOLING, LENGTH = "modules.json", "1_Pooling", "sentence_bert_config.json"
TYPES = "sentence_transformers.models"
MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


def read_pooling(folder: Path) -> str | None:
    """ "cls" or "mean", or None where the folder is not of sentence-transformers."""
    if not (folder / MODULES).exists():
        return None
    pooling = None
    for module in _modules(folder):
        kind, place = str(module.get("type", "")).rpartition(".")[2], str(module.get("path", ""))
        if kind == "Pooling":
            pooling = _mode(_inside(folder, place) / "config.json")
        elif kind not in ("Transformer", "Normalize"):
            raise RegardError(f"{folder}/{MODULES} has a module {kind or 'of no type'}, which Regard cannot express")
    if pooling is None:
        raise RegardError(f"{folder}/{MODULES} names no Pooling; copy the whole folder")
    return pooling


def read_longest(folder: Path) -> int | None:
    """Tokens of a text, begin and end included, that the model was made for; longer texts are cut there."""
    values = read_json(folder / LENGTH) if (folder / LENGTH).exists() else {}
    longest = values.get("max_seq_length") if isinstance(values, dict) else None
    return longest if isinstance(longest, int) and longest > 0 else None


def write_pooling(folder: Path, config: BertConfig, longest: int | None) -> None:
    """So that SentenceTransformer(folder) makes the same vectors."""
    chosen = {key: mode == config.pooling for mode, key in MODES.items()}
    (folder / POOLING).mkdir()
    write_json(folder / POOLING / "config.json", {"word_embedding_dimension": config.width, **chosen})
    write_json(folder / LENGTH, {"max_seq_length": longest or config.max_length, "do_lower_case": False})
    parts = {"Transformer": "", "Pooling": POOLING}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{TYPES}.{kind}"}
        for number, (kind, path) in enumerate(parts.items())
    ]
    write_json(folder / MODULES, modules)


def _modules(folder: Path) -> list[dict[str, Any]]:
    modules = read_json(folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise RegardError(f"{folder}/{MODULES} is not a list of modules; copy it again")
    return modules


def _inside(folder: Path, place: str) -> Path:
    if place in ("", ".", "..") or Path(place).name != place:
        raise RegardError(f"{folder}/{MODULES} names a place outside the folder: {place!r}")
    return folder / place


def _mode(path: Path) -> str:
    values = read_json(path)
    if not isinstance(values, dict):
        raise RegardError(f"{path} is not a table; copy it again")
    asked = [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
    if isinstance(values.get("pooling_mode"), str):  # as later versions write it
        asked.append(f"pooling_mode={values['pooling_mode']}")
    known = {key: mode for mode, key in MODES.items()} | {f"pooling_mode={mode}": mode for mode in MODES}
    if len(asked) != 1 or asked[0] not in known:
        told = " and ".join(asked) or "no pooling"
        raise RegardError(f"{path} asks for {told}; Regard has one of {', '.join(MODES.values())}")
    return known[asked[0]]
