"""`regard verify` of every kind that asks stories, remembers bits and computes with tables."""

from __future__ import annotations

import pytest
import torch

from regard.bundle import Bundle, BundleConfig
from regard.models.table import build
from regard.tasks.configure import run_config
from regard.tokens import TokenizerPair, TokensConfig, train_tokenizer
from regard.verify import verify

SMALL = {
    "memory-network": {"width": 8, "hops": 4, "tying": "none", "relu": True},
    "lstm": {"width": 8, "hidden": 8},
    "bert": {"width": 8, "heads": 2, "layers": 1, "feed_forward": 8, "max_length": 80},
    "turing-machine": {"hidden": 8, "rows": 6, "width": 4},
    "llama": {"width": 8, "heads": 2, "layers": 1, "feed_forward": 8, "max_length": 80},
    "ponder": {"hidden": 8, "most": 5},
    "programmer": {"width": 8, "hidden": 8},
}


def bundle_of(task: str, kind: str) -> Bundle:
    torch.manual_seed(1)
    model = run_config(task, {"preset": "demo", "model": {"kind": kind, **SMALL[kind]}}).model
    if task == "remember":
        about = BundleConfig(task=task, model=model, vocabulary=(6, 4), sequences="builtin/copy-bits/5")
        return Bundle(about, build(task, model, (6, 4)), None, {})
    tokens = TokensConfig(kind="space" if task == "compute" else "word")
    tokenizer = train_tokenizer(["Mary went to the park with John and took a ring there"], tokens)
    sizes = {"vocabulary": (tokenizer.size,), "labels": ("park", "cave", "school"), "tokens": tokens}
    network = build(task, model, (tokenizer.size,), labels=3)
    return Bundle(BundleConfig(task=task, model=model, **sizes), network, TokenizerPair(tokenizer, tokenizer), {})


@pytest.mark.parametrize(
    ("task", "kind"),
    [*(("ask", kind) for kind in ("memory-network", "lstm", "bert")),
     *(("remember", kind) for kind in ("turing-machine", "lstm", "llama", "ponder")), ("compute", "programmer")],
)  # fmt: skip
def test_every_invariant_holds(task: str, kind: str) -> None:
    found = {each.name: each for each in verify(bundle_of(task, kind))}
    assert not [each for each in found.values() if each.passed is False]
    needed = {
        "batched = single",
        "padded = unpadded",
        "accumulated = large batch",
        "reloaded = saved",
        "resumed = uninterrupted",
    }
    assert all(found[name].passed for name in needed)
    looks = kind in ("memory-network", "bert", "llama", "programmer")
    assert found["recorded weights = output"].passed is (True if looks else None)
