"""Faithfulness of maps: whether the words that a model looks at are those on which its output depends.

Each word is removed in turn, of the source of a translation or of a text that gets a label, and the fall of the output's
probability is compared with how much the word was looked at (`regard.evaluate.faithful`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
import torch

from regard.attention import record
from regard.data.batch import LabelBatch
from regard.data.batches import Row, as_row, label_batches
from regard.data.labelled import Labelled
from regard.data.pairs import Pair
from regard.errors import Advice, Option, UsageError
from regard.evaluate.faithful import Case, score_maps
from regard.inspect.heads import words_in
from regard.inspect.texts import TOGETHER, LabelPredictor, Map, Material, PairPredictor, Texts, pair_texts, prepare
from regard.look.heads import Faithfulness, MapScore
from regard.look.sentence import rollout
from regard.predictor import Cancel, Predictor, Progress, check_cancel, check_predictor
from regard.tokens.words import Words

MEAN, ONLY, COUNTED = "mean of all heads", "its attention", "what counted"
THROUGH = "the same, through the encoder (rollout)"

Maps = dict[str, np.ndarray]  # by name, (T, S): of each prediction, where it looked


class FaithfulnessSubject(Protocol):
    """Texts of which words can be removed."""

    texts: Texts

    axis: str  # whose words are removed
    what: str  # whose probability falls, for the person

    def without(self, each: Sequence[tuple[int, Sequence[int]]]) -> Texts:
        """Each time a text, by number, without the tokens at these places."""

    def maps(self) -> list[Maps]:
        """The maps of each text."""

    def asked(self, text: int) -> np.ndarray:
        """Which predictions of a text count: booleans (T,)."""


class TranslationSubject:
    """Tokens of a translation, end not counted, and the words of its source."""

    axis = "source"

    def __init__(self, predictor: PairPredictor, read: Texts, reference: bool) -> None:
        self.predictor = predictor
        self.what = f"tokens of {'the reference' if reference else 'its own greedy translation'}"
        self.texts = read if reference else _own(predictor, read)

    def without(self, each: Sequence[tuple[int, Sequence[int]]]) -> Texts:
        """Sources and targets come with their end, which `pair_texts` adds again."""
        ids = self.texts.ids
        pairs = [(_removed(ids[n]["source"][:-1], gone), ids[n]["target"][:-1]) for n, gone in each]
        return pair_texts(self.predictor, pairs, self.texts.name)

    def maps(self) -> list[Maps]:
        found: list[list[Map]] = [[] for _ in range(len(self.texts))]
        for each in self.texts.maps("self", "cross"):
            found[each.text].append(each)
        if not any(each.role == "cross" for each in found[0]):
            raise UsageError("this model does not look at its source: it has no map that could be faithful")
        return [_of_source(each) for each in found]

    def asked(self, text: int) -> np.ndarray:
        special = self.predictor.tokenizers.target.specials.all
        return np.array([number not in special for number in self.texts.ids[text]["target"]])


def _own(predictor: PairPredictor, read: Texts) -> Texts:
    """The sources with the model's own translations, in place of the references."""
    own = predictor.greedy_pairs([source for source, _ in cast("Sequence[Pair]", read.raw)])
    if not own:
        raise UsageError("the model's own translations are empty", Advice("ask for references: ", Option("reference")))
    return pair_texts(predictor, own, read.name)


def _of_source(maps: Sequence[Map]) -> Maps:
    """Maps of the source: the mean of all heads, the same through the encoder, each layer, each head.

    Through the encoder is the mean of all times the encoder's rollout; `SentenceAttention.rollout` takes the last layer's look.
    """
    cross = [each for each in maps if each.role == "cross"]
    mean = np.mean([each.weights.mean(axis=0) for each in cross], axis=0)  # (T, S)
    own = [each for each in maps if each.role == "self"]
    through = {THROUGH: mean @ rollout([each.weights for each in own])} if own else {}
    name = MEAN if sum(len(each.weights) for each in cross) > 1 else ONLY
    return {name: mean, **through, **_parts(cross)}


def _parts(maps: Sequence[Map], role: bool = False) -> Maps:
    """A map for each layer and for each head, where there are several."""
    found: Maps = {}
    for each in maps:
        name = f"{each.role} {each.layer}" if role else f"{each.layer}"
        if len(maps) > 1:
            found[f"layer {name}"] = each.weights.mean(axis=0)
        if len(each.weights) > 1:
            found |= {f"head {name}.{head}": weights for head, weights in enumerate(each.weights)}
    return found


class LabelSubject:
    """The label of a text, and its words."""

    axis = "text"

    def __init__(self, predictor: LabelPredictor, read: Texts, reference: bool) -> None:
        self.predictor = predictor
        self.what = "the right label" if reference else "the label that the model gives"
        raw = cast("Sequence[Labelled]", read.raw)
        if any(each.parents is not None for each in raw):
            raise UsageError("a tree has no place for a word that is removed; faithfulness is for texts without trees")
        shares = predictor.probabilities([each.text for each in raw], [each.second for each in raw])
        self._labels = (
            np.array([predictor.labels.index(each.label) for each in raw]) if reference else shares.argmax(axis=1)
        )
        self._rows = [as_row(predictor.tokenizer, each.text, each.second, predictor.longest) for each in raw]
        self.texts = self._texts(read.name, self._rows, self._labels)

    def _texts(self, name: str, rows: Sequence[Row], labels: np.ndarray) -> Texts:
        batches = label_batches(rows, labels, self.predictor.tokenizer, TOGETHER, seed=0)
        ids = [{"text": tuple(int(number) for number in row)} for row, _ in rows]
        return Texts(self.predictor, ids, [(group, batches.take(group)) for group in batches.plan(0)], name)

    def without(self, each: Sequence[tuple[int, Sequence[int]]]) -> Texts:
        rows = [(np.delete(self._rows[n][0], list(gone)), np.delete(self._rows[n][1], list(gone))) for n, gone in each]
        return self._texts(self.texts.name, rows, self._labels[[number for number, _ in each]])

    @torch.inference_mode()
    def maps(self) -> list[Maps]:
        """Maps of each text: how much each token counted for the label, and the mean over the queries of each head."""
        predictor, found = self.predictor, list[Maps]({} for _ in range(len(self.texts)))
        for numbers, batch in self.texts.batches:
            assert isinstance(batch, LabelBatch)
            batch = batch.to(predictor.device)
            with record(predictor.model) as seen:
                predictor.model.logits(batch)
            counted = predictor.model.looked(seen, batch.lengths).double().cpu().numpy()  # (B, S)
            for row, number in enumerate(numbers):
                found[number][COUNTED] = counted[row : row + 1, : len(self.texts.ids[number]["text"])]
        heads: list[list[Map]] = [[] for _ in found]
        for each in self.texts.maps():
            heads[each.text].append(each)
        for number, maps in enumerate(heads):
            roles = len({each.role for each in maps}) > 1
            found[number] |= {name: map.mean(axis=0)[None] for name, map in _parts(maps, roles).items()}
        return found

    def asked(self, text: int) -> np.ndarray:
        return np.ones(1, dtype=bool)


def _removed(ids: Sequence[int], gone: Sequence[int]) -> list[int]:
    return [number for place, number in enumerate(ids) if place not in set(gone)]


LONGEST = 128  # tokens of a text that fits: each of its words costs a pass
PART = 16  # texts whose words are removed at once, so that progress can be seen


def faithfulness(
    predictor: Predictor,
    data: Material | Sequence[object],
    *,
    texts: int = 200,
    reference: bool = False,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> Faithfulness:
    """Measure how faithful the maps of a model that translates or classifies are: of each head, of layers, of all.

    reference   what shall be predicted is what the data say, not what the model itself says
    cancel      is asked between passes whether to stop, which raises `Cancelled`
    """
    check_predictor(predictor, "faithfulness")
    check_faithful(predictor)
    material = data if isinstance(data, Material) else Material(data)
    read = prepare(predictor, material, texts, longest=LONGEST)
    return measure_faithfulness(_subject(predictor, read, reference), progress, cancel)


def _subject(predictor: Predictor, read: Texts, reference: bool) -> FaithfulnessSubject:
    if isinstance(predictor, PairPredictor):
        return TranslationSubject(predictor, read, reference)
    assert isinstance(predictor, LabelPredictor)
    return LabelSubject(predictor, read, reference)


def check_faithful(predictor: Predictor) -> None:
    """Refuse in words where there is no source whose words could be removed."""
    if not isinstance(predictor, PairPredictor | LabelPredictor):
        raise UsageError(
            "faithfulness asks whether an output depends on the words of a source; a model to "
            f"{predictor.config.task} has none: take one that translates or classifies"
        )


def measure_faithfulness(
    subject: FaithfulnessSubject, progress: Progress | None = None, cancel: Cancel | None = None
) -> Faithfulness:
    """Remove every word of every text once."""
    words = [words_in(labels[subject.axis])[0] for labels in subject.texts.labels()]
    chosen = [number for number, each in enumerate(words) if len(each) > 1]
    whole, maps = subject.texts.prediction_losses(), subject.maps()
    cases: list[Case] = []
    for start in range(0, len(chosen), PART):
        check_cancel(cancel)
        cases += _cases(subject, chosen[start : start + PART], words, whole, maps)
        if progress is not None:
            progress(len(cases), len(chosen))
    scores, random, best = score_maps(cases)
    count = sum(case.falls.shape[1] for case in cases)
    found = tuple(MapScore(name, each.score, each.drop, each.hits) for name, each in scores.items())
    mean = float(np.mean([len(words[number]) for number in chosen]))
    return Faithfulness(subject.what, len(cases), count, mean, random, best, found)


def _cases(
    subject: FaithfulnessSubject,
    chosen: Sequence[int],
    words: Sequence[Words],
    whole: Sequence[np.ndarray],
    maps: Sequence[Maps],
) -> list[Case]:
    """Measure some texts: a pass without each of their words, all of them in batches."""
    without = subject.without([(number, word) for number in chosen for word in words[number]])
    losses, found = iter(without.prediction_losses()), []
    for number in chosen:
        falls = np.stack([next(losses) - whole[number] for _ in words[number]])  # (W, T)
        asked = subject.asked(number)  # (T,)
        weights = {name: merged(map, words[number])[asked] for name, map in maps[number].items()}
        found.append(Case(falls[:, asked], weights))
    return found


def merged(weights: np.ndarray, words: Words) -> np.ndarray:
    """The weight of each word, the sum over its pieces: (T, S) -> (T, W)."""
    return np.stack([weights[:, list(word)].sum(axis=1) for word in words], axis=1)
