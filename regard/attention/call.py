"""One attention of one forward pass, as the recorder keeps it: where it stands, in which role, and its bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict, get_args

import torch
from torch import Tensor, nn

from regard.attention.attend import attention_weights, for_each_head
from regard.attention.channel import InputRow
from regard.attention.edges import edge_matrix, mix_edges
from regard.attention.masks import Dense, Edges, Mask
from regard.errors import UsageError, nearest


def module_of(model: object, use: str) -> nn.Module:
    """The module that a person means, who gives one or what `regard.load` gives. `use` is the function that is asked."""
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        raise UsageError(f"regard.{use} takes a module or what regard.load gives, and this is a {type(model).__name__}")
    return module


def names_of(model: nn.Module) -> dict[int, str]:
    """The path of each module, by its identity."""
    return {id(module): name for name, module in model.named_modules()}


def holds(names: dict[int, str], model: nn.Module) -> bool:
    """Whether the model, or a part of it, is among those named."""
    return id(model) in names or any(id(module) in names for module in model.modules())


@dataclass
class LayerNumbers:
    """Layers by number: of each role, its attentions in the order of their first call.

    A module that a forward pass calls several times, as where layers share their weights, is as many layers.
    """

    known: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # by role: path, and which call in a pass

    def of(self, path: str, role: str, time: int = 0) -> int:
        known = self.known.setdefault(role, [])
        if (path, time) not in known:
            known.append((path, time))
        return known.index((path, time))

    def paths(self, role: str) -> list[str]:
        """The path of each layer of a role, in the order of their numbers."""
        return [path for path, _ in self.known.get(role, ())]

    def sentence(self) -> str:
        """List the layers of each role in words."""
        if not self.known:
            return "no attention ran inside the block"
        each = (
            f"{role} layer{'s 0 to ' + str(len(known) - 1) if len(known) > 1 else ' 0'}"
            for role, known in self.known.items()
        )
        return f"there are {', '.join(each)}"


Role = Literal["self", "causal", "cross", "pool", "memory", "spatial", "channel"]
Reported = Tensor | Callable[[], Tensor]  # (B, H, T, S), or what computes it when asked
Lazy = Callable[[], Tensor | None] | None


class ShownWeights(TypedDict, total=False):
    """Fields of an `AttentionCall` that say how its weights are shown, each with the call's default where it is absent."""

    mask: Mask | Tensor | None
    bias: Tensor | None
    scale: float | None
    reported: Reported | None
    on_edges: Tensor | None
    sums_to_one: bool
    gates: bool
    plus: Tensor | None
    visible: Lazy
    stands_for: Lazy
    has_exact: bool


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One attention of one forward pass: who looked (module path), in which role, and all it takes to see the weights."""

    path: str
    role: Role
    q: Tensor  # (B, H, T, E)
    k: Tensor  # (B, G, S, E)
    v: Tensor  # (B, G, S, E)
    out: Tensor  # (B, H, T, E), or what `finish` makes of it
    mask: Mask | None = None
    bias: Tensor | None = None
    scale: float | None = None
    reported: Reported | None = None  # weights that are no softmax of products of q and k
    on_edges: Tensor | None = None  # (E, H): weights on the edges of the mask, where that is `Edges`
    sums_to_one: bool = True  # each row of the weights, unless the paper has it otherwise
    gates: bool = False  # weights (B, H, 1, S) do not add values up, each multiplies its own: out (B, H, S, E)
    plus: Tensor | None = None  # (B, H, T, E): what was added to the weighted values
    visible: Lazy = None  # which pairs a kernel sees, if it leaves out some by their places
    stands_for: Lazy = None  # the map that a kernel approximates, if that is not softmax(q kᵀ)
    has_exact: bool = True  # q and k are queries and keys; False: what was mixed is all there is
    layer: int = 0  # among the attentions of this role, in the order of their first call
    removed: tuple[int, ...] = ()  # heads that looked, but whose output was replaced by zeros
    rows: tuple[int, ...] | None = None  # which queries these are, where others were left out
    finish: Callable[[Tensor], Tensor] | None = None  # what a foreign module made of its heads (B, H, T, E)
    batch: tuple[InputRow, ...] | None = None  # (B,) which input each row of the batch is; None: they stand in order

    @property
    def heads(self) -> int:
        return self.q.size(1)

    @property
    def texts(self) -> tuple[int, ...]:
        """Which input each row of the batch is, counted from 0 as they were given; hypotheses are of their source."""
        return tuple(range(len(self.q))) if self.batch is None else tuple(row.text for row in self.batch)

    def row(self, text: int | None = None, hypothesis: int = 0) -> int:
        """The row of an input (None: the first that is here), and of those of a search the one of a hypothesis."""
        texts = self.texts
        text = texts[0] if text is None and texts else text
        rows = [row for row, each in enumerate(texts) if each == text]
        if not rows:
            there = ", ".join(map(str, sorted(set(texts))))
            raise UsageError(f"no text {text} in this attention; there is {there}, counted from 0")
        if not 0 <= hypothesis < len(rows):
            raise UsageError(f"no hypothesis {hypothesis}; there are {len(rows)}, numbered from 0 to {len(rows) - 1}")
        return rows[hypothesis]

    def __repr__(self) -> str:
        size = f"{self.q.size(-2)} x {self.k.size(-2)}"
        return (
            f"AttentionCall({self.path}, {self.role}, layer {self.layer}, {self.heads} heads, {len(self.q)} x {size})"
        )

    @torch.no_grad()
    def weights(self) -> Tensor:
        """Where each query looked: (B, H, T, S); rows sum to one, unless `sums_to_one` says otherwise."""
        if self.on_edges is not None:
            return edge_matrix(self.on_edges, self.graph, self.k.size(-2))[None]
        if self.reported is not None:
            return self.reported() if callable(self.reported) else self.reported
        return self.exact()

    @torch.no_grad()
    def exact(self) -> Tensor:
        """Where exact attention would have looked, whatever was computed instead: (B, H, T, S)."""
        if self.on_edges is not None:
            return self.weights()
        other = self.stands_for() if self.stands_for is not None else None
        if other is not None:
            return other
        return attention_weights(self.q, self.k, mask=self.mask, bias=self.bias, scale=self.scale)

    @property
    def graph(self) -> Edges:
        """The edges that an attention over edges has weights on."""
        if not isinstance(self.mask, Edges):
            raise UsageError(f"{self.path} attends over no list of edges; its weights are `weights()`")
        return self.mask

    def permitted(self) -> Tensor:
        """Where the mask lets each query look: booleans (B, H, T, S)."""
        shape = (*self.q.shape[:3], self.k.size(-2))
        if self.mask is None:
            return self.q.new_ones(shape).bool()
        return self.mask.dense(shape[-2], shape[-1], self.q.device).expand(shape)

    def allowed(self) -> Tensor:
        """Where each query could look: what the mask permits, and of that what a kernel sees. Booleans (B, H, T, S)."""
        visible = self.visible() if self.visible is not None else None
        return self.permitted() if visible is None else self.permitted() & visible

    @torch.no_grad()
    def of_head(self, head: int) -> tuple[Tensor, Tensor]:
        """Where one head looked, and where it could: (B, T, S) both. No other head is computed, if none is needed for it."""

        def part(x: Tensor) -> Tensor:
            return x if x.dim() < 3 or x.size(-3) == 1 else x.narrow(-3, head * x.size(-3) // self.heads, 1)

        allowed = part(self.allowed())[:, 0]
        if self.on_edges is not None:
            return edge_matrix(self.on_edges[:, [head]], self.graph, self.k.size(-2)), allowed
        if self.reported is not None or self.stands_for is not None:
            return part(self.weights())[:, 0], allowed
        bias = None if self.bias is None else part(self.bias)
        mask = None if self.mask is None else Dense(part(self.permitted()))
        weights = attention_weights(part(self.q), part(self.k), mask=mask, bias=bias, scale=self.scale)
        return weights[:, 0], allowed

    @torch.no_grad()
    def rebuilt(self) -> Tensor:
        """The module's output, made again of the weights and values."""
        if self.gates:
            return self.weights().mT * self.v
        if self.on_edges is not None:  # no matrix of all pairs is made
            out = mix_edges(self.on_edges, self.v, self.graph)
        else:
            out = self.weights() @ for_each_head(self.v, self.heads)
        out = out if self.plus is None else out + self.plus
        if self.removed:
            out[:, list(self.removed)] = 0.0
        return out if self.finish is None else self.finish(out)

    def check(self) -> float:
        """The largest difference between the output rebuilt from the weights and what the module really gave.

        Weights are those before dropout: while a model trains with it, they do not rebuild what it gave.
        """
        return float((self.rebuilt() - self.out).abs().max()) if self.out.numel() else 0.0


ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Bounds:
    """None is everything."""

    roles: tuple[Role, ...] | None = None
    layers: tuple[int, ...] | None = None  # counted from 0 among the attentions of each role
    texts: tuple[int, ...] | None = None  # of the inputs
    rows: slice | None = None  # queries: the rows of each map
    most_tokens: int | None = None  # an attention over more queries or keys is left out, and counted

    @classmethod
    def of(
        cls,
        only: Role | Sequence[Role] | None,
        layers: int | Sequence[int] | None,
        texts: int | Sequence[int] | None,
        rows: int | slice | None,
        most_tokens: int | None,
    ) -> Bounds:
        """As a person says them: `layers=2` is layer 2, `texts=2` are the first two, `rows=5` is row 5."""
        roles = (only,) if isinstance(only, str) else only
        layers = (layers,) if isinstance(layers, int) else layers
        _check(roles or (), layers or (), texts, rows, most_tokens)
        texts = tuple(range(texts)) if isinstance(texts, int) else texts
        rows = slice(rows, rows + 1 or None) if isinstance(rows, int) else rows
        return cls(
            None if roles is None else tuple(roles),
            None if layers is None else tuple(layers),
            None if texts is None else tuple(texts),
            rows,
            most_tokens,
        )

    def __str__(self) -> str:
        """Say in words which bounds were asked for."""
        names = {"only": self.roles, "layers": self.layers, "texts": self.texts}
        said = [f"{name} {', '.join(map(str, each))}" for name, each in names.items() if each is not None]
        if self.rows is not None:
            said.append(
                f"rows {self.rows.start or 0} to {'the last' if self.rows.stop is None else self.rows.stop - 1}"
            )
        return "; ".join(said)

    def wants(self, role: Role, layer: int) -> bool:
        return (self.roles is None or role in self.roles) and (self.layers is None or layer in self.layers)

    def too_large(self, q: Tensor, k: Tensor) -> bool:
        return self.most_tokens is not None and max(q.size(-2), k.size(-2)) > self.most_tokens

    def cut(self, call: AttentionCall) -> AttentionCall:
        """The call with only the wanted texts and rows, in the order of the inputs; its weights still rebuild its output."""
        order = self._order(call.texts)
        call = call if order == list(range(len(call.q))) else _texts(call, order)
        return call if self.rows is None or call.gates else _rows(call, self.rows)

    def _order(self, texts: Sequence[int]) -> list[int]:
        """Which rows are kept: those of the wanted texts, as they were asked for; or all, in the order of the inputs."""
        if self.texts is None:
            return sorted(range(len(texts)), key=lambda row: texts[row])
        return [row for text in self.texts for row, each in enumerate(texts) if each == text]


def _check(roles: Sequence[str], layers: Sequence[int], texts: object, rows: object, most_tokens: int | None) -> None:
    """Refuse bounds that make no sense, in words."""
    wrong = next((role for role in roles if role not in ROLES), None)
    if wrong is not None:
        raise UsageError(f"no attention has the role {wrong!r}", nearest(str(wrong), ROLES))
    if any(layer < 0 for layer in layers):
        raise UsageError("layers are counted from 0; how many there are is known only after the last has run")
    if texts is not None and (texts < 1 if isinstance(texts, int) else any(text < 0 for text in texts)):  # type: ignore[attr-defined]
        raise UsageError(f"texts={texts}: say how many from the first on (texts=2), or which, from 0 (texts=[0, 3])")
    if not (rows is None or isinstance(rows, int | slice)):
        raise UsageError(f"rows={rows}: say which one, from 0 (rows=5), or a slice of them (rows=slice(2, 7))")
    if most_tokens is not None and most_tokens < 1:
        raise UsageError(f"most_tokens={most_tokens} leaves out every attention; give 1 or more, or None for no bound")


def _texts(call: AttentionCall, rows: Sequence[int]) -> AttentionCall:
    size, batch = len(call.q), call.batch or tuple(map(InputRow, range(len(call.q))))
    wanted = torch.tensor(rows, dtype=torch.long, device=call.q.device)

    def some(x: Tensor) -> Tensor:
        return x.index_select(0, wanted) if x.dim() == 4 and len(x) == size else x

    mask = None if call.mask is None else call.mask.keep(wanted)
    kept = tuple(batch[row] for row in rows)
    return replace(_each(call, some), out=call.out.index_select(0, wanted), mask=mask, batch=kept)


def _rows(call: AttentionCall, rows: slice) -> AttentionCall:
    total = call.q.size(-2)

    def some(x: Tensor) -> Tensor:
        return x[..., rows, :].clone() if x.dim() >= 2 and x.size(-2) == total else x  # the rest can be forgotten

    cut, kept = _each(call, some), range(total)[rows]
    if call.on_edges is not None:
        edges, there = call.graph.some(kept)
        return replace(cut, k=call.k, v=call.v, mask=edges, on_edges=call.on_edges[there], rows=tuple(kept))
    mask = None if call.mask is None else SomeRows(call.mask, rows, total)
    return replace(cut, k=call.k, v=call.v, mask=mask, rows=tuple(kept))


def _each(call: AttentionCall, some: Callable[[Tensor], Tensor]) -> AttentionCall:
    """Every tensor of the call, now or when it is computed, through `some`."""

    def later(what: Tensor | Callable[[], Tensor | None] | None) -> Tensor | Callable[[], Tensor | None] | None:
        if what is None or isinstance(what, Tensor):
            return None if what is None else some(what)
        return lambda: None if (found := what()) is None else some(found)

    parts = {name: later(getattr(call, name)) for name in ("q", "k", "v", "out", "bias", "reported", "plus")}
    lazy = {name: later(getattr(call, name)) for name in ("visible", "stands_for")}
    return replace(call, **parts, **lazy)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class SomeRows(Mask):
    """Some queries of another mask, which is for `total` of them."""

    mask: Mask
    rows: slice
    total: int

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        whole = self.mask.dense(self.total, keys, device)
        return whole[..., self.rows, :] if whole.size(-2) == self.total else whole

    def keep(self, rows: Tensor) -> Mask:
        return SomeRows(self.mask.keep(rows), self.rows, self.total)
