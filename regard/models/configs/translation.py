"""Configurations of the families that read one sequence and write another. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from regard.config import StrictConfig
from regard.models.configs.attention import (
    REACH,
    AttentionConfig,
    ExactConfig,
    PositionsWhere,
    ScoreName,
    check_positions,
)


class TransformerConfig(StrictConfig):
    """The encoder-decoder Transformer (Vaswani et al. 2017)."""

    kind: Literal["transformer"] = "transformer"
    encoder_layers: int = Field(4, ge=1, description="Blocks of the encoder.")
    decoder_layers: int = Field(4, ge=1, description="Blocks of the decoder.")
    width: int = Field(128, ge=1, description="Width D of every vector between blocks.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(256, ge=0, description="Inner width F of the feed-forward layers; 0: there are none.")
    activation: Literal["relu", "gelu"] = Field("relu", description="Activation inside the feed-forward layers.")
    norm: Literal["post", "pre", "none"] = Field(
        "pre", description="Layer norm after each residual (the paper), before, or nowhere."
    )
    norm_kind: Literal["layer", "batch"] = Field(
        "layer", description="Layer norm (the paper), or batch norm over all positions of a batch."
    )
    residual: bool = Field(True, description="Add the input of each sub-layer to its output.")
    scaled: bool = Field(True, description="Divide products of queries and keys by √E.")
    positions: Literal["sinusoidal", "learned", "rotary", "shaw", "t5", "alibi", "none"] = Field(
        "sinusoidal",
        description="How positions are told: added to embeddings, by turning queries and keys, or to scores.",
    )
    reach: int = Field(REACH, ge=1, description="Farthest distance that shaw positions tell apart.")
    random_offset: int = Field(0, ge=0, description="In training, added positions start at random up to this one.")
    positions_where: PositionsWhere = Field(
        "add",
        description="Positions are added to embeddings, stand beside them, or join the input of queries, keys, values.",
    )
    encoder_attention: AttentionConfig = Field(ExactConfig(), description="What attends in the encoder.")
    decoder_attention: AttentionConfig = Field(ExactConfig(), description="What attends in the decoder, to itself.")
    cross_attention: AttentionConfig = Field(ExactConfig(), description="What attends from decoder to encoder.")
    max_length: int = Field(1024, ge=1, description="Longest sequence, in tokens, for learned positions.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on embeddings and on the output of each sub-layer.")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on attention weights (takes the slow path).")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout inside the feed-forward layers.")
    token_dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of the tokens, read or written, hidden in training."
    )
    tied: Literal["all", "target", "none"] = Field(
        "all", description="Which tables are one: source, target and output; target and output; or none."
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> TransformerConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        check_positions(self.positions, random_offset=self.random_offset, reach=self.reach, where=self.positions_where)
        return self

    @property
    def longest(self) -> int | None:
        """Most tokens that a sequence may have, begin and end included; None: any number."""
        if "linformer" in (self.encoder_attention.kind, self.cross_attention.kind):
            return self.max_length
        return self.max_length + self.random_offset if self.positions == "learned" else None


class DecoderOnlyConfig(StrictConfig):
    """One causal stack that reads source, separator and target as one sequence (Wang et al. 2021)."""

    kind: Literal["decoder-only"] = "decoder-only"
    layers: int = Field(8, ge=1, description="Blocks; as many as an encoder and a decoder have together.")
    width: int = Field(128, ge=1, description="Width D of every vector between blocks.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(256, ge=0, description="Inner width F of the feed-forward layers; 0: there are none.")
    activation: Literal["relu", "gelu"] = Field("relu", description="Activation inside the feed-forward layers.")
    norm: Literal["post", "pre", "none"] = Field(
        "pre", description="Layer norm after each residual, before, or nowhere."
    )
    prefix: bool = Field(False, description="Tokens of the source see all of it; else only what stands before them.")
    positions: Literal["sinusoidal", "learned", "rotary", "shaw", "t5", "alibi", "none"] = Field(
        "sinusoidal",
        description="How positions are told: added to embeddings, by turning queries and keys, or to scores.",
    )
    reach: int = Field(REACH, ge=1, description="Farthest distance that shaw positions tell apart.")
    max_length: int = Field(2048, ge=2, description="Longest source and target together, for learned positions.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on embeddings and on the output of each sub-layer.")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on attention weights (takes the slow path).")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout inside the feed-forward layers.")
    token_dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of the tokens, read or written, hidden in training."
    )
    tied: Literal["all", "target", "none"] = Field(
        "all", description="Which tables are one: source, target and output; target and output; or none."
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> DecoderOnlyConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        check_positions(self.positions, reach=self.reach)
        return self

    @property
    def longest(self) -> int | None:
        """Most tokens that a source, and a target, may have, begin and end included; None: any number."""
        return self.max_length // 2 if self.positions == "learned" else None


class RecurrentConfig(StrictConfig):
    """What the recurrent families share: an encoder and a decoder of RNN, GRU or LSTM layers."""

    cell: Literal["rnn", "gru", "lstm"] = Field("gru", description="The recurrent cell.")
    layers: int = Field(1, ge=1, description="Recurrent layers of the encoder, and of the decoder.")
    width: int = Field(128, ge=1, description="Width D of embeddings and of the vectors that predict a token.")
    hidden: int = Field(256, ge=1, description="Width of a recurrent state; each of two directions has half of it.")
    bidirectional: bool = Field(True, description="Read the source in both directions.")
    dropout: float = Field(0.3, ge=0, lt=1, description="Dropout on embeddings, between layers and before the output.")
    tied: Literal["all", "target", "none"] = Field(
        "all", description="Which tables are one: source, target and output; target and output; or none."
    )

    @model_validator(mode="after")
    def _two_halves(self) -> RecurrentConfig:
        if self.bidirectional and self.hidden % 2:
            raise ValueError(f"hidden {self.hidden} cannot be split over two directions; choose an even number")
        return self

    @property
    def longest(self) -> int | None:
        return None


class Seq2SeqConfig(RecurrentConfig):
    """Encoder and decoder without attention; all that is said goes through the encoder's last state.

    Sutskever et al. 2014: an LSTM, the source reversed, the state given once. Cho et al. 2014: a GRU, the state given at
    every step.
    """

    kind: Literal["seq2seq"] = "seq2seq"
    cell: Literal["rnn", "gru", "lstm"] = Field("lstm", description="The recurrent cell.")
    bidirectional: bool = Field(False, description="Read the source in both directions.")
    reverse: bool = Field(True, description="Read the source from its end, so that its beginning is freshest.")
    context: Literal["first", "every"] = Field(
        "first", description="The encoder's last state starts the decoder only (Sutskever), or joins every step (Cho)."
    )


class AttentiveConfig(RecurrentConfig):
    """What the recurrent families with attention share: which score says how well a state and an annotation agree."""

    score: ScoreName = Field("additive", description="How a state is held against each annotation of the source.")
    temperature: float = Field(1.0, gt=0, description="Scores are divided by it before the softmax.")
    max_length: int = Field(256, ge=1, description="Source positions that the location score knows; later are unseen.")
    back: float = Field(0.0, description="How far before its own place a word looks with the offset score.")
    back_learned: bool = Field(True, description="Learn from there how far back; false: always exactly so far.")


class BahdanauConfig(AttentiveConfig):
    """Bahdanau et al. 2015: the last state looks at the source, and what it sees joins the next step."""

    kind: Literal["bahdanau"] = "bahdanau"


class LuongConfig(AttentiveConfig):
    """Luong et al. 2015: the new state looks at the source, and what it sees predicts the token."""

    kind: Literal["luong"] = "luong"
    cell: Literal["rnn", "gru", "lstm"] = Field("lstm", description="The recurrent cell.")
    score: ScoreName = Field("general", description="How a state is held against each annotation of the source.")
    input_feeding: bool = Field(False, description="What was seen at a step joins the input of the next.")
    where: Literal["global", "local-m", "local-p"] = Field(
        "global", description="Look everywhere, around the same position, or around a predicted one."
    )
    window: int = Field(10, ge=1, description="How far a local window reaches to either side: D of the paper.")


class ByteNetConfig(StrictConfig):
    """ByteNet (Kalchbrenner et al. 2016): dilated convolutions, the decoder unfolded over the encoder; no attention."""

    kind: Literal["bytenet"] = "bytenet"
    width: int = Field(128, ge=1, description="Width D of embeddings and of the vectors that predict a token.")
    channels: int = Field(256, ge=2, description="Channels of the residual stream; convolutions work on half of them.")
    sets: int = Field(1, ge=1, description="How often the dilations are gone through, in encoder and decoder.")
    dilations: tuple[int, ...] = Field((1, 2, 4, 8), min_length=1, description="Dilation of each block of a set.")
    kernel: int = Field(3, ge=1, description="Width of the convolutions; odd, so that the encoder's can be centred.")
    ratio: float = Field(1.2, ge=1, description="a of the unfolding: the encoder is a S + b long for S tokens.")
    extra: int = Field(4, ge=0, description="b of the unfolding.")
    dropout: float = Field(0.2, ge=0, lt=1, description="Dropout on embeddings and on the output of each block.")
    tied: Literal["all", "target", "none"] = Field(
        "all", description="Which tables are one: source, target and output; target and output; or none."
    )

    @model_validator(mode="after")
    def _can_be_centred(self) -> ByteNetConfig:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel {self.kernel} has no middle; choose an odd number")
        if self.channels % 2:
            raise ValueError(f"channels {self.channels} have no half; choose an even number")
        if min(self.dilations) < 1:
            raise ValueError(f"dilation {min(self.dilations)} reaches nothing; choose 1 or more")
        return self

    @property
    def longest(self) -> int | None:
        return None
