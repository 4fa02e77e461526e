"""Transcribe: a sound in, its words out, with their times, and where the model looked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack, cast, overload

import numpy as np
import torch
from torch import Tensor

from regard.attention import channel, record
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.config import check
from regard.data.batch import pad
from regard.data.sound.waves import Sound
from regard.decode.config import DecodeConfig, DecodeOptions
from regard.decode.ctc import Told, align, greedy, log_probability, prefix_beam, spans
from regard.decode.search import Stepper, generate
from regard.errors import UsageError
from regard.files import JSON
from regard.look.hearing import HeardView, HeardWord, head_title
from regard.models.conformer import BLANK, ConformerCTC, ConformerTransformer
from regard.models.encoder_decoder import Memory
from regard.models.protocols import has_steps
from regard.predictor import Cancel, Predictor, Progress, Result, check_cancel
from regard.tasks.hear import LONG, Audio, Sounds, frames_of, name_of, pieces_of, seconds_of, sounds_of
from regard.tokens import BEGIN, END, PAD, UNKNOWN, as_arrays

Listening = Callable[[float, float], None]  # (seconds of a sound heard so far, its seconds in all)

SHOWN = 12  # tokens whose probabilities are drawn, the likeliest


@dataclass(frozen=True)
class Transcript(Result):
    """What was said in a sound, word by word; times are in seconds from its beginning."""

    audio: str
    text: str
    seconds: float
    score: float  # log-probability of the text, of all pieces
    words: tuple[HeardWord, ...]  # empty where the model has no CTC, which times come from
    attention: HeardView | None = None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return brief(self, quoted(self.audio), quoted(self.text), score=self.score)

    def data(self) -> dict[str, JSON]:
        words = [word.data() for word in self.words]
        found: dict[str, JSON] = {"audio": self.audio, "text": self.text, "seconds": self.seconds, "score": self.score}
        look = {} if self.attention is None else {"attention": self.attention.data()}
        return {**found, "words": words, **look}


@dataclass(frozen=True, eq=False)
class Heard:
    """A piece of a sound as the encoder gave it: what each frame tells (T', V), None where there is no CTC."""

    frames: np.ndarray | None


class TranscribeOptions(DecodeOptions, total=False):
    """Keyword arguments of `Transcriber.transcribe`."""

    attention: bool
    piece: float
    ctc: float | None
    listening: Listening | None
    progress: Progress | None
    cancel: Cancel | None


class Transcriber(Predictor):
    """A trained transcriber, ready to use."""

    model: ConformerCTC | ConformerTransformer

    def __init__(self, bundle: Bundle) -> None:
        assert bundle.config.sounds is not None
        super().__init__(bundle)
        self.tokenizer, self.format = bundle.tokenizer, bundle.config.sounds

    @overload
    def transcribe(self, sounds: Audio, **options: Unpack[TranscribeOptions]) -> Transcript: ...
    @overload
    def transcribe(self, sounds: Sounds, **options: Unpack[TranscribeOptions]) -> list[Transcript]: ...

    def transcribe(
        self,
        sounds: Audio | Sounds,
        *,
        attention: bool = False,
        piece: float = LONG,
        ctc: float | None = None,
        listening: Listening | None = None,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Unpack[DecodeOptions],
    ) -> Transcript | list[Transcript]:
        """Write down what is said in a sound (a file, or a `Sound`), or in several; `options` are those of decoding.

        A sound is heard in pieces of `piece` seconds, cut at quiet places, so that its length does not matter. `ctc` is the
        share of CTC in the score, where the model has a decoder, too: 1 is CTC alone, 0 the decoder. `cancel` is asked before
        each piece whether to stop, which raises `Cancelled`.
        """
        listed, several = sounds_of(sounds)
        decode, out = self.options(options), list[Transcript]()
        for each in listed:
            parts = _told(pieces_of(each, self.format.rate, piece), seconds_of(each), listening)
            found = self._whole(name_of(each), parts, decode, ctc, cancel)
            out.append(replace(found, attention=self.look(each, ctc=ctc, **options)) if attention else found)
            if progress is not None:
                progress(len(out), len(listed))
        return out if several else out[0]

    def options(self, over: Mapping[str, object]) -> DecodeConfig:
        """The bundle's own decoding options, laid over by the given ones."""
        return check(DecodeConfig, {**self.config.decode.model_dump(), **over}, "decode")

    def _whole(
        self,
        name: str,
        parts: Iterator[tuple[float, Sound]],
        decode: DecodeConfig,
        ctc: float | None,
        cancel: Cancel | None,
    ) -> Transcript:
        texts, words, score, end = list[str](), list[HeardWord](), 0.0, 0.0
        for start, sound in parts:
            check_cancel(cancel)
            end = start + sound.seconds
            if sound.silent:
                continue
            told, heard = self._piece(sound, decode, ctc)
            texts.append(self.text(told.ids))
            score += told.log_probability
            words += self._words(told.ids, heard, start)
        return Transcript(name, " ".join(text for text in texts if text), end, score, tuple(words))

    def _piece(self, sound: Sound, decode: DecodeConfig, ctc: float | None) -> tuple[Told, Heard]:
        frames, lengths = frames_of([sound], self.format, self.device)
        told = self.search(frames, lengths, decode, ctc)[0][0]
        return told, Heard(self._told_by_frames(frames, lengths)[0] if self.model.ctc is not None else None)

    @torch.inference_mode()
    def search(
        self, frames: Tensor, lengths: Tensor, options: DecodeConfig, ctc: float | None = None
    ) -> list[list[Told]]:
        """The best texts of sounds as frames (B, T, M), best first.

        CTC alone: greedily, or by prefixes if the beam is wider. With a decoder, hypotheses of both searches are ranked by
        (1 - λ) log p of the decoder + λ log p of CTC (Watanabe et al. 2017, eq. 22), where λ is `ctc`, or as in training.
        """
        share = self._share(ctc)
        rows = self._told_by_frames(frames, lengths) if share else []
        by_frames = [
            [greedy(row, BLANK)] if options.beam == 1 else prefix_beam(row, options.beam, BLANK) for row in rows
        ]
        if share == 1:
            return by_frames
        written = self._written(frames, lengths, options)
        if not share:
            return written
        memory = self.model.encoder(frames, lengths)
        found = []
        for number, (row, one, other) in enumerate(zip(rows, written, by_frames, strict=True)):
            texts = list(dict.fromkeys(each.ids for each in (*one, *other)))
            alone = Memory(memory.vectors[number : number + 1, : len(row)].expand(len(texts), -1, -1), None, "frames")
            found.append(_ranked(texts, self._scores(texts, alone), row, share))
        return found

    def _written(self, frames: Tensor, lengths: Tensor, options: DecodeConfig) -> list[list[Told]]:
        """The best texts by the decoder alone."""
        limits = [max(1, int(length)) for length in self.model.encoder.lengths(lengths).tolist()]
        with channel.reading(range(len(frames)), spell=self.tokenizer.labels):
            found = generate(
                cast("Stepper[object]", self.model), (frames, lengths), torch.full((len(frames), 1), BEGIN, device=self.device),
                end=END, limits=limits, options=options.model_copy(update={"n_best": options.beam}),
                forbidden=(PAD, BEGIN, UNKNOWN),
            )  # fmt: skip
        return [[Told(each.ids, each.log_probability) for each in row] for row in found]

    def _scores(self, texts: Sequence[tuple[int, ...]], memory: Memory) -> list[float]:
        """log p of the decoder for each of several texts of one sound, whose memory is there for each."""
        model = cast("ConformerTransformer", self.model)
        ids, lengths = pad(as_arrays([list(each) for each in texts], begin=True), PAD)
        told = model.output(model.decode(ids[:, :-1].to(self.device), memory)).double().log_softmax(dim=-1)
        each = told.gather(-1, ids[:, 1:, None].to(self.device)).squeeze(-1).cpu()  # (N, T)
        return [float(row[: length - 1].sum()) for row, length in zip(each, lengths.tolist(), strict=True)]

    def _share(self, asked: float | None) -> float:
        """The share of CTC in a score: 1 without a decoder, else as asked, or as in training."""
        if not has_steps(self.model):
            return 1.0
        model = cast("ConformerTransformer", self.model)
        if asked is not None and not 0 <= asked <= 1:
            raise UsageError(f"ctc is a share from 0 to 1, not {asked:g}")
        if asked and model.ctc is None:
            raise UsageError(
                "this model has no CTC beside its decoder; leave ctc out, or train with model.ctc_weight=0.3"
            )
        return model.config.ctc_weight if asked is None else asked

    @torch.inference_mode()
    def _told_by_frames(self, frames: Tensor, lengths: Tensor) -> list[np.ndarray]:
        """The log-probability of each token in each frame, (T', V) of each row; begin, end and unknown are never told."""
        memory = self.model.encoder(frames, lengths)
        logits = self.model.frame_logits(memory).double()
        logits[..., [BEGIN, END, UNKNOWN]] = -torch.inf
        rows = zip(logits.log_softmax(dim=-1).cpu().numpy(), self.model.encoder.lengths(lengths).tolist(), strict=True)
        return [row[:length] for row, length in rows]

    def text(self, ids: Sequence[int]) -> str:
        """The text that these ids spell."""
        return " ".join(self.tokenizer.decode(ids).split())

    def spelled(self, text: str) -> str:
        """A text as the model could write it: lower case, if its tokens are."""
        return self.text(self.tokenizer.encode(text))

    def _words(self, ids: Sequence[int], heard: Heard, start: float) -> list[HeardWord]:
        """The words of a text with their times, from the likeliest CTC path that tells it."""
        if heard.frames is None or not ids:
            return []
        path = align(heard.frames, tuple(ids), BLANK)
        if not len(path):
            return []
        at, step = spans(path, len(ids)), self.format.seconds(self.model.config.subsampling)
        sure = [
            float(np.exp(heard.frames[first:end, token]).max()) for (first, end), token in zip(at, ids, strict=True)
        ]
        return [
            HeardWord(
                word, start + at[tokens[0]][0] * step, start + at[tokens[-1]][1] * step, min(sure[i] for i in tokens)
            )
            for word, tokens in self._of_words(ids)
        ]

    def _of_words(self, ids: Sequence[int]) -> list[tuple[str, list[int]]]:
        """Each word, and which of the ids spell it."""
        whole = self.tokenizer.decode(ids)
        ends = [len(self.tokenizer.decode(ids[: place + 1])) for place in range(len(ids))]
        starts = [0, *ends[:-1]]
        found = []
        for word in re.finditer(r"\S+", whole):
            inside = [
                place for place, (first, end) in enumerate(zip(starts, ends, strict=True))
                if first < word.end() and end > word.start() and whole[first:end].strip()
            ]  # fmt: skip
            if inside:
                found.append((word[0], inside))
        return found

    def look(
        self,
        sound: Audio,
        layer: int | None = None,
        head: int | None = None,
        ctc: float | None = None,
        **options: Unpack[DecodeOptions],
    ) -> HeardView:
        """The first piece of a sound: its spectrogram with the words, the CTC path, and where the model looked."""
        _, first = next(pieces_of(sound, self.format.rate, LONG))
        frames, lengths = frames_of([first], self.format, self.device)
        told, heard = self._piece(first, self.options(options), ctc)
        view = HeardView(
            title=self.text(told.ids) or "nothing was heard", notes=(), frames=frames[0].cpu().numpy(),
            hop=self.format.seconds(1), step=self.model.config.subsampling,
            words=tuple(self._words(told.ids, heard, 0.0)),
        )  # fmt: skip
        if heard.frames is not None:
            view = self._with_path(view, np.exp(heard.frames))
        return self._with_attention(view, frames, lengths, told, layer, head)

    def _with_path(self, view: HeardView, shares: np.ndarray) -> HeardView:
        """The view with the probabilities of the blank and of the likeliest tokens, in the order in which they come."""
        peaks = shares.max(axis=0)
        likely = [int(token) for token in np.argsort(-peaks) if token != BLANK and peaks[token] > 0.1][:SHOWN]
        shown = sorted(likely, key=lambda token: int(shares[:, token].argmax()))
        names = ("blank", *(self.tokenizer.labels([token])[0] for token in shown))
        return replace(view, path=shares[:, [BLANK, *shown]], tokens=names)

    @torch.inference_mode()
    def _with_attention(
        self, view: HeardView, frames: Tensor, lengths: Tensor, told: Told, layer: int | None, head: int | None
    ) -> HeardView:
        """The view with what each written token looked at; without a decoder, what frames look at."""
        with record(self.model) as seen:
            memory = self.model.encoder(frames, lengths)
            if has_steps(self.model):
                cast("ConformerTransformer", self.model).decode(
                    torch.tensor([[BEGIN, *told.ids]], device=self.device), memory
                )
        cross = [call.weights()[0].double().cpu().numpy() for call in seen.only("cross")]
        if not cross:
            own, title = head_title([call.weights()[0].double().cpu().numpy() for call in seen.calls], layer, head)
            return replace(view, own=own, own_title=title)
        weights, title = head_title(cross, layer, head)
        names = (*self.tokenizer.labels(told.ids), "end")
        return replace(view, cross=weights, written=names, cross_title=title)


def _told(
    parts: Iterator[tuple[float, Sound]], total: float, listening: Listening | None
) -> Iterator[tuple[float, Sound]]:
    """The pieces of a sound; behind each is told how much of it was heard."""
    for start, sound in parts:
        yield start, sound
        if listening is not None:
            listening(start + sound.seconds, total)


def _ranked(texts: Sequence[tuple[int, ...]], scores: Sequence[float], frames: np.ndarray, share: float) -> list[Told]:
    """Texts by a decoder's scores with a share of CTC in them, best first."""
    both = [
        (1 - share) * score + share * log_probability(frames, ids, BLANK)
        for ids, score in zip(texts, scores, strict=True)
    ]
    order = np.argsort([-score for score in both], kind="stable")
    return [Told(texts[place], both[place]) for place in order]
