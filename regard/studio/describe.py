"""Models as a list and a card show them: what they are, what they scored, what they can be asked, and inputs to try."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

from regard.brief import in_short
from regard.bundle import BundleConfig, read_config
from regard.config import Tables
from regard.data.builtin.dates import date_pairs
from regard.errors import RegardError
from regard.files import JSON, read_json
from regard.inspect.probes import FOLDER, TEXTS
from regard.models.summary import summary
from regard.runs import read_run
from regard.studio.catalog import Entry
from regard.studio.drawn import SEEING, drawn_examples
from regard.tasks.table import TASKS
from regard.tasks.trained import load_model
from regard.tensors import map_tensors
from regard.tokens.words import is_special
from regard.training.history import read_progress

LOOKED_AT = ("look", "walk", "heads")
ABILITIES = {
    "translate": ("translate", *LOOKED_AT),
    "generate": ("generate", *LOOKED_AT),
    "fill": ("fill", "vectors", *LOOKED_AT),
    "classify": ("classify", *LOOKED_AT),
    "classify-pictures": ("classify-pictures",),
    "caption": ("caption",),
    "answer": ("answer",),
}
# Kinds with nothing to look at.
WITHOUT_ATTENTION = (
    "seq2seq",
    "bytenet",
    "lstm",
    "wavenet",
    "pixelcnn",
    "pixelrnn",
    "tfidf",
    "token-weights",
)
WITHOUT_HEADS = ("bahdanau", "luong", "additive", "plain-attention")  # kinds whose attention has no heads to tell apart
SENTENCES = {
    "generate": ["def main(", "import ", "class "],
    "fill": ["import [MASK]", "for [MASK] in range(10):"],
    "classify": ["Allemagne", "Ungarn", "日本語", "польский"],
}
BUILT_IN = {"translate": "builtin/dates/test", "classify": "builtin/names/test", "generate": "builtin/python"}
MOST_EXAMPLES = 6


def listed(entry: Entry, loaded: bool) -> dict[str, JSON]:
    """A model as the list of all has it; nothing is loaded for it."""
    labels = entry.config.get("labels")
    return {
        "name": entry.name,
        "task": entry.task,
        "kind": entry.kind,
        "title": title(entry),
        "parameters": parameters(entry),
        "scores": _scores(entry),
        "languages": entry.languages,
        "labels": list(map(str, labels)) if isinstance(labels, list) else [],
        "pairs": entry.config.get("pairs") is True,
        "shipped": entry.shipped,
        "path": entry.name if entry.shipped else str(entry.run or entry.folder),
        "loaded": loaded,
        "examples": examples(entry),
        "measured_on": texts_of(entry),
        "abilities": list(abilities(entry)),
    }


def detailed(entry: Entry, loaded: bool) -> dict[str, JSON]:
    """A model with its card, its tokenizers and how it was trained; nothing is loaded for it."""
    config = read_config(entry.folder)
    return {
        **listed(entry, loaded),
        "card": _card(entry),
        "tokenizer": _tokenizers(config),
        "training": _training(entry),
        "made": None if config.made is None else config.made.model_dump(mode="json"),
    }


def title(entry: Entry) -> str:
    """A model in a few words: "transformer, en → de, 2.6M parameters"."""
    count = parameters(entry)
    languages = " → ".join(entry.languages) if entry.languages and entry.languages != ("source", "target") else ""
    size = f"{in_short(count)} parameters" if count is not None else ""
    pictures = "writes pictures (regard generate)" if writes_pictures(entry) else ""
    return ", ".join(part for part in (entry.kind, languages, pictures, size) if part)


def parameters(entry: Entry) -> int | None:
    """Counted from the header of the weights."""
    return _parameters(str(entry.folder), entry.changed)


@lru_cache(maxsize=1024)
def _parameters(folder: str, changed: float) -> int | None:
    try:
        return sum(tensor.numel() for tensor in map_tensors(Path(folder) / "model.safetensors").values())
    except (RegardError, OSError):
        return None


def abilities(entry: Entry) -> tuple[str, ...]:
    known = () if writes_pictures(entry) else ABILITIES.get(entry.task, ())
    if entry.kind in WITHOUT_ATTENTION:
        return tuple(each for each in known if each not in LOOKED_AT)
    heads = entry.kind not in WITHOUT_HEADS and (entry.run is not None or entry.shipped)
    return known if heads else tuple(each for each in known if each != "heads")


def writes_pictures(entry: Entry) -> bool:
    """Whether a model writes pictures pixel by pixel, which the studio does not show."""
    tokens = entry.config.get("tokens")
    return isinstance(tokens, dict) and tokens.get("kind") == "pixels"


def texts_of(entry: Entry) -> str | None:
    """Texts that Regard makes, to measure the heads of a model on that comes with it; None: those of its run."""
    return BUILT_IN.get(entry.task) if entry.shipped else None


def examples(entry: Entry) -> list[JSON]:
    """Inputs to try: drawn pictures, texts of built-in data, else those that the run probed, else none."""
    if entry.task in SEEING:
        return drawn_examples(entry.name, entry.task)
    builtin = any(str(name).startswith("builtin/") for name in _data(entry).get("train", ())) or entry.shipped
    if builtin and entry.task == "translate":
        return [*_dates()]
    if writes_pictures(entry):
        return []
    if builtin and entry.task in SENTENCES:
        return [*SENTENCES[entry.task]]
    return [*_probed(entry)]


@cache
def _dates() -> tuple[str, ...]:
    return tuple(pair.source for pair in date_pairs("test", MOST_EXAMPLES, seed=7))


def _probed(entry: Entry) -> list[str]:
    """The texts whose attention the run kept, put together from their tokens."""
    if entry.run is None:
        return []
    try:
        texts: Any = read_json(entry.run / FOLDER / TEXTS)
    except RegardError:
        return []
    found = []
    for each in texts if isinstance(texts, list) else []:
        labels = [str(label) for label in each.get("source", each.get("text", ())) if not is_special(str(label))]
        between = "" if any(label.startswith(" ") for label in labels[1:]) or _letters(labels) else " "
        found.append(between.join(labels).strip())
    return [text for text in found if text][:MOST_EXAMPLES]


def _letters(labels: list[str]) -> bool:
    return all(len(label) <= 1 for label in labels)


def _data(entry: Entry) -> Tables:
    if entry.run is None:
        return {}
    try:
        data = read_run(entry.run)["config"].get("data")
    except RegardError:
        return {}
    return data if isinstance(data, dict) else {}


def _scores(entry: Entry) -> dict[str, JSON]:
    try:
        found = read_json(entry.folder / "metrics.json")
    except RegardError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): value for name, value in found.items() if isinstance(value, int | float | str)}


def _card(entry: Entry) -> str:
    try:
        return (entry.folder / "README.md").read_text(encoding="utf-8")[:100_000]
    except (OSError, UnicodeDecodeError):
        return ""


def _tokenizers(config: BundleConfig) -> JSON:
    if config.tokens is None or not config.vocabulary:
        return None
    source, target = config.vocabulary[0], config.vocabulary[-1]
    joint = len(config.vocabulary) == 1 or config.tokens.joint
    return {"kind": config.tokens.kind, "joint": joint, "sizes": {"source": source, "target": target}}


def layers(entry: Entry) -> JSON:
    """The data of `regard summary`; null where a model has none."""
    return _layers(str(entry.folder), entry.changed)


@lru_cache(maxsize=32)
def _layers(folder: str, changed: float) -> JSON:
    """The data of `regard summary`, of a copy of the model: counting hooks into it, and others may be asking it now."""
    predictor = load_model(folder)
    try:
        subject = TASKS[predictor.config.task].make_subject.of(predictor.bundle)
        found = cast("JSON", summary(predictor.model, subject.batch(predictor.model, [0])).data())
    except RegardError:
        return None
    return found


def _training(entry: Entry) -> JSON:
    """From what a run learned, for how long and with which seed."""
    if entry.run is None:
        return None
    try:
        config, progress = read_run(entry.run)["config"], read_progress(entry.run)
    except RegardError:
        return None
    data, train = config.get("data", {}), config.get("train", {})
    return {
        "data": list(map(str, data.get("train", ()))) if isinstance(data, dict) else [],
        "seed": train.get("seed") if isinstance(train, dict) else None,
        "steps": progress.get("step", 0),
        "seconds": progress.get("seconds", 0.0),
    }
