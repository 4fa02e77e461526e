"""End-to-end memory networks (Sukhbaatar, Szlam, Weston & Fergus 2015), and two other readers of the same stories.

A sentence x_i of the words x_ij is a memory m_i and an output c_i, the question q a vector u (section 2.1):

    m_i = Σ_j l_j · A x_ij + T_A(i),   c_i = Σ_j l_j · C x_ij + T_C(i),   u = Σ_j l_j · B q_j
    p_i = softmax(u · m_i),   o = Σ_i p_i c_i,   u' = u + o   (the next hop),   answer = softmax(W u')

l_kj = (1 - j/J) - (k/d)(1 - 2j/J) tells the place j of a word among J (position encoding, section 4.1); T tells how long ago a
sentence was told. In a linear start p_i = u · m_i / √S for S sentences: the paper leaves out the softmax and
has no scale (section 4.1); with one, long stories do not burst. Answers are labels, so that W is a table of its own, where the
paper ties it to the last C. The p of every hop pass the recording channel: which sentence each hop read.

Two settings decide how far hops can reason. Without tying, T_C of one hop and T_A of the next are different, and "the sentence
before the one that I found" can be asked for; with adjacent tying they are one table, whose products are symmetric: before is
after. And where scores are sums, what was found cannot choose what is looked for: behind "dropped the ring there" that is the
sentence before, behind "took the ring" where its person went. With half of the units cut at zero (`relu`), a verb can switch
units off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag

from regard.attention import AttentionCall, Lengths
from regard.attention.record import attend_seen
from regard.blocks import Recurrent
from regard.data.batch import LabelBatch, StoryBatch
from regard.models.classifier import BertClassifier, Classifier, last_of
from regard.models.config import BertConfig, LSTMConfig, MemoryNetworkConfig
from regard.noise import dropout, for_rows, step_of_training
from regard.tokens import BEGIN

SPREAD = 0.1  # standard deviation of fresh weights (section 4.2)


class Hop(nn.Module):
    """One reading of the memory: what the question finds, softmax(u · m) c."""

    def forward(self, u: Tensor, m: Tensor, c: Tensor, sentences: Tensor, linear: bool) -> Tensor:
        """u (B, D), m and c (B, S, D), of which the first `sentences` (B,) count -> (B, D)."""
        if linear:
            real = torch.arange(m.size(1), device=m.device) < sentences[:, None]  # (B, S)
            p = (m @ u[..., None]).squeeze(-1) * real * sentences[:, None].to(m.dtype).rsqrt()
            return (p[:, None] @ c).squeeze(1)
        mask = None if bool((sentences == m.size(1)).all()) else Lengths(sentences)
        q, k, v = u[:, None, None], m[:, None], c[:, None]  # one head
        return attend_seen(self, "cross", q, k, v, mask=mask, scale=1.0).flatten(1)


class MemoryNetwork(Classifier):
    """Reads a story in hops. `counted` tells how much each sentence was read, over all hops."""

    def __init__(self, config: MemoryNetworkConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(nn.Linear(config.width, labels, bias=False), config.dropout, smoothing)
        self.config = config
        reads = {"adjacent": config.hops + 1, "layer-wise": 2, "none": 2 * config.hops}[config.tying]
        self.own_question = config.tying != "adjacent"  # B is a table of its own, the last; or it is the first A
        self.tables = nn.ModuleList(nn.Embedding(vocabulary, config.width) for _ in range(reads + self.own_question))
        times = reads if config.temporal else 0
        self.ago = nn.ModuleList(nn.Embedding(config.memory, config.width) for _ in range(times))
        layer_wise = config.tying == "layer-wise"
        self.step = nn.Linear(config.width, config.width, bias=False) if layer_wise else None  # H of section 2.2
        self.hops = nn.ModuleList(Hop() for _ in range(config.hops))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=SPREAD)

    def features(self, batch: StoryBatch) -> Tensor:  # type: ignore[override]
        """Return the question after the last hop, from which the answer is told: (B, D)."""
        batch = with_gaps(batch, self.config.noise) if self.training and self.config.noise else batch
        asks = len(self.tables) - 1 if self.own_question else 0
        u = self.summed(batch.question[:, None], batch.pad, asks, 1).flatten(1)  # (B, D)
        linear = self.training and (step_of_training() or 0) < self.config.linear_start
        memories = self.memories(batch)
        for number, hop in enumerate(self.hops):
            o = hop(u, *memories[number], batch.sentences, linear)
            u = o + (u if self.step is None else self.step(u))
            u = half_cut(u) if self.config.relu else u
        return u

    def tables_of(self, hop: int) -> tuple[int, int]:
        """A and C of a hop. In adjacent tying, what one hop gives is what the next compares with (section 2.2)."""
        return {"adjacent": (hop, hop + 1), "layer-wise": (0, 1), "none": (2 * hop, 2 * hop + 1)}[self.config.tying]

    def memories(self, batch: StoryBatch) -> list[tuple[Tensor, Tensor]]:
        """Of each hop the vectors m and c of all sentences: (B, S, D) each."""
        told = self.summed(batch.story, batch.pad, 0, len(self.tables) - self.own_question)  # (B, S, tables, D)
        if self.ago:
            ago = batch.sentences[:, None] - 1 - torch.arange(batch.story.size(1), device=batch.story.device)  # (B, S)
            times = embedding(ago.clamp(0, self.config.memory - 1), side_by_side(self.ago))
            told = told + times.unflatten(-1, told.shape[-2:])
        by_table = told.unbind(dim=-2)
        pairs = [self.tables_of(hop) for hop in range(self.config.hops)]
        return [(by_table[first], by_table[second]) for first, second in pairs]

    def summed(self, ids: Tensor, pad: int, first: int, count: int) -> Tensor:
        """Sentences (B, S, W) as sums of their words by `count` tables from the `first` on: (B, S, count, D)."""
        table = side_by_side(self.tables[first : first + count])  # (V, count D)
        rows = ids.flatten(0, -2)  # (B S, W)
        told = (rows != pad).any(dim=-1).nonzero().squeeze(1)  # without the padding behind short stories
        sums = self.word_sums(rows[told], pad, table)
        found = sums.new_zeros(len(rows), table.size(1)).index_copy(0, told, sums)
        return found.view(*ids.shape[:-1], count, self.config.width)

    def word_sums(self, rows: Tensor, pad: int, table: Tensor) -> Tensor:
        """Sentences (N, W) as sums of the rows of a table (V, count D), weighed by the places of their words: (N, count D)."""
        real = rows != pad
        if self.config.words == "bag":
            return embedding_bag(rows, table, per_sample_weights=real.to(table.dtype), mode="sum")
        near, far = (
            embedding_bag(rows, table, per_sample_weights=weights, mode="sum")
            for weights in place_weights(real, table.dtype)
        )
        return near - far * places_of_units(self.config.width, table).repeat(table.size(1) // self.config.width)

    def counted(self, calls: Sequence[AttentionCall], lengths: Tensor) -> Tensor:
        return torch.stack([call.weights()[:, 0, 0] for call in calls]).mean(dim=0)  # (B, S)


def side_by_side(tables: nn.ModuleList) -> Tensor:
    """Tables (V, D) as one, from which a single look takes the rows of all: (V, tables D)."""
    return torch.cat([table.weight for table in tables if isinstance(table, nn.Embedding)], dim=1)


def place_weights(real: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The two parts of l_kj = (1 - j/J) - (k/d) (1 - 2j/J) of section 4.1, for words where `real` (..., W): each (..., W)."""
    places = torch.arange(1, real.size(-1) + 1, device=real.device, dtype=dtype)
    share = places / real.sum(dim=-1, keepdim=True).clamp(min=1)  # j/J
    return (1 - share) * real, (1 - 2 * share) * real


def places_of_units(width: int, like: Tensor) -> Tensor:
    """k/d for each unit of a vector: (D,)."""
    return torch.arange(1, width + 1, device=like.device, dtype=like.dtype) / width


def with_gaps(batch: StoryBatch, share: float) -> StoryBatch:
    """Empty sentences at random places between those of the stories, about `share` as many (section 4.1, random noise)."""
    rows, most, _ = batch.story.shape
    extra = max(1, round(share * most))
    often = min(1.0, share * most / extra)  # where a share is less than one sentence, only some stories have it
    draw = partial(torch.rand, device=batch.story.device)
    empty = for_rows(draw, rows, most + extra).argsort(dim=1) < extra  # (B, S + extra)
    empty &= for_rows(draw, rows, 1) < often
    place = (~empty).cumsum(dim=1) - 1  # which sentence stands where
    has = ~empty & (place < batch.sentences[:, None])
    story = batch.story.gather(1, place.clamp(0, most - 1)[..., None].expand(-1, -1, batch.story.size(2)))
    story = torch.where(has[..., None], story, torch.full_like(story, batch.pad))
    last = torch.where(has, torch.arange(1, most + extra + 1, device=has.device), 0).amax(dim=1)
    return StoryBatch(story, last.clamp(min=1), batch.question, batch.labels, batch.pad)


def half_cut(x: Tensor) -> Tensor:
    """The first half of the units cut at zero, the others as they are (section 5, and joint training)."""
    half = x.size(-1) // 2
    return torch.cat([x[..., :half].relu(), x[..., half:]], dim=-1)


class StoryLSTM(Classifier):
    """A recurrent network that reads the story and the question word after word; its last state tells the answer."""

    def __init__(self, config: LSTMConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(nn.Linear(config.hidden, labels), config.dropout, smoothing)
        self.config = config
        self.tokens = nn.Embedding(vocabulary, config.width)
        self.layers = Recurrent(config.cell, config.width, config.hidden, config.layers, config.dropout)

    def features(self, batch: StoryBatch) -> Tensor:  # type: ignore[override]
        text = batch.flat(BEGIN)
        words = self.tokens(text.ids)
        words = dropout(words, self.config.dropout) if self.training else words
        states, _ = self.layers(words, self.layers.zeros(len(words)))  # (B, T, hidden)
        return last_of(states, text.lengths)

    def counted(self, calls: Sequence[AttentionCall], lengths: Tensor) -> Tensor:
        raise ValueError("an LSTM looks at nothing")


class StoryTransformer(BertClassifier):
    """A Transformer encoder over the words of the story and the question; its first vector tells the answer."""

    def __init__(self, config: BertConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(config, vocabulary, labels, smoothing)

    def features(self, batch: StoryBatch | LabelBatch) -> Tensor:
        return super().features(batch.flat(BEGIN) if isinstance(batch, StoryBatch) else batch)
