"""WaveNet against a plain loop over places and layers, its queues, its reach, its labels; mu-law and samples as letters."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard.data.builtin import tones
from regard.data.form import Form
from regard.data.notation import NOTATIONS, notation_of_path, tokens_for
from regard.data.sound.waves import write_wav
from regard.data.stream import TokenStream, Windows, evaluation_batches
from regard.data.wave_texts import sound_text
from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.errors import RegardError, UsageError
from regard.models.config import WaveNetConfig
from regard.models.fast.wavenet import FastWaveNet
from regard.models.wavenet import WaveNet, gated
from regard.tasks.configure import run_config
from regard.tokens import train_tokenizer
from regard.tokens.config import LABELS_FROM, TokensConfig
from regard.tokens.samples import LETTERS, labels_in, levels_of, read_letters, samples_of, write_letters

V, LABELLED = 31, 29  # ids 29 and 30 are labels


def make(**changes: Any) -> WaveNet:
    """A model in float64 with every parameter at random."""
    values: dict[str, Any] = {"width": 11, "channels": 7, "dilations": (1, 3, 5), "sets": 2, "labels_from": LABELLED}
    model = WaveNet(WaveNetConfig(**values | changes), V).double()
    torch.manual_seed(7)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


def ids_of(rows: int, length: int) -> Tensor:
    """Random samples; a label stands first in some rows, and a second one later in one."""
    ids = torch.randint(4, LABELLED, (rows, length), generator=torch.Generator().manual_seed(1))
    ids[1:, 0] = LABELLED
    ids[-1, length // 2] = LABELLED + 1
    return ids


# --- The network


def by_hand(model: WaveNet, ids: list[int]) -> np.ndarray:
    """The logits after each token, by loops over places, layers and taps: eq. 2 and figure 4 of the paper, in NumPy."""
    config, weights = model.config, {name: each.detach().numpy() for name, each in model.named_parameters()}

    def convolved(name: str, x: np.ndarray, dilation: int) -> np.ndarray:
        matrix, bias = weights[f"{name}.taps.weight"], weights[f"{name}.taps.bias"]
        out = []
        for t in range(len(x)):
            taps = [t - j * dilation for j in reversed(range(config.kernel))]
            seen = [x[at] if at >= 0 else np.zeros(x.shape[1]) for at in taps]
            out.append(matrix @ np.concatenate(seen) + bias)
        return np.array(out)

    label, labels = 0, []
    for token in ids:
        label = token - LABELLED + 1 if token >= LABELLED else label
        labels.append(label)
    x = convolved("enter", weights["tokens.table.weight"][ids], 1)
    said = np.zeros((len(ids), config.width))
    last = len(config.every_dilation) - 1
    for number, dilation in enumerate(config.every_dilation):
        seen = (
            convolved(f"layers.{number}.convolution", x, dilation) + weights[f"layers.{number}.labels.weight"][labels]
        )
        half = config.channels
        z = np.tanh(seen[:, :half]) / (1 + np.exp(-seen[:, half:]))
        out = z @ weights[f"layers.{number}.leave.weight"].T + weights[f"layers.{number}.leave.bias"]
        if number < last:
            x, out = x + out[:, :half], out[:, half:]
        said = said + out
    out = np.maximum(0, np.maximum(0, said) @ weights["between.weight"].T + weights["between.bias"])
    return out @ weights["output.weight"].T


@pytest.mark.parametrize(
    "changes", [{}, {"kernel": 3, "sets": 1}, {"dilations": (2,), "sets": 1, "channels": 5}], ids=str
)
def test_whole_sequences_are_a_plain_loop(changes: dict[str, Any]) -> None:
    model, ids = make(**changes), ids_of(3, 23)
    found = model.output(model.read(ids)).detach().numpy()
    for row, expected in zip(found, (by_hand(model, each) for each in ids.tolist()), strict=True):
        np.testing.assert_allclose(row, expected, atol=1e-12)


def test_the_gate_is_tanh_times_sigmoid() -> None:
    x = torch.tensor([0.5, -2.0, 0.0, 3.0], dtype=torch.float64)
    expected = [math.tanh(0.5) / (1 + math.exp(0.0)), math.tanh(-2.0) / (1 + math.exp(-3.0))]
    assert gated(x).tolist() == pytest.approx(expected, abs=1e-15)


def test_queues_give_what_whole_sequences_give_beyond_the_reach() -> None:
    model, ids = make(), ids_of(3, 41)
    assert model.config.receptive_field == 1 + (1 + 2 * 9) < 41
    whole = model.output(model.read(ids))
    logits, state = model.start(None, ids[:, :3])
    steps = [logits]
    for column in ids[:, 3:].split(1, dim=1):
        logits, state = model.step(column, state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole[:, 2:], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "changes", [{}, {"kernel": 3}, {"kernel": 1}, {"labels_from": None}, {"dilations": (7,)}], ids=str
)
def test_steps_in_numpy_are_the_steps_of_the_model(changes: dict[str, Any]) -> None:
    """Also when hypotheses branch and sources leave."""
    model, ids = make(**changes), ids_of(5, 31)
    fast = FastWaveNet.of(model)
    assert fast is not None and FastWaveNet.of(nn.Linear(3, 5)) is None
    parents = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 0, 0]])
    found = []
    for each in (model, fast):
        logits, state = each.start(None, ids[:3, :7])  # type: ignore[attr-defined]
        out = [logits]
        state = each.reorder(state, parents)  # type: ignore[attr-defined]
        for place in range(7, 23):
            written = ids[:3, place : place + 3]  # other tokens of each hypothesis
            logits, state = each.step(written[[0, 2]] if place > 12 else written, state)  # type: ignore[attr-defined]
            out.append(logits)
            if place == 12:
                state = each.keep(state, torch.tensor([0, 2]))  # type: ignore[attr-defined]
            if place == 15:
                state = each.reorder(state, torch.tensor([[2, 0, 0], [1, 1, 2]]))  # type: ignore[attr-defined]
        found.append([step.detach() for step in out])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def test_a_step_keeps_no_more_than_its_taps_reach() -> None:
    model = make()
    _, state = model.start(None, ids_of(1, 29))
    assert [past.inputs.size(1) for past in state.pasts] == [1, 1, 3, 5, 1, 3, 5]


class Made(TorchDispatchMode):
    """Counts the numbers that all operations make; a queue whose numbers move up would make as many as it holds."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count += out.numel() if isinstance(out, Tensor) else 0
        return out


def test_the_cost_of_a_sample_does_not_depend_on_the_receptive_field() -> None:
    """As many layers that reach a hundred times as far make as many numbers; reading all again would make far more."""
    counts = {}
    for dilations in ((1, 2, 3), (101, 211, 307)):
        model = make(dilations=dilations, sets=1)
        _, state = model.start(None, ids_of(1, 11))
        with Made() as step, torch.no_grad():
            model.step(ids_of(1, 1), state)
        counts[model.config.receptive_field] = step.count
    with Made() as whole, torch.no_grad():
        model.read(ids_of(1, 621))
    assert counts[8] == counts[621] < whole.count / 100


def test_what_a_prediction_depends_on_is_the_receptive_field() -> None:
    model = make(labels_from=None)
    reach, ids = model.config.receptive_field, ids_of(1, 47).clamp(max=LABELLED - 1)
    before = model.read(ids)[0, -1]
    matters = []
    for place in range(47):
        other = ids.clone()
        other[0, place] = 3 if other[0, place] != 3 else 5
        matters.append(bool((model.read(other)[0, -1] - before).abs().max() > 0))
    assert matters == [place >= 47 - reach for place in range(47)]


def test_nothing_is_seen_before_it_is_written() -> None:
    model, ids = make(), ids_of(2, 37)
    other = ids.clone()
    other[:, 19] = 4
    torch.testing.assert_close(model.read(other)[:, :19], model.read(ids)[:, :19], atol=0, rtol=0)


def test_a_label_holds_until_the_next() -> None:
    ids = torch.tensor([[5, 6, 29, 7, 8, 30, 9], [30, 5, 5, 5, 5, 5, 29]])
    labels = make().labels_at(ids)
    assert labels is not None and labels.tolist() == [[0, 0, 1, 1, 1, 2, 2], [2, 2, 2, 2, 2, 2, 1]]
    assert make(labels_from=None).labels_at(ids) is None


def test_a_search_reorders_and_drops_hypotheses() -> None:
    """A beam of hypotheses with states of their own finds what it finds when every prefix is read anew."""

    class Anew(WaveNet):
        """Reads all that was written again at each step."""

        def start(self, source: object, prefix: Tensor) -> Any:
            return self.output(self.read(prefix)[:, -1:]), prefix[:, None]

        def step(self, ids: Tensor, state: Any) -> Any:
            seen = torch.cat([state, ids[..., None]], dim=-1)  # (B, W, T)
            out = self.output(self.read(seen.flatten(0, 1))[:, -1])
            return out.view(*ids.shape, -1), seen

        def reorder(self, state: Any, parents: Tensor) -> Any:
            return state.gather(1, parents[..., None].expand(-1, -1, state.size(-1)))

        def keep(self, state: Any, rows: Tensor) -> Any:
            return state[rows]

    model = make()
    plain = Anew(model.config, V).double().eval()
    plain.load_state_dict(model.state_dict())
    options = DecodeConfig(beam=3, n_best=3, max_length=13)
    with torch.inference_mode():
        fast, slow = (
            generate(each, None, ids_of(3, 5), end=2, limits=[13] * 3, options=options, forbidden=[0, 1, 3])
            for each in (model, plain)
        )
    assert [[each.ids for each in row] for row in fast] == [[each.ids for each in row] for row in slow]


def test_a_dilation_reaches_something() -> None:
    with pytest.raises(ValueError, match="dilation 0 reaches nothing"):
        WaveNetConfig(dilations=(1, 0))


# --- Samples as letters


def test_levels_are_those_of_the_formula_and_come_back() -> None:
    for x, level in (
        (-1.0, 0),
        (1.0, 255),
        (0.0, 128),
        (2.0, 255),
        (0.5, round((math.log(128.5) / math.log(256) + 1) / 2 * 255)),
    ):
        assert levels_of(np.array([x])).tolist() == [level]
    every = np.arange(256)
    np.testing.assert_array_equal(levels_of(samples_of(every)), every)
    samples = np.linspace(-1, 1, 1009)
    step = np.diff(samples_of(every)).max()
    assert np.abs(samples_of(levels_of(samples)) - samples).max() <= step / 2 + 1e-6
    quiet = np.linspace(-0.01, 0.01, 101)
    assert np.abs(samples_of(levels_of(quiet)) - quiet).max() < 3e-4  # eight bits evenly spread err by 4e-3


def test_letters_tell_samples_and_label() -> None:
    samples = samples_of(np.array([0, 17, 128, 255]))
    text = write_letters(samples, "sev<en>")
    assert text == f"<seven>{LETTERS[0]}{LETTERS[17]}{LETTERS[128]}{LETTERS[255]}"
    found, label = read_letters(text + "x \n")
    assert label == "seven" and found.tolist() == samples.tolist()
    assert read_letters("")[0].tolist() == [] and labels_in([text, LETTERS[3]]) == ["<seven>"]


def test_tokens_are_samples_and_labels_behind_them() -> None:
    texts = [write_letters(np.zeros(3), label) for label in ("b", "a", "b")]
    tokenizer = train_tokenizer(texts, TokensConfig(kind="samples"))
    assert tokenizer.size == LABELS_FROM + 2 and tokenizer.encode(texts[0]) == [LABELS_FROM + 1, 132, 132, 132]
    assert tokenizer.decode(tokenizer.encode(texts[1])) == texts[1]


def test_windows_begin_with_the_label_of_what_they_are_cut_from() -> None:
    ids = np.array([1, 29, 5, 6, 7, 2, 1, 30, 8, 9, 2])
    stream = TokenStream(ids, V, labels_from=LABELLED)
    assert stream.window(3, 4).tolist() == [29, 7, 2, 1]
    assert stream.window(8, 9).tolist() == [30, 9, 2]
    assert stream.window(0, 3).tolist() == [1, 29, 5]  # nothing stands before the first
    assert TokenStream(ids, V).window(3, 2).tolist() == [6, 7]
    (batch,) = list(evaluation_batches(stream, 5, 8))[:1]
    assert batch.ids[1].tolist() == [29, 1, 30, 8, 9, 2]
    assert {int(row[0]) for row in Windows(stream, 3, 2, seed=1).get(0, 0).ids} <= {1, 29, 30}


# --- Files


def test_a_folder_of_sounds_is_read_with_the_label_of_each_folder(tmp_path: Path) -> None:
    for label, hertz in (("la", 440), ("mi", 660)):
        (tmp_path / label).mkdir()
        write_wav(tmp_path / label / "a.wav", 0.5 * np.sin(2 * np.pi * hertz * np.arange(4001) / 16_000), 16_000)
    assert tokens_for([str(tmp_path)]) == "samples" and notation_of_path(tmp_path) is NOTATIONS["samples"]
    text = sound_text(tmp_path / "la" / "a.wav", "la", Form(8000))
    samples, label = read_letters(text)
    heard = np.abs(np.fft.rfft(samples)).argmax() * 8000 / len(samples)
    assert label == "la" and heard == pytest.approx(440, rel=0.02)
    write_wav(tmp_path / "silent.wav", np.zeros(99), 8000)
    with pytest.raises(RegardError, match="is silent"):
        sound_text(tmp_path / "silent.wav", "", Form(8000))


def test_built_in_sounds_are_those_of_the_classifiers() -> None:
    text = next(iter(NOTATIONS["samples"].documents("builtin/tones/test", 20, Form(8000))))
    samples, label = tones.tone(3, 0)
    assert read_letters(text)[1] == label and len(text) == len(samples) + len(f"<{label}>")
    assert np.abs(read_letters(text)[0] - samples).max() < 0.03
    with pytest.raises(UsageError, match="there is no builtin/tones/tset"):
        NOTATIONS["samples"].documents("builtin/tones/tset", 20)


def test_data_of_sound_choose_their_tokens_and_their_model() -> None:
    config = run_config("generate", {"data": {"train": ["builtin/tones"], "rate": 4000}})
    assert (config.model.kind, config.tokens.kind, config.tokens.rate) == ("wavenet", "samples", 4000)  # type: ignore[union-attr]
    assert isinstance(config.model, WaveNetConfig) and config.model.labels_from == LABELS_FROM
    with pytest.raises(UsageError, match="written in different ways"):
        run_config("generate", {"data": {"train": ["builtin/tones", "builtin/canon"]}})
