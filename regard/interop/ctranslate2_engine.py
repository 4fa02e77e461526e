"""CTranslate2 as a second engine of decoding: the same weights and the same search in another library's kernels.

Under equal options the texts are equal, but for ties within float32. Three things differ inside, and are seen to here:

- it ends a beam search once `beam` sequences have ended (`stopping = "early"`), and ranks by total / length^x only. It is
  asked for the `beam` best totals, and they are ranked here; whatever it left out has a lower total and is no longer than
  the longest of these (of those that ended before the last step there are fewer than `beam`), which bounds its score
- at the length limit it keeps what has not ended; such a source is not answered (None), nor is one that is empty or longer
  than its table of positions: whoever asked searches for these himself
- it renormalises after forbidding tokens, so its totals are no log-probabilities of the model; those that are returned come
  from a pass over the whole sequences (`score_batch`)
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from regard.attention import is_changed, is_recorded
from regard.bundle import Bundle
from regard.decode.config import DecodeConfig
from regard.decode.ranking import PENALTIES, Hypothesis
from regard.decode.search import groups
from regard.errors import Advice, Option, RegardError, UsageError
from regard.files import cache_of, new_folder
from regard.interop.family import library
from regard.interop.to_ctranslate2 import NAME, check_ctranslate2, reach_of, write_ctranslate2
from regard.models.config import GPTLineConfig, TransformerConfig
from regard.tensors import weights_of
from regard.tokens import Specials

FORM = 1  # of the converted folders; another number, another cache
NO_PENALTY = 1e-9  # x of length^x that changes no total in float32; at 0 it would stop as soon as the first beam ends
Answers = list["list[Hypothesis] | None"]
Told = Callable[[int], None]  # hears how many more sources are done
Stops = Callable[[list[int]], bool]


def check_options(options: DecodeConfig) -> None:
    """Refuse options that CTranslate2 cannot follow to equal results."""
    if options.sample:
        raise UsageError(
            f"{NAME} draws random numbers of its own, so that a seed would not give its samples",
            Advice("search for the best, such as with ", Option("beam", "1"), ", or leave out ", Option("engine")),
        )
    if options.softness != 1.0:
        advice = Advice("leave out ", Option("softness"), ", or ", Option("engine"))
        raise UsageError(f"{NAME} has no softness of attention", advice)
    if options.beam == 1:
        return
    plain = options.length_penalty == "none" or options.alpha == 0
    if options.stopping == "exact" and not (plain and options.n_best == 1):
        raise UsageError(
            f"{NAME} ends a beam search once {options.beam} sequences have ended, not when nothing better can come",
            Advice("choose ", Option("stopping", "early"), ", greedy search with ", Option("beam", "1"), ", or leave out ",
                   Option("engine")),
        )  # fmt: skip
    if options.min_length:
        raise UsageError(
            f"{NAME} ranks a beam by other numbers where a shortest length forbids the end",
            Advice("leave out ", Option("min_length"), ", or choose ", Option("beam", "1")),
        )


def converted(bundle: Bundle) -> Path:
    """The folder of the bundle in CTranslate2's form: made once, kept under the digest of all that it holds."""
    check_ctranslate2(bundle)
    folder = cache_of("ctranslate2") / _digest(bundle)
    if (folder / "model.bin").exists():
        return folder
    own = folder.with_name(
        f"{folder.name}.{os.getpid()}-{secrets.token_hex(4)}"
    )  # another process may be writing it too
    try:
        with new_folder(own) as inside:
            write_ctranslate2(bundle, inside)
        os.rename(own, folder)
    except RegardError as error:
        raise RegardError(error.wrong, "make room, or set REGARD_CACHE to a folder that has it") from error
    except OSError as error:
        shutil.rmtree(own, ignore_errors=True)
        if not (folder / "model.bin").exists():  # nobody else was faster
            raise RegardError(f"cannot write {folder}: {error.strerror or error}", "set REGARD_CACHE") from error
    return folder


def _digest(bundle: Bundle) -> str:
    """SHA-256 over the weights as they are now, the configuration, the tokens, and the forms that are written."""
    version = library("ctranslate2", "fast").__version__
    config = bundle.config
    told = json.dumps([FORM, version, config.task, config.vocabulary, config.model.model_dump(mode="json")])
    found = hashlib.sha256(told.encode())
    for text, size in zip((bundle.tokenizers.source, bundle.tokenizers.target), config.vocabulary, strict=False):
        found.update("\0".join(text.vocabulary(size)).encode())
    for name, tensor in sorted(weights_of(bundle.model).items()):
        found.update(f"{name} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().float().cpu().contiguous().numpy().data)
    return found.hexdigest()[:40]


@dataclass(frozen=True)
class Found:
    """A sequence as CTranslate2 found it; `end` is the token that ended it, None where the limit did."""

    ids: tuple[int, ...]
    end: int | None
    score: float = 0.0  # as CTranslate2 ranks: total / length^x


@dataclass(frozen=True)
class Chosen:
    """A sequence that is returned: `tail` is the end token, or nothing where a stop string ended it."""

    ids: tuple[int, ...]
    tail: tuple[int, ...]
    finished: bool

    def hypothesis(self, log_probs: Sequence[float], options: DecodeConfig) -> Hypothesis:
        each = tuple(min(0.0, float(value)) for value in log_probs)
        score = sum(each) / _penalty(options, len(each))
        return Hypothesis(self.ids, score, sum(each), each, self.finished)


class Engine:
    """A model of CTranslate2 beside the bundle that it was made from."""

    kind: str  # of CTranslate2's classes

    def __init__(self, bundle: Bundle) -> None:
        ctranslate2 = library("ctranslate2", "fast")
        self.model, self.config = bundle.model, bundle.config
        self.made_of = _versions(bundle.model)
        self.reach = reach_of(cast("TransformerConfig | GPTLineConfig", bundle.config.model))
        folder, device = converted(bundle), _device(bundle.model)
        workers = torch.get_num_threads()
        self.inner: Any = getattr(ctranslate2, self.kind)(
            str(folder), device=device, compute_type="float32", inter_threads=workers, intra_threads=1
        )

    def fits(self, bundle: Bundle) -> bool:
        """Whether it still has the weights of this bundle, which may have been changed or moved."""
        return self.model is bundle.model and self.made_of == _versions(bundle.model)

    def check(self, options: DecodeConfig, *, stops: bool = False) -> None:
        """Refuse options that it cannot follow, and a model that someone looks into or has changed for a while."""
        check_options(options)
        if stops and options.beam > 1:
            raise UsageError(
                f"{NAME} cannot end the sequences of a beam at a text",
                Advice("leave out ", Option("stop"), ", or choose ", Option("beam", "1")),
            )
        if is_changed(self.model) or is_recorded(self.model):
            raise UsageError(
                f"{NAME} computes without Regard's attention, which is recorded or changed here",
                Advice("leave out ", Option("engine")),
            )

    def _cap(self, limit: int, read: int) -> int:
        """Most tokens behind `read` others: as many as asked for, or as positions are known for."""
        return limit if self.reach is None else min(limit, self.reach - read)


class TranslationEngine(Engine):
    kind = "Translator"

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        source, target = bundle.config.vocabulary
        self.source_tokens = bundle.tokenizers.source.vocabulary(source)
        self.target_tokens = bundle.tokenizers.target.vocabulary(target)
        self.ids = {token: index for index, token in enumerate(self.target_tokens)}
        self.specials = bundle.tokenizers.target.specials

    def search(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], options: DecodeConfig, told: Told
    ) -> Answers:
        """The best translations of sources (ids without end), as `regard.decode.search.generate` would find them."""
        self.check(options)
        chosen: dict[int, list[Chosen]] = {}
        texts = [[self.source_tokens[index] for index in source] for source in sources]
        asked = []
        for group in groups([len(source) + 1 for source in sources], options):
            part = [place for place in group if self._can_read(len(sources[place]))]
            started = self._ask([texts[place] for place in part], [limits[place] for place in part], options)
            asked.append((len(group), zip(part, started, strict=True)))
        for count, answers in asked:
            for place, answer in answers:
                found = choose(self._found(answer.result()), limits[place], options)
                if found is not None:
                    chosen[place] = found
            told(count)
        return self._scored(texts, chosen, options)

    def _can_read(self, length: int) -> bool:
        """Whether it reads so many tokens and the end; of nothing it would not ask the model."""
        return length > 0 and (self.reach is None or length < self.reach)

    def _ask(self, sources: list[list[str]], limits: list[int], options: DecodeConfig) -> list[Any]:
        """Start the search for sources of like length. Greedily all go on to the greatest limit, and are cut later."""
        if not sources:
            return []
        penalty, hypotheses = _plan(options)
        cap = self._cap(max(limits) if options.beam == 1 else min(limits), read=1)
        forbidden = (self.specials.pad, self.specials.begin)
        return self.inner.translate_batch(
            sources,
            asynchronous=True,
            beam_size=options.beam,
            num_hypotheses=hypotheses,
            length_penalty=penalty,
            max_input_length=0,
            min_decoding_length=options.min_length,
            max_decoding_length=cap + 1,
            return_scores=options.beam > 1,
            return_end_token=True,
            disable_unk=True,
            suppress_sequences=[[self.target_tokens[index]] for index in forbidden],
        )

    def _found(self, answer: Any) -> list[Found]:
        sequences = [[self.ids[token] for token in tokens] for tokens in answer.hypotheses]
        return _found(sequences, answer.scores, self.specials)

    def _scored(self, texts: list[list[str]], chosen: dict[int, list[Chosen]], options: DecodeConfig) -> Answers:
        every = [(place, each) for place, several in chosen.items() for each in several]
        found: Answers = [None] * len(texts)
        if not every:
            return found
        sources = [texts[place] for place, _ in every]
        targets = [[self.target_tokens[index] for index in each.ids] for _, each in every]
        scores = self.inner.score_batch(sources, targets, max_batch_size=options.batch_sentences, max_input_length=0)
        for (place, each), score in zip(every, scores, strict=True):
            found[place] = sorted([*(found[place] or []), each.hypothesis(score.log_probs, options)], key=_worst)
        return found


class GenerationEngine(Engine):
    kind = "Generator"

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.tokens = bundle.tokenizer.vocabulary(bundle.config.vocabulary[0])
        self.specials = bundle.tokenizer.specials

    def search(
        self,
        prompts: Sequence[Sequence[int]],
        limit: int,
        options: DecodeConfig,
        forbidden: Sequence[int],
        stops: Stops | None,
    ) -> Answers:
        """The best continuations of prompts of one length (ids with begin), as `search_steps` would find them."""
        self.check(options, stops=stops is not None)
        cap = self._cap(limit, read=len(prompts[0]))
        if cap < 0 or (options.beam > 1 and len(self.specials.ends) > 1):  # several ends crowd its beam
            return [None] * len(prompts)
        texts = [[self.tokens[index] for index in prompt] for prompt in prompts]
        stopped, callback = _watch(stops, len(prompts), limit)
        penalty, hypotheses = _plan(options)
        answers = self.inner.generate_batch(
            texts,
            beam_size=options.beam,
            num_hypotheses=hypotheses,
            length_penalty=penalty,
            min_length=options.min_length,
            max_length=cap + 1,
            return_scores=options.beam > 1,
            return_end_token=True,
            include_prompt_in_result=False,
            end_token=sorted(self.specials.ends),
            disable_unk=self.specials.unknown in forbidden,
            suppress_sequences=[[self.tokens[index]] for index in forbidden if index != self.specials.unknown],
            callback=callback,
        )
        return self._scored(prompts, list(self._chosen(answers, stopped, limit, options)), options)

    def _chosen(
        self, answers: Sequence[Any], stopped: dict[int, int], limit: int, options: DecodeConfig
    ) -> Iterator[list[Chosen] | None]:
        for place, answer in enumerate(answers):
            found = _found(answer.sequences_ids, answer.scores, self.specials)
            if place in stopped:
                yield [Chosen(found[0].ids[: stopped[place]], (), finished=True)]
            else:
                yield choose(found, limit, options, forced=self.specials.end)

    def _scored(
        self, prompts: Sequence[Sequence[int]], chosen: list[list[Chosen] | None], options: DecodeConfig
    ) -> Answers:
        every = [(place, each) for place, several in enumerate(chosen) for each in several or ()]
        found: Answers = [None] * len(prompts)
        if not every:
            return found
        whole = [[*prompts[place], *each.ids, *each.tail] for place, each in every]
        scores = self.inner.score_batch(
            [[self.tokens[index] for index in ids] for ids in whole],
            max_batch_size=options.batch_sentences,
            max_input_length=0,
        )
        for (place, each), score in zip(every, scores, strict=True):
            log_probs = score.log_probs[len(prompts[place]) - 1 :]
            found[place] = sorted([*(found[place] or []), each.hypothesis(log_probs, options)], key=_worst)
        return found


def choose(found: Sequence[Found], limit: int, options: DecodeConfig, forced: int | None = None) -> list[Chosen] | None:
    """The n best of what was found for one source; None where that is not certain.

    Greedily, what goes on beyond the limit is cut there, and ends with the forced token. A beam must have ended of itself,
    all of it, before the limit.
    """
    if options.beam == 1:
        one = found[0]
        if one.end is None and len(one.ids) <= limit:  # positions ran out before the limit
            return None
        if one.end is not None and len(one.ids) <= limit:
            return [Chosen(one.ids, (one.end,), finished=True)]
        return [Chosen(one.ids[:limit], () if forced is None else (forced,), finished=False)]
    if any(each.end is None or len(each.ids) >= limit for each in found):
        return None
    by_themselves = options.length_penalty == "power" or options.stopping == "exact"
    best = found[: options.n_best] if by_themselves else _ranked(found, options)
    if best is None:
        return None
    return [Chosen(each.ids, (cast("int", each.end),), finished=True) for each in best]


def _ranked(found: Sequence[Found], options: DecodeConfig) -> list[Found] | None:
    """The n best of those with the best totals, if none that was left out can be among them."""
    scores = {each: each.score / _penalty(options, len(each.ids) + 1) for each in found}
    best = sorted(found, key=lambda each: -scores[each])[: options.n_best]
    longest = max(len(each.ids) for each in found) + 1
    bound = min(each.score for each in found) / _penalty(options, longest)
    return best if scores[best[-1]] >= bound else None


def _plan(options: DecodeConfig) -> tuple[float, int]:
    """x of the length penalty length^x that CTranslate2 ranks by, and how many sequences it is asked for."""
    if options.beam == 1 or options.stopping == "exact":
        return 0.0, 1
    return max(NO_PENALTY, options.alpha if options.length_penalty == "power" else 0.0), options.beam


def _penalty(options: DecodeConfig, length: int) -> float:
    return PENALTIES[options.length_penalty](length, options.alpha)


def _found(sequences: Sequence[list[int]], scores: Sequence[float], specials: Specials) -> list[Found]:
    """Take the end tokens off; greedy search gives no scores."""
    found = []
    for ids, score in zip(sequences, scores or [0.0] * len(sequences), strict=True):
        ended = bool(ids) and ids[-1] in specials.ends
        found.append(Found(tuple(ids[:-1] if ended else ids), ids[-1] if ended else None, score))
    return found


def _watch(stops: Stops | None, count: int, limit: int) -> tuple[dict[int, int], Callable[[Any], bool] | None]:
    """How many tokens each text has at its stop string, filled by a function that CTranslate2 calls at each token."""
    stopped: dict[int, int] = {}
    if stops is None:
        return stopped, None
    written: list[list[int]] = [[] for _ in range(count)]

    def callback(step: Any) -> bool:
        ids = written[step.batch_id]
        ids.append(step.token_id)
        if not step.is_last and len(ids) <= limit and stops(ids):
            stopped[step.batch_id] = len(ids)
        return step.batch_id in stopped

    return stopped, callback


def _worst(found: Hypothesis) -> float:
    return -found.score


def _versions(model: nn.Module) -> tuple[tuple[int, int], ...]:
    """Where the weights lie and how often they were written."""
    return tuple((parameter.data_ptr(), parameter._version) for parameter in model.parameters())


def _device(model: nn.Module) -> str:
    kind = next(model.parameters()).device.type
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"{NAME} computes on cpu and cuda, not on {kind}", Advice("choose ", Option("device", "cpu")))
    return kind
