"""Train a model that writes down what is said: sounds decoded once, varied batch by batch, with the ids of their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.data.sound.batch import SpeechBatch
from regard.data.sound.batches import SpeechBatches, speech_batch
from regard.data.sound.load import SoundPart, load_sounds
from regard.evaluate.words import score_words
from regard.tasks.classify_sounds.recipe import heard_digest
from regard.tasks.config import RunConfig
from regard.tasks.hear import HearingSubject
from regard.tasks.recipe import PreparedRun, Setup, every_batch, loss_metrics, mean_loss
from regard.tasks.subject import TARGET_LENGTHS
from regard.tasks.transcribe.config import TranscribeConfig
from regard.tasks.transcribe.predictor import Transcriber
from regard.tokens import PAD, TextTokenizer, TokenizerPair, as_arrays
from regard.training.events import counting
from regard.training.validation import Validation
from regard.world import world

FEW_FRAMES = (
    "{count:,} of {total:,} training texts have more tokens than their sounds have frames, and teach CTC nothing"
)


def prepare_transcribe(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the sounds and their words, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, TranscribeConfig)
    sets = load_sounds(config.data, "text", setup.data_root, counting(setup.emit, "reading sounds"))
    config = setup.choose(config, examples=len(sets.train))
    assert isinstance(config, TranscribeConfig)
    setup.note(config)
    tokenizer = setup.tokenizer(config, lambda most: sets.train.told)
    model = setup.build(config, (tokenizer.size,), sounds=sets.format)
    about = BundleConfig(
        task="transcribe",
        sounds=sets.format,
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=config.model,
        decode=config.decode,
    )
    train = _batches(config, sets.train, tokenizer, config.train.seed)
    valid = _batches(config, sets.valid, tokenizer, None)
    pair = TokenizerPair(tokenizer, tokenizer)
    job = setup.job(
        config,
        Bundle(about, model, pair, {}),
        train,
        _validation(valid, sets.valid, about, pair, config),
        {"the training data": heard_digest(sets.train), "the validation data": heard_digest(sets.valid)},
    )
    seconds = float(sets.train.store.seconds[sets.train.rows].sum())
    sizes = f"{len(sets.train):,} training and {len(sets.valid):,} validation sounds, {seconds / 60:,.1f} minutes"
    told = f"{sizes} at {sets.format.rate:,} Hz, {tokenizer.size} tokens"
    return PreparedRun(job, (*sets.notes, *_cramped(config, train), told))


def _batches(config: TranscribeConfig, part: SoundPart, tokenizer: TextTokenizer, seed: int | None) -> SpeechBatches:
    """Sounds with the ids of their words; without a seed, for validation."""
    ids = as_arrays(tokenizer.encode_all(part.told), begin=True)
    augment = None if seed is None else config.data.augment
    return SpeechBatches(part, ids, config.train.batch_tokens, seed or 0, augment, fill=PAD)


def _cramped(config: TranscribeConfig, batches: SpeechBatches) -> tuple[str, ...]:
    """A warning where texts have no room in their frames, if CTC is learned."""
    step = getattr(config.model, "subsampling", 1)
    room = -(-batches.lengths // step)
    needed = np.array(
        [len(ids) - 2 + int((ids[2:-1] == ids[1:-2]).sum()) for ids in batches.ids]
    )  # repeats need a blank
    count = int((needed > room).sum())
    if not count or getattr(config.model, "ctc_weight", 1.0) == 0:
        return ()
    return (f"{FEW_FRAMES.format(count=count, total=len(batches))}; --set model.subsampling={max(1, step // 2)}",)


def _validation(
    batches: SpeechBatches, part: SoundPart, about: BundleConfig, pair: TokenizerPair, config: TranscribeConfig
) -> Callable[[nn.Module], Validation]:
    """Loss of all sounds; error rates of words and characters of the first, transcribed greedily."""
    rows = np.arange(min(len(part), config.validate_.sounds))
    wanted = [part.told[row] for row in rows]

    def validate(model: nn.Module) -> Validation:
        metrics = loss_metrics(*mean_loss(model, every_batch(batches)))
        if not len(rows):
            return Validation(metrics)
        transcriber = Transcriber(Bundle(about, model, pair, {}))
        found = world().in_parts(rows.tolist(), lambda some: written(transcriber, batches, np.array(some), beam=1))
        scores = score_words(found, [transcriber.spelled(text) for text in wanted])
        metrics |= {"wer": scores.wer.value, "cer": scores.cer.value}
        names = part.names()
        shown = [(names[row], found[row], wanted[row]) for row in rows[: config.validate_.samples]]
        return Validation(metrics, shown, {"wer": scores.wer.error, "cer": scores.cer.error})

    return validate


def written(
    transcriber: Transcriber, batches: SpeechBatches, rows: np.ndarray, ctc: float | None = None, **options: object
) -> list[str]:
    """Transcripts of sounds of a set, whose frames are kept, in their order."""
    decode = transcriber.options(options)
    order = rows[np.argsort(-batches.lengths[rows], kind="stable")]
    found: dict[int, str] = {}
    for start in range(0, len(order), decode.batch_sentences):
        some = order[start : start + decode.batch_sentences]
        frames, lengths = batches.heard(some)
        told = transcriber.search(frames.to(transcriber.device), lengths.to(transcriber.device), decode, ctc)
        found |= {int(row): transcriber.text(each[0].ids) for row, each in zip(some, told, strict=True)}
    return [found[int(row)] for row in rows]


class TranscribeSubject(HearingSubject):
    """Sounds with words to write."""

    @cached_property
    def texts(self) -> list[np.ndarray]:
        return as_arrays([ids.tolist() for ids in self.draw(TARGET_LENGTHS, special=2)], begin=True)

    def take(self, rows: Sequence[int]) -> SpeechBatch:
        return speech_batch(*self.heard(rows), [self.texts[row] for row in rows], PAD)

    def lengthened(self, batch: SpeechBatch) -> SpeechBatch:
        return replace(batch, frames=self.longer(batch.frames))

    def real(self, outputs: Tensor, batch: SpeechBatch) -> list[Tensor]:
        """Of a decoder the logits of each token, of CTC those of each frame."""
        lengths = batch.target_lengths if self._writes else self._frames(batch)
        return [row[:length] for row, length in zip(outputs, lengths.tolist(), strict=True)]

    def reads(self, batch: SpeechBatch) -> tuple[Tensor, ...]:
        return batch.frames, batch.lengths

    def writes(self, batch: SpeechBatch) -> Tensor:
        return batch.target if self._writes else super().writes(batch)

    def rewritten(self, batch: SpeechBatch, ids: Tensor) -> SpeechBatch:
        lengths = torch.full_like(batch.target_lengths, ids.size(1) - 1)
        return replace(batch, target=ids, target_lengths=lengths, target_tokens=int(lengths.sum()))

    @property
    def _writes(self) -> bool:
        return self.bundle.config.model.kind == "conformer-transformer"

    def _frames(self, batch: SpeechBatch) -> Tensor:
        encoder = self.bundle.model.get_submodule("encoder")
        return encoder.lengths(batch.lengths)  # type: ignore[no-any-return, operator]
