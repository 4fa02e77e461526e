"""What the checks must know of each task: its random batches, its real places, and how its models write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.data.batch import LabelBatch, MaskedBatch, PairBatch, TextBatch, text_batch
from regard.data.batches import Batches, LabelBatches, TokenPairs
from regard.data.masking import MaskedBatches
from regard.data.stream import TokenStream, Windows
from regard.models.config import BertConfig
from regard.tokens import PAD, TextTokenizer, as_arrays
from regard.verify.pictures import SEEING
from regard.verify.subject import EXTRA, ROWS, Subject

SOURCE_LENGTHS, TARGET_LENGTHS = (7, 11, 3, 5, 2), (5, 2, 11, 7, 3)  # tokens of each pair: primes, none alike
TEXT_LENGTHS = (7, 37, 3, 5, 2)  # one is longer than a cache has room for at first


class TranslateSubject(Subject):
    """Pairs: a source to read, a target to write."""

    @cached_property
    def pairs(self) -> TokenPairs:
        sources = [ids.tolist() for ids in self.draw(SOURCE_LENGTHS, special=1, side=0)]
        targets = [ids.tolist() for ids in self.draw(TARGET_LENGTHS, special=1, side=1, seed=2)]
        return TokenPairs(as_arrays(sources, begin=False), as_arrays(targets, begin=True), PAD)

    def take(self, rows: Sequence[int]) -> PairBatch:
        return self.pairs.take(rows)

    def lengthened(self, batch: PairBatch) -> PairBatch:
        return replace(batch, source=_real_behind(batch.source), target=pad(batch.target, (0, EXTRA - 1), value=PAD))

    def training(self, seed: int) -> Batches:
        return Batches(self.pairs, 32, seed)

    def real(self, outputs: Tensor, batch: PairBatch) -> list[Tensor]:
        return [row[:length] for row, length in zip(outputs, batch.target_lengths.tolist(), strict=True)]

    @property
    def tokenizers(self) -> dict[str, TextTokenizer]:
        both = self.bundle.tokenizers
        return {"source tokenizer": both.source, "target tokenizer": both.target}

    def reads(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        return batch.source, batch.source_lengths

    def writes(self, batch: PairBatch) -> Tensor:
        return batch.target

    def rewritten(self, batch: PairBatch, ids: Tensor) -> PairBatch:
        lengths = torch.full_like(batch.target_lengths, ids.size(1) - 1)
        return replace(batch, target=ids, target_lengths=lengths, target_tokens=int(lengths.sum()))


class GenerateSubject(Subject):
    """Texts to go on with."""

    @cached_property
    def texts(self) -> list[np.ndarray]:
        return self.draw([length + 1 for length in TEXT_LENGTHS], special=0)

    def take(self, rows: Sequence[int]) -> TextBatch:
        return text_batch([self.texts[row] for row in rows], self.bundle.tokenizer.specials.pad)

    def lengthened(self, batch: TextBatch) -> TextBatch:
        return replace(batch, ids=_real_behind(batch.ids))

    def training(self, seed: int) -> Windows:
        stream = TokenStream(np.concatenate(self.texts), self.bundle.config.vocabulary[0])
        return Windows(stream, min(7, self.bundle.config.model.longest or 7), rows=2, seed=seed)

    def writes(self, batch: TextBatch) -> Tensor:
        return batch.ids

    def rewritten(self, batch: TextBatch, ids: Tensor) -> TextBatch:
        lengths = torch.full_like(batch.lengths, ids.size(1) - 1)
        return replace(batch, ids=ids, lengths=lengths, tokens=int(lengths.sum()))


class FillSubject(Subject):
    """Texts with gaps, or pairs of texts where a model also tells whether they belong together."""

    @cached_property
    def whole(self) -> MaskedBatch:
        """All rows, and only one batch."""
        return self.batches(10_000, seed=1).get(0, 0)

    def batches(self, batch_tokens: int, seed: int) -> MaskedBatches:
        config, special = self.config, self.bundle.tokenizer.specials
        around = 3 if config.next_sentence else 2
        documents = self.draw(TEXT_LENGTHS, special=around)
        return MaskedBatches(
            documents,
            begin=special.begin,
            end=special.end,
            mask=special.unknown if special.mask is None else special.mask,
            pad=special.pad,
            vocabulary=self.bundle.config.vocabulary[0],
            special=special.all,
            length=around + max(len(document) for document in documents),
            batch_tokens=batch_tokens,
            seed=seed,
            rate=0.3,
            pairs=config.next_sentence,
        )

    def take(self, rows: Sequence[int]) -> MaskedBatch:
        whole, rows = self.whole, list(rows)
        lengths = whole.lengths[rows]
        used = slice(int(lengths.max()))
        wanted = whole.wanted.split(whole.places.sum(dim=1).tolist())
        return MaskedBatch(
            whole.ids[rows, used],
            lengths,
            whole.places[rows, used],
            torch.cat([wanted[row] for row in rows]),
            None if whole.segments is None else whole.segments[rows, used],
            None if whole.follows is None else whole.follows[rows],
        )

    def lengthened(self, batch: MaskedBatch) -> MaskedBatch:
        places, segments = pad(batch.places, (0, EXTRA)), _zeros_behind(batch.segments)
        return replace(batch, ids=_real_behind(batch.ids), places=places, segments=segments)

    def training(self, seed: int) -> MaskedBatches:
        return self.batches(40, seed)

    def outputs(self, model: Any, batch: MaskedBatch) -> Tensor:
        """Logits, or the vectors of a model that gives nothing else: (B, S, V)."""
        return model.logits(batch) if self.learns else model.encoder(batch.ids, batch.lengths, batch.segments).vectors

    @property
    def config(self) -> BertConfig:
        assert isinstance(self.bundle.config.model, BertConfig)
        return self.bundle.config.model

    @property
    def learns(self) -> bool:
        return self.config.head


class ClassifySubject(Subject):
    """Texts with labels; for models that know which text of a pair a token belongs to, pairs."""

    @cached_property
    def texts(self) -> LabelBatches:
        return self.training(seed=1)

    def take(self, rows: Sequence[int]) -> LabelBatch:
        return self.texts.take(rows)

    def lengthened(self, batch: LabelBatch) -> LabelBatch:
        ids, heads = _real_behind(batch.ids), batch.heads
        if heads is not None:
            behind = torch.arange(batch.ids.size(1), ids.size(1)).expand(len(ids), -1)  # each a root
            heads = torch.cat([heads, behind], dim=1)
        return replace(batch, ids=ids, segments=_zeros_behind(batch.segments), heads=heads)

    def training(self, seed: int) -> LabelBatches:
        special = self.bundle.tokenizer.specials
        texts = [np.array([special.begin, *text, special.end]) for text in self.draw(TEXT_LENGTHS, special=2)]
        labels = np.random.default_rng(3).integers(0, len(self.bundle.config.labels), len(ROWS))
        config = self.bundle.config.model
        paired = isinstance(config, BertConfig) and config.segments > 1
        segments = [(np.arange(len(text)) > len(text) // 2).astype(np.int64) for text in texts]
        trees = isinstance(config, BertConfig) and config.positions == "tree"
        heads = [np.arange(len(text)) // 2 for text in texts] if trees else None  # each token has two below it
        return LabelBatches(texts, labels, special.pad, 40, seed, segments if paired else None, heads)

    def real(self, outputs: Tensor, batch: LabelBatch) -> list[Tensor]:
        """The scores of each text: (labels,)."""
        return list(outputs)

    @property
    def name(self) -> str:
        return f"{super().name} classifier"


SUBJECTS: dict[str, type[Subject]] = {
    "translate": TranslateSubject,
    "generate": GenerateSubject,
    "fill": FillSubject,
    "classify": ClassifySubject,
    **SEEING,
}


def _real_behind(ids: Tensor) -> Tensor:
    """Columns that look like text: (B, S) -> (B, S + EXTRA)."""
    return torch.cat([ids, ids[:, :1].expand(-1, EXTRA)], dim=1)


def _zeros_behind(segments: Tensor | None) -> Tensor | None:
    return None if segments is None else pad(segments, (0, EXTRA))
