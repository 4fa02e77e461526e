"""Answer: a picture and a question in, an answer out, and where each word of the question looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from torch import Tensor

from regard.attention import Seen, channel, record
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.data.batch import pad
from regard.data.pictures.batch import AnswerBatch
from regard.files import JSON
from regard.look.pictures import PictureMap
from regard.models.pictures.answerer import Answerer
from regard.predictor import Cancel, Predictor, Progress, Result, check_cancel, label_list
from regard.tasks.caption.predictor import chosen_heads, word_panels
from regard.tasks.see import Picture, SeenPicture, as_pixels, see
from regard.tokens import PAD, TextTokenizer

TOGETHER = 64


@dataclass(frozen=True)
class Answer(Result):
    """A question about a picture, and what the model answers."""

    picture: str
    question: str
    answer: str
    probability: float
    probabilities: dict[str, float]  # of every answer, the likeliest first
    attention: PictureMap | None = None  # where each word of the question looked

    def __str__(self) -> str:
        return self.answer

    def __repr__(self) -> str:
        return brief(self, quoted(self.picture), quoted(self.question), repr(self.answer), probability=self.probability)

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {
            "picture": self.picture,
            "question": self.question,
            "text": self.answer,
            "probability": self.probability,
            "labels": label_list(self.probabilities),
        }
        return found if self.attention is None else {**found, "attention": self.attention.data()}


class QuestionAnswerer(Predictor):
    """A trained model that answers questions about pictures, ready to use."""

    model: Answerer

    def __init__(self, bundle: Bundle) -> None:
        assert bundle.config.pictures is not None
        super().__init__(bundle)
        self.tokenizer, self.labels = bundle.tokenizer, bundle.config.labels
        self.format, self.longest = bundle.config.pictures, bundle.config.reads(64)

    @overload
    def answer(
        self, picture: Picture, question: str, progress: Progress | None = ..., cancel: Cancel | None = ...
    ) -> Answer: ...
    @overload
    def answer(
        self,
        picture: Picture,
        question: list[str] | tuple[str, ...],
        progress: Progress | None = ...,
        cancel: Cancel | None = ...,
    ) -> list[Answer]: ...

    def answer(
        self,
        picture: Picture,
        question: str | Sequence[str],
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> Answer | list[Answer]:
        """Answer a question about a picture, or several; `cancel` is asked before each batch whether to stop."""
        asked = [question] if isinstance(question, str) else list(question)
        seen = see(picture, self.format)
        pixels = as_pixels([seen], self.format, self.device)
        out: list[Answer] = []
        for start in range(0, len(asked), TOGETHER):
            check_cancel(cancel)
            part = asked[start : start + TOGETHER]
            shares = self.probabilities(pixels.expand(len(part), -1, -1, -1), part, start)
            out += [self._one(seen.name, text, row) for text, row in zip(part, shares, strict=True)]
            if progress is not None:
                progress(len(out), len(asked))
        return out[0] if isinstance(question, str) else out

    @torch.inference_mode()
    def probabilities(self, pixels: Tensor, questions: Sequence[str], first: int = 0) -> np.ndarray:
        """The probability of every answer to each question about its picture: (N, answers).

        `first` is the place of the first question among all that were given.
        """
        batch = self._batch(pixels, questions)

        def tokens(row: int) -> channel.Tokens:
            return {"target": self.tokenizer.labels(batch.ids[row, : batch.lengths[row]].tolist())}

        with channel.reading(range(first, first + len(questions)), tokens):
            found: np.ndarray = self.model.logits(batch).double().softmax(dim=-1).cpu().numpy()
        return found

    def look(self, picture: Picture, question: str, layer: int | None = None, head: int | None = None) -> PictureMap:
        """A contact sheet: each word of the question with where it looked."""
        seen = see(picture, self.format)
        found = self.answer(picture, question)
        layers = self.weights(seen, question)
        weights, how = chosen_heads(layers, layer, head)  # (S, P)
        words = self._words(question)
        grid = self.model.encoder.grid
        return PictureMap(
            picture=seen.original,
            boxes=seen.place,
            grid=grid,
            panels=word_panels(words, weights, grid),
            title=how,
            caption=f"{question} {found.answer} ({found.probability:.0%})",
            heads=tuple(map(len, layers)),
            colored=True,
        )

    @torch.inference_mode()
    def weights(self, seen: SeenPicture, question: str) -> list[np.ndarray]:
        """Where each word of a question looked: of each layer (H, S, P)."""
        calls: Seen
        with record(self.model) as calls:
            self.model.logits(self._batch(as_pixels([seen], self.format, self.device), [question]))
        return [call.weights()[0].double().cpu().numpy() for call in calls.only("cross")]

    def _words(self, question: str) -> list[str]:
        """Labels of a question's tokens; one that stands for a word which is not known has that word beside it."""
        ids = encode_question(self.tokenizer, question, self.longest)
        unknown = iter(self.tokenizer.unknown_in(question))
        names = zip(ids.tolist(), self.tokenizer.labels(ids), strict=True)
        return [f"{name} {next(unknown)}" if i == self.tokenizer.specials.unknown else name for i, name in names]

    def _batch(self, pixels: Tensor, questions: Sequence[str]) -> AnswerBatch:
        ids, lengths = pad([encode_question(self.tokenizer, text, self.longest) for text in questions], PAD)
        labels = torch.zeros(len(questions), dtype=torch.long)
        return AnswerBatch(pixels, ids.to(self.device), lengths.to(self.device), labels.to(self.device))

    def _one(self, name: str, question: str, shares: np.ndarray) -> Answer:
        order = np.argsort(-shares, kind="stable")
        every = {self.labels[place]: float(shares[place]) for place in order}
        return Answer(name, question, self.labels[order[0]], float(shares[order[0]]), every)


def encode_question(tokenizer: TextTokenizer, text: str, longest: int) -> np.ndarray:
    """The ids of a question with its end token; of a long one, the first."""
    return np.array([*tokenizer.encode(text)[: longest - 1], tokenizer.specials.end], dtype=np.int64)
