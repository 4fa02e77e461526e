"""Models that read and write vectors of bits, one a step: their loss, and those without a memory to compare with."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from regard.attention import Causal
from regard.blocks import Recurrent, Stack
from regard.data.batch import BitBatch
from regard.models.attention import places_of
from regard.models.config import LlamaConfig, LSTMConfig
from regard.models.gpt import decoder_block, decoder_norm
from regard.models.loss import Loss, Part


class BitModel(nn.Module):
    """`model(batch)` is the loss: the cross-entropy of each bit that counts, and how many bits are wrong."""

    @abstractmethod
    def logits(self, batch: BitBatch) -> Tensor:
        """(B, T, O): above zero, a bit is one."""

    def forward(self, batch: BitBatch) -> Loss:
        return Loss(bit_parts(self.logits(batch), batch))

    def inputs(self, batch: BitBatch) -> Tensor:
        """The inputs in the precision of the weights: (B, T, I)."""
        return batch.inputs.to(next(self.parameters()).dtype)


def bit_parts(logits: Tensor, batch: BitBatch) -> dict[str, Part]:
    """The loss and the wrong bits of the steps that count."""
    found = logits[:, batch.counted].to(torch.promote_types(logits.dtype, torch.float32))
    wanted = batch.targets[:, batch.counted]
    loss = binary_cross_entropy_with_logits(found, wanted.to(found.dtype), reduction="sum")
    wrong = ((found > 0) != (wanted > 0.5)).sum().to(found.dtype)
    count = batch.counts["loss"]
    return {
        "loss": Part(loss, count),
        "nll": Part(loss.detach(), count, weight=0.0),
        "wrong": Part(wrong, count, weight=0.0),
    }


class BitLSTM(BitModel):
    """Recurrent layers, whose states are all that they remember."""

    def __init__(self, config: LSTMConfig, inputs: int, outputs: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.layers = Recurrent(config.cell, inputs, config.hidden, config.layers, config.dropout)
        self.output = nn.Linear(config.hidden, outputs)

    def logits(self, batch: BitBatch) -> Tensor:
        states, _ = self.layers(self.inputs(batch), self.layers.zeros(len(batch.inputs)))
        out: Tensor = self.output(states)
        return out


class BitTransformer(BitModel):
    """A causal Transformer with rotary positions: each step looks at all before it."""

    def __init__(self, config: LlamaConfig, inputs: int, outputs: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.read = nn.Linear(inputs, config.width)
        distances = places_of(config, causal=True)
        self.blocks = Stack(decoder_block(config, number, distances, None) for number in range(config.layers))
        self.norm = decoder_norm(config)
        self.output = nn.Linear(config.width, outputs)

    def logits(self, batch: BitBatch) -> Tensor:
        out: Tensor = self.output(self.norm(self.blocks(self.read(self.inputs(batch)), Causal())))
        return out
