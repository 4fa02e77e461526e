"""Training with exact attention takes memory in proportion to the length, not to its square: counted tensor by tensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from regard.attention import attend_reference
from regard.bench.scout import peak_memory
from regard.data.batch import label_batch, text_batch
from regard.models.config import BertConfig, GPT3Config, LlamaConfig
from regard.models.table import build

SIZES = {"layers": 2, "width": 32, "heads": 4, "feed_forward": 32, "dropout": 0.0}
LENGTHS = (512, 2048)


def text(length: int) -> Any:
    return text_batch([np.full(length + 1, 7)])


def padded(length: int) -> Any:
    return label_batch([np.full(length, 7), np.full(length // 2, 7)], [0, 1], 0)


def power(work: Any) -> float:
    few, many = (peak_memory(lambda length=length: work(length), "storages")[0] for length in LENGTHS)
    return math.log(many / few) / math.log(LENGTHS[1] / LENGTHS[0])


@pytest.mark.parametrize(
    ("task", "config", "batch"),
    [
        ("generate", LlamaConfig(**SIZES), text),
        ("generate", GPT3Config(**SIZES, band=32, max_length=2048), text),
        ("classify", BertConfig(**SIZES, positions="rotary", max_length=2048), padded),
    ],
    ids=["causal", "banded", "padded"],
)
def test_memory_grows_with_the_length(task: str, config: Any, batch: Any) -> None:
    model = build(task, config, (20,), labels=2 if task == "classify" else 0)
    assert power(lambda length: model(batch(length)).parts["loss"].sum.backward()) < 1.1


def test_this_would_see_all_pairs() -> None:
    x = torch.randn(1, 2, LENGTHS[1], 8, requires_grad=True)
    assert power(lambda length: attend_reference(*(x[:, :, :length],) * 3).sum().backward()) > 1.7
