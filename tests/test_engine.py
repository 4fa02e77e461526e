"""The engine: whoever comes and goes, each request gives what it gives alone; and nothing of it is left behind."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import trials
from regard.decode import engine as module
from regard.decode.config import DecodeConfig
from regard.decode.engine import Engine, Model
from regard.decode.ranking import Hypothesis
from regard.decode.search import generate
from regard.decode.tickets import (
    DeadlinePassed,
    EngineClosed,
    Finished,
    Overloaded,
    Request,
    Started,
    Ticket,
    Written,
)
from regard.decode.waiting import Room
from regard.errors import Cancelled, ModelError, RegardError, UsageError

VOCABULARY, END, BEGIN = 7, 2, 5
STATES = 9973
TABLE = 1.5 * torch.randn(STATES, VOCABULARY, generator=torch.Generator().manual_seed(11), dtype=torch.float64)
Rows = list[tuple[int, list[list[int]]]]  # each source with the tokens of its hypotheses


def row_of(source: int, sequence: Sequence[int]) -> int:
    number = 101 * (source + 1)
    for token in sequence:
        number = (number * 31 + token + 1) % STATES
    return number


@dataclass(eq=False)
class Toy:
    """A stepper whose logits depend on the source and on every token so far, without any arithmetic on batches."""

    longest: int | None = None
    sizes: list[int] = field(default_factory=list)  # sources of each step
    broken: set[int] = field(default_factory=set)  # sources whose logits are no numbers from the third token on
    pause: float = 0.0

    def start(self, source: list[int], prefix: Tensor) -> tuple[Tensor, Rows]:
        if any(each < 0 for each in source):
            raise RegardError("there is no source below 0")
        return self._logits(rows := [(each, [[BEGIN]]) for each in source]), rows

    def step(self, ids: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        assert ids.shape == (len(state), len(state[0][1]))
        self.sizes.append(len(state))
        time.sleep(self.pause)
        both = zip(state, ids.tolist(), strict=True)
        rows = [(source, [[*old, new] for old, new in zip(all_, news, strict=True)]) for (source, all_), news in both]
        return self._logits(rows), rows

    def reorder(self, state: Rows, parents: Tensor) -> Rows:
        both = zip(state, parents.tolist(), strict=True)
        return [(source, [sequences[parent] for parent in places]) for (source, sequences), places in both]

    def keep(self, state: Rows, rows: Tensor) -> Rows:
        assert 0 < len(rows) < len(state)
        return [state[row] for row in rows.tolist()]

    def _logits(self, rows: Rows) -> Tensor:
        numbers = [[row_of(source, sequence) for sequence in sequences] for source, sequences in rows]
        logits = TABLE[torch.tensor(numbers)]
        for row, (source, sequences) in enumerate(rows):
            if source in self.broken and len(sequences[0]) > 3:
                logits[row, 0, 1] = math.nan
        return logits  # (B, W, V)


class JoiningToy(Toy):
    def join(self, state: Rows, other: Rows) -> Rows:
        assert len(state[0][1]) == len(other[0][1])
        return state + other


def model_of(toy: Toy) -> Model:
    def collate(sources: Sequence[int]) -> tuple[list[int], Tensor]:
        return list(sources), torch.full((len(sources), 1), BEGIN)

    return Model(lambda request: toy, collate, lambda source: 3, ends=(END,), forbidden=(BEGIN,))


def alone(request: Request) -> list[Hypothesis]:
    """What a request gives by itself."""
    options = {"end": END, "forbidden": [BEGIN], "streams": [request.stream], "stops": [request.stops]}
    prefix = torch.tensor([[BEGIN]])
    return generate(Toy(), [request.source], prefix, limits=[request.limit], options=request.options, **options)[0]


KINDS: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 1, "min_length": 4},
    {"beam": 1, "scores": False},
    {"beam": 3, "n_best": 2},
    {"beam": 3, "n_best": 3, "length_penalty": "power", "alpha": 1.0, "stopping": "early"},
    {"beam": 5, "n_best": 1, "min_length": 2, "length_penalty": "none"},
    {"sample": True},
    {"sample": True, "temperature": 0.6, "top_k": 4},
    {"sample": True, "temperature": 1.7, "top_p": 0.8, "min_length": 3},
    {"sample": True, "n_best": 3, "min_p": 0.1},
    {"sample": True, "n_best": 11, "top_k": 5, "top_p": 0.9},
]


def drawn_request(dice: random.Random, **more: Any) -> Request:
    options = DecodeConfig(**dice.choice(KINDS), seed=dice.choice([0, 7, 2**40]))
    stops = dice.choice([None, None, lambda ids: ids[-2:] in ([1, 3], [4, 4])])
    limit = dice.choice([0, 1, 5, 13, 13, 70])
    return Request(dice.randrange(1000), options, limit, stream=dice.randrange(9), stops=stops, **more)


class ByHand(Engine):
    """An engine whose thread is the test: `_work` is called when it should compute."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._thread = threading.current_thread()

    def run(self) -> None:
        while self._has_work():
            with torch.inference_mode():
                self._work()

    def is_empty(self) -> bool:
        held = (self._lanes, self._waiting.running, self._parts, self._left, list(self._waiting.all_waiting()))
        return not any(held) and self._waiting.rows == self._waiting.tokens == len(self._waiting) == 0


@pytest.mark.parametrize("toy", [JoiningToy, Toy], ids=["joins", "in turn"])
@pytest.mark.parametrize("seed", range(4))
def test_requests_of_any_kind_that_come_at_any_step_give_what_each_gives_alone(seed: int, toy: type[Toy]) -> None:
    """Bit for bit: the toy computes each row by itself, so all that could differ are the books."""
    dice, stepper = random.Random(seed), toy()
    engine = ByHand(model_of(stepper), Room(rows=dice.choice([1, 17, 64]), tokens=3000, share=dice.choice([0.3, 1.0])))
    tickets: list[Ticket] = []
    while len(tickets) < 40 or engine._has_work():
        if len(tickets) < 40 and dice.random() < 0.7:
            callers = dice.choice([None, "a", "b"])
            tickets += [engine.submit(drawn_request(dice, caller=callers)) for _ in range(dice.choice([1, 1, 2, 9]))]
        if engine._has_work():
            with torch.inference_mode():
                engine._work()
    for ticket in tickets:
        assert ticket.result(timeout=0) == alone(ticket.request)
    assert engine.is_empty()
    statistics = engine.statistics()
    assert statistics.finished == statistics.submitted == len(tickets)
    assert statistics.steps == len(stepper.sizes) == sum(statistics.batch_sizes.values())
    assert (max(stepper.sizes) > 1) == (toy is JoiningToy and engine._waiting.room.rows > 1)


GREEDY, BEAM = DecodeConfig(beam=1, min_length=20), DecodeConfig(beam=3, n_best=2, min_length=20)


def long(source: int = 1, options: DecodeConfig = GREEDY, **more: Any) -> Request:
    return Request(source, options, 30, **more)


# --- Leaving


@pytest.mark.parametrize("toy", [JoiningToy, Toy], ids=["joins", "in turn"])
def test_a_thousand_that_are_cancelled_leave_nothing_behind(toy: type[Toy]) -> None:
    """Some wait, some run, of some a part; the others give what they give alone."""
    dice, engine = random.Random(5), ByHand(model_of(toy()), Room(rows=40, tokens=4000, waiting=2000))
    tickets = [engine.submit(drawn_request(dice)) for _ in range(1040)]
    stay = set(dice.sample(tickets, 40))
    for number, ticket in enumerate(dice.sample(tickets, len(tickets))):
        if ticket not in stay:
            ticket.cancel()
        if number % 80 == 0 and engine._has_work():
            with torch.inference_mode():
                engine._work()
    engine.run()
    assert engine.is_empty()
    for ticket in tickets:
        if ticket in stay or ticket.error is None:
            assert ticket.result(timeout=0) == alone(ticket.request)
        else:
            with pytest.raises(Cancelled):
                ticket.result(timeout=0)
    statistics = engine.statistics()
    assert statistics.cancelled + statistics.finished == 1040 and statistics.cancelled > 800


def test_whoever_has_a_deadline_is_told_in_time() -> None:
    toy = JoiningToy(pause=0.02)
    with Engine(model_of(toy), Room(rows=1)) as engine:
        running, waiting = (engine.submit(long(seconds=0.1)) for _ in range(2))
        patient = engine.submit(Request(3, DecodeConfig(beam=1), 2))
        for ticket in (running, waiting):
            with pytest.raises(DeadlinePassed, match=r"not done within 0\.1 s"):
                ticket.result(timeout=20)
        assert patient.result(timeout=20) == alone(patient.request)
        statistics = engine.statistics()
        assert (statistics.expired, statistics.finished, statistics.rows, statistics.waiting) == (2, 1, 0, 0)


def test_closing_finishes_what_was_taken_or_drops_it() -> None:
    for drop in (False, True):
        engine = Engine(model_of(JoiningToy(pause=0.002)), Room(rows=2))
        tickets = [engine.submit(long(source)) for source in range(5)]
        engine.close(drop=drop)
        with pytest.raises(EngineClosed):
            engine.submit(long())
        for ticket in tickets:
            if drop and ticket.error is not None:
                with pytest.raises(EngineClosed):
                    ticket.result(timeout=0)
            else:
                assert ticket.result(timeout=0) == alone(ticket.request)
        assert engine.statistics().rows == 0
    assert tickets[-1].error is not None


def test_a_thread_without_work_ends_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 0.05)
    engine = Engine(model_of(JoiningToy()))
    for source in (1, 2):
        ticket = engine.submit(long(source))
        assert ticket.result(timeout=20) == alone(ticket.request)
        thread = engine._thread
        if thread is not None:
            thread.join(timeout=20)
        assert engine._thread is None


# --- What is wrong with one request is its own affair


def broken_stop(ids: list[int]) -> bool:
    if len(ids) > 4:
        raise KeyError("a stop of one's own that fails")
    return False


def test_errors_cost_only_the_request_that_has_them() -> None:
    """A source that cannot be read, one whose logits become NaN, one whose stop fails, one with nothing left to write."""
    toy = JoiningToy(broken={77})
    engine = ByHand(model_of(toy), Room(rows=100))
    good = [engine.submit(long(source, options)) for source in range(4) for options in (GREEDY, BEAM)]
    bad: list[tuple[type[Exception], str, Request]] = [
        (RegardError, "no source below 0", long(-1)),
        (ModelError, "NaN.* at step 4", long(77)),
        (ModelError, "NaN.* at step 4", long(77, BEAM)),
        (KeyError, "a stop of one's own", long(6, stops=broken_stop)),
    ]
    tickets = [engine.submit(request) for _, _, request in bad]
    engine.run()
    for ticket, (kind, message, _) in zip(tickets, bad, strict=True):
        with pytest.raises(kind, match=message):
            ticket.result(timeout=0)
    for ticket in good:
        assert ticket.result(timeout=0) == alone(ticket.request)
    assert engine.is_empty() and engine.statistics().failed == len(bad)


def test_a_step_that_fails_costs_those_that_take_it() -> None:
    toy = JoiningToy()
    engine = ByHand(model_of(toy))
    greedy, beam = engine.submit(long()), engine.submit(long(2, BEAM))
    with torch.inference_mode():
        engine._work()
    step = toy.step

    def failing(ids: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        if ids.size(1) > 1:
            raise RuntimeError("out of memory")
        return step(ids, state)

    toy.step = failing  # type: ignore[method-assign]
    engine.run()
    assert greedy.result(timeout=0) == alone(greedy.request)
    with pytest.raises(RuntimeError, match="out of memory"):
        beam.result(timeout=0)
    assert engine.is_empty()


def test_a_full_queue_and_tokens_of_a_beam_are_refused() -> None:
    engine = ByHand(model_of(JoiningToy()), Room(rows=1, waiting=2))
    for _ in range(2):
        engine.submit(long())
    with pytest.raises(Overloaded, match="2 requests wait already; ask again later"):
        engine.submit(long())
    with pytest.raises(UsageError, match="tokens are told of one sequence"):
        engine.submit(long(options=BEAM, telling=True))
    assert engine.statistics().refused == 1
    with pytest.raises(ValueError, match="share is above 0"):
        Room(share=0)


def test_deadlines_of_requests_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: whoever was answered within milliseconds was kept for the minute that it might have taken."""
    monkeypatch.setattr(module, "OVER", 8)
    engine = ByHand(model_of(JoiningToy()))
    slow = engine.submit(Request(1, DecodeConfig(beam=1, min_length=400), 400, seconds=900.0))
    for number in range(100):
        quick = engine.submit(Request(number, GREEDY, 1, seconds=1000.0))
        while not quick.over:
            with torch.inference_mode():
                engine._work()
        assert len(engine._deadlines) <= 8 + 2 * 2 + 1
    assert not slow.over and slow in [ticket for _, _, ticket in engine._deadlines]
    engine.run()
    assert len(slow.result(timeout=0)[0].ids) == 400


def test_steps_of_each_size_have_as_many_threads_as_are_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small steps are faster by one thread, large ones by four: that is found by trying, and forgotten after each step."""
    monkeypatch.setattr(trials.torch, "get_num_threads", lambda: 4)
    now = [0.0]
    had: list[int] = []
    monkeypatch.setattr(trials.torch, "set_num_threads", had.append)
    monkeypatch.setattr(trials.time, "perf_counter", lambda: now[0])
    threads = trials.StepThreads()
    taken: dict[int, list[int]] = {2: [], 64: []}
    for _ in range(60):
        for rows, used in taken.items():
            with threads.step(rows):
                used.append(had[-1])
                now[0] += rows * (0.1 * had[-1] if rows == 2 else 1 / had[-1])
            assert had[-1] == 4
    for rows, best in ((2, 1), (64, 4)):
        assert taken[rows][:2] == [4, 4] and set(taken[rows][2:14]) == {1, 4} and set(taken[rows][14:]) == {best}


# --- Turns


def order_of_starts(engine: ByHand, tickets: dict[str, Ticket]) -> list[str]:
    started: list[str] = []
    for name, ticket in tickets.items():
        ticket.start = lambda name=name: started.append(name)  # type: ignore[method-assign]
    engine.run()
    return started


def test_callers_take_turns_and_each_comes_in_its_own_order() -> None:
    engine = ByHand(model_of(JoiningToy()), Room(rows=2, share=0.5))
    names = ["a1", "a2", "a3", "a4", "b1", "b2", "c1"]
    tickets = {name: engine.submit(long(number, caller=name[0])) for number, name in enumerate(names)}
    assert order_of_starts(engine, tickets) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_a_caller_has_its_share_of_rows_and_many_samples_come_in_parts() -> None:
    """A hundred samples of one request run beside others' requests, 8 rows of 16 at a time."""
    engine = ByHand(model_of(toy := JoiningToy()), Room(rows=16, share=0.5))
    many = engine.submit(Request(5, DecodeConfig(sample=True, n_best=100, seed=3, min_length=6), 9, caller="many"))
    few = [engine.submit(Request(source, DecodeConfig(beam=1), 3, caller=source)) for source in range(20)]
    held: list[int] = []
    served_few: list[bool] = []
    while engine._has_work():
        with torch.inference_mode():
            engine._work()
        held.append(engine._waiting._of_caller.get("many", 0))
        served_few.append(all(ticket.over for ticket in few))
    assert max(held) == 8 and served_few.index(True) < 20 < 13 * 6 < len(toy.sizes)
    assert many.result(timeout=0) == alone(many.request)
    for ticket in few:
        assert ticket.result(timeout=0) == alone(ticket.request)


def test_newcomers_wait_for_each_other_and_are_read_together() -> None:
    engine = ByHand(model_of(toy := JoiningToy()), gather=0.05)
    engine.submit(long())
    with torch.inference_mode():
        engine._work()
        for source in (2, 3):
            engine.submit(long(source))
            engine._work()
        assert toy.sizes == [1, 1, 1]
        time.sleep(0.06)
        engine._work()
    assert toy.sizes[-1] == 3
    engine.run()


# --- Threads and events


def test_callers_of_many_threads_get_what_they_get_alone() -> None:
    dice = random.Random(9)
    requests = [drawn_request(dice) for _ in range(40)]
    found: dict[int, list[Hypothesis]] = {}
    with Engine(model_of(JoiningToy()), Room(rows=64)) as engine:

        def ask(number: int) -> None:
            time.sleep(0.02 * random.random())
            found[number] = engine.submit(requests[number]).result(timeout=60)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(requests))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[number] for number in range(len(requests))] == [alone(request) for request in requests]


def test_events_come_as_tokens_are_written() -> None:
    with Engine(model_of(JoiningToy(pause=0.005))) as engine:
        ticket = engine.submit(long(telling=True))
        engine.submit(long(2))
        events = list(ticket)
        assert events[0] == Started() and isinstance(events[-1], Finished) and len(events) > 5
        written = [token for event in events if isinstance(event, Written) for token in event.ids]
        assert tuple(written) == events[-1].hypotheses[0].ids == alone(ticket.request)[0].ids
        stopped = engine.submit(long(telling=True))
        with pytest.raises(Cancelled):
            for event in stopped:
                if isinstance(event, Written):
                    stopped.cancel()
        with pytest.raises(TimeoutError, match="still under way"):
            engine.submit(long(4)).result(timeout=0)


def test_who_comes_makes_nobody_hear_a_token_twice() -> None:
    """The bug: a newcomer that joined had the newest token of all the others told again."""
    engine = ByHand(model_of(JoiningToy()))
    told = [engine.submit(long(1, telling=True))]
    with torch.inference_mode():
        for source in range(2, 8):
            engine._work()
            told.append(engine.submit(long(source, telling=source % 2 == 0)))
    engine.run()
    for ticket in [each for each in told if each.request.telling]:
        *_, done = events = list(ticket)
        assert isinstance(done, Finished)
        written = [token for event in events if isinstance(event, Written) for token in event.ids]
        assert tuple(written) == done.hypotheses[0].ids
        likely = [each for event in events if isinstance(event, Written) for each in event.log_probabilities]
        assert tuple(likely) == done.hypotheses[0].token_log_probabilities[: len(likely)]
