"""Score a translation model on pairs it has not seen: quality with its uncertainty, and speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack

from regard.bundle import BundleConfig
from regard.config import Tables, check
from regard.data.config import PairsConfig
from regard.data.lines import Bad
from regard.data.pairs import Pair, is_builtin, read_pairs
from regard.decode.config import DecodeOptions
from regard.decode.workers import Spread, side_by_side
from regard.errors import UsageError
from regard.evaluate.bootstrap import share_interval
from regard.evaluate.translation import CorpusScore, Tokenizing, bleu_tokenizer, exact_match, score_translations
from regard.files import JSON
from regard.predictor import Cancel, Result
from regard.runs import CONFIG, read_run
from regard.tasks.translate.predictor import Translator


@dataclass(frozen=True)
class Evaluation(Result):
    """The scores of a translation model on a test set."""

    scores: dict[str, CorpusScore]  # bleu, chrf, ter
    exact: float | None  # percentage right to the last character, for data with one right answer
    sentences: int
    seconds: float  # of decoding, loading not counted
    outputs: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what a reader should know before comparing a number

    @property
    def sentences_per_second(self) -> float:
        return self.sentences / max(1e-9, self.seconds)

    @property
    def exact_right(self) -> int:
        return round((self.exact or 0.0) / 100 * self.sentences)

    @property
    def exact_interval(self) -> tuple[float, float]:
        """The 95% interval of `exact` (Wilson's), in percent."""
        low, high = share_interval(self.exact_right, self.sentences)
        return 100 * low, 100 * high

    def data(self) -> dict[str, JSON]:
        """All but the outputs, for JSON."""
        return {
            "scores": {name: asdict(score) for name, score in self.scores.items()},
            "exact": self.exact,
            "exact_interval": None if self.exact is None else list(self.exact_interval),
            "sentences": self.sentences,
            "seconds": self.seconds,
            "sentences_per_second": self.sentences_per_second,
            "notes": list(self.notes),
        }


def evaluate(
    translator: Translator,
    pairs: Sequence[Pair],
    *,
    lowercase: bool = False,
    tokenize: str | None = None,
    one_answer: bool = False,
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    progress: Callable[[int, int], None] | None = None,
    cancel: Cancel | None = None,
    spread: Spread = side_by_side,
    **options: Unpack[DecodeOptions],
) -> Evaluation:
    """Translate the sources and score the outputs; `options` are of decoding, `one_answer` asks for exact match.

    `tokenize` says how BLEU cuts words, as `validate.bleu_tokenizer`; without it, that of the model's run.
    """
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    options["n_best"], options["scores"] = 1, False
    counted = tokenizing(translator.config, references, tokenize)
    translator.translate(sources[:1], **options)  # the first call also warms up
    started = time.perf_counter()
    found = translator.translate(sources, progress=progress, cancel=cancel, spread=spread, **options)
    seconds = time.perf_counter() - started
    outputs = [each.text for each in found]
    return Evaluation(
        score_translations(outputs, references, lowercase=lowercase, tokenize=counted.name, metrics=metrics),
        exact_match(outputs, references) if one_answer else None,
        len(pairs),
        seconds,
        tuple(outputs),
        (counted.note,) if counted.note else (),
    )


def tokenizing(config: BundleConfig, references: Sequence[str], asked: str | None = None) -> Tokenizing:
    """How BLEU cuts the words of a model's outputs: as asked, as its run says, or by its target language."""
    language = config.languages[1] if config.languages else None
    return bleu_tokenizer(config.bleu_tokenizer if asked is None else asked, language, references)


def has_one_answer(names: Sequence[str]) -> bool:
    """Built-in dates, sums and copies have one right answer each; a sentence has many good translations."""
    return is_builtin(names)


def read_test_set(
    names: Sequence[str],
    run: str | Path,
    columns: Mapping[str, Any] = MappingProxyType({}),
    notes: list[str] | None = None,
    bad: Bad | None = None,
) -> list[Pair]:
    """The pairs of a test set, with columns as named, or else as those that the run was trained with.

    `bad` gets what is wrong with single pairs, by their places; without it, one such pair is an error.
    """
    if len(names) > 2:
        raise UsageError(f"name one file of pairs or two parallel files, not {len(names)}")
    values = {**_trained_with(Path(run)), **columns}
    config = check(PairsConfig, values, str(run))
    return read_pairs(names, config.fields, languages=config.languages, notes=notes, bad=bad)


def _trained_with(run: Path) -> Tables:
    if not (run / CONFIG).exists():
        return {}  # a bundle does not say what its training data looked like
    config: Any = read_run(run).get("config", {})
    return {key: value for key, value in config.get("data", {}).items() if key in ("fields", "languages")}
