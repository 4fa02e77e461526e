"""What a model of music or sound begins with, and what it wrote: as files, pieces and pictures, and held against a rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.config import find_file
from regard.data.form import form_of
from regard.data.midi import write_midi
from regard.data.notation import NOTATIONS, Notation
from regard.data.sound.waves import Sound, read_sound, write_wav
from regard.errors import UsageError, nearest
from regard.evaluate.music import RULES, RuleScore, score_rule
from regard.inspect.roll import roll_of
from regard.look.roll import PianoRoll
from regard.look.spectrograms import Spectrograms, spectrogram
from regard.predictor import Cancel, check_cancel
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.results import Generated
from regard.tokens.config import LABELS_FROM
from regard.tokens.notes import Piece, read_words, told_notes, whole_bars
from regard.tokens.samples import label_word, read_letters

VIEWS = (".png", ".svg", ".html", ".json")
PIECES = 64  # written to be held against a rule
TOGETHER = 32  # of these, at a time
LIMIT = 400  # tokens of such a piece; the longest canon has about 300


def notation_of_model(generator: Generator) -> Notation | None:
    """What the texts of a model are written in; None: they are text."""
    tokens = generator.config.tokens
    return None if tokens is None else NOTATIONS.get(tokens.kind)


def rate_of(generator: Generator) -> int:
    """Samples a second of what a model writes."""
    return form_of(generator.config.tokens).rate


# --- What it begins with


def beginning(generator: Generator, start: str | None, label: str | None) -> str:
    """The text that a model begins with: what a file holds, behind a label."""
    notation = notation_of_model(generator)
    if notation is None:
        raise UsageError(
            "this is a model of text", "type how the text begins; --start and --label are for music, sound and pictures"
        )
    said = "" if label is None else _checked_label(generator, label)
    if start is None:
        return said
    path = find_file(start)
    if path.suffix.lower() not in notation.suffixes:
        raise UsageError(
            f"{start} is none of the {notation.called} that this model goes on with",
            f"name a {notation.suffixes[0]} file",
        )
    return said + notation.read(path, "", form_of(generator.config.tokens))


def labels_of(generator: Generator) -> list[str]:
    """The labels that a model of sound knows."""
    tokens = generator.config.tokens
    if tokens is None or tokens.kind != "samples":
        return []
    names = generator.tokenizer.vocabulary(generator.tokenizer.size)[LABELS_FROM:]
    return [name[1:-1] for name in names]


def _checked_label(generator: Generator, label: str) -> str:
    known = labels_of(generator)
    if label not in known:
        raise UsageError(f"this model knows no label {label}", nearest(label, known) if known else "leave out --label")
    return label_word(label)


# --- What it wrote


def piece_in(written: Generated) -> Piece:
    """The piece that was written, with what it began with; without a last bar that a limit ended."""
    return read_words(whole_bars(str(written), written.finished))


def sound_in(written: Generated, rate: int) -> Sound:
    """The sound that was written, with what it began with."""
    return Sound(read_letters(str(written))[0], rate)


def check_saving(generator: Generator, path: Path) -> None:
    """Refuse a file that what the model writes cannot be saved in, before it is written."""
    notation = notation_of_model(generator)
    if notation is None:
        raise UsageError("-o is for models of music, sound and pictures", "a text is printed: redirect it with > FILE")
    fits = (notation.suffixes[0], *VIEWS)
    if path.suffix.lower() not in fits:
        raise UsageError(f"cannot tell how to write {path.name}", f"this model writes {', '.join(fits)}")


def save_written(generator: Generator, written: Generated, path: Path, beside: Sequence[str] = ()) -> Path:
    """Write what a model wrote: as MIDI or WAV, or as a picture of it, by the suffix. `beside` are sounds to compare with."""
    notation = notation_of_model(generator)
    assert notation is not None
    if path.suffix.lower() not in notation.suffixes:
        view = (
            roll_in(generator, written) if notation.tokens == "notes" else spectrograms_in(generator, written, beside)
        )
        return view.save(path)
    if notation.tokens == "notes":
        return write_midi(path, piece_in(written))
    sound = sound_in(written, rate_of(generator))
    return write_wav(path, sound.samples, sound.rate)


def roll_in(generator: Generator, written: Generated) -> PianoRoll:
    """The piano roll of what was written, with the attention of the model that wrote it."""
    given = len(told_notes(written.prompt.split()))
    return roll_of(generator, whole_bars(str(written), written.finished), given=given)


def spectrograms_in(generator: Generator, written: Generated, beside: Sequence[str] = ()) -> Spectrograms:
    """The spectrogram of what was written, and of other sounds beside it."""
    rate, label = rate_of(generator), read_letters(str(written))[1]
    sounds = {f"written: {label}" if label else "written": sound_in(written, rate)}
    sounds |= {Path(name).name: read_sound(find_file(name)) for name in beside}
    return Spectrograms(tuple(spectrogram(each.samples, each.rate, title) for title, each in sounds.items()))


# --- Held against a rule


def rule_of(names: Sequence[str]) -> str | None:
    """The rule of a built-in set of pieces, as builtin/canon/test; None if there is none."""
    rules = {name.split("/")[1] for name in names if name.startswith("builtin/")}
    found = rules & set(RULES)
    return found.pop() if len(found) == 1 and len(rules) == len(names) else None


def compose_by_rule(
    generator: Generator, rule: str, pieces: int = PIECES, *, seed: int = 1, cancel: Cancel | None = None
) -> RuleScore:
    """Let a model write pieces from nothing, and hold them against a rule."""
    found: list[Piece] = []
    for first in range(0, pieces, TOGETHER):
        check_cancel(cancel)
        places = range(first, min(pieces, first + TOGETHER))
        written = generator.generate([""] * len(places), places=places, seed=seed, max_length=LIMIT, cancel=cancel)
        found += [piece_in(each) for each in written]
    return score_rule(rule, found)
