"""From what a recording saw to maps with labels: of one call, of all layers and heads of a text, beside exact attention.

    tokens = tokenizer("A man rides a bike.", return_tensors="pt")
    names = tokenizer.convert_ids_to_tokens(tokens["input_ids"][0])
    with regard.record(bert, labels={"text": [names]}) as seen:      # a Hugging Face model, as it is
        bert(**tokens)
    map_of(seen, seen.calls[0]).words().save("first.png")
    sentence_of(seen).grid().save("heads.html")

How far the map a that an attention really mixed is from the map b that exact attention would have mixed on the same input
is said in one number, the mean over queries of

    total variation  ½ Σ_s |a_ts - b_ts|              where rows of both sum to one: 0 is equal, 1 has nothing in common
    relative L1      Σ_s |a_ts - b_ts| / Σ_s |b_ts|   where rows of a do not

A query that is padding, or may look nowhere, does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import Advice, Option, UsageError
from regard.files import JSON, finite
from regard.look.layers import check_choice
from regard.look.map import AttentionMap
from regard.look.sentence import NAMES, SentenceAttention
from regard.look.shown import Shown
from regard.tokens.tokenizer import as_read

if TYPE_CHECKING:
    from regard.attention import AttentionCall, Seen


def map_of(seen: Seen, call: AttentionCall, text: int | None = None, hypothesis: int = 0) -> AttentionMap:
    """All heads of one recorded call, for one of the inputs: (H, T, S), NaN where a query must not look.

    `text` counts the inputs from 0 as they were given, however they were batched (None: the first that the call holds).
    Labels are those given to `regard.record(model, labels=...)`, the tokens of what `regard.load` gives, or numbers:
    {"text": [tokens]} for a model that reads one text, {"source": ..., "target": ..., "prefix": ...} for one that reads
    and writes.
    """
    weights = masked_weights(call, call.row(text, hypothesis))
    rows, columns = (as_read(labels) for labels in seen.labelled(call, text, hypothesis))
    title = f"{NAMES.get(call.role, call.role)}, layer {call.layer}, {call.path}".rstrip(", ")
    return AttentionMap(weights, columns, rows, title)


def sentence_of(seen: Seen, role: str | None = None, text: int | None = None) -> SentenceAttention:
    """Everything that one pass over a text showed: the attention of `role` (None: the first there is), and the others.

    `text` counts the inputs as they were given; None is the first that was recorded.
    """
    texts = sorted({each for call in seen.calls for each in call.texts})
    if text is not None and texts and text not in texts:
        raise UsageError(f"no text {text}; recorded were {', '.join(map(str, texts))}, counted from 0")
    text = texts[0] if text is None and texts else text or 0
    roles = list(dict.fromkeys(call.role for call in seen.calls if call.role in NAMES and text in call.texts))
    difference = seen.check() if seen.calls else 0.0  # a family without attention has nothing to rebuild
    found: dict[str, SentenceAttention] = {each: _of_role(seen, each, text, difference) for each in roles}
    first = role or next(iter(found), "cross")
    main = found.pop(first, None)
    if main is None:
        rows, columns = _sides(seen, text)
        return SentenceAttention(columns, rows, {}, difference, first, found)
    return replace(main, others=found)


def masked_weights(call: AttentionCall, row: int = 0) -> np.ndarray:
    """The weights (H, T, S) of one row of the batch; NaN where a query could not look, for whatever reason."""
    allowed = call.allowed()[row].cpu().numpy()
    return np.where(allowed, call.weights()[row].detach().double().cpu().numpy(), np.nan)


def _of_role(seen: Seen, role: str, text: int, difference: float) -> SentenceAttention:
    calls = [call for call in seen.only(role) if text in call.texts]
    layers = layers_of(calls, text)
    shape = next(iter(layers.values())).shape[1:]
    if any(each.shape[1:] != shape for each in layers.values()):
        raise UsageError(
            f"the {NAMES[role]} was recorded over several lengths; record one pass over one text at a time"
        )
    rows, columns = (as_read(labels) for labels in seen.labelled(calls[0], text))
    return SentenceAttention(columns, rows, layers, difference, role)


def layers_of(calls: Sequence[AttentionCall], text: int | None = None) -> dict[str, np.ndarray]:
    """The weights of each call by its path; a module that was called again has its count behind its path."""
    found: dict[str, np.ndarray] = {}
    for call in calls:
        times = sum(1 for name in found if name.split(" ")[0] == call.path)
        found[f"{call.path} {times + 1}" if times else call.path] = masked_weights(call, call.row(text))
    return found


def _sides(seen: Seen, text: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rows and columns where nothing looked."""
    sides = ("target", "source") if "source" in seen.labels else ("text", "text")
    rows, columns = (tuple(seen.labels[side][text]) if side in seen.labels else () for side in sides)
    return rows, columns


NO_EXACT = "a state-space layer has no queries and keys, so there is no exact map beside its own"
SAME = "this attention computes all pairs: what it mixes is the exact map"


@dataclass(frozen=True, eq=False)
class Effective:
    """One attention on one text; NaN where a query must not look."""

    path: str
    role: str
    map: np.ndarray  # (H, T, S)
    exact: np.ndarray | None  # (H, T, S); None where there is none
    differences: np.ndarray  # (H,); empty without an exact map
    measure: str  # of the differences: total variation, or relative L1
    same: bool  # exact attention was computed

    @property
    def difference(self) -> float | None:
        """The mean over heads."""
        return float(self.differences.mean()) if self.differences.size else None

    @property
    def gaps(self) -> np.ndarray:
        """|effective - exact| of each cell: (H, T, S)."""
        assert self.exact is not None
        return np.abs(self.map - self.exact)


def effective(call: AttentionCall, row: int = 0) -> Effective:
    """Return the map that a recorded attention really mixed in one text of its batch, beside the exact one."""
    allowed = call.permitted()[row].cpu().numpy()  # (H, T, S)
    mixed = _masked(call.weights()[row].double().cpu().numpy(), allowed)
    measure = "total variation" if call.sums_to_one else "relative L1"
    if not call.has_exact:
        return Effective(call.path, call.role, mixed, None, np.empty(0), measure, same=False)
    exact = _masked(call.exact()[row].double().cpu().numpy(), allowed)
    gaps = np.nansum(np.abs(mixed - exact), axis=-1)  # (H, T)
    sizes = 2.0 if call.sums_to_one else np.maximum(np.nansum(np.abs(exact), axis=-1), np.finfo(float).tiny)
    differences = _mean_of_real(gaps / sizes, allowed, call.role)
    return Effective(call.path, call.role, mixed, exact, differences, measure, same=not callable(call.reported))


def _masked(weights: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    return np.where(allowed, weights, np.nan)


def _mean_of_real(values: np.ndarray, allowed: np.ndarray, role: str) -> np.ndarray:
    """The mean of (H, T) over the queries of each head that are real. In self-attention those are the real keys."""
    real = allowed.any(axis=-1)  # (H, T)
    if role in ("self", "causal"):
        real &= np.diagonal(allowed, axis1=-2, axis2=-1)
    return np.where(real, values, 0.0).sum(axis=-1) / np.maximum(1, real.sum(axis=-1))


@dataclass(frozen=True, eq=False)
class EffectiveAttention(Shown):
    """All layers of a model on one text. Of them, one head, the mean of one layer, or the mean of all is shown."""

    called = "two maps"

    columns: tuple[str, ...]  # S labels
    rows: tuple[str, ...]  # T labels
    layers: tuple[Effective, ...]
    layer: int | None = None
    head: int | None = None

    def __post_init__(self) -> None:
        if not self.layers:
            raise UsageError(
                "this model has no attention between words to compare", Advice("leave out ", Option("exact"))
            )
        check_choice(self.layer, self.head, [len(each.map) for each in self.layers])

    @property
    def chosen(self) -> tuple[Effective, ...]:
        return self.layers if self.layer is None else (self.layers[self.layer],)

    def maps(self) -> dict[str, AttentionMap]:
        """The maps that are shown: effective, and where there is an exact map, exact and difference."""
        found = {"effective": self._mean(lambda each: each.map)}
        if all(each.exact is not None for each in self.chosen):
            found["exact"] = self._mean(lambda each: each.exact)  # type: ignore[return-value, arg-type]
            found["difference"] = self._mean(lambda each: each.gaps)
        return found

    def difference(self) -> float | None:
        """The distance from exact attention: one head's, or the mean over heads."""
        found = [each.differences if self.head is None else each.differences[self.head :][:1] for each in self.chosen]
        values = np.concatenate(found)
        return float(values.mean()) if values.size else None

    def _mean(self, of: Callable[[Effective], np.ndarray]) -> AttentionMap:
        heads = np.concatenate([of(each) for each in self.chosen])  # (layers * H, T, S)
        whole = AttentionMap(heads, self.columns, self.rows)
        return whole.mean() if self.head is None else AttentionMap(heads[self.head], self.columns, self.rows)

    @property
    def title(self) -> str:
        layers, heads = len(self.layers), len(self.chosen[0].map)
        one = f"layer {self.layer} (of {layers}, counted from 0)"
        which = f"mean of {layers} layers x {heads} heads" if self.layer is None else one
        if self.layer is not None:
            which += f", mean of {heads} heads" if self.head is None else f", head {self.head}"
        return f"{NAMES.get(self.layers[0].role, self.layers[0].role)}, {which} · {self.sentence}"

    @property
    def sentence(self) -> str:
        """The distance between the maps in words."""
        difference = self.difference()
        if difference is None:
            return NO_EXACT
        return SAME if all(each.same for each in self.chosen) else f"{self.chosen[0].measure} {difference:.3f}"

    def json(self) -> str:
        """Every layer and head; the figure has what is chosen."""
        return json.dumps(finite(self.data()), indent=2, ensure_ascii=False) + "\n"

    def data(self) -> dict[str, JSON]:
        return {"columns": list(self.columns), "rows": list(self.rows), "layers": [_data(each) for each in self.layers]}

    def _alternative(self) -> str:
        return self.title


def _data(each: Effective) -> dict[str, JSON]:
    return {
        "path": each.path,
        "role": each.role,
        "measure": each.measure,
        "difference": each.difference,
        "differences": each.differences.tolist(),
        "effective": each.map.tolist(),
        "exact": None if each.exact is None else each.exact.tolist(),
    }
