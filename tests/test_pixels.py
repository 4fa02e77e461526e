"""Pictures: nothing is seen too early, PixelCNN has no blind spot, steps = whole pictures, row LSTM = a plain loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.models.configs.pixels import ImageTransformerConfig, PixelCNNConfig, PixelRNNConfig
from regard.models.image_transformer import ImageTransformer
from regard.models.pixelcnn import PixelCNN, gated
from regard.models.pixelrnn import PixelRNN, RowLSTM

V, LABELLED = 13, 11  # ids 11 and 12 are labels
ROWS, COLUMNS = 5, 7
GRID: dict[str, Any] = {"rows": ROWS, "columns": COLUMNS, "labels_from": LABELLED}


def make(kind: str, **changes: Any) -> Any:
    """A model in float64 with every parameter at random."""
    torch.manual_seed(7)
    model: nn.Module
    if kind == "pixelcnn":
        values = {**GRID, "layers": 3, "channels": 5, "inputs": 3, "width": 11, "first": 5, "kernel": 3}
        model = PixelCNN(PixelCNNConfig(**values | changes), V)
    elif kind == "pixelrnn":
        values = {**GRID, "layers": 2, "width": 11, "hidden": 5, "inputs": 3, "first": 5}
        model = PixelRNN(PixelRNNConfig(**values | changes), V)
    else:
        values = {**GRID, "layers": 2, "width": 12, "heads": 3, "feed_forward": 17, "memory": 13}
        model = ImageTransformer(ImageTransformerConfig(**values | changes), V)
    model = model.double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def pictures(count: int = 3) -> Tensor:
    """Begin, a label or none, and pixels: (count, 2 + ROWS * COLUMNS)."""
    ids = torch.randint(4, LABELLED, (count, 2 + ROWS * COLUMNS), generator=torch.Generator().manual_seed(3))
    ids[:, 0], ids[1:, 1] = 1, LABELLED + 1
    return ids


def matters(model: Any, place: int) -> list[bool]:
    """Which pixels change what predicts the pixel of a place: each is put to another value alone."""
    ids = pictures(1)
    before, found = model.read(ids[:, :-1])[0, 1 + place], list[bool]()
    for pixel in range(ROWS * COLUMNS):
        other = ids.clone()
        other[0, 2 + pixel] = 4 if other[0, 2 + pixel] != 4 else 5
        found.append(bool((model.read(other[:, :-1])[0, 1 + place] - before).abs().max() > 0))
    return found


@pytest.mark.parametrize("kind", ["pixelcnn", "pixelrnn", "image-transformer"])
def test_nothing_is_seen_before_it_is_written(kind: str) -> None:
    model = make(kind)
    for place in (0, 3, 6, 7, 17, 34):
        assert not any(matters(model, place)[place:])


@pytest.mark.parametrize("place", [11, 17, 20, 27, 34])
def test_pixelcnn_sees_every_pixel_before_it(place: int) -> None:
    """No blind spot: also those above and far to the right, which a stack of masked convolutions misses."""
    assert matters(make("pixelcnn", layers=7), place) == [pixel < place for pixel in range(ROWS * COLUMNS)]


def test_a_memory_reaches_as_far_as_it_says() -> None:
    """One layer with a memory of 13 tokens predicts a pixel from the 13 pixels before it."""
    found = matters(make("image-transformer", layers=1), 23)
    assert found == [10 <= pixel < 23 for pixel in range(ROWS * COLUMNS)]


@pytest.mark.parametrize("kind", ["pixelcnn", "pixelrnn", "image-transformer"])
@pytest.mark.parametrize("changes", [{}, {"labels_from": None}], ids=str)
def test_what_is_kept_by_rows_gives_what_whole_pictures_give(kind: str, changes: dict[str, Any]) -> None:
    model, ids = make(kind, **changes), pictures()
    whole = model.output(model.read(ids[:, :-1]))
    logits, state = model.start(None, ids[:, :5])
    steps = [logits]
    for column in ids[:, 5:-1].split(1, dim=1):
        logits, state = model.step(column, state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole[:, 4:], atol=1e-11, rtol=0)


@pytest.mark.parametrize("kind", ["pixelcnn", "pixelrnn"])
def test_hypotheses_branch_and_leave(kind: str) -> None:
    model, ids = make(kind), pictures()
    _, state = model.start(None, ids[:, :11])
    state = model.reorder(model.keep(state, torch.tensor([0, 2])), torch.tensor([[0, 0], [0, 0]]))
    logits, _ = model.step(torch.tensor([[4, 5], [6, 7]]), state)
    for row, source in enumerate((0, 2)):
        for column, token in enumerate((4, 5) if row == 0 else (6, 7)):
            alone = torch.cat([ids[source, :11], torch.tensor([token])])[None]
            torch.testing.assert_close(logits[row, column], model.output(model.read(alone))[0, -1], atol=1e-11, rtol=0)


def test_a_label_matters_and_no_label_is_none() -> None:
    for kind in ("pixelcnn", "pixelrnn"):
        model, ids = make(kind), pictures(1).repeat(3, 1)
        ids[:, 1] = torch.tensor([3, LABELLED, LABELLED + 1])
        found = model.read(ids)[:, 1]
        assert (found[0] - found[1]).abs().max() > 0 and (found[1] - found[2]).abs().max() > 0
        assert model.pixels.labels_of(ids).tolist() == [0, 1, 2]


def test_the_gate_is_tanh_times_sigmoid() -> None:
    x = torch.linspace(-3, 3, 14, dtype=torch.float64).view(1, 14)
    expected = np.tanh(x[:, :7].numpy()) / (1 + np.exp(-x[:, 7:].numpy()))
    np.testing.assert_allclose(gated(x).numpy(), expected, atol=1e-15)


def test_a_row_lstm_is_a_plain_loop() -> None:
    """Equation 3 of the paper over rows, columns and taps, in NumPy."""
    torch.manual_seed(5)
    layer, hidden = RowLSTM(3, 5, 3, 2).double(), 5
    x, labels = torch.randn(2, 4, 7, 3, dtype=torch.float64), torch.tensor([0, 1])
    weights = {name: each.detach().numpy() for name, each in layer.named_parameters()}
    found = layer(x, labels).detach().numpy()

    def sigmoid(a: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-a))

    for number, picture in enumerate(x.numpy()):
        h, c = np.zeros((7, hidden)), np.zeros((7, hidden))
        for row in range(4):
            above, now = h.copy(), np.zeros((7, hidden))
            for column in range(7):
                own = [picture[row, at] if at >= 0 else np.zeros(3) for at in (column - 1, column)]
                old = [above[at] if 0 <= at < 7 else np.zeros(hidden) for at in (column - 1, column, column + 1)]
                a = weights["from_input.taps.weight"] @ np.concatenate(own) + weights["from_input.taps.bias"]
                a = a + weights["from_above.taps.weight"] @ np.concatenate(old) + weights["from_above.taps.bias"]
                o, f, i, g = np.split(a + weights["labels.weight"][labels[number]], 4)
                c[column] = sigmoid(f) * c[column] + sigmoid(i) * np.tanh(g)
                now[column] = sigmoid(o) * np.tanh(c[column])
                expected = picture[row, column] + weights["leave.weight"] @ now[column] + weights["leave.bias"]
                np.testing.assert_allclose(found[number, row, column], expected, atol=1e-12)
            h = now


@pytest.mark.parametrize("kind", ["pixelcnn", "pixelrnn"])
def test_a_kernel_has_a_middle(kind: str) -> None:
    with pytest.raises(ValueError, match="kernel 4 has no middle"):
        make(kind, kernel=4)
