"""Several models on one test set, side by side: quality and whether it differs by more than luck, size, speed, attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from regard.compare.conditions import Conditions, conditions
from regard.compare.contenders import Contender
from regard.data.builtin.dates import date_pairs
from regard.data.config import PairsConfig
from regard.data.pairs import Pair, read_pairs
from regard.decode.config import DecodeConfig
from regard.errors import Advice, Option
from regard.evaluate.by_length import Bucket, buckets, join_pairs, score_bucket, source_lengths
from regard.evaluate.translation import Comparison, CorpusScore, Tokenizing, paired_bootstrap, score_translations
from regard.look.sentence import SentenceAttention
from regard.runs import bundle_folder
from regard.tasks.translate.alignment import AlignmentErrors, alignment_errors
from regard.tasks.translate.evaluate import Evaluation, evaluate, has_one_answer, read_test_set, tokenizing
from regard.tasks.translate.predictor import Translator
from regard.training.history import History, read_history

ALIGNED = (
    200  # dates whose attention is held against the truth, of the test set and, to choose a head, of the validation set
)

LEAST = 1.0  # BLEU, or percent exactly right, from which on a model can be said to have learned something
NOTHING = SentenceAttention((), (), {}, 0.0)

OnProgress = Callable[[int, int], None]
Options = dict[str, Any]  # of decoding and of scores, as keywords


@dataclass(frozen=True)
class TestSet:
    """Sources and references of a test set, and where they come from."""

    __test__ = False  # not a test, whatever its name

    names: tuple[str, ...]  # of its files
    pairs: tuple[Pair, ...]
    dates: bool = False  # built-in dates: one right answer each, alignment known, length in characters
    join: tuple[int, ...] = ()  # also as longer inputs, of so many neighbours each

    def sources(self) -> dict[str, list[str]]:
        """Its sources by what they are: as they stand, and joined."""
        texts = {"the test sentences": [source for source, _ in self.pairs]}
        for count in self.join:
            texts[f"{count} of them joined"] = [source for source, _ in join_pairs(self.pairs, count)]
        return texts


def read_test_pairs(
    contenders: Sequence[Contender],
    names: tuple[str, ...],
    join: Sequence[int] = (),
    columns: Mapping[str, Any] = MappingProxyType({}),
    notes: list[str] | None = None,
) -> TestSet:
    """Read the pairs that contenders are tested on, before anything is trained: a wrong name or number costs nothing."""
    first = contenders[0]
    if first.config is None:
        pairs = read_test_set(names, first.word, columns, notes)
    else:
        data = first.config.data
        assert isinstance(data, PairsConfig)
        pairs = read_pairs(names, data.fields, first.data_root, data.languages, notes)
    for count in join:
        join_pairs(pairs, count)  # a wrong number is told now
    return TestSet(names, tuple(pairs), has_one_answer(names), tuple(sorted(set(join))))


@dataclass(frozen=True)
class Example:
    """The one sentence whose attention is shown; all models write the same target."""

    source: str
    target: str
    reference: bool  # the target is the test set's; otherwise it is what the model with the highest BLEU wrote


@dataclass(frozen=True)
class LengthBucket:
    """A column of scores by length: sources from `low` to `high` long, each made of `joined` neighbours (1: as it is)."""

    low: int
    high: int
    mean: float
    sentences: int
    joined: int = 1


@dataclass(frozen=True, eq=False)
class Entry:
    """One model of a comparison."""

    name: str
    run: str
    kind: str
    tokens: str  # "bpe, 10,000 and 10,000"
    parameters: int
    size: int  # bytes of the bundle
    training: History | None
    bleu: CorpusScore
    chrf: CorpusScore
    exact: float | None
    decode: DecodeConfig
    sentences_per_second: float
    against_first: Comparison | None  # BLEU against the first model; None for the first itself
    by_length: tuple[CorpusScore, ...]  # BLEU in each bucket of the report
    alignment: AlignmentErrors | None
    attention: SentenceAttention
    outputs: tuple[str, ...]

    def data(self) -> dict[str, object]:
        plain = ("name", "run", "kind", "tokens", "parameters", "size", "exact", "sentences_per_second")
        parts = ("training", "bleu", "chrf", "against_first", "alignment")
        data = {name: getattr(self, name) for name in plain}
        data |= {name: None if (part := getattr(self, name)) is None else asdict(part) for name in parts}
        if self.training is not None:
            data["training"]["tokens_per_second"] = self.training.tokens_per_second
        return {
            **data,
            "decode": self.decode.model_dump(mode="json"),
            "by_length": [asdict(score) for score in self.by_length],
            "attention": self.attention.map().weights.tolist() if self.attention.layers else None,
            "attention_labels": {"source": list(self.attention.source), "target": list(self.attention.target)},
        }


@dataclass(frozen=True, eq=False)
class Report:
    """All that was found out."""

    entries: tuple[Entry, ...]
    on: tuple[str, ...]
    sentences: int
    unit: str  # of source lengths: "words" or "characters"
    buckets: tuple[LengthBucket, ...]
    p_values: tuple[tuple[float | None, ...], ...]  # of the difference in BLEU, each model against each
    example: Example
    budget: float | None  # seconds that each was to be trained for
    training_data: tuple[str, ...]
    conditions: Conditions
    notes: tuple[str, ...]  # what a reader should know before trusting a number

    def data(self) -> dict[str, object]:
        """Every number, for JSON."""
        return {
            "on": list(self.on),
            "sentences": self.sentences,
            "training_data": list(self.training_data),
            "budget_seconds": self.budget,
            "runs": [entry.data() for entry in self.entries],
            "p_values": [list(row) for row in self.p_values],
            "length_unit": self.unit,
            "buckets": [asdict(bucket) for bucket in self.buckets],
            "example": asdict(self.example),
            "conditions": self.conditions.data(),
            "notes": list(self.notes),
        }


def compare(
    runs: dict[str, Path],
    test: TestSet,
    *,
    sentence: str | None = None,
    budget: float | None = None,
    training_data: Sequence[str] = (),
    lowercase: bool = False,
    tokenize: str | None = None,
    device: str = "cpu",
    progress: OnProgress | None = None,
    **options: Any,
) -> Report:
    """The report of the runs (name -> folder), in the order given; differences are to the first."""
    columns, references = _columns(test), [target for _, target in test.pairs]
    entries: list[Entry] = []
    counted: Tokenizing | None = None  # as the first model's target language needs it; the others are counted alike
    how: Options = {}
    for number, (name, folder) in enumerate(runs.items()):
        translator = Translator.load(folder, device)
        counted = counted or tokenizing(translator.config, references, tokenize)
        how = {"lowercase": lowercase, "tokenize": counted.name}
        advance = _part(progress, number * len(test.pairs), len(runs) * len(test.pairs))
        found = _evaluate(translator, test, how, advance, options)
        scores = _by_length(translator, found, test, columns, how, options)
        entries.append(_entry(name, folder, translator, found, scores, _alignment(translator, test), options))
    example = choose_example(test, sentence)
    if not example.reference:
        best = Translator.load(max(entries, key=lambda entry: entry.bleu.value).run, device)
        example = replace(example, target=best.translate(example.source, **options).text)
    compared = _paired([entry.outputs for entry in entries], references, how)
    return Report(
        tuple(
            replace(entry, against_first=compared.get((0, place)), attention=_look(entry, example, device))
            for place, entry in enumerate(entries)
        ),
        test.names,
        len(test.pairs),
        "characters" if test.dates else "words",
        tuple(column for column, _ in columns),
        _matrix(compared, len(entries)),
        example,
        budget,
        tuple(training_data),
        conditions(device),
        (*_notes(entries), *([f"{counted.note}."] if counted and counted.note else [])),
    )


def choose_example(test: TestSet, sentence: str | None) -> Example:
    """The sentence that the person named, with its reference if the test set has one; else one of middling length."""
    if sentence is not None:
        target = dict(test.pairs).get(sentence)
        return Example(sentence, target or "", reference=target is not None)
    ordered = sorted(test.pairs, key=lambda pair: len(pair[0]))  # stable: of equals the first
    source, target = ordered[len(ordered) // 2]
    return Example(source, target, reference=True)


Column = tuple[LengthBucket, Bucket]


def _columns(test: TestSet) -> list[Column]:
    """The buckets of the test set as it is, then one for each way of joining it."""
    lengths = source_lengths([source for source, _ in test.pairs], test.dates)
    found = [(_described(bucket), bucket) for bucket in buckets(lengths)]
    for count in test.join:
        sizes = source_lengths([source for source, _ in join_pairs(test.pairs, count)], test.dates)
        whole = Bucket(min(sizes), max(sizes), sum(sizes) / len(sizes), tuple(range(len(sizes))))
        found.append((_described(whole, count), whole))
    return found


def _described(bucket: Bucket, joined: int = 1) -> LengthBucket:
    return LengthBucket(bucket.low, bucket.high, bucket.mean, len(bucket.places), joined)


def _evaluate(
    translator: Translator, test: TestSet, how: Options, progress: OnProgress | None, options: Options
) -> Evaluation:
    metrics = ("bleu", "chrf")
    return evaluate(
        translator,
        test.pairs,
        one_answer=test.dates,
        metrics=metrics,
        progress=progress,
        **how,
        **options,
    )


def _by_length(
    translator: Translator,
    found: Evaluation,
    test: TestSet,
    columns: Sequence[Column],
    how: Options,
    options: Options,
) -> tuple[CorpusScore, ...]:
    """BLEU in each column; joined inputs are translated here, the others were already."""
    references = [target for _, target in test.pairs]
    scores = []
    for column, bucket in columns:
        if column.joined == 1:
            scores.append(score_bucket(bucket, found.outputs, references, **how))
            continue
        sources, targets = zip(*join_pairs(test.pairs, column.joined), strict=True)
        outputs = [each.text for each in translator.translate(sources, **{**options, "n_best": 1})]
        scores.append(score_translations(outputs, targets, metrics=("bleu",), **how)["bleu"])
    return tuple(scores)


def _alignment(translator: Translator, test: TestSet) -> AlignmentErrors | None:
    if not test.dates:
        return None
    return alignment_errors(translator, date_pairs("valid", ALIGNED), date_pairs("test", ALIGNED))


def _entry(
    name: str,
    folder: Path,
    translator: Translator,
    found: Evaluation,
    by_length: tuple[CorpusScore, ...],
    alignment: AlignmentErrors | None,
    options: Options,
) -> Entry:
    config = translator.config
    return Entry(
        name=name,
        run=str(folder),
        kind=config.model.kind,
        tokens=f"{config.tokens.kind if config.tokens else 'none'}, {config.vocabulary[0]:,} and {config.vocabulary[1]:,}",
        parameters=sum(parameter.numel() for parameter in translator.model.parameters()),
        size=folder_size(bundle_folder(folder)),
        training=read_history(folder),
        bleu=found.scores["bleu"],
        chrf=found.scores["chrf"],
        exact=found.exact,
        decode=translator.options(options),
        sentences_per_second=found.sentences_per_second,
        against_first=None,
        by_length=by_length,
        alignment=alignment,
        attention=NOTHING,
        outputs=found.outputs,
    )


def _look(entry: Entry, example: Example, device: str) -> SentenceAttention:
    """Where a model looks while it is made to write the example's target."""
    translator = Translator.load(entry.run, device)
    return translator.attention(example.source, translator.tokenizers.target.encode(example.target))


def _paired(
    outputs: Sequence[Sequence[str]], references: Sequence[str], how: Options
) -> dict[tuple[int, int], Comparison]:
    """Each model against each that comes after it."""
    return {
        (first, second): paired_bootstrap(outputs[first], outputs[second], references, **how)
        for first in range(len(outputs))
        for second in range(first + 1, len(outputs))
    }


def _matrix(compared: dict[tuple[int, int], Comparison], count: int) -> tuple[tuple[float | None, ...], ...]:
    def p_value(row: int, column: int) -> float | None:
        return None if row == column else compared[min(row, column), max(row, column)].p_value

    return tuple(tuple(p_value(row, column) for column in range(count)) for row in range(count))


def nothing_learned(entries: Sequence[Entry]) -> bool:
    """Whether no model translates at all: below `LEAST` BLEU a difference says nothing of the models."""
    return all(entry.bleu.value < LEAST and (entry.exact or 0.0) < LEAST for entry in entries)


def _notes(entries: Sequence[Entry]) -> list[str]:
    """Caveats of a report: undertrained models, other tokens, other decoding, runs that the clock stopped."""
    notes = []
    if nothing_learned(entries):
        notes.append(
            f"None of them has learned to translate yet (BLEU under {LEAST:g}), so they cannot be told apart; train longer."
        )
    if len({entry.tokens for entry in entries}) > 1:
        different = "; ".join(f"{entry.name}: {entry.tokens}" for entry in entries)
        notes.append(f"Tokens differ ({different}), so losses of validation cannot be compared.")
    if len({entry.decode for entry in entries}) > 1:
        different = "; ".join(f"{entry.name}: {decoding(entry.decode)}" for entry in entries)
        differs = f"Decoding differs ({different}), and with it speed and quality; "
        notes.append(Advice(differs, Option("beam", "N"), " makes it equal."))
    for entry in entries:
        history = entry.training
        if history is not None and history.reason == "time" and history.steps < history.planned:
            notes.append(
                f"{entry.name} was stopped by the clock at step {history.steps:,} of {history.planned:,}: its learning "
                "rate had not come to its end."
            )
    return notes


def decoding(options: DecodeConfig) -> str:
    """How outputs are searched, in a few words."""
    if options.sample:
        return f"sampled, temperature {options.temperature:g}"
    penalty = f", length penalty {options.length_penalty} {options.alpha:g}" if options.beam > 1 else ""
    soft = "" if options.softness == 1 else f", softness {options.softness:g}"
    return f"beam {options.beam}{penalty}{soft}"


def folder_size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _part(progress: OnProgress | None, before: int, total: int) -> OnProgress | None:
    """Progress of one model as part of all of them."""
    return progress and (lambda done, _: progress(before + done, total))
