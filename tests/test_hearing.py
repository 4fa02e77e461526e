"""Transcribing and classifying sounds from the command line: trained, used, scored, drawn; and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.cli import main
from regard.data.builtin import tones
from regard.data.sound.waves import Sound, write_wav
from regard.errors import UsageError

Captured = pytest.CaptureFixture[str]
PAGE = (Path(regard.__file__).parent.parent / "docs" / "json.md").read_text(encoding="utf-8")
SMALL = ["--preset", "demo", "--steps", "2", "--set", "data.builtin_size=12", "--set", "data.hold_out=5"]
SMALL += ["--set", "model.width=16", "--set", "model.layers=1", "--set", "validate.sounds=3", "--set", "train.warmup=1"]


def kind(value: Any) -> Any:
    """The shape of JSON: keys with kinds of values, and of a list its first."""
    if isinstance(value, dict):
        return {key: kind(each) for key, each in value.items()}
    if isinstance(value, list):
        return [kind(each) for each in value[:1]]
    return "number" if isinstance(value, int | float) else type(value).__name__


def typed(capsys: Captured, *words: str, code: int = 0) -> str:
    assert main.run(list(words)) == code
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind that transcribes, and one that classifies, after two updates; and a sound."""
    folder = tmp_path_factory.mktemp("hearing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        for name in ("conformer", "conformer-transformer"):
            assert main.run(["train", "transcribe", "--model", name, "-o", str(folder / name), *SMALL]) == 0
        words = [word for word in SMALL if not word.startswith("validate")]
        place = words.index("--set", words.index("model.layers=1"))
        del words[place]
        assert main.run(["train", "classify", "--data", "builtin/tones", "-o", str(folder / "sounds"), *words]) == 0
    write_wav(folder / "talk.wav", np.concatenate([tones.dialled(9, number)[0] for number in range(3)]), 8000)
    write_wav(folder / "silent.wav", np.zeros(9000), 8000)
    return folder


@pytest.mark.parametrize("name", ["conformer", "conformer-transformer"])
def test_a_sound_is_transcribed_with_times(
    name: str, runs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    found = json.loads(typed(capsys, "transcribe", "talk.wav", "-m", name, "--json", "--piece", "1.5"))
    (example,) = re.findall(r"```json transcribe\n(.*?)```", PAGE, flags=re.DOTALL)
    wanted = json.loads(example)
    assert found.keys() == wanted.keys() and (not found["words"] or kind(found) == kind(wanted))
    assert found["seconds"] == pytest.approx(len(np.concatenate([tones.dialled(9, n)[0] for n in range(3)])) / 8000)
    by = ["--ctc", "1"] if name == "conformer-transformer" else []
    text = typed(capsys, "transcribe", "talk.wav", "-m", name, "--beam", "1", *by)
    lines = typed(capsys, "transcribe", "talk.wav", "-m", name, "--beam", "1", "--times", *by).splitlines()
    assert [line.split("\t")[2] for line in lines] == text.split()
    starts = [float(line.split("\t")[0]) for line in lines]
    assert starts == sorted(starts)


def test_of_a_long_sound_is_told_how_much_was_heard(
    runs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    monkeypatch.setattr("regard.cli.transcribe.EVERY", 0.0)
    assert main.run(["transcribe", "talk.wav", "-m", "conformer", "--beam", "1", "--piece", "1"]) == 0
    told = re.findall(r"talk.wav: heard (.*) of (.*) minutes, about (.*) s left", capsys.readouterr().err)
    seconds = len(np.concatenate([tones.dialled(9, number)[0] for number in range(3)])) / 8000
    assert len(told) >= 2 and {total for _, total, _ in told} == {f"{seconds / 60:.1f}"}
    assert main.run(["transcribe", "talk.wav", "-m", "conformer", "-o", "talk.csv"]) == 2
    assert "use .png, .svg, .html, .json" in capsys.readouterr().err and not Path("talk.csv").exists()


def test_a_transcript_is_drawn_and_saved(runs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    for suffix in ("png", "html", "json"):
        typed(capsys, "transcribe", "talk.wav", "-m", "conformer-transformer", "--beam", "2", "-o", f"talk.{suffix}")
    assert Path("talk.png").read_bytes()[:4] == b"\x89PNG" and "CTC path" in Path("talk.html").read_text()
    drawn = json.loads(Path("talk.json").read_text())
    weights = np.array(drawn["attention"]["weights"])
    assert len(weights) == len(drawn["attention"]["tokens"])
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-4)
    typed(capsys, "look", "talk.wav", "-m", "conformer", "--layer", "0", "--head", "1", "-o", "own.png")
    assert "spectrogram" in typed(capsys, "look", "talk.wav", "-m", "sounds")


def test_files_that_cannot_be_heard_are_named(runs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    Path("bad.wav").write_bytes(b"RIFFnothing")
    assert main.run(["transcribe", "silent.wav", "bad.wav", "-m", "conformer"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["silent.wav\t", "bad.wav\t"] and "bad.wav" in err
    assert main.run(["transcribe", "talk.wav", "-m", "conformer-transformer", "--ctc", "2"]) == 2
    assert "0 to 1" in capsys.readouterr().err


def test_scores_have_intervals(runs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    monkeypatch.setattr("regard.tasks.evaluate_sounds.MADE", 7)
    found = json.loads(typed(capsys, "eval", "conformer", "--on", "builtin/keys/test", "--json"))
    assert found["sounds"] == 7 and found["wer"]["low"] <= found["wer"]["value"] <= found["wer"]["high"]
    assert "word error rate" in typed(capsys, "eval", "conformer", "--on", "builtin/keys/test", "--beam", "1")
    labels = json.loads(typed(capsys, "eval", "sounds", "--on", "builtin/tones/test", "--json"))
    assert labels["items"] == 7 and 0 <= labels["accuracy"] <= 100


def test_a_sound_is_classified(runs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    label, share = typed(capsys, "classify", "talk.wav", "-m", "sounds", "--scores").split()
    assert label in tones.KINDS and 0 < float(share) <= 1
    model = regard.load(runs / "sounds", task="classify-sounds")
    one, two = model.classify([Sound(tones.tone(1, 0)[0].astype(np.float32), 8000), str(runs / "talk.wav")])
    assert sum(one.probabilities.values()) == pytest.approx(1) and two.label == label
    with pytest.raises(UsageError, match="classify-sounds"):
        regard.load(runs / "sounds", task="transcribe")
