"""Recordings: every attention that was kept, by role and layer, with the labels of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from regard.attention.call import AttentionCall, Bounds, LayerNumbers, Role, SomeRows
from regard.attention.channel import InputRow
from regard.attention.masks import Causal
from regard.errors import UsageError

Labels = Mapping[str, Sequence[Sequence[str]]]  # of each axis, for each input, its tokens


@dataclass(eq=False)
class Seen:
    """The attentions of one recording, in the order in which they ran. `left_out` counts attentions over too many tokens."""

    names: dict[int, str]
    bounds: Bounds = field(default_factory=Bounds)
    labels: Labels = field(default_factory=dict)
    numbers: LayerNumbers = field(default_factory=LayerNumbers)
    left_out: int = 0
    unseen: int = 0  # steps of kernels, which have no weights to show
    outer: Seen | None = None  # who recorded when this began, and goes on when it ends
    over: bool = False
    why: str = ""  # nothing was seen of someone else's model
    _found: list[AttentionCall | Callable[[], AttentionCall]] = field(default_factory=list)

    @property
    def calls(self) -> list[AttentionCall]:
        """Every attention that was kept; what was put off is made now."""
        found = [[each] if isinstance(each, AttentionCall) else self._cut(each()) for each in self._found]
        calls = [call for each in found for call in each]
        self._found = [*calls]
        return calls

    @property
    def empty(self) -> bool:
        """Whether nothing was kept."""
        return not self._found

    def only(self, role: str, layer: int | None = None) -> list[AttentionCall]:
        return [call for call in self.calls if call.role == role and layer in (None, call.layer)]

    def axes(self, call: AttentionCall) -> tuple[str, str]:
        """Name the rows and the columns of a call's map: "target", "source", "prefix" (what a decoder has read), or
        "text" where there is but one. Attention that multiplies has "places" or "channels" of a "picture". In a search
        the "hypotheses" of a source look at it at once, each after the token that it read last.
        """
        if call.gates:
            return "picture", "places" if call.role == "spatial" else "channels"
        if call.role == "cross":
            return self._who_looks_across(call), "source"
        across = {path.rpartition(".")[0] for path in self.numbers.paths("cross")}
        own = "text"
        if across:  # tokens that also look across are those of a target, whatever they see of each other
            beside = call.path.rpartition(".")[0] in across
            own = {"causal": "prefix", "self": "target" if beside else "source"}.get(call.role, own)
        return ("query", own) if call.role == "pool" else (own, own)

    def _who_looks_across(self, call: AttentionCall) -> str:
        """The rows of a map of cross-attention. What a step of a search will predict is not known when it looks."""
        known = call.batch[0].tokens() if call.batch else {}
        return next((axis for axis in ("target", "hypotheses") if axis in known), "target")

    def labelled(
        self, call: AttentionCall, text: int | None = None, hypothesis: int = 0
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The labels of the rows and the columns of a call's map, for one input of those that were given.

        `text` counts the inputs from 0 as a person gave them, however they were batched; None is the first that the
        call holds. `hypothesis` is one of a search's for it.
        """
        row, (rows, columns) = call.row(text, hypothesis), self.axes(call)
        of = InputRow(row) if call.batch is None else call.batch[row]
        before = _before(call)
        places = [before + each for each in (range(call.q.size(-2)) if call.rows is None else call.rows)]
        keys = self._tokens(columns, call.k.size(-2), of, last=call.role == "causal")
        every = keys if rows == columns else self._tokens(rows, max(places, default=-1) + 1, of)
        return tuple(every[place] for place in places), keys

    def tokens(self, axis: str, count: int, text: int = 0) -> tuple[str, ...]:
        """The first labels of an axis, as they were given to `record`; numbers where none were, nothing in padding."""
        return self._tokens(axis, count, InputRow(text))

    def _tokens(self, axis: str, count: int, row: InputRow, last: bool = False) -> tuple[str, ...]:
        """Labels of one row: those that a person gave, or those of the model's own tokens, or numbers.

        `last`: of the model's own, those that a step still finds in its cache.
        """
        given = self.labels.get(axis)
        if given is None:
            return _of_model(row.tokens().get(axis), count, last)
        if not 0 <= row.text < len(given):
            raise UsageError(
                f"no labels of the {axis} for text {row.text}: they were given for {len(given)}, from 0 on"
            )
        labels = tuple(given[row.text][row.start :])
        if max(map(len, given)) < count:
            raise UsageError(f"{len(labels)} labels for the {axis}, which has {count} tokens")
        return (*labels[:count], *[""] * (count - len(labels)))

    def check(self) -> float:
        """The worst `check` of all calls: recorded weights rebuild the outputs."""
        calls = self.calls
        if not calls:
            raise ValueError(self.nothing())
        return max(call.check() for call in calls)

    def nothing(self) -> str:
        """Why there is nothing to see, in words."""
        if self.left_out:
            every = f"all {self.left_out} attentions are" if self.left_out > 1 else "the only attention is"
            return f"{every} over more than {self.bounds.most_tokens} tokens; raise most_tokens"
        if self.numbers.known:
            return f"no attention is within the bounds ({self.bounds}): {self.numbers.sentence()}"
        if self.unseen:
            return "steps of a kernel have no weights to show; one pass over the whole text shows what it mixes"
        return f"no attention was seen: {self.why or 'the model did not run inside this block, or it has none'}"

    def wants(self, path: str, role: Role, q: Tensor, k: Tensor, time: int = 0) -> bool:
        """Whether a call is within the bounds; one that is too large is counted."""
        if not self.bounds.wants(role, self.numbers.of(path, role, time)):
            return False
        large = self.bounds.too_large(q, k)
        if large:
            self.left_out += 1
        return not large

    def keep(self, call: AttentionCall) -> None:
        self._found += self._cut(call)

    def keep_later(self, make: Callable[[], AttentionCall]) -> None:
        """A call that is made when someone asks for it."""
        self._found.append(make)

    def _cut(self, call: AttentionCall) -> list[AttentionCall]:
        """The call within the bounds; none if they leave no text or no row of it."""
        cut = self.bounds.cut(call)
        return [cut] if cut.q.numel() or not call.q.numel() else []

    def still(self) -> Seen | None:
        """This recording, or the one around it that is not over."""
        seen: Seen | None = self
        while seen is not None and seen.over:
            seen = seen.outer
        return seen

    def __repr__(self) -> str:
        if not self._found:
            return f"Seen({self.nothing()})"
        return f"Seen({len(self._found)} attentions; {self.numbers.sentence()})"


def _of_model(tokens: Sequence[str] | None, count: int, last: bool) -> tuple[str, ...]:
    """The first `count` labels of the tokens that a model read, or the last; numbers where nobody told them."""
    if tokens is None:
        return tuple(str(number) for number in range(count))
    first = max(0, len(tokens) - count) if last else 0
    kept = tuple(tokens)[first : first + count]
    return (*kept, *[""] * (count - len(kept)))


def _before(call: AttentionCall) -> int:
    """How many tokens stood before the first query: those that a step of a decoder finds in its cache."""
    if call.role != "causal":
        return 0
    cut = isinstance(call.mask, SomeRows)
    mask, queries = (call.mask.mask, call.mask.total) if cut else (call.mask, call.q.size(-2))  # type: ignore[union-attr]
    return mask.offset if isinstance(mask, Causal) else max(0, call.k.size(-2) - queries)
