"""One source in NumPy gives what the modules give, through any turn that a search may take."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.models.config import GPT1Config, GPT2Config, GPT3Config, LlamaConfig, TransformerConfig
from regard.models.fast.language import FastLanguage
from regard.models.fast.small import FEW
from regard.models.fast.stepper import FastStepper
from regard.models.fast.translation import FastDecoder
from regard.models.gpt import GPT
from regard.models.transformer import Transformer

V, SOURCES = 29, 19
SMALL: dict[str, Any] = {"layers": 2, "width": 24, "heads": 6, "feed_forward": 31}
DECODER: dict[str, Any] = {
    "encoder_layers": 1, "decoder_layers": 3, "width": 20, "heads": 5, "feed_forward": 23, "tied": "none",
}  # fmt: skip
CONFIGS: dict[str, Any] = {
    "transformer": TransformerConfig(**DECODER),
    "transformer, rotary": TransformerConfig(**DECODER, positions="rotary", activation="gelu"),
    "transformer, learned": TransformerConfig(**DECODER, positions="learned", max_length=83),
    "transformer, no positions": TransformerConfig(**DECODER, positions="none", scaled=False),
    "gpt2": GPT2Config(**SMALL),
    "gpt2 without biases": GPT2Config(**SMALL, bias=False),
    "llama": LlamaConfig(**SMALL, groups=2),
    "llama with biases": LlamaConfig(**SMALL, groups=6, bias=True),
}


@torch.no_grad()
def build(config: Any, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, FastStepper]:
    torch.manual_seed(3)
    transformer = isinstance(config, TransformerConfig)
    model: Any = (Transformer(config, SOURCES, V) if transformer else GPT(config, V)).to(dtype).eval()
    for parameter in model.parameters():  # norms and biases that do something
        nn.init.normal_(parameter, std=0.4)
    fast = FastDecoder.of(model) if transformer else FastLanguage.of(model)
    assert fast is not None
    return model, fast


def source_of(model: nn.Module) -> Any:
    """A source with padding behind it, where the model reads one."""
    return (torch.tensor([[3, 14, 15, 9, 0, 0]]), torch.tensor([4])) if isinstance(model, Transformer) else None


@torch.no_grad()
@pytest.mark.parametrize("kind", CONFIGS)
def test_one_source_walks_as_the_modules_do(kind: str) -> None:
    """Beams of changing width, also too wide for NumPy, whose hypotheses branch at random, so that slots are given up."""
    model: Any
    (model, fast), dice = build(CONFIGS[kind]), random.Random(5)
    assert fast.small is not None
    source, prefix = source_of(model), torch.tensor([[1, 7]])
    (logits, state), (expected, modules) = fast.start(source, prefix), model.start(source, prefix)
    for _ in range(31):
        assert torch.allclose(logits, expected, rtol=0, atol=1e-10) and expected.std() > 0.1
        parents = torch.tensor([[dice.randrange(logits.size(1)) for _ in range(dice.choice([1, 1, 3, 5, FEW + 1]))]])
        state, modules = fast.reorder(state, parents), model.reorder(modules, parents)
        tokens = torch.randint(V, parents.shape)
        (logits, state), (expected, modules) = fast.step(tokens, state), model.step(tokens, modules)
    assert torch.allclose(logits, expected, rtol=0, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["transformer", "llama"])
def test_in_float32_the_likeliest_token_is_the_same(kind: str) -> None:
    model: Any
    model, fast = build(CONFIGS[kind], torch.float32)
    source, ids = source_of(model), torch.tensor([[1]])
    (logits, state), (expected, modules) = fast.start(source, ids), model.start(source, ids)
    for _ in range(23):
        assert torch.allclose(logits, expected, rtol=0, atol=2e-4)
        ids: Tensor = expected.argmax(dim=-1)
        assert torch.equal(logits.argmax(dim=-1), ids)
        (logits, state), (expected, modules) = fast.step(ids, state), model.step(ids, modules)


@pytest.mark.parametrize(
    "config",
    [
        GPT1Config(**SMALL),  # norms stand behind
        GPT2Config(**SMALL, norm="none"),
        GPT3Config(**{**SMALL, "layers": 4}, band=3),
        GPT2Config(**{**SMALL, "width": 264}),  # products are no small matter
    ],
    ids=["post", "none", "band", "wide"],
)
def test_what_is_not_small_or_plain_stays_in_torch(config: Any) -> None:
    assert build(config)[1].small is None
