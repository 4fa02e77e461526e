"""The base of every encoder-decoder, and the memory of an encoder that decoders, cross-attention and figures read."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from regard.attention import Mask, Role
from regard.blocks import initialise
from regard.blocks.norm import reading_rows
from regard.data.batch import PairBatch
from regard.data.pictures.batch import CaptionBatch
from regard.embed import embedding_table
from regard.errors import UsageError
from regard.models.loss import Loss, Part, output_loss

if TYPE_CHECKING:
    from regard.models.config import TranslationConfig
    from regard.models.configs.pictures import CaptionerConfig


@dataclass(frozen=True)
class Memory:
    vectors: Tensor  # (B, S, D)
    mask: Mask | None  # which of the S positions are real
    layout: Literal["words", "grid", "frames", "slots"] = "words"


def rows_of_parents(parents: Tensor, hypotheses: int) -> Tensor:
    """Rows of the parents (B, W') of new hypotheses, which count within their source: (B * W',)."""
    first = hypotheses * torch.arange(len(parents), device=parents.device)[:, None]
    return (parents + first).flatten()


def rows_of_sources(sources: Tensor, hypotheses: int) -> Tensor:
    """Rows of all hypotheses of these sources (B',): (B' * W,)."""
    return (sources[:, None] * hypotheses + torch.arange(hypotheses, device=sources.device)).flatten()


class EncoderDecoder(nn.Module):
    """`model(batch)` is the loss; `encode` and `decode` are its two halves."""

    looks: Role = "cross"  # the attention by which the source is seen

    def __init__(
        self,
        config: TranslationConfig | CaptionerConfig,
        source_vocabulary: int,
        target_vocabulary: int,
        smoothing: float,
    ) -> None:
        super().__init__()
        if config.tied == "all" and source_vocabulary != target_vocabulary:
            raise UsageError(
                f'tied = "all" needs one vocabulary, but there are {source_vocabulary} source and {target_vocabulary} '
                "target tokens",
                'set model.tied = "target" or tokens.joint = true',
            )
        self.config, self.smoothing = config, smoothing
        self.vocabularies = (source_vocabulary, target_vocabulary)

    def tables(self) -> tuple[nn.Embedding, nn.Embedding]:
        """The embeddings of source and target tokens: one table, or two."""
        source, target = self.vocabularies
        table = embedding_table(target, self.config.width)
        return table if self.config.tied == "all" else embedding_table(source, self.config.width), table

    def finish(self, target_table: nn.Embedding) -> None:
        """When every other part is there: the output layer, which may be the target's table, and fresh weights."""
        self.output = nn.Linear(self.config.width, self.vocabularies[1], bias=False)
        initialise(self)
        if self.config.tied != "none":
            self.output.weight = target_table.weight

    @property
    def longest(self) -> int | None:
        """Most tokens of a sequence that it can read; None: any number."""
        return self.config.longest

    def forward(self, batch: PairBatch | CaptionBatch) -> Loss:
        return Loss(self.token_parts(self.hidden(batch), batch))

    def token_parts(self, hidden: Tensor, batch: PairBatch | CaptionBatch) -> dict[str, Part]:
        """The loss and the plain negative log-likelihood of the target tokens, predicted by `hidden` (B, T, D)."""
        real = torch.arange(hidden.size(1), device=hidden.device) < batch.target_lengths[:, None]  # (B, T)
        wanted = batch.target[:, 1:][real]  # (N,)
        smooth, plain = output_loss(hidden[real], self.output.weight, wanted, self.smoothing if self.training else 0.0)
        count = batch.target_tokens
        return {"loss": Part(smooth, count), "nll": Part(plain, count, weight=0.0)}

    def hidden(self, batch: PairBatch | CaptionBatch) -> Tensor:
        """The decoder's last vectors before the output layer, for each target token to predict: (B, T, D)."""
        memory = self.encode(*batch.source_parts)
        with reading_rows(batch.target_lengths):
            return self.decode(batch.target[:, :-1], memory)

    def logits(self, batch: PairBatch | CaptionBatch) -> Tensor:
        return self.output(self.hidden(batch))  # (B, T, V)

    @abstractmethod
    def encode(self, *source: Any, **kwargs: Any) -> Any:
        """Encode the sources, ids (B, S) and lengths (B,), or pixels, to the memory that the decoder reads."""

    @abstractmethod
    def decode(self, ids: Tensor, memory: Any) -> Tensor:
        """Vectors (B, T, D) that predict the token after each of `ids` (B, T)."""
