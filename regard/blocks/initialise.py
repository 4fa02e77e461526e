"""Fresh weights: Glorot's for the Transformer of the paper, normal ones for GPT and BERT; or none, where a file brings them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.embed.tokens import LearnedPositions

PARTS = {"key_value": 2, "gate_up": 2}  # matrices that lie one above the other in one parameter
DRAWS = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
)
_DRAWN = {
    getattr(where, name) for where in (Tensor, nn.init) for name in (*DRAWS, "orthogonal_") if hasattr(where, name)
}
INTO_THE_STREAM = ("attention.out", "cross.out", "feed_forward.down")  # what a block adds to the residual stream


@torch.no_grad()
def initialise(module: nn.Module) -> None:
    """Glorot-uniform matrices and zero biases (Glorot & Bengio 2010)."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            for part in layer.weight.chunk(PARTS.get(name.rpartition(".")[2], 1)):
                nn.init.xavier_uniform_(part)
            if layer.bias is not None:
                layer.bias.zero_()


@torch.no_grad()
def initialise_normal(module: nn.Module, std: float = 0.02, residual_scale: float = 1.0) -> None:
    """Normal matrices and embeddings, zero biases (Radford et al. 2018, section 4.1; Devlin et al. 2019).

    What blocks add to the residual stream is scaled: by 1/√N for N such layers, so that the stream does not grow with
    depth (Radford et al. 2019, section 2.3).
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=std * (residual_scale if _adds(name) else 1.0))
            if layer.bias is not None:
                layer.bias.zero_()
        elif isinstance(layer, nn.Embedding):
            nn.init.normal_(layer.weight, std=std)
        elif isinstance(layer, LearnedPositions):
            nn.init.normal_(layer.table, std=std)


@torch.no_grad()
def initialise_head(head: nn.Linear) -> None:
    """Small normal weights and no bias (Devlin et al. 2019, as in their code): at first every label is about as likely.

    Features as long as a layer norm leaves them, √D, make logits of 0.02 √D. Glorot's weights would make them about √2,
    which costs up to a nat before anything is learned.
    """
    nn.init.normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)


class Undrawn(TorchFunctionMode):
    """Inside, no parameter is drawn at random: for a model whose every parameter is read from a file afterwards.

    Drawing them is most of the time that it takes to build a model. Buffers, and whatever is computed, are as ever.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if function in _DRAWN:
            tensor = args[0] if args else given["tensor"]
            if isinstance(tensor if tensor._base is None else tensor._base, nn.Parameter):
                return tensor
        return function(*args, **given)


def _adds(name: str) -> bool:
    plain = ".".join(part for part in name.split(".") if part != "experts" and not part.isdigit())
    return plain.endswith(INTO_THE_STREAM)
