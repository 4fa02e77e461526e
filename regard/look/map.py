"""An attention map: who looks where, how much, with a label on every row and column; its words joined, tokens hidden.

Pieces are joined into words with C (S, words) and R (words, T) of zeros and ones, each row of R divided by the pieces of
its word: the map A of pieces becomes R A C. The sum of a row is the mean of its pieces' sums; where each is one, it is one.

Special tokens tell where a text begins and ends. Heads that have nothing to do look there, so that without them little may
remain: a note says what was taken away.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.brief import brief, quoted
from regard.errors import Advice, Option, RegardError, UsageError
from regard.files import JSON
from regard.look.colors import only_key, scale_top
from regard.look.labels import visible
from regard.look.lines import Lines
from regard.look.shown import Shown
from regard.tokens.words import Words, is_special, word_label, words_of

BEYOND = "a row that may see one key only gives it all its weight, which is beyond the scale"


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class AttentionMap(Shown):
    """Weights of one attention, or of its heads. Its figure is a heat map, or one for each head."""

    called = "a map"

    weights: np.ndarray  # (T, S) or (H, T, S): every row a query, summing to one; NaN where masked
    columns: tuple[str, ...]  # S labels: what is looked at
    rows: tuple[str, ...]  # T labels: who looks
    title: str = ""
    notes: tuple[str, ...] = ()  # what was done to the weights since the model computed them

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)
        for name in ("columns", "rows", "notes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check()
        told = tuple(note for note in self.notes if note != BEYOND)
        object.__setattr__(self, "notes", (*told, BEYOND) if self._beyond() else told)

    def __repr__(self) -> str:
        return brief(self, quoted(self.title) if self.title else "", " x ".join(map(str, self.weights.shape)))

    def _beyond(self) -> bool:
        """Whether a row that sees one key only has more weight there than the scale of colours reaches."""
        alone = only_key(self.weights)
        return bool(alone.any() and self.weights[alone].max() > scale_top(self.weights) * (1 + 1e-6))

    def _check(self) -> None:
        if self.weights.ndim not in (2, 3):
            raise RegardError(f"an attention map is (T, S) or (H, T, S), not {self.weights.shape}; choose one of each")
        if self.weights.shape[-2:] != (len(self.rows), len(self.columns)):
            raise RegardError(
                f"weights for {self.weights.shape[-2]} rows and {self.weights.shape[-1]} columns, "
                f"but {len(self.rows)} row labels and {len(self.columns)} column labels"
            )
        if 0 in self.weights.shape:
            raise RegardError(f"an attention map of shape {self.weights.shape} is empty: there is nothing to show")
        if np.isinf(self.weights).any():
            raise RegardError("an attention map holds weights, not scores: found infinity; NaN marks a masked cell")

    @property
    def heads(self) -> int:
        """The number of heads; a map without heads counts as one."""
        return 1 if self.weights.ndim == 2 else len(self.weights)

    def mean(self) -> AttentionMap:
        """The average over heads. A cell is masked in it where every head masks it; elsewhere masked counts as zero."""
        if self.weights.ndim == 2:
            return self
        masked = np.isnan(self.weights)  # (H, T, S)
        average = np.where(masked, 0.0, self.weights).mean(axis=0)  # (T, S)
        return replace(self, weights=np.where(masked.all(axis=0), np.nan, average))

    def head(self, index: int) -> AttentionMap:
        """One head, counted from 0."""
        if not 0 <= index < self.heads:
            raise UsageError(f"no head {index}; this map has {self.heads}, numbered from 0 to {self.heads - 1}")
        if self.weights.ndim == 2:
            return self
        name = f"head {index}"
        title = f"{self.title} · {name}" if self.title else name
        return replace(self, weights=self.weights[index], title=title)

    def words(self) -> AttentionMap:
        """Pieces joined into words, on both axes: columns add up, rows are averaged, so a row's sum stays."""

        return into_words(self)

    def hide(self, specials: bool = True, labels: Sequence[str] = ()) -> AttentionMap:
        """Without special tokens (<s>, </s>, [CLS]) and those with the given labels; a note says what they had."""

        return without(self, specials, labels)

    def lines(self) -> Lines:
        """The same weights as lines between two sentences."""
        return Lines(self)

    def data(self) -> dict[str, JSON]:
        """Title, notes, columns, rows and weights, nested as the map is; NaN where a cell is masked."""
        names = {"title": self.title, "notes": self.notes, "columns": self.columns, "rows": self.rows}
        return {**names, "weights": self.weights.tolist()}

    def csv(self) -> str:
        return as_csv(self.weights, self.columns, self.rows)

    def html(self) -> str:
        """A whole page: the map, and every number under the pointer; nothing is loaded from elsewhere."""
        page: str = self._draw("page")
        return page

    def text(self, width: int = 80, color: bool = False) -> str:
        """The map for a terminal of that width: with ANSI colours, or with the shades ░▒▓█."""
        return self._terminal(width, color)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".json": self.json, ".csv": self.csv, ".html": self.html}

    def _alternative(self) -> str:
        return "; ".join((self.title or "attention map", *self.notes))


NOTE = "pieces joined into words: columns added up, rows averaged"


def into_words(attention: AttentionMap) -> AttentionMap:
    """The map of words, with a note; a map of whole words is left as it is."""
    rows, columns = words_of(attention.rows), words_of(attention.columns)
    down, across = (
        tuple(word_label(labels, word) for word in words)
        for labels, words in ((attention.rows, rows), (attention.columns, columns))
    )
    if (len(down), len(across)) == (len(attention.rows), len(attention.columns)):
        return replace(attention, rows=down, columns=across)
    weights = joined(attention.weights, rows, columns)
    return replace(attention, weights=weights, rows=down, columns=across, notes=(*attention.notes, NOTE))


def rows_into_words(attention: AttentionMap) -> AttentionMap:
    """Only the rows, where the columns are to be read as a text of pieces."""
    rows = words_of(attention.rows)
    weights = joined(attention.weights, rows, [(place,) for place in range(len(attention.columns))])
    return replace(attention, weights=weights, rows=tuple(word_label(attention.rows, word) for word in rows))


def joined(weights: np.ndarray, rows: Words, columns: Words) -> np.ndarray:
    """Weights (..., T, S) of pieces as weights of words. A cell is masked where all its cells are; masked is zero.

    A piece that may look nowhere has no part in the mean of its word.
    """
    masked = np.isnan(weights)
    down, across = _members(rows), _members(columns).T  # (words, T), (S, words)
    sums = down @ np.where(masked, 0.0, weights) @ across
    looking = down @ (~masked).any(axis=-1)[..., None]  # (..., words, 1): pieces that look anywhere
    seen = down @ (~masked) @ across > 0
    return np.where(seen, sums / np.maximum(looking, 1), np.nan)


def _members(words: Words) -> np.ndarray:
    """One where a piece belongs to a word: (words, pieces)."""
    found = np.zeros((len(words), sum(map(len, words))))
    for number, word in enumerate(words):
        found[number, list(word)] = 1.0
    return found


STAND_FOR_TEXT = ("[MASK]", "<mask>", "[UNK]", "<unk>")  # special, but a word is, or was, at their place
NOTHING = 1e-6  # of a row's weight: too little to be made one again
MOST_NAMES = 6  # rows or tokens named in a note


def without(attention: AttentionMap, specials: bool, labels: Sequence[str]) -> AttentionMap:
    """The rows and columns that stay, each row with the sum that it had."""
    known = {_name(label) for label in (*attention.rows, *attention.columns)}
    unknown = [label for label in labels if _name(label) not in known]
    if unknown:
        raise UsageError(
            f"no token {visible(unknown[0])} to hide; there are {_named(dict.fromkeys(attention.columns))}"
        )
    rows, columns = (_gone(each, specials, labels) for each in (attention.rows, attention.columns))
    if rows.all() or columns.all():
        raise UsageError(
            "all rows or all columns of this map would be hidden",
            Advice("show special tokens (leave out ", Option("hide_special"), ")"),
        )
    if not rows.any() and not columns.any():
        return attention
    labelled = zip((*attention.columns, *attention.rows), (*columns, *rows), strict=True)
    names = _named(dict.fromkeys(label for label, gone in labelled if gone))
    left = attention.weights[..., ~rows, :]  # (..., T, S)
    had = np.nansum(np.abs(left), axis=-1)  # (..., T)
    lost = np.nansum(np.abs(left[..., columns]), axis=-1)
    empty = had - lost <= NOTHING * had  # also of a row that looked nowhere
    factor = np.where(empty, 0.0, had / np.where(empty, 1.0, had - lost))
    kept = tuple(label for label, gone in zip(attention.rows, rows, strict=True) if not gone)
    return replace(
        attention,
        weights=left[..., ~columns] * factor[..., None],
        columns=tuple(label for label, gone in zip(attention.columns, columns, strict=True) if not gone),
        rows=kept,
        notes=(
            *attention.notes,
            _note(names, kept, had, lost, empty) if columns.any() else f"without the rows {names}",
        ),
    )


def _gone(each: Sequence[str], specials: bool, labels: Sequence[str]) -> np.ndarray:
    """True where a token leaves the map."""
    named = {_name(label) for label in labels}
    hidden = [
        _name(label) in named or (specials and is_special(label) and label not in STAND_FOR_TEXT) for label in each
    ]
    return np.array(hidden)


def _note(names: str, rows: Sequence[str], had: np.ndarray, lost: np.ndarray, empty: np.ndarray) -> str:
    """Tell the share of the weight that hidden tokens had: on average over rows (and heads), and at most."""
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


def as_csv(weights: np.ndarray, columns: Sequence[str], rows: Sequence[str]) -> str:
    """A header of names ("token" and the column labels), then a line for each row label; heads have their number in front.

    A masked cell is empty. Notes are sentences, not names: they stand in the JSON.
    """
    heads: list[tuple[tuple[int, ...], np.ndarray]] = [((), weights)]
    if weights.ndim == 3:
        heads = [((number,), head) for number, head in enumerate(weights)]
    return _as_csv(["head"] if weights.ndim == 3 else [], heads, columns, rows)


def layers_as_csv(layers: Sequence[np.ndarray], columns: Sequence[str], rows: Sequence[str]) -> str:
    """Return the same for layers, (H, T, S) each; layer and head have their numbers in front."""
    heads = [((layer, head), weights) for layer, each in enumerate(layers) for head, weights in enumerate(each)]
    return _as_csv(["layer", "head"], heads, columns, rows)


def _as_csv(
    numbered: Sequence[str],
    heads: Sequence[tuple[tuple[int, ...], np.ndarray]],
    columns: Sequence[str],
    rows: Sequence[str],
) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*numbered, "token", *columns])
    for numbers, weights in heads:
        writer.writerows([*numbers, label, *_cells(line)] for label, line in zip(rows, weights, strict=True))
    return text.getvalue()


def _cells(line: np.ndarray) -> list[str]:
    return ["" if np.isnan(weight) else repr(float(weight)) for weight in line]
