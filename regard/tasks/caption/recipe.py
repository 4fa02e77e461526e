"""Train a model that says what is in a picture: pictures with captions, and features where what sees does not learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.bundle import Bundle, BundleConfig, load_bundle
from regard.config import find_file
from regard.data.batch import pad as padded
from regard.data.pictures.augment import normalise
from regard.data.pictures.batch import CaptionBatch
from regard.data.pictures.batches import CaptionBatches, PictureSource
from regard.data.pictures.config import PictureFormat
from regard.data.pictures.load import SHAPES, Captioned, load_captions
from regard.data.pictures.store import PictureStore
from regard.errors import RegardError, UsageError
from regard.evaluate.captions import score_captions
from regard.evaluate.translation import exact_match
from regard.models.config import AnswererConfig, CaptionTransformerConfig, ShowAndTellConfig, ShowAttendTellConfig
from regard.models.configs.pictures import EfficientNetConfig
from regard.predictor import Cancel, check_cancel
from regard.runs import bundle_folder
from regard.tasks.caption.config import CaptionConfig
from regard.tasks.caption.features import PictureFeatures, features_of
from regard.tasks.caption.predictor import Captioner
from regard.tasks.config import RunConfig
from regard.tasks.finetune import few_at_once, fine_tuning, mixed, mixing_note, old_data
from regard.tasks.recipe import PreparedRun, Setup, digest_of, every_batch, loss_metrics, mean_loss
from regard.tasks.subject import (
    EXTRA,
    LENGTHS,
    SeeingSubject,
)
from regard.tokens import PAD, TextTokenizer, TokenizerPair, as_arrays
from regard.training.events import Choice, OnEvent, counting, silent
from regard.training.finetune import NEW, OLD, Side
from regard.training.state import Fingerprint
from regard.training.validation import Validation, interval_error, share_error
from regard.world import world

KNOWING, KNOWING_SIZE = "efficientnet-lite0.safetensors", 224  # weights that know ImageNet, and their pictures
Captioning = ShowAttendTellConfig | CaptionTransformerConfig | ShowAndTellConfig
Seeing = Captioning | AnswererConfig  # configurations with an encoder of pictures


def prepare_caption(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read pictures and captions, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, CaptionConfig)
    assert isinstance(config.model, Captioning)
    config = choose_encoder(config, setup)
    reading = counting(setup.emit, "reading pictures")
    train, valid, picture_format, notes = load_captions(config.data, setup.data_root, reading)
    before, old = old_data(config, config.data), None
    if config.start is not None:
        picture_format = _seen_before(config.start, setup.data_root, picture_format)
    if before is not None:
        before = before.model_copy(update={"size": config.data.size, "fit": config.data.fit})
        old = load_captions(before, setup.data_root, reading)[:2]
    words = {word for each in train.captions for text in each for word in text.lower().split()}
    config = setup.choose(config, examples=len(train.rows), size=picture_format.size, words=len(words))
    assert isinstance(config, CaptionConfig)
    assert isinstance(config.model, Captioning)
    setup.note(config)
    tokenizer = setup.tokenizer(config, lambda most: [text for each in train.captions for text in each])
    found = with_path(config.model, setup.data_root)
    model = setup.build(config, (tokenizer.size,), pictures=picture_format, model=found)
    about = BundleConfig(
        task="caption",
        pictures=picture_format,
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=without_path(config.model),
        decode=config.decode,
    )
    batches = _batches(config, train, tokenizer, picture_format, model, config.train.seed, setup.emit)
    held = _batches(config, valid, tokenizer, picture_format, model, None, setup.emit)
    validate = _validation(held, valid, about, tokenizer, config)
    data: Fingerprint = {
        "the training data": [train.store.sha256, len(batches)],
        "the captions": digest_of(*train.captions),
        "the validation data": [valid.store.sha256, digest_of(*valid.captions)],
    }
    sides, learned = [Side(NEW, validate, partial(few_at_once, held.take, len(held)))], None
    if old is not None:
        learned = _batches(config, old[0], tokenizer, picture_format, model, config.train.seed, setup.emit)
        seen = _batches(config, old[1], tokenizer, picture_format, model, None, setup.emit)
        sides.append(
            Side(OLD, _validation(seen, old[1], about, tokenizer, config), partial(few_at_once, seen.take, len(seen)))
        )
        data["the old data"] = [old[0].store.sha256, digest_of(*old[0].captions), digest_of(*old[1].captions)]
    job = setup.job(
        config,
        Bundle(about, model, TokenizerPair(tokenizer, tokenizer), {}),
        mixed(config, batches, learned),
        validate,
        data,
        held_out=lambda: every_batch(held),
        tuning=fine_tuning(config, setup.folder, setup.resume, sides),
    )
    notes += mixing_note(config, before, "" if learned is None else f"{len(learned):,} captions")
    counts = f"{len(train.rows):,} training and {len(valid.rows):,} validation pictures, {len(batches):,} captions"
    return PreparedRun(job, (*notes, f"{counts}, {tokenizer.size:,} words"))


def _seen_before(start: str, data_root: Path | None, now: PictureFormat) -> PictureFormat:
    """How pictures are shown to a model that goes on from another: with the numbers that this one learned with."""
    place = Path(start) if Path(start).exists() or data_root is None else data_root / start
    before = load_bundle(bundle_folder(place)).config.pictures
    if before is None or (before.size, before.channels) != (now.size, now.channels):
        sees = "" if before is None else f" of {before.size} pixels and {before.channels} channels"
        these = f"{now.size} and {now.channels}"
        raise UsageError(f"start: the model of {start} sees pictures{sees}; these have {these}", "leave data.size out")
    return before


def choose_encoder(config: CaptionConfig, setup: Setup) -> CaptionConfig:
    """The configuration with a network that knows photographs, if its weights are at hand and nobody asked for another."""
    asked = frozenset() if setup.chooser is None else setup.chooser.asked
    taken = config.start is not None or config.data.train == (SHAPES,)
    if setup.chooser is None or taken or asked & {"preset", "data.size", "model.encoder"}:
        return config
    try:
        find_file(KNOWING, setup.data_root)
    except RegardError:
        return config
    assert isinstance(config.model, Captioning)
    encoder = EfficientNetConfig(weights=KNOWING, depth="block-7")
    choices = [
        Choice(
            "model.encoder", encoder.kind, f"{KNOWING} is at hand: it has learned to see from a million photographs"
        ),
        Choice("data.size", KNOWING_SIZE, "the size it learned with"),
    ]
    setup.chooser.choices += choices
    model = config.model.model_copy(update={"encoder": encoder})
    data = config.data.model_copy(update={"size": KNOWING_SIZE})
    return config.model_copy(update={"model": model, "data": data})


def with_path(model: Seeing, data_root: Path | None) -> Seeing:
    """The model's configuration with the file of its encoder's weights, found as all data is."""
    if model.encoder.kind != "efficientnet-lite0" or not model.encoder.weights:
        return model
    weights = str(find_file(model.encoder.weights, data_root))
    return model.model_copy(update={"encoder": model.encoder.model_copy(update={"weights": weights})})


def without_path(model: Seeing) -> Seeing:
    """The model's configuration for its bundle, which holds the encoder's weights itself."""
    if model.encoder.kind != "efficientnet-lite0":
        return model
    return model.model_copy(update={"encoder": model.encoder.model_copy(update={"weights": ""})})


def source_of(
    model: nn.Module, store: PictureStore, picture_format: PictureFormat, emit: OnEvent = silent
) -> PictureStore | PictureFeatures:
    """The pictures that batches show, or their features where the encoder does not learn."""
    encoder = model.get_submodule("encoder")
    learns = any(parameter.requires_grad for parameter in encoder.parameters())
    return store if learns else features_of(encoder, store, picture_format, counting(emit, "computing features"))


def _batches(
    config: CaptionConfig,
    part: Captioned,
    tokenizer: TextTokenizer,
    picture_format: PictureFormat,
    model: nn.Module,
    seed: int | None,
    emit: OnEvent,
) -> CaptionBatches:
    """Every caption with its picture; without a seed, for validation."""
    texts = [text for each in part.captions for text in each]
    pictures = np.repeat(part.rows, [len(each) for each in part.captions])
    ids = as_arrays(tokenizer.encode_all(texts), begin=True)
    if seed is not None:
        short = np.array([len(each) <= config.data.max_length for each in ids])
        ids, pictures = [each for each, keep in zip(ids, short, strict=True) if keep], pictures[short]
    source = source_of(model, part.store, picture_format, emit)
    return CaptionBatches(
        source,
        pictures,
        ids,
        picture_format,
        config.train.batch_pictures,
        seed or 0,
        pad=PAD,
        augment=None if seed is None else config.data.augment,
        by_length=isinstance(source, PictureFeatures),  # batch norm must not learn that pictures of a batch are alike
    )


def _validation(
    batches: CaptionBatches, part: Captioned, bundle: BundleConfig, tokenizer: TextTokenizer, config: CaptionConfig
) -> Callable[[nn.Module], Validation]:
    """Loss and perplexity of all captions; BLEU-4 (and how many are exactly right of drawn scenes) of the first pictures."""
    rows = part.rows[: config.validate_.pictures]
    references = part.captions[: config.validate_.pictures]

    def validate(model: nn.Module) -> Validation:
        metrics = loss_metrics(*mean_loss(model, every_batch(batches)))
        if not len(rows):
            return Validation(metrics)
        pair = TokenizerPair(tokenizer, tokenizer)
        captioner = Captioner(Bundle(bundle, model, pair, {}))
        outputs = world().in_parts(
            rows.tolist(), lambda some: written(captioner, batches.source, np.array(some), beam=1)
        )
        scores = score_captions(outputs, references)
        metrics["bleu4"], errors = scores.bleu4, {"bleu4": interval_error(scores.bleu4_interval)}
        if config.data.train == (SHAPES,):
            metrics["exact"] = exact_match(outputs, [each[0] for each in references])
            errors["exact"] = share_error(metrics["exact"], len(rows))
        several = zip(rows, outputs, references, strict=True)
        shown = [(Path(part.store.name(row)).name, output, wanted[0]) for row, output, wanted in several]
        return Validation(metrics, shown[: config.validate_.samples], errors)

    return validate


def written(
    captioner: Captioner, source: PictureSource, rows: np.ndarray, cancel: Cancel | None = None, **options: object
) -> list[str]:
    """Captions of pictures of a store, or of their features."""
    decode = captioner.options(options)
    out: list[str] = []
    for start in range(0, len(rows), decode.batch_sentences):
        check_cancel(cancel)
        shown = source.take(rows[start : start + decode.batch_sentences])
        pixels = torch.from_numpy(shown)
        if not isinstance(source, PictureFeatures):
            pixels = normalise(pixels.permute(0, 3, 1, 2), captioner.format)
        found = captioner.search(pixels.to(captioner.device), decode, first=start)
        out += [captioner.text(each[0].ids) for each in found]
    return out


class CaptionSubject(SeeingSubject):
    """Pictures with captions to write."""

    @cached_property
    def captions(self) -> list[np.ndarray]:
        return as_arrays([ids.tolist() for ids in self.draw(LENGTHS, special=2)], begin=True)

    def take(self, rows: Sequence[int]) -> CaptionBatch:
        target, lengths = padded([self.captions[row] for row in rows], PAD)
        return CaptionBatch(self.pixels[list(rows)], target, lengths - 1, int(lengths.sum()) - len(lengths))

    def lengthened(self, batch: CaptionBatch) -> CaptionBatch:
        return replace(batch, target=pad(batch.target, (0, EXTRA - 1), value=PAD))

    def real(self, outputs: Tensor, batch: CaptionBatch) -> list[Tensor]:
        return [row[:length] for row, length in zip(outputs, batch.target_lengths.tolist(), strict=True)]

    def reads(self, batch: CaptionBatch) -> tuple[Tensor]:
        return (batch.pixels,)

    def writes(self, batch: CaptionBatch) -> Tensor:
        return batch.target

    def rewritten(self, batch: CaptionBatch, ids: Tensor) -> CaptionBatch:
        lengths = torch.full_like(batch.target_lengths, ids.size(1) - 1)
        return replace(batch, target=ids, target_lengths=lengths, target_tokens=int(lengths.sum()))
