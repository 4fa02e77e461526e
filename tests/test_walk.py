"""The walk through multi-head attention: every number of every step against torch's own functions and plain loops.

Models have random weights in float64, so that equal means equal to 1e-9. A test fails on an array it has no oracle for.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention

from regard.attention import AttentionCall, Causal, Lengths, Window
from regard.bundle import Bundle, BundleConfig
from regard.errors import UsageError
from regard.inspect.walk import query_place, walk
from regard.inspect.walk_pass import reasons_of
from regard.look.walk import Walk
from regard.models.table import build
from regard.tasks.configure import run_config
from regard.tasks.table import TASKS
from regard.tokens import TokenizerPair, TokensConfig, train_tokenizer

TEXTS = ["the old man saw a grey cat at night", "die alte katze sah am abend einen mann"]
TEXT, OTHER = "the old cat saw a man", "am abend sah die katze"
BLOCKS = {"layers": 3, "width": 12, "heads": 3, "feed_forward": 11, "max_length": 29, "dropout": 0.0}
PAIR = {"encoder_layers": 2, "decoder_layers": 3, "width": 12, "heads": 3, "feed_forward": 11, "dropout": 0.0}
LLAMA = {**BLOCKS, "kind": "llama", "width": 24, "heads": 4, "groups": 2}


def predictor_of(task: str, model: dict[str, Any], dtype: torch.dtype = torch.float64) -> Any:
    """A model of this configuration with random weights, biases and norms too."""
    settings = TokensConfig(kind="word", min_count=1)
    tokenizer = train_tokenizer(TEXTS, settings, mask=task == "fill")
    config = run_config(task, {"model": model}).model
    sizes = (tokenizer.size,) * (2 if task == "translate" else 1)
    torch.manual_seed(5)
    built = build(task, config, sizes, labels=3)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.3)
    more = {"labels": ("a", "b", "c"), "longest": 23} if task == "classify" else {}
    bundle = BundleConfig(task=task, tokens=settings, vocabulary=sizes, model=config, **more)
    return TASKS[task].make_predictor(
        Bundle(bundle, built.eval().to(dtype).requires_grad_(False), TokenizerPair(tokenizer, tokenizer), {})
    )


def rows_of(found: Walk) -> dict[str, np.ndarray]:
    return {array.name: array.values for step in found.steps for array in step.arrays}


def agree(found: Walk, oracle: dict[str, Any], atol: float = 1e-9) -> None:
    """Every array has its oracle and equals it; every name stands once."""
    names = [array.name for step in found.steps for array in step.arrays]
    assert len(names) == len(set(names))
    for name, values in rows_of(found).items():
        if name == "differences" or name.endswith(", twice"):
            continue  # of their own tests
        assert name in oracle, f"no oracle for {name}"
        wanted = np.asarray(oracle[name], dtype=np.float64)
        wanted = wanted.reshape(values.shape) if wanted.ndim < 2 else wanted  # of matrices the layout counts
        np.testing.assert_allclose(values, wanted, atol=atol, rtol=0, err_msg=name)


# --- Worked lines


def check_lines(found: Walk, atol: float = 1e-9) -> int:
    """Each line is an equation that holds with its own numbers, and ends in a number of its step's arrays."""
    count = 0
    for step in found.steps:
        arrays = {array.name: array.values for array in step.arrays}
        for line in step.lines:
            sides = re.sub(r"^[^{=\[]*: ", "", line.text)  # what a line is about stands before a colon
            values = iter(line.numbers)
            text = re.sub(r"\{\}", lambda _: f"({next(values)!r})", sides)  # noqa: B023
            text = re.sub(r"\[\d+ more: (\(.+?\))\]", r"\1", text)
            text = text.replace("·", "*").replace("^", "**").replace("√", "sqrt")
            parts = [part for part in text.split(" = ") if "(" in part and not _is_name(part)]
            results = [eval(part, {**vars(math), "min": min}) for part in parts]  # numbers of our own lines
            assert len(results) > 1 and all(each == pytest.approx(results[-1], abs=atol) for each in results), line.text
            name, row, column = line.of
            assert line.numbers[-1] == pytest.approx(arrays[name][row, column], abs=atol), line.text
            count += 1
    return count


def _is_name(part: str) -> bool:
    """PE(3, 0) and (s W)_0 are names, not sums."""
    return bool(re.match(r"PE\(|\(s W\)|\(h_0 [UW]\)|score of|sum of|weight of|logit of|probability of", part))


# --- The oracle: torch in float64, by other means than the walk's


def sines(places: int, width: int) -> list[list[float]]:
    waves = [[math.sin, math.cos][d % 2] for d in range(width)]
    return [[waves[d](p / math.pow(10000, (d - d % 2) / width)) for d in range(width)] for p in range(places)]


class Oracle:
    """All arrays of a walk through `attention`, in the block that `stack` holds at `number`."""

    def __init__(self, predictor: Any, found: Walk, embedding: Any, ids: list[int], stack: Any, **more: Any) -> None:
        self.predictor, self.walk, self.embedding, self.stack = predictor, found, embedding, stack
        self.query, self.head, self.number = found.about["query"], found.about["head"], found.about["layer"]
        self.ids, self.more = torch.tensor([ids]), more
        self.arrays: dict[str, Any] = {}

    @torch.no_grad()
    def all(self) -> dict[str, Any]:
        x = self.enter(self.embed())
        block = self.stack[self.number]
        crossed = self.walk.about["role"] == "cross"
        if crossed:  # what the block does before it looks at the source
            x = block.around_attention(x, lambda y: block.attention(y, y, Causal(), None))
        around = block.around_cross if crossed else block.around_attention
        self.attend(block.cross if crossed else block.attention, x, around)
        return self.arrays

    def embed(self) -> Tensor:
        """What enters the first block, and its arrays."""
        rows = self.embedding.table.weight[self.ids[0]]
        scale = math.sqrt(rows.size(1)) if self.more.get("scaled") else 1.0
        put = self.arrays.update
        put(embeddings=rows, embedding=rows[self.query], **{"scaled embedding": rows[self.query] * scale})
        x = rows * scale
        kind = self.more.get("positions", "none")
        if kind == "sinusoidal":
            waves = sines(32, rows.size(1))
            put(table=waves, position=waves[self.query])
            x = x + torch.tensor(waves, dtype=torch.float64)[: len(x)]
        elif kind == "learned":
            table = self.embedding.positions.table
            put(position=table[self.query])
            x = x + table[: len(x)]
        if "segments" in self.more:
            segments = self.embedding.segments.weight[self.more["segments"]]
            put(segment=segments[self.query])
            x = x + segments
        if self.more.get("normed"):
            norm = self.embedding.norm
            x = layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
        put(embedded=x[self.query])
        return x[None]

    def enter(self, x: Tensor) -> Tensor:
        """After the blocks below."""
        for block in list(self.stack)[: self.number]:
            if self.walk.about["role"] == "self":
                x = block(x, None)
            else:
                x = block(x, Causal(), self.more.get("memory"))
        return x

    def norm(self, norm: nn.Module, x: Tensor, of: str) -> Tensor:
        """Norm by torch's function, or by hand for the root mean square."""
        put, here = self.arrays.update, x[self.query]
        put({"ε": norm.eps, "w of the norm": norm.weight})
        if isinstance(norm, nn.LayerNorm):
            put(
                {
                    f"mean of {of}": here.mean(),
                    f"variance of {of}": here.var(unbiased=False),
                    f"deviation of {of}": here.std(unbiased=False),
                    "b of the norm": norm.bias,
                }
            )
            return layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
        square = x.pow(2).mean(dim=-1, keepdim=True)
        put({f"mean square of {of}": square[self.query]})
        return x * torch.rsqrt(square + norm.eps) * norm.weight  # type: ignore[operator]

    def attend(self, m: Any, x: Tensor, around: Any) -> None:
        put, before = self.arrays.update, x[0]
        order = around.order if around is not None else "none"
        y = self.norm(around.norm, before, "x") if order == "pre" else before
        put({"x": before[self.query], "normed x": y[self.query], "all x": y})
        memory = self.more.get("memory")
        crossed = self.walk.about["role"] == "cross"
        source = memory[0] if crossed and memory is not None else y
        put(memory=source)
        width, groups, group = m.head_width, m.groups, self.head // (m.heads // m.groups)
        w_k, w_v = m.key_value.weight.split(groups * width)
        has = m.query.bias is not None
        b_k, b_v = m.key_value.bias.split(groups * width) if has else (None, None)
        own = {"q": (m.query.weight, m.query.bias, self.head), "k": (w_k, b_k, group), "v": (w_v, b_v, group)}
        for letter, (weight, bias, number) in own.items():
            put({f"W_{letter}": weight.unflatten(0, (-1, width))[number].T})
            if bias is not None:
                put({f"b_{letter}": bias.unflatten(0, (-1, width))[number]})
        q = linear(y, m.query.weight, m.query.bias).unflatten(-1, (-1, width)).transpose(0, 1)  # (H, T, E)
        k = linear(source, w_k, b_k).unflatten(-1, (-1, width)).transpose(0, 1)  # (G, S, E)
        v = linear(source, w_v, b_v).unflatten(-1, (-1, width)).transpose(0, 1)
        put(q=q[self.head, self.query], k=k[group], v=v[group])
        if m.rotary is not None and not crossed:
            q, k = self.turn(m.rotary, q), self.turn(m.rotary, k)
            put({"turned q": q[self.head, self.query], "turned k": k[group]})
        repeat = m.heads // groups
        k, v = (each.repeat_interleave(repeat, dim=0) for each in (k, v))
        self.weigh(m, q, k, v, crossed)
        self.leave(around, before)

    def turn(self, rotary: Any, x: Tensor) -> Tensor:
        """As products of complex numbers."""
        half = x.size(-1) // 2
        places = torch.arange(x.size(1), dtype=torch.float64) / rotary.scale
        angles = torch.outer(places, rotary.base ** (-torch.arange(half, dtype=torch.float64) / half))
        self.arrays.update(angles=angles[self.query], cos=angles[self.query].cos(), sin=angles[self.query].sin())
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], dim=-1)

    def weigh(self, m: Any, q: Tensor, k: Tensor, v: Tensor, crossed: bool) -> None:
        put, t, h = self.arrays.update, self.query, self.head
        count = k.size(1)
        products = torch.stack([q[h, t] * k[h, s] for s in range(count)])
        sums = torch.tensor([math.fsum(row.tolist()) for row in products], dtype=torch.float64)
        scale = m.scale if m.scale is not None else 1 / math.sqrt(m.head_width)
        put(products=products, sums=sums, scaled=sums * scale)
        bias = self.bias(m, q, count) if not crossed else torch.zeros(m.heads, count, dtype=torch.float64)
        put(bias=bias[h], scores=sums * scale + bias[h])
        seen = torch.tensor([self.sees(t, s) for s in range(count)])
        put(allowed=seen.double())
        added = bias.masked_fill(~seen, -math.inf)
        score = sums * scale + added[h]
        weights = torch.softmax(score, dim=0)
        powers = [math.exp(float(each - score.max())) for each in score]
        put({"masked scores": score, "max": score.max(), "shifted": score - score.max(), "exp": powers})
        put({"sum": sum(powers), "weights": weights})
        values = v
        if "value rows" in self.more:
            put({"a of values": self.more["value rows"](self)})
            values = v + self.more["value rows"](self)
        put({"weighted v": torch.stack([weights[s] * values[h, s] for s in range(count)])})
        out = scaled_dot_product_attention(q[:, t : t + 1], k, values, attn_mask=added[:, None], scale=scale)[
            :, 0
        ]  # (H, E)
        put({"head output": out[h], "heads": out, "W_o": m.out.weight.T, "b_o": m.out.bias})
        put(output=linear(out.flatten(), m.out.weight, m.out.bias))

    def bias(self, m: Any, q: Tensor, count: int) -> Tensor:
        made = self.more.get("bias")
        return torch.zeros(m.heads, count, dtype=torch.float64) if made is None else made(self, m, q, count)

    def sees(self, t: int, s: int) -> bool:
        causal = self.walk.about["role"] != "causal" or s <= t
        return causal and self.more.get("sees", lambda t, s: True)(t, s)

    def leave(self, around: Any, before: Tensor) -> None:
        if around is None:
            return
        added = before[self.query] + self.arrays["output"] if around.residual else self.arrays["output"]
        self.arrays["residual"] = added
        if around.order == "post":
            put = torch.zeros_like(before)
            put[self.query] = added
            self.arrays["normed output"] = self.norm(around.norm, put, "the sum")[self.query]


def begun(predictor: Any, text: str) -> list[int]:
    return [predictor.tokenizer.specials.begin, *predictor.tokenizer.encode(text)]


def framed(predictor: Any, text: str) -> list[int]:
    return [*begun(predictor, text), predictor.tokenizer.specials.end]


# --- Translation: self, causal and cross, pre- and post-norm


@pytest.mark.parametrize("role", ["cross", "self", "causal"])
@pytest.mark.parametrize(
    "more",
    [
        {"norm": "pre", "positions": "sinusoidal"},
        {"norm": "post", "positions": "learned"},
        {"norm": "none", "positions": "none", "scaled": False, "residual": False},
    ],
    ids=["pre", "post", "plain"],
)
def test_every_number_of_a_transformer(role: str, more: dict[str, Any]) -> None:
    predictor = predictor_of("translate", {**PAIR, **more})
    found = walk(predictor, TEXT, OTHER, role=role, layer=1, head=2, query=3)
    model, source = predictor.model, [*predictor.tokenizers.source.encode(TEXT), 2]
    target = [1, *predictor.tokenizers.target.encode(OTHER)]
    memory = model.encode(torch.tensor([source]), torch.tensor([len(source)])).vectors.detach()
    known = {"scaled": True, "positions": more["positions"]}
    if role == "self":
        oracle = Oracle(predictor, found, model.source, source, model.encoder, **known)
    else:
        oracle = Oracle(predictor, found, model.target, target, model.decoder, memory=memory, **known)
    arrays = oracle.all()
    arrays["source embeddings"] = model.source.table.weight[source].detach()
    agree(found, arrays)
    check_lines(found)
    assert found.difference < 1e-9 and set(found.differences) >= {"embedded", "weights", "output"}
    twice = next(values for name, values in rows_of(found).items() if name.endswith(", twice"))
    last = "normed output" if more["norm"] == "post" else "residual" if more.get("residual", True) else "output"
    for row in twice:
        np.testing.assert_allclose(row, arrays[last], atol=1e-9)


# --- Language models: learned and rotary positions, grouped heads, biases, bands


def alibi(oracle: Oracle, m: Any, q: Tensor, count: int) -> Tensor:
    """Slopes of four heads: 1/4, 1/16, 1/64, 1/256 (Press et al. 2022)."""
    rows = [[-abs(s - oracle.query) / 4 ** (h + 1) for s in range(count)] for h in range(m.heads)]
    return torch.tensor(rows, dtype=torch.float64)


def t5_causal(oracle: Oracle, m: Any, q: Tensor, count: int) -> Tensor:
    """Near distances have a bucket each; what comes later is as the query itself."""
    return torch.stack([m.relative.table[max(0, oracle.query - s)] for s in range(count)], dim=1).double()


def t5_both(oracle: Oracle, m: Any, q: Tensor, count: int) -> Tensor:
    """To the left the first sixteen buckets, to the right the others; each distance below eight has its own."""
    t = oracle.query
    return torch.stack([m.relative.table[t - s if s <= t else 16 + s - t] for s in range(count)], dim=1).double()


def shaw_row(reach: int, causal: bool, t: int, s: int) -> int:
    return min(max(s - t, -reach), 0 if causal else reach) + reach


def shaw(reach: int, causal: bool) -> dict[str, Any]:
    def rows(oracle: Oracle, table: Tensor, count: int) -> Tensor:
        return torch.stack([table[shaw_row(reach, causal, oracle.query, s)] for s in range(count)])

    def bias(oracle: Oracle, m: Any, q: Tensor, count: int) -> Tensor:
        known = rows(oracle, m.relative.key_table, count)
        oracle.arrays["a of keys"] = known
        return torch.stack([known @ q[h, oracle.query] / math.sqrt(m.head_width) for h in range(m.heads)])

    def values(oracle: Oracle) -> Tensor:
        return rows(oracle, oracle.stack[oracle.number].attention.relative.value_table, oracle.ids.size(1))

    return {"bias": bias, "value rows": values}


LANGUAGE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpt2": ({**BLOCKS, "kind": "gpt2"}, {"positions": "learned"}),
    "gpt1": ({**BLOCKS, "kind": "gpt1"}, {"positions": "learned"}),
    "llama": ({**LLAMA, "rotary_scale": 2.0, "rotary_base": 500.0}, {}),
    "alibi": ({**BLOCKS, "kind": "gpt2", "positions": "alibi", "heads": 4}, {"bias": alibi}),
    "t5": ({**BLOCKS, "kind": "gpt2", "positions": "t5"}, {"bias": t5_causal}),
    "shaw": ({**BLOCKS, "kind": "gpt2", "positions": "shaw", "reach": 2}, shaw(2, True)),
    "band": ({**BLOCKS, "kind": "gpt3", "band": 3}, {"positions": "learned", "sees": lambda t, s: s > t - 3}),
    "window": (
        {**BLOCKS, "kind": "gpt2", "attention": {"kind": "window", "reach": 2}},
        {"positions": "learned", "sees": lambda t, s: s >= t - 2},
    ),
}


@pytest.mark.parametrize("name", LANGUAGE)
@pytest.mark.parametrize("query", [3, None])
def test_every_number_of_a_language_model(name: str, query: int | None) -> None:
    model, known = LANGUAGE[name]
    predictor = predictor_of("generate", model)
    found = walk(predictor, TEXT, layer=1, head=2, query=query)
    assert found.about["query"] == (6 if query is None else 3) and found.about["role"] == "causal"
    agree(
        found,
        Oracle(predictor, found, predictor.model.tokens, begun(predictor, TEXT), predictor.model.blocks, **known).all(),
    )
    check_lines(found)
    assert found.difference < 1e-9


def test_grouped_heads_are_told() -> None:
    predictor = predictor_of("generate", LLAMA)
    text = " ".join(step.text for step in walk(predictor, TEXT, head=3).steps)
    assert "shares key-value head 1 with 1 other head" in text


def test_later_tokens_are_masked_and_said() -> None:
    predictor = predictor_of("generate", {**BLOCKS, "kind": "gpt3", "band": 2})
    found = walk(predictor, TEXT, layer=1, query=3)
    step = next(step for step in found.steps if step.title.startswith("Mask"))
    assert step.arrays[-1].remarks == ("outside the window",) * 2 + ("",) * 2 + ("later than the query",) * 3
    assert "3 keys later than the query" in step.text and np.isinf(found["masked scores"]).sum() == 5
    assert (found["weights"][[0, 1, 4, 5, 6], 0] == 0).all()


# --- Both sides: BERT, and classifiers


BOTH: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "post": ({"norm": "post"}, {"positions": "learned", "normed": True}),
    "pre": ({"norm": "pre", "positions": "sinusoidal"}, {"positions": "sinusoidal"}),
    "rotary": ({"norm": "pre", "positions": "rotary", "heads": 2}, {}),
    "t5": ({"norm": "pre", "positions": "t5"}, {"bias": t5_both}),
    "shaw": ({"norm": "post", "positions": "shaw", "reach": 2}, {**shaw(2, False), "normed": True}),
}


@pytest.mark.parametrize("name", BOTH)
def test_every_number_of_a_model_that_fills_gaps(name: str) -> None:
    more, known = BOTH[name]
    predictor = predictor_of("fill", {**BLOCKS, "kind": "bert", **more})
    found = walk(predictor, TEXT, layer=2, head=1, query="cat")
    ids = framed(predictor, TEXT)
    encoder = predictor.model.encoder
    arrays = Oracle(predictor, found, encoder.tokens, ids, encoder.blocks, segments=[0] * len(ids), **known).all()
    agree(found, arrays)
    check_lines(found)
    assert found.about["token"].strip() == "cat" and found.difference < 1e-9


def test_every_number_of_a_classifier_of_pairs() -> None:
    predictor = predictor_of("classify", {**BLOCKS, "kind": "bert"})
    found = walk(predictor, TEXT, OTHER, layer=0, head=0, query=9)
    ids = [*framed(predictor, TEXT), *predictor.tokenizer.encode(OTHER), predictor.tokenizer.specials.end]
    segments = [0] * (len(predictor.tokenizer.encode(TEXT)) + 2) + [1] * (len(predictor.tokenizer.encode(OTHER)) + 1)
    encoder = predictor.model.encoder
    known = {"positions": "learned", "normed": True, "segments": segments}
    agree(found, Oracle(predictor, found, encoder.tokens, ids, encoder.blocks, **known).all())
    assert found.difference < 1e-9


def test_every_number_of_one_layer_without_a_block() -> None:
    """The classifier of one self-attention has no norm and no residual around it."""
    predictor = predictor_of("classify", {"kind": "self-attention", "width": 12, "heads": 3, "dropout": 0.0})
    found = walk(predictor, TEXT, head=1, query=2)
    oracle = Oracle(
        predictor, found, predictor.model.tokens, framed(predictor, TEXT), [], scaled=True, positions="sinusoidal"
    )
    with torch.no_grad():
        oracle.attend(predictor.model.attention, oracle.embed(), None)
    agree(found, oracle.arrays)
    assert found.difference < 1e-9


# --- What a person asks for


def test_in_single_precision_the_difference_is_that_of_rounding() -> None:
    predictor = predictor_of("generate", LLAMA, torch.float32)
    found = walk(predictor, TEXT)
    assert 0 < found.difference < 1e-5
    exact = walk(predictor_of("generate", LLAMA), TEXT, head=found.about["head"])
    np.testing.assert_allclose(found["weights"], exact["weights"], atol=1e-4)


def test_defaults_are_the_last_layer_the_sharpest_head_and_the_last_word() -> None:
    predictor = predictor_of("translate", PAIR)
    found = walk(predictor, TEXT, OTHER)
    about = found.about
    assert (about["role"], about["layer"], about["token"].strip()) == ("cross", 2, "katze")
    sharpest = [walk(predictor, TEXT, OTHER, head=head)["weights"].max() for head in range(3)]
    assert about["head"] == int(np.argmax(sharpest))
    own = walk(predictor, TEXT)  # the translation that the model writes itself
    assert own.about["keys"] == found.about["keys"] and own.difference < 1e-9


LABELS = ("<s>", " a", " bi", "cycle", " rides", " A", ".", "</s>")


@pytest.mark.parametrize(
    ("query", "place"),
    [(None, 6), ("bicycle", 3), ("a", 1), ("A", 5), (2, 2), ("2", 2), (-1, 7), ("Rides", 4), ("bi", 2)],
)
def test_a_query_is_a_number_or_a_word(query: int | str | None, place: int) -> None:
    assert query_place(LABELS, query) == place


def test_an_unknown_query_is_told_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"no query dog; it is a number from 0 to 7 or a word of: .*3 bicycle"):
        query_place(LABELS, "dog")
    with pytest.raises(UsageError, match="no query 8"):
        query_place(LABELS, 8)


@pytest.mark.parametrize(
    ("task", "model", "given", "message"),
    [
        (
            "generate",
            {**BLOCKS, "kind": "gpt2"},
            {"layer": 3},
            "no layer 3; causal self-attention has 3, numbered from 0 to 2",
        ),
        ("generate", {**BLOCKS, "kind": "gpt2"}, {"head": 3}, "no head 3; layer 2 has 3"),
        ("generate", {**BLOCKS, "kind": "gpt2"}, {"role": "cross"}, "no cross attention; choose role='causal'"),
        ("generate", {**BLOCKS, "kind": "gpt2"}, {"second": "x"}, "a second text is for"),
        ("generate", {"kind": "lstm", "width": 8, "hidden": 9}, {}, "regard walk --toy"),
        (
            "generate",
            {**BLOCKS, "kind": "gpt2", "attention": "performer"},
            {},
            "performer attention does not score every key",
        ),
        ("generate", {**BLOCKS, "kind": "gpt2", "attention": "s4d", "positions": "none"}, {}, "regard walk --toy"),
        ("classify", {"kind": "tfidf"}, {}, "regard walk --toy"),
    ],
)
def test_what_cannot_be_walked_says_so(task: str, model: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        walk(predictor_of(task, model), TEXT, **given)


def test_a_look_at_another_text_says_that_positions_are_told_elsewhere() -> None:
    predictor = predictor_of("translate", {**PAIR, "positions": "rotary", "heads": 2})
    told = {role: walk(predictor, TEXT, OTHER, role=role).steps[1].text for role in ("cross", "causal")}
    assert "not in a look at another" in told["cross"] and "turns queries and keys" in told["causal"]


def test_an_empty_text_is_told() -> None:
    with pytest.raises(UsageError, match="the text is empty"):
        walk(predictor_of("generate", {**BLOCKS, "kind": "gpt2"}), " ")


def test_reasons_are_read_from_the_mask() -> None:
    """Padding cannot be reached from one text, so the mask is made by hand."""
    q, k = torch.zeros(1, 1, 4, 3), torch.zeros(1, 1, 7, 3)
    mask = Causal(2) & Lengths(torch.tensor([5])) & Window(2, 2)
    call = AttentionCall("a", "causal", q, k, k, q, mask)
    padding = "of padding, behind the text's end"
    assert reasons_of(call, 3) == ("outside the band", "", "", "", "", padding, "later than the query")
