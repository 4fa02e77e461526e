"""Bundles that come with the package: whole, as good as their cards say on examples, and used where there is no run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import regard
from regard.bundle import load_bundle
from regard.cli.main import run
from regard.runs import SHIPPED, bundle_folder, bundle_task, shipped_bundles, shipped_for

Captured = pytest.CaptureFixture[str]


def test_every_bundle_loads_and_says_how_it_was_made() -> None:
    found = shipped_bundles()
    assert {"dates", "names"} <= set(found)
    for name, folder in found.items():
        load_bundle(folder)  # which checks every file against its SHA-256
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert f"regard train {bundle_task(folder).partition('-')[0]} " in card and f"-m {name} " in card
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*")) < 12e6


def test_names_and_dates_are_read() -> None:
    names = regard.load(bundle_folder("names"), task="classify")
    told = {"Deutschland": "de", "المغرب": "ar", "Ελλάδα": "el", "대한민국": "ko"}
    right = sum(names.classify(name).label == language for name, language in told.items())
    assert right >= 3
    dates = regard.load(bundle_folder("dates"), task="translate")
    read = {"3 mai 2004": "2004-05-03", "mardi 3 mars 1998": "1998-03-03", "31 декабря 1999 г.": "1999-12-31"}
    assert [each.text for each in dates.translate(list(read))] == list(read.values())


def test_without_a_run_the_bundle_that_comes_with_regard_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["translate", "3 mai 2004"]) == 0
    out, err = capsys.readouterr()
    assert out == "2004-05-03\n"
    assert err.startswith("model: dates, which comes with Regard; there is no translate run here")
    assert run(["classify", "-m", "names", "Deutschland"]) == 0
    assert re.search(r"\bde\b", capsys.readouterr().out)
    (tmp_path / "names").mkdir()  # what stands here is meant first
    assert run(["classify", "-m", "names", "Deutschland"]) == 2


def test_where_none_ships_a_person_is_told_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.runs.SHIPPED", tmp_path / "nothing")
    assert shipped_for(("translate",)) is None
    assert run(["translate", "3 mai 2004"]) == 2
    assert "make one with: regard train translate --data pairs.tsv" in capsys.readouterr().err
