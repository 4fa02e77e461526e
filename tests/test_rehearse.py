"""What is said before a run: results that were measured, and a rehearsal that leaves nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from regard.cli import main
from regard.tasks.expected import EXPECTED, Measured, expected


def test_what_was_measured_is_given_as_it_was_and_lies_between() -> None:
    for each in EXPECTED:
        found = expected(each.task, each.examples, each.minutes)
        assert found is not None and found.value == pytest.approx(each.value)
    between = expected("translate", 12_000, 10)
    assert between is not None and 20 < between.value < 36 and "on data like Multi30k" in str(between)
    assert expected("translate", 5_000_000, 10) is None and expected("no such task", 5_000, 3) is None
    grid = tuple(
        Measured("mine", "Made", n, m, "bleu", 3 * math.log(n) + 2 * math.log(m)) for n in (100, 1000) for m in (1, 10)
    )
    found = expected("mine", 300, 4, grid)
    assert found is not None and found.value == pytest.approx(3 * math.log(300) + 2 * math.log(4))


TINY = ("model.width=16", "model.heads=2", "model.feed_forward=32", "model.encoder_layers=1", "model.decoder_layers=1")


@pytest.mark.parametrize("words", [("--budget=40s",), ("--steps=30",)])
def test_a_dry_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    more = [f"--set={each}" for each in (*TINY, "data.builtin_size=60", "data.hold_out=7", "validate.sentences=3")]
    main.run(["train", "translate", "--dry-run", "--json", *words, *more])
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] >= 1 and found["passes"] > 0 and found["parameters"] > 100
    # a weight that multiplies costs six operations for each token that it sees, and less than all of them see one
    assert 0 < found["operations"] < 6 * found["parameters"] * found["steps"] * 2 * 4096
    assert found["bill"]["seconds"] == found["seconds"] and found["bill"]["joules"] > 0
    chosen = [each["setting"] for each in found["choices"]]
    assert ("train.lr" in chosen) == (words == ("--budget=40s",))
    assert [*(tmp_path / "here").rglob("*"), *(tmp_path / "temporary").glob("regard-*")] == []
