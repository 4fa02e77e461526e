"""Groups searched side by side: the same results in the same order whatever the number of workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np
import pytest
import torch

from regard.attention import record
from regard.bundle import Bundle, BundleConfig
from regard.decode.config import DecodeConfig
from regard.decode.ranking import Hypothesis
from regard.decode.workers import side_by_side, worker_count
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.predictor import Cancelled
from regard.tasks.translate.predictor import Translator
from regard.tokens import END, TokenizerPair, TokensConfig, train_tokenizer

CPU = torch.device("cpu")
asked: ContextVar[str] = ContextVar("asked", default="nobody")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


def test_every_group_is_searched_once_by_a_thread_that_has_one_of_torchs() -> None:
    met, name = threading.Barrier(3, timeout=20), asked.set("someone")

    def search(group: list[int]) -> tuple[int, int, str]:
        met.wait()  # three at a time, or this would break
        return sum(group), torch.get_num_threads(), asked.get()

    groups = [[1, 2], [3], [4, 5], [6], [7, 8], [9]]
    found = {tuple(group): result for group, result in side_by_side(groups, search, 3)}
    assert found == {tuple(group): (sum(group), 1, "someone") for group in groups}
    asked.reset(name)


def test_alone_nothing_is_started() -> None:
    here = threading.get_ident()
    for groups, workers in (([[1], [2]], 1), ([[1]], 3), ([], 3)):
        found = list(side_by_side(groups, lambda group: threading.get_ident(), workers))
        assert found == [(group, here) for group in groups]


def test_the_first_error_ends_all() -> None:
    begun = []

    def search(group: list[int]) -> None:
        begun.append(group)
        time.sleep(0.005)  # as a search takes longer than to hear of an error
        raise KeyError(*group)

    with pytest.raises(KeyError):
        list(side_by_side([[n] for n in range(500)], search, 2))
    assert len(begun) < 500


def test_whoever_looks_on_is_told_in_order() -> None:
    model = Transformer(TransformerConfig(width=8, heads=2, feed_forward=8), 11, 11)
    assert worker_count(CPU) == 3
    with record(model):
        assert worker_count(CPU) == 1
    assert worker_count(torch.device("meta")) == 1


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
    decode, told = DecodeConfig(batch_sentences=4, max_length=9, **options), []
    found: list[list[list[Hypothesis]]] = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(
            predictor.search_ids(sources, decode, places=range(41), progress=lambda done, of: told.append((done, of)))
        )
        torch.set_num_threads(3)
    assert found[0] == found[1] == found[2]
    assert len({best[0].score for best in found[0]}) > 30
    assert told[-1] == (41, 41) and len(told) == 3 * 11


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
