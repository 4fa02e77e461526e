"""Train a model that fills gaps: masked language modelling on any text (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import MaskedBatch
from regard.data.kept.cache import joint_key
from regard.data.kept.encoded_documents import encode_documents
from regard.data.kept.ragged import Ragged
from regard.data.masking import MaskedBatches, masked_batches
from regard.data.mixed import mixture
from regard.data.text_sets import further_texts, load_texts, sample_of
from regard.errors import UsageError
from regard.inspect.probes import FROM, first_lines, prober
from regard.models.config import BertConfig
from regard.tasks.config import RunConfig
from regard.tasks.fill.config import FillConfig
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.recipe import text_facts, text_notes
from regard.tasks.recipe import (
    PreparedRun,
    Setup,
    corpora_note,
    fingerprint,
    loss_metrics,
    mean_loss,
    sampled_note,
    some_batches,
)
from regard.tasks.subject import (
    EXTRA,
    TEXT_LENGTHS,
    Model,
    Subject,
    real_behind,
    zeros_behind,
)
from regard.tokens import TextTokenizer, TokenizerPair
from regard.training.validation import Validation


def prepare_fill(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the text, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, FillConfig) and isinstance(config.model, BertConfig)
    texts = load_texts(config.data, setup.data_root, setup.keep(), setup.progress)
    corpora = [texts, *further_texts(config.data, setup.data_root, texts, setup.keep_corpus, setup.progress)]
    config = setup.choose(config, **text_facts(corpora))
    assert isinstance(config, FillConfig)
    config = setup.choose_context(config, config.data.context)
    assert isinstance(config, FillConfig) and isinstance(config.model, BertConfig)
    if config.data.context > config.model.max_length:
        raise UsageError(
            f"data.context {config.data.context} is more than model.max_length {config.model.max_length}; make them equal"
        )
    setup.note(config)
    key = joint_key([each.key for each in corpora])
    tokenizer = setup.tokenizer(config, partial(sample_of, corpora), key, mask=True)
    keeps = [setup.keep_corpus(number) for number in range(len(corpora))]
    encoded = [
        encode_documents(each, tokenizer, ([], []), keep, setup.progress)
        for each, keep in zip(corpora, keeps, strict=True)
    ]
    learned, valid = [each[0] for each in encoded], encoded[0][1]
    sources = [_batches(config, tokenizer, each, config.train.seed) for each in learned]
    batches = mixture(sources, config.data.weights, config.data.temperature, config.train.seed)
    config = _sized(config, setup, tokenizer, batches)
    setup.note(config)
    about = BundleConfig(task="fill", tokens=config.tokens, vocabulary=(tokenizer.size,), model=config.model)
    bundle = Bundle(about, setup.build(config, (tokenizer.size,)), TokenizerPair(tokenizer, tokenizer), {})
    held, most = _batches(config, tokenizer, valid, seed=0), config.validate_.tokens
    is_long = len(valid.flat) > most
    read = max(1, most // config.train.batch_tokens) if is_long else held.count(0)
    job = setup.job(
        config,
        bundle,
        batches,
        lambda model: Validation(loss_metrics(*mean_loss(model, some_batches(held, read)))),  # the same gaps each time
        {
            "the training data": fingerprint(*learned),
            "the validation data": fingerprint(valid),
        },
        held_out=lambda: some_batches(held, read),
        probe=prober(Filler(bundle), first_lines(texts.valid.beginnings(FROM)), config.probes, setup.folder),
    )
    sizes = sum(len(each.flat) for each in learned), len(valid.flat)
    counts = f"{sizes[0]:,} training and {sizes[1]:,} validation tokens, a vocabulary of {tokenizer.size:,}"
    shares = corpora_note(config.data, batches, [f"{len(each.flat):,} tokens" for each in learned])
    sampled = sampled_note(most, len(valid.flat)) if is_long else ()
    return PreparedRun(job, (*text_notes(config, corpora), *shares, *sampled, counts))


def _sized(config: FillConfig, setup: Setup, tokenizer: TextTokenizer, batches: Any) -> FillConfig:
    found = setup.choose_size(config, lambda candidate: (setup.build(candidate, (tokenizer.size,)), batches))
    assert isinstance(found, FillConfig)
    return found


def _batches(config: FillConfig, tokenizer: TextTokenizer, documents: Ragged, seed: int) -> MaskedBatches:
    assert isinstance(config.model, BertConfig)
    return masked_batches(
        tokenizer,
        documents,
        length=config.data.context,
        batch_tokens=config.train.batch_tokens,
        seed=seed,
        rate=config.masked,
        pairs=config.model.next_sentence,
    )


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
        wanted = torch.split(whole.wanted, whole.places.sum(dim=1).tolist())
        return MaskedBatch(
            whole.ids[rows, used],
            lengths,
            whole.places[rows, used],
            torch.cat([wanted[row] for row in rows]),
            None if whole.segments is None else whole.segments[rows, used],
            None if whole.follows is None else whole.follows[rows],
        )

    def lengthened(self, batch: MaskedBatch) -> MaskedBatch:
        places, segments = pad(batch.places, (0, EXTRA)), zeros_behind(batch.segments)
        return replace(batch, ids=real_behind(batch.ids), places=places, segments=segments)

    def training(self, seed: int) -> MaskedBatches:
        return self.batches(40, seed)

    def outputs(self, model: Model, batch: MaskedBatch) -> Tensor:
        """Logits, or the vectors of a model that gives nothing else: (B, S, V)."""
        if not self.learns:
            vectors: Tensor = model.encoder(batch.ids, batch.lengths, batch.segments).vectors
            return vectors
        logits: Tensor = model.logits(batch)
        return logits

    @property
    def config(self) -> BertConfig:
        assert isinstance(self.bundle.config.model, BertConfig)
        return self.bundle.config.model

    @property
    def learns(self) -> bool:
        return self.config.head
