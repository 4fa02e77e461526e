"""One way of computing against another, which must give the same: by steps, in batches, with padding, in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.attention import record
from regard.models.protocols import has_steps
from regard.tasks.subject import ROWS, Batch, Model, NotApplicable, Subject, difference


def cached(subject: Subject) -> tuple[bool, str]:
    """Step by step with a cache, a model gives what one pass over the whole gives."""
    subject.needs_steps()

    def measure(model: Model) -> float:
        batch = subject.batch(model)
        stepped, at_once = subject.steps(model, batch), subject.outputs(model, batch)
        return _largest(subject.real(stepped, batch), subject.real(at_once, batch))

    return subject.compare(torch.no_grad()(measure))


def prompted(subject: Subject) -> tuple[bool, str]:
    """A beginning that is read at once leaves the model where reading it token by token does."""
    subject.needs_steps()

    def measure(model: Model) -> float:
        batch = subject.batch(model)
        ids, expected = subject.writes(batch), subject.steps(model, batch)
        found = []
        for length in _places(expected.size(1)):
            logits, state = model.start(subject.reads(batch), ids[:, :length])
            following, _ = model.step(ids[:, length : length + 1], state)
            both = torch.cat([logits, following], dim=1)  # (B, 2, V)
            found.append(difference(both, expected[:, length - 1 : length + 1]))
        return _worst(found)

    return subject.compare(torch.no_grad()(measure))


def reordered(subject: Subject) -> tuple[bool, str]:
    """Hypotheses that branched, moved and outlived their neighbours go on as if each had been computed alone."""
    subject.needs_steps()

    def measure(model: Model) -> float:
        batch = subject.batch(model)
        random, device = np.random.default_rng(2), next(model.parameters()).device
        written = subject.writes(batch)[:, None, :2].cpu().numpy()  # (B, W, length): what each hypothesis has read
        sources = np.array(ROWS)
        _, state = model.start(subject.reads(batch), subject.writes(batch)[:, :2])
        for width, kept in ((3, [0, 1, 2, 3, 4]), (3, [0, 2, 3]), (2, [1, 2])):
            state = model.keep(state, torch.tensor(kept, device=device))
            parents = random.integers(0, written.shape[1], (len(kept), width))
            state = model.reorder(state, torch.from_numpy(parents).to(device))
            ids = random.choice(subject.ordinary(), (len(kept), width))
            logits, state = model.step(torch.from_numpy(ids).to(device), state)  # (B, W, V)
            sources = sources[kept]
            written = np.take_along_axis(written[kept], parents[:, :, None], axis=1)
            written = np.concatenate([written, ids[:, :, None]], axis=2)
        alone = subject.batch(model, [int(source) for source in sources for _ in range(width)])
        ids = np.pad(written.reshape(len(sources) * width, -1), ((0, 0), (0, 1)))  # what comes last is not read
        forced = subject.rewritten(alone, torch.from_numpy(ids).to(device))
        return difference(logits.flatten(0, 1), subject.outputs(model, forced)[:, -1])

    return subject.compare(torch.no_grad()(measure))


def causal(subject: Subject) -> tuple[bool, str]:
    """The logits of a place do not depend on the tokens behind it."""

    def measure(model: Model) -> float:
        batch = subject.batch(model)
        ids = subject.writes(batch)
        one, other = subject.ordinary()[[0, -1]].tolist()
        changed = torch.where(ids == one, other, one)  # (B, T + 1)
        before = subject.outputs(model, batch)
        found = []
        for place in _places(before.size(1)):
            later = subject.rewritten(batch, torch.cat([ids[:, :place], changed[:, place:]], dim=1))
            found.append(difference(subject.outputs(model, later)[:, :place], before[:, :place]))
        return _worst(found)

    return subject.compare(torch.no_grad()(measure))


def batched(subject: Subject) -> tuple[bool, str]:
    """A row gives the same among others as alone."""

    def measure(model: Model) -> float:
        batch = subject.batch(model)
        together = subject.real(subject.outputs(model, batch), batch)
        alone = [subject.outputs(model, subject.batch(model, [row]))[0] for row in ROWS]
        return _largest(together, alone)

    return subject.compare(torch.no_grad()(measure))


def padded(subject: Subject) -> tuple[bool, str]:
    """Whatever stands behind the end of a row changes neither what is said of it, nor its steps, nor its loss."""

    def measure(model: Model) -> float:
        return _worst([difference(*both) for row in ROWS for both in _with_and_without(subject, model, row)])

    return subject.compare(torch.no_grad()(measure))


def _with_and_without(subject: Subject, model: Model, row: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(Padded, unpadded): what a pass says, what steps say, and parts of the loss, of one row."""
    alone = subject.batch(model, [row])
    more = subject.lengthened(alone)
    yield subject.real(subject.outputs(model, more), more)[0], subject.outputs(model, alone)[0]
    if has_steps(model) and subject.reads(alone) is not None:  # only a source can be padded where one steps
        yield subject.real(subject.steps(model, more), more)[0], subject.steps(model, alone)[0]
    if subject.learns:
        losses = subject.losses(model, alone)
        for name, loss in subject.losses(model, more).items():
            yield loss, losses[name]


def accumulated(subject: Subject) -> tuple[bool, str]:
    """Two micro-batches of unequal size add up to the gradient of one batch (dropout off)."""
    subject.needs_loss()
    subject.needs_parts()

    def measure(model: Model) -> float:
        large = _gradient(model, [subject.batch(model)])
        small = _gradient(model, [subject.batch(model, ROWS[:2]), subject.batch(model, ROWS[2:])])
        return difference(small, large, least=1e-6)

    return subject.compare(measure)


def _gradient(model: Model, batches: Sequence[Batch]) -> Tensor:
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

    def measure(model: Model) -> float:
        batch = subject.batch(model)
        with record(model) as seen:
            subject.outputs(model, batch)
            if has_steps(model):
                subject.steps(model, batch)
        if not seen.calls:
            raise NotApplicable(f"{subject.name} has no attention")
        whole = [call for call in seen.calls if call.sums_to_one]
        rows = [call.weights().sum(dim=-1)[call.allowed().any(dim=-1)] for call in whole]
        rebuilt = [difference(call.rebuilt(), call.out) for call in seen.calls if call.out.numel()]
        return _worst([*rebuilt, *(difference(row, torch.ones_like(row)) for row in rows)])

    return subject.compare(torch.no_grad()(measure))


def _places(length: int) -> list[int]:
    """The first, a middle and the last place at which a row of `length` can be cut in two."""
    return sorted({1, length // 2, length - 1} - {0})


def _largest(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    return _worst([difference(*both) for both in zip(found, expected, strict=True)])


def _worst(found: Sequence[float]) -> float:
    """The largest; not a number if one is not."""
    return float(np.max(found))
