"""A step of WaveNet in NumPy: all layers' looks into the past at once, then a few calls a layer.

Of a convolution with taps W₀ … W_{K-1}, all but the last read inputs that were there before the step: their part of every
layer is one product of stacked matrices. So is what all layers say together, at the end. What must go layer by layer is

    z = tanh(past + W_{K-1} x) ⊙ σ(…),     x ← x + R z

and σ(b) = (1 + tanh(b / 2)) / 2, so that one tanh does for both halves: the halving is in the weights. The model's own steps
are the reference, and tests hold them equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.models.encoder_decoder import rows_of_parents, rows_of_sources
from regard.models.wavenet import WaveNet

Array = NDArray[Any]


@dataclass(frozen=True)
class FastWaveNetState:
    """Between two steps: the last inputs of all convolutions, each in slots of its own that go round, and labels."""

    past: Array  # (slots, N, C)
    labels: Array  # (N,)
    read: int = 0
    hypotheses: int = 1  # of each source: W

    def select(self, rows: Tensor) -> FastWaveNetState:
        chosen = rows.cpu().numpy()
        return replace(self, past=self.past[:, chosen], labels=self.labels[chosen])


class FastWaveNet:
    """A WaveNet on a CPU as a search's `Stepper` (`regard.decode.stepper`)."""

    longest = None

    def __init__(self, model: WaveNet) -> None:
        layers, channels, taps = model.gated_layers(), model.config.channels, model.config.kernel
        self.channels, self.first_label, self.vocabulary = channels, model.first_label, model.vocabulary
        convolutions = [model.enter, *(layer.convolution for layer in layers)]
        lengths = np.array([max(1, -each.offsets[0]) for each in convolutions])
        self.lengths, self.bases, self.slots = lengths, np.cumsum(lengths) - lengths, int(lengths.sum())
        self.offsets = np.array([each.offsets[:-1] for each in convolutions], dtype=np.int64).reshape(
            len(convolutions), taps - 1
        )
        self.table = _array(model.tokens.table.weight)
        enter = _array(model.enter.taps.weight.T)  # (K C, C)
        self.enter_before, self.enter_now = enter[:-channels], enter[-channels:]
        self.enter_bias = _array(model.enter.taps.bias)
        halved = np.concatenate([np.ones(channels), np.full(channels, 0.5)]).astype(self.table.dtype)  # of the gate
        gates = np.stack([_array(layer.convolution.taps.weight.T) for layer in layers]) * halved  # (L, K C, 2C)
        self.before, self.now = gates[:, :-channels], gates[:, -channels:]
        bias = np.stack([_array(layer.convolution.taps.bias) for layer in layers]) * halved  # (L, 2C)
        tables = [_array(layer.labels.weight) for layer in layers if layer.labels is not None]
        self.added = (np.stack(tables) * halved if tables else np.zeros((len(layers), 1, 2 * channels))) + bias[:, None]
        self.added = self.added.astype(self.table.dtype)  # (L, labels, 2C)
        leave = [_array(layer.leave.weight.T) * self.table.dtype.type(0.5) for layer in layers]
        self.goes_on = [(weight[:, :channels], _array(layer.leave.bias)[:channels]) for weight, layer in
                        zip(leave[:-1], layers[:-1], strict=True)]  # fmt: skip
        self.said = np.concatenate([weight[:, -model.config.width :] for weight in leave])  # (L C, width)
        self.said_bias = sum(_array(layer.leave.bias)[-model.config.width :] for layer in layers)
        self.between, self.between_bias = _array(model.between.weight.T), _array(model.between.bias)
        self.output = _array(model.output.weight.T)

    @classmethod
    def of(cls, model: nn.Module) -> FastWaveNet | None:
        """Lay out a model; None for any other, and where numbers do not lie in this machine's memory."""
        if not isinstance(model, WaveNet) or model.output.weight.device.type != "cpu":
            return None
        return cls(model) if model.output.weight.dtype in (torch.float32, torch.float64) else None

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, FastWaveNetState]:
        """Read the prefix (B, P), token by token: logits (B, 1, V) of what follows."""
        rows = len(prefix)
        past = np.zeros((self.slots, rows, self.channels), dtype=self.table.dtype)
        state = FastWaveNetState(past, np.zeros(rows, dtype=np.int64))
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def step(self, ids: Tensor, state: FastWaveNetState) -> tuple[Tensor, FastWaveNetState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        tokens = ids.reshape(-1).numpy()  # (N,)
        labels = state.labels
        if self.first_label < self.vocabulary:
            labels = np.where(tokens >= self.first_label, tokens - self.first_label + 1, labels)
        logits = self._logits(tokens, labels, state.past, state.read)
        return torch.from_numpy(logits).view(*ids.shape, -1), replace(state, labels=labels, read=state.read + 1)

    def _logits(self, tokens: Array, labels: Array, past: Array, read: int) -> Array:
        """(N,) -> (N, V); the inputs of every convolution join the past."""
        rows, channels = len(tokens), self.channels
        places = self.bases[:, None] + (read + self.offsets) % self.lengths[:, None]  # (1 + L, K - 1)
        earlier = past[places].transpose(0, 2, 1, 3).reshape(len(places), rows, -1)  # (1 + L, N, (K - 1) C)
        inputs = np.empty((len(places), rows, channels), dtype=past.dtype)
        inputs[0] = self.table[tokens]
        x = earlier[0] @ self.enter_before + inputs[0] @ self.enter_now + self.enter_bias
        gates = np.matmul(earlier[1:], self.before)
        gates += self.added[:, labels]  # (L, N, 2C)
        kept = np.empty((len(gates), rows, channels), dtype=past.dtype)
        for number, gate in enumerate(gates):
            inputs[number + 1] = x
            gate += x.dot(self.now[number])
            np.tanh(gate, out=gate)
            gate[:, channels:] += 1
            np.multiply(gate[:, :channels], gate[:, channels:], out=kept[number])
            if number < len(self.goes_on):
                weight, bias = self.goes_on[number]
                x = x + kept[number].dot(weight) + bias
        past[self.bases + read % self.lengths] = inputs
        said = kept.transpose(1, 0, 2).reshape(rows, -1).dot(self.said) + self.said_bias
        out = np.maximum(np.maximum(said, 0).dot(self.between) + self.between_bias, 0)
        logits: Array = out.dot(self.output)
        return logits

    def reorder(self, state: FastWaveNetState, parents: Tensor) -> FastWaveNetState:
        """New hypotheses from old ones: `parents` (B, W') index into W."""
        chosen = state.select(rows_of_parents(parents, state.hypotheses))
        return replace(chosen, hypotheses=parents.size(1))

    def keep(self, state: FastWaveNetState, rows: Tensor) -> FastWaveNetState:
        """Only the sources `rows` go on."""
        return state.select(rows_of_sources(rows, state.hypotheses))


def _array(weight: Tensor) -> Array:
    found: Array = np.ascontiguousarray(weight.detach().numpy())
    return found
