"""Effective maps beside exact ones: the number against plain loops, the pictures, and every task as a person types it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention import AttentionCall, Causal, Lengths, Mask, MultiHead, record
from regard.attention.kernels import Placement
from regard.attention.kernels.sparse import SlidingWindow
from regard.blocks.state_space import StateSpace
from regard.cli import main
from regard.errors import UsageError
from regard.look.recorded import NO_EXACT, SAME, Effective, EffectiveAttention, effective
from regard.tasks.run import RunResult

B, H, T, E = 2, 3, 7, 5
Captured = pytest.CaptureFixture[str]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def call(told: Tensor | None, mask: Mask | None = None, sums_to_one: bool = True, role: str = "self") -> AttentionCall:
    """A recorded attention whose weights are `told`, or exact ones."""
    q, k, v = (random(B, H, T, E, seed=seed) for seed in (1, 2, 3))
    lazily = None if told is None else (lambda: told)
    return AttentionCall("a.b", role, q, k, v, v, mask, reported=lazily, sums_to_one=sums_to_one)  # type: ignore[arg-type]


def softmax(q: Tensor, k: Tensor, seen: list[list[bool]]) -> list[list[float]]:
    """Exact attention of one head, (T, S), by plain loops."""
    rows = []
    for i in range(len(q)):
        powers = [math.exp(float(q[i] @ k[j]) / math.sqrt(E)) if seen[i][j] else 0.0 for j in range(len(k))]
        rows.append([power / (sum(powers) or 1.0) for power in powers])
    return rows


@pytest.mark.parametrize("sums_to_one", [True, False])
def test_the_difference_is_that_of_plain_loops_over_real_queries(sums_to_one: bool) -> None:
    """Row 1 has 4 real positions of 7; queries behind them hold rubbish, which must not count."""
    told = random(B, H, T, T, seed=9).softmax(-1)
    told[1, :, 4:] = 1e6
    one = call(told, Causal() & Lengths(torch.tensor([T, 4])), sums_to_one, "causal")
    found = effective(one, row=1)
    for head in range(H):
        exact = softmax(one.q[1, head], one.k[1, head], [[j <= i and j < 4 for j in range(T)] for i in range(T)])
        total = 0.0
        for i in range(4):
            gap = sum(abs(float(told[1, head, i, j]) - exact[i][j]) for j in range(i + 1))
            total += gap / 2 if sums_to_one else gap / sum(exact[i])
        assert found.differences[head] == pytest.approx(total / 4, abs=1e-12)
    assert found.difference == pytest.approx(found.differences.mean())
    assert found.measure == ("total variation" if sums_to_one else "relative L1") and not found.same


def test_masked_cells_are_nan_in_every_map() -> None:
    found = effective(call(random(B, H, T, T).softmax(-1), Causal(), role="causal"))
    assert found.exact is not None
    for each in (found.map, found.exact, found.gaps):
        assert (np.isnan(each) == ~np.tri(T, dtype=bool)).all()
    assert np.nansum(found.exact, axis=-1) == pytest.approx(1.0)


def test_the_distance_of_a_window_is_the_weight_outside_it() -> None:
    """A window is exact attention restricted and scaled up again: their total variation is what lies outside."""
    torch.manual_seed(0)
    heads = MultiHead(H * E, H, role="causal", kernel=SlidingWindow(Placement(H, E, causal=True), reach=2)).double()
    x = random(1, T, H * E)
    with torch.no_grad(), record(heads) as seen:
        heads(x, x, Causal())
    found = effective(seen.calls[0])
    q, k = seen.calls[0].q[0], seen.calls[0].k[0]
    for head in range(H):
        whole = softmax(q[head], k[head], [[j <= i for j in range(T)] for i in range(T)])
        outside = sum(whole[i][j] for i in range(T) for j in range(i - 2))
        assert found.differences[head] == pytest.approx(outside / T, abs=1e-9)
    assert found.difference is not None and found.difference > 0.01


def test_exact_attention_is_the_same_and_says_so() -> None:
    found = effective(call(None, Causal(), role="causal"))
    assert found.same and found.difference == 0.0
    labels = tuple("abcdefg")
    assert SAME in EffectiveAttention(labels, labels, (found,)).title


def test_a_state_space_layer_has_no_exact_map() -> None:
    torch.manual_seed(0)
    layer, x = StateSpace(6, causal=True), torch.randn(1, T, 6)
    with torch.no_grad(), record(layer) as seen:
        layer(x, x, Causal())
    found = effective(seen.calls[0])
    assert found.exact is None and found.difference is None and found.map.shape == (6, T, T)
    labels = tuple("abcdefg")
    shown = EffectiveAttention(labels, labels, (found,))
    assert list(shown.maps()) == ["effective"] and shown.sentence == NO_EXACT
    assert len(shown.figure().axes) >= 1


# --- Layers and heads, and their pictures

LABELS = tuple("abcdefg")


def layers(negative: bool = False) -> tuple[Effective, ...]:
    shift = 0.3 if negative else 0.0
    many = [random(B, H, T, T, seed=seed).softmax(-1) - shift for seed in (4, 5)]
    return tuple(effective(call(told, Causal(), not negative, "causal")) for told in many)


def test_maps_and_numbers_of_a_head_a_layer_and_all() -> None:
    both = layers()
    head = EffectiveAttention(LABELS, LABELS, both, 1, 2)
    assert head.difference() == both[1].differences[2]
    np.testing.assert_array_equal(head.maps()["effective"].weights, both[1].map[2])
    one, every = EffectiveAttention(LABELS, LABELS, both, 0), EffectiveAttention(LABELS, LABELS, both)
    assert one.difference() == pytest.approx(both[0].differences.mean())
    assert every.difference() == pytest.approx(np.mean([each.differences for each in both]))
    shown = every.maps()
    np.testing.assert_allclose(shown["exact"].weights, np.mean([each.exact for each in both], axis=(0, 1)))
    gaps = np.nansum(shown["difference"].weights, axis=-1) / 2  # of each query
    assert gaps.mean() == pytest.approx(every.difference())
    assert f"total variation {every.difference():.3f}" in every.title and "2 layers x 3 heads" in every.title


@pytest.mark.parametrize(
    ("chosen", "message"),
    [((None, 1), "of which layer"), ((2, None), "no layer 2"), ((0, 3), "no head 3"), ((-1, None), "no layer -1")],
)
def test_what_is_not_there_is_refused(chosen: tuple[int | None, int | None], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EffectiveAttention(LABELS, LABELS, layers(), *chosen)
    with pytest.raises(UsageError, match="no attention between words"):
        EffectiveAttention(LABELS, LABELS, ())


def test_the_figure_has_three_panels_on_one_scale_and_masked_cells_are_not_coloured() -> None:
    figure = EffectiveAttention(LABELS, LABELS, layers()).figure()
    panels = figure.axes[:3]
    assert [axes.get_xlabel() for axes in panels] == ["effective", "exact", "difference"]
    meshes = [axes.collections[0] for axes in panels]
    assert len({mesh.norm.vmax for mesh in meshes}) == 1
    for mesh in meshes:
        hidden = np.ma.getmaskarray(mesh.get_array()).reshape(T, T)
        assert (hidden == ~np.tri(T, dtype=bool)).all()
    assert "total variation" in figure.texts[0].get_text()


def test_weights_below_zero_have_a_colour_of_their_own() -> None:
    shown = EffectiveAttention(LABELS, LABELS, layers(negative=True))
    figure = shown.figure()
    effective_axes, exact_axes = figure.axes[:2]
    assert [len(axes.collections) for axes in (effective_axes, exact_axes)] == [2, 1]
    drawn = ~np.ma.getmaskarray(effective_axes.collections[1].get_array()).reshape(T, T)
    weights = shown.maps()["effective"].weights
    assert (drawn == (np.nan_to_num(weights) < 0)).all() and drawn.any()
    assert "orange" in figure.texts[0].get_text() and "relative L1" in figure.texts[0].get_text()


def test_json_has_every_layer_and_head(tmp_path: Path) -> None:
    both = layers()
    data = json.loads(EffectiveAttention(LABELS, LABELS, both).save(tmp_path / "a.json").read_text())
    assert len(data["layers"]) == 2 and data["layers"][1]["differences"] == both[1].differences.tolist()
    assert data["layers"][0]["effective"][2][0][1:] == [None] * (T - 1)
    with pytest.raises(UsageError, match=r"use \.png, \.svg, \.json"):
        EffectiveAttention(LABELS, LABELS, both).save(tmp_path / "a.csv")


# --- As a person types it

TINY = ["model.width=12", "model.heads=2", "model.layers=2", "model.max_length=16", "train.batch_tokens=256"]
SHORT = ["train.validate_every=3", "train.precision=float32", "train.average=0"]
KERNELS = {
    "generate": ["tokens.size=300", "data.context=16", "model.attention.kind=window", "model.attention.reach=1"],
    "fill": ["tokens.size=300", "data.context=16", "model.attention=linformer"],
    "classify": ["tokens.size=300", "model.attention=performer"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run of each task, with a kernel."""
    here = tmp_path_factory.mktemp("effective")
    words = "the old king sees a small cat near the wide river"
    (here / "mood.tsv").write_text("".join(f"{words} {n}\t{('good', 'bad')[n % 2]}\n" for n in range(99)))
    (here / "book.txt").write_text("\n".join(f"{words} {number}." for number in range(200)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for task, more in KERNELS.items():
            settings = [f"--set={each}" for each in (*TINY, *SHORT, *more)]
            kind = ["--model", {"generate": "gpt2", "fill": "bert", "classify": "bert"}[task]]
            data = "mood.tsv" if task == "classify" else "book.txt"
            assert main.run(["train", task, "--data", data, *kind, "--steps", "3", *settings]) == 0
        yield here


def typed(capsys: Captured, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main.run(list(words))
    return code, *capsys.readouterr()


def test_look_draws_the_effective_map_beside_the_exact_one(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    look = ("look", "the old king sees", "--exact", "-m")
    code, out, err = typed(capsys, *look, "runs/generate/1", "-o", str(tmp_path / "a.json"))
    assert (code, out) == (0, "") and "wrote" in err
    data = json.loads((tmp_path / "a.json").read_text())
    assert [layer["role"] for layer in data["layers"]] == ["causal", "causal"] and len(data["rows"]) >= 4
    for layer in data["layers"]:
        assert layer["measure"] == "total variation" and layer["difference"] > 0.01
        assert layer["effective"][0][3][:2] == [0.0, 0.0] and layer["exact"][0][3][0] > 0
    code, out, _ = typed(capsys, *look, "runs/generate/1", "--layer", "1", "--head", "0")
    assert code == 0 and f"total variation {data['layers'][1]['differences'][0]:.3f}" in out
    assert "effective" in out and "exact" in out and "difference" in out
    code, out, _ = typed(capsys, *look, "runs/fill/1")
    assert code == 0 and "relative L1" in out and "layer 1:" in out
    code, out, _ = typed(capsys, *look, "runs/classify/1", "--second", "a cat")
    assert code == 0 and "self-attention, mean of 2 layers x 2 heads · total variation" in out and "cat" in out
    for words, message in [
        (("--layer", "7"), "no layer 7"),
        (("--second", "b"), "--second is for classifiers"),
        (("-o", "a.csv"), "use .png, .svg, .json"),
    ]:
        code, out, err = typed(capsys, *look, "runs/generate/1", *words)
        assert (code, out) == (2, "") and message in err


def test_look_at_a_translator_with_exact_attention_says_that_it_is_the_same(
    tiny_run: RunResult, capsys: Captured, tmp_path: Path
) -> None:
    code, out, _ = typed(capsys, "look", "3 May 1999", "--exact", "-m", str(tiny_run.best))
    assert code == 0 and "cross-attention" in out and SAME in out.replace("\n", " ")
    file = tmp_path / "a.png"
    assert typed(capsys, "look", "3 May 1999", "--exact", "-m", str(tiny_run.best), "-o", str(file))[0] == 0
    assert file.read_bytes().startswith(b"\x89PNG")
