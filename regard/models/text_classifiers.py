"""The ladder of attention in text classification, from weights that are counted to weights that are computed.

    tfidf            a word weighs what its counts say        static
    token-weights    a word weighs what was learned of it     adaptive, the same in every text
    plain-attention  softmax(x · x)                           of the text itself, without parameters
    additive         softmax(v · tanh(W q + U h))             of states that have read the text, by a learned query
    self-attention   softmax(q · k / √E)                      of learned queries, keys and values
    bert, gpt1 ...   the last, block upon block               trained on other texts first

All weights pass the recording channel, so that `looked` can tell which words counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import (
    AttentionCall,
    AttentionPool,
    Mask,
    MemoryKeys,
    MultiHead,
    Score,
    SoftAttention,
    make_score,
)
from regard.attention.record import attend_seen, report
from regard.blocks import RecurrentEncoder, initialise
from regard.data.batch import LabelBatch
from regard.embed import TokenEmbedding, embedding_table, positions
from regard.models.classifier import Classifier, mean_of_real, padding_mask, real_places
from regard.models.config import (
    AdditiveConfig,
    PlainAttentionConfig,
    SelfAttentionConfig,
    TfidfConfig,
    TokenWeightsConfig,
)
from regard.noise import dropout
from regard.tokens import PAD, SPECIAL


class Bias(nn.Module):
    """Adds a vector: the last layer where a text's vector already is its scores."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(labels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class Pooled(Classifier):
    """One query looks at the text: its weights are what counted."""

    def counted(self, calls: Sequence[AttentionCall], lengths: Tensor) -> Tensor:
        return calls[-1].weights()[:, 0, 0]  # (B, S)


class Averaged(Classifier):
    """Every token looks at the text, and their mean is its vector: what counted is the mean of where they looked."""

    def counted(self, calls: Sequence[AttentionCall], lengths: Tensor) -> Tensor:
        return mean_of_real(calls[-1].weights().mean(dim=1), lengths)  # (B, S)


class Tfidf(Pooled):
    """Logistic regression on TF-IDF (Spärck Jones 1972; Salton & Buckley 1988), seen as attention with fixed weights.

        x_t = tf_t · idf_t / ‖tf · idf‖,   idf_t = log((1 + N) / (1 + n_t)) + 1,   scores = Σ_t x_t W_t + b

    The word t occurs tf_t times in this text and in n_t of the N texts of `fit`; the ones are scikit-learn's. The
    words' rows W_t are looked up, so that no matrix is as wide as the vocabulary. Special ids weigh nothing.
    """

    def __init__(self, config: TfidfConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(Bias(labels), 0.0, smoothing)
        self.config = config
        self.words = nn.Embedding(vocabulary, labels)
        nn.init.zeros_(self.words.weight)  # the problem is convex: no symmetry to break
        self.idf = nn.Parameter(torch.ones(vocabulary), requires_grad=False)
        with torch.no_grad():
            self.idf[: len(SPECIAL)] = 0.0

    @torch.no_grad()
    def fit(self, texts: Sequence[np.ndarray]) -> None:
        """Count in how many of the training texts each word occurs."""
        occurs = np.zeros(len(self.idf), dtype=np.int64)
        for text in texts:
            occurs[np.unique(text)] += 1
        self.idf.copy_(torch.from_numpy(np.log((1 + len(texts)) / (1 + occurs)) + 1))
        self.idf[: len(SPECIAL)] = 0.0

    def features(self, batch: LabelBatch) -> Tensor:
        keys, weights = tfidf_weights(batch.ids, batch.lengths, self.idf)  # each (B, S)
        weights = (dropout(weights, self.config.dropout) if self.training else weights)[:, None]  # (B, 1, S)
        values = self.words(batch.ids)  # (B, S, labels)
        out = weights @ values  # (B, 1, labels)
        k, mask = keys[:, None, :, None], padding_mask(batch)  # (B, 1, S, 1)
        heads = (torch.ones_like(k[:, :, :1]), k, values[:, None], out[:, None])  # one
        report(self, "pool", *heads, mask=mask, reported=weights[:, None], sums_to_one=False, has_exact=False)
        return out.squeeze(1)


def tfidf_weights(ids: Tensor, lengths: Tensor, idf: Tensor) -> tuple[Tensor, Tensor]:
    """The idf of each token, and its weight: of a word that occurs tf times the weights sum to tf · idf / ‖tf · idf‖.

    Both (B, S). ‖tf · idf‖² = Σ over words of tf² idf² = Σ over tokens of tf idf².
    """
    ids = ids.masked_fill(~real_places(lengths, ids.size(1)), PAD)
    rows = torch.arange(len(ids), device=ids.device)[:, None]
    _, word, count = torch.unique(ids + rows * len(idf), return_inverse=True, return_counts=True)
    here = idf[ids]  # (B, S)
    norm = (count[word] * here.square()).sum(dim=-1, keepdim=True).sqrt()  # (B, 1)
    return here, here / norm.clamp(min=torch.finfo(here.dtype).tiny)


class TokenWeights(Pooled):
    """Every token of the vocabulary has a learned score s: the vector is Σ_i softmax_i(s(token_i)) x_i.

    The softmax is over the text's tokens. It is attention whose query is 1 and whose keys are the scores; all begin at
    zero, with the mean.
    """

    def __init__(self, config: TokenWeightsConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(nn.Linear(config.width, labels), config.dropout, smoothing)
        self.tokens = _unit_tokens(config, vocabulary)
        self.token_scores = nn.Parameter(torch.zeros(vocabulary))

    def features(self, batch: LabelBatch) -> Tensor:
        v = self.tokens(batch.ids)[:, None]  # (B, 1, S, D)
        k = self.token_scores[batch.ids][:, None, :, None]  # (B, 1, S, 1)
        q = torch.ones_like(k[:, :, :1])  # (B, 1, 1, 1)
        return attend_seen(self, "pool", q, k, v, mask=padding_mask(batch), scale=1.0).flatten(1)  # (B, D)


class PlainAttention(Averaged):
    """Self-attention without parameters: y_i = Σ_j softmax_j(x_i · x_j) x_j, then the mean of all y.

    Only likeness counts; with `likeness` unlike the products change their sign, and learned has a number for them that
    begins at 0, where all tokens weigh alike. Products are not scaled. Embeddings begin with a length of about 1, so that
    a token scores 1 with itself and about 0 ± 1/√D with others, far from where a softmax saturates; how far they go from
    there is learned.
    """

    def __init__(self, config: PlainAttentionConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(nn.Linear(config.width, labels), config.dropout, smoothing)
        self.tokens = _unit_tokens(config, vocabulary)
        self.likeness: float | nn.Parameter = 1.0 if config.likeness == "like" else -1.0
        if config.likeness == "learned":
            self.likeness = nn.Parameter(torch.zeros(1))

    def features(self, batch: LabelBatch) -> Tensor:
        x = self.tokens(batch.ids)[:, None]  # (B, 1, S, D)
        q = x if self.likeness == 1.0 else x * self.likeness
        y = attend_seen(self, "self", q, x, x, mask=padding_mask(batch), scale=1.0)
        return mean_of_real(y.squeeze(1), batch.lengths)  # (B, D)


class Additive(Pooled):
    """Additive attention pooling over a recurrent encoder of both directions (Yang et al. 2016, eq. 5 to 7):

        u_i = tanh(U h_i + b),   α = softmax(v · u),   vector = Σ_i α_i h_i

    It is the additive score (Bahdanau et al. 2015) with a learned query q, whose W q is b, and whose v is their u_w.
    """

    def __init__(self, config: AdditiveConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(nn.Linear(config.hidden, labels), config.dropout, smoothing)
        none = positions("none", config.width, 0)
        self.tokens = TokenEmbedding(embedding_table(vocabulary, config.width), none, config.dropout)
        self.encoder = RecurrentEncoder(
            config.cell, config.width, config.hidden, config.layers, config.dropout, bidirectional=True
        )
        self.pool = AttentionPool(make_score("additive", config.hidden, config.hidden), config.hidden)

    def features(self, batch: LabelBatch) -> Tensor:
        annotations, _ = self.encoder(self.tokens(batch.ids), batch.lengths)  # (B, S, hidden)
        return self.pool(annotations, padding_mask(batch))  # (B, hidden)

    def in_order(self, ids: Tensor) -> Tensor:
        """Texts (B, S) in the order in which they are read."""
        return ids

    def embedded(self, ids: Tensor) -> Tensor:
        """Texts (B, S) as the encoder reads them: (B, S, D)."""
        return self.tokens(ids)

    def last_state(self, x: Tensor) -> Tensor:
        """The last state of the forward encoder over texts (B, S, D): (B, hidden / 2)."""
        return self.encoder.last_state(x)


class SelfAttention(Averaged):
    """One layer of query-key-value self-attention (Vaswani et al. 2017, section 3.2), then the mean.

    With a score of `attention/scores.py` there is one head instead, in which tokens themselves are queries and keys.
    Embeddings know their positions. Nothing passes beside the attention, so that where it looks is all that counts.
    """

    def __init__(self, config: SelfAttentionConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(nn.Linear(config.width, labels), config.dropout, smoothing)
        places = positions(config.positions, config.width, 1024)
        self.tokens = TokenEmbedding(embedding_table(vocabulary, config.width), places, config.dropout)
        self.attention = _attention(config)
        initialise(self)

    def features(self, batch: LabelBatch) -> Tensor:
        x = self.tokens(batch.ids)  # (B, S, D)
        return mean_of_real(self.attention(x, x, padding_mask(batch)), batch.lengths)  # (B, D)


class ScoredSelfAttention(nn.Module):
    """Self-attention of one head with any score: y_t = W_o Σ_s softmax_s(score(x_t, x_s)) W_v x_s."""

    def __init__(self, score: Score, width: int) -> None:
        super().__init__()
        self.attention = SoftAttention(score, role="self")
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, mask: Mask | None) -> Tensor:
        """(B, S, D) -> (B, S, D); `memory` is x."""
        keys = MemoryKeys(self.attention.score.keys(memory), self.value(memory), mask)
        return self.out(self.attention(x, keys, torch.arange(x.size(1), device=x.device)))


def _attention(config: SelfAttentionConfig) -> MultiHead | ScoredSelfAttention:
    if config.score == "heads":
        return MultiHead(config.width, config.heads, role="self")
    sizes = (config.width, config.width, config.max_length)
    score = make_score(config.score, *sizes, back=config.back, back_learned=config.back_learned)
    return ScoredSelfAttention(score, config.width)


def _unit_tokens(config: TokenWeightsConfig | PlainAttentionConfig, vocabulary: int) -> TokenEmbedding:
    """Embeddings of a length of about 1, without positions."""
    none = positions("none", config.width, 0)
    return TokenEmbedding(embedding_table(vocabulary, config.width), none, config.dropout, scaled=False)
