"""Train a model that says what is in a picture: pictures with captions, and features where what sees does not learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.bundle import Bundle, BundleConfig
from regard.config import find_file
from regard.data.pictures.augment import normalise
from regard.data.pictures.batches import CaptionBatches
from regard.data.pictures.config import PictureFormat
from regard.data.pictures.load import SHAPES, Captioned, load_captions
from regard.evaluate.captions import score_captions
from regard.evaluate.translation import exact_match
from regard.models.config import CaptionerConfig
from regard.models.table import build
from regard.tasks.caption.features import Features, features_of
from regard.tasks.caption.predictor import Captioner
from regard.tasks.config import CaptionConfig, RunConfig
from regard.tasks.recipe import Prepared, digest_of, made_by, make_tokenizer, note_run, saver
from regard.tokens import PAD, TextTokenizer, TokenizerPair, as_arrays
from regard.training.events import Tell, counting, silent
from regard.training.loop import Job
from regard.training.validation import Validation, interval_error, share_error


def prepare_caption(
    config: RunConfig, folder: Path, *, data_root: Path | None, resume: bool, device: str = "cpu", tell: Tell = silent
) -> Prepared:
    """Read pictures and captions, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, CaptionConfig) and isinstance(config.model, CaptionerConfig)
    train, valid, format, notes = load_captions(config.data, data_root, counting(tell, "reading pictures"))
    if not resume:
        note_run(folder, config, data_root, device)
    tokenizer = make_tokenizer(
        config, folder, [text for each in train.captions for text in each], resume=resume, tell=tell
    )
    torch.manual_seed(config.train.seed)
    model: Any = build(
        "caption",
        with_path(config.model, data_root),
        (tokenizer.size,),
        pictures=format,
        smoothing=config.train.smoothing,
    )
    bundle = BundleConfig(
        task="caption",
        pictures=format,
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=without_path(config.model),
        decode=config.decode,
    )
    batches = _batches(config, train, tokenizer, format, model, config.train.seed, tell)
    held = _batches(config, valid, tokenizer, format, model, None, tell)
    job = Job(
        folder=folder,
        config=config.train,
        model=model,
        width=config.model.width,
        batches=batches,
        validate=_validation(held, valid, bundle, tokenizer, config),
        save=saver(folder, bundle, TokenizerPair(tokenizer, tokenizer), made_by(config, device)),
        fingerprint={
            "the training data": [train.store.sha256, len(batches)],
            "the captions": digest_of(*train.captions),
            "the validation data": [valid.store.sha256, digest_of(*valid.captions)],
            "the model": config.model,
        },
        device=torch.device(device),
        unit="tokens",
    )
    counts = f"{len(train.rows):,} training and {len(valid.rows):,} validation pictures, {len(batches):,} captions"
    return Prepared(job, (*notes, f"{counts}, {tokenizer.size:,} words"))


def with_path(model: Any, data_root: Path | None) -> Any:
    """The model's configuration with the file of its encoder's weights, found as all data is."""
    if model.encoder.kind != "efficientnet-lite0" or not model.encoder.weights:
        return model
    weights = str(find_file(model.encoder.weights, data_root))
    return model.model_copy(update={"encoder": model.encoder.model_copy(update={"weights": weights})})


def without_path(model: Any) -> Any:
    """The model's configuration for its bundle, which holds the encoder's weights itself."""
    if model.encoder.kind != "efficientnet-lite0":
        return model
    return model.model_copy(update={"encoder": model.encoder.model_copy(update={"weights": ""})})


def source_of(model: Any, store: Any, format: PictureFormat, tell: Tell = silent) -> Any:
    """What batches show: pictures, or features of them where what sees does not learn."""
    learns = any(parameter.requires_grad for parameter in model.encoder.parameters())
    return store if learns else features_of(model.encoder, store, format, counting(tell, "computing features"))


def _batches(
    config: CaptionConfig,
    part: Captioned,
    tokenizer: TextTokenizer,
    format: PictureFormat,
    model: Any,
    seed: int | None,
    tell: Tell,
) -> CaptionBatches:
    """Every caption with its picture; without a seed, for validation."""
    texts = [text for each in part.captions for text in each]
    pictures = np.repeat(part.rows, [len(each) for each in part.captions])
    ids = as_arrays(tokenizer.encode_all(texts), begin=True)
    if seed is not None:
        short = np.array([len(each) <= config.data.max_length for each in ids])
        ids, pictures = [each for each, keep in zip(ids, short, strict=True) if keep], pictures[short]
    source = source_of(model, part.store, format, tell)
    return CaptionBatches(
        source,
        pictures,
        ids,
        format,
        config.train.batch_pictures,
        seed or 0,
        pad=PAD,
        augment=None if seed is None else config.data.augment,
        by_length=isinstance(source, Features),  # batch norm must not learn that pictures of a batch are alike
    )


def _validation(
    batches: CaptionBatches, part: Captioned, bundle: BundleConfig, tokenizer: TextTokenizer, config: CaptionConfig
) -> Callable[[nn.Module], Validation]:
    """Loss and perplexity of all captions; BLEU-4 (and how many are exactly right of drawn scenes) of the first pictures."""
    rows = part.rows[: config.validate_.pictures]
    references = part.captions[: config.validate_.pictures]

    def validate(model: nn.Module) -> Validation:
        total = count = 0.0
        device = next(model.parameters()).device
        for index in range(batches.count(0)):
            found = model(batches.get(0, index).to(device)).parts["nll"]
            total, count = total + float(found.sum), count + found.count
        metrics = {"loss": total / count, "perplexity": math.exp(min(50.0, total / count))}
        if not len(rows):
            return Validation(metrics)
        pair = TokenizerPair(tokenizer, tokenizer)
        outputs = written(Captioner(Bundle(bundle, model, pair, {})), batches.source, rows, beam=1)
        scores = score_captions(outputs, references)
        metrics["bleu4"], errors = scores.bleu4, {"bleu4": interval_error(scores.bleu4_interval)}
        if config.data.train == (SHAPES,):
            metrics["exact"] = exact_match(outputs, [each[0] for each in references])
            errors["exact"] = share_error(metrics["exact"], len(rows))
        several = zip(rows, outputs, references, strict=True)
        shown = [(Path(part.store.name(row)).name, output, wanted[0]) for row, output, wanted in several]
        return Validation(metrics, shown[: config.validate_.samples], errors)

    return validate


def written(captioner: Captioner, source: Any, rows: np.ndarray, **options: Any) -> list[str]:
    """Captions of pictures of a store, or of their features."""
    decode = captioner.options(options)
    out: list[str] = []
    for start in range(0, len(rows), decode.batch_sentences):
        shown = source.take(rows[start : start + decode.batch_sentences])
        pixels = torch.from_numpy(shown)
        if not isinstance(source, Features):
            pixels = normalise(pixels.permute(0, 3, 1, 2), captioner.format)
        found = captioner.search(pixels.to(captioner.device), decode, first=start)
        out += [captioner.text(each[0].ids) for each in found]
    return out
