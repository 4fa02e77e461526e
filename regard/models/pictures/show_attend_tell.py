"""Captions with attention (Xu et al. 2015, "Show, attend and tell"): at every word the last state looks at the picture.

    e_ti = f_att(a_i, h_(t-1)),   α_t = softmax(e_t)                                       eq. 4 and 5
    z_t = β_t Σ_i α_ti a_i,   β_t = σ(f_β(h_(t-1)))                                        soft: eq. 13, section 4.2.1
    z_t = a_i of one place i, drawn with chances α_t                                       hard: eq. 8 and 9
    h_t = LSTM([E y_(t-1), z_t], h_(t-1)),   h_0 and c_0 = tanh(W mean(a))                 section 3.1.2
    p(y_t) = softmax(L_o (E y_(t-1) + L_h h_t + L_z z_t))                                  eq. 7

a_i is the annotation of place i, f_att the additive score. While soft attention learns, every place should be looked at
about once in a caption: λ Σ_i (1 - Σ_t α_ti)² joins the loss (eq. 14). Drawing has no gradient; hard attention learns how
to look from how likely the whole caption became, log p(y | s), compared with what was usual (eq. 11 and 12):

    gradient of log p(y | s) + (log p(y | s) - b) · gradient of Σ_t log α_t,s_t + λ_e · gradient of Σ_t H[α_t]

b is a moving average from earlier batches, kept per word, so that captions of any length share it. A trained model takes
the most likely place. The paper's mixing of soft steps into hard ones (half of the pictures) is left out: it is biased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attention import Look, SoftAttention
from regard.attention.changes import best_only
from regard.attention.scores import Additive
from regard.blocks.recurrent import LayerStates, Recurrent
from regard.data.batch import PairBatch
from regard.data.pictures.batch import CaptionBatch
from regard.data.pictures.config import PictureFormat
from regard.models.classifier import real_places
from regard.models.configs.pictures import ShowAttendTellConfig
from regard.models.encoder_decoder import Memory
from regard.models.loss import Loss, Part, target_log_probabilities
from regard.models.pictures.captioner import RecurrentCaptioner
from regard.models.recurrent import RecurrentState
from regard.noise import dropout, for_rows

KEPT = 0.9  # of the baseline at each update (eq. 12)


@dataclass(frozen=True)
class CaptionStep:
    """The tensors of one decoding step, or of all of them side by side."""

    h: Tensor  # (B, T, hidden): the new state
    z: Tensor  # (B, T, D): what joined it
    chances: Tensor  # (B, T, P): α
    look: Look  # what was really looked at: by α, or at one place

    @classmethod
    def stacked(cls, steps: list[CaptionStep]) -> CaptionStep:
        h, z, chances = (torch.cat(parts, dim=1) for parts in zip(*((s.h, s.z, s.chances) for s in steps), strict=True))
        return cls(h, z, chances, Look.stacked([step.look for step in steps]))


class ShowAttendTell(RecurrentCaptioner):
    """The decoder's last state looks at the picture's places; what it sees joins the next step and the output."""

    config: ShowAttendTellConfig
    baseline: Tensor

    def __init__(
        self, config: ShowAttendTellConfig, picture_format: PictureFormat, vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, vocabulary, smoothing)
        width, hidden = config.width, config.hidden
        self.first_state, self.first_cell = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.attention = SoftAttention(Additive(hidden, width, config.attention))
        self.gate = None if config.hard else nn.Linear(hidden, 1)
        self.decoder = Recurrent("lstm", width, hidden, 1, config.dropout, fed=width)
        self.state_out = nn.Linear(hidden, width, bias=False)
        self.context_out = nn.Linear(width, width, bias=False)
        if config.hard:  # a blind guess to begin with
            self.register_buffer("baseline", torch.tensor(-math.log(vocabulary)))
        self.finish_with(picture_format)
        if config.tied != "none":
            self._forget_the_last_word()

    @torch.no_grad()
    def _forget_the_last_word(self) -> None:
        """Make the table smaller and what stands around it larger, so that only one thing changes: a word after itself.

        What predicts a word holds E y = √D e (eq. 7), and where the output is the same table, its logit is √D |e|² = √D:
        a fresh model says one word again and again. With a table of D^-¼ of its size that logit is 1.
        """
        factor = self.config.width**0.25
        self.target.table.weight.div_(factor)
        for weight in (self.decoder.layers[0].weight_x, self.state_out.weight, self.context_out.weight):
            assert isinstance(weight, Tensor)
            weight.mul_(factor)

    def begin(self, memory: Memory) -> RecurrentState:
        """State and cell from the mean annotation."""
        mean = memory.vectors.mean(dim=1)  # (B, D)
        layers: LayerStates = [(self.first_state(mean).tanh(), self.first_cell(mean).tanh())]
        return RecurrentState(layers, self.attention.project(memory.vectors, memory.mask))

    def read(self, y: Tensor, state: RecurrentState) -> Tensor:
        return self._vectors(y, self.write(y, state))

    def write(self, y: Tensor, state: RecurrentState) -> CaptionStep:
        """All steps over the embeddings y (B, T, D) of a caption, seen by the recorder as one look."""
        gates = self.decoder.gates(y)  # (B, T, gates)
        asked, steps = [], []
        for t in range(y.size(1)):
            asked.append(_top(state, len(y)))
            step, state = self._one(gates[:, t : t + 1], state)
            state = replace(state, read=t + 1)
            steps.append(step)
        whole = CaptionStep.stacked(steps)
        assert state.source is not None
        self.attention.report(torch.cat(asked, dim=1), state.source, whole.look)
        return whole

    def advance(self, y: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        asked = _top(state, len(y))
        step, state = self._one(self.decoder.gates(y), state)
        assert state.source is not None
        self.attention.report(asked, state.source, step.look)
        return self._vectors(y, step), state

    def forward(self, batch: PairBatch | CaptionBatch) -> Loss:
        if not self.training:
            return super().forward(batch)
        y = self.target(batch.target[:, :-1])  # (B, T, D)
        written = self.write(y, self.begin(self.encode(*batch.source_parts)))
        vectors = self._vectors(y, written)
        parts = self.token_parts(vectors, batch)
        if self.config.hard:
            return Loss(parts | self._chosen_parts(vectors, written, batch))
        return Loss(parts | {"spread": spread(written.chances, batch.target_lengths, self.config.spread)})

    def _one(self, gates: Tensor, state: RecurrentState) -> tuple[CaptionStep, RecurrentState]:
        """One step of every hypothesis, from the gates (B, W, gates) of its newest token."""
        assert state.source is not None
        q = _top(state, len(gates))  # (B, W, hidden)
        soft = self.attention.look(q, state.source, torch.full((1,), state.read, device=q.device))
        look = self._chosen(soft, state.source.values) if self.config.hard else soft
        z = look.context if self.gate is None else self.gate(q).sigmoid() * look.context  # (B, W, D)
        h, layers = self.decoder.step(gates.flatten(0, 1), state.layers, z.flatten(0, 1))
        return CaptionStep(h.view_as(q), z, soft.weights, look), replace(state, layers=layers)

    def _chosen(self, look: Look, places: Tensor) -> Look:
        """One place for each word: drawn in training, else the most likely."""
        weights = one_drawn(look.weights) if self.training else best_only(look.weights)
        return self.attention.seen(weights, places, look.mask)

    def _vectors(self, y: Tensor, step: CaptionStep) -> Tensor:
        out = y + self.state_out(step.h) + self.context_out(step.z)  # (B, T, D)
        return dropout(out, self.config.dropout) if self.training else out

    def _chosen_parts(self, vectors: Tensor, step: CaptionStep, batch: PairBatch | CaptionBatch) -> dict[str, Part]:
        """The loss of hard attention by REINFORCE (eq. 11), and its baseline, which then moves on (eq. 12)."""
        real, words = real_places(batch.target_lengths, vectors.size(1)), batch.target_tokens
        with torch.no_grad():
            likelihood = vectors.new_zeros(real.shape)  # (B, T): log p of each word
            wanted = batch.target[:, 1:][real]
            likelihood[real] = target_log_probabilities(vectors[real], self.output.weight, wanted).to(likelihood.dtype)
            reward = likelihood.sum(dim=-1) - self.baseline * batch.target_lengths  # (B,)
        least = torch.finfo(step.chances.dtype).tiny
        logs = step.chances.clamp(min=least).log()  # (B, T, P)
        entropy = -(step.chances * logs).sum(dim=-1)  # (B, T)
        gain = reward[:, None] * (step.look.weights * logs).sum(dim=-1) + self.config.entropy * entropy
        usual = self.baseline * words
        self.baseline.mul_(KEPT).add_(likelihood.sum() / words, alpha=1 - KEPT)
        return {"chosen": Part(-gain[real].sum(), words), "baseline": Part(usual, words, weight=0.0)}


def spread(weights: Tensor, lengths: Tensor, rate: float) -> Part:
    """Σ_i (1 - Σ_t α_ti)² of each caption, over its real words (eq. 14): weights (B, T, P), lengths (B,).

    It counts words, as the likelihood does, so that λ weighs one caption's sum against its own likelihood, as in the paper.
    """
    looked = (weights * real_places(lengths, weights.size(1))[..., None]).sum(dim=1)  # (B, P)
    return Part((1 - looked).square().sum(), int(lengths.sum()), rate)


def one_drawn(chances: Tensor) -> Tensor:
    """A one at a place drawn with these chances (B, T, P), zeros elsewhere."""
    waits = for_rows(lambda *shape: chances.new_empty(shape).exponential_(), *chances.shape)
    drawn = (chances.detach() / waits).argmax(dim=-1, keepdim=True)  # who waits the shortest time comes first
    return torch.zeros_like(chances).scatter_(-1, drawn, 1.0)


def _top(state: RecurrentState, rows: int) -> Tensor:
    """The state of every hypothesis: (B, W, hidden)."""
    return state.layers[-1][0].unflatten(0, (rows, -1))
