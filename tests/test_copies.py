"""Items worked on by copies of this process: in order, whoever works, and no process is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest

from regard.data.kept import copies
from regard.data.kept.copies import Arrays, in_order, read_arrays, write_arrays

HERE = os.getpid()


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def numbers() -> Iterator[int]:
    return iter(range(3, 26, 2))


def squared(number: int) -> Arrays:
    return np.arange(number, dtype=np.uint16) ** 2, np.array([os.getpid()]), np.empty((0, 2))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_item_is_done_once_and_in_order(workers: int) -> None:
    found = list(in_order(numbers, squared, workers))
    assert [item for item, _ in found] == list(numbers())
    for item, (values, _, empty) in found:
        assert values.tolist() == [number**2 for number in range(item)] and values.dtype == np.uint16
        assert empty.shape == (0, 2)
    who = [int(process[0]) for _, (_, process, _) in found]
    assert len(set(who)) == workers and who[::workers] == [HERE] * len(who[::workers])
    assert len(set(who[workers - 1 :: workers])) == 1


def test_what_a_killed_copy_leaves_is_done_here() -> None:
    def fatal(number: int) -> Arrays:
        if os.getpid() != HERE and number > 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return squared(number)

    found = list(in_order(numbers, fatal, 2))
    assert [len(values) for _, (values, _, _) in found] == list(numbers())
    assert {int(process[0]) == HERE for item, (_, process, _) in found if item > 10} == {True}
    assert {int(process[0]) == HERE for item, (_, process, _) in found if item <= 10} == {True, False}


def test_who_is_not_heard_of_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "LOST", 0.2)
    monkeypatch.setattr(copies, "LATE", 0.0)

    def asleep(number: int) -> Arrays:
        if os.getpid() != HERE:
            time.sleep(60)
        return squared(number)

    begun = time.monotonic()
    assert len(list(in_order(numbers, asleep, 3))) == len(list(numbers()))
    assert time.monotonic() - begun < 20


def test_an_error_is_raised_here() -> None:
    def wrong(number: int) -> Arrays:
        if number == 5:  # which is a copy's
            raise ValueError("five")
        return squared(number)

    with pytest.raises(ValueError, match="five"):
        list(in_order(numbers, wrong, 2))


def test_who_stops_asking_leaves_nobody_behind() -> None:
    several = in_order(numbers, squared, 3)
    assert next(several)[0] == 3
    several.close()  # type: ignore[attr-defined]


def test_arrays_that_are_cut_off_are_noticed() -> None:
    file = BytesIO()
    write_arrays(file, squared(7))
    whole = file.getvalue()
    assert [array.shape for array in read_arrays(BytesIO(whole))] == [(7,), (1,), (0, 2)]
    for size in (0, 3, 11, len(whole) - 1):
        with pytest.raises(EOFError, match="were to come"):
            read_arrays(BytesIO(whole[:size]))


def test_how_many_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "is_alone", lambda: True)
    monkeypatch.setattr("torch.get_num_threads", lambda: 5)
    assert [copies.worker_count(items) for items in (0, 4, 8, 1000)] == [1, 1, 2, 5]
    monkeypatch.setattr(copies, "is_alone", lambda: False)
    assert copies.worker_count(1000) == 1
    monkeypatch.setattr(copies, "is_alone", lambda: True)
    monkeypatch.setattr(copies.sys, "platform", "win32")
    assert copies.worker_count(1000) == 1
