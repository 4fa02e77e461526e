"""The invariants that every model should keep, tried on a user's own bundle with synthetic batches.

    for check in regard.verify.verify_bundle("runs/translate/3"):
        print(check.name, check.passed, check.detail)

Equality is measured on a float64 copy of the model, where only rounding is left, and beside it in float32, which is what
the model runs in. Differences are relative to the largest number compared (absolute if that is under 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.bundle import Bundle, load_bundle
from regard.runs import bundle_folder
from regard.tasks.subject import NotApplicable, Subject
from regard.tasks.table import TASKS
from regard.verify.computing import accumulated, batched, cached, causal, padded, prompted, recorded, reordered
from regard.verify.disk import reloaded, resumed, round_trip

CHECKS: dict[str, Callable[[Subject], tuple[bool, str]]] = {
    "cached = uncached": cached,
    "prompt at once = token by token": prompted,
    "reordered = recomputed": reordered,
    "later tokens change nothing earlier": causal,
    "batched = single": batched,
    "padded = unpadded": padded,
    "accumulated = large batch": accumulated,
    "recorded weights = output": recorded,
    "reloaded = saved": reloaded,
    "resumed = uninterrupted": resumed,
    "tokenizer round trip": round_trip,
}


@dataclass(frozen=True)
class Check:
    """What one invariant came to. `passed` is None where it does not apply; `detail` has the number or the reason."""

    name: str
    passed: bool | None
    detail: str


def verify_bundle(path: str | Path, device: str = "cpu") -> list[Check]:
    """Try every invariant on the bundle of a bundle's or a run's folder."""
    return verify(load_bundle(bundle_folder(path), device))


def verify(bundle: Bundle, names: Iterable[str] | None = None) -> list[Check]:
    """Try these invariants (every one unless named) on a loaded bundle; neither it nor torch's random state is changed."""
    subject = TASKS[bundle.config.task].make_subject.of(bundle)
    with torch.random.fork_rng(devices=[]):
        return [_result(name, CHECKS[name], subject) for name in names or CHECKS]


def _result(name: str, check: Callable[[Subject], tuple[bool, str]], subject: Subject) -> Check:
    try:
        return Check(name, *check(subject))
    except NotApplicable as reason:
        return Check(name, None, str(reason))
    except Exception as error:  # a broken model may break in any way: that is an answer, not a crash
        return Check(name, False, f"{type(error).__name__}: {error}")


__all__ = ["CHECKS", "Check", "NotApplicable", "verify", "verify_bundle"]
