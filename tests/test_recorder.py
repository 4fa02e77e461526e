"""Every family on the recording channel: what is seen is what was computed, nothing more is, and threads stay apart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from test_kernels_in_models import named
from test_verify import BLOCKS, LLAMA, RUNG, make, make_bundle
from test_verify_pictures import VIT
from test_verify_pictures import make as make_seeing
from torch import Tensor, nn

import regard
from regard.attention import AttentionCall, MultiHead, Seen, channel, record
from regard.attention.kernels.kernel import Kernel
from regard.bundle import Bundle, BundleConfig
from regard.errors import UsageError
from regard.models.table import build
from regard.tasks.subject import Subject
from regard.tasks.table import TASKS

SMALL = {"width": 12, "hidden": 14, "layers": 1}
SMALL_EYES: dict[str, Any] = {"width": 8, "hidden": 10, "attention": 5}
EYES: dict[str, Any] = {"kind": "convnet", "channels": (4, 6), "layers": 1}
SEEN_BY: dict[str, Any] = {"width": 12, "heads": 3, "layers": 2, "feed_forward": 7}


def make_translator(kind: str, **model: Any) -> Bundle:
    """A translation model of any kind, with random weights that make it look here and there."""
    bundle = make_bundle()
    config = BundleConfig.model_validate({**bundle.config.model_dump(), "model": {"kind": kind, **model}})
    built: Any = build("translate", config.model, config.vocabulary).eval()
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=random) + 0.5 * (parameter.dim() == 1))
    return replace(bundle, config=config, model=built)


def transformer(**model: Any) -> Bundle:
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "width": 12, "heads": 3, "feed_forward": 17, "max_length": 64}
    return make_translator("transformer", **{**sizes, **model})


TRANSFORMER = "self0 causal0 cross0 causal1 cross1"
CASES: dict[str, tuple[Any, str]] = {  # how it is made, and every attention of one pass: role and number
    "transformer": (transformer, TRANSFORMER),
    "transformer, norms behind": (lambda: transformer(norm="post"), TRANSFORMER),
    "transformer, rotary": (lambda: transformer(positions="rotary", heads=2), TRANSFORMER),
    "transformer, shaw": (lambda: transformer(positions="shaw", reach=3), TRANSFORMER),
    "transformer, t5": (lambda: transformer(positions="t5"), TRANSFORMER),
    "transformer, alibi": (lambda: transformer(positions="alibi"), TRANSFORMER),
    "transformer, performer": (lambda: transformer(cross_attention=named("performer")), TRANSFORMER),
    "seq2seq": (lambda: make_translator("seq2seq", **SMALL), ""),
    "bytenet": (lambda: make_translator("bytenet"), ""),
    "decoder-only": (
        lambda: make_translator("decoder-only", layers=2, width=12, heads=3, feed_forward=7),
        "causal0 causal1",
    ),
    "bahdanau": (lambda: make_translator("bahdanau", **SMALL), "cross0"),
    "luong": (lambda: make_translator("luong", **SMALL, input_feeding=False), "cross0"),
    "luong, fed": (lambda: make_translator("luong", **SMALL, input_feeding=True), "cross0"),
    "luong, local-m": (lambda: make_translator("luong", **SMALL, where="local-m", window=2), "cross0"),
    "luong, local-p": (lambda: make_translator("luong", **SMALL, where="local-p", window=2), "cross0"),
    "gpt1": (lambda: make("generate", "gpt1", **BLOCKS), "causal0 causal1"),
    "gpt2": (lambda: make("generate", "gpt2", **BLOCKS), "causal0 causal1"),
    "gpt3, banded": (lambda: make("generate", "gpt3", **BLOCKS, band=3), "causal0 causal1"),
    "gpt2, reversible": (lambda: make("generate", "gpt2", **BLOCKS, reversible=True), "causal0 causal1"),
    "llama, grouped": (lambda: make("generate", "llama", **LLAMA, groups=2), "causal0 causal1"),
    "llama, window": (lambda: _llama("window"), "causal0 causal1"),
    "llama, linear": (lambda: _llama("linear"), "causal0 causal1"),
    "llama, s4d": (lambda: _llama("s4d", positions="none"), "causal0 causal1"),
    "llama, mamba": (lambda: _llama("mamba", positions="none"), "causal0 causal1"),
    "lstm": (lambda: make("generate", "lstm", width=12, hidden=14, layers=2), ""),
    "image-transformer": (
        lambda: make("generate", "image-transformer", **BLOCKS, rows=3, columns=5, memory=4),
        "causal0 causal1",
    ),
    "bert": (lambda: make("fill", "bert", **BLOCKS, next_sentence=True), "self0 self1"),
    "bert, window": (lambda: _bert("window"), "self0 self1"),
    "bert, strided": (lambda: _bert("strided"), "self0 self1"),
    "bert, bigbird": (lambda: _bert("bigbird"), "self0 self1"),
    "bert, linformer": (lambda: _bert("linformer"), "self0 self1"),
    "bert, reformer": (lambda: _bert("reformer"), "self0 self1"),
    "bert, performer": (lambda: _bert("performer"), "self0 self1"),
    "bert, shaw": (lambda: make("fill", "bert", **BLOCKS, positions="shaw", reach=3), "self0 self1"),
    "classify tfidf": (lambda: make("classify", "tfidf", {"kind": "word"}), "pool0"),
    "classify token-weights": (lambda: make("classify", "token-weights", **RUNG), "pool0"),
    "classify plain-attention": (lambda: make("classify", "plain-attention", **RUNG), "self0"),
    "classify additive": (lambda: make("classify", "additive", **RUNG, hidden=14), "pool0"),
    "classify self-attention": (lambda: make("classify", "self-attention", **RUNG, heads=3), "self0"),
    "classify bert": (lambda: make("classify", "bert", **BLOCKS), "self0 self1"),
    "classify bert, tree": (lambda: make("classify", "bert", **BLOCKS, positions="tree", reach=3), "self0 self1"),
    "classify llama": (lambda: make("classify", "llama", **LLAMA), "causal0 causal1"),
    "convnet": (lambda: _sees("convnet", channels=(4, 6), layers=1), ""),
    "convnet, cbam": (
        lambda: _sees("convnet", channels=(4, 6), layers=1, attention="cbam"),
        "channel0 spatial0 channel1 spatial1",
    ),
    "resnet, se": (lambda: _sees("resnet", channels=(4, 6), blocks=1, attention="se"), "channel0 channel1"),
    "vit": (lambda: _sees("vit", layers=2, width=12, heads=3, feed_forward=7), "self0 self1"),
    "mixer": (lambda: _sees("mixer", layers=2, width=8, places=5, feed_forward=7), ""),
    "convmixer": (lambda: _sees("convmixer", layers=2, width=6, kernel=3, patch=4), ""),
    "show, attend and tell": (
        lambda: make_seeing("caption", "show-attend-tell", {**SMALL_EYES, "encoder": VIT}),
        "self0 cross0",
    ),
    "show, attend and tell, hard": (
        lambda: make_seeing("caption", "show-attend-tell", {**SMALL_EYES, "hard": True, "encoder": VIT}),
        "self0 cross0",
    ),
    "show and tell": (lambda: make_seeing("caption", "show-and-tell", {"width": 8, "hidden": 10, "encoder": EYES}), ""),
    "caption-transformer": (
        lambda: make_seeing("caption", "caption-transformer", {**SEEN_BY, "encoder": EYES}),
        "causal0 cross0 causal1 cross1",
    ),
    "answerer": (
        lambda: make_seeing("answer", "answerer", {**SEEN_BY, "encoder": VIT}),
        "self0 self1 cross0 self2 cross1",
    ),
}
WITH = [name for name, (_, expected) in CASES.items() if expected]
WITHOUT = [name for name, (_, expected) in CASES.items() if not expected]


def _llama(kernel: str, **model: Any) -> Bundle:
    return make("generate", "llama", **{**BLOCKS, "width": 24, "attention": named(kernel), **model})


def _bert(kernel: str) -> Bundle:
    return make("fill", "bert", **BLOCKS, attention=named(kernel), max_length=64)


def _sees(kind: str, **model: Any) -> Bundle:
    return make_seeing("classify-pictures", kind, model)


@cache
def subject(name: str) -> Subject:
    """A model of a family in both precisions, with random batches; not to be changed."""
    bundle = CASES[name][0]()
    return TASKS[bundle.config.task].make_subject.of(bundle)


@torch.no_grad()
def seen_of(name: str, dtype: torch.dtype = torch.float64, **bounds: Any) -> Seen:
    """One pass over five rows of different lengths."""
    model = subject(name).models[dtype]
    with record(model, **bounds) as seen:
        subject(name).outputs(model, subject(name).batch(model))
    return seen


# --- What is seen is what was computed


def test_no_family_is_forgotten() -> None:
    from regard.models.config import KINDS_OF

    tried = {(each.bundle.config.task, each.bundle.config.model.kind) for each in map(subject, CASES)}
    twins = {("classify", kind) for kind in ("gpt1", "gpt2", "gpt3")}  # llama is the same class
    # tests/test_verify_memory.py, test_conformer.py, test_graphs.py, test_preferences.py
    others = ("align", "ask", "remember", "compute", "transcribe", "classify-sounds", "classify-graphs")
    twins |= {(task, kind) for task in others for kind in KINDS_OF[task]}
    twins |= {("generate", kind) for kind in ("wavenet", "pixelcnn", "pixelrnn")}  # they have no attention
    assert tried | twins == {(task, kind) for task, kinds in KINDS_OF.items() for kind in kinds}


@pytest.mark.parametrize("name", WITH)
def test_roles_numbers_and_paths_are_those_of_the_model(name: str) -> None:
    seen, modules = seen_of(name), dict(subject(name).models[torch.float64].named_modules())
    assert " ".join(f"{call.role}{call.layer}" for call in seen.calls) == CASES[name][1]
    for call in seen.calls:
        assert getattr(modules[call.path], "role", call.role) == call.role
        assert getattr(modules[call.path], "heads", call.heads) == call.heads
        assert seen.only(call.role, call.layer) == [call]


@contextmanager
def joined_heads(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """By path, what went into the projection behind the heads."""
    got: dict[str, Tensor] = {}

    def keep(path: str, module: nn.Module, given: tuple[Tensor, ...]) -> None:
        got[path] = given[0]

    heads = [(path, module) for path, module in model.named_modules() if isinstance(module, MultiHead)]
    hooks = [module.out.register_forward_pre_hook(partial(keep, path)) for path, module in heads]
    yield got
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("name", WITH)
@torch.no_grad()
def test_weights_rebuild_what_the_next_layer_got(name: str) -> None:
    """Not what the channel was told it gave: what went into the projection behind the heads."""
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        model = subject(name).models[dtype]
        with joined_heads(model) as got:
            seen = seen_of(name, dtype)
        mixes = [float(call.out.abs().max()) for call in seen.calls if not call.has_exact]  # of numbers of any size
        assert seen.check() < tolerance * max([1.0, *mixes])
        for call in seen.calls:
            assert call.path in got or not isinstance(model.get_submodule(call.path), MultiHead)
            if call.path in got:
                joined = call.rebuilt().transpose(1, 2).flatten(2)
                assert float((joined - got[call.path]).abs().max()) < tolerance


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_recording_changes_no_bit_of_what_a_model_says(name: str) -> None:
    model = subject(name).models[torch.float32]
    batch = subject(name).batch(model)
    before = subject(name).outputs(model, batch)
    with record(model):
        during = subject(name).outputs(model, batch)
    assert torch.equal(before, during)
    assert torch.equal(before, subject(name).outputs(model, batch))


@pytest.mark.parametrize("name", WITH)
def test_rows_sum_to_one_where_they_say_so_and_nothing_is_seen_that_is_not_allowed(name: str) -> None:
    for call in seen_of(name).calls:
        weights, allowed = call.weights(), call.allowed()
        assert weights.shape == (*call.q.shape[:3], call.k.size(-2))
        if not call.gates:
            assert float(weights.masked_fill(allowed, 0.0).abs().max()) < 1e-12
        if call.sums_to_one:
            total = weights.sum(dim=-1)[allowed.any(dim=-1)]
            assert torch.allclose(total, torch.ones_like(total), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", WITH)
def test_one_head_is_seen_as_among_all(name: str) -> None:
    for call in seen_of(name).calls:
        for head in range(call.heads):
            weights, allowed = call.of_head(head)
            assert torch.allclose(weights, call.weights()[:, head], rtol=0, atol=1e-12)
            assert torch.equal(allowed, call.allowed()[:, head])


# --- Nothing is computed before it is asked for


@pytest.mark.parametrize("name", ["transformer", "llama, grouped", "bert", "vit", "llama, window", "bert, reformer"])
def test_no_map_is_kept(name: str) -> None:
    """Whatever a call holds is of queries, keys, values and outputs: nothing has a row for each query and key."""
    for call in seen_of(name).calls:
        queries, keys, width = call.q.size(-2), call.k.size(-2), call.q.size(-1)
        assert keys != width
        held = [getattr(call, each.name) for each in fields(call)]
        tensors = [each for each in held if isinstance(each, Tensor)]
        assert len(tensors) == 4
        assert not any(tuple(each.shape[-2:]) == (queries, keys) for each in tensors)


def test_no_weights_are_computed_until_someone_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def count(*given: Any, **named: Any) -> Tensor:
        nonlocal asked
        asked += 1
        return torch.zeros(())

    kernels = {type(m) for m in subject("bert, performer").models[torch.float64].modules() if isinstance(m, Kernel)}
    for kernel in kernels:
        monkeypatch.setattr(kernel, "weights", count)
        monkeypatch.setattr(kernel, "visible", count)
    monkeypatch.setattr("regard.attention.call.attention_weights", count)
    exact, by_kernel = seen_of("transformer"), seen_of("bert, performer")
    assert all(callable(call.reported) for call in by_kernel.calls)
    assert asked == 0
    exact.calls[0].weights()
    by_kernel.calls[0].weights()
    assert asked == 2


def test_what_an_attention_has_anyway_is_told() -> None:
    """The weights of a recurrent decoder, and of positions that add values, were computed: they are not again."""
    for name in ("bahdanau", "bert, shaw"):
        for call in seen_of(name).calls:
            assert isinstance(call.reported, Tensor)
            assert call.weights() is call.reported
            if name == "bahdanau":  # a score of its own is no product of q and k
                assert torch.equal(call.exact(), call.reported) and not call.exact().requires_grad
            assert not call.reported.requires_grad


# --- Axes and labels


def test_axes_say_whose_tokens_rows_and_columns_are() -> None:
    def axes(name: str) -> dict[str, tuple[str, str]]:
        seen = seen_of(name)
        return {f"{call.role}{call.layer}": seen.axes(call) for call in seen.calls}

    pair, text = ("target", "source"), ("text", "text")
    assert axes("transformer") == {
        "self0": ("source", "source"), "causal0": ("prefix", "prefix"), "causal1": ("prefix", "prefix"),
        "cross0": pair, "cross1": pair,
    }  # fmt: skip
    assert axes("bahdanau") == {"cross0": pair}
    assert axes("gpt2") == {"causal0": text, "causal1": text}
    assert axes("bert") == {"self0": text, "self1": text}
    assert axes("classify additive") == {"pool0": ("query", "text")}
    assert axes("convnet, cbam") == {
        "channel0": ("picture", "channels"), "channel1": ("picture", "channels"),
        "spatial0": ("picture", "places"), "spatial1": ("picture", "places"),
    }  # fmt: skip
    question = ("target", "target")  # whose tokens look at the picture
    found = axes("answerer")
    assert found == {
        "self0": ("source", "source"),
        "self1": question,
        "self2": question,
        "cross0": pair,
        "cross1": pair,
    }


def test_an_axis_does_not_depend_on_what_else_is_kept() -> None:
    seen = seen_of("transformer", only="causal")
    assert seen.axes(seen.calls[0]) == ("prefix", "prefix")


LABELS = {
    "source": [[f"s{text}.{place}" for place in range(length)] for text, length in enumerate((8, 12, 4, 6, 3))],
    "target": [[f"t{text}.{place}" for place in range(length)] for text, length in enumerate((6, 3, 12, 8, 4))],
    "prefix": [[f"p{text}.{place}" for place in range(length)] for text, length in enumerate((6, 3, 12, 8, 4))],
}


def test_labels_fit_the_axes_and_padding_has_none() -> None:
    seen = seen_of("transformer", labels=LABELS)
    for text in range(5):
        for call in seen.calls:
            rows, columns = seen.labelled(call, text)
            assert (len(rows), len(columns)) == tuple(call.weights().shape[-2:])
            assert [each for each in columns if each] == LABELS[seen.axes(call)[1]][text]
            assert [each for each in rows if each] == LABELS[seen.axes(call)[0]][text]


def test_labels_follow_the_rows_and_texts_that_are_kept() -> None:
    seen = seen_of("transformer", labels=LABELS, texts=[3, 1], rows=slice(-4, -1))
    call = seen.only("cross")[0]  # rows 8, 9 and 10 of twelve
    assert call.texts == (3, 1)  # in the order in which they were asked for
    assert seen.labelled(call, 3) == seen.labelled(call) == (("", "", ""), tuple(LABELS["source"][3]) + ("",) * 6)
    assert seen.labelled(call, 1)[1] == tuple(LABELS["source"][1])
    seen = seen_of("transformer", labels=LABELS, texts=[2], rows=5)
    assert seen.labelled(seen.only("cross")[0])[0] == ("t2.5",)
    with pytest.raises(UsageError, match="no text 1 in this attention; there is 2, counted from 0"):
        seen.labelled(seen.only("cross")[0], 1)


def test_too_few_labels_are_told_and_without_any_there_are_numbers() -> None:
    seen = seen_of("transformer", labels={"source": [["a", "b"]] * 5})
    with pytest.raises(UsageError, match="2 labels for the source, which has 12 tokens"):
        seen.labelled(seen.only("self")[0])
    assert seen.tokens("target", 3) == ("0", "1", "2")


# --- What is said where there is nothing


def test_nothing_and_its_reasons() -> None:
    model = subject("transformer").models[torch.float64]
    with record(model) as idle:
        pass
    assert "did not run inside this block, or it has none" in idle.nothing()
    assert repr(idle) == f"Seen({idle.nothing()})"
    for name in WITHOUT:
        none = seen_of(name)
        assert none.calls == [] and "or it has none" in none.nothing()
    out = seen_of("transformer", layers=7)
    there = "there are self layer 0, causal layers 0 to 1, cross layers 0 to 1"
    assert out.calls == [] and out.nothing() == f"no attention is within the bounds (layers 7): {there}"
    large = seen_of("transformer", most_tokens=11)
    assert large.left_out == 5
    assert large.nothing() == "all 5 attentions are over more than 11 tokens; raise most_tokens"
    for seen in (idle, out, large):
        with pytest.raises(ValueError, match=r"no attention|all 5"):
            seen.check()
    assert repr(seen_of("transformer")) == f"Seen(5 attentions; {there})"


@torch.no_grad()
def test_steps_of_a_kernel_say_that_they_have_nothing_to_show() -> None:
    each = subject("llama, window")
    model = each.models[torch.float64]
    with record(model) as seen:
        each.steps(model, each.batch(model))
    assert seen.calls == []
    assert "one pass over the whole text shows what it mixes" in repr(seen)


# --- Side by side


def passes(model: Any, key: int) -> None:
    model.read(torch.full((1, key + 2), key))


def lengths_of(calls: list[AttentionCall]) -> set[int]:
    return {call.q.size(-2) for call in calls}


@torch.no_grad()
def test_many_threads_on_one_model_and_on_others_see_only_their_own() -> None:
    one, two = (subject(name).models[torch.float64] for name in ("gpt2", "llama, grouped"))
    barrier, found = threading.Barrier(7, timeout=60), {}

    def run(key: int) -> None:
        model = one if key % 2 else two
        with torch.no_grad(), record(model, labels={"text": [[str(key)] * 20]}) as seen:
            for _ in range(3):
                barrier.wait()
                passes(model, key)
                passes(two if key % 2 else one, key)  # not recorded
        found[key] = seen

    threads = [threading.Thread(target=run, args=(key,)) for key in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key in range(7):
        assert lengths_of(found[key].calls) == {key + 2}
        assert len(found[key].calls) == 6
        assert found[key].tokens("text", 1) == (str(key),)
        assert found[key].check() < 1e-12
    assert channel.recorder.get() is None


@torch.no_grad()
def test_tasks_of_asyncio_keep_apart_and_do_not_outlive_the_block() -> None:
    model = subject("gpt2").models[torch.float64]

    async def recorded(key: int) -> Seen:
        with record(model) as seen:
            for _ in range(3):
                passes(model, key)
                await asyncio.sleep(0)
        return seen

    async def late(ended: asyncio.Event) -> None:
        await ended.wait()
        passes(model, 9)

    async def main() -> tuple[tuple[Seen, Seen], Seen]:
        ended = asyncio.Event()
        with record(model) as around:
            task = asyncio.create_task(late(ended))
            found = await asyncio.gather(recorded(1), recorded(2))
        ended.set()
        await task  # begun inside, goes on outside
        return found, around

    found, around = asyncio.run(main())
    assert [lengths_of(seen.calls) for seen in found] == [{3}, {4}]
    assert [len(seen.calls) for seen in found] == [6, 6]
    assert around.calls == []
    assert channel.recorder.get() is None


@torch.no_grad()
def test_generators_that_record_may_end_in_any_order() -> None:
    """A recorder that came back to life when another ended would keep every later pass in memory."""
    model = subject("gpt2").models[torch.float64]

    def recording() -> Generator[Seen, None, None]:
        with record(model) as seen:
            passes(model, 1)
            yield seen
            passes(model, 2)
            yield seen

    first, second = recording(), recording()
    one, two = next(first), next(second)
    first.close()
    passes(model, 3)  # the second is still open
    second.close()
    passes(model, 4)
    assert lengths_of(one.calls) == {3}
    assert lengths_of(two.calls) == {3, 5}
    assert channel.recorder.get() is None
    abandoned = recording()
    next(abandoned)
    thread = threading.Thread(target=abandoned.close)  # as a garbage collector in another thread would
    thread.start()
    thread.join()
    passes(model, 5)
    with record(model) as after:
        passes(model, 6)
    assert lengths_of(after.calls) == {8}


@torch.no_grad()
def test_the_innermost_block_sees_also_after_an_error() -> None:
    model = subject("gpt2").models[torch.float64]
    with record(model) as outer:
        with pytest.raises(KeyError), record(model) as inner:
            passes(model, 1)
            raise KeyError
        passes(model, 2)
    assert lengths_of(inner.calls) == {3}
    assert lengths_of(outer.calls) == {4}
    assert inner.outer is None  # what the outer one keeps is not held by the inner
    assert channel.recorder.get() is None


@torch.no_grad()
def test_a_part_is_seen_where_the_whole_takes_its_fast_steps() -> None:
    """The fast step path of language models leaves out modules; it must not run while someone looks at one of them."""
    each = subject("gpt2")
    model = each.models[torch.float64]
    with record(model.blocks[1]) as seen:
        each.steps(model, each.batch(model))
    assert len(seen.calls) == 37 and {call.path for call in seen.calls} == {"attention"}
    assert seen.check() < 1e-12


def test_the_front_door_leads_here() -> None:
    layer = nn.Sequential(MultiHead(12, 3, role="self"))
    x = torch.randn(2, 5, 12)
    with regard.record(layer, only="self") as seen:
        layer[0](x, x)
    assert [call.path for call in seen.calls] == ["0"]


def test_steps_are_labelled_by_where_they_stand_behind_a_cache() -> None:
    heads = MultiHead(12, 3, role="causal").eval()
    x = torch.randn(1, 5, 12)
    past = heads.start(1, x)
    with torch.inference_mode(), record(heads, labels={"text": [list("abcde")]}) as seen:
        heads.read(x[:, :2], past)
        heads.read(x[:, 2:4], past)
        heads.step(x[:, 4:], past)
    found = [tuple(map("".join, seen.labelled(call))) for call in seen.calls]
    assert found == [("ab", "ab"), ("cd", "abcd"), ("e", "abcde")]
