"""Train a language model: documents packed into one stream of tokens, which is cut into windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from regard.bundle import Bundle, BundleConfig
from regard.data.documents import read_documents, split_documents
from regard.data.stream import TokenStream, Windows, evaluation_batches, write_stream
from regard.errors import UsageError
from regard.files import sha256
from regard.inspect.probes import first_lines, prober
from regard.models.table import build
from regard.tasks.config import GenerateConfig, RunConfig
from regard.tasks.generate.predictor import Generator
from regard.tasks.recipe import (
    TOKENS,
    Prepared,
    digest_of,
    encoded,
    made_by,
    make_tokenizer,
    note_run,
    saver,
    take_weights,
)
from regard.tokens import TextTokenizer, TokenizerPair
from regard.training.events import Tell, Working, silent
from regard.training.loop import Job
from regard.training.validation import Validation

VALIDATED = 4096  # tokens of a batch in validation, or more
STREAMS = ("train.tokens", "valid.tokens")  # files of a run


def prepare_generate(
    config: RunConfig, folder: Path, *, data_root: Path | None, resume: bool, device: str = "cpu", tell: Tell = silent
) -> Prepared:
    """Read the text, make or reload tokenizer and streams, build the model. Nothing is trained yet."""
    assert isinstance(config, GenerateConfig)
    train, valid, notes = load_texts(config.data, data_root)
    if not resume:
        note_run(folder, config, data_root, device)
    tokenizer = make_tokenizer(config, folder, train, resume=resume, tell=tell)
    parts = zip(STREAMS, (train, valid), strict=True)
    streams = [_stream(folder, name, texts, tokenizer, resume=resume, tell=tell) for name, texts in parts]
    tell(Working("building the model"))
    torch.manual_seed(config.train.seed)
    context = fitting_context(config)
    model = build("generate", config.model, (tokenizer.size,), smoothing=config.train.smoothing)
    take_weights(model, config, resume=resume)
    bundle = BundleConfig(
        task="generate", tokens=config.tokens, vocabulary=(tokenizer.size,), model=config.model, decode=config.decode
    )
    rows = max(1, config.train.batch_tokens // context)
    size = sum(len(text.encode()) for text in valid)
    generator = Generator(_bundle(bundle, model, tokenizer))
    job = Job(
        folder=folder,
        config=config.train,
        model=model,
        width=config.model.width,
        batches=Windows(streams[0], context, rows, config.train.seed),
        validate=_validation(streams[1], context, rows, size, generator, config),
        save=saver(folder, bundle, TokenizerPair(tokenizer, tokenizer), made_by(config, device)),
        fingerprint={
            "the training data": streams[0].sha256,
            "the validation data": streams[1].sha256,
            "the model": config.model,
        },
        device=torch.device(device),
        probe=prober(generator, first_lines(valid), config.probes, folder),
    )
    counts = (
        f"{len(streams[0]):,} training and {len(streams[1]):,} validation tokens, a vocabulary of {tokenizer.size:,}"
    )
    return Prepared(job, (*notes, counts))


def load_texts(data: object, data_root: Path | None) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Training and validation documents as the configuration names them, and what to tell about them."""
    from regard.data.config import TextConfig

    assert isinstance(data, TextConfig)
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


def _stream(
    folder: Path, name: str, texts: list[str], tokenizer: TextTokenizer, *, resume: bool, tell: Tell
) -> TokenStream:
    """The documents one after the other, each between its begin and end tokens.

    A run that goes on maps the stream that it has, if that was made of these texts and this tokenizer; else, and whenever a
    run starts over, it is made anew.
    """
    path, files = folder / name, [sha256(folder / TOKENS / file) for file in TokenizerPair.files(folder / TOKENS)]
    origin = digest_of(files, texts)
    if resume and path.exists() and (stream := TokenStream.open(path)).origin == origin:
        return stream
    special = tokenizer.specials
    ids = ([special.begin, *sequence, special.end] for sequence in encoded(tokenizer, texts, tell, f"writing {name}"))
    return write_stream(path, ids, tokenizer.size, origin)


def _bundle(config: BundleConfig, model: nn.Module, tokenizer: TextTokenizer) -> Bundle:
    return Bundle(config, model, TokenizerPair(tokenizer, tokenizer), {})


def _validation(
    stream: TokenStream, context: int, rows: int, size: int, generator: Generator, config: GenerateConfig
) -> Callable[[nn.Module], Validation]:
    """Loss over the whole held-out stream, perplexity, bits for each byte of its text, and a sample to read."""

    together = max(rows, VALIDATED // context)

    def validate(model: nn.Module) -> Validation:
        total = count = 0.0
        device = next(model.parameters()).device
        for batch in evaluation_batches(stream, context, together):
            part = model(batch.to(device)).parts["nll"]
            total, count = total + float(part.sum), count + part.count
        metrics = {
            "loss": total / count,
            "perplexity": math.exp(min(50.0, total / count)),
            "bits_per_byte": total / math.log(2) / size,
        }
        if not config.samples or not np.isfinite(total):
            return Validation(metrics)
        options = {"max_length": config.samples} if config.decode.sample else {"max_length": config.samples, "beam": 1}
        sample = generator.generate("", seed=0, **options).text
        return Validation(metrics, [("", sample, "")])

    return validate
