"""Train a language model: documents packed into one stream of tokens, which is cut into windows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import TextBatch, text_batch
from regard.data.kept.cache import find_kept, joint_key
from regard.data.kept.encoded_documents import encode_documents
from regard.data.kept.tokenizers import sample_note
from regard.data.mixed import mixture
from regard.data.notation import NOTATIONS
from regard.data.stream import TokenStream, Windows, sampled_batches, sampled_starts, write_stream
from regard.data.text_sets import TextSets, further_texts, leak_notes, load_texts, sample_of
from regard.decode.config import DecodeOptions
from regard.errors import UsageError
from regard.files import read_json
from regard.inspect.probes import FROM, first_lines, prober
from regard.models.configs.pixels import BEFORE
from regard.models.kinds import PIXELS
from regard.tasks.config import RunConfig
from regard.tasks.finetune import fine_tuning, mixed, mixing_note, old_data
from regard.tasks.generate.chats import prepare_chats
from regard.tasks.generate.config import GenerateConfig
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.streams import are_pictures, around, as_written
from regard.tasks.recipe import DATA, PreparedRun, Setup, corpora_note, loss_metrics, mean_loss, sampled_note
from regard.tasks.subject import (
    TEXT_LENGTHS,
    Subject,
    real_behind,
)
from regard.tokens import TextTokenizer, TokenizerPair
from regard.training.events import Working
from regard.training.finetune import NEW, OLD, Side
from regard.training.state import Fingerprint
from regard.training.validation import Validation

VALIDATED = 4096  # tokens of a batch in validation, or more
PARTS = ("train", "valid")  # arrays in the cache
STREAMS = ("train.tokens", "valid.tokens")  # files of a run whose text is small
OLD_STREAMS = ("old-train.tokens", "old-valid.tokens")  # of one that goes on from another


def prepare_generate(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the text, make or reload tokenizer and streams, build the model. Nothing is trained yet."""
    assert isinstance(config, GenerateConfig)
    if config.data.chats:
        return prepare_chats(config, config.data.chat, setup)
    texts = load_texts(config.data, setup.data_root, setup.keep(), setup.progress)
    corpora = [texts, *further_texts(config.data, setup.data_root, texts, setup.keep_corpus, setup.progress)]
    before = old_data(config, config.data)
    old = None if before is None else load_texts(before, setup.data_root, setup.keep("old"), setup.progress)
    config = setup.choose(config, **text_facts(corpora), **_picture_facts(config))
    assert isinstance(config, GenerateConfig)
    if not are_pictures(config.tokens):  # a picture is read whole
        config = setup.choose_context(config, config.data.context)
    assert isinstance(config, GenerateConfig)
    setup.note(config)
    tokenizer = setup.tokenizer(config, partial(sample_of, corpora), joint_key([each.key for each in corpora]))
    streams = _streams(setup, config, texts, tokenizer)
    learned = [streams[0], *_further_streams(setup, config, corpora[1:], tokenizer)]
    known = [] if old is None else _streams(setup, config, old, tokenizer, "old")
    config = _sized(config, setup, tokenizer, learned)
    setup.note(config)
    setup.emit(Working("building the model"))
    context = fitting_context(config)
    about = BundleConfig(
        task="generate", tokens=config.tokens, vocabulary=(tokenizer.size,), model=config.model, decode=config.decode
    )
    rows = max(1, config.train.batch_tokens // context)
    size = int(texts.valid.sizes.sum())
    bundle = Bundle(about, setup.build(config, (tokenizer.size,)), TokenizerPair(tokenizer, tokenizer), {})
    generator = Generator(bundle)
    validate = _validation(streams[1], context, rows, size, generator, config)
    batches = _windows(config, learned)
    most = config.validate_.tokens
    sides = [Side(NEW, validate, partial(sampled_batches, streams[1], context, 1, most))]
    digests = [stream.sha256 for stream in learned]
    data: Fingerprint = {"the training data": digests if len(digests) > 1 else digests[0]}
    data["the validation data"] = streams[1].sha256
    if old is not None:
        data["the old data"] = [stream.sha256 for stream in known]
        looked = _validation(known[1], context, rows, int(old.valid.sizes.sum()), generator, config)
        sides.append(Side(OLD, looked, partial(sampled_batches, known[1], context, 1, most)))
    job = setup.job(
        config,
        bundle,
        mixed(config, batches, _windows(config, known[:1]) if known else None),
        validate,
        data,
        held_out=partial(sampled_batches, streams[1], context, rows, most),
        probe=prober(generator, first_lines(texts.valid.beginnings(FROM)), config.probes, setup.folder),
        tuning=fine_tuning(config, setup.folder, setup.resume, sides),
    )
    notes = (*text_notes(config, corpora), *_kind_notes(config))
    if old is not None and not setup.resume:  # it reads all texts
        notes += (*leak_notes(texts.unseen, old, "validation"), *leak_notes(old.unseen, texts, "old validation"))
    notes += corpora_note(config.data, batches, [f"{len(stream):,} tokens" for stream in learned])
    if sampled_starts(streams[1], context, most) is not None:
        notes += sampled_note(most, len(streams[1]))
    notes += mixing_note(config, before, f"{len(known[0]):,} tokens" if known else "")
    sizes = f"{sum(map(len, learned)):,} training and {len(streams[1]):,} validation tokens"
    counts = f"{sizes}, a vocabulary of {tokenizer.size:,}"
    return PreparedRun(job, (*notes, counts))


def _windows(config: GenerateConfig, streams: Sequence[TokenStream]) -> Any:
    """The batches of a run: of one stream, or of several by their weights."""
    context, seed = fitting_context(config), config.train.seed
    rows = max(1, config.train.batch_tokens // context)
    sources = [Windows(stream, context, rows, seed) for stream in streams]
    return mixture(sources, config.data.weights[: len(sources)], config.data.temperature, seed)


def _sized(
    config: GenerateConfig, setup: Setup, tokenizer: TextTokenizer, streams: Sequence[TokenStream]
) -> GenerateConfig:
    def make(candidate: RunConfig) -> tuple[nn.Module, Any]:
        assert isinstance(candidate, GenerateConfig)
        return setup.build(candidate, (tokenizer.size,)), _windows(candidate, streams)

    found = setup.choose_size(config, make)
    assert isinstance(found, GenerateConfig)
    return found


def text_facts(corpora: Sequence[TextSets]) -> dict[str, float]:
    """Count documents and characters, by which the rules choose."""
    return {
        "examples": sum(len(each.train) for each in corpora),
        "characters": sum(each.characters for each in corpora),
    }


def _kind_notes(config: GenerateConfig) -> tuple[str, ...]:
    """A warning where a model of pictures learns from what is none."""
    if config.model.kind not in PIXELS or are_pictures(config.tokens):
        return ()
    return (f"a {config.model.kind} is made for pictures: --data names a folder of them, or builtin/figures",)


def _picture_facts(config: GenerateConfig) -> dict[str, float]:
    """How large the pictures are, and how many tokens of each are predicted, its label included."""
    side = config.tokens.side or 0
    return {"side": side, "picture": BEFORE - 1 + side**2}


def text_notes(config: RunConfig, corpora: Sequence[TextSets]) -> tuple[str, ...]:
    """Notes on the texts, and how much of them the tokenizer learns from."""
    notes, characters = [note for each in corpora for note in each.notes], sum(each.characters for each in corpora)
    assert config.tokens is not None
    return (*notes, *(sample_note(characters, config.tokens.sample) if config.start is None else ()))


def fitting_context(config: GenerateConfig) -> int:
    """How many tokens a window of training text has; learned positions must reach so far."""
    longest = config.model.longest
    if longest is not None and config.data.context > longest:
        raise UsageError(f"data.context {config.data.context} is more than model.max_length {longest}; make them equal")
    return config.data.context


def _streams(
    setup: Setup, config: GenerateConfig, texts: TextSets, tokenizer: TextTokenizer, part: str = ""
) -> list[TokenStream]:
    """The training and the validation documents one after the other, each between its begin and end tokens.

    Those of large texts are mapped from the cache, which all runs share; others are kept in the run's folder.
    """
    ends = around(tokenizer, config.tokens)
    *both, found = encode_documents(texts, tokenizer, ends, setup.keep(part), setup.progress)
    names = OLD_STREAMS if part else STREAMS
    if found.digests is not None:
        streams = [
            TokenStream(rows.flat, tokenizer.size, found.digests[name]) for name, rows in zip(PARTS, both, strict=True)
        ]
    else:
        streams = [
            _own_stream(setup.folder / name, rows.flat, tokenizer.size, setup.resume)
            for name, rows in zip(names, both, strict=True)
        ]
    return [as_written(stream, config.tokens) for stream in streams]


def _further_streams(
    setup: Setup, config: GenerateConfig, corpora: Sequence[TextSets], tokenizer: TextTokenizer
) -> list[TokenStream]:
    """The training documents of further corpora."""
    ends, found = around(tokenizer, config.tokens), []
    for number, texts in enumerate(corpora, start=1):
        rows, _, kept = encode_documents(texts, tokenizer, ends, setup.keep_corpus(number), setup.progress)
        digest = kept.digests[PARTS[0]] if kept.digests else hashlib.sha256(rows.flat.tobytes()).hexdigest()
        found.append(as_written(TokenStream(rows.flat, tokenizer.size, digest), config.tokens))
    return found


def _own_stream(path: Path, ids: np.ndarray, vocabulary: int, resume: bool) -> TokenStream:
    """The stream in a run's folder; a run that goes on has it, if the text is the same."""
    digest = hashlib.sha256(ids.tobytes()).hexdigest()
    if resume and path.exists() and (stream := TokenStream.open(path)).sha256 == digest:
        return stream
    return write_stream(path, [ids], vocabulary)


def validation_stream(folder: Path) -> np.ndarray | None:
    """The tokens that a language model was validated on, if they are kept somewhere."""
    if (path := folder / STREAMS[1]).exists():
        return TokenStream.open(path).ids
    found = find_kept(read_json(folder / DATA).get("tokens", "")) if (folder / DATA).exists() else None
    return None if found is None else found.arrays[PARTS[1]]


def _validation(
    stream: TokenStream, context: int, rows: int, size: int, generator: Generator, config: GenerateConfig
) -> Callable[[nn.Module], Validation]:
    """Loss over the held-out stream or windows of it, perplexity, bits for each byte of its text, and a sample to read."""

    together, most = max(rows, VALIDATED // context), config.validate_.tokens

    def validate(model: nn.Module) -> Validation:
        total, count = mean_loss(model, sampled_batches(stream, context, together, most))
        metrics = loss_metrics(total, count)
        if stream.whole is not None:
            dimensions = stream.whole - 1 - stream.given
            metrics |= {"nats": dimensions * total / count, "bits_per_dimension": total / count / math.log(2)}
        elif config.tokens.kind not in NOTATIONS:  # what music and sound are written in has bytes, but no text
            metrics["bits_per_byte"] = total / math.log(2) / (size * (count / (len(stream) - 1)))
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
