"""Walks through given numbers: the examples of lectures as they print them, and anyone's own numbers from a file.

Oracles: the printed tables, and torch's own attention.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from regard.cli.main import run
from regard.errors import UsageError
from regard.look.walk.examples import EXAMPLES, example_walk
from regard.look.walk.examples.given import GivenNumbers, ScoreGrid, check_numbers, read_numbers
from regard.look.walk.examples.matrices import walk_of

OUTPUTS = [[1.937, 6.683, 1.595], [2.000, 7.964, 0.054], [2.000, 7.760, 0.358]]  # as the lecture prints them
AHEAD = [[1, 0, 0, 0], [0.38, 0.62, 0, 0], [0.26, 0.32, 0.43, 0], [0.21, 0.26, 0.26, 0.26]]
DICE = np.random.default_rng(5)


def made(queries: int = 5, keys: int = 7, **more: object) -> dict[str, object]:
    """Numbers of 3 dimensions, keys of width 11, values of width 2."""
    sizes = {"x": (queries, 3), "W_q": (3, 11), "W_k": (3, 11), "W_v": (3, 2), "memory": (keys, 3)}
    return {name: DICE.normal(size=size).tolist() for name, size in sizes.items()} | more


def own(values: dict[str, object]) -> GivenNumbers:
    found = check_numbers(values, "numbers.json")
    assert isinstance(found, GivenNumbers)
    return found


def by_torch(values: dict[str, object], scale: float | None, allowed: np.ndarray | None) -> np.ndarray:
    x, w_q, w_k, w_v = (torch.tensor(values[name], dtype=torch.float64) for name in ("x", "W_q", "W_k", "W_v"))
    memory = x if values.get("memory") is None else torch.tensor(values["memory"], dtype=torch.float64)
    mask = None if allowed is None else torch.from_numpy(allowed)
    out = scaled_dot_product_attention(x @ w_q, memory @ w_k, memory @ w_v, mask, scale=scale)
    if values.get("W_o") is not None:
        out = out @ torch.tensor(values["W_o"], dtype=torch.float64)
    return out.numpy()


def test_the_worked_example_is_that_of_the_lecture() -> None:
    found = example_walk("three-tokens")
    assert np.abs(found["Z"] - OUTPUTS).max() < 6e-4  # the lecture cuts some digits instead of rounding
    assert found["Q Kᵀ"].tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    for place, wanted in enumerate(OUTPUTS):
        assert np.abs(example_walk("three-tokens", place)["head output"] - wanted).max() < 6e-4
    scaled = example_walk("three-tokens-scaled")
    numbers = {"x": found["X"], "W_q": found["W_q"], "W_k": found["W_k"], "W_v": found["W_v"]}
    assert np.allclose(scaled["Z"], by_torch({name: value.tolist() for name, value in numbers.items()}, None, None))


def test_the_look_ahead_mask_is_that_of_the_lecture() -> None:
    assert np.abs(example_walk("look-ahead")["weights"] - AHEAD).max() < 6e-3
    assert np.isneginf(example_walk("look-ahead")["mask"]).sum() == 6


def test_every_example_can_be_named_and_shown() -> None:
    for name in EXAMPLES:
        walk = example_walk(name)
        assert walk.text() and walk.html() and json.loads(walk.json())["steps"]
    with pytest.raises(UsageError, match="three-tokens"):
        example_walk("three-token")


def test_the_board_has_every_number(tmp_path: Path) -> None:
    walk = example_walk("three-tokens")
    written = [text.get_text() for axes in walk.figure().axes for text in axes.texts]
    for number in (*(f"{value:.3f}" for value in walk["Z"].flatten()), "16", "W_q (4 x 3)", "Softmax of each row"):
        assert number in written, number
    cells = sum(array.values.size for step in walk.steps for array in step.arrays)
    assert sum(len(axes.patches) for axes in walk.figure().axes) == cells
    assert walk.save(tmp_path / "board.png").read_bytes().startswith(b"\x89PNG")
    assert walk.save(tmp_path / "board.svg").read_text().count("</svg>") == 1


def test_without_positions_a_sentence_is_a_bag_of_words() -> None:
    walk = example_walk("orders")
    without, with_positions = walk["farthest"][:, 0]
    assert without < 1e-12 and with_positions > 0.5
    assert np.allclose(walk["z"][::-1], walk["z backwards"])
    x = torch.from_numpy(walk["x"].copy())
    assert np.allclose(walk["z"], scaled_dot_product_attention(x, x, x).numpy())


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
@pytest.mark.parametrize("mask", [None, "causal", "by hand"])
@pytest.mark.parametrize("cross", [False, True])
def test_own_numbers_are_worked_out_as_torch_does(scale: float | None, mask: str | None, cross: bool) -> None:
    values = made(W_o=DICE.normal(size=(2, 13)).tolist(), scale=scale)
    values["memory"] = values["memory"] if cross else None
    keys = 7 if cross else 5
    allowed = (
        None if mask is None else np.tri(5, keys, dtype=bool) if mask == "causal" else DICE.random((5, keys)) < 0.6
    )
    if mask == "by hand" and allowed is not None:
        allowed[:, 0] = True
        values["mask"] = allowed.astype(int).tolist()
    elif mask:
        values["mask"] = mask
    wanted, given = by_torch(values, scale, allowed), own(values)
    assert np.abs(walk_of(given, None)["output"] - wanted).max() < 1e-12
    for query in range(5):
        assert np.abs(walk_of(given, query)["output"][0] - wanted[query]).max() < 1e-12


def test_numbers_from_files(tmp_path: Path) -> None:
    values = made(labels=["a", "b", "c", "d", "e"], scale=1)
    (tmp_path / "n.json").write_text(json.dumps(values))
    np.savez(tmp_path / "n.npz", **{name: np.array(value) for name, value in values.items()})
    one, two = read_numbers(tmp_path / "n.json"), read_numbers(tmp_path / "n.npz")
    assert isinstance(one, GivenNumbers) and isinstance(two, GivenNumbers)
    assert one.labels == two.labels == ("a", "b", "c", "d", "e") and one.scale == two.scale == 1.0
    assert np.array_equal(one.x, two.x) and one.keys[0] == "memory 1"
    (tmp_path / "s.json").write_text(json.dumps({"scores": [[1, 2, 3]], "mask": [[1, 1, 0]]}))
    grid = read_numbers(tmp_path / "s.json")
    assert isinstance(grid, ScoreGrid)
    wanted = torch.tensor([1.0, 2.0, -torch.inf], dtype=torch.float64).softmax(0).numpy()
    assert np.allclose(walk_of(grid, None)["weights"][0], wanted)
    np.savez(tmp_path / "bad.npz", x=np.array([{"a": 1}], dtype=object))  # which only a pickle can hold
    with pytest.raises(Exception, match="plain numbers"):
        read_numbers(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"W_q": [[1, 2]] * 4}, "x is 5 x 3 and W_q is 4 x 2"),
        ({"W_k": [[1, 2]] * 3}, "W_q is 3 x 11 and W_k is 3 x 2"),
        ({"W_v": [[1, 2]] * 2}, "memory is 7 x 3 and W_v is 2 x 2"),
        ({"W_o": [[1, 2]] * 3}, "W_v is 3 x 2 and W_o is 3 x 2"),
        ({"mask": [[1, 0]]}, "mask is 1 x 2, and there are 5 queries and 7 keys"),
        ({"mask": "causul"}, '"causal", or a matrix'),
        ({"x": [[1, 2], [3]]}, "no matrix of numbers"),
        ({"x": None}, "has no x"),
        ({"wq": [[1]]}, "nothing is called 'wq'"),
        ({"scale": "big"}, "a number that scores are multiplied by"),
        ({"labels": ["a"]}, "must be 5 texts"),
        ({"scores": [[1]]}, "give them alone"),
        ({"x": [[0.0] * 3] * 65}, "at most 64"),
    ],
)
def test_wrong_numbers_are_refused_in_words(change: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_numbers(made() | change, "numbers.json")
    assert told in f"{refused.value} {refused.value.hint or ''}"


def test_the_command_line_walks_through_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.json").write_text(json.dumps(made()))
    assert run(["walk", "--example", "three-tokens"]) == 0
    assert "1.937  6.683  1.595" in capsys.readouterr().out
    assert run(["walk", "--from", str(tmp_path / "n.json"), "--query", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["query"] == 2
    for words in (["--example", "orders", "--query", "1"], ["--example", "orders", "--head", "1"]):
        assert run(["walk", *words]) == 2 and "leave out" in capsys.readouterr().err
