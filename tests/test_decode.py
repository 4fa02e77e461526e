"""Greedy and beam search, and what holds for every search, against plain enumeration and a search written on lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.decode.config import DecodeConfig
from regard.decode.live import Live
from regard.decode.ranking import Hypothesis
from regard.decode.search import generate
from regard.errors import RegardError

VOCABULARY, END, BEGIN = 5, 2, 4
STATES = 9973  # rows of the toy's table
TABLE = torch.randn(STATES, VOCABULARY, generator=torch.Generator().manual_seed(7), dtype=torch.float64) * 1.5


def state_of(source: int, sequence: Sequence[int]) -> int:
    """Which row of the table a source and a whole sequence (with prefix) lead to."""
    number = 101 * (source + 1)
    for token in sequence:
        number = (number * 31 + token + 1) % STATES
    return number


@dataclass
class ToyState:
    sources: Tensor  # (B,)
    ids: Tensor  # (B, W, T)
    used: bool = False


@dataclass
class Toy:
    """A stepper whose logits depend on the source and on every token so far; its state is the sequences themselves."""

    table: Tensor = field(default_factory=lambda: TABLE)
    rows: list[int] = field(default_factory=list)  # sources in each step
    widths: list[int] = field(default_factory=list)  # hypotheses in each step
    calls: list[str] = field(default_factory=list)
    longest: int | None = None

    def start(self, source: Tensor, prefix: Tensor) -> tuple[Tensor, ToyState]:
        state = ToyState(source, prefix[:, None])
        return self._logits(state), state

    def step(self, ids: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        self._use(state, "step")
        assert ids.shape == state.ids.shape[:2]
        self.rows.append(ids.size(0))
        self.widths.append(ids.size(1))
        state = ToyState(state.sources, torch.cat([state.ids, ids[..., None]], dim=2))
        return self._logits(state), state

    def reorder(self, state: ToyState, parents: Tensor) -> ToyState:
        self._use(state, "reorder")
        return ToyState(state.sources, state.ids[torch.arange(len(parents))[:, None], parents])

    def keep(self, state: ToyState, rows: Tensor) -> ToyState:
        self._use(state, "keep")
        assert 0 < len(rows) < len(state.sources), "keep is for when some leave and some stay"
        return ToyState(state.sources[rows], state.ids[rows])

    def _use(self, state: ToyState, call: str) -> None:
        assert not state.used, "a consumed state was used again"
        state.used = True
        self.calls.append(call)

    def _logits(self, state: ToyState) -> Tensor:
        numbers = [
            [state_of(source, sequence) for sequence in sequences]
            for source, sequences in zip(state.sources.tolist(), state.ids.tolist(), strict=True)
        ]
        return self.table[torch.tensor(numbers)]  # (B, W, V)


def run(options: DecodeConfig, sources: Sequence[int], limits: Sequence[int], **more: object) -> list[list[Hypothesis]]:
    toy = more.pop("toy", None) or Toy()
    prefix = torch.tensor([[BEGIN, 3]] * len(sources))
    return generate(toy, torch.tensor(sources), prefix, end=END, limits=limits, options=options, **more)  # type: ignore[arg-type]


def test_each_of_several_ends_ends_a_sequence() -> None:
    """Greedy by hand, and a beam as wide as everything against all sequences, each of which may end in either way."""
    other = 4
    for source in range(3):
        (greedy,) = run(DecodeConfig(beam=1), [source], [5], also_end=[other])[0]
        ids: list[int] = []
        while len(ids) < 5 and (best := int(np.argmax(log_probs_after(source, ids)))) not in (END, other):
            ids.append(best)
        assert greedy.ids == tuple(ids)
        if len(ids) < 5:
            assert greedy.token_log_probabilities[-1] == pytest.approx(max(log_probs_after(source, ids)))
        options = DecodeConfig(beam=VOCABULARY**3, n_best=7, length_penalty="none")
        tokens = [token for token in range(VOCABULARY) if token not in (END, other)]
        totals = []
        for so_far, parts in every_sequence(source, 3, tokens):
            ways = (END, other) if len(so_far) < 3 else (END,)  # at the limit, the end itself is forced
            totals += [sum(parts[:-1]) + log_probs_after(source, so_far)[end] for end in ways]
        found = run(options, [source], [3], also_end=[other])[0]
        assert [each.log_probability for each in found] == pytest.approx(sorted(totals, reverse=True)[:7])
        late = run(DecodeConfig(min_length=3), [source], [5], also_end=[other])[0][0]
        assert len(late.ids) >= 3 and other not in late.ids


# -- oracles: enumeration, and a beam search on lists that never stops before the limit ----------------------------


def log_probs_after(source: int, sequence: Sequence[int]) -> list[float]:
    row = TABLE[state_of(source, [BEGIN, 3, *sequence])].tolist()
    norm = math.log(sum(math.exp(value) for value in row))
    return [value - norm for value in row]


def penalty_of(options: DecodeConfig) -> Callable[[int], float]:
    kind, alpha = options.length_penalty, options.alpha
    return {
        "gnmt": lambda length: (5 + length) ** alpha / 6**alpha,
        "power": lambda length: length**alpha,
        "none": lambda length: 1.0,
    }[kind]


def every_sequence(source: int, limit: int, tokens: Sequence[int], so_far: tuple[int, ...] = ()) -> Iterator[tuple]:
    """Every (ids, log-probabilities with that of the end)."""
    after = log_probs_after(source, so_far)
    yield so_far, [after[END]]
    if len(so_far) < limit:
        for token in tokens:
            for ids, rest in every_sequence(source, limit, tokens, (*so_far, token)):
                yield ids, [after[token], *rest]


def exhaustive(source: int, limit: int, options: DecodeConfig, forbidden: Sequence[int] = ()) -> list[Hypothesis]:
    """The n best of all sequences."""
    tokens = [token for token in range(VOCABULARY) if token != END and token not in forbidden]
    penalty, found = penalty_of(options), []
    for ids, parts in every_sequence(source, limit, tokens):
        if len(ids) >= options.min_length:
            willing = len(ids) < limit or max([*tokens, END], key=log_probs_after(source, ids).__getitem__) == END
            found.append(Hypothesis(ids, sum(parts) / penalty(len(ids) + 1), sum(parts), tuple(parts), willing))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)[: options.n_best]


def beam_on_lists(source: int, limit: int, options: DecodeConfig) -> list[Hypothesis]:
    """Beam search as a person would write it down, without any bound; `early` stops at `beam` ended sequences."""
    live: list[tuple[float, tuple[int, ...], tuple[float, ...]]] = [(0.0, (), ())]
    ended: list[Hypothesis] = []
    for length in range(limit + 1):
        candidates = []
        for total, ids, parts in live:
            after = log_probs_after(source, ids)
            for token in range(VOCABULARY):
                if (token != END) if length == limit else (token == END and length < options.min_length):
                    continue
                candidates.append((total + after[token], (*ids, token), (*parts, after[token])))
        candidates.sort(key=lambda candidate: -candidate[0])
        for total, ids, parts in candidates[: options.beam]:
            if ids[-1] == END:
                first = parts[-1] == max(log_probs_after(source, ids[:-1])) and length >= options.min_length
                score = total / penalty_of(options)(length + 1)
                ended.append(Hypothesis(ids[:-1], score, total, parts, finished=first or length < limit))
        live = [candidate for candidate in candidates if candidate[1][-1] != END][: options.beam]
        if options.stopping == "early" and len(ended) >= options.beam:
            break
    return sorted(ended, key=lambda hypothesis: -hypothesis.score)[: options.n_best]


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [hypothesis.ids for hypothesis in found] == [hypothesis.ids for hypothesis in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-12)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-12)
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-12)
        assert one.finished == other.finished


# -- beam search -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length_penalty", "alpha"),
    [("none", 0.6), ("gnmt", 0.0), ("gnmt", 0.6), ("gnmt", 2.3), ("power", 0.5), ("power", 1.0), ("power", 3.0)],
)
def test_wide_beam_is_exhaustive_search(length_penalty: str, alpha: float) -> None:
    options = DecodeConfig(beam=1365, n_best=7, length_penalty=length_penalty, alpha=alpha)  # 4^0 + ... + 4^5 sequences
    limits = [3, 5, 2]
    found = run(options, [0, 1, 2], limits)
    for source, limit in enumerate(limits):
        assert_same(found[source], exhaustive(source, limit, options))


def test_wide_beam_is_exhaustive_with_min_length_and_forbidden_ids() -> None:
    options = DecodeConfig(beam=1365, n_best=11, min_length=2)
    forbidden = [0, BEGIN]
    found = run(options, [3, 4], [4, 5], forbidden=forbidden)
    for row, (source, limit) in enumerate([(3, 4), (4, 5)]):
        assert_same(found[row], exhaustive(source, limit, options, forbidden))
        assert all(len(h.ids) >= 2 and not set(forbidden) & set(h.ids) for h in found[row])


def test_all_sequences_are_returned_when_asked_for() -> None:
    """n_best reaches past the number of sequences: all 21 of at most 2 tokens, each once, of total probability < 1."""
    found = run(DecodeConfig(beam=101, n_best=101), [5], [2])[0]
    assert len({hypothesis.ids for hypothesis in found}) == len(found) == 1 + 4 + 16
    assert sum(math.exp(hypothesis.log_probability) for hypothesis in found) < 1


@settings(max_examples=60, deadline=None)
@given(
    beam=st.integers(2, 7),
    n_best=st.integers(1, 7),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    length_penalty=st.sampled_from(["gnmt", "power", "none"]),
    stopping=st.sampled_from(["exact", "early"]),
    min_length=st.integers(0, 3),
    sources=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 11)), min_size=1, max_size=5),
)
def test_beam_agrees_with_a_search_without_bound(
    beam: int, n_best: int, sources: list[tuple[int, int]], **more: object
) -> None:
    """Dropping hypotheses that cannot win, and sources that are done, changes nothing at any width."""
    options = DecodeConfig(beam=beam, n_best=min(n_best, beam), **more)
    found = run(options, [source for source, _ in sources], [limit for _, limit in sources])
    for hypotheses, (source, limit) in zip(found, sources, strict=True):
        assert_same(hypotheses, beam_on_lists(source, limit, options))


def test_beam_starts_with_the_first_logits_and_narrows() -> None:
    """The first step already has more than one hypothesis of each source, and no more than the vocabulary gives."""
    toy = Toy()
    run(DecodeConfig(beam=13, length_penalty="none", min_length=2), [0, 1, 2], [11, 11, 11], toy=toy)
    assert toy.widths[0] == VOCABULARY - 1
    assert max(toy.widths) == 13
    assert toy.widths[-1] < 13  # what cannot win any more is not computed


def test_equals_are_broken_by_hypothesis_then_by_id() -> None:
    flat = Toy(torch.zeros(STATES, VOCABULARY, dtype=torch.float64))
    found = run(DecodeConfig(beam=7, n_best=7, length_penalty="none"), [0], [2], toy=flat)[0]
    # At the first step 0, 1, END, 3, 4 in this order; at the second 0 goes on first, then 1, and no END is early enough
    # but that of 0, which stands third; the rest ends at the limit.
    assert [hypothesis.ids for hypothesis in found] == [(), (0,), (0, 0), (0, 1), (0, 3), (0, 4), (1, 0)]


# -- greedy search ---------------------------------------------------------------------------------------------------


def greedy_on_lists(source: int, limit: int) -> Hypothesis:
    ids: list[int] = []
    parts: list[float] = []
    while True:
        after = log_probs_after(source, ids)
        best = after.index(max(after))
        if best == END or len(ids) == limit:
            parts.append(after[END])
            score = sum(parts) / ((5 + len(parts)) / 6) ** 0.6
            return Hypothesis(tuple(ids), score, sum(parts), tuple(parts), best == END)
        ids.append(best)
        parts.append(after[best])


def test_greedy_is_the_argmax_at_each_step() -> None:
    sources, limits = list(range(23)), [7] * 22 + [0]
    found = run(DecodeConfig(beam=1), sources, limits)
    expected = [greedy_on_lists(source, limit) for source, limit in zip(sources, limits, strict=True)]
    for hypotheses, wanted in zip(found, expected, strict=True):
        assert_same(hypotheses, [wanted])
    assert {hypothesis.finished for hypothesis in expected} == {True, False}  # the limit cut some of them


def test_a_beam_of_one_without_penalty_is_greedy() -> None:
    for source in range(17):
        options = DecodeConfig(beam=1, length_penalty="none")
        assert_same(run(options, [source], [5])[0], beam_on_lists(source, 5, options))


def test_greedy_never_reorders() -> None:
    toy = Toy()
    run(DecodeConfig(beam=1), list(range(11)), [7] * 11, toy=toy)
    assert set(toy.calls) == {"step", "keep"}


# -- every search ----------------------------------------------------------------------------------------------------

SEARCHES = {
    "greedy": DecodeConfig(beam=1),
    "beam": DecodeConfig(beam=3, n_best=2),
    "sample": DecodeConfig(sample=True, n_best=3, seed=5),
    "top": DecodeConfig(sample=True, top_k=4, top_p=0.9, temperature=0.7, n_best=2),
}


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_batched_is_single(options: DecodeConfig) -> None:
    sources, limits = [19, 3, 11, 8, 2, 29, 5], [7, 2, 13, 11, 0, 5, 3]
    toy = Toy()
    together = run(options, sources, limits, toy=toy, streams=sources)
    alone = []
    steps = 0
    for source, limit in zip(sources, limits, strict=True):
        single = Toy()
        alone += run(options, [source], [limit], toy=single, streams=[source])
        steps += len(single.rows)
    assert together == alone  # bit for bit
    assert toy.rows[0] > toy.rows[-1]
    assert sum(toy.rows) == steps  # a source is in the batch exactly as long as it would run alone


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_log_probabilities_are_those_of_the_model(options: DecodeConfig) -> None:
    """Also under a temperature and filters: the same numbers as reading the sequence with the model."""
    for source, hypotheses in enumerate(run(options, [0, 1, 2], [5, 7, 11], forbidden=[BEGIN])):
        for found in hypotheses:
            so_far = [found.ids[:i] for i in range(len(found.ids) + 1)]
            expected = [
                log_probs_after(source, before)[token] for before, token in zip(so_far, [*found.ids, END], strict=True)
            ]
            assert found.token_log_probabilities == pytest.approx(expected, abs=1e-12)
            assert found.log_probability == sum(found.token_log_probabilities)
            assert found.score == pytest.approx(found.log_probability / ((6 + len(found.ids)) / 6) ** 0.6, abs=1e-12)


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_lengths_and_forbidden_ids_hold(options: DecodeConfig) -> None:
    limits = [2, 3, 5, 7, 11] * 5
    found = run(options.model_copy(update={"min_length": 3}), list(range(25)), limits, forbidden=[0, BEGIN])
    for limit, hypotheses in zip(limits, found, strict=True):
        assert len(hypotheses) == options.n_best
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypothesis in hypotheses:
            assert min(3, limit) <= len(hypothesis.ids) <= limit  # where both cannot be, the limit counts
            assert not {0, BEGIN, END} & set(hypothesis.ids)
            assert hypothesis.finished or len(hypothesis.ids) == limit


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_nothing_is_written_that_the_stepper_cannot_read_again(options: DecodeConfig) -> None:
    """Limits of 2 S + 20 tokens went past a table of learned positions. A prefix of 1 and 6 tokens more are 7."""
    toy = Toy(longest=7)
    prefix = torch.full((2, 1), BEGIN)
    source = torch.arange(2)
    found = generate(toy, source, prefix, end=END, limits=[3, 50], options=options, forbidden=[END])
    assert [{len(each.ids) for each in hypotheses} for hypotheses in found] == [{3}, {6}]
    assert len(toy.rows) == 6  # steps: each of the tokens was read


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_end_forbidden_runs_to_the_limit(options: DecodeConfig) -> None:
    for hypotheses in run(options, [0, 1], [7, 7], forbidden=[END]):
        assert all(len(hypothesis.ids) == 7 and not hypothesis.finished for hypothesis in hypotheses)


def test_greedy_search_that_nobody_asks_for_scores_finds_the_same_and_reads_no_token_to_score_an_end() -> None:
    sources, limits = list(range(12)), [0, 1, 6, 6, 6, 6, 9, 9, 9, 9, 9, 9]
    scored, plain = Toy(), Toy()
    expected = run(DecodeConfig(beam=1), sources, limits, toy=scored)
    found = run(DecodeConfig(beam=1, scores=False), sources, limits, toy=plain)
    assert [one.ids for (one,) in found] == [one.ids for (one,) in expected]
    assert {len(one.ids) == limit for (one,), limit in zip(found, limits, strict=True)} == {True, False}
    for (one,) in found:
        assert math.isnan(one.score) and math.isnan(one.log_probability)
        assert len(one.token_log_probabilities) == len(one.ids) + 1
    assert len(plain.rows) == len(scored.rows) - 1  # of the last step nothing was wanted but the end's score
    assert sum(plain.rows) < sum(scored.rows)


def test_scores_are_computed_where_a_search_chooses_by_them() -> None:
    for options in (DecodeConfig(beam=3), DecodeConfig(sample=True, n_best=2)):
        asked = options.model_copy(update={"scores": False})
        assert run(asked, [1, 2], [6, 6]) == run(options, [1, 2], [6, 6])


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize(
    "options", [*SEARCHES.values(), DecodeConfig(beam=1, scores=False)], ids=[*SEARCHES, "unscored"]
)
def test_nan_is_an_error_that_names_step_and_source(options: DecodeConfig, number: float) -> None:
    class Diverged(Toy):
        def _logits(self, state: ToyState) -> Tensor:
            logits = super()._logits(state)
            broken = (state.sources == 23) & (state.ids.size(2) == 2 + 2)  # two tokens after the prefix
            logits[broken, 0, 1] = number
            return logits

    with pytest.raises(RegardError, match=r"NaN.* at step 3, for source 1"):
        run(options.model_copy(update={"min_length": 5}), [19, 23], [7, 7], toy=Diverged())


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_nothing_allowed_is_an_error(options: DecodeConfig) -> None:
    with pytest.raises(RegardError, match="at step 1 source 0 has no token to go on with"):
        run(options.model_copy(update={"min_length": 1}), [0], [7], forbidden=[0, 1, 3, 4])


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_constraints_see_the_tokens_so_far(options: DecodeConfig) -> None:
    """A rule of one's own: no token twice in a row."""

    def no_echo(logits: Tensor, live: Live) -> Tensor:
        if live.length == 0:
            return logits
        return logits.scatter(-1, torch.from_numpy(live.ids[:, :, -1:]), -math.inf)

    for hypotheses in run(options, list(range(13)), [11] * 13, constraints=[no_echo], forbidden=[END]):
        for hypothesis in hypotheses:
            assert all(one != other for one, other in zip(hypothesis.ids, hypothesis.ids[1:], strict=False))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_low_precision_logits_are_normalised_in_float32(options: DecodeConfig, dtype: torch.dtype) -> None:
    found = run(options, [0, 1], [5, 7], toy=Toy(TABLE.to(dtype)))
    same = run(options, [0, 1], [5, 7], toy=Toy(TABLE.to(dtype).float()))
    assert found == same


def test_samples_do_not_depend_on_the_batch() -> None:
    options = SEARCHES["sample"]
    first = run(options, [0, 1, 2], [7, 7, 7], streams=[0, 1, 2])
    turned = run(options, [2, 4, 0, 1], [7, 7, 7, 7], streams=[2, 4, 0, 1])
    assert first == [turned[2], turned[3], turned[0]]
    assert first == run(options, [0, 1, 2], [7, 7, 7])  # by default the place in the batch
    assert first != run(options.model_copy(update={"seed": 6}), [0, 1, 2], [7, 7, 7])
    other_stream = run(options, [0, 1, 2], [7, 7, 7], streams=[3, 1, 2])
    assert other_stream[0] != first[0]
    assert other_stream[1:] == first[1:]


def drawn_on_lists(source: int, limit: int, numbers: np.random.Generator) -> tuple[int, ...]:
    ids: list[int] = []
    while True:
        number, after = numbers.random(), log_probs_after(source, ids)
        upto = [sum(math.exp(log_prob) for log_prob in after[: token + 1]) for token in range(VOCABULARY)]
        token = next(token for token in range(VOCABULARY) if upto[token] > number)
        if token == END or len(ids) == limit:
            return tuple(ids)
        ids.append(token)


def test_each_sample_has_its_own_stream_of_numbers() -> None:
    """Also when other samples of the source end before it, and the rest moves up."""
    sources, n = [0, 1, 2, 3, 5, 8], 7
    found = run(DecodeConfig(sample=True, n_best=n, seed=11), sources, [13] * 6, streams=sources)
    for source, hypotheses in zip(sources, found, strict=True):
        streams = [np.random.Generator(np.random.PCG64([11, source, sample])) for sample in range(n)]
        expected = [drawn_on_lists(source, 13, numbers) for numbers in streams]
        assert sorted(hypothesis.ids for hypothesis in hypotheses) == sorted(expected)
        assert len({len(ids) for ids in expected}) > 1


# -- use -------------------------------------------------------------------------------------------------------------


def test_no_source_gives_nothing() -> None:
    options = DecodeConfig()
    assert generate(Toy(), None, torch.zeros(0, 1, dtype=torch.long), end=END, limits=[], options=options) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"limits": [3]}, "2 sources have 1 limits and 2 streams"),
        ({"limits": [3, -1]}, "the least are -1 and 0"),
        ({"streams": [3]}, "2 sources have 2 limits and 1 streams"),
        ({"prefix": torch.tensor([BEGIN, BEGIN])}, r"prefix has shape \(2,\)"),
        ({"end": VOCABULARY}, r"ids \[5\]: not all are under the 5 ids"),
        ({"forbidden": [0, 11]}, r"ids \[2, 0, 11\]: not all are under the 5 ids"),
    ],
)
def test_wrong_use_is_told(more: dict[str, object], message: str) -> None:
    given_ = {
        "prefix": torch.tensor([[BEGIN], [BEGIN]]),
        "end": END,
        "limits": [3, 3],
        "options": DecodeConfig(),
        **more,
    }
    with pytest.raises(RegardError, match=message):
        generate(Toy(), torch.tensor([0, 1]), **given_)  # type: ignore[arg-type]


def test_a_stepper_of_the_wrong_shape_is_told() -> None:
    class Narrow(Toy):
        def step(self, ids: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            logits, state = super().step(ids, state)
            return logits[:, :1], state

    with pytest.raises(RegardError, match=r"gave logits \(2, 1, 5\); expected \(2, 3, vocabulary\)"):
        run(DecodeConfig(beam=3, min_length=2), [0, 1], [5, 5], toy=Narrow())


def test_hypotheses_are_frozen() -> None:
    hypothesis = run(DecodeConfig(), [0], [3])[0][0]
    with pytest.raises(AttributeError):
        hypothesis.score = 0.0  # type: ignore[misc]
    assert replace(hypothesis, score=0.0).ids == hypothesis.ids


class Surprise(Toy):
    """Ends at once with probability 0.37, or else writes a token of 0.1 and from then on is certain, to the limit of 9."""

    def _logits(self, state: ToyState) -> Tensor:
        rows, width, length = state.ids.shape
        logits = torch.full((rows, width, VOCABULARY), -70.0, dtype=torch.float64)
        if length > 2:  # the prefix is 2 long
            logits[..., END if length == 2 + 9 else 1] = 0.0
        else:
            for token, probability in ((END, math.exp(-1)), (1, 0.1), (0, 0.9 - math.exp(-1))):
                logits[..., token] = math.log(probability)
        return logits


@pytest.mark.parametrize("kind", ["gnmt", "power"])
def test_no_bound_on_totals_is_tighter_than_the_penalty_at_the_limit(kind: str) -> None:
    """A hypothesis that is far behind wins at the limit, by the whole of what the bound allows."""
    limit, options = 9, DecodeConfig(beam=2, length_penalty=kind, alpha=1.0, n_best=1)  # type: ignore[arg-type]
    penalty = penalty_of(options)
    worst = math.log(0.1) / penalty(limit + 1)
    assert worst > -1 / penalty(1) > math.log(0.1) / penalty(2)
    (found,) = run(options, [0], [limit], toy=Surprise(), forbidden=[0])[0]
    assert found.ids == (1,) * limit and found.score == pytest.approx(worst)
