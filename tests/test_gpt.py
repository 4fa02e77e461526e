"""GPT, GPT-2, GPT-3 and LLaMA against NumPy written from the papers, and what must hold of any: causality, caches."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.attention import Lengths, record
from regard.config import check
from regard.data.batch import TextBatch, text_batch
from regard.errors import RegardError, UsageError
from regard.models.config import KINDS_OF, GPT1Config, GPT2Config, GPT3Config, GPTConfig, LlamaConfig
from regard.models.gpt import GPT
from regard.models.presets import PRESETS, preset
from regard.models.table import build

KINDS: dict[str, Any] = {"gpt1": GPT1Config, "gpt2": GPT2Config, "gpt3": GPT3Config, "llama": LlamaConfig}
V, D, H, F = 29, 24, 6, 17
SIZES: dict[str, Any] = {"layers": 3, "width": D, "heads": H, "feed_forward": F, "max_length": 71}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("gpt1", {}),
    ("gpt1", {"activation": "relu", "tied": False}),
    ("gpt2", {}),
    ("gpt2", {"activation": "gelu", "tied": False, "epsilon": 0.3}),
    ("gpt2", {"positions": "none", "norm": "none"}),
    ("gpt2", {"positions": "sinusoidal", "norm_kind": "rms", "bias": False}),
    ("gpt3", {"band": 3}),
    ("gpt3", {"band": 1, "layers": 4}),
    ("llama", {}),
    ("llama", {"groups": 2, "tied": False, "rotary_base": 50.0}),
    ("llama", {"groups": 1, "bias": True, "norm": "post", "band": 2}),
    ("llama", {"experts": 5, "experts_used": 2, "groups": 3}),
    ("gpt2", {"experts": 3, "experts_used": 1}),
]


def named(variant: tuple[str, dict[str, Any]]) -> str:
    return " ".join([variant[0], *(f"{key}={value}" for key, value in variant[1].items())])


VARIED = pytest.mark.parametrize(("kind", "changes"), VARIANTS, ids=[named(variant) for variant in VARIANTS])


def make(kind: str, smoothing: float = 0.0, **changes: Any) -> GPT:
    """A model in float64 with every parameter at random, so that none can be forgotten."""
    model = GPT(KINDS[kind](**SIZES | changes), V, smoothing).double()
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = 0.3 * values + (parameter.dim() == 1)
    return model.eval()


def ids_of(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(seed))


# --- The papers in NumPy


class Plain:
    """One sequence through a decoder, from named weights: Radford et al. 2018 and 2019, Touvron et al. 2023."""

    def __init__(self, config: GPTConfig, weights: dict[str, np.ndarray]) -> None:
        self.config, self.weights = config, weights

    def logits(self, ids: list[int]) -> np.ndarray:
        w, config = self.weights, self.config
        x = w["tokens.table.weight"][ids]  # (T, D)
        if config.positions == "learned":
            x = x + w["tokens.positions.table"][: len(ids)]
        if config.positions == "sinusoidal":
            x = x + np.array([sinusoid(t, config.width) for t in range(len(ids))])
        for number in range(config.layers):
            block = f"blocks.{number}"
            x = self.around(f"{block}.around_attention.norm", x, lambda y, n=number: self.attention(n, y))
            x = self.around(f"{block}.around_feed_forward.norm", x, lambda y, b=block: self.forward(b, y))
        if config.norm == "pre":
            x = self.norm("norm", x)
        return x @ w["output.weight" if "output.weight" in w else "tokens.table.weight"].T

    def around(self, norm: str, x: np.ndarray, sublayer: Any) -> np.ndarray:
        if self.config.norm == "post":
            return self.norm(norm, x + sublayer(x))
        return x + sublayer(self.norm(norm, x) if self.config.norm == "pre" else x)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        scale, epsilon = self.weights[f"{name}.weight"], self.config.epsilon
        if self.config.norm_kind == "rms":
            return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon) * scale
        centred = x - x.mean(axis=1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)
        return centred / spread * scale + self.weights[f"{name}.bias"]

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        bias = self.weights[f"{name}.bias"] if self.config.bias else 0.0
        return x @ self.weights[f"{name}.weight"].T + bias

    def attention(self, number: int, x: np.ndarray) -> np.ndarray:
        config, name, length = self.config, f"blocks.{number}.attention", len(x)
        width, groups = config.width // config.heads, config.groups or config.heads
        q = self.linear(f"{name}.query", x).reshape(length, config.heads, width)
        k, v = self.linear(f"{name}.key_value", x).reshape(length, 2, groups, width).transpose(1, 0, 2, 3)
        if config.positions == "rotary":
            q, k = self.turned(q), self.turned(k)
        band = config.band if number % 2 == 1 and config.band else length  # dense, banded, dense, banded ...
        out = np.zeros((length, config.heads, width))
        for head in range(config.heads):
            shared = head * groups // config.heads
            for t in range(length):
                seen = range(max(0, t - band + 1), t + 1)
                shares = softmax(np.array([q[t, head] @ k[s, shared] for s in seen]) / math.sqrt(width))
                out[t, head] = sum(share * v[s, shared] for share, s in zip(shares, seen, strict=True))
        return self.linear(f"{name}.out", out.reshape(length, config.width))

    def turned(self, x: np.ndarray) -> np.ndarray:
        """(T, heads, E): pairs as complex numbers, multiplied by e^(i t θ)."""
        half = x.shape[2] // 2
        angles = np.arange(len(x))[:, None] * self.config.rotary_base ** (-np.arange(half) / half)
        pairs = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, None]
        return np.concatenate([pairs.real, pairs.imag], axis=2)

    def forward(self, block: str, x: np.ndarray) -> np.ndarray:
        name = f"{block}.feed_forward"
        if not self.config.experts:
            return self.expert(name, x)
        out = np.zeros_like(x)
        for t, scores in enumerate(x @ self.weights[f"{name}.router.weight"].T):
            best = np.argsort(-scores)[: self.config.experts_used]
            shares = softmax(scores[best]) if self.config.experts_used > 1 else softmax(scores)[best]
            for share, number in zip(shares, best, strict=True):
                out[t] += share * self.expert(f"{name}.experts.{number}", x[t : t + 1])[0]
        return out

    def expert(self, name: str, x: np.ndarray) -> np.ndarray:
        if self.config.activation == "swiglu":
            gate, up = np.split(self.linear(f"{name}.gate_up", x), 2, axis=1)
            return self.linear(f"{name}.down", gate / (1 + np.exp(-gate)) * up)
        return self.linear(
            f"{name}.down", np.vectorize(ACTIVATIONS[self.config.activation])(self.linear(f"{name}.up", x))
        )

    def loss(self, rows: list[list[int]]) -> float:
        """Cross-entropy of every token but the first, summed."""
        total = 0.0
        for row in rows:
            for scores, wanted in zip(self.logits(row[:-1]), row[1:], strict=True):
                total -= math.log(softmax(scores)[wanted])
        return total


def softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max())
    return shares / shares.sum()


def sinusoid(t: int, width: int) -> list[float]:
    """Vaswani et al. 2017, section 3.5."""
    return [(math.cos if i % 2 else math.sin)(t / 10000 ** ((i - i % 2) / width)) for i in range(width)]


ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu-tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def plain(model: GPT, shift: dict[str, Tensor] | None = None) -> Plain:
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for name, moved in (shift or {}).items():
        weights[name] += moved
    return Plain(model.config, {name: weight.numpy() for name, weight in weights.items()})


@VARIED
@torch.no_grad()
def test_logits_are_those_of_the_papers(kind: str, changes: dict[str, Any]) -> None:
    model, ids = make(kind, **changes), ids_of(2, 11)
    found = model.output(model.read(ids))
    for row, logits in zip(ids.tolist(), found, strict=True):
        assert np.abs(plain(model).logits(row) - logits.numpy()).max() < 1e-10
    assert found.std() > 0.1


def idle(name: str, config: GPTConfig) -> bool:
    """What cannot change the loss: positions behind the text, a look at oneself only."""
    alone = config.band == 1 and ("1.attention.query" in name or "3.attention.query" in name)
    return alone or "experts." in name


@VARIED
def test_gradients_are_those_of_the_papers(kind: str, changes: dict[str, Any]) -> None:
    """Every parameter moved a little at once: how the loss in NumPy changes is what the gradients say."""
    model, ids = make(kind, balance=0.0, **changes).train(), ids_of(2, 7)
    model(text_batch([row.numpy() for row in ids])).parts["loss"].sum.backward()
    torch.manual_seed(2)
    directions = {name: torch.randn(p.shape, dtype=torch.float64) for name, p in model.named_parameters()}
    slope = 0.0
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            assert ".experts." in name, name  # an expert that no token was sent to
        else:
            slope += float((parameter.grad * directions[name]).sum())
            assert parameter.grad.any() or idle(name, model.config), name
    step = 1e-6
    ahead, behind = (
        plain(model, {name: sign * step * way for name, way in directions.items()}).loss(ids.tolist())
        for sign in (1, -1)
    )
    assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-5, abs=1e-5)


# --- What tells the kinds apart


def test_where_norms_stand() -> None:
    """GPT norms after each residual and ends with the last block's norm; the others norm before, and once at the end."""
    ids = ids_of(2, 5)
    first = make("gpt1")
    assert not list(first.norm.parameters())
    last = list(first.blocks)[-1].around_feed_forward.norm
    vectors = (first.read(ids) - last.bias) / last.weight
    assert torch.allclose(vectors.mean(dim=-1), torch.zeros(()).double(), atol=1e-9)
    assert torch.allclose(vectors.std(dim=-1, correction=0), torch.ones(()).double(), atol=1e-4)
    for kind in ("gpt2", "gpt3"):
        assert isinstance(make(kind).norm, nn.LayerNorm)
    model = make("llama")
    norms = [module for module in model.modules() if "Norm" in type(module).__name__]
    assert len(norms) == 2 * 3 + 1
    assert all(isinstance(norm, nn.RMSNorm) for norm in norms)
    assert torch.allclose((model.read(ids) / model.norm.weight).pow(2).mean(dim=-1), torch.ones(()).double(), atol=1e-4)


def test_llama_has_no_biases_and_no_table_of_positions() -> None:
    names = [name for name, _ in make("llama").named_parameters()]
    assert not [name for name in names if "bias" in name or "positions" in name]
    for kind in ("gpt1", "gpt2", "gpt3"):
        assert [name for name, _ in make(kind).named_parameters() if "positions" in name] == ["tokens.positions.table"]


@torch.no_grad()
def test_gpt3_looks_everywhere_and_nearby_in_turn() -> None:
    """Brown et al. 2020, section 2.1: blocks 1, 3, ... (counted from 0) are banded."""
    model, ids = make("gpt3", layers=4, band=3), ids_of(1, 11)
    with record(model) as seen:
        model.read(ids)
    for number, call in enumerate(seen.calls):
        for t in range(11):
            looked = (call.weights()[0, :, t] > 0).nonzero()[:, 1].unique().tolist()
            assert looked == list(range(max(0, t - 2) if number % 2 else 0, t + 1))
    assert len(seen.calls) == 4
    assert GPT3Config().band == 128 and GPT2Config().band == LlamaConfig().band == 0


def by_formula(kind: str, config: GPTConfig, vocabulary: int) -> int:
    """Weights of one block, of the tables and of what stands above, counted from the papers."""
    width, inner = config.width, config.feed_forward
    if kind == "llama":
        shared = width // config.heads * (config.groups or config.heads)
        block = 2 * width * width + 2 * width * shared + 3 * width * inner + 2 * width
        return vocabulary * width * (1 if config.tied else 2) + config.layers * block + width
    block = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    tables = (vocabulary * (1 if config.tied else 2) + config.max_length) * width
    return tables + config.layers * block + (0 if kind == "gpt1" else 2 * width)


@pytest.mark.parametrize("changes", [{}, {"tied": False}, {"layers": 1, "heads": 4, "width": 32}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_as_many_as_the_formula_says(kind: str, changes: dict[str, Any]) -> None:
    model = GPT(KINDS[kind](**SIZES | changes), V)
    assert sum(p.numel() for p in model.parameters()) == by_formula(kind, model.config, V)
    if kind == "llama":
        model = GPT(LlamaConfig(**SIZES | changes, groups=2), V)
        assert sum(p.numel() for p in model.parameters()) == by_formula(kind, model.config, V)


@pytest.fixture
def nothing_allocated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Models have shapes but no numbers (and none are drawn: that takes torch seconds to prepare)."""
    monkeypatch.setattr(nn.init, "normal_", lambda tensor, *_, **__: tensor)
    with torch.device("meta"):
        yield


@pytest.mark.usefixtures("nothing_allocated")
def test_published_sizes() -> None:
    """GPT and GPT-2 as released, and LLaMA 7B, to the last parameter."""
    seven = LlamaConfig(layers=32, width=4096, heads=32, feed_forward=11008, tied=False)
    published = {
        116_534_784: (GPT1Config(**preset("base", "gpt1")), 40478),
        124_439_808: (GPT2Config(**preset("base", "gpt2")), 50257),
        6_738_415_616: (seven, 32000),
    }
    for count, (config, vocabulary) in published.items():
        assert sum(p.numel() for p in GPT(config, vocabulary).parameters()) == count


def test_tied_is_one_table() -> None:
    tied, untied = make("gpt2"), make("gpt2", tied=False)
    assert tied.output.weight is tied.tokens.table.weight
    assert untied.output.weight is not untied.tokens.table.weight
    assert tied.output.bias is None and untied.output.bias is None


# --- Fresh weights


@pytest.mark.parametrize("experts", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_what_joins_the_stream_begins_smaller_the_more_blocks_there_are(kind: str, experts: int) -> None:
    """Radford et al. 2019, section 2.3: 0.02 / √N for N residual layers, two in a block. GPT of 2018: 0.02 all over."""
    torch.manual_seed(3)
    config = KINDS[kind](layers=8, width=64, heads=4, feed_forward=96, max_length=128, experts=experts)
    model = GPT(config, 257)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert torch.equal(parameter, torch.full_like(parameter, float("norm.weight" in name))), name
            continue
        joins = name.endswith(("attention.out.weight", "down.weight"))
        std = 0.02 / 4 if joins and kind != "gpt1" else 0.02
        assert parameter.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * parameter.numel())), name


@pytest.mark.parametrize("size", ["demo", "tiny", "small"])
@pytest.mark.parametrize("kind", KINDS)
def test_small_presets_build_and_begin_at_chance(kind: str, size: str) -> None:
    """Small weights give nearly equal logits, so the loss of a fresh model is the logarithm of the vocabulary."""
    torch.manual_seed(5)
    model: Any = build("generate", KINDS[kind](**preset(size, kind)), (53,))
    part = model.eval()(text_batch([np.arange(41) % 53])).parts["loss"]
    assert (part.sum / part.count).item() == pytest.approx(math.log(53), rel=0.15)


@pytest.mark.usefixtures("nothing_allocated")
@pytest.mark.parametrize("kind", KINDS)
def test_the_large_presets_build(kind: str) -> None:
    model: Any = build("generate", KINDS[kind](**preset("base", kind)), (53,))
    assert type(model) is GPT and len(model.blocks) == 12
    assert sum(p.numel() for p in model.parameters()) == by_formula(kind, model.config, 53)


def test_every_kind_that_generates_has_its_sizes() -> None:
    for kind in KINDS_OF["generate"]:
        assert [size for size, kinds in PRESETS.items() if kind in kinds] == ["demo", "tiny", "small", "base"]
    with pytest.raises(UsageError, match="no preset big of llama; there are demo, tiny, small, base"):
        preset("big", "llama")
    with pytest.raises(UsageError, match="no preset smal; did you mean small"):
        preset("smal", "llama")
    with pytest.raises(UsageError, match=r"no model\.kind lama; did you mean llama"):
        preset("tiny", "lama")


# --- Causality and padding


@VARIED
@torch.no_grad()
def test_a_token_changes_itself_and_what_is_behind(kind: str, changes: dict[str, Any]) -> None:
    model, ids = make(kind, **changes), ids_of(1, 9)
    before = model.read(ids)
    for t in range(9):
        other = ids.clone()
        other[:, t] = (other[:, t] + 5) % V
        changed = (model.read(other) - before).abs().amax(dim=-1)[0]  # (T,)
        assert not (changed[:t] > 1e-12).any()  # experts add up in another order
        assert changed[t] > 1e-6
        if not changes.get("experts"):  # an expert may be chosen that hardly minds
            assert changed[t:].min() > 1e-9


@torch.no_grad()
def test_a_band_in_every_second_of_two_blocks_still_sees_all() -> None:
    """The band alone would leave a token out of sight after one block; the dense block before it passes it on."""
    model, ids = make("gpt3", layers=2, band=1), ids_of(1, 9)
    other = ids.clone()
    other[0, 0] = (other[0, 0] + 5) % V
    assert (model.read(other) - model.read(ids)).abs().amax(dim=-1).min() > 1e-9


@VARIED
def test_a_padded_batch_is_its_rows_alone(kind: str, changes: dict[str, Any]) -> None:
    """Logits, loss and gradients; whatever is written in the padding."""
    model = make(kind, balance=0.0, **changes).train()
    rows = [ids_of(1, length, seed=length)[0].numpy() for length in (5, 9, 2)]
    weight, total, wanted = model.tokens.table.weight, 0.0, torch.zeros(V, D, dtype=torch.float64)
    for row in rows:
        loss = model(text_batch([row])).parts["loss"].sum
        total, wanted = total + loss.item(), wanted + torch.autograd.grad(loss, weight)[0]
    for fill in (0, 17):
        batch = text_batch(rows, fill=fill)
        assert batch.tokens == 4 + 8 + 1
        together = model.logits(batch)
        for b, row in enumerate(rows):
            alone = model.output(model.read(torch.from_numpy(row)[None, :-1]))[0]
            assert torch.allclose(together[b, : len(row) - 1], alone, rtol=0, atol=1e-10)
        loss = model(batch).parts["loss"].sum
        assert loss.item() == pytest.approx(total, rel=1e-12)
        assert torch.allclose(torch.autograd.grad(loss, weight)[0], wanted, rtol=0, atol=1e-9)


@torch.no_grad()
def test_another_mask_may_be_given() -> None:
    """With all of a sequence in sight the last token reaches the first."""
    model, ids = make("llama"), ids_of(1, 5)
    other = ids.clone()
    other[0, 4] = (other[0, 4] + 5) % V
    mask = Lengths(torch.tensor([5]))
    assert (model.read(other, mask) - model.read(ids, mask))[0, 0].abs().max() > 1e-6


# --- The loss


@pytest.mark.parametrize("skip", [0, 1, 4, 7])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_cross_entropy_of_what_counts(smoothing: float, skip: int) -> None:
    """Without padding and without the first `skip` predictions of a row; smoothed in training only."""
    model = make("gpt2", smoothing)
    rows = [ids_of(1, length, seed=length)[0].numpy() for length in (5, 9, 2)]
    batch = text_batch(rows, skip=skip)
    logits, wanted = [], []
    for row in rows:
        alone = model.output(model.read(torch.from_numpy(row)[None, :-1]))[0]
        logits.append(alone[skip:])
        wanted.append(torch.from_numpy(row)[1:][skip:])
    flat, targets = torch.cat(logits), torch.cat(wanted)
    entropy = cross_entropy(flat, targets, reduction="sum").item()
    smooth = cross_entropy(flat, targets, reduction="sum", label_smoothing=smoothing).item()
    for training, expected in ((True, smooth), (False, entropy)):
        parts = model.train(training)(batch).parts
        assert parts["loss"].sum.item() == pytest.approx(expected, rel=1e-12)
        assert parts["nll"].sum.item() == pytest.approx(entropy, rel=1e-12)
        assert {name: part.count for name, part in parts.items()} == batch.counts == dict.fromkeys(parts, len(targets))
        assert (parts["loss"].weight, parts["nll"].weight) == (1.0, 0.0)


def test_skipped_predictions_are_context() -> None:
    """They change the loss of the others, though they do not count themselves."""
    model, ids = make("gpt2"), ids_of(1, 9)
    losses = []
    for first in (0, 7):
        other = ids.clone()
        other[0, 0] = first
        losses.append(model(TextBatch(other, torch.tensor([8]), 3, skip=5)).parts["loss"].sum.item())
    assert abs(losses[0] - losses[1]) > 1e-6


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_dropout_is_for_training_only(kind: str) -> None:
    """Of embeddings a quarter is zero, of what sub-layers add a quarter is missing; attention weights by themselves."""
    torch.manual_seed(6)
    ids = ids_of(13, 23)
    model = make(kind, dropout=0.25).train()
    block = next(iter(model.blocks))
    ones = torch.ones(13, 23, D, dtype=torch.float64)
    block.around_attention.norm = block.around_feed_forward.norm = nn.Identity()
    missing = [model.tokens(ids) == 0]
    missing += [around(ones, torch.ones_like) == 1 for around in (block.around_attention, block.around_feed_forward)]
    for dropped in missing:
        assert abs(dropped.double().mean().item() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / dropped.numel())
    for changes in ({"dropout": 0.25}, {"attention_dropout": 0.25}):
        model = make(kind, **changes)
        assert torch.equal(model.eval().read(ids), make(kind).read(ids))
        assert (model.train().read(ids) - model.eval().read(ids)).abs().amax(dim=-1)[:, 1:].min() > 1e-6
    assert torch.equal(make(kind).train().read(ids), make(kind).read(ids))


def test_too_long_a_text_is_told() -> None:
    with pytest.raises(RegardError, match=r"72 tokens is longer than the 71 learned positions; .*max_length = 72"):
        make("gpt2").read(ids_of(1, 72))
    assert make("llama").read(ids_of(1, 72)).shape == (1, 72, D)
    assert (GPT2Config(**SIZES).longest, LlamaConfig(**SIZES).longest) == (71, None)


# --- Caches


@VARIED
@torch.no_grad()
def test_a_prompt_of_any_length_then_steps_is_the_whole_text(kind: str, changes: dict[str, Any]) -> None:
    """Around the band, and past the 32 positions that a cache begins with."""
    model, ids = make(kind, **changes), ids_of(2, 41)
    expected = model.output(model.read(ids))
    for prompt in (1, 2, 3, 4, 31, 33, 41):
        logits, state = model.start(None, ids[:, :prompt])
        for t in range(prompt, 42):
            assert torch.allclose(logits[:, 0], expected[:, t - 1], rtol=0, atol=1e-9), (prompt, t)
            assert state.read == t
            if t < min(41, prompt + 4):
                logits, state = model.step(ids[:, t, None], state)
            else:
                break


@VARIED
@pytest.mark.parametrize("seed", range(2))
@torch.no_grad()
def test_any_walk_gives_the_logits_of_the_whole_text(kind: str, changes: dict[str, Any], seed: int) -> None:
    """Six prompts, made three sources of two; then parents, survivors and tokens drawn at random."""
    model, dice = make(kind, **changes), random.Random(seed)
    prompts = ids_of(6, 1 + 2 * seed, seed)
    logits, state = model.start(None, prompts)
    logits, state = logits.view(3, 2, V), model.regroup(state, 2)
    read = [prompts[2 * b : 2 * b + 2].tolist() for b in range(3)]  # [source][hypothesis]: all tokens so far
    for _ in range(8):
        expected = model.output(model.read(torch.tensor([sequence for row in read for sequence in row])))[:, -1]
        assert torch.allclose(logits, expected.view(len(read), -1, V), rtol=0, atol=1e-10)
        if len(read) > 1 and dice.random() < 0.3:
            stay = sorted(dice.sample(range(len(read)), dice.randrange(1, len(read))))
            read, state = [read[b] for b in stay], model.keep(state, torch.tensor(stay))
        if dice.random() < 0.7:
            width = dice.choice([1, 2, 3])
            parents = [[dice.randrange(len(row)) for _ in range(width)] for row in read]
            read = [[row[w] for w in chosen] for row, chosen in zip(read, parents, strict=True)]
            state = model.reorder(state, torch.tensor(parents))
        tokens = [[dice.randrange(V) for _ in row] for row in read]
        read = [[[*old, new] for old, new in zip(*pair, strict=True)] for pair in zip(read, tokens, strict=True)]
        logits, state = model.step(torch.tensor(tokens), state)


@torch.no_grad()
def test_a_cache_holds_one_key_for_each_group() -> None:
    _, state = make("llama", groups=2).start(None, ids_of(5, 3))
    assert [tuple(block.own.seen()[0].shape) for block in state.blocks] == [(5, 2, 3, D // H)] * 3


@torch.no_grad()
def test_two_texts_go_on_from_one_state() -> None:
    """Reordering copies: what one hypothesis writes, another does not read."""
    model, ids = make("gpt3", band=3), ids_of(1, 7)
    _, state = model.start(None, ids)
    copies = [model.reorder(state, torch.zeros(1, 1, dtype=torch.long)) for _ in range(2)]
    found = [model.step(torch.tensor([[token]]), copy)[0][0, 0] for token, copy in zip((3, 8), copies, strict=True)]
    for token, logits in zip((3, 8), found, strict=True):
        whole = model.output(model.read(torch.cat([ids, torch.tensor([[token]])], dim=1)))
        assert torch.allclose(logits, whole[0, -1], rtol=0, atol=1e-10)


# --- Depths and configurations


@VARIED
def test_depths_name_every_parameter_and_grow_from_input_to_output(kind: str, changes: dict[str, Any]) -> None:
    """Measured: with the embeddings' and first blocks' gradients cut off, only what is deeper still learns."""
    model = make(kind, **changes)
    depths, layers = model.depths(), model.config.layers
    assert depths.keys() == dict(model.named_parameters()).keys()
    above = layers + 1 if model.config.norm == "pre" or not model.config.tied else layers
    assert set(depths.values()) == set(range(above + 1))
    for cut, block in enumerate(model.blocks):
        handle = block.register_forward_pre_hook(lambda _, given: (given[0].detach(), *given[1:]))
        (model.read(ids_of(2, 5)) ** 2).sum().backward()
        handle.remove()
        learning = {depths[name] for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
        assert learning == set(range(cut + 1, (layers + 1 if model.config.norm == "pre" else layers) + 1))
        model.zero_grad()


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("gpt2", {"width": 10, "heads": 4}, "width 10 cannot be split into 4 heads; choose a divisor"),
        ("llama", {"heads": 4, "groups": 3}, "4 heads cannot share 3 key-value heads; choose a divisor"),
        ("llama", {"width": 12, "heads": 4}, "rotary positions need heads of even width, not 3"),
        ("gpt3", {"experts": 3, "experts_used": 4}, "experts_used 4 is more than experts 3"),
        ("gpt1", {"norms": "pre"}, "no key norms; did you mean norm"),
        ("llama", {"activation": "swish"}, "'gelu', 'gelu-tanh' or 'swiglu'"),
        ("gpt2", {"dropout": 1.0}, "less than 1"),
        ("gpt3", {"band": -1}, "band: must be 0 or more, not -1"),
        ("llama", {"rotary_base": 1.0}, "rotary_base: must be more than 1, not 1.0"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(kind: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match="here: ") as error:
        check(KINDS[kind], values, "here")
    assert message in str(error.value)


def test_a_language_model_does_not_translate() -> None:
    with pytest.raises(UsageError, match=r"a gpt2 does not translate; .*transformer"):
        build("translate", GPT2Config(), (13, 13))
