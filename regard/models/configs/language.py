"""Configurations of the families that go on with a text (GPT's line, LSTM) or fill its gaps (BERT). No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from regard.config import StrictConfig
from regard.models.configs.attention import REACH, AttentionConfig, ExactConfig, PositionsWhere, check_positions

Activation = Literal["relu", "gelu", "gelu-tanh", "swiglu"]


class BlocksConfig(StrictConfig):
    """What all stacks of Transformer blocks share."""

    layers: int = Field(4, ge=1, description="Blocks.")
    width: int = Field(128, ge=1, description="Width D of every vector between blocks.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(512, ge=0, description="Inner width F of the feed-forward layers; 0: there are none.")
    max_length: int = Field(512, ge=1, description="Longest sequence, in tokens; farther on only some positions reach.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on embeddings and on the output of each sub-layer.")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on attention weights (takes the slow path).")
    epsilon: float = Field(1e-5, gt=0, description="What norms add before they divide.")
    attention: AttentionConfig = Field(ExactConfig(), description="What attends: all pairs, or a kernel for length.")
    reversible: bool = Field(False, description="Blocks that keep no activations and compute them again, backwards.")
    rotary_base: float = Field(10_000.0, gt=1, description="Base of the rotary angles.")
    rotary_scale: float = Field(1.0, gt=0, description="Rotary positions are divided by it: interpolation for length.")
    reach: int = Field(REACH, ge=1, description="Farthest distance that shaw and tree positions tell apart.")
    random_offset: int = Field(0, ge=0, description="In training, added positions start at random up to this one.")
    positions_where: PositionsWhere = Field(
        "add",
        description="Positions are added to embeddings, stand beside them, or join the input of queries, keys, values.",
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> BlocksConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        return self

    @model_validator(mode="after")
    def _positions_fit(self) -> BlocksConfig:
        offset, scale, where = self.random_offset, self.rotary_scale, self.positions_where
        kind = getattr(self, "positions", "none")
        check_positions(kind, random_offset=offset, rotary_scale=scale, reach=self.reach, where=where)
        return self


class GPTConfig(BlocksConfig):
    """Decoder-only Transformers; each of the line is this one with other defaults."""

    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on embeddings and on the output of each sub-layer.")
    groups: int = Field(0, ge=0, description="Key-value heads, shared by groups of query heads; 0: one for each head.")
    activation: Activation = Field("gelu", description="Activation inside the feed-forward layers.")
    norm: Literal["post", "pre", "none"] = Field("pre", description="Norm after each residual, before, or nowhere.")
    norm_kind: Literal["layer", "rms", "batch"] = Field(
        "layer", description="Layer norm, root-mean-square norm, or batch norm over all positions of a batch."
    )
    positions: Literal["learned", "sinusoidal", "rotary", "shaw", "t5", "alibi", "none"] = Field(
        "learned", description="How positions are told: added to embeddings, by turning queries and keys, or to scores."
    )
    band: int = Field(0, ge=0, description="Every second block sees only so many tokens back; 0: all see all.")
    experts: int = Field(0, ge=0, description="Feed-forward layers that each block chooses from; 0: one, for all.")
    experts_used: int = Field(2, ge=1, description="Experts that see each token.")
    balance: float = Field(0.01, ge=0, description="Weight of the term that keeps all experts in use.")
    bias: bool = Field(True, description="Biases in linear layers.")
    tied: bool = Field(True, description="Embeddings and output layer are one table.")
    language_weight: float = Field(
        0.0, ge=0, description="Weight of the language-model loss beside a classifier's (GPT: 0.5)."
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> GPTConfig:
        if self.groups and self.heads % self.groups:
            raise ValueError(f"{self.heads} heads cannot share {self.groups} key-value heads; choose a divisor")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise ValueError(
                f"rotary positions need heads of even width, not {self.width // self.heads}; choose other heads or width"
            )
        if self.experts and not self.feed_forward:
            raise ValueError("experts are feed-forward layers, and feed_forward = 0 leaves them out; set experts = 0")
        if self.experts and self.experts_used > self.experts:
            raise ValueError(f"experts_used {self.experts_used} is more than experts {self.experts}; lower it")
        return self

    @property
    def longest(self) -> int | None:
        """Most tokens that a sequence may have, begin and end included; None: any number."""
        return self.max_length + self.random_offset if self.positions == "learned" else None

    @property
    def window(self) -> int | None:
        """Most tokens that it goes on from; None: any number.

        Angles and sines go on beyond the positions that were learned from, but what a model makes of them does not
        (`docs/long.md`): it guesses better from the last tokens alone.
        """
        return self.max_length if self.longest is None and self.positions in ("rotary", "sinusoidal") else self.longest


class GPT1Config(GPTConfig):
    """GPT (Radford et al. 2018): norm after each residual, learned positions."""

    kind: Literal["gpt1"] = "gpt1"
    norm: Literal["post", "pre", "none"] = Field("post", description="Norm after each residual, before, or nowhere.")
    activation: Activation = Field("gelu-tanh", description="Activation inside the feed-forward layers.")


class GPT2Config(GPTConfig):
    """GPT-2 (Radford et al. 2019): norm before each sub-layer, residual projections scaled by 1/√N at the start."""

    kind: Literal["gpt2"] = "gpt2"
    activation: Activation = Field("gelu-tanh", description="Activation inside the feed-forward layers.")


class GPT3Config(GPTConfig):
    """GPT-3 (Brown et al. 2020): GPT-2 with dense and locally banded attention in turn (Child et al. 2019)."""

    kind: Literal["gpt3"] = "gpt3"
    activation: Activation = Field("gelu-tanh", description="Activation inside the feed-forward layers.")
    band: int = Field(128, ge=0, description="Every second block sees only so many tokens back; 0: all see all.")


class LlamaConfig(GPTConfig):
    """LLaMA (Touvron et al. 2023): root-mean-square norm, rotary positions, SwiGLU, grouped key-value heads."""

    kind: Literal["llama"] = "llama"
    feed_forward: int = Field(344, ge=0, description="Inner width F of the feed-forward layers; 0: there are none.")
    activation: Activation = Field("swiglu", description="Activation inside the feed-forward layers.")
    norm_kind: Literal["layer", "rms", "batch"] = Field(
        "rms", description="Layer norm, root-mean-square norm, or batch norm over all positions of a batch."
    )
    positions: Literal["learned", "sinusoidal", "rotary", "shaw", "t5", "alibi", "none"] = Field(
        "rotary", description="How positions are told: added to embeddings, by turning queries and keys, or to scores."
    )
    bias: bool = Field(False, description="Biases in linear layers.")


class LSTMConfig(StrictConfig):
    """A recurrent language model (Mikolov et al. 2010; Zaremba et al. 2014), the contrast to attention."""

    kind: Literal["lstm"] = "lstm"
    cell: Literal["rnn", "gru", "lstm"] = Field("lstm", description="The recurrent cell.")
    layers: int = Field(1, ge=1, description="Recurrent layers.")
    width: int = Field(128, ge=1, description="Width D of embeddings and of the vectors that predict a token.")
    hidden: int = Field(256, ge=1, description="Width of a recurrent state.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on embeddings, between layers and before the output.")
    tied: bool = Field(True, description="Embeddings and output layer are one table.")

    @property
    def longest(self) -> int | None:
        return None


class WaveNetConfig(StrictConfig):
    """WaveNet (van den Oord et al. 2016): dilated causal convolutions with gates, for sound sample by sample; no attention."""

    kind: Literal["wavenet"] = "wavenet"
    width: int = Field(
        128, ge=1, description="Width D of what all layers say, and of the vectors that predict a token."
    )
    channels: int = Field(48, ge=1, description="Channels of the residual stream.")
    kernel: int = Field(2, ge=1, description="Width of the convolutions.")
    dilations: tuple[int, ...] = Field(
        (1, 2, 4, 8, 16, 32, 64, 128, 256), min_length=1, description="Dilation of each layer of a set."
    )
    sets: int = Field(2, ge=1, description="How often the dilations are gone through.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout before the output.")
    labels_from: int | None = Field(
        None, ge=1, description="Ids from here on are labels, which hold for what follows them; the tokens say it."
    )

    @model_validator(mode="after")
    def _reaches_back(self) -> WaveNetConfig:
        if min(self.dilations) < 1:
            raise ValueError(f"dilation {min(self.dilations)} reaches nothing; choose 1 or more")
        return self

    @property
    def every_dilation(self) -> tuple[int, ...]:
        """The dilation of each layer."""
        return self.dilations * self.sets

    @property
    def receptive_field(self) -> int:
        """Tokens that a prediction depends on."""
        return 1 + (self.kernel - 1) * (1 + sum(self.every_dilation))

    @property
    def longest(self) -> int | None:
        return None


class BertConfig(BlocksConfig):
    """BERT (Devlin et al. 2019): an encoder that sees both sides of every token."""

    kind: Literal["bert"] = "bert"
    activation: Activation = Field("gelu", description="Activation inside the feed-forward layers.")
    norm: Literal["post", "pre", "none"] = Field("post", description="Norm after each residual (the paper), or before.")
    norm_kind: Literal["layer", "batch"] = Field(
        "layer", description="Layer norm (the paper), or batch norm over all positions of a batch."
    )
    positions: Literal["learned", "sinusoidal", "rotary", "shaw", "t5", "alibi", "tree", "none"] = Field(
        "learned",
        description="How positions are told: added to embeddings (learned: the paper), by turning, to scores.",
    )
    segments: int = Field(2, ge=1, description="Texts that a sequence may consist of, each with its own embedding.")
    next_sentence: bool = Field(False, description="Also learn whether the second text follows the first.")
    head: bool = Field(True, description="Has the head that fills gaps; without, it only gives vectors.")
    pooler: bool = Field(False, description="Has the layer that makes the vector of the first token a text's.")
    pooling: Literal["cls", "mean"] = Field(
        "mean", description="How a text's vector is made: the first token's, or the mean of all."
    )
    labels_from: Literal["cls", "mean", "max"] = Field(
        "cls", description="What a classifier is made from: the first token (the paper), or the mean or maximum of all."
    )
    epsilon: float = Field(1e-12, gt=0, description="What norms add before they divide.")

    @property
    def longest(self) -> int | None:
        return self.max_length
