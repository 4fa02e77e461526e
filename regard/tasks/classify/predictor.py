"""Classify: a text (or a pair) in, its label out, and which words counted for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import cast, overload

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.attention import MultiHead, Role, channel, record
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.data.batch import LabelBatch
from regard.data.batches import LabelBatches, as_row, encode_labelled, label_batches, with_trees
from regard.data.labelled import Labelled
from regard.data.labelled_files import as_tree
from regard.errors import UsageError
from regard.files import JSON
from regard.inspect.texts import LONGEST, TOGETHER, LabelPredictor, Material, Texts, TextsBatch, as_tuple
from regard.look.words import WeighedText
from regard.models.classifier import Classifier
from regard.predictor import Cancel, Progress, Reading, Result, check_cancel, label_list, read_one
from regard.tokens import TextTokenizer

BATCH_TOKENS = 8192

Tree = Sequence[int]  # for each word the place of its head; a root has itself or -1


@dataclass(frozen=True)
class Classified(Result):
    """A text and what the model makes of it."""

    text: str
    label: str
    probability: float
    probabilities: dict[str, float]  # of every label, the likeliest first
    second: str | None = None

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return brief(self, quoted(self.text), repr(self.label), probability=self.probability)

    def data(self) -> dict[str, JSON]:
        return {
            "text": self.text,
            "second": self.second,
            "label": self.label,
            "probability": self.probability,
            "labels": label_list(self.probabilities),
        }


class TextClassifier(LabelPredictor):
    """A trained classifier, ready to use."""

    second = "pair"
    paired = '[("a good film", "positive"), ...]'
    model: Classifier

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.tokenizer = bundle.tokenizer
        self.labels = self.config.labels
        self.longest = self.config.reads(512)
        self.kind_of_tokens = self.config.tokens.kind if self.config.tokens is not None else "none"

    @overload
    def classify(
        self,
        text: str,
        second: str | None = ...,
        progress: Progress | None = ...,
        heads: Tree | None = ...,
        cancel: Cancel | None = ...,
    ) -> Classified: ...
    @overload
    def classify(
        self,
        text: list[str] | tuple[str, ...],
        second: Sequence[str | None] | None = ...,
        progress: Progress | None = ...,
        heads: Sequence[Tree | None] | None = ...,
        cancel: Cancel | None = ...,
    ) -> list[Classified]: ...

    def classify(
        self,
        text: str | Sequence[str],
        second: str | Sequence[str | None] | None = None,
        progress: Progress | None = None,
        heads: Tree | Sequence[Tree | None] | None = None,
        cancel: Cancel | None = None,
    ) -> Classified | list[Classified]:
        """Classify a text, or several.

        second  the other half, where labels are of pairs
        heads   the head of each word, where positions are those of a tree
        cancel  is asked before each batch whether to stop, which raises `Cancelled`
        """
        texts = [text] if isinstance(text, str) else list(text)
        others = [second] if isinstance(second, str) else list(second or [None] * len(texts))
        if len(others) != len(texts):
            raise UsageError(f"{len(texts)} texts but {len(others)} second texts; give one for each")
        trees = cast("list[Tree | None]", [heads] if isinstance(text, str) else list(heads or [None] * len(texts)))
        shares = self.probabilities(texts, others, progress, trees, cancel)
        out = [self._one(*each) for each in zip(texts, others, shares, strict=True)]
        return out[0] if isinstance(text, str) else out

    def check_pair(self, pair: bool) -> None:
        """Refuse a pair where the model was trained on single texts, and the other way round."""
        if self.config.pairs is not None and self.config.pairs != pair:
            raise UsageError(
                "this model was trained on single texts; leave out the second one"
                if pair
                else "this model was trained on pairs of texts; give the second one as well"
            )

    @torch.inference_mode()
    def probabilities(
        self,
        texts: Sequence[str],
        others: Sequence[str | None] | None = None,
        progress: Progress | None = None,
        heads: Sequence[Tree | None] | None = None,
        cancel: Cancel | None = None,
    ) -> np.ndarray:
        """The probability of every label for each text, or for each pair with `others`: (texts, labels)."""
        if not texts:
            return np.zeros((0, len(self.labels)))
        batches = self._batches(texts, others or [None] * len(texts), heads or [None] * len(texts))
        found, done = np.zeros((len(texts), len(self.labels))), 0
        for rows in batches.plan(0):
            check_cancel(cancel)
            with channel.reading(rows.tolist(), partial(self._labels, [batches.texts[row] for row in rows])):
                logits = self.model.logits(batches.take(rows).to(self.device))
            found[rows] = logits.double().softmax(dim=-1).cpu().numpy()
            done += len(rows)
            if progress is not None:
                progress(done, len(texts))
        return found

    def _labels(self, ids: Sequence[np.ndarray], row: int) -> channel.Tokens:
        return {"text": self.tokenizer.labels(ids[row])}

    def read(self, text: str, second: str | None = None) -> Reading:
        """Read a text or a pair as it is classified, as far as the model reads."""
        row = as_row(self.tokenizer, text, second, self.longest)
        batch = label_batches([row], np.zeros(1, dtype=np.int64), self.tokenizer, max(1, len(row[0])), seed=0).take([0])
        run = lambda: self.model.logits(batch.to(self.device))  # noqa: E731
        return read_one(self, self.tokenizer, row[0].tolist(), run, self._role(), whole=self._tokens(text, second))

    def _role(self) -> Role:
        heads = (each for each in self.model.modules() if isinstance(each, MultiHead))
        return "causal" if any(each.role == "causal" for each in heads) else "self"

    def tokenizer_of(self, axis: str) -> TextTokenizer:
        return self.tokenizer

    def texts(self, material: Material, count: int, longest: int = LONGEST) -> Texts:
        items = [
            each if isinstance(each, Labelled) else Labelled(*cast("tuple[str, str]", each)) for each in material.items
        ]
        unknown = sorted({each.label for each in items} - set(self.labels))
        if unknown:
            raise UsageError(
                f"the texts have a label that the model never learned: {unknown[0]}; it knows {', '.join(self.labels[:8])}"
            )
        room = min(self.longest, longest)
        fitting = list(islice((each for each in items if self._tokens(each.text, each.second) <= room), count))
        if not fitting:
            raise UsageError(f"no text of {material.name} fits: it must have at most {room} tokens")
        batches = encode_labelled(fitting, self.labels, self.tokenizer, self.longest, TOGETHER, seed=0)
        trees = [each.parents for each in fitting]
        batches = with_trees(batches, [each.text for each in fitting], trees, self.tokenizer)
        plan = [(rows, batches.take(rows)) for rows in batches.plan(0)]
        return Texts(self, [{"text": as_tuple(ids)} for ids in batches.texts], plan, material.name, fitting)

    def predictions(self, batch: TextsBatch) -> tuple[Tensor, Tensor]:
        assert isinstance(batch, LabelBatch)
        logits = self.model.logits(batch)
        return cross_entropy(logits, batch.labels, reduction="none"), torch.arange(len(logits))

    def _tokens(self, text: str, second: str | None) -> int:
        """How many tokens a text or a pair has, its begin and the end behind each text counted."""
        texts = [text] if second is None else [text, second]
        return 1 + sum(len(self.tokenizer.encode(each)) + 1 for each in texts)

    def look(self, text: str, second: str | None = None, heads: Tree | None = None) -> WeighedText:
        """How much each piece of a text counted for its label."""
        found = self.classify(text, second, heads=heads)
        batch = self._batch(text, second, heads)
        with torch.inference_mode(), record(self.model) as seen:
            self.model.logits(batch)
        counted = self.model.looked(seen, batch.lengths)[0].double().cpu().numpy()  # (S,)
        spans, weights = self._places(text, second, counted)
        whole = text if second is None else f"{text}\n{second}"
        title, caption = self.config.model.kind, f"{found.label} {found.probability:.0%}"
        weighed = WeighedText(whole, tuple(spans), tuple(weights), title, caption)
        words = weighed.merged()
        several = sum(start < end for start, end in words.spans) > 1  # of a single word, its pieces are shown
        return words if several and self.kind_of_tokens not in ("character", "byte") else weighed

    def _places(self, text: str, second: str | None, counted: np.ndarray) -> tuple[list[tuple[int, int]], list[float]]:
        """Where the pieces that were read stand in the text, and what each counted; those of one letter are one."""
        ids, segments = as_row(self.tokenizer, text, second, self.longest)
        first = self.tokenizer.spans(text)[: len(ids) - 2]
        spans: list[tuple[int, int]] = [(0, 0), *first]
        if second is not None:
            shift = len(text) + 1
            read = int((segments == 0).sum()) - 2  # of the first text
            spans = [(0, 0), *self.tokenizer.spans(text)[:read], (len(text), len(text))]
            spans += [(a + shift, b + shift) for a, b in self.tokenizer.spans(second)][: len(ids) - len(spans) - 1]
        spans.append((spans[-1][1], spans[-1][1]))
        found: list[tuple[int, int]] = []
        weights: list[float] = []
        for (start, end), weight in zip(spans, counted.tolist(), strict=True):
            if found and start < end and start < found[-1][1]:
                found[-1], weights[-1] = (found[-1][0], max(end, found[-1][1])), weights[-1] + weight
            else:
                found.append((start, end))
                weights.append(weight)
        return found, weights

    def _one(self, text: str, second: str | None, shares: np.ndarray) -> Classified:
        order = np.argsort(-shares, kind="stable")
        every = {self.labels[place]: float(shares[place]) for place in order}
        return Classified(text, self.labels[order[0]], float(shares[order[0]]), every, second)

    def _batches(
        self, texts: Sequence[str], others: Sequence[str | None], heads: Sequence[Tree | None]
    ) -> LabelBatches:
        rows = [as_row(self.tokenizer, *both, self.longest) for both in zip(texts, others, strict=True)]
        batches = label_batches(rows, np.zeros(len(rows), dtype=np.int64), self.tokenizer, BATCH_TOKENS, seed=0)
        trees = [_checked(*each) for each in zip(texts, others, heads, strict=True)]
        for other in others:
            self.check_pair(other is not None)
        return with_trees(batches, texts, trees, self.tokenizer)

    def _batch(self, text: str, second: str | None, heads: Tree | None) -> LabelBatch:
        return self._batches([text], [second], [heads]).take([0]).to(self.device)


def _checked(text: str, second: str | None, heads: Tree | None) -> tuple[int, ...] | None:
    if heads is None:
        return None
    if second is not None:
        raise UsageError("heads are the tree of one text, and here are two; leave out the one or the other")
    try:
        return as_tree(list(heads), len(text.split()))
    except ValueError as error:
        raise UsageError(f"heads of {text[:40]!r}: {error}") from error
