"""`regard.verify` passes sound bundles of every kind, and every invariant fails when what it guards is broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import AttentionCall, Lengths
from regard.attention.attend import attention_weights
from regard.bundle import Bundle, BundleConfig
from regard.data.batch import PairBatch
from regard.models.config import TransformerConfig
from regard.models.loss import Loss, Part
from regard.models.memory import Memory
from regard.models.table import build_model
from regard.models.transformer import Transformer, TransformerState
from regard.tasks.run import RunResult
from regard.tokens import TextTokenizer, TokenizerPair, TokensConfig
from regard.verify import CHECKS, verify, verify_bundle

TEXTS = ["a man rides a red bike", "two dogs sleep under a tree", "the sun is bright today"] * 3


def make_bundle(model: dict[str, Any] | None = None, tokens: dict[str, Any] | None = None) -> Bundle:
    """A bundle with random weights."""
    settings = TokensConfig(**{"size": 300, "min_count": 1, **(tokens or {})})
    pair = TokenizerPair.train(TEXTS, [text[::-1] for text in TEXTS], settings)
    sizes = (pair.source.size, pair.target.size)
    small = {"encoder_layers": 1, "decoder_layers": 2, "width": 12, "heads": 3, "feed_forward": 17, "dropout": 0.1}
    config = TransformerConfig(**{**small, **(model or {})})
    torch.manual_seed(11)
    built = build_model(config, *sizes).eval()
    return Bundle(BundleConfig(tokens=settings, vocabulary=sizes, model=config), built, pair, {})


def failing(bundle: Bundle, *names: str) -> set[str]:
    """Names of the invariants that do not hold (among these, or all)."""
    return {check.name for check in verify(bundle, names or None) if check.passed is False}


FORWARD = ("cached = uncached", "reordered = recomputed", "batched = single", "padded = unpadded")


# -- sound -------------------------------------------------------------------------------------------------------------


def test_a_trained_run_keeps_every_invariant(tiny_run: RunResult) -> None:
    checks = verify_bundle(tiny_run.folder)
    assert [check.name for check in checks] == list(CHECKS)
    assert [check for check in checks if check.passed is not True] == []
    assert "float64 (1e-09 allowed)" in checks[0].detail and "bit-equal" in checks[6].detail


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ({"norm": "post", "activation": "gelu"}, {"kind": "byte"}),
        ({"positions": "learned", "max_length": 9, "tied": "target"}, {"joint": False}),
        ({"positions": "none", "tied": "none"}, {"kind": "word", "size": 40}),
        ({"attention_dropout": 0.2, "activation_dropout": 0.1}, {"kind": "character", "lowercase": True}),
    ],
)
def test_sound_bundles_of_every_kind(model: dict[str, Any], tokens: dict[str, Any]) -> None:
    assert failing(make_bundle(model, tokens)) == set()


def test_the_bundle_is_left_as_it_was() -> None:
    bundle = make_bundle()
    before = {name: tensor.clone() for name, tensor in bundle.model.state_dict().items()}
    random = torch.random.get_rng_state()
    verify(bundle, ["accumulated = large batch", "resumed = uninterrupted"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in bundle.model.state_dict().items())
    assert all(parameter.grad is None for parameter in bundle.model.parameters())
    assert not bundle.model.training
    assert torch.equal(torch.random.get_rng_state(), random)


# -- sabotaged ---------------------------------------------------------------------------------------------------------


def test_a_stepper_with_a_wrong_position(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Transformer.step

    def late(self: Transformer, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        logits, after = step(self, ids, TransformerState(state.blocks, state.read + 1))
        return logits, TransformerState(after.blocks, state.read + 1)

    monkeypatch.setattr(Transformer, "step", late)
    assert failing(make_bundle(), *FORWARD) == {"cached = uncached", "reordered = recomputed"}


def test_a_decoder_that_sees_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(self: Transformer, ids: Tensor, memory: Memory) -> Tensor:
        x = self.target(ids)
        for block in self.decoder:
            x = block(x, None, memory.vectors, memory.mask)
        return self.decoder_norm(x)

    monkeypatch.setattr(Transformer, "decode", decode)
    assert {"cached = uncached", "padded = unpadded"} <= failing(make_bundle(), *FORWARD)


def test_a_mask_that_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(self: Lengths, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        return torch.ones(len(self.lengths), 1, 1, keys, dtype=torch.bool, device=device)

    monkeypatch.setattr(Lengths, "dense", everything)
    assert {"batched = single", "padded = unpadded"} <= failing(make_bundle(), *FORWARD)


def test_a_mask_that_only_the_steps_ignore(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Transformer.start

    def unmasked(self: Transformer, source: tuple[Tensor, Tensor], prefix: Tensor) -> tuple[Tensor, TransformerState]:
        _, state = start(self, source, prefix)
        for block in state.blocks:
            block.own.filled, block.memory = 0, replace(block.memory, mask=None)  # type: ignore[type-var]
        return self.step(prefix, TransformerState(state.blocks))

    monkeypatch.setattr(Transformer, "start", unmasked)
    assert {"cached = uncached", "padded = unpadded"} <= failing(make_bundle(), *FORWARD)


def test_a_state_that_is_not_reordered(monkeypatch: pytest.MonkeyPatch) -> None:
    reorder = Transformer.reorder

    def in_place(self: Transformer, state: TransformerState, parents: Tensor) -> TransformerState:
        width = len(state.blocks[0].own.keys) // len(parents)
        return reorder(self, state, (torch.arange(parents.size(1)) % width).expand_as(parents))

    monkeypatch.setattr(Transformer, "reorder", in_place)
    assert failing(make_bundle(), *FORWARD) == {"reordered = recomputed"}


def test_sources_that_are_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Transformer.keep

    def first(self: Transformer, state: TransformerState, rows: Tensor) -> TransformerState:
        return keep(self, state, torch.arange(len(rows)))

    monkeypatch.setattr(Transformer, "keep", first)
    assert failing(make_bundle(), *FORWARD) == {"reordered = recomputed"}


def test_a_model_that_looks_at_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Transformer.encode

    def centred(self: Transformer, ids: Tensor, lengths: Tensor) -> Memory:
        memory = encode(self, ids, lengths)
        return replace(memory, vectors=memory.vectors - memory.vectors[:, :1].mean(dim=0))

    monkeypatch.setattr(Transformer, "encode", centred)
    assert "batched = single" in failing(make_bundle(), *FORWARD)


def test_a_loss_that_is_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Transformer.forward

    def mean(self: Transformer, batch: PairBatch) -> Loss:
        parts = forward(self, batch).parts
        return Loss({name: Part(part.sum / part.count, part.count, part.weight) for name, part in parts.items()})

    monkeypatch.setattr(Transformer, "forward", mean)
    assert failing(make_bundle(), "accumulated = large batch", "padded = unpadded") == {"accumulated = large batch"}


def test_a_loss_that_counts_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere(self: Transformer, batch: PairBatch) -> Loss:
        total = self.logits(batch).logsumexp(dim=-1).sum()
        return Loss({"loss": Part(total, batch.target_tokens)})

    monkeypatch.setattr(Transformer, "forward", everywhere)
    broken = failing(make_bundle(), "accumulated = large batch", "padded = unpadded")
    assert broken == {"accumulated = large batch", "padded = unpadded"}


def test_a_recorder_that_forgets_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttentionCall, "weights", lambda call: attention_weights(call.q, call.k, scale=call.scale))
    assert failing(make_bundle(), "recorded weights = output") == {"recorded weights = output"}


def test_a_save_that_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    import regard.bundle

    write = regard.bundle.write_tensors

    def rounded(path: Path, tensors: dict[str, Tensor]) -> None:
        write(path, {name: tensor.bfloat16().float() for name, tensor in tensors.items()})

    monkeypatch.setattr(regard.bundle, "write_tensors", rounded)
    assert failing(make_bundle(), "reloaded = saved") == {"reloaded = saved"}


def test_a_resume_that_forgets_the_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.training.state.load_optimiser", lambda *_: None)
    assert failing(make_bundle(), "resumed = uninterrupted") == {"resumed = uninterrupted"}


def test_noise_that_depends_on_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def none(*key: int) -> Iterator[None]:
        yield  # dropout takes torch's own generator, which nothing saves

    monkeypatch.setattr("regard.training.loop.noise", none)
    assert failing(make_bundle(), "resumed = uninterrupted") == {"resumed = uninterrupted"}


def test_a_tokenizer_that_trims(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = TextTokenizer.decode
    monkeypatch.setattr(TextTokenizer, "decode", lambda self, ids: decode(self, ids).strip())
    assert failing(make_bundle(), "tokenizer round trip") == {"tokenizer round trip"}


def test_weights_that_are_not_numbers() -> None:
    bundle = make_bundle()
    with torch.no_grad():
        bundle.model.decoder[0].cross.out.weight[3, 5] = torch.nan  # type: ignore[union-attr,index]
    assert set(FORWARD) <= failing(bundle, *FORWARD)


# -- odd ---------------------------------------------------------------------------------------------------------------


def test_a_model_that_breaks_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Transformer, batch: PairBatch) -> Tensor:
        raise RuntimeError("no logits today")

    monkeypatch.setattr(Transformer, "logits", broken)
    (check,) = verify(make_bundle(), ["batched = single"])
    assert (check.passed, check.detail) == (False, "RuntimeError: no logits today")


def test_a_model_that_does_not_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Transformer, "start")
    checks = {check.name: check for check in verify(make_bundle(), [*FORWARD, "recorded weights = output"])}
    skipped = {name for name, check in checks.items() if check.passed is None}
    assert skipped == {"cached = uncached", "reordered = recomputed"}
    assert checks["cached = uncached"].detail == "a transformer does not write step by step"
    assert all(check.passed for name, check in checks.items() if name not in skipped)
