"""Decoding step by step is the same as reading the whole sequence at once, through any turn a search may take."""

from __future__ import annotations

import random
import threading
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Causal, Lengths, MultiHead, StepCache
from regard.blocks import Block, FeedForward, Residual, make_norm
from regard.data.batch import PairBatch
from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

SOURCES, TARGETS = 19, 31
BEGIN, END, PAD = 1, 2, 0
LENGTHS = [7, 3, 5, 1, 11]


def build(**changes: Any) -> Transformer:
    torch.manual_seed(7)
    config: dict[str, Any] = {
        "encoder_layers": 1, "decoder_layers": 2, "width": 15, "heads": 3, "feed_forward": 23, "dropout": 0.1,
        "tied": "none", "max_length": 53,
    }  # fmt: skip
    model = Transformer(TransformerConfig(**config | changes), SOURCES, TARGETS).double().eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)
    return model


def sources() -> tuple[Tensor, Tensor]:
    ids = torch.randint(3, SOURCES, (5, 11), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor(LENGTHS)
    return ids.masked_fill(torch.arange(11) >= lengths[:, None], PAD), lengths


def taught(model: Transformer, source: list[int], sequence: list[int]) -> Tensor:
    """Logits after each token of `sequence`, alone and read at once: (T, V)."""
    target = torch.tensor([[*sequence, END]])
    batch = PairBatch(
        torch.tensor([source]), torch.tensor([len(source)]), target, torch.tensor([len(sequence)]), len(sequence)
    )
    return model.logits(batch)[0]


@torch.no_grad()
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "post", "activation": "gelu"}, {"positions": "learned", "heads": 5}, {"positions": "none"}],
    ids=str,
)
def test_any_walk_of_steps_gives_the_logits_of_the_whole_sequence(changes: dict[str, Any], seed: int) -> None:
    """Five sources of different lengths, beams of changing width, parents and survivors drawn at random."""
    model, dice = build(**changes), random.Random(seed)
    ids, lengths = sources()
    rows = list(range(5))  # which source stands in each row
    prefix = torch.tensor([[BEGIN] + [dice.randrange(TARGETS) for _ in range(seed)] for _ in rows])
    read = [[row] for row in prefix.tolist()]  # [row][hypothesis]: all tokens so far
    logits, state = model.start((ids, lengths), prefix)
    for _ in range(9):
        assert logits.shape == (len(rows), len(read[0]), TARGETS)
        for b, row in enumerate(rows):
            for w, sequence in enumerate(read[b]):
                expected = taught(model, ids[row, : LENGTHS[row]].tolist(), sequence)[-1]
                assert torch.allclose(logits[b, w], expected, rtol=0, atol=1e-10)
        if len(rows) > 1 and dice.random() < 0.35:
            stay = sorted(dice.sample(range(len(rows)), dice.randrange(1, len(rows))))
            rows, read = [rows[b] for b in stay], [read[b] for b in stay]
            state = model.keep(state, torch.tensor(stay))
        if dice.random() < 0.7:
            width = dice.choice([1, 2, 3])
            parents = [[dice.randrange(len(read[0])) for _ in range(width)] for _ in rows]
            read = [[read[b][w] for w in chosen] for b, chosen in enumerate(parents)]
            state = model.reorder(state, torch.tensor(parents))
        tokens = [[dice.randrange(TARGETS) for _ in row] for row in read]
        read = [[[*old, token] for old, token in zip(*pair, strict=True)] for pair in zip(read, tokens, strict=True)]
        logits, state = model.step(torch.tensor(tokens), state)


@torch.no_grad()
def test_every_position_of_a_long_sequence() -> None:
    """Past the 32 positions that a cache begins with, and past twice as many; reordered where it is about to grow."""
    model, (ids, lengths) = build(), sources()
    sequence = torch.randint(TARGETS, (5, 67), generator=torch.Generator().manual_seed(2))
    expected = model.decode(sequence, model.encode(ids, lengths))
    logits, state = model.start((ids, lengths), sequence[:, :1])
    for t in range(67):
        assert torch.allclose(logits[:, 0], model.output(expected[:, t]), rtol=0, atol=1e-10), t
        if t in (30, 31, 32, 63):
            state = model.reorder(state, torch.zeros(5, 1, dtype=torch.long))
        if t < 66:
            logits, state = model.step(sequence[:, t + 1, None], state)


@torch.no_grad()
def test_a_long_prefix_is_read_whole() -> None:
    model, (ids, lengths) = build(), sources()
    prefix = torch.randint(TARGETS, (5, 13), generator=torch.Generator().manual_seed(3))
    logits, state = model.start((ids, lengths), prefix)
    expected = model.output(model.decode(prefix, model.encode(ids, lengths)))[:, -1:]
    assert torch.allclose(logits, expected, rtol=0, atol=1e-10)
    assert state.read == 13


@torch.no_grad()
def test_two_decodings_of_one_model_do_not_disturb_each_other() -> None:
    """State is passed, never stored: steps of two requests in turn give what each gives alone."""
    model, (ids, lengths) = build(), sources()

    def steps(rows: list[int], tokens: list[int]) -> Any:
        logits, state = model.start((ids[rows], lengths[rows]), torch.full((len(rows), 1), BEGIN))
        yield logits
        for token in tokens:
            logits, state = model.step(torch.full((len(rows), 1), token), state)
            yield logits

    alone = [list(steps([0, 2], [4, 5, 6])), list(steps([1, 3, 4], [9, 8, 7]))]
    for first, second, *expected in zip(steps([0, 2], [4, 5, 6]), steps([1, 3, 4], [9, 8, 7]), *alone, strict=True):
        assert torch.equal(first, expected[0])
        assert torch.equal(second, expected[1])


@torch.no_grad()
def test_the_memory_is_projected_once_and_never_tiled() -> None:
    """A wider beam copies its own past only; the keys of the source are the same tensor."""
    model, (ids, lengths) = build(), sources()
    _, state = model.start((ids, lengths), torch.full((5, 1), BEGIN))
    wide = model.reorder(state, torch.zeros(5, 3, dtype=torch.long))
    for before, after in zip(state.blocks, wide.blocks, strict=True):
        assert before.memory is not None
        assert after.memory is before.memory
        assert len(after.memory.keys) == 5
        assert len(after.own.keys) == 15


@torch.no_grad()
def test_reordering_leaves_the_old_state_alone() -> None:
    """Two beams may go on from one state, as long as it is copied before it is consumed."""
    model, (ids, lengths) = build(), sources()
    first, state = model.start((ids, lengths), torch.full((5, 1), BEGIN))
    stay = torch.zeros(5, 1, dtype=torch.long)
    copies = [model.reorder(state, stay), model.reorder(state, stay)]
    model.step(torch.full((5, 1), 5), copies[0])
    again, _ = model.step(torch.full((5, 1), 7), copies[1])
    alone, _ = model.step(torch.full((5, 1), 7), state)
    assert torch.equal(again, alone)
    assert first.shape == (5, 1, TARGETS)


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_a_block_with_grouped_heads_steps_as_it_reads(groups: int) -> None:
    torch.manual_seed(groups)
    own, cross = (MultiHead(66, 6, role=role, groups=groups) for role in ("causal", "cross"))
    around = partial(Residual, rate=0.0, order="pre")
    block = Block(own, cross, FeedForward(66, 23), lambda: around(make_norm("layer", 66))).double()
    x, memory, mask = torch.randn(2, 5, 66).double(), torch.randn(2, 7, 66).double(), Lengths(torch.tensor([4, 7]))
    expected = block(x, Causal(), memory, mask)
    state = block.start(memory, mask, x)
    assert state.own.keys.size(1) == groups
    for t in range(5):
        assert torch.allclose(block.step(x[:, t : t + 1], state), expected[:, t : t + 1], rtol=0, atol=1e-12)


def test_a_cache_is_a_list_of_what_was_appended() -> None:
    """Any number of positions at a time, beyond its first room, with rows chosen in between."""
    dice, generator = random.Random(3), torch.Generator().manual_seed(3)
    cache, kept = StepCache.empty(3, 2, 5, torch.zeros(1), room=2), torch.zeros(2, 3, 2, 0, 5)
    for _ in range(11):
        new = torch.randn(2, kept.size(1), 2, dice.choice([1, 1, 2, 7]), 5, generator=generator)
        cache.append(*new)
        kept = torch.cat([kept, new], dim=3)
        if dice.random() < 0.5:
            rows = torch.tensor([dice.randrange(kept.size(1)) for _ in range(dice.choice([1, 3, 4]))])
            cache, kept = cache.select(rows), kept[:, rows]
        assert torch.equal(torch.stack(cache.seen()), kept)
        assert cache.filled == kept.size(3)


# --- Through the search


def search(model: Transformer, rows: list[int], **options: Any) -> list:
    ids, lengths = sources()
    return generate(
        model,
        (ids[rows], lengths[rows]),
        torch.full((len(rows), 1), BEGIN),
        end=END,
        limits=[6 + LENGTHS[row] for row in rows],
        options=DecodeConfig(**options),
        forbidden=(PAD, BEGIN),
        streams=rows,
    )


@torch.no_grad()
def test_greedy_search_is_the_most_likely_token_each_time() -> None:
    model, (ids, _) = build(), sources()
    for row, (found,) in enumerate(search(model, [0, 1, 2, 3, 4], beam=1)):
        source, sequence = ids[row, : LENGTHS[row]].tolist(), [BEGIN]
        while len(sequence) <= 6 + LENGTHS[row]:
            logits = taught(model, source, sequence)[-1]
            logits[[PAD, BEGIN]] = -torch.inf
            if (token := int(logits.argmax())) == END:
                break
            sequence.append(token)
        assert list(found.ids) == sequence[1:]


@torch.no_grad()
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 5, "n_best": 3}, {"sample": True, "n_best": 3}], ids=str)
def test_what_a_search_reports_is_what_the_model_says(options: dict[str, Any]) -> None:
    """Log-probabilities collected step by step are those of teacher forcing, and sources do not see each other."""
    model, (ids, _) = build(), sources()
    together = search(model, [0, 1, 2, 3, 4], **options)
    for row, hypotheses in enumerate(together):
        assert len(hypotheses) == options.get("n_best", 1)
        for found in hypotheses:
            sequence = [BEGIN, *found.ids]
            logs = taught(model, ids[row, : LENGTHS[row]].tolist(), sequence).log_softmax(dim=-1)
            expected = [logs[t, token].item() for t, token in enumerate([*found.ids, END])]
            assert list(found.token_log_probabilities) == pytest.approx(expected, abs=1e-10)
            assert found.log_probability == pytest.approx(sum(expected), abs=1e-9)
        (alone,) = search(model, [row], **options)
        assert [found.ids for found in alone] == [found.ids for found in hypotheses]


def test_one_model_serves_many_threads() -> None:
    model = build()
    expected = {row: search(model, [row], beam=3) for row in range(5)}
    found: dict[int, list] = {}
    threads = [threading.Thread(target=lambda r=row: found.update({r: search(model, [r], beam=3)})) for row in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
