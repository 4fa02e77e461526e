"""Train a translation model: joins data, tokens, model, validation and bundle, and hands them to the loop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.bundle import Bundle, BundleConfig
from regard.data.batches import Batches, TokenPairs, filter_lengths
from regard.data.pairs import Pair, dropped, is_builtin, load_pairs
from regard.errors import RegardError
from regard.evaluate.translation import exact_match, score_translations
from regard.inspect.probes import prober
from regard.models.table import build
from regard.tasks.config import RunConfig, TranslateConfig
from regard.tasks.recipe import TOKENS, Prepared, digest_of, encoded, fingerprint, made_by, note_run, saver
from regard.tasks.translate.evaluate import tokenizing
from regard.tasks.translate.predictor import Translator
from regard.tokens import PAD, TokenizerPair, as_arrays
from regard.training.events import Tell, Working, silent
from regard.training.loop import Job
from regard.training.validation import Validation, interval_error, share_error

RESAMPLES = 200  # of the validation sentences, to tell how much of their BLEU is chance


@dataclass(frozen=True, eq=False)
class PreparedTranslation(Prepared):
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


def prepare_translate(
    config: RunConfig, folder: Path, *, data_root: Path | None, resume: bool, device: str = "cpu", tell: Tell = silent
) -> PreparedTranslation:
    """Read the data, make or reload the tokenizers, build the model. Nothing is trained yet."""
    assert isinstance(config, TranslateConfig)
    pairs = load_pairs(config.data, data_root)
    if not resume:
        note_run(folder, config, data_root, device)
    tokenizers = _tokenizers(config, folder, pairs.train, resume, tell)
    most, reach = _lengths(config)
    train, note = filter_lengths(encode(pairs.train, tokenizers, tell), most, config.data.max_ratio)
    valid, left_out = _readable(pairs.valid, tokenizers, config.model.longest)
    tell(Working("building the model"))
    torch.manual_seed(config.train.seed)
    sizes = (tokenizers.source.size, tokenizers.target.size)
    model = build("translate", config.model, sizes, smoothing=config.train.smoothing)
    bundle = BundleConfig(
        task=config.task,
        languages=config.data.languages,
        bleu_tokenizer=config.validate_.bleu_tokenizer,
        tokens=config.tokens,
        vocabulary=sizes,
        model=config.model,
        decode=config.decode,
    )
    job = Job(
        folder=folder,
        config=config.train,
        model=model,
        width=config.model.width,
        batches=Batches(train, config.train.batch_tokens, config.train.seed),
        validate=validation(bundle, tokenizers, valid, config),
        save=saver(folder, bundle, tokenizers, made_by(config, device)),
        fingerprint={
            "the training data": fingerprint(train.sources, train.targets),
            "the validation data": digest_of(*zip(*pairs.valid, strict=True)),
            "the model": config.model,
        },
        device=torch.device(device),
        probe=prober(Translator(Bundle(bundle, model, tokenizers, {})), valid, config.probes, folder),
    )
    counted = tokenizing(bundle, [target for _, target in valid]).note if config.validate_.sentences else ""
    told = [each for each in (*pairs.notes, counted, reach if note else None, note, left_out) if each]
    counts = f"{len(train):,} training and {len(valid):,} validation pairs"
    return PreparedTranslation(job, (*told, counts), bundle, tokenizers, valid, config)


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


def encode(pairs: Sequence[Pair], tokenizers: TokenizerPair, tell: Tell = silent) -> TokenPairs:
    sources = list(encoded(tokenizers.source, [pair[0] for pair in pairs], tell, "encoding the source texts"))
    targets = list(encoded(tokenizers.target, [pair[1] for pair in pairs], tell, "encoding the target texts"))
    return TokenPairs(as_arrays(sources, begin=False), as_arrays(targets, begin=True), PAD)


def validation(
    config: BundleConfig, tokenizers: TokenizerPair, pairs: list[Pair], run: TranslateConfig
) -> Callable[[nn.Module], Validation]:
    """What the loop calls to look at unseen pairs: loss and perplexity on all, BLEU on the first few."""
    tokens = encode(pairs, tokenizers)
    batches = Batches(tokens, max(run.train.batch_tokens, max(map(max, zip(*tokens.lengths(), strict=True)))), seed=0)
    shown = pairs[: run.validate_.sentences]
    counted = tokenizing(config, [target for _, target in pairs]).name
    how: dict[str, Any] = {"lowercase": run.tokens.lowercase, "tokenize": counted, "metrics": ("bleu",)}
    how["resamples"] = RESAMPLES

    def validate(model: nn.Module) -> Validation:
        total = count = 0.0
        device = next(model.parameters()).device
        for index in range(batches.count(0)):
            part = model(batches.get(0, index).to(device)).parts["nll"]
            total, count = total + float(part.sum), count + part.count
        metrics = {"loss": total / count, "perplexity": math.exp(min(50.0, total / count))}
        if not shown:
            return Validation(metrics)
        translator = Translator(Bundle(config, model, tokenizers, {}))
        outputs = [each.text for each in translator.translate([source for source, _ in shown], beam=1, n_best=1)]
        references = [target for _, target in shown]
        found = score_translations(outputs, references, **how)["bleu"]
        metrics["bleu"], errors = found.value, {"bleu": interval_error((found.low, found.high))}
        if is_builtin(run.data.train):
            metrics["exact"] = exact_match(outputs, references)
            errors["exact"] = share_error(metrics["exact"], len(shown))
        samples = [(*pair, output) for pair, output in zip(shown, outputs, strict=True)][: run.validate_.samples]
        return Validation(metrics, [(source, output, reference) for source, reference, output in samples], errors)

    return validate


def _tokenizers(config: TranslateConfig, folder: Path, train: list[Pair], resume: bool, tell: Tell) -> TokenizerPair:
    """Those of the run when it goes on; otherwise trained on the training pairs, and nothing else."""
    place = folder / TOKENS
    if resume:
        return TokenizerPair.load(place)
    tell(Working("training the tokenizer"))
    tokenizers = TokenizerPair.train([pair[0] for pair in train], [pair[1] for pair in train], config.tokens)
    tokenizers.save(place)
    return tokenizers
