"""Attention that is changed while a model runs is what plain computation says, in whole passes and in steps alike."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Generator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_record_generation import LIMIT, SEARCHES, WRITERS, forced, searched
from test_recorder import WITH, joined_heads, subject
from test_verify import BLOCKS, make
from torch import Tensor, nn

from regard.attention import (
    AttentionCall,
    Causal,
    Change,
    Lengths,
    MultiHead,
    Pin,
    Remove,
    Seen,
    SoftAttention,
    Temperature,
    channel,
    intervene,
    record,
    softness,
)
from regard.attention.kernels import KERNELS, Placement
from regard.bundle import save_bundle
from regard.cli import main
from regard.errors import UsageError
from regard.tasks.run import RunResult

EXACT = [
    "transformer", "transformer, norms behind", "transformer, rotary", "transformer, t5", "transformer, alibi",
    "gpt2", "gpt3, banded", "llama, grouped", "bert", "classify self-attention", "vit", "caption-transformer",
]  # fmt: skip
UNCHANGED = {"classify tfidf", "llama, s4d", "llama, mamba", "convnet, cbam", "resnet, se"}  # nothing there has heads
HARD = "show, attend and tell, hard"
SOFT = {"bahdanau", "luong", "luong, fed", "luong, local-m", "luong, local-p", "show, attend and tell"}


def some(name: str, model: Any) -> Any:
    """Three rows of different lengths, at most twelve tokens long."""
    return subject(name).batch(model, [0, 2, 3])


@torch.no_grad()
def outputs(name: str, *changes: Change, model: Any = None) -> Tensor:
    """What a family says of its batch under changes."""
    model = subject(name).models[torch.float64] if model is None else model
    with intervene(model, *changes) if changes else nullcontext():
        return subject(name).outputs(model, some(name, model))


@torch.no_grad()
def steps(name: str, *changes: Change, model: Any = None) -> Tensor:
    """The same, one step after the other."""
    model = subject(name).models[torch.float64] if model is None else model
    with intervene(model, *changes) if changes else nullcontext():
        return subject(name).steps(model, some(name, model))


def real(name: str, found: Tensor) -> Tensor:
    """Only what was said of real places."""
    model = subject(name).models[torch.float64]
    return torch.cat([row.flatten() for row in subject(name).real(found, some(name, model))])


def assert_near(found: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) < tolerance


def looks(name: str) -> Seen:
    """Every attention of the same pass, unchanged."""
    with record(subject(name).models[torch.float64]) as seen:
        outputs(name)
    return seen


def differ(found: Tensor, other: Tensor) -> bool:
    return float((found - other).abs().max()) > 1e-6


# --- Remove


def zeroed(name: str, path: str, heads: list[int]) -> Any:
    """A copy of the model whose projection behind the heads takes nothing from these."""
    model = copy.deepcopy(subject(name).models[torch.float64])
    module = model.get_submodule(path)
    with torch.no_grad():
        for head in heads:
            module.out.weight[:, head * module.head_width : (head + 1) * module.head_width] = 0.0
    return model


POOLED = {"classify token-weights", "classify plain-attention", "classify additive"}
MULTI = [name for name in WITH if name not in UNCHANGED | POOLED | SOFT - {"show, attend and tell"}]


@pytest.mark.parametrize("name", MULTI)
def test_a_removed_head_is_a_head_whose_part_of_the_projection_is_zero(name: str) -> None:
    """Of every role and layer one head, of one all of them; whole passes, and steps where the family takes them."""
    model, plain = subject(name).models[torch.float64], outputs(name)
    calls = [call for call in looks(name).calls if isinstance(model.get_submodule(call.path), MultiHead)]
    assert calls
    for call in calls:
        for head in (1, None) if call is calls[0] else (1,):
            heads = list(range(call.heads)) if head is None else [head]
            change, expected = Remove(call.role, call.layer, head=head), zeroed(name, call.path, heads)
            found = outputs(name, change)
            assert_near(found, outputs(name, model=expected))
            assert differ(found, plain)
            if head is None:
                assert torch.equal(outputs(name, Remove(path=call.path)), found)
            elif hasattr(model, "start"):
                assert_near(steps(name, change), steps(name, model=expected))
    assert torch.equal(outputs(name), plain)


@pytest.mark.parametrize("name", sorted(SOFT))
def test_a_removed_look_of_a_recurrent_decoder_is_a_context_of_zeros(name: str) -> None:
    model = copy.deepcopy(subject(name).models[torch.float64])
    attention: SoftAttention = model.attention
    plain, look = outputs(name), attention.look

    def blind(*given: Any) -> Any:
        found = look(*given)
        return replace(found, context=torch.zeros_like(found.context))

    attention.look = blind  # type: ignore[method-assign]
    if name == "luong":  # looks through `forward`
        attention.forward = lambda *given: blind(*given).context  # type: ignore[method-assign]
    for change in (Remove("cross"), Remove("cross", head=0), Remove(path="attention")):
        found = outputs(name, change)
        assert_near(found, outputs(name, model=model))
        assert differ(found, plain)
        assert_near(steps(name, change), steps(name, model=model))
    with pytest.raises(UsageError, match="no head 1; there is one, number 0"):
        outputs(name, Remove("cross", head=1))


@pytest.mark.parametrize("name", sorted(POOLED))
def test_without_what_it_pools_a_classifier_says_the_same_of_every_text(name: str) -> None:
    found = outputs(name, Remove())
    assert_near(found, found[:1].expand_as(found))
    assert differ(outputs(name), outputs(name)[:1].expand_as(found))


@pytest.mark.parametrize("name", sorted(UNCHANGED))
def test_what_has_no_heads_says_that_it_cannot_be_changed(name: str) -> None:
    with pytest.raises(UsageError, match=r"Remove\(\) met no attention: none that can be changed ran"):
        outputs(name, Remove())


@pytest.mark.parametrize("name", [name for name in WITH if name not in UNCHANGED])
@torch.no_grad()
def test_the_recorder_sees_that_a_head_is_gone_and_where_it_looked(name: str) -> None:
    model, whole = subject(name).models[torch.float64], looks(name)
    role = whole.calls[-1].role
    with record(model) as seen, intervene(model, Remove(role, head=0)):
        outputs(name)
    assert seen.check() < 1e-10
    assert {call.removed for call in seen.only(role)} == {(0,)}
    assert all(not call.out[:, 0].any() for call in seen.only(role))
    assert {call.removed for call in seen.calls if call.role != role} <= {()}
    unchanged = slice(0, 1) if name in SOFT | {HARD} else slice(None)  # a recurrent decoder goes on from what it saw
    found, before = (each.only(role)[0].weights()[:, :, unchanged] for each in (seen, whole))
    assert_near(found, before)
    for bounds in ({"texts": 1}, {"rows": 0}):
        with record(model, **bounds) as part, intervene(model, Remove(role, head=0)):  # type: ignore[arg-type]
            outputs(name)
        assert part.check() < 1e-10


# --- Weights that a person says, or that are softer or harder


def by_hand(call: AttentionCall, temperature: float = 1.0, hard: bool = False) -> Tensor:
    """Weights (B, H, T, S) of a recorded call, head by head, without the package's mathematics."""
    share, heads = call.q.size(1) // call.k.size(1), []
    allowed = call.allowed()
    for h in range(call.q.size(1)):
        scores = call.q[:, h] @ call.k[:, h // share].mT / call.q.size(-1) ** 0.5
        if call.bias is not None:
            scores = scores + call.bias.expand(*call.q.shape[:3], call.k.size(-2))[:, h]
        powers = (scores / temperature).exp() * allowed[:, h]
        rows = powers / powers.sum(dim=-1, keepdim=True)
        heads.append((rows == rows.amax(dim=-1, keepdim=True)).to(rows.dtype) if hard else rows)
    return torch.stack(heads, dim=1)


def seen_under(name: str, *changes: Change) -> tuple[list[AttentionCall], dict[str, Tensor]]:
    """Every attention of one pass under changes, and what went into the projections behind the heads."""
    model = subject(name).models[torch.float64]
    with joined_heads(model) as got, record(model) as seen:
        outputs(name, *changes)
    assert seen.check() < 1e-10
    return seen.calls, got


def joined(call: AttentionCall, weights: Tensor) -> Tensor:
    values = torch.stack([call.v[:, h * call.v.size(1) // call.heads] for h in range(call.heads)], dim=1)
    return torch.einsum("bhts,bhse->bthe", weights, values).flatten(2)


@pytest.mark.parametrize("name", EXACT)
def test_a_pinned_row_is_what_a_person_says_and_all_else_is_as_it_would_be(name: str) -> None:
    vector = [0.5, 0.0, 0.25, 0.25]
    for target in looks(name).calls:
        for head, weights in ((None, 2), (1, vector)):
            change = Pin(target.role, target.layer, row=3, weights=weights, head=head)
            calls, got = seen_under(name, change)
            for call in calls:
                expected = by_hand(call)
                if call.path == target.path:
                    row = torch.zeros(expected.size(-1), dtype=torch.float64)
                    row[: 4 if weights is vector else 3] = torch.tensor(
                        vector if weights is vector else [0.0, 0.0, 1.0]
                    )
                    expected[:, slice(None) if head is None else head, 3] = row
                assert_near(call.weights(), expected)
                assert_near(got[call.path], joined(call, expected))


@pytest.mark.parametrize("name", EXACT)
def test_temperature_divides_scores_and_hard_leaves_the_best(name: str) -> None:
    target = looks(name).calls[-1]
    for change, options in (
        (Temperature(target.role, value=0.6), {"temperature": 0.6}),
        (Temperature(target.role, target.layer, value=1.7), {"temperature": 1.7}),
        (Temperature(target.role, hard=True), {"hard": True}),
    ):
        calls, got = seen_under(name, change)
        for call in calls:
            met = call.role == target.role and change.layer in (None, call.layer)
            expected = by_hand(call, **(options if met else {}))  # type: ignore[arg-type]
            assert_near(call.weights(), expected)
            assert_near(got[call.path], joined(call, expected))


def test_several_at_once_and_one_within_another_add_up() -> None:
    name, model = "transformer", subject("transformer").models[torch.float64]
    changes = (
        Temperature("cross", 0, value=0.5), Pin("cross", 0, row=1, weights=2, head=0), Remove("cross", 0, head=1),
        Remove("causal", 1, head=0), Pin("self", row=0, weights=[0.0, 1.0]), Temperature(value=2.0),
    )  # fmt: skip
    calls, got = seen_under(name, *changes)
    cross = next(call for call in calls if (call.role, call.layer) == ("cross", 0))
    expected = by_hand(cross, temperature=1.0)  # 0.5 · 2
    expected[:, 0, 1] = torch.eye(8, dtype=torch.float64)[2]
    assert_near(cross.weights(), expected)
    out = joined(cross, expected).unflatten(-1, (3, -1))
    out[:, :, 1] = 0.0
    assert_near(got[cross.path], out.flatten(2))
    together = outputs(name, *changes)
    with intervene(model, *changes[:2]), intervene(model, changes[2]):
        assert_near(outputs(name, *changes[3:]), together)
        with softness(temperature=0.5):  # of looks at the source, besides
            softer = outputs(name)
        assert_near(softer, outputs(name, Temperature("cross", value=0.5)))
    twice = outputs(name, Pin("cross", row=1, weights=0), Pin("cross", row=1, weights=2))
    assert torch.equal(twice, outputs(name, Pin("cross", row=1, weights=2)))  # the later one holds


def test_rows_that_a_recurrent_decoder_is_told_to_see() -> None:
    """The context of a pinned row is the annotation itself."""
    for name in sorted(SOFT):
        calls, _ = seen_under(name, Pin("cross", row=2, weights=1))
        call = next(call for call in calls if call.role == "cross")
        assert_near(
            call.weights()[:, 0, 2], torch.eye(call.k.size(-2), dtype=torch.float64)[1].expand(len(call.q), -1), 1e-15
        )
        assert_near(call.out[:, 0, 2], call.v[:, 0, 1], 1e-15)
        before = looks(name).only("cross")[0].weights()
        assert_near(call.weights()[:, :, :2], before[:, :, :2])


# --- Steps


CHANGES: dict[str, list[Change]] = {
    "a head": [Remove(head=0)],
    "a row": [Pin(row=3, weights=1)],
    "a row by numbers": [Pin(row=4, weights=[0.75, 0.0, 0.25], head=0)],
    "softer": [Temperature(value=2.5)],
    "harder": [Temperature(hard=True)],
    "all": [Remove(head=0), Pin(row=2, weights=0), Pin(row=5, weights=[0.5, 0.5]), Temperature(value=0.7)],
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("changes", CHANGES)
def test_steps_with_a_cache_say_what_a_whole_pass_says_under_every_change(name: str, changes: str) -> None:
    """Rows are counted from the first token, however a model comes to them; a banded layer may be told to see further."""
    roles = {call.role for call in looks(name).calls} & {"causal", "cross"}
    given = [replace(change, role=role) for change in CHANGES[changes] for role in sorted(roles)]  # type: ignore[arg-type]
    at_once, stepwise = outputs(name, *given), steps(name, *given)
    assert_near(real(name, stepwise), real(name, at_once))
    if name != HARD or changes not in ("softer", "harder"):  # a best place stays the best
        assert differ(real(name, at_once), real(name, outputs(name)))


@torch.no_grad()
def test_a_prompt_that_is_read_at_once_has_its_rows_pinned() -> None:
    for name in ("gpt2", "gpt3, banded", "llama, grouped"):
        model = subject(name).models[torch.float64]
        ids = torch.randint(4, 60, (2, 9), generator=torch.Generator().manual_seed(1))
        with intervene(
            model, Pin("causal", row=3, weights=0), Pin("causal", row=6, weights=2), Remove(layer=1, head=2)
        ):
            whole = model.output(model.read(ids))
            _, state = model.start(None, ids[:, :5])
            first, state = model.step(ids[:, 5:6], state)
            second, state = model.step(ids[:, 6:7], state)
        assert_near(torch.cat([first, second], dim=1), whole[:, 5:7])


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    "name", ["transformer", "bahdanau", "luong, fed", "gpt2", "llama, grouped", "caption-transformer"]
)
def test_search_goes_on_under_a_change(name: str, search: str) -> None:
    """Every hypothesis is pinned at that step: what a search says of its best is what one changed pass says of it."""
    role = "causal" if name in ("gpt2", "llama, grouped") else "cross"
    changes = [Pin(role, row=2, weights=1), Remove(role, head=0, layer=0)]  # type: ignore[arg-type]
    model = subject(name).models[torch.float64]
    for change in changes:
        with intervene(model, change):
            found = searched(name, SEARCHES[search])
            _, told = forced(name, list(found.ids))
        _, plain = forced(name, list(found.ids))
        expected = torch.tensor(found.token_log_probabilities, dtype=torch.float64)
        if search != "sample":
            assert_near(told[: len(expected)], expected, 1e-9)
        assert differ(told, plain)


def test_a_language_model_that_is_changed_leaves_its_fast_steps() -> None:
    """The zeroed copy runs on the fast path, the changed model must not; both write the same."""
    for name in ("gpt2", "llama, grouped"):
        model, options = subject(name).models[torch.float64], SEARCHES["greedy"]
        expected = zeroed(name, "blocks.1.attention", [0, 1])
        for whole, path in ((model, None), (model.blocks[1], "attention")):  # also where only a part is named
            changes = [Remove(path=path, layer=1 if path is None else None, head=head) for head in (0, 1)]
            with intervene(whole, *changes):
                found = searched(name, options)
            subject(name).models[torch.float64] = expected
            try:
                assert searched(name, options).ids == found.ids
                assert_near(
                    torch.tensor(searched(name, options).token_log_probabilities),
                    torch.tensor(found.token_log_probabilities),
                )
            finally:
                subject(name).models[torch.float64] = model


# --- What is refused, and what is left behind


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Remove("cross", head=3), "no head 3; there are 3, numbered from 0 to 2"),
        (Remove("cross", head=-1), "no head -1"),
        (Pin("cross", head=7), "no head 7"),
        (Remove("cross", 2), r"Remove\(role='cross', layer=2\) met no attention: there are self layer 0, causal layers 0 to 1"),
        (Remove("pool"), "met no attention: there are"),
        (Temperature(path="decoder.9.cross", value=2.0), r"path='decoder.9.cross'.* met no attention"),
        (Pin("cross", weights=8), "cannot pin a row to key 8: there are 8, from 0 to 7"),
        (Pin("cross", weights=-1), "cannot pin a row to key -1"),
        (Pin("cross", weights=[0.125] * 7 + [0.0, 0.125]), "a row is pinned to 9 weights, but there are 8 keys"),
        (Pin("cross", row=12), r"met no query: none stood at place 12"),
        (Change("cross"), r"changes nothing; say Remove\(...\), Pin\(...\) or Temperature"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_told_in_words(change: Change, words: str) -> None:
    before = outputs("transformer")
    with pytest.raises(UsageError, match=words):
        outputs("transformer", change)
    assert channel.interventions.get() == ()
    assert torch.equal(outputs("transformer"), before)


def test_wrong_numbers_are_told_at_once() -> None:
    for value in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="a temperature is more than 0"):
            Temperature(value=value)
    with pytest.raises(UsageError, match="cannot pin row -1: queries are counted from 0"):
        Pin(row=-1)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([0.5, 0.2], "sums to 1; these sum to 0.7"),
        ([2.0], "these sum to 2"),
        ([], "these sum to 0"),
        ([1.5, -0.5], "one of these is -0.5"),
        ([float("nan"), 1.0], "one of these is nan"),
    ],
)
def test_a_row_that_is_no_share_of_anything_is_refused(weights: list[float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Pin(weights=weights)
    assert Pin(weights=[0.333, 0.333, 0.333]) == Pin(weights=torch.tensor([0.333] * 3, dtype=torch.float64))  # type: ignore[arg-type]


@torch.no_grad()
def test_a_key_that_the_mask_hides_cannot_be_pinned() -> None:
    """A later token, or padding; of a query that is itself padding nobody asks, and a band may be looked beyond."""
    x, lengths = torch.randn(3, 7, 12), Lengths(torch.tensor([7, 3, 5]))
    past, text = MultiHead(12, 3, role="causal", band=2), MultiHead(12, 3, role="self")
    words = r"cannot pin row 2 to key 4, .* a later token.* text 0 .*see: 0 to 2"
    with pytest.raises(UsageError, match=words), intervene(past, Pin(row=2, weights=4)):
        past(x, x, Causal())
    words, half = r"row 1 to key 3, .*padding.* text 1 of the batch; it can see: 0 to 2", [0.5, 0.0, 0.0, 0.5]
    with pytest.raises(UsageError, match=words), intervene(text, Pin(row=1, weights=half, head=2)):
        text(x, x, lengths)
    with intervene(past, Pin(row=4, weights=0)), record(past) as seen:
        past(x, x, Causal())
    assert (seen.calls[0].weights()[:, :, 4, 0] == 1).all()
    with intervene(text, Pin(row=6, weights=6)):  # is there in the first text only
        text(x, x, lengths)
    foreign = nn.MultiheadAttention(12, 3, batch_first=True)
    hidden = torch.arange(7) >= torch.tensor([7, 3, 5])[:, None]
    with pytest.raises(UsageError, match="cannot pin row 0 to key 6"), intervene(foreign, Pin(weights=6)):
        foreign(x, x, x, key_padding_mask=hidden, need_weights=False)


def test_what_is_changed_is_said_by_name() -> None:
    """`Remove("cross", 3, 1)` took 1 for a path, and met nothing."""
    for kind in (Remove, Pin, Temperature):
        assert kind("cross", 3) == kind(role="cross", layer=3)
        with pytest.raises(TypeError):
            kind("cross", 3, 1)  # type: ignore[misc]


@torch.no_grad()
def test_one_head_may_be_softer_or_harder_than_the_others() -> None:
    heads, x = MultiHead(12, 3, role="self").double(), torch.randn(2, 5, 12, dtype=torch.float64)
    with record(heads) as seen:
        heads(x, x)
    q, k = seen.calls[0].q, seen.calls[0].k
    scores = q @ k.mT / 2.0  # of four numbers each
    with intervene(heads, Temperature(value=0.3, head=1), Temperature(hard=True, head=2)), record(heads) as seen:
        heads(x, x)
    assert_near(seen.calls[0].weights()[:, 0], scores[:, 0].softmax(dim=-1))
    assert_near(seen.calls[0].weights()[:, 1], (scores[:, 1] / 0.3).softmax(dim=-1))
    assert torch.equal(seen.calls[0].weights()[:, 2], torch.eye(5, dtype=torch.float64)[scores[:, 2].argmax(dim=-1)])
    with pytest.raises(UsageError, match="no head 3; there are 3"), intervene(heads, Temperature(value=2.0, head=3)):
        heads(x, x)
    plain, soft = outputs("bahdanau"), outputs("bahdanau", Temperature(value=2.0, head=0))
    assert_near(soft, outputs("bahdanau", Temperature(value=2.0)))
    assert differ(soft, plain)


def test_zeros_behind_the_last_key_are_no_weights() -> None:
    """One row serves a text alone and among longer ones."""
    assert torch.equal(
        outputs("transformer", Pin("cross", weights=[0.0, 1.0] + [0.0] * 20)),
        outputs("transformer", Pin("cross", weights=1)),
    )


def test_an_error_of_the_person_inside_the_block_is_not_hidden() -> None:
    model = subject("transformer").models[torch.float64]
    with pytest.raises(KeyError), intervene(model, Remove("cross")):
        raise KeyError
    assert channel.interventions.get() == ()


def test_heads_of_kernels_can_be_removed_but_their_weights_not_changed() -> None:
    for kind in ("window", "linear", "performer"):
        module = MultiHead(24, 3, role="causal", kernel=KERNELS[kind](Placement(3, 8, causal=True)))
        x = torch.randn(2, 5, 24)
        for change in (Temperature(value=2.0), Pin(row=1), Temperature(hard=True)):
            words = f"{kind} attention cannot be made softer or harder"
            with pytest.raises(UsageError, match=words), intervene(module, change):
                module(x, x)
            past = module.start(2, x)
            with pytest.raises(UsageError, match="have its weights pinned"), intervene(module, change):
                module.step(x[:, :1], past)
        with intervene(module, Remove(), Temperature(value=1.0)):  # which changes nothing
            module(x, x)


def test_after_the_block_everything_is_as_before_to_the_bit() -> None:
    for name in ("transformer", "bahdanau", "gpt2"):
        model = subject(name).models[torch.float32]
        before = {key: value.clone() for key, value in model.state_dict().items()}
        plain, found = outputs(name, model=model), searched(name, SEARCHES["beam"], torch.float32)
        for change in (Remove(head=0), Pin(row=1), Temperature(hard=True)):
            outputs(name, change, model=model)
            assert torch.equal(outputs(name, model=model), plain)
        assert searched(name, SEARCHES["beam"], torch.float32) == found
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_threads_change_one_model_at_once_each_for_itself() -> None:
    name = "transformer"
    changes: list[Change] = [
        Remove("cross", 0, head=0), Remove("cross", 0, head=1), Pin("cross", row=1, weights=3), Temperature(value=3.0),
        Remove("causal"), Temperature("self", hard=True),
    ]  # fmt: skip
    alone = [outputs(name, change) for change in changes]
    plain, barrier = outputs(name), threading.Barrier(len(changes) + 1, timeout=60)
    found: dict[int, list[Tensor]] = {number: [] for number in range(len(changes) + 1)}

    def run(number: int) -> None:
        model = subject(name).models[torch.float64]
        given = changes[number : number + 1]
        with intervene(model, *given), record(model) as seen:
            for _ in range(3):
                barrier.wait()
                found[number].append(outputs(name))
        assert seen.check() < 1e-10 and len(seen.calls) == 15

    threads = [threading.Thread(target=run, args=(number,)) for number in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, results in found.items():
        assert len(results) == 3
        assert all(torch.equal(each, [*alone, plain][number]) for each in results)


def test_generators_and_tasks_leave_nothing_changed() -> None:
    name, model = "transformer", subject("transformer").models[torch.float64]
    plain, one, two = outputs(name), outputs(name, Remove("cross", head=1)), outputs(name, Remove("cross", head=2))

    def changing(head: int) -> Generator[None, None, None]:
        with intervene(model, Remove("cross", head=head)):
            outputs(name)
            yield

    first, second = changing(1), changing(2)
    next(first)
    next(second)
    first.close()
    assert torch.equal(outputs(name), two)
    second.close()
    assert torch.equal(outputs(name), plain)

    async def changed(head: int) -> Tensor:
        with intervene(model, Remove("cross", head=head)):
            await asyncio.sleep(0)
            return outputs(name)

    async def late(ended: asyncio.Event) -> Tensor:
        await ended.wait()
        return outputs(name)

    async def whole() -> list[Tensor]:
        ended = asyncio.Event()
        with intervene(model, Remove("cross", head=0)):
            task = asyncio.create_task(late(ended))
            await asyncio.sleep(0)
            outputs(name)
        ended.set()
        return [await task, *await asyncio.gather(changed(1), changed(2))]

    for found, expected in zip(asyncio.run(whole()), (plain, one, two), strict=True):
        assert torch.equal(found, expected)


def test_softness_is_a_temperature_of_looks_at_the_source_and_the_innermost_holds() -> None:
    for name in ("transformer", "bahdanau"):
        plain = outputs(name)
        for value in (0.4, 3.0):
            with softness(temperature=value):
                soft = outputs(name)
                with softness(temperature=value):  # not twice
                    assert torch.equal(outputs(name), soft)
                with softness():
                    assert torch.equal(outputs(name), plain)
                assert torch.equal(outputs(name), soft)
            assert_near(soft, outputs(name, Temperature("cross", value=value)))
            assert differ(soft, plain)
        with softness(hard=True):
            hard = outputs(name)
        assert_near(hard, outputs(name, Temperature("cross", hard=True)))
        assert torch.equal(outputs(name), plain)


# --- For the person at the terminal


def test_heads_are_removed_on_the_command_line(
    tiny_run: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from regard.tasks.translate.predictor import Translator

    def run(*words: str) -> tuple[int, str, str]:
        code = main.run(
            ["translate", "-m", str(tiny_run.folder), "3. März 1998", "--scores", "--max-length", "5", *words]
        )
        out, err = capsys.readouterr()
        return code, out, err

    translator = Translator.load(tiny_run.folder)
    with intervene(translator.model, Remove("cross", 1, head=2), Remove("causal", 0)):
        expected = translator.translate("3. März 1998", max_length=5)
    code, out, err = run("--remove", "cross:1:2", "--remove", "causal:0")
    assert code == 0 and out.split("\t")[1] == f"{expected.log_probability:.4f}"
    assert "removed: cross:1:2, causal:0" in err
    assert run()[1] != out
    for word, message in (
        ("cross:1:3", "--remove cross:1:3: no head 3; layer 1 has 3, numbered from 0 to 2"),
        ("cross:2", "no layer 2; cross attention has 2, numbered from 0 to 1, with 3 heads each"),
        ("cross:9:1", "other roles: self 2 layers x 3 heads, causal 2 layers x 3 heads"),
        ("crss:1:3", "type a role (self, causal or cross), a layer and a head, from 0, such as cross:1:3"),
        ("cross:one", "type a role"),
        ("cross:1:2:3", "type a role"),
    ):
        code, out, err = run("--remove", word)
        assert (code, out) == (2, "") and message in err

    folder = save_bundle(tmp_path / "gpt2", make("generate", "gpt2", **BLOCKS))
    given = ["generate", "-m", str(folder), "a man", "--greedy", "-n", str(LIMIT), "--json"]
    assert main.run(given) == 0
    plain = capsys.readouterr().out
    assert main.run([*given, "--remove", "causal:0:2", "--remove", "causal:1"]) == 0
    assert capsys.readouterr().out != plain
    assert main.run([*given, "--remove", "cross:0"]) == 2
    assert "no cross attention; there are causal 2 layers x 3 heads, counted from 0" in capsys.readouterr().err


def test_nothing_to_translate_is_no_error_where_a_head_is_removed(
    tiny_run: RunResult, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main.run(["translate", "-m", str(tiny_run.folder), "--remove", "cross:0:0"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Temperature(2.0, layer=1),
            r"Temperature begins with a role .*not with 2\.0;.*Temperature\(.*value=2\.0\)",
        ),
        (lambda: Remove(3), r"Remove begins with a role .*, not with 3;.*Remove\(layer=3, head=1\)"),
        (lambda: Remove("corss"), r"not with 'corss'"),
        (lambda: Remove("cross", "1"), r"a layer is a number from 0, not '1'"),
        (lambda: Pin(torch.eye(3)), r"Pin begins with a role .*not with a Tensor;.*weights="),
        (lambda: Pin(weights=torch.eye(3)), "weights are one row"),
        (lambda: Pin(weights=[[0.5, 0.5]]), "weights are one row"),
    ],
)
def test_a_change_says_what_it_was_given_wrongly(make: Any, words: str) -> None:
    """The bug: a temperature or a map stood in the place of the role, and the change "met no attention"."""
    with pytest.raises(UsageError, match=words):
        make()
