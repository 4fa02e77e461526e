"""Fill: a text with gaps in, what may stand in each of them out; and one vector for each text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from regard.attention import channel
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.data.batch import MaskedBatch, pad
from regard.data.masking import MaskedBatches
from regard.errors import UsageError
from regard.files import JSON
from regard.inspect.texts import (
    LONGEST,
    TOGETHER,
    WINDOW,
    Material,
    TextPredictor,
    Texts,
    TextsBatch,
    as_tuple,
    token_losses,
)
from regard.look import SentenceAttention, sentence_of
from regard.models.bert import Bert
from regard.models.encoder_decoder import Memory
from regard.predictor import Cancel, Reading, Result, check_cancel, read_one
from regard.tokens import MASK, TextTokenizer

BATCH = 32  # texts read together


@dataclass(frozen=True)
class Guess:
    """A guess at a gap."""

    token: str
    probability: float
    id: int = -1


@dataclass(frozen=True)
class Filled(Result):
    """A text with its gaps, the likeliest guesses for each, and the text with the best guess in every gap."""

    source: str
    text: str
    gaps: tuple[tuple[Guess, ...], ...]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return brief(self, quoted(self.text))

    def data(self) -> dict[str, JSON]:
        gaps: list[JSON] = [
            [{"token": each.token, "probability": each.probability} for each in gap] for gap in self.gaps
        ]
        return {"source": self.source, "text": self.text, "gaps": gaps}


@dataclass(frozen=True, eq=False)
class TextVector(Result):
    """A text and its vector, of length 1."""

    text: str
    vector: np.ndarray  # (D,)

    def data(self) -> dict[str, JSON]:
        vector: list[float] = self.vector.tolist()
        return {"text": self.text, "vector": vector}


class Filler(TextPredictor):
    """A trained model that fills gaps, ready to use."""

    model: Bert

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.tokenizer = bundle.tokenizer
        self.longest = int(self.config.model.max_length)  # type: ignore[union-attr]

    @torch.inference_mode()
    def fill(self, text: str, top: int = 5, cancel: Cancel | None = None) -> Filled:
        """Guess what stands at every [MASK] of a text; each gap is one token, guessed with the others still open."""
        self.check_head()
        mask, whole = self.tokenizer.specials.mask, self.tokenizer.encode_gaps(text)
        if mask is None or mask not in whole:
            raise UsageError(f'the text has no gap; mark one: regard fill "Paris is the {MASK} of France"')
        ids = self._framed(whole)
        gaps = [place for place, token in enumerate(ids) if token == mask]
        if len(gaps) < whole.count(mask):
            raise UsageError(
                f"a gap lies beyond the {self.longest} tokens that this model reads (the text has {len(whole) + 2}); "
                "shorten the text"
            )
        check_cancel(cancel)
        vectors = self._vectors([ids]).vectors[0, gaps]  # (gaps, D)
        scores = self.model.gaps(vectors)[:, : self.tokenizer.size]
        scores[:, sorted(self.tokenizer.specials.all)] = -torch.inf
        values, best = scores.softmax(dim=-1).topk(min(top, scores.size(-1)))
        guesses = [
            tuple(map(Guess, self.tokenizer.labels(row), shares.tolist(), row))
            for row, shares in zip(best.tolist(), values, strict=True)
        ]
        filled = list(ids)
        for place, row in zip(gaps, best.tolist(), strict=True):
            filled[place] = row[0]
        return Filled(text, self.tokenizer.decode(filled), tuple(guesses))

    def check_head(self) -> None:
        """Refuse to fill where the model only gives vectors."""
        if self.model.head is None:
            raise UsageError("this model gives vectors only, it has no head that fills gaps; try: regard vectors")

    @torch.inference_mode()
    def vectors(
        self, texts: Sequence[str], pooling: Literal["cls", "mean"] | None = None, cancel: Cancel | None = None
    ) -> np.ndarray:
        """One vector of length 1 for each text, (texts, D): close vectors are of texts that mean alike."""
        how: str = pooling or self.config.model.pooling  # type: ignore[union-attr]
        ids = [self._framed(self.tokenizer.encode(text)) for text in texts]
        order = sorted(range(len(ids)), key=lambda place: -len(ids[place]))
        found = np.zeros((len(texts), self.config.model.width))
        for start in range(0, len(order), BATCH):
            check_cancel(cancel)
            group = order[start : start + BATCH]
            found[group] = self._pooled([ids[place] for place in group], how, group)
        lengths: np.ndarray = np.linalg.norm(found, axis=1, keepdims=True)
        found /= np.maximum(lengths, 1e-12)
        return found

    def text_vectors(
        self, texts: Sequence[str], pooling: Literal["cls", "mean"] | None = None, cancel: Cancel | None = None
    ) -> list[TextVector]:
        """`vectors`, each with its text."""
        found = self.vectors(texts, pooling) if cancel is None else self.vectors(texts, pooling, cancel)
        return [TextVector(*each) for each in zip(texts, found, strict=True)]

    def read(self, text: str, second: str | None = None) -> Reading:
        """Read a text, with its gaps if it has any, as far as the model reads."""
        inside = self.tokenizer.encode_gaps(text)
        ids = self._framed(inside)
        lengths = torch.tensor([len(ids)], device=self.device)
        run = lambda: self.model.encoder(self.as_row(ids), lengths).vectors  # noqa: E731
        return read_one(self, self.tokenizer, ids, run, "self", whole=2 + len(inside))

    def tokenizer_of(self, axis: str) -> TextTokenizer:
        return self.tokenizer

    def check_loss(self) -> None:
        if self.model.head is None:
            raise UsageError(
                "this model gives vectors only, it has no head that fills gaps: there is no loss to compare"
            )

    def texts(self, material: Material, count: int, longest: int = LONGEST) -> Texts:
        """Chunks of texts with gaps, which are drawn with a fixed seed."""
        room = min(WINDOW, self.longest, material.context or WINDOW) - 2
        chunks: list[list[int]] = []
        for text in cast("Sequence[str]", material.items):
            ids = self.tokenizer.encode(text)
            chunks += [ids[start : start + room] for start in range(0, len(ids), room)]
            if len(chunks) >= count:
                break
        special = self.tokenizer.specials
        assert special.mask is not None
        masked = MaskedBatches(
            [np.array(ids, dtype=np.int32) for ids in chunks[:count] if ids],
            begin=special.begin, end=special.end, mask=special.mask, pad=special.pad, vocabulary=self.tokenizer.size,
            special=special.all, length=room + 2, batch_tokens=TOGETHER, seed=0,
        )  # fmt: skip
        batches = [(rows, masked.get(0, index)) for index, rows in enumerate(masked.plan(0))]
        shown = {
            int(row): as_tuple(batch.ids[n, : batch.lengths[n]].tolist())
            for rows, batch in batches
            for n, row in enumerate(rows)
        }
        return Texts(self, [{"text": shown[row]} for row in range(len(shown))], batches, material.name)

    def predictions(self, batch: TextsBatch) -> tuple[Tensor, Tensor]:
        assert isinstance(batch, MaskedBatch)
        assert self.model.head is not None
        found = self.model.encoder(batch.ids, batch.lengths, batch.segments).vectors[batch.places]
        hidden, table = self.model.head.with_bias(self.model.head(found), self.model.table)
        return token_losses(hidden, table, batch.wanted), batch.places.nonzero()[:, 0]

    def attention(self, text: str) -> SentenceAttention:
        """Where each token of a text looked, in every layer and head."""
        return sentence_of(self.read(text).look(), "self")

    def _framed(self, ids: list[int]) -> list[int]:
        special = self.tokenizer.specials
        return [special.begin, *ids[: self.longest - 2], special.end]

    def _vectors(self, ids: Sequence[Sequence[int]], texts: Sequence[int] = (0,)) -> Memory:
        """`texts`: which of those that a person gave they are."""
        padded, lengths = pad([np.array(each) for each in ids], self.tokenizer.specials.pad)
        with channel.reading(texts, lambda row: {"text": self.tokenizer.labels(ids[row])}):
            found: Memory = self.model.encoder(padded.to(self.device), lengths.to(self.device))
        return found

    def _pooled(self, ids: list[list[int]], how: str, texts: Sequence[int]) -> np.ndarray:
        vectors = self._vectors(ids, texts).vectors.double().cpu()  # (B, S, D)
        if how == "cls":
            return vectors[:, 0].numpy()
        return np.stack([row[: len(each)].mean(dim=0).numpy() for row, each in zip(vectors, ids, strict=True)])
