"""What every family that goes on with a text shares: one table of embeddings, output layer, loss.

A family adds `read`, which sees whole sequences in training, and the four methods of a stepper.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from regard.blocks import balance_terms
from regard.data.batch import TextBatch
from regard.models.config import GPTLineConfig, LSTMConfig
from regard.models.loss import Loss, Part
from regard.models.output import output_loss


class LanguageModel(nn.Module):
    """`model(batch)` is the loss; `read` gives the vectors that predict the token after each."""

    output: nn.Linear

    def __init__(self, config: GPTLineConfig | LSTMConfig, vocabulary: int, smoothing: float) -> None:
        super().__init__()
        self.config, self.vocabulary, self.smoothing = config, vocabulary, smoothing

    @abstractmethod
    def read(self, ids: Tensor) -> Tensor:
        """ids (B, T) -> vectors (B, T, D), of which each knows no token behind its own."""

    @property
    def longest(self) -> int | None:
        """Most tokens of a sequence that it can read; None: any number."""
        return self.config.longest

    def forward(self, batch: TextBatch) -> Loss:
        with balance_terms() as balance:
            hidden = self.hidden(batch)  # (B, T, D)
        kept, wanted = self.counted(hidden, batch)
        smooth, plain = output_loss(kept, self.output.weight, wanted, self.smoothing if self.training else 0.0)
        count = batch.tokens
        parts = {"loss": Part(smooth, count), "nll": Part(plain, count, weight=0.0)}
        if balance and self.training and isinstance(self.config, GPTLineConfig):
            # Added to the loss of the batch, so its weight is the batch's: a mean over micro-batches.
            parts["loss"] = Part(smooth + self.config.balance * count * sum(balance) / len(balance), count)
        return Loss(parts)

    def hidden(self, batch: TextBatch) -> Tensor:
        """The vectors that predict each token of the batch but the first: (B, T, D)."""
        return self.read(batch.ids[:, :-1])

    def logits(self, batch: TextBatch) -> Tensor:
        return self.output(self.hidden(batch))  # (B, T, V)

    @staticmethod
    def counted(hidden: Tensor, batch: TextBatch) -> tuple[Tensor, Tensor]:
        """The vectors (N, D) and the tokens they should predict (N,), without padding and without mere context."""
        wanted = batch.ids[:, 1:]
        if batch.tokens == wanted.numel():
            return hidden.flatten(0, 1), wanted.flatten()
        places = torch.arange(hidden.size(1), device=hidden.device)
        real = (places >= batch.skip) & (places < batch.lengths[:, None])  # (B, T)
        return hidden[real], wanted[real]
