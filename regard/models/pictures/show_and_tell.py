"""Captions without attention (Vinyals et al. 2015, "Show and tell", section 3.1): the picture must fit into the first state.

    x_(-1) = W vector of the picture,   h_t = LSTM(E y_(t-1), h_(t-1)),   p(y_t) = softmax(L_o L_h h_t)     eq. 10 to 12

The LSTM begins with zeros and reads the picture once, as if it were a word before the first.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from regard.blocks.recurrent import Recurrent
from regard.data.pictures.format import PictureFormat
from regard.models.configs.pictures import ShowAndTellConfig
from regard.models.memory import Memory
from regard.models.pictures.captioner import RecurrentCaptioner
from regard.models.pictures.encoder import View
from regard.models.recurrent import RecurrentState
from regard.noise import dropout


class ShowAndTell(RecurrentCaptioner):
    """The decoder sees the picture only through its first state."""

    config: ShowAndTellConfig

    def __init__(
        self, config: ShowAndTellConfig, format: PictureFormat, vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, vocabulary, smoothing)
        self.decoder = Recurrent("lstm", config.width, config.hidden, 1, config.dropout)
        self.readout = nn.Linear(config.hidden, config.width, bias=False)
        self.finish_with(format)

    def places(self, view: View) -> Tensor:
        """The whole picture as one place."""
        return view.vector[:, None]  # (B, 1, K)

    def begin(self, memory: Memory) -> RecurrentState:
        picture = memory.vectors[:, 0]  # (B, D)
        _, layers = self.decoder.step(self.decoder.gates(picture), self.decoder.zeros(len(picture)))
        return RecurrentState(layers)

    def read(self, y: Tensor, state: RecurrentState) -> Tensor:
        h, _ = self.decoder(y, state.layers)  # (B, T, hidden)
        return self._vectors(h)

    def advance(self, y: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        h, layers = self.decoder.step(self.decoder.gates(y.flatten(0, 1)), state.layers)  # (B * W, hidden)
        return self._vectors(h.view(*y.shape[:2], -1)), replace(state, layers=layers)

    def _vectors(self, h: Tensor) -> Tensor:
        out = self.readout(h)  # (B, T, D)
        return dropout(out, self.config.dropout) if self.training else out
