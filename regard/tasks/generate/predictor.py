"""Generate: how a text begins in, how it goes on out; with the same path for the terminal, files and Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Generator as Writing
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import channel
from regard.bundle import Bundle
from regard.config import check
from regard.data.batch import TextBatch, pad
from regard.data.chat_batches import prompt_ids
from regard.data.stream import TokenStream, evaluation_batches
from regard.decode.config import DecodeConfig, DecodeOptions, Engine, check_engine
from regard.decode.engine import Model
from regard.decode.live import Live
from regard.decode.ranking import Hypothesis
from regard.decode.search import Steps, groups, search_steps
from regard.decode.service import Serves
from regard.decode.stepper import Joins, Sliding, Stepper, sliding
from regard.decode.tickets import Request
from regard.errors import Advice, Option, UsageError
from regard.inspect.texts import (
    LONGEST,
    WINDOW,
    LanguagePredictor,
    Material,
    Texts,
    TextsBatch,
    next_token_losses,
    stretches,
)
from regard.look import SentenceAttention, sentence_of
from regard.models.config import GPTLineConfig, WaveNetConfig
from regard.models.configs.pixels import BEFORE, PixelsConfig
from regard.models.fast.language import FastLanguage
from regard.models.fast.stepper import LaidOut
from regard.models.fast.wavenet import FastWaveNet
from regard.models.language import LanguageModel
from regard.predictor import Cancel, Reading, SearchStart, check_cancel, read_one
from regard.tasks.generate.pieces import NEAR, Pieces, TextPiece, added, before_stop, check_stop
from regard.tasks.generate.results import Generated, TextScore
from regard.tasks.generate.streams import are_pictures, as_written, encode_texts
from regard.tokens import TextTokenizer
from regard.tokens.config import SPECIALS

if TYPE_CHECKING:
    from regard.interop.ctranslate2_engine import GenerationEngine

LENGTH = 200  # most tokens where neither the person nor the model says how many
ANY_LENGTH = 512  # tokens of a window where the model reads any number
BATCH = 16  # windows of text scored together
TOGETHER = 64  # prompts that go on together where nobody says how many


class GenerateOptions(DecodeOptions, total=False):
    """Keyword arguments of `Generator.generate`."""

    engine: Engine
    stop: Sequence[str]
    stream: Callable[[str], None] | None
    attention: bool
    places: Sequence[int] | None
    progress: Callable[[int, int], None] | None
    cancel: Cancel | None


class Generator(LanguagePredictor, Serves):
    """A trained language model, ready to use."""

    model: LanguageModel

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.tokenizer = bundle.tokenizer
        self.laid_out = LaidOut(bundle.model, _lay_out)
        self._sliding: Sliding[Any] | None = None  # around the stepper of that time
        self._other: GenerationEngine | None = None  # made when it is first asked for

    @overload
    def generate(self, prompt: str = ..., **options: Unpack[GenerateOptions]) -> Generated: ...
    @overload
    def generate(self, prompt: list[str] | tuple[str, ...], **options: Unpack[GenerateOptions]) -> list[Generated]: ...

    def generate(
        self,
        prompt: str | Sequence[str] = "",
        *,
        engine: Engine = "regard",
        stop: Sequence[str] = (),
        stream: Callable[[str], None] | None = None,
        attention: bool = False,
        places: Sequence[int] | None = None,
        progress: Callable[[int, int], None] | None = None,
        cancel: Cancel | None = None,
        **options: Unpack[DecodeOptions],
    ) -> Generated | list[Generated]:
        """Go on with a text, or several; `options` are those of decoding (sample, temperature, beam, max_length, ...).

        engine     "ctranslate2" searches in that library's kernels, to the same texts (`pip install 'regard[fast]'`)
        stop       strings before which a text ends
        stream     is called with each piece of the new text as soon as it is certain (one prompt, one sequence)
        attention  where each token looked: one pass over the prompt and the new text, equal to the steps that wrote it
        places     of the prompts in a longer input that comes in parts: samples depend on the place
        progress   is told after each step how many tokens were written, and how many there may be
        cancel     is asked after each step whether to stop, which raises `Cancelled`
        """
        check_engine(engine)
        if engine != "regard" and stream is not None:
            raise UsageError(f"{engine} gives whole texts, not pieces; leave out stream, or engine")
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        numbers = range(len(prompts)) if places is None else places
        if stream is not None:
            place = numbers[0] if len(prompts) == 1 else None
            events = self._streamed(prompts, options, stop=stop, attention=attention, place=place, cancel=cancel)
            out = [_told(events, stream)]
        else:
            out = self._generate(prompts, self.options(options), stop, numbers, attention, cancel, engine, progress)
        return out[0] if isinstance(prompt, str) else out

    def search_one(
        self, text: str, options: DecodeConfig, *, watch: Callable[[Live], None] | None = None
    ) -> list[Hypothesis]:
        """The best ways to go on with one text; `watch` sees the hypotheses that go on after each step."""
        search = self._steps([self.begun(text)], [0], options, ())
        while True:
            try:
                live = next(search)
            except StopIteration as done:
                found: list[Hypothesis] = done.value[0]
                return found
            if watch is not None:
                watch(live)

    def check(self, stop: Sequence[str] = (), **options: Unpack[DecodeOptions]) -> None:
        """Refuse what `generate` would refuse of its stop strings and options."""
        self.options(options)
        check_stop(stop)

    def stream(
        self,
        prompt: str = "",
        *,
        stop: Sequence[str] = (),
        attention: bool = False,
        place: int = 0,
        cancel: Cancel | None = None,
        **options: Unpack[DecodeOptions],
    ) -> Iterator[TextPiece | Generated]:
        """Go on with one text, piece by piece as each becomes certain; the last event is the whole of it.

        Whoever closes the iterator stops the computing. Arguments are those of `generate`.
        """
        return self._streamed([prompt], options, stop=stop, attention=attention, place=place, cancel=cancel)

    def _generate(
        self,
        prompts: Sequence[str],
        decode: DecodeConfig,
        stop: Sequence[str],
        places: Sequence[int],
        attention: bool,
        cancel: Cancel | None,
        engine: Engine,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Generated]:
        check_stop(stop)
        ids = [self.begun(each) for each in prompts]
        if engine == "regard":
            results = self._search(ids, places, decode, stop, cancel, progress)
        else:
            results = self._search_elsewhere(self._ctranslate2(decode, stop), ids, places, decode, stop, cancel)
        found: list[Generated] = []
        for prompt, own, hypotheses in zip(prompts, ids, results, strict=True):
            check_cancel(cancel)
            found.append(self._generated(prompt, own, hypotheses, stop, attention))
        return found

    def _search(
        self,
        ids: list[list[int]],
        places: Sequence[int],
        decode: DecodeConfig,
        stop: Sequence[str],
        cancel: Cancel | None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """How prompts go on, those together that can be read together."""
        if self.service is not None:
            requests = [self._request(each, place, decode, stop) for each, place in zip(ids, places, strict=True)]
            return self.service.search(requests, None if cancel is None else partial(check_cancel, cancel))
        found: list[list[Hypothesis]] = [[] for _ in ids]
        joins = isinstance(self.stepper(), Joins)
        together = (
            groups([len(each) for each in ids], decode) if joins else _of_equal_length(ids, decode.batch_sentences)
        )
        limits, done = [self._limit(each, decode) * decode.n_best for each in ids], 0
        for group in together:
            check_cancel(cancel)
            told = None if progress is None else _counted(progress, done, decode.n_best * len(group), sum(limits))
            done += sum(limits[i] for i in group)
            with channel.reading(group, spell=self.tokenizer.labels):
                search = self._steps([ids[i] for i in group], [places[i] for i in group], decode, stop)
                results = _last(search, cancel, told)
            for place, hypotheses in zip(group, results, strict=True):
                found[place] = hypotheses
        return found

    def _streamed(
        self,
        prompts: Sequence[str],
        options: DecodeOptions,
        *,
        stop: Sequence[str],
        attention: bool,
        place: int | None,
        cancel: Cancel | None,
    ) -> Iterator[TextPiece | Generated]:
        """Check the request now; the iterator that is returned does the work. `place` is None for several prompts."""
        decode = self.options({"beam": 1, "n_best": 1, **options})  # a search over several cannot be streamed
        check_stop(stop)
        if place is None or decode.n_best > 1 or (decode.beam > 1 and not decode.sample):
            raise UsageError("stream is for one prompt and one sequence; leave out beam and n_best, or stream")
        prompt = prompts[0]
        ids = self.begun(prompt)

        def events() -> Iterator[TextPiece | Generated]:
            pieces = Pieces(self.tokenizer, self._joined_to(ids), stop)
            writing = self._written(ids, place, decode, stop, cancel)
            try:
                while True:
                    try:
                        written, log_probabilities = next(writing)
                    except StopIteration as done:
                        hypotheses = done.value
                        break
                    if piece := pieces.certain(written, log_probabilities):
                        yield piece
            finally:
                writing.close()
            found = self._generated(prompt, ids, hypotheses, stop, attention)
            if piece := pieces.rest(found.text, found.token_log_probabilities[: len(found.tokens)]):
                yield piece
            yield found

        return events()

    def _written(
        self, ids: list[int], place: int, decode: DecodeConfig, stop: Sequence[str], cancel: Cancel | None
    ) -> Writing[tuple[list[int], list[float]], None, list[Hypothesis]]:
        """All ids that were added to one prompt and their log-probabilities, after each of them; at the end what was found."""
        if self.service is not None:
            check = None if cancel is None else partial(check_cancel, cancel)
            return (yield from self.service.written(self._request(ids, place, decode, stop), check))
        search = self._steps([ids], [place], decode, stop)
        while True:
            check_cancel(cancel)
            with channel.reading([0], spell=self.tokenizer.labels):  # not while someone else has the word
                try:
                    live = next(search)
                except StopIteration as done:
                    found: list[Hypothesis] = done.value[0]
                    return found
            yield live.ids[0, 0].tolist(), live.log_probs[0, 0].tolist()

    def search_start(self, text: str, over: Mapping[str, object]) -> SearchStart:
        prompt, special, options = self.encoded(text), self.tokenizer.specials, self.options(over)
        limit = self._limit([special.begin, *prompt], options)
        if len(prompt) + 1 + limit > self.context:
            room = max(0, self.context - len(prompt) - 1)
            raise UsageError(
                f"{len(prompt) + 1} tokens of the text and {limit} more are beyond the {self.context} that this model reads",
                Advice("give a shorter text, or ", Option("max_length", str(room))),
            )

        def vector(ids: Sequence[int]) -> Tensor:
            with torch.inference_mode():
                return self.read_ids([*prompt, *ids]).run()[0, -1]

        return SearchStart(
            options,
            self.tokenizer,
            ends=(special.end, *special.also_end),
            forbidden=tuple(self._forbidden()),
            limit=limit,
            vector=vector,
            found=lambda: self._search([self.begun(text)], [0], options, (), None)[0],
        )

    @property
    def answers(self) -> bool:
        """Whether it learned to answer prompts, and does not go on with them."""
        return self.config.chat is not None

    @property
    def writes_pictures(self) -> bool:
        return are_pictures(self.config.tokens)

    def begun(self, prompt: str) -> list[int]:
        """The ids after which the model goes on, or answers."""
        if self.config.chat is not None:
            return prompt_ids(self.tokenizer, self.config.chat, prompt)
        return [self.tokenizer.specials.begin, *self.encoded(prompt)]

    def encoded(self, text: str) -> list[int]:
        """The ids of a text, without begin; a picture has a label before its pixels, be it none."""
        return encode_texts(self.tokenizer, [text], self.config.tokens)[0]

    def _limit(self, ids: Sequence[int], options: DecodeConfig) -> int:
        """Most tokens that are written behind these; a picture ends with its last pixel."""
        most, tokens = options.max_length, self.config.tokens
        if tokens is None or tokens.kind != "pixels" or tokens.side is None:
            return LENGTH if most is None else most
        left = max(0, BEFORE + tokens.side**2 - len(ids))
        return left if most is None else min(most, left)

    def _joined_to(self, ids: list[int]) -> list[int]:
        """The ids with which new ones are decoded: those of a prompt; an answer stands by itself."""
        return [] if self.answers else ids

    def options(self, over: Mapping[str, object]) -> DecodeConfig:
        """The bundle's own decoding options, laid over by the given ones."""
        base = self.config.decode.model_dump()
        if (
            over.get("sample") is False or cast("int", over.get("beam", 1)) > 1
        ):  # a search has no use for what shapes draws
            base |= {"sample": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
            base["beam"] = 1
        return check(DecodeConfig, {**base, "batch_sentences": TOGETHER, **over}, "decode")

    def stepper(self) -> Stepper[Any]:
        """The stepper of a search that begins now, in this thread: laid out where it can be, of any length."""
        inner, model = cast("Stepper[Any]", self.laid_out.stepper()), self.config.model
        window = model.window if isinstance(model, GPTLineConfig) else model.longest
        if window is None:
            return inner
        known = self._sliding  # one assignment: several threads may ask at once
        if known is None or known.stepper is not inner:
            known = self._sliding = sliding(inner, window)
        return known

    def served_model(self) -> Model:
        ends = (self.tokenizer.specials.end, *self.tokenizer.specials.also_end)
        return Model(lambda request: self.stepper(), self.collated, len, ends=ends, forbidden=self._forbidden())

    def _request(self, ids: list[int], place: int, options: DecodeConfig, stop: Sequence[str]) -> Request:
        """A prompt as a request to the engine that all callers share."""
        return Request(
            ids, options, self._limit(ids, options), stream=place, stops=self._stops(ids, stop) if stop else None
        )

    def _steps(self, ids: list[list[int]], places: Sequence[int], options: DecodeConfig, stop: Sequence[str]) -> Steps:
        """The search for how prompts go on, step by step; of equal length, or for a stepper that joins."""
        special = self.tokenizer.specials
        return search_steps(
            self.stepper(),
            *self.collated(ids),
            end=special.end,
            also_end=special.also_end,
            limits=[self._limit(each, options) for each in ids],
            options=options,
            forbidden=self._forbidden(),
            streams=places,
            stops=[self._stops(each, stop) for each in ids] if stop else None,
        )

    def collated(self, ids: Sequence[Sequence[int]]) -> tuple[Tensor | None, Tensor]:
        """How long prompts are, where they differ, and their ids with padding behind: (B,) and (B, P)."""
        padded, lengths = pad([np.asarray(each) for each in ids], self.tokenizer.specials.end)
        equal = bool((lengths == padded.size(1)).all())
        return None if equal else lengths.to(self.device), padded.to(self.device)

    def _forbidden(self) -> list[int]:
        """Ids that are never written: special ones that end no text, and rows of the table that are no tokens."""
        special, tokens = self.tokenizer.specials, self.config.tokens
        if tokens is not None and tokens.kind == "pixels" and tokens.labels_from is not None:
            return [*range(SPECIALS), *range(tokens.labels_from, self.config.vocabulary[0])]
        unused = range(self.tokenizer.size, self.config.vocabulary[0])
        return sorted((special.all - special.ends) | set(unused))

    def _ctranslate2(self, options: DecodeConfig, stop: Sequence[str]) -> GenerationEngine:
        """Make the other engine ready, and refuse what it cannot do."""
        from regard.interop.ctranslate2_engine import GenerationEngine

        if self._other is None or not self._other.fits(self.bundle):
            self._other = GenerationEngine(self.bundle)
        self._other.check(options, stops=bool(stop))
        return self._other

    def _search_elsewhere(
        self,
        other: GenerationEngine,
        ids: list[list[int]],
        places: Sequence[int],
        decode: DecodeConfig,
        stop: Sequence[str],
        cancel: Cancel | None,
    ) -> list[list[Hypothesis]]:
        """Search with CTranslate2 for how prompts go on; groups of which it cannot be asked one are searched for here."""
        limit = LENGTH if decode.max_length is None else decode.max_length
        found: list[list[Hypothesis]] = [[] for _ in ids]
        for group in _of_equal_length(ids, decode.batch_sentences):
            check_cancel(cancel)
            some = [ids[i] for i in group]
            stops = self._stops(some[0], stop) if stop else None
            asked = other.search(some, limit, decode, self._forbidden(), stops)
            results = [each for each in asked if each is not None]
            if len(results) < len(some):
                results = self._search(some, [places[i] for i in group], decode, stop, cancel)
            for place, hypotheses in zip(group, results, strict=True):
                found[place] = hypotheses
        return found

    def _stops(self, prompt: list[int], stop: Sequence[str]) -> Callable[[list[int]], bool]:
        """Whether what was added holds a stop string; only its end is looked at, which is all that can be new."""
        tail = NEAR + max(len(each.encode()) for each in stop)

        def stops(ids: list[int]) -> bool:
            before = [*prompt[-NEAR:], *ids[:-tail]][-NEAR:]
            text = added(self.tokenizer, before, ids[-tail:])
            return any(each in text for each in stop)

        return stops

    def _generated(
        self, prompt: str, ids: list[int], hypotheses: list[Hypothesis], stop: Sequence[str], attention: bool
    ) -> Generated:
        first, *others = [self._one(prompt, ids, hypothesis, stop) for hypothesis in hypotheses]
        seen = self._attention([*ids[1:], *hypotheses[0].ids]) if attention else None
        return replace(first, alternatives=tuple(others), attention=seen)

    def _one(self, prompt: str, ids: list[int], found: Hypothesis, stop: Sequence[str]) -> Generated:
        return Generated(
            prompt,
            before_stop(added(self.tokenizer, self._joined_to(ids), found.ids), stop),
            found.score,
            found.log_probability,
            tuple(self.tokenizer.labels(found.ids)),
            found.token_log_probabilities,
            found.finished,
            found.ids,
            answers=self.answers,
        )

    @torch.inference_mode()
    def score(
        self, texts: Sequence[str], *, overlap: int | None = None, cancel: Cancel | None = None
    ) -> list[TextScore]:
        """The log-probability of each text, its end not counted; long ones in windows of the model's context."""
        return [self._score(text, overlap, place, cancel) for place, text in enumerate(texts)]

    def _score(self, text: str, overlap: int | None, place: int, cancel: Cancel | None) -> TextScore:
        ids = np.array(self.begun(text))
        total, count, windows = 0.0, 0.0, 0
        shared = self.context // 2 if overlap is None else overlap
        stream = as_written(TokenStream(ids, self.tokenizer.size), self.config.tokens)
        for batch in evaluation_batches(stream, self.context, BATCH, shared) if len(ids) > 1 else ():
            check_cancel(cancel)
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
        if isinstance(model, WaveNetConfig):
            return max(ANY_LENGTH, 2 * model.receptive_field)  # at least half of them from all that it could see
        if isinstance(model, PixelsConfig):
            return model.longest
        return model.max_length if isinstance(model, GPTLineConfig) else ANY_LENGTH

    def read(self, text: str, second: str | None = None) -> Reading:
        return self.read_ids(self.encoded(text))

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
            ids += [special.begin, *self.encoded(text), special.end]
            if len(ids) > (count + 1) * WINDOW:
                break
        return np.array(ids)

    def predictions(self, batch: TextsBatch) -> tuple[Tensor, Tensor]:
        assert isinstance(batch, TextBatch)
        return next_token_losses(self.model.hidden(batch), self.model.output.weight, batch.ids, batch.lengths)

    def attentions(self, text: str, second: str | None = None) -> SentenceAttention:
        return self.attention(text)

    def attention(self, text: str) -> SentenceAttention:
        """Where each token of a text looked, in every layer and head."""
        return self._attention(self.encoded(text))

    def _attention(self, ids: Sequence[int]) -> SentenceAttention:
        """One pass over as many ids as the model reads at once; what follows was written from a later window."""
        found = sentence_of(self.read_ids(ids).look(), "causal")
        beyond = len(ids) + 1 - self.context
        if beyond <= 0:
            return found
        return replace(found, notes=(f"the first {self.context} tokens; {beyond} more do not fit the context",))


def _lay_out(model: nn.Module) -> FastLanguage | FastWaveNet | None:
    """A model laid out for decoding; None where only its modules know how."""
    return FastLanguage.of(model) or FastWaveNet.of(model)


def _told(events: Iterable[TextPiece | Generated], stream: Callable[[str], None]) -> Generated:
    """Hand each piece to `stream`; the whole at the end."""
    found: Generated | None = None
    for event in events:
        if isinstance(event, TextPiece):
            stream(event.text)
        else:
            found = event
    assert found is not None
    return found


def _last(steps: Steps, cancel: Cancel | None, told: Callable[[int], None] | None = None) -> list[list[Hypothesis]]:
    """Run a search to its end; `told` hears how many steps were made."""
    for number in count(1):
        try:
            next(steps)
        except StopIteration as done:
            found: list[list[Hypothesis]] = done.value
            return found
        check_cancel(cancel)
        if told is not None:
            told(number)
    raise AssertionError  # a search ends


def _counted(progress: Callable[[int, int], None], before: int, together: int, total: int) -> Callable[[int], None]:
    """Tell in tokens, of all prompts, how far a search over some of them is."""
    return lambda steps: progress(before + steps * together, total)


def _of_equal_length(ids: list[list[int]], most: int) -> list[list[int]]:
    """Places of prompts that can be read together: of one length, at most so many."""
    groups: dict[int, list[list[int]]] = {}
    for place, each in enumerate(ids):
        same = groups.setdefault(len(each), [[]])
        if len(same[-1]) == most:
            same.append([])
        same[-1].append(place)
    return [group for same in groups.values() for group in same]
