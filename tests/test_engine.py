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

from regard.decode.config import DecodeConfig
from regard.decode.engine import Engine, Model
from regard.decode.ranking import Hypothesis
from regard.decode.search import generate
from regard.decode.tickets import (
    Request,
    Ticket,
)
from regard.decode.waiting import Room
from regard.errors import RegardError

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
    limit = dice.choice([0, 1, 5, 13, 90])
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
    while len(tickets) < 60 or engine._has_work():
        if len(tickets) < 60 and dice.random() < 0.7:
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
