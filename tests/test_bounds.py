"""A bounded recording keeps the same part of what an unbounded one keeps, and still rebuilds its part of the output."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from test_recorder import CASES, WITH, seen_of, subject
from torch import Tensor

from regard.attention import AttentionCall, Causal, Dense, Lengths, MultiHead, record
from regard.attention.call import SomeRows
from regard.errors import UsageError

ROWS = 5  # of every batch in `seen_of`
SOME: list[dict[str, Any]] = [
    {"texts": 2},
    {"texts": [3, 0]},
    {"rows": 1},
    {"rows": -1},
    {"rows": slice(1, None, 2)},
    {"rows": slice(0, 3)},
    {"texts": [4, 1], "rows": slice(-3, -1)},
]


def part(whole: Tensor, bounds: dict[str, Any], rows: bool = True) -> Tensor:
    """The bounds, applied by hand to a tensor (B, H, T, ...)."""
    texts = bounds.get("texts", range(ROWS))
    whole = whole[list(range(texts)) if isinstance(texts, int) else list(texts)]
    wanted = bounds.get("rows", slice(None))
    if not rows:
        return whole
    return whole[:, :, [wanted]] if isinstance(wanted, int) else whole[:, :, wanted]


def has(call: AttentionCall, bounds: dict[str, Any]) -> bool:
    """Whether the bounds leave a row of this call; what only multiplies has no rows."""
    return call.gates or len(_of(list(range(call.q.size(-2))), bounds.get("rows", slice(None)))) > 0


def _of(places: list[int], rows: int | slice) -> list[int]:
    return places[rows] if isinstance(rows, slice) else [places[rows]] if rows < len(places) else []


@pytest.mark.parametrize("name", WITH)
def test_texts_and_rows_are_the_same_part_of_everything(name: str) -> None:
    """Padding, causal and moving masks, biases, kernels, groups, values of distances, what only multiplies."""
    whole = seen_of(name)
    for bounds in SOME:
        seen = seen_of(name, **bounds)
        left = [call for call in whole.calls if has(call, bounds)]
        assert [call.path for call in seen.calls] == [call.path for call in left]
        for cut, call in zip(seen.calls, left, strict=True):
            rows = not call.gates
            assert (cut.role, cut.layer, cut.sums_to_one) == (call.role, call.layer, call.sums_to_one)
            for found, expected in (
                (cut.weights(), call.weights()), (cut.allowed(), call.allowed()), (cut.permitted(), call.permitted()),
                (cut.out, call.out), (cut.rebuilt(), call.rebuilt()),
            ):  # fmt: skip
                torch.testing.assert_close(found, part(expected, bounds, rows), rtol=0, atol=1e-12)
            if call.has_exact and rows:
                torch.testing.assert_close(cut.exact(), part(call.exact(), bounds), rtol=0, atol=1e-12)
            assert cut.check() < 1e-10
            places = list(range(call.q.size(-2)))
            assert cut.rows is None or list(cut.rows) == _of(places, bounds["rows"])


def test_roles_and_layers_alone_and_together() -> None:
    def found(**bounds: Any) -> str:
        return " ".join(f"{call.role}{call.layer}" for call in seen_of("transformer", **bounds).calls)

    assert found(only="cross") == "cross0 cross1"
    assert found(only=("self", "causal")) == "self0 causal0 causal1"
    assert found(layers=1) == "causal1 cross1"
    assert found(layers=[0]) == "self0 causal0 cross0"
    assert found(only="cross", layers=1) == "cross1"
    assert found(only="cross", layers=1, texts=1, rows=2) == "cross1"
    assert found(only="self", layers=1) == ""
    assert found(only="pool") == ""


def test_too_many_tokens_are_left_out_and_counted() -> None:
    """Twelve tokens on either side: 12 is not too many, 11 is, also where only the keys are so many."""
    assert (len(seen_of("transformer", most_tokens=12).calls), seen_of("transformer", most_tokens=12).left_out) == (
        5,
        0,
    )
    bounded = seen_of("transformer", only="cross", most_tokens=11)
    assert (bounded.calls, bounded.left_out) == ([], 2)  # only what is otherwise wanted counts
    pooled = seen_of("classify additive", most_tokens=38)  # one query, 39 keys
    assert pooled.left_out == 1
    assert pooled.nothing() == "the only attention is over more than 38 tokens; raise most_tokens"
    model = subject("gpt2").models[torch.float64]
    with record(model, most_tokens=3) as seen, torch.no_grad():
        for length in (2, 3, 4, 5):
            model.read(torch.ones(1, length, dtype=torch.long))
    assert [call.q.size(-2) for call in seen.calls] == [2, 2, 3, 3]
    assert seen.left_out == 4


def test_what_leaves_no_row_or_text_is_not_kept() -> None:
    none = seen_of("transformer", rows=12)
    assert none.calls == []
    assert none.nothing().startswith("no attention is within the bounds (rows 12 to 12): there are self layer 0")
    assert seen_of("transformer", texts=[5]).calls == []
    assert "(texts 5)" in repr(seen_of("transformer", texts=[5]))
    some = seen_of("transformer", texts=[5, 2])  # the batch may be smaller than someone thought
    assert len(some.calls) == 5 and all(len(call.q) == 1 for call in some.calls)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"only": "crss"}, "no attention has the role 'crss'; did you mean cross"),
        ({"only": ("cross", "everything")}, "no attention has the role 'everything'; there is causal, channel, cross"),
        ({"layers": -1}, "layers are counted from 0"),
        ({"layers": [0, -2]}, "layers are counted from 0"),
        ({"texts": 0}, r"texts=0: say how many .* or which, from 0"),
        ({"texts": -1}, "texts=-1: say how many"),
        ({"texts": [0, -1]}, "say how many"),
        ({"rows": [1, 2]}, r"rows=\[1, 2\]: say which one, from 0 \(rows=5\), or a slice"),
        ({"rows": "first"}, "say which one"),
        ({"most_tokens": 0}, "most_tokens=0 leaves out every attention"),
    ],
)
def test_bounds_that_make_no_sense_are_refused_in_words(bounds: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words), record(MultiHead(12, 3, role="self"), **bounds):
        pass
    from regard.attention import channel

    assert channel.recorder.get() is None


def test_a_bounded_recording_holds_no_more_than_it_shows() -> None:
    """A view of one row would keep all rows in memory."""
    whole, one = seen_of("transformer"), seen_of("transformer", texts=1, rows=1)
    for call, full in zip(one.calls, whole.calls, strict=True):
        for name in ("q", "out"):
            kept = getattr(call, name)
            assert kept.untyped_storage().nbytes() == kept.numel() * kept.element_size()
            assert kept.numel() * ROWS * full.q.size(-2) == getattr(full, name).numel()
        assert call.k.untyped_storage().nbytes() == call.k.numel() * call.k.element_size()


def test_rows_of_a_mask() -> None:
    """Of masks with a row for each query, with one for all, for each text, and joined."""
    lengths, dense = Lengths(torch.tensor([3, 5])), Dense(torch.rand(2, 1, 4, 5) > 0.4)
    rows = slice(1, 3)
    for mask in (Causal(1), lengths, dense, Causal(1) & lengths & dense):
        expected = mask.dense(4, 5).expand(2, 1, 4, 5)[:, :, rows]
        some = SomeRows(mask, rows, 4)
        assert torch.equal(some.dense(2, 5).expand(2, 1, 2, 5), expected)
        second = some.keep(torch.tensor([1]))
        assert torch.equal(second.dense(2, 5).expand(1, 1, 2, 5), expected[1:])


def test_bounds_do_not_change_what_a_model_says() -> None:
    model = subject("transformer").models[torch.float32]
    batch = subject("transformer").batch(model)
    with torch.no_grad():
        before = subject("transformer").outputs(model, batch)
        with record(model, only="cross", layers=1, texts=2, rows=slice(1, 3), most_tokens=50):
            assert torch.equal(subject("transformer").outputs(model, batch), before)


def test_no_field_of_a_call_is_forgotten_by_the_bounds() -> None:
    """A field that is added to a call must be cut too, or be named here as one that is the same for every part."""
    cut = {
        "q",
        "k",
        "v",
        "out",
        "mask",
        "bias",
        "reported",
        "plus",
        "visible",
        "stands_for",
        "rows",
        "batch",
        "on_edges",
    }
    whole = {"path", "role", "scale", "sums_to_one", "gates", "has_exact", "layer", "removed", "finish"}
    assert {each.name for each in fields(AttentionCall)} == cut | whole
    assert CASES  # the families of `test_recorder.py` are those that are tried above
