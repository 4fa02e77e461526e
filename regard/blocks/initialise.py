"""Fresh weights: Glorot's for the Transformer of the paper, normal ones for GPT and BERT."""

from __future__ import annotations

import torch
from torch import nn

from regard.embed.tokens import LearnedPositions

PARTS = {"key_value": 2, "gate_up": 2}  # matrices that lie one above the other in one parameter
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


def _adds(name: str) -> bool:
    plain = ".".join(part for part in name.split(".") if part != "experts" and not part.isdigit())
    return plain.endswith(INTO_THE_STREAM)
