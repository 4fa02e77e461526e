"""A text as a model of text reads it in one pass: its ids, its labels, and the pass itself, plain or recorded.

    reading = read_text(user, "ein Mann", "a man")       what a person gives, for a model of any task on text
    seen = reading.look(only="cross")                    every attention of one pass, with labels
    reading.log_probabilities()                          of each token that is predicted

Figures, the walk, the head report, probes and `--exact` all look through here. A translation that is not given is the
one that the model writes: one pass over it gives the same weights as the steps that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import Seen, record, softness
from regard.data.batches import TokenPairs, as_row, label_batches
from regard.errors import UsageError
from regard.models.loss import target_log_probabilities
from regard.tokens import PAD, as_arrays

ROLE = {"translate": "cross", "generate": "causal", "fill": "self"}  # what a person wants to see first
PREDICTS = ("translate", "generate")  # one token after another


@dataclass(frozen=True, eq=False)
class Reading:
    """One text (or pair) and one model. Axes: source, target (what is predicted), prefix (what a decoder has read); or text."""

    user: Any
    ids: dict[str, tuple[int, ...]]  # of each axis
    labels: dict[str, tuple[str, ...]]
    run: Callable[[], Tensor]  # one pass: the last vectors (1, T, D), or a classifier's logits (1, labels)
    predicted: tuple[int, ...] = ()  # what the vectors are to predict, where the task says it
    left_out: int = 0  # tokens at the end of the text that the model cannot read

    def look(self, **bounds: Any) -> Seen:
        """Every attention of one pass, or those within the bounds (see `regard.record`)."""
        labels = {axis: [tokens] for axis, tokens in self.labels.items()}
        with torch.inference_mode(), record(self.user.model, labels=labels, **bounds) as seen:
            self.run()
        return seen

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person must know of what is shown."""
        kept = len(self.ids.get("text", ()))
        return (f"the first {kept:,} tokens; the model cannot read {self.left_out:,} more",) if self.left_out else ()

    @torch.inference_mode()
    def log_probabilities(self) -> np.ndarray:
        """Of each predicted token, in the order of `predicted`: (T,)."""
        if self.user.config.task not in PREDICTS:
            raise UsageError(f"a model to {self.user.config.task} predicts no tokens of a whole text")
        if not self.predicted:
            raise UsageError("the text is empty: there is no token to predict")
        wanted = torch.tensor(self.predicted, device=self.user.device)
        found = target_log_probabilities(self.run()[0, : len(wanted)], self.user.model.output.weight, wanted)
        return found.double().cpu().numpy()

    @property
    def role(self) -> str:
        """The role of the attention that a person wants to see first."""
        if self.user.config.task != "classify":
            return ROLE[self.user.config.task]
        return "causal" if any(getattr(each, "role", "") == "causal" for each in self.user.model.modules()) else "self"


def check_user(user: Any, name: str) -> None:
    """Refuse in words what is no model that `regard.load` gave."""
    if not isinstance(user, nn.Module) and hasattr(getattr(user, "config", None), "task") and hasattr(user, "model"):
        return
    kind = type(user).__name__
    if isinstance(user, nn.Module) and type(user).__module__.startswith("regard."):
        raise UsageError(f"regard.{name} takes what regard.load gives, with its tokens; this is its {kind} alone")
    raise UsageError(
        f"regard.{name} takes what regard.load gives, and this is a {kind}. A BERT, GPT-2, LLaMA or ViT of Hugging Face "
        "becomes one: regard import FOLDER -o BUNDLE. Of any other module, regard.record(model) sees where it looks and "
        "regard.intervene(model, ...) changes it"
    )


def read_text(user: Any, text: str, second: str | None = None) -> Reading:
    """`second`: the translation (None: the model's own), or the other text of a classifier of pairs."""
    ways = {"generate": _generate, "fill": _fill, "classify": _classify, "translate": _translate}
    if user.config.task not in ways:
        raise UsageError(f"this looks at models of text; the model is one to {user.config.task}")
    return ways[user.config.task](user, text, second)


def read_ids(user: Any, source: Sequence[int], target: Sequence[int] = ()) -> Reading:
    """The same for ids without begin and end: of a source and a target, or of one text."""
    return _pair(user, source, target) if user.config.task == "translate" else _one(user, source)


def _generate(user: Any, text: str, second: str | None) -> Reading:
    return _one(user, user.tokenizer.encode(text))


def _one(user: Any, text: Sequence[int]) -> Reading:
    if user.config.task != "generate":
        raise UsageError(f"a model to {user.config.task} reads texts, not ids")
    ids = tuple([user.tokenizer.specials.begin, *text][: user.context])
    return _alike(user, ids, lambda: user.model.read(_row(user, ids)), 1 + len(text), ids[1:])


def _fill(user: Any, text: str, second: str | None) -> Reading:
    special = user.tokenizer.specials
    inside = user.tokenizer.encode_gaps(text)
    ids = (special.begin, *inside[: user.longest - 2], special.end)
    lengths = torch.tensor([len(ids)], device=user.device)
    return _alike(user, ids, lambda: user.model.encoder(_row(user, ids), lengths).vectors, 2 + len(inside))


def _classify(user: Any, text: str, second: str | None) -> Reading:
    row = as_row(user.tokenizer, text, second, user.longest)
    batch = label_batches([row], np.zeros(1, dtype=np.int64), user.tokenizer, max(1, len(row[0])), seed=0).take([0])
    texts = [text] if second is None else [text, second]
    whole = 1 + sum(len(user.tokenizer.encode(each)) + 1 for each in texts)  # begin, and an end behind each
    return _alike(user, tuple(row[0].tolist()), lambda: user.model.logits(batch.to(user.device)), whole)


def _alike(
    user: Any, ids: tuple[int, ...], run: Callable[[], Tensor], whole: int, predicted: tuple[int, ...] = ()
) -> Reading:
    """`whole`: how many tokens there are with those that the model cannot read."""
    labels = {"text": tuple(user.tokenizer.labels(ids))}
    return Reading(user, {"text": ids}, labels, run, predicted, whole - len(ids))


def _translate(user: Any, text: str, second: str | None) -> Reading:
    source = user.tokenizers.source.encode(text)
    if second is not None:
        return _pair(user, source, user.tokenizers.target.encode(second))
    return _softened(_pair(user, source, user.translate(text).ids), user.config.decode.softness)


def _softened(reading: Reading, value: float) -> Reading:
    """As softly as the steps looked that wrote the translation."""
    if value == 1.0:
        return reading

    def run() -> Tensor:
        with softness(temperature=value or 1.0, hard=value == 0):
            return reading.run()

    return replace(reading, run=run)


def _pair(user: Any, source: Sequence[int], target: Sequence[int]) -> Reading:
    reads, writes = as_arrays([list(source)], begin=False), as_arrays([list(target)], begin=True)
    batch = TokenPairs(reads, writes, PAD).take([0])
    ids = {"source": tuple(reads[0].tolist()), "target": tuple(writes[0][1:].tolist())}
    ids["prefix"] = tuple(writes[0][:-1].tolist())
    pair = user.tokenizers
    labels = {axis: tuple((pair.source if axis == "source" else pair.target).labels(ids[axis])) for axis in ids}
    return Reading(user, ids, labels, lambda: user.model.hidden(batch.to(user.device)), ids["target"])


def _row(user: Any, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=user.device)
