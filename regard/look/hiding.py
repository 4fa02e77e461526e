"""A map without some of its tokens, most often the special ones, which tell where a text begins and ends.

Heads that have nothing to do look there, so that what remains may be little: what was taken away is said in a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import UsageError
from regard.look.labels import visible
from regard.tokens.words import is_special, word_label

if TYPE_CHECKING:
    from regard.look.map import AttentionMap

STAND_FOR_TEXT = ("[MASK]", "<mask>", "[UNK]", "<unk>")  # special, but a word is, or was, at their place
NOTHING = 1e-6  # of a row's weight: too little to be made one again
MOST_NAMES = 6  # rows or tokens named in a note


def without(map: AttentionMap, specials: bool, labels: Sequence[str]) -> AttentionMap:
    """The rows and columns that stay, each row with the sum that it had."""
    known = {_name(label) for label in (*map.rows, *map.columns)}
    unknown = [label for label in labels if _name(label) not in known]
    if unknown:
        raise UsageError(f"no token {visible(unknown[0])} to hide; there are {_named(dict.fromkeys(map.columns))}")
    rows, columns = (_gone(each, specials, labels) for each in (map.rows, map.columns))
    if rows.all() or columns.all():
        raise UsageError(
            "all rows or all columns of this map would be hidden; show special tokens (leave out --hide-special)"
        )
    if not rows.any() and not columns.any():
        return map
    names = _named(dict.fromkeys(np.array([*map.columns, *map.rows], dtype=object)[np.concatenate([columns, rows])]))
    left = map.weights[..., ~rows, :]  # (..., T, S)
    had = np.nansum(np.abs(left), axis=-1)  # (..., T)
    lost = np.nansum(np.abs(left[..., columns]), axis=-1)
    empty = had - lost <= NOTHING * had  # also of a row that looked nowhere
    factor = np.where(empty, 0.0, had / np.where(empty, 1.0, had - lost))
    kept = tuple(label for label, gone in zip(map.rows, rows, strict=True) if not gone)
    return replace(
        map,
        weights=left[..., ~columns] * factor[..., None],
        columns=tuple(label for label, gone in zip(map.columns, columns, strict=True) if not gone),
        rows=kept,
        notes=(*map.notes, _note(names, kept, had, lost, empty) if columns.any() else f"without the rows {names}"),
    )


def _gone(each: Sequence[str], specials: bool, labels: Sequence[str]) -> np.ndarray:
    """True where a token leaves the map."""
    named = {_name(label) for label in labels}
    hidden = [
        _name(label) in named or (specials and is_special(label) and label not in STAND_FOR_TEXT) for label in each
    ]
    return np.array(hidden)


def _note(names: str, rows: Sequence[str], had: np.ndarray, lost: np.ndarray, empty: np.ndarray) -> str:
    """What the hidden tokens had: on average over rows (and heads), and at most."""
    looked = had > 0
    if not looked.any():
        return f"without {names}"
    shares = np.where(looked, lost / np.where(looked, had, 1.0), -1.0)  # (..., T)
    worst = rows[int(np.unravel_index(shares.argmax(), shares.shape)[-1])]
    told = (
        f"without {names}: {'they' if ', ' in names else 'it'} had {shares[looked].mean():.0%} of the weight "
        f"(at most {shares.max():.0%}, row '{visible(worst)}'); rows renormalised"
    )
    lone = (empty & looked).reshape(-1, len(rows)).any(axis=0)  # (T,)
    if not lone.any():
        return told
    return f"{told}; all of the weight of {_named(np.array(rows, dtype=object)[lone])} was there: zeros"


def _name(label: str) -> str:
    return word_label([label], [0])


def _named(labels: Sequence[str] | dict[str, None] | np.ndarray) -> str:
    each = [visible(_name(label)) for label in labels]
    more = f" and {len(each) - MOST_NAMES} more" if len(each) > MOST_NAMES else ""
    return ", ".join(each[:MOST_NAMES]) + more
