"""Music and sound from the first command to the last: `regard train generate`, `generate`, `look`, `eval`, as typed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.cli.main import run
from regard.data.builtin.music import canons
from regard.data.midi import read_midi, write_midi
from regard.data.sound.waves import read_wav, write_wav
from regard.inspect.roll import roll_of
from regard.tasks.generate.compose import beginning, compose_by_rule, labels_of, piece_in, rule_of, sound_in
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.results import Generated
from regard.tokens.notes import Piece, piece_of, write_words
from regard.tokens.samples import write_letters

SHORT = ["train.batch_tokens=640", "train.validate_every=2", "train.precision=float32", "train.warmup=0"]
BLOCKS = ["model.layers=1", "model.width=12", "model.heads=2", "model.feed_forward=16", "model.positions=shaw"]


def typed(*words: object) -> int:
    return run([str(word) for word in words])


@pytest.fixture(scope="module")
def music(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a folder of canons, of which some files are none."""
    here = tmp_path_factory.mktemp("music")
    for number, piece in zip(range(8), canons("train"), strict=False):
        write_midi(here / f"{number}.mid", piece)
    settings = [f"--set={each}" for each in (*SHORT, *BLOCKS, "data.context=96", "samples=3")]
    assert typed("train", "generate", "--data", here, "--steps", 3, *settings, "-o", here / "run") == 0
    return here / "run"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on folders of tones, one for each label."""
    here = tmp_path_factory.mktemp("sound")
    for label, hertz in (("la", 440), ("mi", 660)):
        (here / "tones" / label).mkdir(parents=True)
        for number in range(3):
            wave = np.sin(2 * np.pi * (hertz * np.arange(300 + 7 * number) / 2000 + number / 5))
            write_wav(here / "tones" / label / f"{number}.wav", 0.5 * wave, 2000)
    model = ["model.channels=4", "model.width=6", "model.dilations=[1,2]", "model.sets=1"]
    settings = [f"--set={each}" for each in (*SHORT, *model, "data.context=64", "data.rate=2000")]
    words = ("train", "generate", "--data", here / "tones", "--steps", 3, *settings, "-o", here / "run")
    assert typed(*words) == 0
    return here / "run"


# --- Music


def test_a_model_goes_on_with_a_file_and_writes_one(music: Path, tmp_path: Path) -> None:
    start = next(canons("test"))
    write_midi(tmp_path / "bars.mid", start)
    files = [tmp_path / name for name in ("out.mid", "roll.png", "roll.json", "roll.html")]
    outs = [word for file in files for word in ("-o", file)]
    assert typed("generate", "-m", music, "--start", tmp_path / "bars.mid", "-n", 60, "--seed", 1, *outs) == 0
    written = read_midi(files[0])
    bars = len(start.bars()) - 1  # what goes on may end in the last bar, which a limit ended
    assert written.notes_of_bars()[:bars] == start.notes_of_bars()[:bars]
    roll = json.loads(files[2].read_text())
    assert roll["given"] == len(start.notes) and np.array(roll["weights"]).shape == (len(roll["notes"]),) * 2
    assert files[1].stat().st_size > 5000


def test_several_samples_are_several_files(music: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_midi(tmp_path / "bars.mid", next(canons("test")))
    words = ("--start", tmp_path / "bars.mid", "-n", 4, "--samples", 2, "--seed", 1, "-o", tmp_path / "a.mid")
    assert typed("generate", "-m", music, *words) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"bars.mid", "a.mid", "a-2.mid"}
    assert re.search(
        r"^[2-8] tokens in", capsys.readouterr().err, re.MULTILINE
    )  # of both; a piece may end before its limit


def test_a_file_is_looked_at_as_a_roll_or_in_any_form(
    music: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_midi(tmp_path / "bars.mid", piece_of(next(canons("test")).notes[:9]))
    words = ("look", tmp_path / "bars.mid", "-m", music)
    assert typed(*words, "--as", "roll", "--layer", 0, "--head", 1, "--word", 3) == 0
    assert "layer 0, head 1: the look of one note" in capsys.readouterr().out
    assert typed(*words, "--as", "map") == 0 and "n" in capsys.readouterr().out
    assert typed(*words, "--as", "roll", "--word", 9) == 2 and "from 0 to 8" in capsys.readouterr().err
    assert typed("look", "p0", "-m", music, "--as", "roll") == 2 and "no note" in capsys.readouterr().err


def test_weights_of_the_roll_are_those_that_the_model_reports(music: Path) -> None:
    """Row of the word before each note, summed over the words of each earlier one, from the whole map."""
    generator: Generator = regard.load(music)
    words = ["bar", "4/4", "p0", "n60", "d4", "p4", "n62", "d4", "v1", "n50", "d4"]
    roll = roll_of(generator, " ".join(words), layer=0, head=1)
    weights = generator.attention(" ".join(words)).map(0, 1).weights  # <s> stands before all
    assert roll.weights is not None
    assert roll.weights[1, 0] == pytest.approx(weights[words.index("n62"), 3:6].sum())
    assert roll.weights[2, 1] == pytest.approx(weights[words.index("n50"), 6:9].sum())


def test_eval_holds_pieces_against_the_rule(music: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("eval", music, "--on", "builtin/scales/test", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rule"]["pieces"] == 64 and found["rule"]["rule"] == "scales" and found["bits_per_byte"] is None
    assert rule_of(["builtin/canon/test"]) == "canon" and rule_of(["builtin/canon", "a.mid"]) is None
    assert rule_of(["builtin/python"]) is None


def test_pieces_that_are_copied_keep_the_rule(music: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that writes right canons has them all; one that a limit stopped is judged by its whole bars."""
    generator: Generator = regard.load(music)
    pieces = canons("test")

    def written(prompts: list[str], **options: object) -> list[Generated]:
        texts = [write_words(next(pieces)) for _ in prompts]
        return [Generated("", text + " p7 n1", 0.0, 0.0, (), (), False) for text in texts]

    monkeypatch.setattr(generator, "generate", written)
    found = compose_by_rule(generator, "canon", 33)
    assert found.pieces == 33 and found.kept == found.bars == 33 * 7  # the last bar of each is left out


# --- Sound


def test_a_model_writes_the_sound_of_a_label(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outs = ("-o", tmp_path / "a.wav", "-o", tmp_path / "a.png", "--beside", sound.parent / "tones" / "mi" / "0.wav")
    assert typed("generate", "-m", sound, "--label", "mi", "-n", 50, "--seed", 3, *outs) == 0
    assert "a second" in capsys.readouterr().err and (tmp_path / "a.png").stat().st_size > 5000
    found = read_wav(tmp_path / "a.wav")
    assert found.rate == 2000 and 0 < len(found.samples) <= 50
    generator: Generator = regard.load(sound)
    assert labels_of(generator) == ["la", "mi"] and beginning(generator, None, "la") == "<la>"
    again = sound_in(generator.generate("<mi>", seed=3, max_length=50), 2000)
    np.testing.assert_allclose(again.samples, found.samples, atol=1 / 32000)


def test_eval_of_sound_says_nats_a_sample(sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("eval", sound, "--on", sound.parent / "tones" / "la", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["loss"] < 7 and found["bits_per_byte"] is None and "rule" not in found


# --- What does not go together


@pytest.mark.parametrize(
    ("which", "words", "told"),
    [
        ("music", ["-o", "a.wav"], "this model writes .mid, .png, .svg, .html, .json"),
        ("music", ["--label", "x", "-o", "a.mid"], "knows no label x; leave out --label"),
        ("music", ["--start", "a.wav", "-o", "a.mid"], "name a .mid file"),
        ("music", ["bar", "--label", "x"], "both say how it begins"),
        ("music", ["--beside", "a.wav"], "-o sound.png"),
        ("sound", [], "say where it goes: -o sound.wav"),
        ("sound", ["--label", "lo", "-o", "a.wav"], "there is la, mi"),
    ],
)
def test_what_does_not_go_together_is_refused(
    which: str, words: list[str], told: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    model: Path = request.getfixturevalue(which)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.wav").write_bytes(b"")
    assert typed("generate", "-m", model, *words) == 2
    assert told in capsys.readouterr().err


def test_a_piece_of_nothing_is_a_piece() -> None:
    assert piece_in(Generated("", "", 0.0, 0.0, (), (), True)) == Piece(()) and write_letters(np.zeros(0)) == ""
