"""Score a language model, or one that fills gaps, on text it has not seen: loss, perplexity, bits for each byte."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batch import MaskedBatch, TextBatch
from regard.data.chat_batches import ChatBatches, encode_chats, fitting_chats
from regard.data.chats import are_chats, read_chats
from regard.data.config import ChatFormat
from regard.data.documents import read_documents
from regard.data.form import form_of
from regard.data.masking import masked_batches
from regard.data.notation import NOTATIONS
from regard.data.stream import evaluation_batches
from regard.errors import UsageError
from regard.evaluate.music import RuleScore
from regard.files import JSON
from regard.predictor import Cancel, Result, check_cancel
from regard.runs import CONFIG, read_run
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.compose import compose_by_rule, rule_of
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.streams import are_pictures, stream_of

ROWS = 16  # windows scored together


@dataclass(frozen=True)
class PictureScore:
    """The negative log-likelihood of pictures, exact where it is a product over pixels."""

    count: int
    dimensions: int  # pixels of a picture
    nats: float  # a picture

    @property
    def bits_per_dimension(self) -> float:
        return self.nats / self.dimensions / math.log(2)

    def data(self) -> dict[str, JSON]:
        return {**asdict(self), "bits_per_dimension": self.bits_per_dimension}


@dataclass(frozen=True)
class TextEvaluation(Result):
    """The scores of a model on a text. `loss` is in nats for each token that was counted."""

    loss: float
    perplexity: float
    bits_per_byte: float | None  # of all the text; a model that fills gaps guesses only some, and notes have no bytes
    tokens: int
    seconds: float
    notes: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()  # each file that is no text, and why
    rule: RuleScore | None = None  # of pieces that the model wrote itself, where the built-in music has a rule
    pictures: PictureScore | None = None  # where tokens are pixels

    def data(self) -> dict[str, JSON]:
        named = [{"name": name, "why": why} for name, why in self.left_out]
        rule = {} if self.rule is None else {"rule": self.rule.data()}
        pictures = {} if self.pictures is None else {"pictures": self.pictures.data()}
        told = {name: value for name, value in asdict(self).items() if name not in ("rule", "pictures")}
        return {**told, "notes": list(self.notes), "left_out": named, **rule, **pictures}


def field_of(run: str | Path) -> str:
    """The key of JSON Lines under which a run's texts stood in training; "text" where a bundle does not say."""
    if not (Path(run) / CONFIG).exists():
        return "text"
    config: Any = read_run(run)["config"]
    return str(config.get("data", {}).get("field", "text"))


@torch.inference_mode()
def evaluate_text(
    model: Generator | Filler,
    names: Sequence[str],
    *,
    context: int | None = None,
    overlap: int = 0,
    field: str = "text",
    progress: Callable[[int, int], None] | None = None,
    cancel: Cancel | None = None,
) -> TextEvaluation:
    """The whole text once: documents one after the other, as in training.

    A language model reads windows of `context` tokens; with `overlap`, each begins with so many that only give context.
    """
    tokens = model.config.tokens
    if isinstance(model, Generator) and model.config.chat is not None and are_chats(names):
        return _of_chats(model, model.config.chat, names, cancel)
    documents = read_documents(names, None, field, form=form_of(tokens))
    texts = documents.texts
    batches = _masked(model, texts) if isinstance(model, Filler) else _windows(model, texts, context, overlap)
    is_pictures = are_pictures(tokens)
    total = count = done = 0.0
    started = time.perf_counter()
    for batch in batches:
        check_cancel(cancel)
        part = model.model(batch.to(model.device)).parts["nll"]
        total, count, done = total + float(part.sum), count + part.count, done + 1
        if progress is not None:
            progress(int(done), len(texts) // ROWS if is_pictures else 0)
    size = sum(len(text.encode()) for text in texts)
    counts_bytes = isinstance(model, Generator) and (tokens is None or tokens.kind not in NOTATIONS)
    bits = total / math.log(2) / size if counts_bytes else None
    loss = total / count
    seconds = time.perf_counter() - started
    rule = rule_of(names) if isinstance(model, Generator) and tokens is not None and tokens.kind == "notes" else None
    by_rule = compose_by_rule(model, rule, cancel=cancel) if rule is not None and isinstance(model, Generator) else None
    pictures, notes = None, documents.notes
    if tokens is not None and tokens.kind == "pixels" and tokens.side is not None:
        pictures = PictureScore(len(texts), tokens.side**2, loss * tokens.side**2)
        notes = (*notes, *_label_notes(model, texts))
    told = notes, documents.left_out, by_rule, pictures
    return TextEvaluation(loss, math.exp(min(50.0, loss)), bits, int(count), seconds, *told)


def _label_notes(model: Generator | Filler, texts: Sequence[str]) -> tuple[str, ...]:
    """A warning where pictures have no label that a model which was told labels in training knows."""
    tokens = model.config.tokens
    if tokens is None or tokens.labels_from is None:
        return ()
    known = set(model.tokenizer.vocabulary(model.tokenizer.size)[tokens.labels_from + 1 :])
    count = sum(text[: text.find(">") + 1] not in known for text in texts)
    told = f"{count:,} of {len(texts):,} pictures have no label, which the model was told in training"
    return (f"{told}: name the file of their labels, too",) if known and count else ()


def _of_chats(model: Generator, form: ChatFormat, names: Sequence[str], cancel: Cancel | None) -> TextEvaluation:
    """The loss over answers; the model reads as many tokens of a chat as it has positions for."""
    started = time.perf_counter()
    encoded = encode_chats(read_chats(names), model.tokenizer, form)
    chats, notes = fitting_chats(encoded, (model.config.model.longest or sys.maxsize) - 1)
    batches = ChatBatches(chats, model.tokenizer.specials.pad, ROWS * model.context, seed=0)
    total = count = 0.0
    for number in range(batches.count(0)):
        check_cancel(cancel)
        part = model.model(batches.get(0, number).to(model.device)).parts["nll"]
        total, count = total + float(part.sum), count + part.count
    loss, seconds = total / count, time.perf_counter() - started
    return TextEvaluation(loss, math.exp(min(50.0, loss)), None, int(count), seconds, notes)


def _windows(model: Generator, texts: list[str], context: int | None, overlap: int) -> Iterable[TextBatch]:
    longest = model.config.model.longest
    if context is not None and longest is not None and context > longest:
        raise UsageError(f"a context of {context} tokens is more than the {longest} positions of the model")
    stream = stream_of(model.tokenizer, texts, model.config.tokens, model.config.vocabulary[0])
    return evaluation_batches(stream, context or model.context, ROWS, overlap)


def _masked(model: Filler, texts: list[str]) -> Iterable[MaskedBatch]:
    """Gaps are drawn with a fixed seed, so that the same text always has the same."""
    if model.model.head is None:
        raise UsageError("this model gives vectors only, it has no head that fills gaps")
    longest = model.longest
    documents = [np.array(ids, dtype=np.int32) for ids in model.tokenizer.encode_all(texts)]
    batches = masked_batches(model.tokenizer, documents, length=longest, batch_tokens=max(4096, longest), seed=0)
    return (batches.get(0, index) for index in range(batches.count(0)))
