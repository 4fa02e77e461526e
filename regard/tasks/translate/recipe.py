"""Train a translation model: joins data, tokens, model, validation and bundle, and hands them to the loop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.bundle import Bundle, BundleConfig, read_config
from regard.config import Tables
from regard.data.batch import PairBatch
from regard.data.batches import Batches, TokenPairs
from regard.data.kept.encoded_pairs import EncodedPairs, encode_pairs
from regard.data.kept.tokenizers import sample_note, train_pair_tokenizers
from regard.data.mixed import mixture
from regard.data.pairs import Pair, PairSets, dropped, further_pairs, is_builtin, load_pairs, overlap
from regard.decode.config import DecodeConfig
from regard.decode.live import Ints
from regard.errors import RegardError
from regard.evaluate.translation import exact_match, score_translations
from regard.files import standing_folder
from regard.inspect.probes import prober
from regard.runs import bundle_folder
from regard.tasks.config import RunConfig
from regard.tasks.finetune import few_at_once, fine_tuning, mixed, mixing_note, old_data
from regard.tasks.recipe import (
    TOKENS,
    PreparedRun,
    Setup,
    SomeBatches,
    corpora_note,
    digest_of,
    every_batch,
    loss_metrics,
    mean_loss,
)
from regard.tasks.subject import (
    EXTRA,
    SOURCE_LENGTHS,
    TARGET_LENGTHS,
    Subject,
    real_behind,
)
from regard.tasks.translate.config import TranslateConfig
from regard.tasks.translate.evaluate import tokenizing
from regard.tasks.translate.predictor import Translator
from regard.tokens import PAD, TextTokenizer, TokenizerPair, as_arrays
from regard.training.events import Working
from regard.training.finetune import NEW, OLD, Side
from regard.training.job import Job
from regard.training.state import Fingerprint
from regard.training.validation import Validation, interval_error, share_error
from regard.world import world

RESAMPLES = 200  # of the validation sentences, to tell how much of their BLEU is chance
LOOKED_AT = 100_000  # pairs of a corpus whose lengths are looked at
NEARLY_ALL, SPARE = 0.999, 1.1  # pairs that keep the limits of length, and times as much as they need


@dataclass(frozen=True, eq=False)
class PreparedTranslation(PreparedRun):
    """With what its validations are made of."""

    bundle: BundleConfig
    tokenizers: TokenizerPair
    valid: list[Pair]
    config: TranslateConfig

    def measured(self) -> Job:
        """A model that has learned nothing seldom ends a sentence, and its validations would take several times as long
        as later ones. Here every translation has the mean length of the references.
        """
        lengths = [len(ids) for ids in self.tokenizers.target.encode_all([target for _, target in self.valid])]
        length = round(float(np.mean(lengths)))
        decode = self.bundle.decode.model_copy(update={"min_length": length, "max_length": length})
        bundle = self.bundle.model_copy(update={"decode": decode})
        return replace(self.job, validate=validation(bundle, self.tokenizers, self.valid, self.config))


def prepare_translate(config: RunConfig, setup: Setup) -> PreparedTranslation:
    """Read the data, make or reload the tokenizers, build the model. Nothing is trained yet."""
    assert isinstance(config, TranslateConfig)
    pairs = load_pairs(config.data, setup.data_root, setup.keep(), setup.progress)
    corpora = [pairs, *further_pairs(config.data, setup.data_root, pairs, setup.keep_corpus, setup.progress)]
    before = old_data(config, config.data)
    old = None if before is None else load_pairs(before, setup.data_root, setup.keep("old"), setup.progress)
    config = _chosen(config, setup, corpora)
    setup.note(config)
    tokenizers = _tokenizers(config, setup, corpora)
    learned = _learned(config, setup, tokenizers, corpora)
    config = _limited(_sized(config, setup, tokenizers, learned), setup, learned)
    setup.note(config)
    valid, left_out = _readable(pairs.valid, tokenizers, config.model.longest)
    known = None if old is None else _old_part(old, config, tokenizers, setup)
    setup.emit(Working("building the model"))
    about = _about(config, tokenizers)
    bundle = Bundle(about, setup.build(config, about.vocabulary), tokenizers, {})
    validate = validation(about, tokenizers, valid, config)
    data: Fingerprint = {"the training data": learned.digest}
    data["the validation data"] = digest_of(*zip(*pairs.valid, strict=True))
    sides = [Side(NEW, validate, partial(_few_at_once, valid, tokenizers))]
    if known is not None:
        data["the old data"] = known.fingerprint
        seen = validation(about, tokenizers, known.valid, config)
        sides.append(Side(OLD, seen, partial(_few_at_once, known.valid, tokenizers)))
    batches = learned.batches(config)
    job = setup.job(
        config,
        bundle,
        mixed(config, batches, known and known.batches),
        validate,
        data,
        held_out=partial(held_out, tokenizers, valid, config),
        probe=prober(Translator(bundle), valid, config.probes, setup.folder),
        tuning=fine_tuning(config, setup.folder, setup.resume, sides),
    )
    counted = tokenizing(about, [target for _, target in valid]).note if config.validate_.sentences else ""
    told = [*_data_notes(config, corpora), counted, *learned.notes(config), left_out]
    if old is not None and not setup.resume:  # it would read all texts
        told += [*overlap(old.train, valid, "validation"), *overlap(pairs.train, old.valid, "old validation")]
    told += mixing_note(config, before, "" if known is None else f"{known.pairs:,} pairs")
    told += corpora_note(config.data, batches, [f"{len(each.pairs):,} pairs" for each in learned.corpora])
    told += [f"{learned.count:,} training and {len(valid):,} validation pairs"]
    return PreparedTranslation(job, tuple(filter(None, told)), about, tokenizers, valid, config)


def _about(config: TranslateConfig, tokenizers: TokenizerPair) -> BundleConfig:
    return BundleConfig(
        task=config.task,
        languages=config.data.languages,
        bleu_tokenizer=config.validate_.bleu_tokenizer,
        tokens=config.tokens,
        vocabulary=(tokenizers.source.size, tokenizers.target.size),
        model=config.model,
        decode=config.decode,
    )


def _data_notes(config: TranslateConfig, corpora: Sequence[PairSets]) -> list[str]:
    notes = [note for each in corpora for note in each.notes]
    characters = sum(sum(each.characters) for each in corpora)
    return notes + (sample_note(characters, config.tokens.sample) if config.start is None else [])


@dataclass(frozen=True)
class LearnedPairs:
    """The pairs of all corpora to learn from, as ids."""

    corpora: list[EncodedPairs]

    @property
    def count(self) -> int:
        return sum(len(each.pairs) for each in self.corpora)

    @property
    def digest(self) -> str | list[str]:
        found = [each.digest for each in self.corpora]
        return found if len(found) > 1 else found[0]

    def batches(self, config: RunConfig) -> Any:
        """The batches of a run: of one corpus, or of several by their weights."""
        assert isinstance(config, TranslateConfig)
        train, data = config.train, config.data
        sources = [Batches(each.pairs, train.batch_tokens, train.seed) for each in self.corpora]
        return mixture(sources, data.weights, data.temperature, train.seed)

    def notes(self, config: TranslateConfig) -> list[str | None]:
        """Sentences on pairs that were left out for their lengths."""
        notes = [each.note for each in self.corpora]
        return [_lengths(config)[1] if any(notes) else None, *notes]


def _learned(
    config: TranslateConfig, setup: Setup, tokenizers: TokenizerPair, corpora: Sequence[PairSets]
) -> LearnedPairs:
    how = _lengths(config)[0], config.data.max_ratio
    encode = [partial(encode_pairs, each, tokenizers, *how) for each in corpora]
    return LearnedPairs([each(setup.keep_corpus(number), setup.progress) for number, each in enumerate(encode)])


class OldPart(NamedTuple):
    """The pairs that the model learned from before: batches to mix in, and those it is validated on."""

    batches: Batches
    valid: list[Pair]
    pairs: int
    fingerprint: str


def _old_part(old: PairSets, config: TranslateConfig, tokenizers: TokenizerPair, setup: Setup) -> OldPart:
    most, ratio = _lengths(config)[0], config.data.max_ratio
    train = encode_pairs(old, tokenizers, most, ratio, setup.keep("old"), setup.progress)
    valid, _ = _readable(old.valid, tokenizers, config.model.longest)
    batches = Batches(train.pairs, config.train.batch_tokens, config.train.seed)
    return OldPart(batches, valid, len(train.pairs), train.digest)


def _few_at_once(pairs: list[Pair], tokenizers: TokenizerPair) -> Iterator[PairBatch]:
    tokens = encode(pairs, tokenizers)
    return few_at_once(tokens.take, len(tokens))


def _chosen(config: TranslateConfig, setup: Setup, corpora: Sequence[PairSets]) -> TranslateConfig:
    examples, characters = (sum(len(each.train) for each in corpora), sum(each.characters[1] for each in corpora))
    found = setup.choose(config, examples=examples, characters=characters)
    assert isinstance(found, TranslateConfig)
    return found


def _sized(config: TranslateConfig, setup: Setup, tokenizers: TokenizerPair, learned: LearnedPairs) -> TranslateConfig:
    def make(candidate: RunConfig) -> tuple[nn.Module, Any]:
        sizes = (tokenizers.source.size, tokenizers.target.size)
        return setup.build(candidate, sizes), learned.batches(candidate)

    found = setup.choose_size(config, make)
    assert isinstance(found, TranslateConfig)
    return found


def _limited(config: TranslateConfig, setup: Setup, learned: LearnedPairs) -> TranslateConfig:
    """With limits of length that training pairs keep, where nobody chose others. A beam goes on as long as what it has not
    ended could still win, and with 20 tokens more than there ever are it could for long: a date took 23 steps for 11.
    """
    decode, unset = config.decode, DecodeConfig()
    same = all(getattr(decode, key) == getattr(unset, key) for key in ("max_length", "max_ratio", "max_extra"))
    if not same or config.start is not None:
        return config
    saved = standing_folder(setup.folder / "best")
    if setup.resume and saved.exists():  # a run of an earlier version keeps the limits that it had
        return config.model_copy(update={"decode": read_config(saved).decode})
    read, written = (np.concatenate(side) for side in zip(*map(_some_lengths, learned.corpora), strict=True))
    ratio, extra = length_limits(read, written)
    return config.model_copy(update={"decode": decode.model_copy(update={"max_ratio": ratio, "max_extra": extra})})


def _some_lengths(encoded: EncodedPairs) -> tuple[Ints, Ints]:
    """Tokens read and written of pairs all over the data, ends not counted in what is written."""
    read, predicted = encoded.pairs.lengths()
    step = -(-len(read) // LOOKED_AT)
    return np.asarray(read[::step]), np.asarray(predicted[::step]) - 1


def length_limits(read: Ints, written: Ints) -> tuple[float, int]:
    """Tokens to write for each that was read, and more: the least limits, on average, that nearly all pairs keep.

    Of limits that are as tight the steepest, for sources longer than any here. A tenth and some tokens are to spare.
    """
    found: list[tuple[float, int, float]] = []
    for ratio in np.arange(0.0, 4.01, 0.1):
        extra = max(0, math.ceil(np.quantile(written - ratio * read, NEARLY_ALL)))
        found.append((float(ratio), extra, ratio * float(read.mean()) + extra))
    least = min(mean for _, _, mean in found)
    ratio, extra, _ = max(each for each in found if each[2] <= 1.02 * least + 0.5)
    return round(SPARE * ratio, 2), math.ceil(SPARE * extra) + 3


def _lengths(config: TranslateConfig) -> tuple[int, str | None]:
    """Most tokens of a side of a training pair, and what to say where the model reads less than the data may have."""
    wanted, reads = config.data.max_length, config.model.longest
    if reads is None or reads >= wanted:
        return wanted, None
    return reads, f"the model reads {reads} tokens (model.max_length), fewer than data.max_length {wanted}"


def _readable(pairs: list[Pair], tokenizers: TokenizerPair, longest: int | None) -> tuple[list[Pair], str | None]:
    """The validation pairs that a model of so many positions can read and write, and how many are left out."""
    if longest is None:
        return pairs, None
    read, predicted = encode(pairs, tokenizers).lengths()
    fits = np.maximum(read, predicted) <= longest
    if fits.all():
        return pairs, None
    why = dropped("validation", len(pairs), Counter({f"a side over {longest} tokens": int((~fits).sum())}))
    if not fits.any():
        raise RegardError(f"no validation pair is left: {why}; raise model.max_length")
    return [pair for pair, fit in zip(pairs, fits, strict=True) if fit], why


def encode(pairs: Sequence[Pair], tokenizers: TokenizerPair) -> TokenPairs:
    sources = tokenizers.source.encode_all([source for source, _ in pairs])
    targets = tokenizers.target.encode_all([target for _, target in pairs])
    return TokenPairs(as_arrays(sources, begin=False), as_arrays(targets, begin=True), PAD)


def validation(
    config: BundleConfig, tokenizers: TokenizerPair, pairs: list[Pair], run: TranslateConfig
) -> Callable[[nn.Module], Validation]:
    """Make the validation on unseen pairs: loss and perplexity on all, BLEU on the first few."""
    batches = _all_in_batches(tokens := encode(pairs, tokenizers), run)
    shown = pairs[: run.validate_.sentences]
    counted = tokenizing(config, [target for _, target in pairs]).name
    how: Tables = {"lowercase": run.tokens.lowercase, "tokenize": counted, "metrics": ("bleu",)}
    how["resamples"] = RESAMPLES
    if run.train.budget is not None:  # a model that has learned little never ends: its time is better spent
        config = config.model_copy(update={"decode": config.decode.model_copy(update=_bounds(tokens))})

    def validate(model: nn.Module) -> Validation:
        metrics = loss_metrics(*mean_loss(model, every_batch(batches)))
        if not shown:
            return Validation(metrics)
        translator = Translator(Bundle(config, model, tokenizers, {}))
        sources = [source for source, _ in shown]

        def written(some: Sequence[str]) -> list[str]:
            return [each.text for each in translator.translate(list(some), beam=1, n_best=1, scores=False)]

        outputs = world().in_parts(sources, written)
        references = [target for _, target in shown]
        found = score_translations(outputs, references, **how)["bleu"]
        metrics["bleu"], errors = found.value, {"bleu": interval_error((found.low, found.high))}
        if is_builtin(run.data.train):
            metrics["exact"] = exact_match(outputs, references)
            errors["exact"] = share_error(metrics["exact"], len(shown))
        samples = [(*pair, output) for pair, output in zip(shown, outputs, strict=True)][: run.validate_.samples]
        return Validation(metrics, [(source, output, reference) for source, reference, output in samples], errors)

    return validate


def _all_in_batches(tokens: TokenPairs, run: TranslateConfig) -> Batches:
    return Batches(tokens, max(run.train.batch_tokens, max(map(max, zip(*tokens.lengths(), strict=True)))), seed=0)


def held_out(tokenizers: TokenizerPair, pairs: list[Pair], run: TranslateConfig) -> SomeBatches:
    """The validation pairs, in batches."""
    return every_batch(_all_in_batches(encode(pairs, tokenizers), run))


def _bounds(tokens: TokenPairs) -> Tables:
    """Limits of length that nearly all references keep."""
    read, predicted = tokens.lengths()
    return {"max_ratio": max(1.0, float(np.quantile(predicted / read, 0.98))), "max_extra": 3}


def _tokenizers(config: TranslateConfig, setup: Setup, corpora: Sequence[PairSets]) -> TokenizerPair:
    """Those of the run when it goes on, those of the model it starts from, or trained on the training pairs alone."""
    place = setup.folder / TOKENS
    if setup.resume:
        return TokenizerPair.load(place)
    if config.start is not None:
        tokenizers = TokenizerPair.load(bundle_folder(config.start))
        tokenizers.save(place)
        return tokenizers
    say = partial(setup.emit, Working("training the tokenizer"))
    tokenizers = train_pair_tokenizers(corpora, config.tokens, setup.keep(), say)
    tokenizers.save(place)
    return tokenizers


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
        return replace(batch, source=real_behind(batch.source), target=pad(batch.target, (0, EXTRA - 1), value=PAD))

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
