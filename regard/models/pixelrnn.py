"""PixelRNN with row LSTMs (van den Oord et al. 2016, "Pixel recurrent neural networks", section 3.1).

An LSTM goes down the picture, a whole row at a time; ∗ is a convolution along the row (eq. 3):

    o, f, i, g = σ, σ, σ, tanh (K_ss ∗ h_{r-1} + K_is ∗ x_r)      c_r = f ⊙ c_{r-1} + i ⊙ g,      h_r = o ⊙ tanh(c_r)

K_ss sees both sides of the row above, K_is only what is to the left (mask B). A first convolution sees the rows above and the
pixels to the left, without the pixel itself (mask A); layers add what they find to their input (figure 5). A row LSTM sees a
triangle above each pixel, not all that was written: that is what PixelCNN's two stacks mend.

Also a stepper of decoding: what the row above adds is computed once a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.models.configs.pixels import BEFORE, PixelRNNConfig
from regard.models.encoder_decoder import rows_of_parents, rows_of_sources
from regard.models.language import LanguageModel
from regard.models.pixelcnn import Taps
from regard.models.pixels import PixelEmbedding, as_sequence
from regard.noise import dropout


class RowLSTM(nn.Module):
    """One layer: x (B, H, W, D) -> (B, H, W, D)."""

    def __init__(self, width: int, hidden: int, kernel: int, labels: int) -> None:
        super().__init__()
        half, self.hidden = kernel // 2, hidden
        self.from_input = Taps(width, 4 * hidden, left=half)
        self.from_above = Taps(hidden, 4 * hidden, left=half, right=half)
        self.labels = nn.Embedding(labels, 4 * hidden) if labels > 1 else None
        self.leave = nn.Linear(hidden, width)

    def forward(self, x: Tensor, labels: Tensor | None) -> Tensor:
        inputs = self.from_input(x)  # (B, H, W, 4 hidden)
        h = c = x.new_zeros(len(x), x.size(2), self.hidden)  # (B, W, hidden)
        rows = []
        for row in inputs.unbind(1):
            h, c = self.cell(row, self.above(h, labels), c)
            rows.append(h)
        return x + self.leave(torch.stack(rows, dim=1))

    def above(self, h: Tensor, labels: Tensor | None) -> Tensor:
        """K_ss ∗ h of a row (B, W, hidden), and what the label adds: (B, W, 4 hidden)."""
        out = self.from_above(h[:, None])[:, 0]
        return out if labels is None or self.labels is None else out + self.labels(labels)[:, None]

    @staticmethod
    def cell(inputs: Tensor, above: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """One row, or one place of it: (..., 4 hidden) and (..., hidden) -> h and c."""
        o, f, i, g = (inputs + above).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


@dataclass(frozen=True)
class PixelRNNState:
    """Between two steps: how many tokens were read, and what the row above and the pixels to the left give."""

    read: int
    labels: Tensor | None  # (N,)
    above: Tensor  # the last rows of pixels, embedded: (N, above, W, inputs)
    first: Tensor  # what they add to the first convolution of this row: (N, W, D)
    from_above: list[Tensor]  # of each layer: K_ss ∗ h of the row above, (N, W, 4 hidden)
    cells: list[Tensor]  # of each layer: c of the row above, (N, W, hidden)
    line: list[Tensor]  # of the first convolution and each layer: the inputs of this row so far, (N, places, ...)
    states: list[Tensor]  # of each layer: h beside c of this row so far, (N, places, 2 hidden)
    hypotheses: int = 1  # of each source: W

    def select(self, rows: Tensor) -> PixelRNNState:
        def chosen(parts: list[Tensor]) -> list[Tensor]:
            return [part.index_select(0, rows) for part in parts]

        labels = None if self.labels is None else self.labels.index_select(0, rows)
        above, first = chosen([self.above, self.first])
        parts = map(chosen, (self.from_above, self.cells, self.line, self.states))
        from_above, cells, line, states = parts
        found = replace(self, labels=labels, above=above, first=first)
        return replace(found, from_above=from_above, cells=cells, line=line, states=states)


class PixelRNN(LanguageModel):
    """`model(batch)` is the loss; `start` and `step` write."""

    config: PixelRNNConfig

    def __init__(self, config: PixelRNNConfig, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__(config, vocabulary, smoothing)
        width, half = config.width, config.first // 2
        self.pixels = PixelEmbedding(config, vocabulary, config.inputs)
        self.above = Taps(config.inputs, width, above=half - 1, left=half, right=half)
        self.left = Taps(config.inputs, width, left=half - 1)
        self.layers = nn.ModuleList(
            RowLSTM(width, config.hidden, config.kernel, self.pixels.labels) for _ in range(config.layers)
        )
        self.between = nn.Linear(width, width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        for layer in self.row_layers():
            if layer.labels is not None:
                nn.init.normal_(layer.labels.weight, std=0.1)

    def row_layers(self) -> list[RowLSTM]:
        return [layer for layer in self.layers if isinstance(layer, RowLSTM)]

    def read(self, ids: Tensor) -> Tensor:
        grid, labels = self.pixels(ids)  # (B, H, W, inputs)
        x = self.above(pad(grid, (0, 0, 0, 0, 1, -1))) + self.left(pad(grid, (0, 0, 1, -1)))  # (B, H, W, D)
        for layer in self.row_layers():
            x = layer(x, labels)
        return as_sequence(self._vectors(x), ids)  # (B, T, D)

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, PixelRNNState]:
        """Read the prefix (B, P), token by token; `source` is not used. Gives logits (B, 1, V) of what follows."""
        rows, width, like = len(prefix), self.config.columns, self.output.weight
        above = like.new_zeros(rows, self.above.above, width, self.config.inputs)
        labels = None if self.pixels.labels == 1 else prefix.new_zeros(rows)
        state = PixelRNNState(0, labels, above, like, [], [], [], [])
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def step(self, ids: Tensor, state: PixelRNNState) -> tuple[Tensor, PixelRNNState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V)."""
        tokens, read = ids.reshape(-1), state.read  # (N,)
        if read == 0:
            nothing = self.output.weight.new_zeros(*ids.shape, self.config.width)
            return self.output(nothing), replace(state, read=1, first=nothing.flatten(0, 1))
        place = read + 1 - BEFORE  # of the pixel that is predicted
        if read < BEFORE:
            state = replace(state, labels=self.pixels.label_numbers(tokens))
        else:
            pixel = self.pixels.table(tokens) + self.pixels.place(place - 1)  # (N, inputs)
            state = replace(state, line=[_joined(state.line[0], pixel), *state.line[1:]])
        if place % self.config.columns == 0:
            state = self._next_row(state, len(tokens), whole=read >= BEFORE)
        vectors, state = self._at(place % self.config.columns, state)
        return self.output(vectors.view(*ids.shape, -1)), replace(state, read=read + 1)

    def _at(self, column: int, state: PixelRNNState) -> tuple[Tensor, PixelRNNState]:
        """The vectors (N, D) that predict the pixel of this column."""
        line, states = [state.line[0]], list[Tensor]()
        x = state.first[:, column] + self.left.newest(state.line[0])
        for number, layer in enumerate(self.row_layers()):
            line.append(_joined(state.line[number + 1], x))
            inputs = layer.from_input.newest(line[-1])
            h, c = layer.cell(inputs, state.from_above[number][:, column], state.cells[number][:, column])
            states.append(_joined(state.states[number], torch.cat([h, c], dim=-1)))
            x = x + layer.leave(h)
        return self._vectors(x), replace(state, line=line, states=states)

    def _next_row(self, state: PixelRNNState, count: int, *, whole: bool) -> PixelRNNState:
        """What the row above, which is whole, gives to the row that begins."""
        width, like = self.config.columns, self.output.weight
        pixels = state.line[0] if whole else like.new_zeros(count, width, self.config.inputs)
        rows = torch.cat([state.above, pixels[:, None]], dim=1)  # (N, above + 1, W, inputs)
        layers = self.row_layers()
        zeros = [like.new_zeros(count, width, 2 * layer.hidden) for layer in layers]
        both = [each.chunk(2, dim=-1) for each in (state.states if whole else zeros)]
        return replace(
            state,
            above=rows[:, 1:],
            first=self.above.inside(rows)[:, 0],
            from_above=[layer.above(h, state.labels) for layer, (h, _) in zip(layers, both, strict=True)],
            cells=[c for _, c in both],
            line=[
                like.new_zeros(count, 0, self.config.inputs),
                *(like.new_zeros(count, 0, self.config.width) for _ in layers),
            ],
            states=[like.new_zeros(count, 0, 2 * layer.hidden) for layer in layers],
        )

    def reorder(self, state: PixelRNNState, parents: Tensor) -> PixelRNNState:
        """New hypotheses from old ones: `parents` (B, W') index into W."""
        chosen = state.select(rows_of_parents(parents, state.hypotheses))
        return replace(chosen, hypotheses=parents.size(1))

    def keep(self, state: PixelRNNState, rows: Tensor) -> PixelRNNState:
        """Only the sources `rows` go on."""
        return state.select(rows_of_sources(rows, state.hypotheses))

    def _vectors(self, x: Tensor) -> Tensor:
        """What predicts a pixel: (..., D) -> (..., D)."""
        out = self.between(x.relu()).relu()
        return dropout(out, self.config.dropout) if self.training else out


def _joined(places: Tensor, new: Tensor) -> Tensor:
    """Places of a row (N, n, C) and a new one (N, C) behind them."""
    return torch.cat([places, new[:, None]], dim=1)
