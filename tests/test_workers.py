"""Groups searched side by side: the same results whatever the number of workers, and no process left behind."""

from __future__ import annotations

import gc
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.attention import record
from regard.bundle import Bundle, BundleConfig
from regard.decode import workers
from regard.decode.config import DecodeConfig
from regard.decode.ranking import Hypothesis
from regard.decode.workers import Found, packed, side_by_side, unpacked, worker_count
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.predictor import Cancelled
from regard.tasks.translate.predictor import Translator
from regard.threads import only_waits
from regard.tokens import END, TokenizerPair, TokensConfig, train_tokenizer

CPU = torch.device("cpu")
HERE = os.getpid()
Watch = Callable[[], None]


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads, and helpers from the first step on; afterwards none is left, not even as a zombie."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    monkeypatch.setattr(workers, "HIRE_AFTER", 0.0)
    yield
    assert torch.get_num_threads() == 3
    gc.collect()  # a search that nobody went on with gives its threads back when it is collected: now, not in another test
    torch.set_num_threads(before)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def told(group: list[int], watch: Watch) -> Found:
    """Who searched: some steps that take a while."""
    for _ in range(4):
        time.sleep(0.005)
        watch()
    return [[Hypothesis((sum(group), os.getpid(), torch.get_num_threads()), 0.0, 0.0, (), True)]]


def nothing() -> None:
    return None


GROUPS = [[1, 2], [3], [4, 5], [6], [7, 8], [9], [10], [11, 12]]


def test_every_group_is_searched_once_by_processes_that_have_one_thread() -> None:
    found = [(group, *best[0][0].ids) for group, best in side_by_side(GROUPS, told, 3, nothing)]
    assert sorted(total for _, total, _, _ in found) == sorted(sum(group) for group in GROUPS)
    assert all(total == sum(group) for group, total, _, _ in found)
    processes = {process for _, _, process, _ in found}
    assert HERE in processes and 2 <= len(processes) <= 3
    assert all(threads == 1 for _, _, process, threads in found if process != HERE)


def test_one_source_is_searched_on_one_thread() -> None:
    assert [best[0][0].ids for _, best in side_by_side([[5]], told, 3, nothing)] == [(5, HERE, 1)]


@pytest.mark.parametrize(("groups", "count"), [(GROUPS, 1), (GROUPS[:1], 3), ([[5]], 1), ([], 3)])
def test_alone_nothing_is_started(groups: list[list[int]], count: int) -> None:
    found = list(side_by_side(groups, told, count, nothing))
    assert [(group, best[0][0].ids) for group, best in found] == [(group, (sum(group), HERE, 3)) for group in groups]


def test_work_that_does_not_last_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "HIRE_AFTER", 100.0)
    assert {best[0][0].ids[1] for _, best in side_by_side(GROUPS, told, 3, nothing)} == {HERE}


def test_an_error_of_a_helper_is_raised_here() -> None:
    def search(group: list[int], watch: Watch) -> Found:
        found = told(group, watch)
        if group == [3]:
            raise KeyError(os.getpid())
        return found

    with pytest.raises(KeyError, match=str(HERE)):
        list(side_by_side(GROUPS, search, 2, nothing))


def test_what_a_killed_helper_had_begun_is_searched_here() -> None:
    def search(group: list[int], watch: Watch) -> Found:
        if os.getpid() != HERE:
            os.kill(os.getpid(), signal.SIGKILL)
        return told(group, watch)

    found = {tuple(group): best[0][0].ids[:2] for group, best in side_by_side(GROUPS, search, 3, nothing)}
    assert found == {tuple(group): (sum(group), HERE) for group in GROUPS}


def test_nobody_waits_for_ever_for_a_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LOST", 0.1)

    def search(group: list[int], watch: Watch) -> Found:
        time.sleep(1000.0 if os.getpid() != HERE else 0.0)
        return told(group, watch)

    found = {tuple(group): best[0][0].ids[:2] for group, best in side_by_side(GROUPS, search, 3, nothing)}
    assert found == {tuple(group): (sum(group), HERE) for group in GROUPS}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("slow", [False, True], ids=["while it searches", "while it waits for others"])
def test_what_watching_raises_ends_all(error: type[BaseException], slow: bool) -> None:
    begun = time.perf_counter()

    def search(group: list[int], watch: Watch) -> Found:
        found = told(group, watch)
        time.sleep(20.0 if slow and os.getpid() != HERE else 0.0)
        return found

    def watch() -> None:
        if time.perf_counter() - begun > 0.2:
            raise error

    with pytest.raises(error):
        list(side_by_side(GROUPS * (1 if slow else 9), search, 2, watch))
    assert time.perf_counter() - begun < 10


def test_whoever_takes_no_more_results_ends_all() -> None:
    results = side_by_side(GROUPS * 9, told, 3, nothing)
    next(results)
    assert len(_helpers()) == 2  # they work on while a result is looked at
    results.close()  # type: ignore[attr-defined]
    assert not _helpers()


def _helpers() -> list[str]:
    """The processes that this one began and that are not gone."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def test_hypotheses_pass_through_a_message_exactly() -> None:
    dice = np.random.default_rng(1)
    parts = tuple(dice.standard_normal(5).tolist())
    found = [[Hypothesis((3, 99_999), -math.inf, 5e-324, parts, False), Hypothesis((), 0.1 + 0.2, 0.0, (), True)], []]
    assert unpacked(packed(found)) == found


def test_who_may_have_helpers() -> None:
    model = Transformer(TransformerConfig(width=8, heads=2, feed_forward=8), 11, 11)
    assert worker_count(CPU) == 3
    with record(model):
        assert worker_count(CPU) == 1
    assert worker_count(torch.device("meta")) == 1
    until = threading.Event()
    other = threading.Thread(target=until.wait)
    other.start()
    assert worker_count(CPU) == 1  # what it does is not known, and a copy might wait for its locks for ever
    only_waits(other)
    assert worker_count(CPU) == 3
    until.set()
    other.join()


def translator() -> Translator:
    torch.manual_seed(3)
    config = TransformerConfig(encoder_layers=1, decoder_layers=2, width=12, heads=3, feed_forward=19)
    tokenizer = train_tokenizer([], TokensConfig(kind="byte"))
    model = Transformer(config, tokenizer.size, tokenizer.size).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return Translator(Bundle(BundleConfig(model=config), model, TokenizerPair(tokenizer, tokenizer), {}))


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3, "n_best": 2}, {"sample": True, "seed": 5}], ids=str)
def test_a_file_is_translated_alike_by_any_number_of_workers(options: dict) -> None:
    predictor, dice = translator(), np.random.default_rng(2)
    sources = [np.array([*dice.integers(10, 99, length), END]) for length in dice.integers(1, 17, 41)]
    decode, heard = DecodeConfig(batch_sentences=4, max_length=9, **options), []
    found: list[list[list[Hypothesis]]] = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(
            predictor.search_ids(sources, decode, places=range(41), progress=lambda done, of: heard.append((done, of)))
        )
        torch.set_num_threads(3)
    assert found[0] == found[1] == found[2]
    assert len({best[0].score for best in found[0]}) > 30
    assert heard[-1] == (41, 41) and len(heard) == 3 * 12  # a multiple of 4 groups


def test_workers_can_be_cancelled() -> None:
    predictor, asked_often = translator(), []
    sources = [np.array([20 + n, END]) for n in range(40)]

    def cancel() -> bool:
        asked_often.append(1)
        return len(asked_often) > 9

    options = DecodeConfig(batch_sentences=2, min_length=30, max_length=30)
    with pytest.raises(Cancelled):
        predictor.search_ids(sources, options, places=range(40), cancel=cancel)
    assert len(asked_often) < 20
