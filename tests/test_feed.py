"""What an update learns from: rows made alone are those of the whole batch; made ahead by a thread, they are the same."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.data.batches import Batches, LabelBatches, TokenPairs
from regard.data.kept.ragged import Ragged
from regard.data.masking import MaskedBatches
from regard.data.mixed import MixedBatches, WeightedBatches
from regard.data.pictures.batches import CaptionBatches, PictureBatches
from regard.data.pictures.config import AugmentConfig, PictureFormat
from regard.data.planned import Planned, planned
from regard.data.stream import TokenStream, Windows
from regard.training.feed import Feed, Place
from regard.training.show import Show
from regard.training.timed import train
from regard.world import ALONE, World
from tests.toy_run import CONFIG, Contents, ToyBatch, ToyBatches, toy_job

DRAW = np.random.default_rng(7)


def texts(count: int, low: int, high: int) -> Ragged:
    """Ids in one flat array, as they are mapped from a file."""
    return Ragged.of([DRAW.integers(11, 97, length).astype(np.uint16) for length in DRAW.integers(low, high, count)])


def pictures(augment: AugmentConfig | None) -> PictureBatches:
    store = Pixels(DRAW.integers(0, 256, (31, 13, 13, 3)).astype(np.uint8))
    look = PictureFormat(size=13, mean=(0.5, 0.4, 0.3), deviation=(0.2, 0.3, 0.4))
    return PictureBatches(store, np.arange(31) % 5, np.arange(31), look, 7, 3, augment)


class Pixels:
    """A store of pictures that remembers how many were read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.read = array, 0

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: np.ndarray) -> np.ndarray:
        self.read += len(rows)
        return self.array[rows]


def masked(pairs: bool) -> MaskedBatches:
    return MaskedBatches(
        texts(23, 5, 60), begin=1, end=2, mask=3, pad=0, vocabulary=97, special=[0, 1, 2, 3], length=19,
        batch_tokens=130, seed=5, pairs=pairs,
    )  # fmt: skip


def captions(augment: AugmentConfig | None) -> CaptionBatches:
    look = PictureFormat(size=13, mean=(0.5, 0.4, 0.3), deviation=(0.2, 0.3, 0.4))
    pixels = DRAW.integers(0, 256, (17, 13, 13, 3)).astype(np.uint8)
    return CaptionBatches(pixels, np.arange(31) % 17, texts(31, 3, 12), look, 7, 3, pad=0, augment=augment)


def labelled() -> LabelBatches:
    rows = texts(41, 2, 30)
    second = [(np.arange(len(row)) > len(row) // 2).astype(np.int32) for row in rows]
    trees: Any = [np.zeros(len(row), dtype=np.int32) for row in rows]
    return LabelBatches(rows, np.arange(41) % 3, 0, 130, 3, second, trees)


CHANGED = AugmentConfig(crop=2, flip=True, colour=0.3, erase=0.8)
SOURCES: dict[str, Callable[[], Any]] = {
    "pairs": lambda: Batches(TokenPairs(texts(41, 2, 30), texts(41, 3, 30), 0), 130, 3),
    "labels": labelled,
    "windows": lambda: Windows(TokenStream(DRAW.integers(0, 97, 701).astype(np.uint16), 97), 13, 7, 3),
    "documents": lambda: Windows(TokenStream(DRAW.integers(0, 97, 17 * 43).astype(np.uint16), 97, whole=17, given=3), 13, 7, 3),
    "gaps": lambda: masked(False),
    "gaps in pairs": lambda: masked(True),
    "pictures": lambda: pictures(None),
    "changed pictures": lambda: pictures(CHANGED),
    "mixed pictures": lambda: pictures(CHANGED.model_copy(update={"mixup": 0.3})),
    "captions": lambda: captions(CHANGED),
    "old among new": lambda: MixedBatches(SOURCES["pairs"](), SOURCES["pairs"](), 0.3, 3),
    "corpora": lambda: WeightedBatches([SOURCES["pairs"](), SOURCES["pairs"]()], [1.0, 2.0], 1.0, 3),
}  # fmt: skip


def unlike(one: Any, other: Any) -> list[str]:
    """Names of the fields of two batches that differ in a bit, in kind or in shape."""
    assert type(one) is type(other)
    found = []
    for each in fields(one):
        a, b = getattr(one, each.name), getattr(other, each.name)
        same = a.dtype == b.dtype and torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b
        found += [] if same else [each.name]
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_rows_made_alone_are_those_of_the_whole_batch(name: str) -> None:
    """To the bit, and the counts of the whole are known before any row is made. What cannot be planned comes whole."""
    source = SOURCES[name]()
    for epoch, index in ((0, 0), (0, source.count(0) - 1), (3, 1)):
        whole, plan = source.get(epoch, index), planned(source, epoch, index)
        assert isinstance(plan, Planned) is (name != "mixed pictures")
        assert plan.examples == whole.examples and dict(plan.counts) == whole.counts
        for size in (1, 2, 3, 7):
            for rank in range(size):
                first, end = World(rank, size).bounds(whole.examples)
                if first < end:
                    assert unlike(plan.part(first, end), whole.part(first, end)) == []
                    assert plan.place(first, end) == whole.place(first, end)


def test_a_process_reads_only_its_own_pictures() -> None:
    """Of 7 pictures a batch the last of three processes reads 3, or whole batches where these come out even."""
    source = pictures(CHANGED)
    store: Any = source.source
    for accumulate, expected in ((1, 3), (3, 7)):
        config = CONFIG.model_copy(update={"accumulate": accumulate})
        store.read = 0
        portion = Feed(source, config, World(2, 3), torch.device("cpu")).make(Place(0, 0))
        assert store.read == expected and portion.totals["loss"] == 7 * accumulate


@pytest.mark.parametrize("accumulate", [1, 2])
def test_what_a_thread_makes_ahead_changes_no_bit(accumulate: int, tmp_path: Path) -> None:
    """Also where the loop goes back, stops and goes on."""
    found = []
    for prefetch in (False, True):
        folder = tmp_path / str(prefetch)
        config = CONFIG.model_copy(update={"steps": 11, "accumulate": accumulate, "prefetch": prefetch})
        train(toy_job(folder, config.model_copy(update={"steps": 5})), Show())
        train(toy_job(folder, config), Show(), resume=True)
        found.append(Contents.of(folder))
    assert found[0].unlike(found[1]) == []


class Wrong(ToyBatches):
    """Fails at some batch, and knows in which threads it was asked."""

    def __init__(self) -> None:
        self.threads = set[str]()

    def get(self, epoch: int, index: int) -> ToyBatch:
        self.threads.add(threading.current_thread().name)
        if (epoch, index) == (1, 3):
            raise ValueError("a row that cannot be read")
        return super().get(epoch, index)


def test_an_error_in_the_thread_comes_up_in_the_loop(tmp_path: Path) -> None:
    source = Wrong()
    config = CONFIG.model_copy(update={"steps": 50, "prefetch": True})
    with pytest.raises(ValueError, match="a row that cannot be read"):
        train(toy_job(tmp_path, config, batches=source), Show())
    assert {name[:7] for name in source.threads} == {"batches"}
    deadline = time.monotonic() + 10
    while any(each.name.startswith("batches") for each in threading.enumerate()):  # nobody is left behind
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Slow(ToyBatches):
    def get(self, epoch: int, index: int) -> ToyBatch:
        time.sleep(0.02)
        return super().get(epoch, index)


def test_ctrl_c_and_the_clock_stop_a_loop_that_waits_for_its_thread(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"steps": 100_000, "prefetch": True, "validate_every": 1000})
    timer = threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    assert train(toy_job(tmp_path / "asked", config, batches=Slow()), Show()).reason == "interrupted"
    timed = config.model_copy(update={"max_time": 0.3})
    assert train(toy_job(tmp_path / "timed", timed, batches=Slow()), Show()).reason == "time"


@pytest.mark.parametrize("name", ["pairs", "labels", "gaps in pairs", "changed pictures"])
def test_rows_are_sent_to_the_device_and_counts_are_not(name: str) -> None:
    """To torch's device without memory, as no other is here: everything that the model reads goes there."""
    portion = Feed(SOURCES[name](), CONFIG, ALONE, torch.device("meta")).make(Place(0, 0))
    for share in portion.shares:
        values = [getattr(share.batch, each.name) for each in fields(share.batch)]  # type: ignore[arg-type]
        assert {x.device.type for x in values if isinstance(x, Tensor)} == {"meta"}
    assert all(isinstance(count, int) for count in portion.totals.values())


def test_batches_that_depend_on_the_weights_are_never_made_ahead() -> None:
    class Written(ToyBatches):
        def tensors(self) -> dict[str, Tensor]:
            return {}

        def restore(self, tensors: dict[str, Tensor], /) -> None:
            pass

    config = CONFIG.model_copy(update={"prefetch": True})
    assert not Feed(Written(), config, ALONE, torch.device("cpu")).ahead
    assert Feed(ToyBatches(), config, ALONE, torch.device("cpu")).ahead
    assert Feed(ToyBatches(), CONFIG, ALONE, torch.device("cuda")).ahead  # by default on a GPU,
    assert not Feed(ToyBatches(), CONFIG, ALONE, torch.device("cpu")).ahead  # and nowhere else
