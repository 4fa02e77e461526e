"""Texts as classifiers read them: between special tokens, one or two of them, cut to a length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.data.batches import LabelBatches
from regard.data.labelled import Labelled
from regard.models.config import BertConfig, ModelConfig
from regard.tokens import TextTokenizer

Row = tuple[np.ndarray, np.ndarray]  # ids, and to which text each belongs


def reads_trees(model: ModelConfig) -> bool:
    """Whether a model's positions are those of a tree that is given with each text."""
    return isinstance(model, BertConfig) and model.positions == "tree"


def as_row(tokenizer: TextTokenizer, text: str, second: str | None, longest: int) -> Row:
    """[CLS] text [SEP], or [CLS] text [SEP] text [SEP], and to which text each token belongs; at most `longest` tokens."""
    special = tokenizer.specials
    first = tokenizer.encode(text)
    if second is None:
        ids = [special.begin, *first[: longest - 2], special.end]
        return np.array(ids, dtype=np.int32), np.zeros(len(ids), dtype=np.int32)
    other, room = tokenizer.encode(second), longest - 3
    while len(first) + len(other) > room:  # the longer one gives way
        (first if len(first) >= len(other) else other).pop()
    ids = [special.begin, *first, special.end, *other, special.end]
    segments = np.array([0] * (len(first) + 2) + [1] * (len(other) + 1), dtype=np.int32)
    return np.array(ids, dtype=np.int32), segments


def label_batches(
    rows: Sequence[Row], labels: np.ndarray, tokenizer: TextTokenizer, batch_tokens: int, seed: int
) -> LabelBatches:
    """Batches of these rows; segments only where there are second texts."""
    paired = any(segments[-1] for _, segments in rows)
    budget = max(batch_tokens, max(len(ids) for ids, _ in rows))
    segments = [segments for _, segments in rows] if paired else None
    return LabelBatches([ids for ids, _ in rows], labels, tokenizer.specials.pad, budget, seed, segments)


def encode_labelled(
    texts: Sequence[Labelled],
    labels: Sequence[str],
    tokenizer: TextTokenizer,
    longest: int,
    batch_tokens: int,
    seed: int,
) -> LabelBatches:
    """Batches of labelled texts; labels by their place in `labels`."""
    place = {label: number for number, label in enumerate(labels)}
    rows = [as_row(tokenizer, each.text, each.second, longest) for each in texts]
    return label_batches(rows, np.array([place[each.label] for each in texts]), tokenizer, batch_tokens, seed)
