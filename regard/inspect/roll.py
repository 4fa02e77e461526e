"""The attention of a model of music over a piano roll: at which notes it looked when it named each note.

The word that names a note is predicted from the word before it. What that place looked at is summed over the words that tell
of each earlier note: its step, voice, pitch and length. What it looked at besides (bars, the beginning) belongs to no note.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.errors import UsageError
from regard.inspect.texts import LanguagePredictor
from regard.look.roll import PianoRoll
from regard.look.sentence import SentenceAttention
from regard.predictor import Predictor
from regard.tokens.notes import ToldNote, read_words, told_notes


def has_notes(predictor: Predictor) -> bool:
    """Whether a model reads music."""
    tokens = predictor.config.tokens
    return tokens is not None and tokens.kind == "notes"


def roll_of(
    predictor: LanguagePredictor,
    text: str,
    *,
    layer: int | None = None,
    head: int | None = None,
    word: str | None = None,
    given: int = 0,
) -> PianoRoll:
    """The piano roll of a piece in words. Without `layer`, that of the head which looks most sharply at single notes.

    `word` is the number of a note, from 0: then its look alone is shown. `given` notes were there before the model wrote.
    """
    words = text.split()
    told = told_notes(words)
    if not told:
        raise UsageError("there is no note in this text", "name a MIDI file, or words such as: bar 4/4 p0 n60 d4")
    bars = tuple(start for start, _ in read_words(text).bars())
    chosen = None if word is None else _numbered(word, len(told))
    found = predictor.attentions(text)
    notes = tuple(each.note for each in told)
    if not found.layers:
        why = (f"a {predictor.config.model.kind} has no attention",)
        return PianoRoll(notes, bars, None, chosen, given, "piano roll", why)
    heads = _heads(found, layer, head)
    looks = {name: note_weights(weights, told) for name, weights in heads.items()}
    name = max(looks, key=lambda each: float(looks[each].max(axis=1).mean()))
    notes_seen = len(looks[name])
    whole = np.zeros((len(told), len(told)))
    whole[:notes_seen, :notes_seen] = looks[name]
    what = (
        "the look of one note"
        if chosen is not None
        else "from each note to the one it looked at most when it was named"
    )
    return PianoRoll(notes, bars, whole, chosen, given, f"{name}: {what}", found.notes)


def note_weights(weights: np.ndarray, told: Sequence[ToldNote]) -> np.ndarray:
    """How much each note looked at each other when it was named: (T, S) of tokens, the first the begin token, -> (N, N).

    A text may be longer than what the model reads at once: notes that it did not read are left out.
    """
    seen = [each for each in told if each.words[-1] + 1 < weights.shape[1] and each.named < len(weights)]
    found = np.zeros((len(seen), len(seen)))
    rows = np.nan_to_num(weights)
    for number, note in enumerate(seen):
        row = rows[note.named]  # the token before it: ids have one more before all words
        found[number, :number] = [sum(row[place + 1] for place in other.words) for other in seen[:number]]
    return found


def _heads(found: SentenceAttention, layer: int | None, head: int | None) -> dict[str, np.ndarray]:
    """The weights (T, S) of each head to choose from, by a name."""
    if layer is not None:
        chosen = found.map(layer, head).weights
        return {f"layer {layer}, {'mean of its heads' if head is None else f'head {head}'}": chosen}
    if head is not None:
        raise UsageError("--head needs --layer", "name both, or neither")
    every = enumerate(found.layers.values())
    return {f"layer {place}, head {number}": one for place, heads in every for number, one in enumerate(heads)}


def _numbered(word: str, count: int) -> int:
    if not word.isdecimal() or int(word) >= count:
        raise UsageError(f"no note {word}", f"give a number from 0 to {count - 1}")
    return int(word)
