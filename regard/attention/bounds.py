"""What of a forward pass a recorder keeps: some roles, layers, texts or rows, and no map larger than a person allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor

from regard.attention.call import AttentionCall, Role
from regard.attention.channel import Row
from regard.attention.masks import Mask
from regard.errors import UsageError, nearest

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
        """What was asked for, in words."""
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
    """Bounds that make no sense are told in words."""
    wrong = next((role for role in roles if role not in ROLES), None)
    if wrong is not None:
        raise UsageError(f"no attention has the role {wrong!r}{nearest(str(wrong), ROLES)}")
    if any(layer < 0 for layer in layers):
        raise UsageError("layers are counted from 0; how many there are is known only after the last has run")
    if texts is not None and (texts < 1 if isinstance(texts, int) else any(text < 0 for text in texts)):  # type: ignore[attr-defined]
        raise UsageError(f"texts={texts}: say how many from the first on (texts=2), or which, from 0 (texts=[0, 3])")
    if not (rows is None or isinstance(rows, int | slice)):
        raise UsageError(f"rows={rows}: say which one, from 0 (rows=5), or a slice of them (rows=slice(2, 7))")
    if most_tokens is not None and most_tokens < 1:
        raise UsageError(f"most_tokens={most_tokens} leaves out every attention; give 1 or more, or None for no bound")


def _texts(call: AttentionCall, rows: Sequence[int]) -> AttentionCall:
    size, batch = len(call.q), call.batch or tuple(map(Row, range(len(call.q))))
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

    cut = _each(call, some)
    mask = None if call.mask is None else SomeRows(call.mask, rows, total)
    return replace(cut, k=call.k, v=call.v, mask=mask, rows=tuple(range(total)[rows]))


def _each(call: AttentionCall, some: Callable[[Tensor], Tensor]) -> AttentionCall:
    """Every tensor of the call, now or when it is computed, through `some`."""

    def later(what: Tensor | Callable[[], Tensor | None] | None) -> Tensor | Callable[[], Tensor | None] | None:
        if what is None or isinstance(what, Tensor):
            return None if what is None else some(what)
        return lambda: None if (found := what()) is None else some(found)

    parts = {name: later(getattr(call, name)) for name in ("q", "k", "v", "out", "bias", "told", "plus")}
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
