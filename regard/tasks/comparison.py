"""How models of a task are compared: reading a test set, which labels it asks for, and the scores of a model on it.

A task's record names a `Comparison`; `compare/quality.py` does the rest for all of them. Translations have a report of their
own (`compare/translation.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from regard.config import find_file
from regard.data.builtin.scenes import scenes
from regard.data.documents import read_documents
from regard.data.labelled import Labelled, load_labelled, read_labelled
from regard.data.pictures.captions import read_captions, read_questions
from regard.data.pictures.load import SEEDS, SHAPES, read_pictures
from regard.errors import UsageError
from regard.look.words import WeighedText
from regard.predictor import Predictor
from regard.tasks.answer.predictor import QuestionAnswerer
from regard.tasks.caption.predictor import Captioner
from regard.tasks.classify.evaluate import KEYS, evaluate_labels, read_labelled_test
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.classify_pictures.predictor import PictureLabeller
from regard.tasks.config import RunConfig
from regard.tasks.evaluate_pictures import (
    DRAWN,
    PictureEvaluation,
    evaluate_answers,
    evaluate_captions,
    evaluate_pictures,
)
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.evaluate import evaluate_text, field_of
from regard.tasks.generate.predictor import Generator

OnProgress = Callable[[int, int], None]
Kind = TypeVar("Kind", bound=Predictor)


class Compared(Protocol):
    """One of the models that are compared: trained already, in the folder `word`, or to be trained as `config` says."""

    @property
    def word(self) -> str: ...
    @property
    def config(self) -> RunConfig | None: ...
    @property
    def data_root(self) -> Path | None: ...


@dataclass(frozen=True, eq=False)
class TestData:
    """A test set, read and checked before anything is trained: what is wrong with it costs no training."""

    __test__ = False  # a class for pytest to leave alone

    names: tuple[str, ...]  # as the person named it
    data_root: Path | None = None  # where its files lie
    items: Sequence[Any] = ()  # where it is read once for all models
    wanted: frozenset[str] = frozenset()  # the labels that it asks for
    field: str = "text"  # the key of JSON Lines
    sentence: str | None = None  # a text to look at, if the person gave one


@dataclass(frozen=True, eq=False)
class Scored:
    """One model on a test set."""

    scores: dict[str, float]  # by name, the main one first
    count: int  # of the comparison's unit
    seconds: float
    interval: tuple[float, float] | None = None  # of the main score, 95%
    right: list[bool] | None = None  # item by item, where each is right or wrong: differences are then tested
    notes: tuple[str, ...] = ()  # what was left out of the test set
    looked: WeighedText | None = None


class Comparison(ABC):
    """The way in which models of a task are compared."""

    task: str  # as the report calls it
    unit: str  # what is counted
    labels: str = "labels"  # what a person calls the labels that a test set asks for

    @abstractmethod
    def read(
        self, names: Sequence[str], first: Compared, columns: Mapping[str, str], notes: list[str] | None
    ) -> TestData:
        """Read a test set laid out as the data of the first model, with columns as named; `notes` get what was guessed."""

    @abstractmethod
    def score(self, predictor: Predictor, test: TestData, progress: OnProgress | None) -> Scored:
        """Test a model."""

    def learned(self, config: RunConfig, data_root: Path | None) -> set[str]:
        """The labels in the data that a model is to learn from; asked for only if a test set wants some."""
        return set()


def expected(predictor: Predictor, kind: type[Kind]) -> Kind:
    """The predictor, if a comparison of ours can test it."""
    if not isinstance(predictor, kind):
        raise UsageError(
            f"models to {predictor.config.task} cannot be tested as if each were a {kind.__name__}",
            "let the task's record name a comparison of its own",
        )
    return predictor


# --- Text


class CompareTexts(Comparison):
    """Classifiers of texts, on labelled ones. One text is looked at: the person's, or one of the test set."""

    task, unit = "classify", "texts"

    def read(
        self, names: Sequence[str], first: Compared, columns: Mapping[str, str], notes: list[str] | None
    ) -> TestData:
        texts = self._texts(names, first, columns, notes)
        return TestData(tuple(names), first.data_root, texts, frozenset(each.label for each in texts))

    def _texts(
        self, names: Sequence[str], first: Compared, columns: Mapping[str, str], notes: list[str] | None
    ) -> list[Labelled]:
        if first.config is None:
            return read_labelled_test(names, first.word, first.data_root, columns=columns, notes=notes)
        values = {key: value for key, value in first.config.data.model_dump().items() if key in KEYS}
        values |= {} if getattr(first.config.model, "positions", None) == "tree" else {"heads": ""}
        return read_labelled(names, data_root=first.data_root, notes=notes, **values | dict(columns))

    def learned(self, config: RunConfig, data_root: Path | None) -> set[str]:
        data: Any = config.data
        return set(load_labelled(data, data_root).labels)

    def score(self, predictor: Predictor, test: TestData, progress: OnProgress | None) -> Scored:
        model, texts = expected(predictor, TextClassifier), test.items
        found = evaluate_labels(model, texts, progress)
        example = _typical(texts) if test.sentence is None else Labelled(test.sentence, "")
        return Scored(
            {"accuracy": found.scores.accuracy, "macro F1": found.scores.macro_f1},
            len(texts),
            found.seconds,
            (found.scores.low, found.scores.high),
            found.right,
            looked=model.look(example.text, example.second, example.parents),
        )


def _typical(texts: Sequence[Labelled]) -> Labelled:
    """A text of the middle length: neither a word nor a novel."""
    return sorted(texts, key=lambda each: (len(each.text), each.text))[len(texts) // 2]


class CompareLanguage(Comparison):
    """Models that read running text. Losses of different tokens do not compare; bits for each byte do."""

    task, unit = "generate", "tokens"

    def read(
        self, names: Sequence[str], first: Compared, columns: Mapping[str, str], notes: list[str] | None
    ) -> TestData:
        data: Any = None if first.config is None else first.config.data
        field = columns.get("field") or (data.field if data else field_of(first.word))
        read_documents(names, first.data_root, field)
        return TestData(tuple(names), first.data_root, field=field)

    def score(self, predictor: Predictor, test: TestData, progress: OnProgress | None) -> Scored:
        model = predictor if isinstance(predictor, Filler) else expected(predictor, Generator)
        names = [name if name.startswith("builtin/") else str(find_file(name, test.data_root)) for name in test.names]
        found = evaluate_text(model, names, field=test.field, progress=progress)
        bits = {"bits per byte": found.bits_per_byte} if found.bits_per_byte is not None else {}
        rule = {} if found.rule is None else {f"{found.rule.rule} kept (%)": 100 * found.rule.share}
        if (pictures := found.pictures) is not None:
            bits = {"nats a picture": pictures.nats, "bits per dimension": pictures.bits_per_dimension}
        scores = {**bits, "perplexity": found.perplexity, "loss": found.loss, **rule}
        return Scored(scores, found.tokens, found.seconds, notes=found.notes)


# --- Pictures


class ComparePictures(Comparison):
    """Classifiers of pictures."""

    task, unit = "classify-pictures", "pictures"

    def read(
        self, names: Sequence[str], first: Compared, columns: Mapping[str, str], notes: list[str] | None
    ) -> TestData:
        wanted = frozenset(read_pictures(names, first.data_root, DRAWN).names)
        return TestData(tuple(names), first.data_root, wanted=wanted)

    def learned(self, config: RunConfig, data_root: Path | None) -> set[str]:
        return set(read_pictures(config.data.train, data_root, DRAWN).names)

    def score(self, predictor: Predictor, test: TestData, progress: OnProgress | None) -> Scored:
        model = expected(predictor, PictureLabeller)
        return _labelled(evaluate_pictures(model, test.names, test.data_root, progress=progress))


class CompareAnswers(Comparison):
    """Models that answer questions about pictures."""

    task, unit, labels = "answer", "questions", "answers"

    def read(
        self, names: Sequence[str], first: Compared, columns: Mapping[str, str], notes: list[str] | None
    ) -> TestData:
        wanted: Sequence[str] = ()
        if not _are_drawn(names[0]):
            wanted = read_questions(find_file(names[0], first.data_root)).answers
        return TestData(tuple(names), first.data_root, wanted=frozenset(wanted))

    def learned(self, config: RunConfig, data_root: Path | None) -> set[str]:
        name = config.data.train[0]
        if name.startswith(SHAPES):
            return {answer for scene in scenes(DRAWN, SEEDS[name]).questions for _, answer in scene}
        return set(read_questions(find_file(name, data_root)).answers)

    def score(self, predictor: Predictor, test: TestData, progress: OnProgress | None) -> Scored:
        model = expected(predictor, QuestionAnswerer)
        return _labelled(evaluate_answers(model, test.names, test.data_root, progress=progress))


class CompareCaptions(Comparison):
    """Models that caption pictures."""

    task, unit = "caption", "pictures"

    def read(
        self, names: Sequence[str], first: Compared, columns: Mapping[str, str], notes: list[str] | None
    ) -> TestData:
        if not _are_drawn(names[0]):
            read_captions(find_file(names[0], first.data_root))
        return TestData(tuple(names), first.data_root)

    def score(self, predictor: Predictor, test: TestData, progress: OnProgress | None) -> Scored:
        written = evaluate_captions(expected(predictor, Captioner), test.names, test.data_root)
        found = written.scores
        scores = {"BLEU-4": found.bleu4, "CIDEr-D": 100 * found.cider_d, "ROUGE-L": found.rouge_l}
        return Scored(scores, len(written.outputs), written.seconds, found.bleu4_interval, notes=written.notes)


def _are_drawn(name: str) -> bool:
    """Whether these are the built-in scenes; a name that only begins as theirs is refused."""
    if name.startswith(SHAPES) and name not in SEEDS:
        raise UsageError(f"no built-in pictures {name}", f"there are {', '.join(SEEDS)}")
    return name.startswith(SHAPES)


def _labelled(found: PictureEvaluation) -> Scored:
    scores = {"accuracy": found.scores.accuracy, "macro F1": found.scores.macro_f1}
    right = [bool(same) for same in found.predicted == found.wanted]
    return Scored(scores, len(right), found.seconds, (found.scores.low, found.scores.high), right, found.notes)


TEXTS, LANGUAGE = CompareTexts(), CompareLanguage()
PICTURES, CAPTIONS, ANSWERS = ComparePictures(), CompareCaptions(), CompareAnswers()
