"""WaveNet (van den Oord et al. 2016): dilated causal convolutions with gates, which write a wave sample by sample.

Layer k of the stack reads x, and adds to what all layers say of the next token (section 2.3, eq. 2; section 2.4):

    z = tanh(W_f ∗ x + V_f h) ⊙ σ(W_g ∗ x + V_g h)      x ← x + R z,      s ← s + S z

∗ is a causal convolution whose dilation doubles from layer to layer, so that a few layers reach far back; h is the label of the
sound, one-hot, the same at every place (global conditioning, section 2.5). A label is a token like the others: it stands before
what it is of, and holds until the next one.

Also a stepper of decoding: each convolution keeps its last inputs in a ring (Paine et al. 2016, "Fast WaveNet generation
algorithm"), so that a sample costs the same whatever the reach of the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.blocks.convolution import CausalConvolution, ConvolutionPast
from regard.embed import TokenEmbedding, positions
from regard.models.configs.language import WaveNetConfig
from regard.models.encoder_decoder import rows_of_parents, rows_of_sources
from regard.models.language import LanguageModel
from regard.noise import dropout


class GatedLayer(nn.Module):
    """One layer of the stack: x (B, T, channels) -> what goes on to the next layer, and what is said: (B, T, width)."""

    def __init__(self, config: WaveNetConfig, dilation: int, labels: int, *, last: bool) -> None:
        super().__init__()
        channels = config.channels
        self.convolution = CausalConvolution(channels, 2 * channels, config.kernel, dilation)  # filter and gate
        self.labels = nn.Embedding(labels, 2 * channels) if labels > 1 else None  # V h of each label; the first: none
        self.channels = 0 if last else channels  # of what goes on: nobody reads on behind the last layer
        self.leave = nn.Linear(channels, self.channels + config.width)

    def forward(self, x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._gated(x, self.convolution(x), labels)

    def step(self, x: Tensor, labels: Tensor | None, past: ConvolutionPast) -> tuple[Tensor, Tensor]:
        """The newest place of each hypothesis, (N, channels); it joins the past."""
        return self._gated(x, self.convolution.step(x, past), labels)

    def _gated(self, x: Tensor, seen: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.labels is not None and labels is not None:
            seen = seen + self.labels(labels)
        out = self.leave(gated(seen))
        return (x + out[..., : self.channels]) if self.channels else x, out[..., self.channels :]


def gated(x: Tensor) -> Tensor:
    """tanh(a) ⊙ σ(b) of the two halves a and b of each vector: (..., 2C) -> (..., C)."""
    kept, gate = x.chunk(2, dim=-1)
    return kept.tanh() * gate.sigmoid()


@dataclass(frozen=True)
class WaveNetState:
    """Between two steps of decoding: of each convolution its last inputs, and of each hypothesis its label."""

    pasts: list[ConvolutionPast]
    labels: Tensor | None  # (B * W,), 0: none yet
    hypotheses: int = 1  # of each source: W

    def select(self, rows: Tensor) -> WaveNetState:
        labels = None if self.labels is None else self.labels.index_select(0, rows)
        return replace(self, pasts=[past.select(rows) for past in self.pasts], labels=labels)


class WaveNet(LanguageModel):
    """`model(batch)` is the loss; `start` and `step` write."""

    config: WaveNetConfig

    def __init__(self, config: WaveNetConfig, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__(config, vocabulary, smoothing)
        first = vocabulary if config.labels_from is None else min(config.labels_from, vocabulary)
        self.first_label, channels = first, config.channels
        self.tokens = TokenEmbedding(
            nn.Embedding(vocabulary, channels), positions("none", channels, 0), 0.0, scaled=False
        )
        self.enter = CausalConvolution(channels, channels, config.kernel)
        dilations = config.every_dilation
        self.layers = nn.ModuleList(
            GatedLayer(config, dilation, 1 + vocabulary - first, last=number == len(dilations))
            for number, dilation in enumerate(dilations, start=1)
        )
        self.between = nn.Linear(config.width, config.width)
        self.output = nn.Linear(config.width, vocabulary, bias=False)
        nn.init.normal_(self.tokens.table.weight, std=channels**-0.5)
        for layer in self.gated_layers():
            if layer.labels is not None:
                nn.init.normal_(layer.labels.weight, std=0.1)

    def gated_layers(self) -> list[GatedLayer]:
        return [layer for layer in self.layers if isinstance(layer, GatedLayer)]

    def read(self, ids: Tensor) -> Tensor:
        """Padding stands behind, where causality hides it."""
        labels = self.labels_at(ids)
        return self._through(self.enter(self.tokens(ids)), lambda number, layer, x: layer(x, labels))  # (B, T, width)

    def labels_at(self, ids: Tensor) -> Tensor | None:
        """The label that holds at each place, counted from 1, 0 before the first: (B, T); None if there are no labels."""
        if self.first_label == self.vocabulary:
            return None
        own = (ids - self.first_label + 1).clamp(min=0)  # (B, T)
        places = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
        last = torch.where(own > 0, places, 0).cummax(dim=1).values
        return own.gather(1, last)

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, WaveNetState]:
        """Read the prefix (B, P); `source` is not used. Gives logits (B, 1, V) of what follows."""
        like = self.enter.taps.weight
        convolutions = [self.enter, *(layer.convolution for layer in self.gated_layers())]
        labels = None if self.first_label == self.vocabulary else prefix.new_zeros(len(prefix))
        state = WaveNetState([each.start(len(prefix), like) for each in convolutions], labels)
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def step(self, ids: Tensor, state: WaveNetState) -> tuple[Tensor, WaveNetState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        rows = ids.reshape(-1)  # (B * W,)
        labels = state.labels
        if labels is not None:
            labels = torch.where(rows >= self.first_label, rows - self.first_label + 1, labels)
        enter, *pasts = state.pasts
        x = self.enter.step(self.tokens(rows[:, None])[:, 0], enter)  # (B * W, channels)
        x = self._through(x, lambda number, layer, x: layer.step(x, labels, pasts[number]))
        return self.output(x.view(*ids.shape, -1)), replace(state, labels=labels)

    def reorder(self, state: WaveNetState, parents: Tensor) -> WaveNetState:
        """New hypotheses from old ones: `parents` (B, W') index into W."""
        chosen = state.select(rows_of_parents(parents, state.hypotheses))
        return replace(chosen, hypotheses=parents.size(1))

    def keep(self, state: WaveNetState, rows: Tensor) -> WaveNetState:
        """Only the sources `rows` go on."""
        return state.select(rows_of_sources(rows, state.hypotheses))

    def _through(self, x: Tensor, apply: Callable[[int, GatedLayer, Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        """Through all layers; then what they said together, through two more (figure 4)."""
        said: Tensor | None = None
        for number, layer in enumerate(self.gated_layers()):
            x, more = apply(number, layer, x)
            said = more if said is None else said + more
        assert said is not None
        out = self.between(said.relu()).relu()
        return dropout(out, self.config.dropout) if self.training else out
