"""Generate: how a text begins in, how it goes on out; with the same path for the terminal, files and Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast, overload

import numpy as np
import torch
from torch import Tensor

from regard.attention import channel
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.config import check
from regard.data.batch import TextBatch
from regard.data.stream import TokenStream, evaluation_batches
from regard.decode.config import DecodeConfig
from regard.decode.ranking import Hypothesis, Live
from regard.decode.search import Sliding, Stepper, generate
from regard.errors import UsageError
from regard.inspect.texts import (
    LONGEST,
    WINDOW,
    Batch,
    LanguagePredictor,
    Material,
    Texts,
    next_token_losses,
    stretches,
)
from regard.look import SentenceAttention, sentence_of
from regard.models.config import GPTLineConfig
from regard.models.language import LanguageModel
from regard.predictor import Reading, read_one
from regard.tokens import TextTokenizer

LENGTH = 200  # most tokens where neither the person nor the model says how many
ANY_LENGTH = 512  # tokens of a window where the model reads any number
BATCH = 16  # windows of text scored together
NEAR = 8  # tokens that are enough to know how the next one is decoded
NO_LETTER = "\ufffd"  # what decoding puts for bytes that are no UTF-8


@dataclass(frozen=True)
class Generated:
    """How one text goes on."""

    prompt: str
    text: str  # what was added to it
    score: float
    log_probability: float
    tokens: tuple[str, ...]  # what each new id reads as
    token_log_probabilities: tuple[float, ...]
    finished: bool  # False: the length limit ended it
    alternatives: tuple[Generated, ...] = ()
    attention: SentenceAttention | None = None  # of the prompt and what was added to it

    def __str__(self) -> str:
        return self.prompt + self.text

    def __repr__(self) -> str:
        return brief(self, quoted(str(self)), score=self.score)


@dataclass(frozen=True)
class TextScore:
    """What a model thinks of a given text."""

    text: str
    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return math.exp(-self.log_probability / max(1, self.tokens))

    @property
    def bits_per_byte(self) -> float:
        return -self.log_probability / math.log(2) / max(1, len(self.text.encode()))


class Generator(LanguagePredictor):
    """A trained language model, ready to use."""

    model: LanguageModel

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.tokenizer = bundle.tokenizer

    @overload
    def generate(self, prompt: str, **options: Any) -> Generated: ...
    @overload
    def generate(self, prompt: Sequence[str], **options: Any) -> list[Generated]: ...

    def generate(
        self,
        prompt: str | Sequence[str] = "",
        *,
        stop: Sequence[str] = (),
        stream: Callable[[str], None] | None = None,
        attention: bool = False,
        places: Sequence[int] | None = None,
        **options: Any,
    ) -> Generated | list[Generated]:
        """Go on with a text, or several; `options` are those of decoding (sample, temperature, beam, max_length, ...).

        stop       strings before which a text ends
        stream     is called with each piece of the new text as soon as it is certain (one prompt, one sequence)
        attention  where each token looked: one pass over the prompt and the new text, equal to the steps that wrote it
        places     of the prompts in a longer input that comes in parts: samples depend on the place
        """
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        alone = {"beam": 1, "n_best": 1} if stream is not None else {}  # a search over several cannot be streamed
        decode = self.options({**alone, **options})
        check_stop(stop)
        ids = [[self.tokenizer.specials.begin, *self.tokenizer.encode(each)] for each in prompts]
        watch = None if stream is None else self._streamed(ids, decode, stop, stream)
        numbers = range(len(prompts)) if places is None else places
        found: list[Generated | None] = [None] * len(prompts)
        for group in _of_equal_length(ids, decode.batch_sentences):
            with channel.reading(group, spell=self.tokenizer.labels):
                results = self._search([ids[i] for i in group], [numbers[i] for i in group], decode, stop, watch)
            for place, hypotheses in zip(group, results, strict=True):
                one = self._generated(prompts[place], ids[place], hypotheses, stop)
                seen = self._attention([*ids[place][1:], *hypotheses[0].ids]) if attention else None
                found[place] = one if seen is None else replace(one, attention=seen)
        out = [each for each in found if each is not None]
        if watch is not None:
            watch.finish(out[0].text)
        return out[0] if isinstance(prompt, str) else out

    def options(self, over: dict[str, Any]) -> DecodeConfig:
        """The bundle's own decoding options, laid over by the given ones."""
        base = self.config.decode.model_dump()
        if over.get("sample") is False or over.get("beam", 1) > 1:  # a search has no use for what shapes draws
            base |= {"sample": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
            base["beam"] = 1
        return check(DecodeConfig, {**base, "batch_sentences": BATCH, **over}, "decode")

    def _search(
        self,
        ids: list[list[int]],
        places: list[int],
        options: DecodeConfig,
        stop: Sequence[str],
        watch: _Stream | None,
    ) -> list[list[Hypothesis]]:
        special, size = self.tokenizer.specials, self.tokenizer.size
        unused = range(size, self.config.vocabulary[0])
        longest = self.config.model.longest
        limit = LENGTH if options.max_length is None else options.max_length
        stepper = cast("Stepper[object]", self.model)
        return generate(
            stepper if longest is None else cast("Stepper[object]", Sliding(stepper, longest)),
            None,
            torch.tensor(ids, device=self.device),
            end=special.end,
            also_end=special.also_end,
            limits=[limit] * len(ids),
            options=options,
            forbidden=sorted((special.all - special.ends) | set(unused)),
            streams=places,
            stops=self._stops(ids[0], stop) if stop else None,
            watch=watch,
        )

    def _streamed(
        self, ids: list[list[int]], options: DecodeConfig, stop: Sequence[str], give: Callable[[str], None]
    ) -> _Stream:
        if len(ids) != 1 or options.n_best > 1 or (options.beam > 1 and not options.sample):
            raise UsageError("stream is for one prompt and one sequence; leave out beam and n_best, or stream")
        return _Stream(self.tokenizer, ids[0], stop, give)

    def _stops(self, prompt: list[int], stop: Sequence[str]) -> Callable[[list[int]], bool]:
        """Whether what was added holds a stop string; only its end is looked at, which is all that can be new."""
        tail = NEAR + max(len(each.encode()) for each in stop)

        def stops(ids: list[int]) -> bool:
            before = [*prompt[-NEAR:], *ids[:-tail]][-NEAR:]
            text = added(self.tokenizer, before, ids[-tail:])
            return any(each in text for each in stop)

        return stops

    def _generated(self, prompt: str, ids: list[int], hypotheses: list[Hypothesis], stop: Sequence[str]) -> Generated:
        each = [self._one(prompt, ids, hypothesis, stop) for hypothesis in hypotheses]
        return each[0] if len(each) == 1 else replace(each[0], alternatives=tuple(each[1:]))

    def _one(self, prompt: str, ids: list[int], found: Hypothesis, stop: Sequence[str]) -> Generated:
        return Generated(
            prompt,
            before_stop(added(self.tokenizer, ids, found.ids), stop),
            found.score,
            found.log_probability,
            tuple(self.tokenizer.labels(found.ids)),
            found.token_log_probabilities,
            found.finished,
        )

    @torch.inference_mode()
    def score(self, texts: Sequence[str], *, overlap: int | None = None) -> list[TextScore]:
        """The log-probability of each text, its end not counted; long ones in windows of the model's context."""
        return [self._score(text, overlap, place) for place, text in enumerate(texts)]

    def _score(self, text: str, overlap: int | None, place: int) -> TextScore:
        ids = np.array([self.tokenizer.specials.begin, *self.tokenizer.encode(text)])
        total, count, windows = 0.0, 0.0, 0
        shared = self.context // 2 if overlap is None else overlap
        stream = TokenStream(ids, self.tokenizer.size)
        for batch in evaluation_batches(stream, self.context, BATCH, shared) if len(ids) > 1 else ():
            starts = [(windows + row) * (self.context - shared) for row in range(len(batch.ids))]
            with channel.reading([place] * len(starts), partial(self._labels, batch.ids), starts=starts):
                part = self.model(batch.to(self.device)).parts["nll"]
            windows += len(starts)
            total, count = total + float(part.sum), count + part.count
        return TextScore(text, -total, int(count))

    def _labels(self, ids: torch.Tensor, row: int) -> channel.Tokens:
        return {"text": self.tokenizer.labels(ids[row].tolist())}

    @property
    def context(self) -> int:
        """How many tokens the model reads at once."""
        model = self.config.model
        return model.max_length if isinstance(model, GPTLineConfig) else ANY_LENGTH

    def read(self, text: str, second: str | None = None) -> Reading:
        return self.read_ids(self.tokenizer.encode(text))

    def read_ids(self, source: Sequence[int], target: Sequence[int] = ()) -> Reading:
        """Read as many ids of one text, behind the begin token, as the model reads at once."""
        ids = tuple([self.tokenizer.specials.begin, *source][: self.context])
        run, whole = (lambda: self.model.read(self.as_row(ids))), 1 + len(source)
        return read_one(self, self.tokenizer, ids, run, "causal", whole=whole, predicted=ids[1:])

    def output_table(self) -> Tensor:
        return self.model.output.weight

    def tokenizer_of(self, axis: str) -> TextTokenizer:
        return self.tokenizer

    def texts(self, material: Material, count: int, longest: int = LONGEST) -> Texts:
        """Windows of a stream of ids, or of documents one after the other as in training."""
        items = material.items
        stream = items if isinstance(items, np.ndarray) else self._joined(cast("Sequence[str]", items), count)
        size = min(WINDOW, self.context, material.context or WINDOW)
        starts = [start for start in range(0, len(stream) - 1, size) if start + size < len(stream)][:count] or [0]
        windows = [np.asarray(stream[start : start + size + 1], dtype=np.int64) for start in starts]
        if len(windows[0]) < 3:
            raise UsageError(f"{material.name} has {len(windows[0])} tokens, too few to see anything; give more text")
        return stretches(self, windows, material.name)

    def _joined(self, texts: Sequence[str], count: int) -> np.ndarray:
        """The ids of as many documents as `count` windows need, each with its begin and end."""
        special, ids = self.tokenizer.specials, list[int]()
        for text in texts:
            ids += [special.begin, *self.tokenizer.encode(text), special.end]
            if len(ids) > (count + 1) * WINDOW:
                break
        return np.array(ids)

    def predictions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert isinstance(batch, TextBatch)
        return next_token_losses(self.model.hidden(batch), self.model.output.weight, batch.ids, batch.lengths)

    def attentions(self, text: str, second: str | None = None) -> SentenceAttention:
        return self.attention(text)

    def attention(self, text: str) -> SentenceAttention:
        """Where each token of a text looked, in every layer and head."""
        return self._attention(self.tokenizer.encode(text))

    def _attention(self, ids: Sequence[int]) -> SentenceAttention:
        """One pass over as many ids as the model reads at once; what follows was written from a later window."""
        found = sentence_of(self.read_ids(ids).look(), "causal")
        beyond = len(ids) + 1 - self.context
        if beyond <= 0:
            return found
        return replace(found, notes=(f"the first {self.context} tokens; {beyond} more do not fit the context",))


def added(tokenizer: TextTokenizer, prompt: Sequence[int], new: Sequence[int]) -> str:
    """The text that new ids add behind a prompt's: decoding may join both, as where a letter is split over tokens.

    Bytes that are no letter, or not yet one, are left out: what more ids add only ever comes behind.
    """
    before, whole = (tokenizer.decode(ids).replace(NO_LETTER, "") for ids in (prompt, [*prompt, *new]))
    return whole[len(before) :]


def check_stop(stop: Sequence[str]) -> None:
    if not all(stop):
        raise UsageError("an empty stop string ends every text before it begins; leave it out")


def before_stop(text: str, stop: Sequence[str]) -> str:
    """The text up to the first stop string in it."""
    places = [place for each in stop if (place := text.find(each)) >= 0]
    return text[: min(places)] if places else text


class _Stream:
    """Hands out new text as it becomes certain: whole letters, and nothing that may be the beginning of a stop string."""

    def __init__(
        self, tokenizer: TextTokenizer, prompt: list[int], stop: Sequence[str], give: Callable[[str], None]
    ) -> None:
        self.tokenizer, self.prompt, self.stop, self.give = tokenizer, prompt, stop, give
        self.given = 0

    def __call__(self, live: Live) -> None:
        text = added(self.tokenizer, self.prompt, live.ids[0, 0].tolist())
        certain = len(text)
        for each in self.stop:
            certain = min([certain, *(len(text) - n for n in range(1, len(each)) if text.endswith(each[:n]))])
        self.finish(text[:certain])

    def finish(self, text: str) -> None:
        """Hand out what was not yet handed out of a text that is certain."""
        if len(text) > self.given:
            self.give(text[self.given :])
            self.given = len(text)


def _of_equal_length(ids: list[list[int]], most: int) -> list[list[int]]:
    """Places of prompts that can be read together: of one length, at most so many."""
    groups: dict[int, list[list[int]]] = {}
    for place, each in enumerate(ids):
        same = groups.setdefault(len(each), [[]])
        if len(same[-1]) == most:
            same.append([])
        same[-1].append(place)
    return [group for same in groups.values() for group in same]
