"""Texts as people have them, made into what a model of text reads in one pass: the first so many that fit, in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from regard.data.batch import text_batch
from regard.data.batches import TokenPairs, cut_by_budget, with_trees
from regard.data.labelled import Labelled
from regard.data.masking import MaskedBatches
from regard.data.pairs import Pair
from regard.errors import UsageError
from regard.tasks.heads_data import Material, check_task
from regard.tasks.heads_texts import Ids, Texts
from regard.tasks.rows import encode_labelled
from regard.tokens import PAD, as_arrays

TOGETHER = 4096  # tokens of a batch, or one text
LONGEST = 256  # tokens of a pair's longer side, or of a labelled text: what is longer does not fit
WINDOW = 128  # tokens of a window of running text, at most
PAIRED = {"translate": '[("ein Mann", "a man"), ...]', "classify": '[("a good film", "positive"), ...]'}


def prepare(user: Any, material: Material, count: int, longest: int = LONGEST) -> Texts:
    """The first `count` texts that fit, in batches; a pair or a labelled text fits with less than `longest` tokens."""
    check_task(user)
    if count < 1:
        raise UsageError(f"{count} texts are none; give 1 or more")
    if user.config.task in PAIRED and isinstance(next(iter(material.items), None), str):
        raise UsageError(
            f"a model to {user.config.task} takes each text with what belongs to it: {PAIRED[user.config.task]}"
        )
    ways: dict[str, Callable[[Any, Material, int, int], Texts]] = {
        "translate": _pairs, "generate": _windows, "fill": _gaps, "classify": _labelled,
    }  # fmt: skip
    return ways[user.config.task](user, material, count, longest)


def _pairs(user: Any, material: Material, count: int, longest: int) -> Texts:
    longest = min(longest, user.model.longest or longest)
    chosen: list[Pair] = []
    encoded: list[tuple[list[int], list[int]]] = []
    for pair in material.items:
        both = (user.tokenizers.source.encode(pair[0]), user.tokenizers.target.encode(pair[1]))
        if all(0 < len(ids) < longest for ids in both):
            chosen.append((pair[0], pair[1]))
            encoded.append(both)
        if len(chosen) == count:
            break
    return pair_texts(user, encoded, material.name, chosen)


def pair_texts(user: Any, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], name: str, raw: Sequence[Any]) -> Texts:
    """Pairs of ids without begin and end, in batches."""
    if not pairs:
        raise UsageError(f"no pair of {name} fits: both sides must have a token, and not too many")
    sources = as_arrays([source for source, _ in pairs], begin=False)
    targets = as_arrays([target for _, target in pairs], begin=True)
    tokens = TokenPairs(sources, targets, PAD)
    read, predicted = tokens.lengths()
    order = np.lexsort([predicted, read])
    groups = cut_by_budget(order, np.maximum(read, predicted), max(TOGETHER, int(max(read.max(), predicted.max()))))
    ids: list[Ids] = [
        {"source": _tuple(source), "target": _tuple(target[1:]), "prefix": _tuple(target[:-1])}
        for source, target in zip(sources, targets, strict=True)
    ]
    return Texts(user, ids, [(rows, tokens.take(rows)) for rows in groups], name, raw)


def _windows(user: Any, material: Material, count: int, _: int) -> Texts:
    stream = material.items if isinstance(material.items, np.ndarray) else _stream(user, material.items, count)
    size = min(WINDOW, user.context, material.context or WINDOW)
    starts = [start for start in range(0, len(stream) - 1, size) if start + size < len(stream)][:count] or [0]
    windows = [np.asarray(stream[start : start + size + 1], dtype=np.int64) for start in starts]
    if len(windows[0]) < 3:
        raise UsageError(f"{material.name} has {len(windows[0])} tokens, too few to see anything; give more text")
    return stretches(user, windows, material.name)


def stretches(user: Any, rows: Sequence[np.ndarray], name: str) -> Texts:
    """Stretches of ids of one length, each predicting all its tokens but the first."""
    together = max(1, TOGETHER // len(rows[0]))
    groups = np.split(np.arange(len(rows)), range(together, len(rows), together))
    batches = [(group, text_batch([rows[row] for row in group])) for group in groups]
    return Texts(user, [{"text": _tuple(row[:-1])} for row in rows], batches, name)


def _stream(user: Any, texts: Sequence[str], count: int) -> np.ndarray:
    """Documents one after the other as in training, as many as are needed."""
    special, ids = user.tokenizer.specials, list[int]()
    for text in texts:
        ids += [special.begin, *user.tokenizer.encode(text), special.end]
        if len(ids) > (count + 1) * WINDOW:
            break
    return np.array(ids)


def _gaps(user: Any, material: Material, count: int, _: int) -> Texts:
    """Chunks of texts with gaps, which are drawn with a fixed seed."""
    room = min(WINDOW, user.longest, material.context or WINDOW) - 2
    chunks: list[list[int]] = []
    for text in material.items:
        ids = user.tokenizer.encode(text)
        chunks += [ids[start : start + room] for start in range(0, len(ids), room)]
        if len(chunks) >= count:
            break
    special = user.tokenizer.specials
    masked = MaskedBatches(
        [np.array(ids, dtype=np.int32) for ids in chunks[:count] if ids],
        begin=special.begin, end=special.end, mask=special.mask, pad=special.pad, vocabulary=user.tokenizer.size,
        special=special.all, length=room + 2, batch_tokens=TOGETHER, seed=0,
    )  # fmt: skip
    batches = [(rows, masked.get(0, index)) for index, rows in enumerate(masked.plan(0))]
    shown = {
        int(row): _tuple(batch.ids[n, : batch.lengths[n]]) for rows, batch in batches for n, row in enumerate(rows)
    }
    return Texts(user, [{"text": shown[row]} for row in range(len(shown))], batches, material.name)


def _labelled(user: Any, material: Material, count: int, longest: int) -> Texts:
    items = [each if isinstance(each, Labelled) else Labelled(*each) for each in material.items]
    unknown = sorted({each.label for each in items} - set(user.labels))
    if unknown:
        raise UsageError(
            f"the texts have a label that the model never learned: {unknown[0]}; it knows {', '.join(user.labels[:8])}"
        )
    room = min(user.longest, longest)
    fitting = list(islice((each for each in items if _tokens(user, each) <= room), count))
    if not fitting:
        raise UsageError(f"no text of {material.name} fits: it must have at most {room} tokens")
    batches = encode_labelled(fitting, user.labels, user.tokenizer, user.longest, TOGETHER, seed=0)
    batches = with_trees(batches, [each.text for each in fitting], [each.heads for each in fitting], user.tokenizer)
    plan = [(rows, batches.take(rows)) for rows in batches.plan(0)]
    return Texts(user, [{"text": _tuple(ids)} for ids in batches.texts], plan, material.name, fitting)


def _tokens(user: Any, labelled: Labelled) -> int:
    texts = [labelled.text, *([] if labelled.second is None else [labelled.second])]
    return sum(len(user.tokenizer.encode(text)) + 1 for text in texts) + 1  # each has an end, the first a begin


def _tuple(ids: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in ids)
