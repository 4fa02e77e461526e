"""Configurations of what attends inside a block: all pairs, or a kernel that does not cost T². No torch here.

    [model.attention]
    kind = "performer"
    features = 128

or in one word, `attention = "performer"`, with all that is silent as its paper has it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from regard.config import StrictConfig, open_choice, open_union

REACH = 16  # of shaw and tree positions, unless said


class ExactConfig(StrictConfig):
    """All pairs of query and key (Vaswani et al. 2017); memory grows with T, time with T²."""

    kind: Literal["exact"] = "exact"


class WindowConfig(StrictConfig):
    """A sliding window, and a few tokens that see all (Beltagy et al. 2020, "Longformer")."""

    kind: Literal["window"] = "window"
    reach: int = Field(
        64, ge=1, description="How many positions a query sees to each side (causal: back), beside itself."
    )
    globals: int = Field(0, ge=0, description="First tokens that see all and are seen by all; not if causal.")


class StridedConfig(StrictConfig):
    """What is near, and every so-many-th position of what is far (Child et al. 2019, "Sparse Transformers")."""

    kind: Literal["strided"] = "strided"
    pattern: Literal["strided", "fixed"] = Field(
        "strided", description="Every stride-th position back, or the last positions of every block."
    )
    stride: int = Field(32, ge=2, description="l of the paper: how far near reaches, about √T.")
    summary: int = Field(4, ge=1, description="c of the fixed pattern: positions at a block's end that all may see.")


class BigBirdConfig(StrictConfig):
    """Blocks: the neighbours, the first ones, and some at random (Zaheer et al. 2020, "Big Bird")."""

    kind: Literal["bigbird"] = "bigbird"
    block: int = Field(32, ge=1, description="Positions of a block.")
    window: int = Field(3, ge=1, description="Blocks of the window, its own in the middle; odd.")
    globals: int = Field(2, ge=0, description="First blocks that see all and are seen by all.")
    random: int = Field(3, ge=0, description="Blocks at random that each block sees besides.")


class LinformerConfig(StrictConfig):
    """Keys and values projected from their length to a fixed size (Wang et al. 2020, "Linformer")."""

    kind: Literal["linformer"] = "linformer"
    size: int = Field(64, ge=1, description="k of the paper: what keys and values are projected to.")
    share: Literal["none", "heads", "key-value"] = Field(
        "heads", description="Projections of their own for each head; one for all heads; one for keys and values, too."
    )


class ReformerConfig(StrictConfig):
    """Queries look at keys with the same hash; queries and keys are the same (Kitaev et al. 2020, "Reformer")."""

    kind: Literal["reformer"] = "reformer"
    chunk: int = Field(32, ge=1, description="m of the paper: how many neighbours in its bucket a query sees.")
    buckets: int = Field(0, ge=0, description="Buckets of a hash, even; 0: two for every chunk of the longest text.")
    rounds: int = Field(2, ge=1, description="Hashes whose finds are joined.")


class PerformerConfig(StrictConfig):
    """Softmax's kernel by random features, in linear time (Choromanski et al. 2021, "Performer", FAVOR+)."""

    kind: Literal["performer"] = "performer"
    features: int = Field(0, ge=0, description="m of the paper: random features of a head; 0: E ln E.")
    redraw: int = Field(1000, ge=0, description="Steps of training after which features are drawn anew; 0: never.")


class LinearConfig(StrictConfig):
    """elu(x) + 1 in place of softmax, in linear time (Katharopoulos et al. 2020)."""

    kind: Literal["linear"] = "linear"


class StateSpaceConfig(StrictConfig):
    """No attention: a diagonal state-space layer (Gu et al. 2022, "S4D"), the contrast."""

    kind: Literal["s4d"] = "s4d"
    state: int = Field(32, ge=1, description="Complex numbers that each channel keeps: N/2 of the paper.")
    slowest: float = Field(1e-3, gt=0, description="Least time step at the start.")
    fastest: float = Field(1e-1, gt=0, description="Greatest time step at the start.")


class SelectiveConfig(StrictConfig):
    """No attention: a state space whose input chooses what to keep (Gu & Dao 2023, "Mamba"), in its gated block."""

    kind: Literal["mamba"] = "mamba"
    state: int = Field(16, ge=1, description="Numbers that each channel keeps: N of the paper.")
    expand: int = Field(2, ge=1, description="Channels for each one of the width: E of the paper.")
    kernel: int = Field(4, ge=1, description="Width of the causal convolution before the state space.")
    rank: int = Field(0, ge=0, description="Width of the bottleneck through which steps are chosen; 0: width / 16.")
    slowest: float = Field(1e-3, gt=0, description="Least time step at the start.")
    fastest: float = Field(1e-1, gt=0, description="Greatest time step at the start.")


def _named(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


KernelConfig = (
    WindowConfig | StridedConfig | BigBirdConfig | LinformerConfig | ReformerConfig | PerformerConfig | LinearConfig
)
ADDED_KERNELS: dict[str, type[StrictConfig]] = {}  # configurations of kernels that plugins add
AttentionConfig = Annotated[
    ExactConfig | KernelConfig | StateSpaceConfig | SelectiveConfig,
    Field(discriminator="kind"),
    *open_union(ADDED_KERNELS),
    BeforeValidator(_named),
]
KERNEL_KINDS = ("exact", "window", "strided", "bigbird", "linformer", "reformer", "performer", "linear", "s4d", "mamba")


PositionsWhere = Literal["add", "concatenate", "qkv"]


ScoreName = Annotated[
    Literal["cosine", "additive", "location", "general", "dot", "scaled-dot", "mlp", "offset"], *open_choice("score")
]


def kernel_kinds() -> tuple[str, ...]:
    """Every kind of attention, those of plugins too."""
    return (*KERNEL_KINDS, *ADDED_KERNELS)


def check_positions(
    positions: str, *, random_offset: int = 0, rotary_scale: float = 1.0, reach: int = REACH, where: str = "add"
) -> None:
    """A ValueError for what would be ignored: options of positions that the model does not have."""
    if random_offset and positions not in ("sinusoidal", "learned"):
        raise ValueError(f"random_offset is for positions that are added (sinusoidal, learned), not for {positions}")
    if where != "add" and positions not in ("sinusoidal", "learned"):
        raise ValueError(f"positions_where is for sinusoidal and learned positions, not for {positions}")
    if where == "qkv" and random_offset:
        raise ValueError("random_offset is for positions of embeddings; choose positions_where = add or concatenate")
    if rotary_scale != 1.0 and positions != "rotary":
        raise ValueError(f"rotary_scale is for rotary positions, not for {positions}")
    if reach != REACH and positions not in ("shaw", "tree"):
        raise ValueError(f"reach is for shaw and tree positions, not for {positions}")
