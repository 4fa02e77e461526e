"""A two-way table of names: which of our parameters are which tensors of another library, joined, split or transposed.

The same rows serve both directions. Every foreign tensor is used exactly once, every one of ours is filled exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import RegardError


@dataclass(frozen=True)
class Row:
    """Ours, one below another, are theirs, one below another (each transposed first if the row says so).

    Theirs are of one shape; ours may differ in height: [query (D, D); key_value (2 D, D)] = [c_attn (D, 3 D)ᵀ].
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    transposed: bool = False


def row(ours: str | Sequence[str], theirs: str | Sequence[str], *, transposed: bool = False) -> Row:
    return Row(_names(ours), _names(theirs), transposed)


def layer(ours: str, theirs: str, *, bias: bool = True, transposed: bool = False) -> list[Row]:
    """The rows of a linear layer or a norm: its weight, and its bias if it has one."""
    rows = [row(f"{ours}.weight", f"{theirs}.weight", transposed=transposed)]
    return [*rows, row(f"{ours}.bias", f"{theirs}.bias")] if bias else rows


def to_ours(
    rows: Sequence[Row], theirs: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], origin: str
) -> dict[str, Tensor]:
    """Their tensors as our parameters of the given shapes; `origin` is named in errors."""
    check_names(rows, theirs, origin)
    filled = [name for each in rows for name in each.ours]
    assert sorted(filled) == sorted(shapes), sorted(set(filled) ^ set(shapes))  # our own table, not the person's file
    ours: dict[str, Tensor] = {}
    for each in rows:
        ours.update(_to_ours(each, theirs, shapes, origin))
    return ours


def to_theirs(rows: Sequence[Row], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters as their tensors."""
    used = [name for each in rows for name in each.ours]
    assert sorted(used) == sorted(ours), sorted(set(used) ^ set(ours))
    theirs: dict[str, Tensor] = {}
    for each in rows:
        parts = torch.cat([ours[name] for name in each.ours]).chunk(len(each.theirs))
        for name, part in zip(each.theirs, parts, strict=True):
            theirs[name] = (part.mT if each.transposed else part).contiguous()
    return theirs


def check_names(rows: Sequence[Row], theirs: Iterable[str], origin: str) -> None:
    """Their names are those of the table, no more and no fewer."""
    wanted = [name for each in rows for name in each.theirs]
    assert len(wanted) == len(set(wanted))
    there = set(theirs)
    missing, unknown = sorted(set(wanted) - there), sorted(there - set(wanted))
    if missing or unknown:
        told = [f"{len(names)} {what}: {_some(names)}" for what, names in _both(missing, unknown) if names]
        raise RegardError(f"{origin} does not hold the tensors that its config.json promises; {'; '.join(told)}")


def _to_ours(
    each: Row, theirs: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], origin: str
) -> dict[str, Tensor]:
    heights = [shapes[name][0] for name in each.ours]
    wanted = torch.Size((sum(heights), *shapes[each.ours[0]][1:]))
    if wanted[0] % len(each.theirs):
        raise RegardError(f"{origin}: {each.theirs} cannot make {wanted[0]} rows, as its config.json asks")
    part = torch.Size((wanted[0] // len(each.theirs), *wanted[1:]))
    part = part[::-1] if each.transposed else part
    for name in each.theirs:
        if theirs[name].shape != part:
            raise RegardError(
                f"{origin}: {name} is {tuple(theirs[name].shape)}, and by its config.json it would be {tuple(part)}"
            )
    joined = torch.cat([theirs[name].mT if each.transposed else theirs[name] for name in each.theirs])
    return dict(zip(each.ours, joined.split(heights), strict=True))


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _both(missing: list[str], unknown: list[str]) -> list[tuple[str, list[str]]]:
    return [("missing", missing), ("unknown", unknown)]


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
