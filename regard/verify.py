"""The invariants that every model should keep, tried on a user's own bundle with synthetic batches.

    for check in regard.verify.verify_bundle("runs/translate/3"):
        print(check.name, check.passed, check.detail)

Equality is measured on a float64 copy of the model, where only rounding is left, and beside it in float32, which is what
the model runs in. Differences are relative to the largest number compared (absolute if that is under 1).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import record
from regard.bundle import Bundle, BundleConfig, load_bundle, save_bundle
from regard.data.batch import PairBatch, pair_batch
from regard.data.batches import Batches, TokenPairs
from regard.runs import bundle_folder
from regard.tokens import BEGIN, END, PAD, SPECIAL, TextTokenizer, as_arrays
from regard.training.averages import weights_of
from regard.training.config import TrainConfig
from regard.training.log import LOG
from regard.training.loop import Job, Validation, train
from regard.training.show import Show

ALLOWED = {torch.float64: 1e-9, torch.float32: 1e-4}

SOURCE_LENGTHS, TARGET_LENGTHS = (7, 11, 3, 5, 2), (5, 2, 11, 7, 3)  # tokens of each pair: primes, none alike
EXTRA_SOURCE, EXTRA_TARGET = 3, 2  # columns of padding behind a pair that has none
ODD_TEXTS = (
    "A man rides a bike.",
    "  spaces before,  between and behind  ",
    "tab\tline\nend\r\n\x00\x1f\x7f\x85\u2028",
    "Ünï çødé, e\u0301 and \u00e9, ﬁ, İ, ß",
    "日本語のテキスト ไทย עברית العربية हिन्दी",
    "👩‍👩‍👧‍👦🇫🇮 𝔘𝔫𝔦 \U0010ffff",
    "<pad> <s> </s> <unk> are text here",
    "",
)


@dataclass(frozen=True)
class Check:
    """What one invariant came to. `passed` is None where it does not apply; `detail` has the number or the reason."""

    name: str
    passed: bool | None
    detail: str


class NotApplicable(Exception):
    """Why an invariant does not apply to this bundle."""


def verify_bundle(path: str | Path, device: str = "cpu") -> list[Check]:
    """Try every invariant on the bundle of a bundle's or a run's folder."""
    return verify(load_bundle(bundle_folder(path), device))


def verify(bundle: Bundle, names: Iterable[str] | None = None) -> list[Check]:
    """Try these invariants (every one unless named) on a loaded bundle; neither it nor torch's random state is changed."""
    subject = Subject.of(bundle)
    with torch.random.fork_rng(devices=[]):
        return [_result(name, CHECKS[name], subject) for name in names or CHECKS]


def _result(name: str, check: Callable[[Subject], tuple[bool, str]], subject: Subject) -> Check:
    try:
        return Check(name, *check(subject))
    except NotApplicable as reason:
        return Check(name, None, str(reason))
    except Exception as error:  # a broken model may break in any way: that is an answer, not a crash
        return Check(name, False, f"{type(error).__name__}: {error}")


@dataclass(frozen=True, eq=False)
class Subject:
    """A bundle, its model in both precisions, and pairs of random tokens."""

    bundle: Bundle
    models: dict[torch.dtype, Any]
    pairs: TokenPairs

    @classmethod
    def of(cls, bundle: Bundle) -> Subject:
        device = next(bundle.model.parameters()).device
        exact = copy.deepcopy(bundle.model)
        if device.type == "mps":  # has no float64
            exact = exact.cpu()
        models = {torch.float64: exact.double().eval(), torch.float32: copy.deepcopy(bundle.model).float().eval()}
        return cls(bundle, models, random_pairs(bundle.config))

    def compare(self, measure: Callable[[Any, TokenPairs], float]) -> tuple[bool, str]:
        """Measure a difference in both precisions; it passes if both are small enough."""
        found = {kind: measure(model, self.pairs) for kind, model in self.models.items()}
        passed = all(found[kind] <= limit for kind, limit in ALLOWED.items())  # NaN is not
        parts = [f"{found[kind]:.0e} in {str(kind)[6:]} ({limit:.0e} allowed)" for kind, limit in ALLOWED.items()]
        return passed, f"largest difference {', '.join(parts)}"


def random_pairs(config: BundleConfig, seed: int = 1) -> TokenPairs:
    """Pairs of random tokens of the bundle's vocabularies, of different lengths."""
    random = np.random.default_rng(seed)
    longest = math.inf if config.model.longest is None else config.model.longest  # learned positions end somewhere
    room = max(1, longest - 1 - max(EXTRA_SOURCE, EXTRA_TARGET))

    def draw(lengths: Sequence[int], vocabulary: int) -> list[list[int]]:
        lowest = min(len(SPECIAL), vocabulary - 1)
        return [random.integers(lowest, vocabulary, int(min(length, room))).tolist() for length in lengths]

    sources = draw(SOURCE_LENGTHS, config.vocabulary[0])
    targets = draw(TARGET_LENGTHS, config.vocabulary[1])
    return TokenPairs(as_arrays(sources, begin=False), as_arrays(targets, begin=True), PAD)


# -- one way of computing against another ------------------------------------------------------------------------------


def cached(subject: Subject) -> tuple[bool, str]:
    """Step by step with a cache, the decoder gives what one teacher-forced pass gives."""
    _needs_steps(subject)

    def measure(model: Any, pairs: TokenPairs) -> float:
        batch = _take(model, pairs, range(len(pairs)))
        return difference(_real(_stepped(model, batch), batch), _real(model.logits(batch), batch))

    return subject.compare(torch.no_grad()(measure))


def reordered(subject: Subject) -> tuple[bool, str]:
    """Hypotheses that branched, moved and outlived their neighbours go on as if each had been computed alone."""
    _needs_steps(subject)

    def measure(model: Any, pairs: TokenPairs) -> float:
        batch = _take(model, pairs, range(len(pairs)))
        random = np.random.default_rng(2)
        rows, vocabulary = len(pairs), model.logits(batch).size(-1)
        written = np.full((rows, 1, 1), BEGIN)  # (B, W, length): what each hypothesis has read
        sources = np.arange(rows)
        _, state = model.start((batch.source, batch.source_lengths), batch.target[:, :1])
        for width, kept in ((3, [0, 1, 2, 3, 4]), (3, [0, 2, 3]), (2, [1, 2])):
            state = model.keep(state, torch.tensor(kept, device=batch.source.device))
            parents = random.integers(0, written.shape[1], (len(kept), width))
            state = model.reorder(state, torch.from_numpy(parents).to(batch.source.device))
            ids = random.integers(min(len(SPECIAL), vocabulary - 1), vocabulary, (len(kept), width))
            logits, state = model.step(torch.from_numpy(ids).to(batch.source.device), state)  # (B, W, V)
            sources = sources[kept]
            written = np.take_along_axis(written[kept], parents[:, :, None], axis=1)
            written = np.concatenate([written, ids[:, :, None]], axis=2)
        alone = [pairs.sources[source] for source in sources for _ in range(width)]
        forced = pair_batch(alone, [np.append(ids, END) for ids in written.reshape(len(alone), -1)], PAD)
        return difference(logits.flatten(0, 1), model.logits(forced.to(batch.source.device))[:, -1])

    return subject.compare(torch.no_grad()(measure))


def batched(subject: Subject) -> tuple[bool, str]:
    """A pair gives the same among others as alone."""

    def measure(model: Any, pairs: TokenPairs) -> float:
        batch = _take(model, pairs, range(len(pairs)))
        together = model.logits(batch)
        return max(
            difference(together[row, :length], model.logits(_take(model, pairs, [row]))[0])
            for row, length in enumerate(batch.target_lengths.tolist())
        )

    return subject.compare(torch.no_grad()(measure))


def padded(subject: Subject) -> tuple[bool, str]:
    """Whatever stands behind the end of a pair changes neither its logits, nor its steps, nor its loss."""

    def measure(model: Any, pairs: TokenPairs) -> float:
        return max(difference(*both) for row in range(len(pairs)) for both in _with_and_without(model, pairs, row))

    return subject.compare(torch.no_grad()(measure))


def _with_and_without(model: Any, pairs: TokenPairs, row: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(Padded, unpadded): logits of a pass, logits of steps, and loss, of one pair."""
    alone = _take(model, pairs, [row])
    more = _lengthened(alone)
    length = alone.target.size(1) - 1
    yield model.logits(more)[:, :length], model.logits(alone)
    if hasattr(model, "start"):
        yield _stepped(model, more)[:, :length], _stepped(model, alone)
    parts = model(alone).parts
    for name, part in model(more).parts.items():
        yield part.sum, parts[name].sum


def _lengthened(batch: PairBatch) -> PairBatch:
    """The same pairs with columns behind them: on the source real-looking tokens, which no mask should let through."""
    last = batch.source[:, :1].expand(-1, EXTRA_SOURCE)
    fill = batch.target.new_full((len(batch.target), EXTRA_TARGET), PAD)
    return PairBatch(
        torch.cat([batch.source, last], dim=1),
        batch.source_lengths,
        torch.cat([batch.target, fill], dim=1),
        batch.target_lengths,
        batch.target_tokens,
    )


def accumulated(subject: Subject) -> tuple[bool, str]:
    """Two micro-batches of unequal size add up to the gradient of one batch (dropout off)."""

    def measure(model: Any, pairs: TokenPairs) -> float:
        large = _gradient(model, [_take(model, pairs, range(len(pairs)))])
        small = _gradient(model, [_take(model, pairs, range(2)), _take(model, pairs, range(2, len(pairs)))])
        return difference(small, large, least=1e-6)

    return subject.compare(measure)


def _gradient(model: Any, batches: Sequence[PairBatch]) -> Tensor:
    """The gradient of the mean loss over all these batches, in one vector."""
    totals = {name: sum(batch.counts[name] for batch in batches) for name in batches[0].counts}
    model.zero_grad(set_to_none=True)
    for batch in batches:
        model(batch).objective(totals).backward()
    found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    model.zero_grad(set_to_none=True)
    return torch.cat(found)


def recorded(subject: Subject) -> tuple[bool, str]:
    """The weights that the recorder gives, times the values, are what each attention gave; rows sum to one where they must."""

    def measure(model: Any, pairs: TokenPairs) -> float:
        batch = _take(model, pairs, range(len(pairs)))
        with record(model) as seen:
            model.logits(batch)
            if hasattr(model, "start"):
                _stepped(model, batch)
        if not seen.calls:
            raise NotApplicable(f"a {subject.bundle.config.model.kind} has no attention")
        whole = [call for call in seen.calls if call.sums_to_one]
        rows = [call.weights().sum(dim=-1)[call.allowed().any(dim=-1)] for call in whole]
        return max([seen.check(), *(difference(row, torch.ones_like(row)) for row in rows)])

    return subject.compare(torch.no_grad()(measure))


# -- through the disk --------------------------------------------------------------------------------------------------


def reloaded(subject: Subject) -> tuple[bool, str]:
    """Saved and loaded again, every tensor and every logit has the same bits, and every text the same ids."""
    bundle = subject.bundle
    with TemporaryDirectory() as place:
        again = load_bundle(save_bundle(Path(place) / "bundle", bundle), next(bundle.model.parameters()).device)
    before, after = weights_of(bundle.model), weights_of(again.model)
    changed = [name for name in before if name not in after or not torch.equal(before[name], after[name])]
    if changed or before.keys() != after.keys():
        return False, f"{len(changed)} of {len(before)} tensors changed, the first is {changed[:1]}"
    batch = _take(bundle.model, subject.pairs, range(len(subject.pairs)))
    models: list[Any] = [copy.deepcopy(bundle.model).eval(), again.model]
    with torch.no_grad():
        if not torch.equal(*(model.logits(batch) for model in models)):
            return False, "the weights are equal, but the logits are not"
    for side in ("source", "target"):
        before_ids, after_ids = (getattr(each.tokenizers, side).encode_all(ODD_TEXTS) for each in (bundle, again))
        if before_ids != after_ids:
            return False, f"the {side} tokenizer gives other ids"
    return True, f"{len(before)} tensors, logits and token ids are bit-equal"


def resumed(subject: Subject) -> tuple[bool, str]:
    """Trained a few steps, a run that broke off between two checkpoints ends with the bits of one that did not."""
    with TemporaryDirectory() as place:
        whole, broken = Path(place) / "whole", Path(place) / "broken"
        _train(subject, whole)
        try:
            _train(subject, broken, stop_at=3)
        except _Stopped:
            _train(subject, broken, resume=True)
        files = sorted(file.relative_to(whole) for file in whole.glob("checkpoints/*/*.safetensors"))
        files += [Path(LOG)]
        other = [str(file) for file in files if (whole / file).read_bytes() != (broken / file).read_bytes()]
    if other:
        return False, f"stopped at step 3 of 5 and resumed, these differ: {', '.join(other)}"
    return (
        True,
        f"stopped at step 3 of 5 and resumed: {len(files)} files (weights, optimiser, average, log) are bit-equal",
    )


class _Stopped(Exception):
    """A run broke off, on purpose."""


@dataclass
class _StopAt(Show):
    step: int

    def train(self, row: dict[str, Any], spent: float, config: TrainConfig) -> None:
        if row["step"] == self.step:
            raise _Stopped


def _train(subject: Subject, folder: Path, *, stop_at: int = 0, resume: bool = False) -> None:
    """Five updates of the bundle's own model through the real loop, on a CPU, where equal bits can be asked for."""
    config = TrainConfig(
        steps=5, accumulate=2, batch_tokens=32, lr=1e-4, schedule="constant", warmup=0, ema=0.9, average=2,
        validate_every=2, patience=0, log_every=1, precision="float32",
    )  # fmt: skip
    model = copy.deepcopy(subject.bundle.model).cpu().float()
    held = subject.pairs.take(range(len(subject.pairs)))

    def validate(model: nn.Module) -> Validation:
        part = model(held).parts["nll"]
        return Validation({"loss": float(part.sum) / part.count})

    job = Job(
        folder=folder,
        config=config,
        model=model,
        width=subject.bundle.config.model.width,
        batches=Batches(subject.pairs, config.batch_tokens, config.seed),
        validate=validate,
        save=lambda model, name, metrics: None,
    )
    if train(job, _StopAt(stop_at), resume).reason == "interrupted":
        raise KeyboardInterrupt


def round_trip(subject: Subject) -> tuple[bool, str]:
    """Text -> ids -> text is the same text, or, where a tokenizer loses something, loses nothing more the second time."""
    config, tokenizers = subject.bundle.config.tokens, subject.bundle.tokenizers
    exact = config.kind in ("bpe", "byte") and config.normalise == "none" and not config.lowercase
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        for text in ODD_TEXTS:
            first = text if exact else _there_and_back(tokenizer, text)
            again = _there_and_back(tokenizer, first)
            if again != first:
                return False, f"the {side} tokenizer turns {first!r} into {again!r}"
    if exact:
        return True, f"{len(ODD_TEXTS)} odd texts come back exactly"
    return True, f"{config.kind} tokens lose something of a text once, and nothing more the second time"


def _there_and_back(tokenizer: TextTokenizer, text: str) -> str:
    return tokenizer.decode(tokenizer.encode(text))


CHECKS: dict[str, Callable[[Subject], tuple[bool, str]]] = {
    "cached = uncached": cached,
    "reordered = recomputed": reordered,
    "batched = single": batched,
    "padded = unpadded": padded,
    "accumulated = large batch": accumulated,
    "recorded weights = output": recorded,
    "reloaded = saved": reloaded,
    "resumed = uninterrupted": resumed,
    "tokenizer round trip": round_trip,
}


# -- what the checks share ---------------------------------------------------------------------------------------------


def difference(found: Tensor, expected: Tensor, least: float = 1.0) -> float:
    """The largest difference, relative to the largest expected number, which counts as no less than `least`."""
    if found.shape != expected.shape:
        raise ValueError(f"shapes {tuple(found.shape)} and {tuple(expected.shape)} differ")
    scale = max(least, float(expected.abs().max()))
    return float((found - expected).abs().max()) / scale


def _take(model: nn.Module, pairs: TokenPairs, rows: Sequence[int]) -> PairBatch:
    return pairs.take(rows).to(next(model.parameters()).device)


def _real(logits: Tensor, batch: PairBatch) -> Tensor:
    """Only the positions that stand for a token: (B, T, V) -> (N, V)."""
    places = torch.arange(logits.size(1), device=logits.device)
    return logits[places < batch.target_lengths[:, None]]


def _stepped(model: Any, batch: PairBatch) -> Tensor:
    """The logits of every target position, one step after the other: (B, T, V)."""
    logits, state = model.start((batch.source, batch.source_lengths), batch.target[:, :1])
    steps = [logits]
    for column in batch.target[:, 1:-1].split(1, dim=1):
        logits, state = model.step(column, state)
        steps.append(logits)
    return torch.cat(steps, dim=1)


def _needs_steps(subject: Subject) -> None:
    if not hasattr(subject.bundle.model, "start"):
        raise NotApplicable(f"a {subject.bundle.config.model.kind} does not write step by step")
