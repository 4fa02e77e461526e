"""Configurations of networks that attend to a memory. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from regard.config import StrictConfig


class MemoryNetworkConfig(StrictConfig):
    """An end-to-end memory network (Sukhbaatar et al. 2015): a question reads the sentences of a story in hops."""

    kind: Literal["memory-network"] = "memory-network"
    width: int = Field(64, ge=1, description="Width D of embeddings, memories and the question.")
    hops: int = Field(4, ge=1, description="How often the memory is read, each time with what was read before.")
    tying: Literal["adjacent", "layer-wise", "none"] = Field(
        "none",
        description="Which tables are one: what one hop gives and the next compares with, those of all hops, or none: then a "
        "hop can look for the sentence before the one that was found.",
    )
    words: Literal["position", "bag"] = Field(
        "position", description="A sentence is the sum of its words, weighed by their places (section 4.1), or plain."
    )
    temporal: bool = Field(True, description="Add to each sentence a vector of how long ago it was told.")
    memory: int = Field(64, ge=1, description="Sentences for which there is such a vector; older ones share the last.")
    noise: float = Field(
        0.0, ge=0, lt=1, description="Empty memories put between the sentences in training, as a share."
    )
    linear_start: int = Field(0, ge=0, description="Updates for which the softmax over the sentences is left out.")
    relu: bool = Field(
        True,
        description="Cut half of the units at zero behind each hop, so that a verb can decide what is looked for next.",
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on what the last hop gives.")

    @property
    def longest(self) -> int | None:
        return None


class TuringMachineConfig(StrictConfig):
    """A neural Turing machine (Graves et al. 2014): a controller, and heads that read and write a memory."""

    kind: Literal["turing-machine"] = "turing-machine"
    controller: Literal["plain", "lstm"] = Field("plain", description="One layer that remembers nothing, or an LSTM.")
    hidden: int = Field(100, ge=1, description="Width of the controller.")
    rows: int = Field(128, ge=3, description="Rows N of the memory.")
    width: int = Field(20, ge=1, description="Width W of a row.")
    readers: int = Field(1, ge=1, description="Heads that read; one more writes.")

    @property
    def longest(self) -> int | None:
        return None


class PonderConfig(StrictConfig):
    """A recurrent network that decides how long it thinks about each input (Graves 2016, "Adaptive computation time")."""

    kind: Literal["ponder"] = "ponder"
    cell: Literal["rnn", "gru", "lstm"] = Field("lstm", description="The recurrent cell.")
    hidden: int = Field(128, ge=1, description="Width of its state.")
    most: int = Field(20, ge=1, description="Steps for one input, at most.")
    cost: float = Field(1e-3, ge=0, description="Weight of the time it takes in the loss (tau of the paper).")
    free: int = Field(
        0, ge=0, description="Updates in which thinking costs nothing; in as many again, the cost rises to its height."
    )
    bias: float = Field(1.0, description="Bias of stopping at first: 1 begins with two steps, -1 with four or five.")
    epsilon: float = Field(0.01, gt=0, lt=1, description="It stops when its chances of stopping come to 1 less this.")

    @property
    def width(self) -> int:
        return self.hidden

    @property
    def longest(self) -> int | None:
        return None


class ProgrammerConfig(StrictConfig):
    """A neural programmer (Neelakantan et al. 2016): operations, columns and numbers chosen by attention, step by step."""

    kind: Literal["programmer"] = "programmer"
    cell: Literal["rnn", "gru", "lstm"] = Field("lstm", description="The recurrent cell that reads the question.")
    width: int = Field(32, ge=1, description="Width of the words' embeddings.")
    hidden: int = Field(64, ge=2, multiple_of=2, description="Width of what is read, of operations and of the history.")
    steps: int = Field(4, ge=1, description="Operations that it chooses, one after the other.")
    noise: float = Field(
        1.0, ge=0, description="Gumbel noise on the scores of choices in training: it tries other programs."
    )
    tied: bool = Field(False, description="All steps choose by the same matrices, as in the paper, or each by its own.")

    @property
    def longest(self) -> int | None:
        return None
