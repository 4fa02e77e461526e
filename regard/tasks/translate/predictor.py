"""Translate: text in, text out, with the same path for files, standard input and Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

import numpy as np
import torch
from torch import Tensor

from regard.attention import Role, channel, softness
from regard.bundle import Bundle
from regard.config import check
from regard.data.batch import PairBatch, pad
from regard.data.batches import TokenPairs
from regard.data.lines import LONGEST_LINE
from regard.data.pairs import Pair
from regard.decode.config import DecodeConfig, DecodeOptions, Engine, Weights, check_engine, check_weights
from regard.decode.engine import Model
from regard.decode.live import Live
from regard.decode.ranking import PENALTIES, Hypothesis
from regard.decode.search import Stepper, generate, groups
from regard.decode.service import Serves, Service
from regard.decode.tickets import Request
from regard.decode.workers import Spread, side_by_side, worker_count
from regard.errors import Advice, Option, RegardError, UsageError
from regard.inspect.texts import LONGEST, Material, PairPredictor, Texts, TextsBatch, next_token_losses, pair_texts
from regard.look import SentenceAttention, sentence_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.fast.products import product_of
from regard.models.fast.stepper import LaidOut
from regard.models.fast.translation import FastDecoder
from regard.models.loss import target_log_probabilities
from regard.predictor import Cancel, Progress, Reading, SearchStart, check_cancel
from regard.tasks.translate.results import PairScore, Translation
from regard.tokens import BEGIN, END, PAD, UNKNOWN, TextTokenizer, as_arrays

if TYPE_CHECKING:
    from regard.interop.ctranslate2_engine import TranslationEngine

NEVER = (PAD, BEGIN, UNKNOWN)  # ids that no translation has
BATCH = 128  # sources decoded greedily together where nobody says: a tenth faster than 64
ROWS = 480  # hypotheses of a beam decoded together: 96 sources of 5 are a tenth faster than 64, 128 are slower


class TranslateOptions(DecodeOptions, total=False):
    """Keyword arguments of `Translator.translate`."""

    engine: Engine
    attention: bool
    progress: Progress | None
    places: Sequence[int] | None
    prefix: Sequence[int]
    cancel: Cancel | None
    spread: Spread


class Translator(PairPredictor, Serves):
    """A trained translation model, ready to use."""

    second = "translation"
    paired = '[("ein Mann", "a man"), ...]'
    model: EncoderDecoder

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.tokenizers, self.laid_out = bundle.tokenizers, LaidOut(bundle.model, FastDecoder.of)
        self.looks: Role = getattr(self.model, "looks", "cross")  # by which the source is seen
        self.joins = self.looks != "cross"  # source and target are one sequence
        self._other: TranslationEngine | None = None  # made when it is first asked for

    def use_weights(self, kind: Weights) -> None:
        """Search with weights of this kind from now on; where someone looks on, the model's own are used as ever.

        int8  large matrices in 8 bits: faster, to almost the same texts (`regard.models.fast.products`)
        """
        check_weights(kind)
        laid_out = LaidOut(self.model, partial(FastDecoder.of, product=product_of(kind, self.device)))
        if kind != "float32" and laid_out.lay_out(self.model) is None:
            name = self.bundle.config.model.kind
            raise UsageError(
                f"weights of 8 bits are for Transformers of plain parts, not for this {name}", "leave them out"
            )
        self.laid_out = laid_out

    @overload
    def translate(self, text: str, **options: Unpack[TranslateOptions]) -> Translation: ...
    @overload
    def translate(
        self, text: list[str] | tuple[str, ...], **options: Unpack[TranslateOptions]
    ) -> list[Translation]: ...

    def translate(
        self,
        text: str | Sequence[str],
        *,
        engine: Engine = "regard",
        attention: bool = False,
        progress: Progress | None = None,
        places: Sequence[int] | None = None,
        prefix: Sequence[int] = (),
        cancel: Cancel | None = None,
        spread: Spread = side_by_side,
        **options: Unpack[DecodeOptions],
    ) -> Translation | list[Translation]:
        """Translate a text, or several; `options` are those of decoding (beam, n_best, sample, seed, ...).

        engine  "ctranslate2" searches in that library's kernels, to the same texts (`pip install 'regard[fast]'`)
        places  of the texts in a longer input that comes in parts: samples depend on the place
        prefix  ids that every translation begins with; what follows is searched for
        cancel  is asked after each step whether to stop, which raises `Cancelled`
        spread  who searches which groups of texts: this process and its helpers, or several processes in shards
        """
        check_engine(engine)
        texts = [text] if isinstance(text, str) else list(text)
        decode = self.options(options)
        numbers = range(len(texts)) if places is None else places
        if len(prefix):
            both = zip(texts, numbers, strict=True)
            found = [self._continued(each, place, prefix, decode, engine, cancel) for each, place in both]
        else:
            search = partial(self._search, spread=spread) if engine == "regard" else self._search_elsewhere
            found = search(texts, decode, progress, numbers, cancel)
        out = [self._translation(source, hypotheses) for source, hypotheses in zip(texts, found, strict=True)]
        if attention:
            out = [self._with_attention(each, decode.softness, cancel) for each in out]
        return out[0] if isinstance(text, str) else out

    def search_one(
        self,
        text: str,
        options: DecodeConfig,
        *,
        place: int = 0,
        prefix: Sequence[int] = (),
        watch: Callable[[Live], None] | None = None,
    ) -> list[Hypothesis]:
        """The best translations of one text, behind a prefix that they leave out; `watch` sees those that go on."""
        source = as_arrays([self.tokenizers.source.encode(check_text(text))], begin=False)
        self._check_reach([text], [len(source[0])])
        self._check_prefix(prefix)
        ids, _ = self._collated(source)
        with _softness(options.softness), self._reading([0], source):
            return generate(
                cast("Stepper[object]", self.laid_out.stepper()),
                ids,
                self.as_row([BEGIN, *prefix]),
                end=END,
                limits=[max(0, options.limit_for(len(source[0])) - len(prefix))],
                options=options,
                forbidden=NEVER,
                streams=[place],
                watch=watch,
            )[0]

    def search_start(self, text: str, over: Mapping[str, object]) -> SearchStart:
        source, options = self.tokenizers.source.encode(check_text(text)), self.options(over)
        self._check_reach([text], [len(source) + 1])
        longest, limit = self.model.longest, options.limit_for(len(source) + 1)

        def vector(ids: Sequence[int]) -> Tensor:
            with torch.inference_mode(), _softness(options.softness):
                return self.read_ids(source, ids).run()[0, len(ids)]

        return SearchStart(
            options,
            self.tokenizers.target,
            ends=(END,),
            forbidden=NEVER,
            limit=limit if longest is None else min(limit, longest - 1),
            vector=vector,
            found=lambda: self.search_one(text, options),
        )

    def _continued(
        self, text: str, place: int, prefix: Sequence[int], options: DecodeConfig, engine: Engine, cancel: Cancel | None
    ) -> list[Hypothesis]:
        """Whole translations that begin with a prefix, ranked as such."""
        if engine != "regard":
            raise UsageError(
                f"{engine} takes no prefix", Advice("leave out ", Option("prefix"), ", or ", Option("engine"))
            )
        found = self.search_one(text, options, place=place, prefix=prefix, watch=lambda _: check_cancel(cancel))
        with _softness(options.softness):
            reading = self.read_ids(self.tokenizers.source.encode(text), prefix)
            before = reading.log_probabilities()[: len(prefix)].tolist()
        whole = [after_prefix(each, prefix, before, options) for each in found]
        return sorted(whole, key=lambda each: -each.score)

    def _check_prefix(self, prefix: Sequence[int]) -> None:
        tokenizer, longest = self.tokenizers.target, self.model.longest
        for token in prefix:
            if not 0 <= token < tokenizer.size or token in tokenizer.specials.control:
                raise UsageError(f"no translation holds the id {token}; there are {tokenizer.size}, from 0 on")
        if longest is not None and len(prefix) >= longest:
            raise UsageError(f"a prefix of {len(prefix)} tokens leaves no room: this model writes at most {longest}")

    def _with_attention(self, found: Translation, soft: float, cancel: Cancel | None) -> Translation:
        check_cancel(cancel)
        return replace(found, attention=self.attention(found.source, found.ids, soft))

    def options(self, over: Mapping[str, object]) -> DecodeConfig:
        """The bundle's own decoding options, laid over by the given ones."""
        asked = {**self.config.decode.model_dump(), **over}
        beam = asked["beam"]
        if isinstance(beam, int) and asked["batch_sentences"] == DecodeConfig().batch_sentences:  # nobody chose it
            asked["batch_sentences"] = BATCH if beam == 1 else max(1, min(BATCH, ROWS // max(1, beam)))
        return check(DecodeConfig, asked, "decode")

    def score(self, pairs: Sequence[tuple[str, str]], cancel: Cancel | None = None) -> list[PairScore]:
        """The log-probability of each given translation (teacher-forced)."""
        tokens = self.encode(pairs)
        scores: list[PairScore | None] = [None] * len(pairs)
        read, predicted = tokens.lengths()
        for group in groups([int(max(a, b)) for a, b in zip(read, predicted, strict=True)], self.config.decode):
            check_cancel(cancel)
            for place, values in zip(group, self._log_probabilities(tokens, group), strict=True):
                scores[place] = PairScore(*pairs[place], float(values.double().sum()), len(values))
        return [score for score in scores if score is not None]

    def encode(self, pairs: Sequence[tuple[str, str]]) -> TokenPairs:
        sources = self.tokenizers.source.encode_all([check_text(pair[0]) for pair in pairs])
        targets = self.tokenizers.target.encode_all([check_text(pair[1]) for pair in pairs])
        tokens = TokenPairs(as_arrays(sources, begin=False), as_arrays(targets, begin=True), PAD)
        for side, lengths in enumerate(tokens.lengths()):
            self._check_reach([pair[side] for pair in pairs], lengths)
        return tokens

    def _check_reach(self, texts: Sequence[str], lengths: Sequence[int] | np.ndarray) -> None:
        """Refuse what is longer, end token included, than the model reads."""
        longest = self.model.longest
        for text, length in zip(texts, lengths, strict=True):
            if longest is not None and length > longest:
                raise RegardError(
                    f"a text of {length} tokens, end included, is longer than the {longest} that this model reads; "
                    f"split it into sentences: {text[:40]!r}"
                )

    def read(self, text: str, second: str | None = None) -> Reading:
        """Read a pair in one pass; without `second`, as softly as the steps looked that wrote the model's translation."""
        source = self.tokenizers.source.encode(text)
        if second is not None:
            return self.read_ids(source, self.tokenizers.target.encode(second))
        reading, value = self.read_ids(source, self.translate(text).ids), self.config.decode.softness

        def run() -> Tensor:
            with _softness(value):
                return reading.run()

        return reading if value == 1.0 else replace(reading, run=run)

    def read_ids(self, source: Sequence[int], target: Sequence[int] = ()) -> Reading:
        """Read ids without begin and end, of a source and of its translation, in one teacher-forced pass."""
        reads, writes = as_arrays([list(source)], begin=False), as_arrays([list(target)], begin=True)
        batch, pair = TokenPairs(reads, writes, PAD).take([0]), self.tokenizers
        ids = {"source": tuple(reads[0].tolist()), "target": tuple(writes[0][1:].tolist())}
        ids["prefix"] = tuple(writes[0][:-1].tolist())
        labels = {axis: tuple((pair.source if axis == "source" else pair.target).labels(ids[axis])) for axis in ids}
        if self.joins:
            ids["text"], labels["text"] = (each["source"] + each["prefix"] for each in (ids, labels))
        role, run = self.looks, lambda: self.model.hidden(batch.to(self.device))
        return Reading(self, ids, labels, run, role, ids["target"])

    def output_table(self) -> Tensor:
        return self.model.output.weight

    def tokenizer_of(self, axis: str) -> TextTokenizer:
        return self.tokenizers.source if axis == "source" else self.tokenizers.target

    def texts(self, material: Material, count: int, longest: int = LONGEST) -> Texts:
        longest = min(longest, self.model.longest or longest)
        chosen: list[Pair] = []
        encoded: list[tuple[list[int], list[int]]] = []
        for pair in cast("Sequence[Pair]", material.items):
            both = (self.tokenizers.source.encode(pair[0]), self.tokenizers.target.encode(pair[1]))
            if all(0 < len(ids) < longest for ids in both):
                chosen.append((pair[0], pair[1]))
                encoded.append(both)
            if len(chosen) == count:
                break
        return pair_texts(self, encoded, material.name, chosen)

    def greedy_pairs(self, texts: Sequence[str]) -> list[tuple[list[int], tuple[int, ...]]]:
        found = self.translate(list(texts), beam=1, n_best=1)
        return [(self.tokenizers.source.encode(each.source), each.ids) for each in found if each.ids]

    def predictions(self, batch: TextsBatch) -> tuple[Tensor, Tensor]:
        assert isinstance(batch, PairBatch)
        hidden = self.model.hidden(batch)  # (B, T, D)
        return next_token_losses(hidden, self.model.output.weight, batch.target, batch.target_lengths)

    def attention(self, source: str, ids: Sequence[int], soft: float = 1.0) -> SentenceAttention:
        """Where the model looked while it wrote `ids`: one teacher-forced pass, equal to the steps of decoding."""
        with _softness(soft):
            seen = self.read_ids(self.tokenizers.source.encode(source), ids).look()
        return sentence_of(seen, self.looks)

    def _search(
        self,
        texts: Sequence[str],
        options: DecodeConfig,
        progress: Progress | None,
        places: Sequence[int],
        cancel: Cancel | None,
        spread: Spread = side_by_side,
    ) -> list[list[Hypothesis]]:
        ids = as_arrays(self.tokenizers.source.encode_all([check_text(text) for text in texts]), begin=False)
        self._check_reach(texts, [len(each) for each in ids])
        return self.search_ids(ids, options, places=places, progress=progress, cancel=cancel, spread=spread)

    def search_ids(
        self,
        sources: Sequence[np.ndarray],
        options: DecodeConfig,
        *,
        places: Sequence[int],
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        spread: Spread = side_by_side,
    ) -> list[list[Hypothesis]]:
        """The translations of sources that are ids, with end: in groups of like length, side by side where that pays."""
        check_cancel(cancel)
        if self.service is not None:
            return self._search_served(self.service, sources, options, places, progress, cancel)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        done = 0

        def search(group: list[int], watch: Callable[[], None]) -> list[list[Hypothesis]]:
            return self._search_group(group, sources, options, places, watch)

        by_length, watch = groups([len(each) for each in sources], options), partial(check_cancel, cancel)
        if len(by_length) > 1 and options.softness == 1.0:
            self.laid_out.stepper()  # before helpers are copies of this process: they share what is laid out
        for group, results in spread(by_length, search, worker_count(self.device), watch):
            for place, hypotheses in zip(group, results, strict=True):
                found[place] = hypotheses
            done += len(group)
            if progress is not None:
                progress(done, len(sources))
        return found

    def _search_group(
        self,
        group: list[int],
        sources: Sequence[np.ndarray],
        options: DecodeConfig,
        places: Sequence[int],
        watch: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        some = [sources[place] for place in group]
        with _softness(options.softness), self._reading(group, sources):
            return generate(
                cast("Stepper[object]", self.laid_out.stepper()),
                *self._collated(some),
                end=END,
                limits=[options.limit_for(len(each)) for each in some],
                options=options,
                forbidden=NEVER,
                streams=[places[row] for row in group],
                watch=lambda _: watch(),
            )

    def _collated(self, sources: Sequence[np.ndarray]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Sources as the model takes them, and the prefix of each."""
        ids, lengths = pad(sources, PAD)
        prefix = torch.full((len(sources), 1), BEGIN, device=self.device)
        return (ids.to(self.device), lengths.to(self.device)), prefix

    def _search_served(
        self,
        service: Service,
        sources: Sequence[np.ndarray],
        options: DecodeConfig,
        places: Sequence[int],
        progress: Progress | None,
        cancel: Cancel | None,
    ) -> list[list[Hypothesis]]:
        """Each source as a request to the engine that all callers share."""
        both = zip(sources, places, strict=True)
        requests = [Request(each, options, options.limit_for(len(each)), stream=place) for each, place in both]
        finished = count(1)
        told = None if progress is None else lambda _: progress(next(finished), len(sources))
        return service.search(requests, None if cancel is None else partial(check_cancel, cancel), told)

    def served_model(self) -> Model:
        def stepper(request: Request) -> Stepper[Any]:
            soft = request.options.softness
            if soft != 1.0:
                return Softened(cast("Stepper[Any]", self.model), soft)
            return cast("Stepper[Any]", self.laid_out.stepper())

        return Model(stepper, self._collated, len, ends=(END,), forbidden=NEVER)

    def _search_elsewhere(
        self,
        texts: Sequence[str],
        options: DecodeConfig,
        progress: Progress | None,
        places: Sequence[int],
        cancel: Cancel | None,
    ) -> list[list[Hypothesis]]:
        """Search with CTranslate2; the few texts that it cannot be asked are searched for here."""
        ids = self.tokenizers.source.encode_all([check_text(text) for text in texts])
        self._check_reach(texts, [len(each) + 1 for each in ids])
        longest, done = self.model.longest, 0

        def told(count: int) -> None:
            nonlocal done
            done += count
            check_cancel(cancel)
            if progress is not None:
                progress(done, len(texts))

        check_cancel(cancel)
        limits = [options.limit_for(len(each) + 1) for each in ids]
        limits = limits if longest is None else [min(limit, longest - 1) for limit in limits]
        found = self._ctranslate2().search(ids, limits, options, told)
        rest = [place for place, hypotheses in enumerate(found) if hypotheses is None]
        own = self._search([texts[i] for i in rest], options, None, [places[i] for i in rest], cancel) if rest else []
        searched = iter(own)
        return [next(searched) if hypotheses is None else hypotheses for hypotheses in found]

    def _ctranslate2(self) -> TranslationEngine:
        from regard.interop.ctranslate2_engine import TranslationEngine

        if self._other is None or not self._other.fits(self.bundle):
            self._other = TranslationEngine(self.bundle)
        return self._other

    def _translation(self, source: str, hypotheses: list[Hypothesis]) -> Translation:
        each = [self._one(source, hypothesis) for hypothesis in hypotheses]
        best = each[0]
        return best if len(each) == 1 else replace(best, alternatives=tuple(each[1:]))

    def _one(self, source: str, hypothesis: Hypothesis) -> Translation:
        tokenizer = self.tokenizers.target
        return Translation(
            source,
            tokenizer.decode(hypothesis.ids) if source.strip() else "",
            hypothesis.score,
            hypothesis.log_probability,
            hypothesis.ids,
            tuple(tokenizer.labels(hypothesis.ids)),
            hypothesis.token_log_probabilities,
        )

    def _reading(
        self, group: Sequence[int], sources: Sequence[np.ndarray], targets: Sequence[np.ndarray] = ()
    ) -> AbstractContextManager[None]:
        """Tell whoever records which of the texts a batch holds, and their tokens."""
        reads, writes = self.tokenizers.source, self.tokenizers.target

        def tokens(row: int) -> channel.Tokens:
            source = reads.labels(sources[group[row]])
            if not len(targets):
                widest = max(len(sources[each]) for each in group)
                return {"source": source, "before": [*[""] * (widest - len(source)), *source]}
            target = targets[group[row]]
            read = writes.labels(target[:-1])
            return {"source": source, "target": writes.labels(target[1:]), "prefix": read, "text": [*source, *read]}

        return channel.reading(group, tokens, spell=writes.labels)

    @torch.inference_mode()
    def _log_probabilities(self, tokens: TokenPairs, group: Sequence[int]) -> list[torch.Tensor]:
        batch = tokens.take(group).to(self.device)
        with self._reading(group, tokens.sources, tokens.targets):
            hidden = self.model.hidden(batch)  # (B, T, D)
        lengths = batch.target_lengths.tolist()
        return [
            target_log_probabilities(hidden[row, :length], self.model.output.weight, batch.target[row, 1 : length + 1])
            for row, length in enumerate(lengths)
        ]


def after_prefix(
    found: Hypothesis, prefix: Sequence[int], before: Sequence[float], options: DecodeConfig
) -> Hypothesis:
    """A hypothesis behind a prefix as a whole one; `before` are the log-probabilities of the prefix's ids."""
    parts = (*before, *found.token_log_probabilities)
    total = sum(before) + found.log_probability
    score = total / PENALTIES[options.length_penalty](len(parts), options.alpha)
    return Hypothesis((*prefix, *found.ids), score, total, parts, found.finished)


class Softened:
    """A model whose looks at the source are as soft as one request wants: its sources go on by themselves."""

    def __init__(self, model: Stepper[Any], value: float) -> None:
        self.model, self.value, self.longest = model, value, model.longest
        self.reorder, self.keep = model.reorder, model.keep

    def start(self, source: Any, prefix: Tensor) -> tuple[Tensor, Any]:
        with _softness(self.value):
            return self.model.start(source, prefix)

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        with _softness(self.value):
            return self.model.step(ids, state)


def _softness(value: float) -> AbstractContextManager[None]:
    """Set the temperature of each look at the source, as `decode.softness` says it; 0 sees the best position only."""
    return softness(temperature=value or 1.0, hard=value == 0)


def check_text(text: str) -> str:
    if len(text) > LONGEST_LINE:
        raise RegardError(
            f"a text of {len(text):,} characters is over the limit of {LONGEST_LINE:,}; split it into sentences"
        )
    return text
