"""Batches of pictures: which are in them and what belongs to them, against plain lists; pure functions of the seed."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.data.pictures.augment import augment, mixup, normalise
from regard.data.pictures.batch import AnswerBatch
from regard.data.pictures.batches import AnswerBatches, CaptionBatches, PictureBatches
from regard.data.pictures.config import AugmentConfig, PictureFormat
from regard.errors import RegardError, UsageError

FORMAT = PictureFormat(size=5, channels=3, mean=(0.4, 0.5, 0.6), deviation=(0.2, 0.25, 0.3))
PAD = 0


class FakeStore:
    """Picture i has the byte i in every pixel of its first channel; the others are random."""

    def __init__(self, count: int) -> None:
        self.pictures = np.random.default_rng(3).integers(0, 256, (count, 5, 5, 3), dtype=np.uint8)
        self.pictures[:, :, :, 0] = np.arange(count)[:, None, None]

    def __len__(self) -> int:
        return len(self.pictures)

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.pictures[rows]


def numbers(pixels: Tensor) -> list[int]:
    """Which pictures of the store these are."""
    first = pixels[:, 0].double() * FORMAT.deviation[0] + FORMAT.mean[0]
    return (first.flatten(1).mean(dim=1) * 255).round().long().tolist()


def equal(one: Any, other: Any) -> bool:
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)]
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


# --- Labels


def labelled(count: int, batch: int, config: AugmentConfig | None = None, seed: int = 7) -> PictureBatches:
    rows = np.arange(count)[::-1] + 40  # not the first of the store, and backwards
    return PictureBatches(FakeStore(101), (rows * 3) % 11, rows, FORMAT, batch, seed, config)


def test_each_picture_once_an_epoch_with_its_label() -> None:
    batches = labelled(23, 5)
    for epoch in (0, 1, 5):
        seen = []
        assert batches.count(epoch) == 5
        for index in range(5):
            batch = batches.get(epoch, index)
            assert batch.pixels.shape == (5 if index < 4 else 3, 3, 5, 5) and batch.labels.dtype == torch.int64
            assert batch.labels.tolist() == [number * 3 % 11 for number in numbers(batch.pixels)]
            assert batch.others is None and batch.shares is None
            seen += numbers(batch.pixels)
        assert sorted(seen) == list(range(40, 63)) and seen != sorted(seen)
    assert len(batches) == 23 and batches.padding_share() == 0.0


def test_the_order_is_that_of_numpy_for_seed_and_epoch() -> None:
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence((7, 3)))).permutation(23)
    assert np.concatenate(labelled(23, 5).plan(3)).tolist() == order.tolist()
    assert np.concatenate(labelled(23, 5, seed=8).plan(3)).tolist() != order.tolist()


@pytest.mark.parametrize(
    ("count", "trained", "evaluated"),
    [(20, [5] * 4, [5] * 4), (22, [5] * 4, [5] * 4 + [2]), (23, [5] * 4 + [3], [5] * 4 + [3]), (2, [2], [2])],
)
def test_a_small_last_batch_is_dropped_in_training_only(count: int, trained: list[int], evaluated: list[int]) -> None:
    assert [len(rows) for rows in labelled(count, 5, AugmentConfig()).plan(0)] == trained
    assert [len(rows) for rows in labelled(count, 5).plan(0)] == evaluated
    exactly_half = labelled(10, 4, AugmentConfig()).plan(0)
    assert [len(rows) for rows in exactly_half] == [4, 4, 2]


def test_training_pictures_are_augmented_by_seed_epoch_and_index() -> None:
    config = AugmentConfig(crop=1, flip=True, colour=0.2, erase=0.5)
    batches, store = labelled(23, 5, config), FakeStore(101)
    for epoch, index in ((0, 0), (0, 1), (4, 3)):
        places = batches.plan(epoch)[index]
        bytes_ = torch.from_numpy(store.pictures[62 - places]).permute(0, 3, 1, 2)
        wanted = normalise(augment(bytes_, config, (7, epoch, index)), FORMAT)
        assert torch.equal(batches.get(epoch, index).pixels, wanted)
        assert torch.equal(batches.take(places).pixels, normalise(bytes_, FORMAT))  # as they are


def test_mixed_labels_belong_to_mixed_pictures() -> None:
    config = AugmentConfig(mixup=0.7)
    batches = labelled(23, 5, config)
    batch, plain = batches.get(2, 1), batches.take(batches.plan(2)[1])
    assert batch.others is not None and batch.shares is not None
    mixed = mixup(plain.pixels, config, (7, 2, 1))
    for row in range(5):
        other = int(mixed.others[row])
        share = float(batch.shares[row])
        assert batch.others[row] == plain.labels[other] and batch.labels[row] == plain.labels[row]
        wanted = share * plain.pixels[row] + (1 - share) * plain.pixels[other]
        assert torch.allclose(batch.pixels[row], wanted, atol=1e-5)


def test_batches_are_pure() -> None:
    config = AugmentConfig(crop=1, flip=True, erase=0.5, mixup=0.2)
    one, other = labelled(23, 5, config), labelled(23, 5, config)
    wanted = [one.get(epoch, index) for epoch in range(3) for index in range(4)]
    for epoch in reversed(range(3)):
        for index in (2, 0, 3, 1):
            assert equal(other.get(epoch, index), wanted[epoch * 4 + index])


def test_take_gives_the_asked_order() -> None:
    batch = labelled(23, 5, AugmentConfig(flip=True)).take([3, 0, 22, 3])
    assert numbers(batch.pixels) == [59, 62, 40, 59]


def test_what_does_not_match_is_refused() -> None:
    store = FakeStore(11)
    with pytest.raises(RegardError, match="3 pictures and 4 labels"):
        PictureBatches(store, np.zeros(4), np.arange(3), FORMAT, 5, 0)
    with pytest.raises(RegardError, match="11 pictures, 0 to 10, but rows from 0 to 11"):
        PictureBatches(store, np.zeros(12), np.arange(12), FORMAT, 5, 0)
    with pytest.raises(RegardError, match="no picture"):
        PictureBatches(store, np.zeros(0), np.arange(0), FORMAT, 5, 0)


# --- Captions


def captions(count: int, seed: int = 5) -> tuple[np.ndarray, list[np.ndarray]]:
    """Caption i: begin (1), 2 to 12 tokens of which the first is 100 + i, end (2); five captions a picture."""
    draw = np.random.default_rng(seed)
    texts = [np.array([1, 100 + i, *draw.integers(3, 90, draw.integers(1, 12)), 2]) for i in range(count)]
    return np.arange(count) // 5 + 17, texts


def caption_batches(count: int = 53, **options: Any) -> CaptionBatches:
    rows, texts = captions(count)
    return CaptionBatches(FakeStore(101), rows, texts, FORMAT, 8, 7, pad=PAD, **options)


@pytest.mark.parametrize("by_length", [True, False])
def test_each_caption_once_an_epoch_with_its_picture(by_length: bool) -> None:
    batches, (_, texts) = caption_batches(by_length=by_length), captions(53)
    for epoch in (0, 2):
        seen = []
        for index in range(batches.count(epoch)):
            batch = batches.get(epoch, index)
            which = (batch.target[:, 1] - 100).tolist()
            assert numbers(batch.pixels) == [17 + i // 5 for i in which] and len(which) <= 8
            for row, i in enumerate(which):
                length = int(batch.target_lengths[row])
                assert batch.target[row, : length + 1].tolist() == texts[i].tolist()
                assert (batch.target[row, length + 1 :] == PAD).all() and length == len(texts[i]) - 1
            assert batch.target_tokens == sum(len(texts[i]) - 1 for i in which)
            assert batch.target.shape[1] == max(len(texts[i]) for i in which)
            seen += which
        assert sorted(seen) == list(range(53))
    assert len(batches) == 53 and batches.count(0) == 7


def test_like_lengths_spare_padding() -> None:
    """Counted by hand over the batches themselves."""
    shares = {}
    for by_length in (True, False):
        batches = caption_batches(by_length=by_length)
        found = [batches.get(0, index).target for index in range(batches.count(0))]
        padding = sum(int((target == PAD).sum()) for target in found)
        shares[by_length] = padding / sum(target.numel() for target in found)
        assert batches.padding_share() == pytest.approx(shares[by_length])
    assert shares[True] < 0.5 * shares[False]


def test_captions_are_pure_and_shuffled_anew() -> None:
    config = AugmentConfig(crop=1, colour=0.3)
    one, other = caption_batches(augment=config), caption_batches(augment=config)
    wanted = [one.get(epoch, index) for epoch in range(2) for index in range(7)]
    assert all(equal(other.get(epoch, index), wanted[epoch * 7 + index]) for epoch in (1, 0) for index in (3, 0, 6))
    orders = [np.concatenate(one.plan(epoch)).tolist() for epoch in (0, 1)]
    assert orders[0] != orders[1]


def test_caption_pictures_are_augmented_in_get_and_not_in_take() -> None:
    config = AugmentConfig(crop=2, flip=True)
    batches, store = caption_batches(augment=config), FakeStore(101)
    places = batches.plan(1)[2]
    bytes_ = torch.from_numpy(store.pictures[17 + places // 5]).permute(0, 3, 1, 2)
    assert torch.equal(batches.get(1, 2).pixels, normalise(augment(bytes_, config, (7, 1, 2)), FORMAT))
    assert torch.equal(batches.take(places).pixels, normalise(bytes_, FORMAT))


def test_features_from_a_mapped_file(tmp_path: Path) -> None:
    values = np.random.default_rng(1).standard_normal((31, 6, 13)).astype(np.float16)
    np.save(tmp_path / "features.npy", values)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    rows, texts = captions(53)
    batches = CaptionBatches(mapped, rows, texts, FORMAT, 8, 7, pad=PAD, augment=AugmentConfig())
    batch = batches.get(0, 1)
    wanted = values[17 + (batch.target[:, 1].numpy() - 100) // 5].astype(np.float32)
    assert batch.pixels.dtype == torch.float32 and np.array_equal(batch.pixels.numpy(), wanted)
    with pytest.raises(UsageError, match="cannot be augmented"):
        CaptionBatches(mapped, rows, texts, FORMAT, 8, 7, pad=PAD, augment=AugmentConfig(flip=True))


def test_a_source_of_features_may_be_anything_that_gives_floats() -> None:
    class Floats:
        def __len__(self) -> int:
            return 31

        def take(self, rows: np.ndarray) -> np.ndarray:
            return np.broadcast_to(rows[:, None, None], (len(rows), 2, 3)).astype(np.float32)

    rows, texts = captions(53)
    source = Floats()
    batches = CaptionBatches(source, rows, texts, FORMAT, 8, 7, pad=PAD)
    batch = batches.get(0, 0)
    assert batches.source is source
    assert batch.pixels[:, 1, 2].tolist() == [17 + i // 5 for i in (batch.target[:, 1] - 100).tolist()]


def test_words_cannot_be_mixed() -> None:
    with pytest.raises(UsageError, match="mixup"):
        caption_batches(augment=AugmentConfig(mixup=0.2))
    rows, texts = captions(10)
    with pytest.raises(RegardError, match="9 texts and 10 pictures"):
        CaptionBatches(FakeStore(101), rows, texts[:9], FORMAT, 8, 7, pad=PAD)


# --- Questions


def asked_about(batch: AnswerBatch) -> list[int]:
    """The number of the picture that each question is about."""
    pictures = numbers(batch.pixels)
    return pictures if batch.pictures is None else [pictures[which] for which in batch.pictures.tolist()]


def test_each_question_once_with_its_picture_and_answer() -> None:
    rows, texts = captions(53)
    labels = np.arange(53) * 7 % 13
    batches = AnswerBatches(FakeStore(101), rows, texts, labels, FORMAT, 8, 7, pad=PAD)
    seen = []
    for index in range(batches.count(0)):
        batch = batches.get(0, index)
        which = (batch.ids[:, 1] - 100).tolist()
        assert asked_about(batch) == [17 + i // 5 for i in which]
        assert batch.labels.tolist() == [i * 7 % 13 for i in which]
        assert batch.lengths.tolist() == [len(texts[i]) for i in which]
        for row, i in enumerate(which):
            assert batch.ids[row, : len(texts[i])].tolist() == texts[i].tolist()
        assert equal(batch, batches.take(batches.plan(0)[index]))
        seen += which
    assert sorted(seen) == list(range(53))
    with pytest.raises(RegardError, match="53 questions and 52 answers"):
        AnswerBatches(FakeStore(101), rows, texts, labels[1:], FORMAT, 8, 7, pad=PAD)


def test_questions_about_one_picture_come_together_and_it_is_there_once() -> None:
    """Each question comes once an epoch with its own picture, in groups of at most three about one picture."""
    generator = np.random.default_rng(3)
    rows = generator.integers(0, 11, 59)  # five or six questions about each picture
    texts = [np.arange(3, 3 + length) for length in generator.integers(1, 9, 59)]
    made = AnswerBatches(FakeStore(11), rows, texts, np.arange(59), FORMAT, 7, 5, pad=PAD, by_length=False, together=3)
    plan = made.plan(0)
    assert sorted(np.concatenate(plan).tolist()) == list(range(59))
    assert any(not np.array_equal(a, b) for a, b in zip(plan, made.plan(1), strict=True))
    for index, several in enumerate(plan):
        batch = made.get(0, index)
        assert len(batch.pixels) == len(set(rows[several].tolist()))
        assert asked_about(batch) == rows[several].tolist()
        assert batch.labels.tolist() == several.tolist()
    order = rows[np.concatenate(plan)]
    runs = 1 + int((order[1:] != order[:-1]).sum())
    groups = sum(-(-int((rows == row).sum()) // 3) for row in range(11))
    assert runs <= groups < 59 / 2  # neighbours may be of one picture by chance
