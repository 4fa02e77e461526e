"""Bundles and a stopped run that Regard 0.1.0 wrote, in tests/old: they load, answer as they did, and go on.

They are what `benchmarks/snapshots.py take` kept of that version. `answers.json` has what each answered then, to six digits.
Nothing here imports more than `regard`, so that these tests stay as they are whatever becomes of the packages.
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
import regard.noise

OLD = Path(__file__).parent / "old"
ANSWERS: dict[str, Any] = json.loads((OLD / "answers.json").read_text(encoding="utf-8"))
BUNDLES = sorted(file.parent.name for file in OLD.glob("*/config.json"))
PICTURE = str(OLD / "ring.png")
TEXT = "the red dog sees a small cat"


def translates(model: Any) -> dict[str, Any]:
    greedy, beam = model.translate(TEXT, beam=1), model.translate(TEXT, beam=3, n_best=2)
    (pair,) = model.score([("the old fox.", "der alte fuchs.")])
    return {
        "greedy": [greedy.text, greedy.log_probability],
        "beam": [[each.text, each.score] for each in (beam, *beam.alternatives)],
        "score": pair.log_probability,
    }


def generates(model: Any) -> dict[str, Any]:
    greedy = model.generate("the red dog", sample=False, max_length=12)
    (score,) = model.score([f"{TEXT}. the old fox hears a green bird. a small bird likes the red cat."])
    return {"greedy": [greedy.text, greedy.log_probability], "score": score.log_probability}


def fills(model: Any) -> dict[str, Any]:
    (gap,) = model.fill("the red [MASK] sees a small cat.", top=3).gaps
    return {"gap": [[guess.token, guess.probability] for guess in gap], "vector": model.vectors([TEXT])[0].tolist()}


def classifies(model: Any, what: str) -> dict[str, Any]:
    found = model.classify(what)
    return {"label": found.label, "probabilities": found.probabilities}


def captions(model: Any) -> dict[str, Any]:
    found = model.caption(PICTURE, beam=2)
    return {"caption": found.text, "score": found.score}


def answers(model: Any) -> dict[str, Any]:
    asked = model.answer(PICTURE, ["what colour is it?", "what is it?"])
    return {each.question: [each.answer, each.probability] for each in asked}


def answers_of(model: Any) -> dict[str, Any]:
    """What a model of any task makes of a fixed input."""
    return {
        "translate": translates,
        "generate": generates,
        "fill": fills,
        "classify": lambda model: classifies(model, TEXT),
        "classify-pictures": lambda model: classifies(model, PICTURE),
        "caption": captions,
        "answer": answers,
    }[model.config.task](model)


def flat(value: Any, place: str = "") -> dict[str, Any]:
    """Every value inside a value, by its place."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        return {place: value}
    return {name: each for key, part in inner for name, each in flat(part, f"{place}/{key}").items()}


def assert_same(found: Any, before: Any) -> None:
    found, before = flat(found), flat(before)
    assert found.keys() == before.keys()
    for place, value in before.items():
        expected = pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value
        assert found[place] == expected, place


def test_there_is_a_bundle_of_every_task() -> None:
    tasks = {json.loads((OLD / name / "config.json").read_text(encoding="utf-8"))["task"] for name in BUNDLES}
    assert tasks == {"translate", "generate", "fill", "classify", "classify-pictures", "caption", "answer"}
    assert {*BUNDLES, "stopped"} == set(ANSWERS)


@pytest.mark.parametrize("name", BUNDLES)
def test_an_old_bundle_answers_as_it_did(name: str) -> None:
    assert_same(answers_of(regard.load(OLD / name)), ANSWERS[name])


@pytest.mark.parametrize("name", BUNDLES)
def test_every_attention_of_an_old_bundle_can_be_seen(name: str) -> None:
    model = regard.load(OLD / name)
    with regard.record(model) as seen:
        answers_of(model)
    assert seen.check() < 1e-5


def resumed(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `python -m regard train --resume` prints."""
    monkeypatch.setattr(sys, "argv", ["regard", "train", "--resume", str(folder), "--json"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("regard", run_name="__main__")
    assert not end.value.code
    printed = capsys.readouterr()
    said: dict[str, Any] = json.loads(printed.out)
    return {**said, "told": printed.err}


def test_an_old_run_that_was_stopped_goes_on_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was stopped by Ctrl-C after 7 of 12 updates, and lies somewhere else now. It is told that dropout is drawn by another
    generator; with that of its time it ends as it did then.
    """
    monkeypatch.setattr(regard.noise.np.random, "PCG64DXSM", np.random.SFC64)
    folder = shutil.copytree(OLD / "stopped", tmp_path / "moved")
    assert json.loads((folder / "checkpoints" / "step-7" / "state.json").read_text())["progress"]["finished"] == ""
    before = (folder / "log.jsonl").read_text(encoding="utf-8")
    said = resumed(folder, monkeypatch, capsys)
    assert (said["reason"], said["step"]) == ("steps", 12) and "noise PCG64DXSM (was SFC64)" in said["told"]
    log = (folder / "log.jsonl").read_text(encoding="utf-8")
    assert log.startswith(before)  # what was learned before stands as it did
    rows = [json.loads(row) for row in log.splitlines()]
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    assert_same({"losses": losses, **answers_of(regard.load(folder))}, ANSWERS["stopped"])
