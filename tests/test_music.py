"""Music in words and in MIDI files, there and back; pieces by rule and how far a piece keeps it; the piano roll."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import islice
from pathlib import Path

import mido
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.builtin.music import BAR, PIECES, canon, canons, follower, music_documents, scale
from regard.data.documents import read_documents
from regard.data.midi import read_midi, write_midi
from regard.data.notation import tokens_for
from regard.errors import RegardError, UsageError
from regard.evaluate.music import RULES, score_rule
from regard.inspect.roll import note_weights
from regard.look.roll import PianoRoll
from regard.tasks.configure import run_config
from regard.tokens import train_tokenizer
from regard.tokens.config import TokensConfig
from regard.tokens.notes import (
    METRES,
    STEPS,
    VOICES,
    WORDS,
    Note,
    Piece,
    piece_of,
    pitch_name,
    read_words,
    told_notes,
    whole_bars,
    write_words,
)

SPACE = st.tuples(
    st.integers(0, 211), st.integers(0, VOICES - 1), st.integers(0, 127), st.integers(1, 83), st.integers(0, 7)
)


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    """Any notes, with metres that change where bars begin."""
    notes = [Note(*each) for each in draw(st.lists(SPACE, min_size=1, max_size=29))]
    metres, start = list[tuple[int, str]](), 0
    for metre in draw(st.lists(st.sampled_from(sorted(METRES)), min_size=1, max_size=3)):
        if not metres or metres[-1][1] != metre:
            metres.append((start, metre))
        start += METRES[metre] * draw(st.integers(1, 3))
    last = max(note.start for note in notes)
    return piece_of(notes, [each for each in metres if each[0] <= last])


# --- Words


def test_a_piece_in_words_by_hand() -> None:
    notes = [Note(0, 0, 60, 4), Note(0, 1, 48, 40), Note(12, 0, 62, 2, 7), Note(13, 0, 64, 1, 7)]
    text = "bar 3/4 v1 p0 n48 d32 d8 v0 p0 n60 d4 bar v0 p0 l7 n62 d2 p1 n64 d1"
    piece = piece_of(notes, [(0, "3/4")])
    assert write_words(piece) == text and read_words(text) == piece
    assert piece.bars() == [(0, "3/4"), (12, "3/4")] and piece.length == 40
    assert [len(each) for each in piece.notes_of_bars()] == [2, 2]


@settings(max_examples=60, deadline=None)
@given(pieces())
def test_any_piece_on_the_grid_comes_back_from_words_and_tokens(piece: Piece) -> None:
    text = write_words(piece)
    assert read_words(text) == piece and set(text.split()) <= set(WORDS)


def test_a_note_that_sounds_ends_when_it_is_struck_again() -> None:
    piece = piece_of([Note(0, 0, 60, 9), Note(4, 0, 60, 3), Note(4, 1, 60, 3), Note(4, 0, 60, 5)])
    assert [(note.start, note.voice, note.length) for note in piece.notes] == [(0, 0, 4), (4, 0, 5), (4, 1, 3)]


def test_what_makes_no_sense_is_passed_over() -> None:
    """A model may write anything."""
    piece = read_words("d3 p99 hello n60 n61 d2 bar 3/4 bar 4/4 v14 p30 l7 n127 7/9 <unk>")
    assert [(note.start, note.pitch, note.length) for note in piece.notes] == [(15, 60, 1), (15, 61, 2), (27, 127, 1)]
    assert read_words("").notes == () and write_words(read_words("")) == "bar 4/4"


def test_every_word_is_a_token() -> None:
    tokenizer = train_tokenizer([], TokensConfig(kind="notes"))
    text = write_words(next(canons("train")))
    assert tokenizer.size == 4 + len(WORDS) == 4 + len(set(WORDS))
    assert tokenizer.labels(tokenizer.encode(text)) == text.split() and tokenizer.decode(tokenizer.encode(text)) == text


def test_words_of_each_note_and_bars_that_are_whole() -> None:
    words = ["bar", "4/4", "p0", "n60", "d4", "v1", "n48", "d32", "d8", "bar", "p4", "n62"]
    told = told_notes(words)
    assert [(each.note.pitch, each.named, each.words) for each in told] == [
        (60, 3, (2, 3, 4)),
        (48, 6, (5, 6, 7, 8)),
        (62, 11, (10, 11)),
    ]
    assert whole_bars(" ".join(words), ended=False) == " ".join(words[:9]) and whole_bars("bar p0", True) == "bar p0"


def test_pitches_have_names() -> None:
    assert [pitch_name(pitch) for pitch in (60, 61, 69, 0, 127)] == ["C4", "C♯4", "A4", "C-1", "G9"]


# --- MIDI


@settings(max_examples=40, deadline=None)
@given(piece=pieces())
def test_any_piece_on_the_grid_comes_back_from_midi(piece: Piece, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "piece.mid"
    write_midi(path, piece)
    assert read_midi(path) == piece


def test_midi_is_what_mido_reads() -> None:
    """The file by its messages: delta times in ticks, a track for each voice, percussion's channel left free."""
    piece = piece_of([Note(4, 9, 60, 2), Note(0, 0, 62, 4)])
    data = io.BytesIO(write_midi_bytes(piece))
    file = mido.MidiFile(file=data)
    step = file.ticks_per_beat // STEPS
    heard = [
        [(each.type, each.channel, each.note, each.time) for each in track if not each.is_meta] for track in file.tracks
    ]
    assert heard == [
        [],
        [("note_on", 0, 62, 0), ("note_off", 0, 62, 4 * step)],
        [("note_on", 10, 60, 4 * step), ("note_off", 10, 60, 2 * step)],
    ]


def write_midi_bytes(piece: Piece) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return write_midi(Path(folder) / "a.mid", piece).read_bytes()


def test_other_peoples_files_are_put_on_the_grid(tmp_path: Path) -> None:
    """Rounded times, note-ons of velocity 0, tracks that share a channel, drums, a note that never ends."""
    file = mido.MidiFile(ticks_per_beat=100)
    for pitch in (60, 50):
        track = mido.MidiTrack()
        track.append(mido.Message("note_on", note=pitch, velocity=100, time=13))
        track.append(mido.Message("note_on", note=pitch, velocity=0, time=99))
        track.append(mido.Message("note_on", channel=9, note=36, velocity=100, time=0))
        track.append(mido.Message("note_on", note=pitch + 1, velocity=10, time=40))
        track.append(mido.MetaMessage("end_of_track", time=60))
        file.tracks.append(track)
    file.save(tmp_path / "a.mid")
    notes = read_midi(tmp_path / "a.mid").notes
    assert [(each.start, each.voice, each.pitch, each.length, each.loudness) for each in notes] == [
        (1, 0, 60, 3, 6),
        (1, 1, 50, 3, 6),
        (6, 0, 61, 2, 0),
        (6, 1, 51, 2, 0),
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not a whole MIDI file"),
        (b"MThd\0\0\0\6\0\1\0", "is not a whole MIDI file"),
        (b"RIFF....", "is not a whole"),
    ],
)
def test_broken_files_are_refused_by_name(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "broken.mid").write_bytes(content)
    with pytest.raises(RegardError, match=f"broken.mid {told}"):
        read_midi(tmp_path / "broken.mid")


def test_files_without_notes_or_with_odd_metres_are_refused(tmp_path: Path) -> None:
    write_midi(tmp_path / "empty.mid", Piece(()))
    with pytest.raises(RegardError, match="holds no notes"):
        read_midi(tmp_path / "empty.mid")
    file = mido.MidiFile()
    file.tracks.append(mido.MidiTrack([mido.MetaMessage("time_signature", numerator=5, denominator=16)]))
    file.save(tmp_path / "odd.mid")
    with pytest.raises(RegardError, match=r"odd.mid is in 5/16"):
        read_midi(tmp_path / "odd.mid")


def test_a_folder_of_music_is_read_and_the_rest_is_told(tmp_path: Path) -> None:
    for number, piece in enumerate(islice(canons("train"), 3)):
        write_midi(tmp_path / f"{number}.mid", piece)
    (tmp_path / "broken.mid").write_bytes(b"MThd")
    (tmp_path / "readme.txt").write_text("notes")
    assert tokens_for([str(tmp_path)]) == "notes"
    found = read_documents([str(tmp_path)])
    assert found.texts == [write_words(piece) for piece in islice(canons("train"), 3)]
    assert {why for _, why in found.left_out} == {"no MIDI files", "of no use"}
    config = run_config("generate", {"data": {"train": [str(tmp_path)]}})
    assert config.tokens is not None and config.tokens.kind == "notes" and config.model.kind == "llama"


# --- Rules


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("split", ["train", "test"])
def test_pieces_by_rule_keep_it_in_every_bar(rule: str, split: str) -> None:
    found = score_rule(rule, list(islice(PIECES[rule](split), 31)))
    assert found.kept == found.bars and found.whole == found.pieces and found.share == 1.0 and found.different == 1.0
    shared = set(music_documents(f"builtin/{rule}", "train", 90_000)) & set(
        music_documents(f"builtin/{rule}", "test", 9_000)
    )
    assert not shared


def test_a_canon_is_broken_bar_by_bar() -> None:
    piece = canon(np.random.default_rng(5))
    second = [note for note in piece.notes if note.voice == 1]
    assert [replace(note, start=note.start - BAR, pitch=note.pitch + 12, voice=0) for note in second] == [
        note for note in piece.notes if note.voice == 0
    ]
    wrong = replace(second[0], pitch=second[0].pitch + 1)
    one = piece_of([note for note in piece.notes if note != second[0]] + [wrong])
    assert score_rule("canon", [one]).kept == 7 and score_rule("canon", [one]).bars == 8
    alone = piece_of([note for note in piece.notes if note.voice == 0])
    assert score_rule("canon", [alone]).kept == 0 and score_rule("canon", [alone]).bars == 7
    early = piece_of([*alone.notes, Note(0, 1, 50, 4), *follower(list(alone.notes))])
    assert score_rule("canon", [early]).kept == 8 and score_rule("canon", [early]).bars == 9


def test_scales_and_cadences_are_broken() -> None:
    good = scale(60, (0, 2, 4, 5, 7, 9, 11), 4)
    wrong = piece_of([replace(note, pitch=note.pitch + (note.start == 16)) for note in good.notes])
    assert score_rule("scales", [wrong]).kept == 3 == score_rule("scales", [good]).kept - 1
    short = piece_of(good.notes[:10])
    assert score_rule("scales", [short]).kept == 2 and score_rule("scales", [short]).bars == 3
    cadence = next(PIECES["cadences"]("train"))
    bars = len(cadence.bars())
    sharp = piece_of(
        [replace(note, pitch=note.pitch + (note.start == BAR and note.voice == 0)) for note in cadence.notes]
    )
    assert score_rule("cadences", [sharp]).kept == bars - 1
    assert score_rule("cadences", [Piece(())]).share == 0.0 and score_rule("scales", [Piece(())]).bars == 1


def test_rules_have_names_and_copies_are_counted() -> None:
    with pytest.raises(UsageError, match="no rule of music cannon"):
        score_rule("cannon", [])
    piece = next(canons("train"))
    assert score_rule("canon", [piece, piece]).different == 0.5


# --- The roll


def test_weights_of_notes_are_those_of_the_words_that_tell_them() -> None:
    words = ["bar", "4/4", "p0", "n60", "d4", "p4", "n62", "d4", "v1", "n50", "d4"]
    told = told_notes(words)
    weights = np.zeros((12, 12))
    weights[6, [3, 4, 5, 1]] = 0.1, 0.2, 0.3, 0.4  # the place of p4, from which n62 is guessed; <s> stands before all
    weights[9, [5, 7, 8]] = 0.5, 0.25, 0.25  # the place of v1
    found = note_weights(weights, told)
    assert found[1].tolist() == pytest.approx([0.6, 0, 0]) and found[2].tolist() == pytest.approx([0.5, 0.5, 0])
    assert note_weights(weights[:8, :8], told).shape == (1, 1)


def test_a_roll_shows_itself(tmp_path: Path) -> None:
    piece = next(canons("train"))
    weights = np.zeros((len(piece.notes),) * 2)
    weights[5, 2], weights[7, 3] = 0.9, 0.05
    roll = PianoRoll(piece.notes, tuple(start for start, _ in piece.bars()), weights, None, 3, "a canon", ("told",))
    assert [(each.source, each.target) for each in roll.links()] == [(5, 2)]  # faint looks are not drawn
    assert roll.save(tmp_path / "roll.png").stat().st_size > 5000 and roll.save(tmp_path / "roll.json").exists()
    lines = roll.text(60).splitlines()
    assert lines[0] == "a canon" and lines[-1].startswith("the first 54 of") and len(set(map(len, lines[2:-1]))) == 1
