"""Train a language model: documents packed into one stream of tokens, which is cut into windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import (
    TextBatch,
    text_batch,
)
from regard.data.config import TextConfig
from regard.data.documents import read_documents, split_documents
from regard.data.stream import TokenStream, Windows, evaluation_batches, write_stream
from regard.decode.config import DecodeOptions
from regard.errors import UsageError
from regard.files import sha256
from regard.inspect.probes import first_lines, prober
from regard.tasks.config import RunConfig
from regard.tasks.finetune import fine_tuning, mixed, mixing_note, old_data
from regard.tasks.generate.config import GenerateConfig
from regard.tasks.generate.predictor import Generator
from regard.tasks.recipe import TOKENS, PreparedRun, Setup, digest_of, encoded, loss_metrics, mean_loss
from regard.tasks.subject import (
    TEXT_LENGTHS,
    Subject,
    real_behind,
)
from regard.tokens import TextTokenizer, TokenizerPair
from regard.training.events import Working
from regard.training.finetune import Side
from regard.training.state import Fingerprint
from regard.training.validation import Validation

VALIDATED = 4096  # tokens of a batch in validation, or more
STREAMS = ("train.tokens", "valid.tokens")  # files of a run
OLD_STREAMS = ("old-train.tokens", "old-valid.tokens")  # of one that goes on from another


def prepare_generate(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the text, make or reload tokenizer and streams, build the model. Nothing is trained yet."""
    assert isinstance(config, GenerateConfig)
    train, valid, notes = load_texts(config.data, setup.data_root)
    before = old_data(config, config.data)
    old = None if before is None else load_texts(before, setup.data_root)
    config = setup.choose(config, **text_facts(train))
    assert isinstance(config, GenerateConfig)
    config = setup.choose_context(config, config.data.context)
    assert isinstance(config, GenerateConfig)
    setup.note(config)
    tokenizer = setup.tokenizer(config, train)
    parts = zip(STREAMS, (train, valid), strict=True)
    streams = [_stream(setup, name, texts, tokenizer) for name, texts in parts]
    known: list[TokenStream] = []
    if old is not None:
        known = [_stream(setup, name, texts, tokenizer) for name, texts in zip(OLD_STREAMS, old[:2], strict=True)]
    config = _sized(config, setup, tokenizer, streams[0])
    setup.note(config)
    setup.emit(Working("building the model"))
    context = fitting_context(config)
    about = BundleConfig(
        task="generate", tokens=config.tokens, vocabulary=(tokenizer.size,), model=config.model, decode=config.decode
    )
    rows = max(1, config.train.batch_tokens // context)
    size = sum(len(text.encode()) for text in valid)
    bundle = Bundle(about, setup.build(config, (tokenizer.size,)), TokenizerPair(tokenizer, tokenizer), {})
    generator = Generator(bundle)
    validate = _validation(streams[1], context, rows, size, generator, config)
    windows = [Windows(stream, context, rows, config.train.seed) for stream in (streams[0], *known[:1])]
    sides = [Side("new", validate, partial(evaluation_batches, streams[1], context, 1))]
    data: Fingerprint = {"the training data": streams[0].sha256, "the validation data": streams[1].sha256}
    if old is not None:
        data["the old data"] = [stream.sha256 for stream in known]
        bytes_ = sum(len(text.encode()) for text in old[1])
        looked = _validation(known[1], context, rows, bytes_, generator, config)
        sides.append(Side("old", looked, partial(evaluation_batches, known[1], context, 1)))
    job = setup.job(
        config,
        bundle,
        mixed(config, windows[0], windows[1] if known else None),
        validate,
        data,
        probe=prober(generator, first_lines(valid), config.probes, setup.folder),
        tuning=fine_tuning(config, setup.folder, setup.resume, sides),
    )
    notes += mixing_note(config, before, f"{len(known[0]):,} tokens" if known else "")
    counts = (
        f"{len(streams[0]):,} training and {len(streams[1]):,} validation tokens, a vocabulary of {tokenizer.size:,}"
    )
    return PreparedRun(job, (*notes, counts))


def _sized(config: GenerateConfig, setup: Setup, tokenizer: TextTokenizer, stream: TokenStream) -> GenerateConfig:
    def make(candidate: RunConfig) -> tuple[nn.Module, Windows]:
        assert isinstance(candidate, GenerateConfig)
        context = fitting_context(candidate)
        rows = max(1, candidate.train.batch_tokens // context)
        return setup.build(candidate, (tokenizer.size,)), Windows(stream, context, rows, candidate.train.seed)

    found = setup.choose_size(config, make)
    assert isinstance(found, GenerateConfig)
    return found


def text_facts(texts: Sequence[str]) -> dict[str, float]:
    """Count documents and characters, by which the rules choose."""
    return {"examples": len(texts), "characters": sum(map(len, texts))}


def load_texts(data: TextConfig, data_root: Path | None) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Training and validation documents as the configuration names them, and what to tell about them."""
    found = read_documents(data.train, data_root, data.field, data.builtin_size)
    if data.valid:
        held = read_documents(data.valid, data_root, data.field, data.builtin_size)
        return found.texts, held.texts, (*found.notes, *held.notes)
    train, valid = split_documents(found.texts, data.share)
    return train, valid, (*found.notes, f"no validation text: held out {data.share:.0%} of the characters")


def fitting_context(config: GenerateConfig) -> int:
    """How many tokens a window of training text has; learned positions must reach so far."""
    longest = config.model.longest
    if longest is not None and config.data.context > longest:
        raise UsageError(f"data.context {config.data.context} is more than model.max_length {longest}; make them equal")
    return config.data.context


def _stream(setup: Setup, name: str, texts: list[str], tokenizer: TextTokenizer) -> TokenStream:
    """The documents one after the other, each between its begin and end tokens.

    A run that goes on maps the stream that it has, if that was made of these texts and this tokenizer; else, and whenever a
    run starts over, it is made anew.
    """
    path, tokens = setup.folder / name, setup.folder / TOKENS
    files = [sha256(tokens / file) for file in TokenizerPair.files(tokens)]
    origin = digest_of(files, texts)
    if setup.resume and path.exists() and (stream := TokenStream.open(path)).origin == origin:
        return stream
    special = tokenizer.specials
    ids = (
        [special.begin, *sequence, special.end] for sequence in encoded(tokenizer, texts, setup.emit, f"writing {name}")
    )
    return write_stream(path, ids, tokenizer.size, origin)


def _validation(
    stream: TokenStream, context: int, rows: int, size: int, generator: Generator, config: GenerateConfig
) -> Callable[[nn.Module], Validation]:
    """Loss over the whole held-out stream, perplexity, bits for each byte of its text, and a sample to read."""

    together = max(rows, VALIDATED // context)

    def validate(model: nn.Module) -> Validation:
        total, count = mean_loss(model, evaluation_batches(stream, context, together))
        metrics = {**loss_metrics(total, count), "bits_per_byte": total / math.log(2) / size}
        if not config.samples or not np.isfinite(total):
            return Validation(metrics)
        options: DecodeOptions = {"seed": 0, "max_length": config.samples}
        if not config.decode.sample:
            options["beam"] = 1
        sample = generator.generate("", **options).text
        return Validation(metrics, [("", sample, "")])

    return validate


class GenerateSubject(Subject):
    """Texts to go on with."""

    @cached_property
    def texts(self) -> list[np.ndarray]:
        return self.draw([length + 1 for length in TEXT_LENGTHS], special=0)

    def take(self, rows: Sequence[int]) -> TextBatch:
        return text_batch([self.texts[row] for row in rows], self.bundle.tokenizer.specials.pad)

    def lengthened(self, batch: TextBatch) -> TextBatch:
        return replace(batch, ids=real_behind(batch.ids))

    def training(self, seed: int) -> Windows:
        stream = TokenStream(np.concatenate(self.texts), self.bundle.config.vocabulary[0])
        return Windows(stream, min(7, self.bundle.config.model.longest or 7), rows=2, seed=seed)

    def writes(self, batch: TextBatch) -> Tensor:
        return batch.ids

    def rewritten(self, batch: TextBatch, ids: Tensor) -> TextBatch:
        lengths = torch.full_like(batch.lengths, ids.size(1) - 1)
        return replace(batch, ids=ids, lengths=lengths, tokens=int(lengths.sum()))
