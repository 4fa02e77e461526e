"""`regard.verify` passes sound bundles of every kind that sees, says why the rest does not apply, and finds what is broken."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.bundle import Bundle, BundleConfig
from regard.models.config import KINDS_OF
from regard.models.pictures.answerer import Answerer
from regard.models.pictures.show_attend_tell import ShowAttendTell
from regard.models.table import build
from regard.tokens import TokenizerPair, TokensConfig, train_tokenizer
from regard.verify import verify

SIZE = 12
CONVNET = {"kind": "convnet", "channels": (4, 6), "layers": 1}
VIT = {"kind": "vit", "layers": 1, "width": 8, "heads": 2, "feed_forward": 8}
BLOCKS = {"width": 12, "heads": 3, "layers": 2, "feed_forward": 7}
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("classify-pictures", "convnet", {"channels": (4, 6), "layers": 1}),
    ("classify-pictures", "convnet", {"channels": (4, 6), "layers": 1, "attention": "cbam"}),
    ("classify-pictures", "resnet", {"channels": (4, 6), "blocks": 1, "attention": "se"}),
    ("classify-pictures", "vit", {"layers": 2, "width": 12, "heads": 3, "feed_forward": 7, "dropout": 0.1}),
    ("classify-pictures", "vit", {"layers": 1, "width": 12, "heads": 3, "pool": "mean", "positions": "sinusoidal"}),
    ("classify-pictures", "mixer", {"layers": 2, "width": 8, "places": 5, "feed_forward": 7}),
    ("classify-pictures", "convmixer", {"layers": 2, "width": 6, "kernel": 3, "patch": 4}),
    ("caption", "show-attend-tell", {"width": 8, "hidden": 10, "attention": 5, "encoder": VIT}),
    ("caption", "show-attend-tell", {"width": 8, "hidden": 10, "attention": 5, "hard": True, "encoder": VIT}),
    ("caption", "caption-transformer", {**BLOCKS, "encoder": CONVNET}),
    ("caption", "show-and-tell", {"width": 8, "hidden": 10, "encoder": CONVNET}),
    ("answer", "answerer", {**BLOCKS, "encoder": VIT}),
]


def make(task: str, kind: str, model: dict[str, Any]) -> Bundle:
    """A bundle with random weights."""
    tokens = None if task == "classify-pictures" else TokensConfig(kind="word", min_count=1)
    pair = None
    if tokens is not None:
        tokenizer = train_tokenizer(["a red ring left of a large blue cross", "is there a small circle ?"], tokens)
        pair = TokenizerPair(tokenizer, tokenizer)
    labels = () if task == "caption" else ("fish", "flesh", "fowl")
    config = BundleConfig.model_validate(
        {
            "task": task,
            "tokens": tokens,
            "vocabulary": () if pair is None else (pair.target.size,),
            "labels": labels,
            "pictures": {"size": SIZE},
            "model": {"kind": kind, **model},
        }
    )
    torch.manual_seed(5)
    built = build(task, config.model, config.vocabulary, labels=len(labels), pictures=config.pictures).eval()
    return Bundle(config, built, pair, {})


def test_no_kind_that_sees_is_forgotten() -> None:
    assert {(task, kind) for task, kind, _ in KINDS} == {
        (task, kind) for task in ("classify-pictures", "caption", "answer") for kind in KINDS_OF[task]
    }


@pytest.mark.parametrize(("task", "kind", "model"), KINDS)
def test_every_invariant_holds_or_says_why_not(task: str, kind: str, model: dict[str, Any]) -> None:
    checks = {check.name: check for check in verify(make(task, kind, model))}
    assert [check for check in checks.values() if check.passed is False] == []
    passed = {name for name, check in checks.items() if check.passed}
    assert {"batched = single", "reloaded = saved", "resumed = uninterrupted"} <= passed
    if task == "caption":
        steps = {"cached = uncached", "reordered = recomputed", "later tokens change nothing earlier"}
        assert steps | {"padded = unpadded", "tokenizer round trip"} <= passed
    if kind in ("vit", "answerer"):
        assert {"accumulated = large batch", "recorded weights = output"} <= passed
    if kind in ("convnet", "resnet", "convmixer"):
        assert "batch norm" in checks["accumulated = large batch"].detail
    if kind == "mixer":
        assert checks["recorded weights = output"].detail == "a mixer has no attention"


def test_what_is_broken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that look at padding; states that forget where they looked from."""
    features = Answerer.features

    def unmasked(self: Answerer, batch: Any) -> Any:
        whole = torch.full_like(batch.lengths, batch.ids.size(1))
        return features(self, type(batch)(batch.pixels, batch.ids, whole, batch.labels))

    monkeypatch.setattr(Answerer, "features", unmasked)
    (padded,) = verify(make("answer", "answerer", {**BLOCKS, "encoder": VIT}), ["padded = unpadded"])
    assert padded.passed is False
    advance = ShowAttendTell.advance

    def forgetful(self: ShowAttendTell, y: Any, state: Any) -> Any:
        vectors, after = advance(self, y, state)
        return vectors, type(after)(
            [(h * 0.9, c) for h, c in after.layers], after.source, after.fed, after.read, after.hypotheses
        )

    monkeypatch.setattr(ShowAttendTell, "advance", forgetful)
    model = {"width": 8, "hidden": 10, "attention": 5, "encoder": VIT}
    (cached,) = verify(make("caption", "show-attend-tell", model), ["cached = uncached"])
    assert cached.passed is False
