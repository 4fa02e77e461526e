"""Predictors that are served: callers of many threads get what each gets of the predictor itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from test_verify import make

from regard.bundle import Bundle, BundleConfig
from regard.decode.tickets import DeadlinePassed, EngineClosed, Overloaded
from regard.decode.waiting import Room
from regard.errors import Cancelled, UsageError
from regard.models.table import build
from regard.tasks.generate.pieces import TextPiece
from regard.tasks.generate.predictor import Generator
from regard.tasks.translate.predictor import Translator
from regard.tokens import TokenizerPair, TokensConfig

SMALL: dict[str, Any] = {"width": 12, "heads": 3, "feed_forward": 7}
TEXTS = ["two dogs sleep", "a man", "two", "a man and a woman sleep under a tree by the sea", ""]


def translator(kind: str = "transformer", **sizes: Any) -> Translator:
    settings = TokensConfig(size=300, min_count=1)
    pair = TokenizerPair.train(TEXTS[:4], [text[::-1] for text in TEXTS[:4]], settings)
    vocabulary = (pair.source.size, pair.target.size)
    values = {"tokens": settings, "vocabulary": vocabulary, "model": {"kind": kind, **sizes}}
    config = BundleConfig.model_validate(values)
    torch.manual_seed(5)
    model = build("translate", config.model, vocabulary).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return Translator(Bundle(config, model, pair, {}))


def generator(kind: str = "gpt2", **sizes: Any) -> Generator:
    found = Generator(make("generate", kind, **sizes))
    found.model.double()
    return found


def all_at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """What calls give that begin at about the same time, each in a thread of its own."""
    found: dict[int, Any] = {}

    def run(number: int) -> None:
        time.sleep(0.002 * (number % 5))
        found[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(calls))]


def assert_same(one: Any, other: Any) -> None:
    """Equal results, numbers but for rounding."""
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for each in zip(one, other, strict=True):
            assert_same(*each)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        assert_same(list(one.values()), list(other.values()))
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=0, abs=1e-9)
    else:
        assert one == other


TRANSLATING: list[dict[str, Any]] = [
    {"beam": 1, "max_length": 9},
    {"beam": 3, "n_best": 3, "max_length": 7},
    {"sample": True, "n_best": 2, "seed": 3, "max_length": 11},
    {"sample": True, "temperature": 0.7, "top_k": 9, "max_length": 5},
    {"beam": 2, "softness": 0.5, "max_length": 6},
]


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("transformer", {"encoder_layers": 1, "decoder_layers": 2, **SMALL}), ("bahdanau", {"width": 8, "hidden": 10})],
    ids=["joins", "in turn"],
)
def test_translations_of_many_callers_are_those_of_each_alone(kind: str, sizes: dict[str, Any]) -> None:
    own = translator(kind, **sizes)
    wanted = [own.translate(TEXTS, **options) for options in TRANSLATING]
    with own.served(Room(rows=16, share=0.5)) as served:
        calls: list[Callable[[], Any]] = [
            lambda options=options: served.translate(TEXTS, **options) for options in TRANSLATING
        ]
        calls += [
            lambda place=place: served.translate([TEXTS[place]], places=[place], **TRANSLATING[2]) for place in range(4)
        ]
        found = all_at_once(calls)
        assert_same(
            [asdict(each) for some in found[:5] for each in some], [asdict(each) for some in wanted for each in some]
        )
        assert_same([asdict(some[0]) for some in found[5:]], [asdict(each) for each in wanted[2][:4]])
        statistics = served.statistics()
        assert (statistics.rows, statistics.waiting, statistics.finished) == (0, 0, 5 * 5 + 4)
    assert own.service is None and own.translate("a man", max_length=3).text is not None


GENERATING: list[dict[str, Any]] = [
    {"sample": False, "max_length": 30},  # beyond the context
    {"sample": False, "beam": 3, "n_best": 2, "max_length": 8},
    {"sample": True, "seed": 4, "n_best": 3, "max_length": 13},
    {"sample": True, "temperature": 0.8, "top_p": 0.9, "max_length": 25, "stop": ["e", "do"]},
]


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("gpt2", {"layers": 2, "max_length": 19, **SMALL}),
        ("llama", {"layers": 1, **SMALL, "groups": 1}),
        ("lstm", {"width": 8, "hidden": 10}),
    ],
    ids=["slides and joins", "joins", "in turn"],
)
def test_texts_of_many_callers_are_those_of_each_alone(kind: str, sizes: dict[str, Any]) -> None:
    own = generator(kind, **sizes)
    wanted = [own.generate(TEXTS, **options) for options in GENERATING]
    *_, whole = own.stream("two dogs", **GENERATING[3])
    with own.served(Room(rows=16)) as served:
        calls: list[Callable[[], Any]] = [
            lambda options=options: served.generate(TEXTS, **options) for options in GENERATING
        ]
        *found, events = all_at_once([*calls, lambda: [*served.stream("two dogs", **GENERATING[3])]])
        assert_same(
            [asdict(each) for some in found for each in some], [asdict(each) for some in wanted for each in some]
        )
        assert_same(asdict(events[-1]), asdict(whole))
        assert "".join(each.text for each in events[:-1] if isinstance(each, TextPiece)) == whole.text
        likely = [one for each in events[:-1] if isinstance(each, TextPiece) for one in each.token_log_probabilities]
        assert likely == pytest.approx(whole.token_log_probabilities[: len(likely)], abs=1e-5)
        assert served.statistics().rows == 0


def test_a_closed_stream_a_cancelled_call_and_a_deadline_leave_no_row() -> None:
    own = generator(layers=2, **SMALL)
    long: dict[str, Any] = {"sample": True, "min_length": 3000, "max_length": 3000}
    with own.served() as served:
        events = served.stream("two dogs", **long)
        next(events)
        events.close()  # type: ignore[attr-defined]
        asked = iter([False, False, True])
        with pytest.raises(Cancelled):
            served.generate("a", cancel=lambda: next(asked), **long)
        with pytest.raises(DeadlinePassed):
            served.for_caller("someone", seconds=0.02).generate(["a"] * 3, **long)
        assert (
            served.generate("a", sample=False, max_length=3).text == own.generate("a", sample=False, max_length=3).text
        )
        left = served.statistics()
        assert (left.running, left.rows, left.waiting) == (0, 0, 0)
    with pytest.raises(EngineClosed):
        served.generate("a")
    with pytest.raises(UsageError, match="not served; take what its served"):
        own.close()


def test_a_long_list_is_more_than_may_wait_and_others_still_come() -> None:
    own = translator(encoder_layers=1, decoder_layers=1, **SMALL)
    texts = [f"text {number}" for number in range(40)]
    with own.served(Room(rows=4, waiting=3)) as served:
        both = all_at_once([lambda: served.translate(texts, beam=1, max_length=4), lambda: _until(served, "two dogs")])
        assert [each.text for each in both[0]] == [each.text for each in own.translate(texts, beam=1, max_length=4)]
        assert both[1] == own.translate("two dogs", beam=1, max_length=4).text


def _until(served: Translator, text: str) -> str:
    """Ask again for as long as the answer is that too many wait."""
    while True:
        try:
            return served.translate(text, beam=1, max_length=4).text
        except Overloaded:
            time.sleep(0.001)


def test_weights_that_change_are_seen_by_those_who_come_later() -> None:
    own = generator(layers=1, **SMALL)
    options: dict[str, Any] = {"sample": True, "seed": 1, "max_length": 9, "min_length": 9}
    with own.served() as served:
        before = served.generate("two", **options).text
        with torch.no_grad():
            for parameter in own.model.parameters():
                parameter.mul_(-1.5)
        assert served.generate("two", **options).text == own.generate("two", **options).text != before
