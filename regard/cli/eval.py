"""`regard eval`: the scores of a model on a test set."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.model import about, check_decode, check_files, check_out, load_model
from regard.cli.options import (
    AsJson,
    Beam,
    Device,
    LabelColumn,
    Lowercase,
    PairColumn,
    RunFolder,
    Softness,
    SourceColumn,
    TargetColumn,
    TestPairs,
    TextColumn,
    Tokenize,
    WeightsName,
    column_settings,
    given,
)
from regard.cli.output import one_line, print_json, print_table, progress, results, say
from regard.cli.shards import check_alone, is_alone, job_of
from regard.config import Tables
from regard.data.preferences import are_preferences, read_preferences
from regard.decode.config import check_weights
from regard.errors import UsageError
from regard.files import JSON, write_text
from regard.shards import LEAST, Elsewhere, opened
from regard.tasks.table import TASKS, family_of

if TYPE_CHECKING:
    from regard.evaluate.classification import ClassificationScores
    from regard.tasks.align.evaluate import AlignEvaluation
    from regard.tasks.align.predictor import Rewarder
    from regard.tasks.ask.evaluate import StoryEvaluation
    from regard.tasks.ask.predictor import StoryReader
    from regard.tasks.classify.evaluate import LabelEvaluation
    from regard.tasks.classify.predictor import TextClassifier
    from regard.tasks.classify_graphs.predictor import GraphLabeller
    from regard.tasks.compute.predictor import TableComputer
    from regard.tasks.evaluate_pictures import CaptionEvaluation, PictureEvaluation
    from regard.tasks.evaluate_sounds import SoundEvaluation, SpeechEvaluation
    from regard.tasks.fill.predictor import Filler
    from regard.tasks.generate.evaluate import TextEvaluation
    from regard.tasks.generate.predictor import Generator
    from regard.tasks.remember.predictor import Rememberer
    from regard.tasks.translate.evaluate import Evaluation
    from regard.tasks.translate.predictor import Translator

MOST_LABELS = 30  # that get a row of their own
MOST_SQUARE = 8  # labels whose confusions are printed as a square; of more, the most frequent ones as lines


def evaluate(
    run: RunFolder,
    on: TestPairs,
    text: TextColumn = None,
    label: LabelColumn = None,
    pair: PairColumn = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    beam: Beam = None,
    softness: Softness = None,
    weights: WeightsName = "float32",
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    context: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens a language model reads at once.", show_default="the model's")
    ] = None,
    overlap: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of each window that only give context.", show_default="0")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the translations or labels, one a line.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Draw a classifier's confusions (.png .svg).")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a model on a test set.

    Translations: BLEU, chrF and TER with 95% intervals and signatures. Language models: loss, perplexity, bits per byte.
    Classifiers: accuracy with its interval, F1, confusions. Captions: BLEU-1 to 4, CIDEr-D, ROUGE-L.
    Transcripts: error rates of words and characters with their intervals. Models that learned from preferences, on pairs: how
    often their answers are better than before.
    """
    check_tokenizer(tokenize)
    found = about(run)
    task = family_of(found.task)
    if task != "translate":
        check_alone("the score of such a model", "score it with one")
    asked = given(beam=beam, softness=softness, lowercase=lowercase or None, context=context, overlap=overlap)
    asked |= given(tokenize=tokenize, weights=None if weights == "float32" else weights)
    asked |= given(save=save, out=out)
    _check_options(task, asked)
    columns = column_settings(task, text=text, label=label, pair=pair, source=source, target=target)
    check_decode(found, given(beam=beam, softness=softness))
    check_weights(weights)
    check_out(out, (".png", ".svg"))
    check_files(on, task=task)
    model = load_model(run, device)
    if task == "translate":
        model.use_weights(weights)
        how = {"lowercase": lowercase, "tokenize": tokenize}
        _translations(model, run, on, columns, given(beam=beam, softness=softness), how, weights, save, as_json)
    elif task == "classify":
        _labels(model, run, on, columns, save, out, as_json)
    elif task == "classify-graphs":
        _graphs(model, run, on, save, out, as_json)
    elif task == "ask":
        _stories(model, run, on, save, as_json)
    elif task == "remember":
        _sequences(model, run, on, as_json)
    elif task == "compute":
        _tables(model, run, on, save, as_json)
    elif task == "align":
        _reward(model, run, on, as_json)
    elif task == "generate" and are_preferences(on):
        _aligned(model, run, on, as_json)
    elif model.config.sounds is not None:
        score_sounds(model, run, on, given(beam=beam), save, out, as_json)
    elif model.config.pictures is not None:
        score_pictures(model, run, on, given(beam=beam), save, out, as_json)
    else:
        _texts(model, run, on, given(context=context, overlap=overlap), columns, as_json)


def check_tokenizer(name: str | None) -> None:
    """Before a model is loaded: the tokenizer has a name that BLEU knows, and is installed."""
    if name is not None:
        from regard.evaluate.translation import bleu_tokenizer

        bleu_tokenizer(name)


def _check_options(task: str, asked: Mapping[str, object]) -> None:
    wrong = sorted(asked.keys() - set(TASKS[task].eval_options))
    if wrong:
        raise UsageError(f"--{wrong[0]} has no meaning for a model to {task}; leave it out")


def _translations(
    translator: Translator,
    run: str,
    on: list[str],
    columns: Tables,
    decode: Tables,
    how: Tables,
    weights: str,
    save: Path | None,
    as_json: bool,
) -> None:
    from regard.tasks.translate import evaluate as translations

    notes: list[str] = []
    pairs = translations.read_test_set(on, run, columns, notes)
    say_notes(notes)
    work = partial(
        translations.evaluate, translator, pairs, one_answer=translations.has_one_answer(on), **how, **decode
    )
    if save is None or (len(pairs) < 2 * LEAST and is_alone()):
        check_alone("a test set of which nothing is saved", "name the file of translations: --save FILE")
        with progress("translating") as advance:
            found = work(progress=advance)
    else:
        digest = sha256(json.dumps(pairs).encode()).hexdigest()
        settings = {**decode, "weights": weights}
        with evaluated_in_shards(work, save, job_of("eval", run, digest, settings)) as in_shards:
            if in_shards is None:  # another process scores them
                return
            found = in_shards
    save_lines(save, found.outputs)
    if as_json:
        told = {**found.data(), "notes": [*notes, *found.notes]}
        print_json({"run": run, "on": on, "decode": translator.options(decode).model_dump(), **told})
    else:
        print_scores(run, on, found)


@contextmanager
def evaluated_in_shards(
    work: Callable[..., Evaluation], out: Path, job: Mapping[str, JSON]
) -> Iterator[Evaluation | None]:
    """The evaluation of what several processes decode, or one that may be killed; None in all but the first."""
    from regard.decode.workers import spread_over

    with opened(out, job, told=say) as shards:
        before = shards.finished()
        try:
            found = work(spread=spread_over(shards))
        except Elsewhere:
            yield None
            return
        note = "some shards had been decoded before: sentences a second are more than were decoded now"
        yield replace(found, notes=(*found.notes, note)) if before else found
        shards.remove()


def print_scores(run: str, on: list[str], found: Evaluation) -> None:
    scores = found.scores.values()
    rows = [(each.name, f"{each.value:.1f}", f"{each.low:.1f} to {each.high:.1f}") for each in scores]
    if found.exact is not None:
        (low, high), counted = found.exact_interval, f"{found.exact_right:,} of {found.sentences:,} right"
        rows.append(("exact", f"{found.exact:.1f}", f"{low:.1f} to {high:.1f} ({counted})"))
    print_table((f"{run}", "score", "95% interval"), rows, right=("score",))
    console = results()
    console.print(
        f"{found.sentences:,} sentences of {' '.join(on)}, {found.sentences_per_second:,.0f} a second", markup=False
    )
    for score in scores:
        console.print(f"{score.name}: {score.signature}", style="dim", markup=False, soft_wrap=True)
    for note in found.notes:
        say(note)


def _share(value: float) -> str:
    """A number of a table; that of a label which never came up, or was never given, is none."""
    return "-" if math.isnan(value) else f"{value:.1f}"


def say_notes(notes: Sequence[str], left_out: Sequence[tuple[str, str]] = ()) -> None:
    """Say what was guessed of a test set and what was left out of it; JSON has the names of all."""
    for note in notes:
        say(note)
    if len(left_out) > len(notes):
        say(f"regard eval --json names all {len(left_out):,} that were left out")


def save_lines(path: Path | None, outputs: Sequence[str]) -> None:
    """Write outputs, one a line, where `--save` names a file."""
    if path is not None:
        say(f"wrote {write_text(path, ''.join(one_line(output) + chr(10) for output in outputs))}")


def _texts(model: Generator | Filler, run: str, on: list[str], options: Tables, columns: Tables, as_json: bool) -> None:
    from regard.tasks.generate.evaluate import evaluate_text, field_of

    with progress("reading") as advance:
        found = evaluate_text(model, on, progress=advance, **options, **{"field": field_of(run), **columns})
    say_notes(found.notes, found.left_out)
    if as_json:
        print_json({"run": run, "on": on, **options, **found.data()})
    else:
        print_text_scores(run, on, found)


def print_text_scores(run: str, on: list[str], found: TextEvaluation) -> None:
    rows = [("loss", f"{found.loss:.4f}", "nats a token"), ("perplexity", f"{found.perplexity:.2f}", "")]
    if (pictures := found.pictures) is not None:
        rows = [
            ("nats", f"{pictures.nats:.2f}", "a picture"),
            ("bits per dimension", f"{pictures.bits_per_dimension:.4f}", f"of {pictures.dimensions} pixels"),
        ]
    if found.bits_per_byte is not None:
        rows.append(("bits per byte", f"{found.bits_per_byte:.3f}", ""))
    if (rule := found.rule) is not None:
        low, high = (f"{100 * each:.1f}" for each in rule.interval)
        kept = f"% of {rule.bars:,} bars ({low} to {high}), {rule.whole} of {rule.pieces} pieces whole"
        rows.append(
            (f"{rule.rule} kept", f"{100 * rule.share:.1f}", f"{kept}, {100 * rule.different:.0f}% of them different")
        )
    print_table((f"{run}", "score", " "), rows, right=("score",))
    speed = found.tokens / max(1e-9, found.seconds)
    what = f"{found.tokens:,} tokens" if pictures is None else f"{pictures.count:,} pictures"
    rate = speed if pictures is None else speed / pictures.dimensions
    results().print(f"{what} of {' '.join(on)}, {rate:,.{0 if rate >= 10 else 1}f} a second", markup=False)


def _labels(
    model: TextClassifier,
    run: str,
    on: list[str],
    columns: Tables,
    save: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    from regard.tasks.classify.evaluate import evaluate_labels, read_labelled_test

    notes: list[str] = []
    texts = read_labelled_test(on, run, columns=columns, notes=notes)
    say_notes(notes)
    with progress("classifying") as advance:
        found = evaluate_labels(model, texts, advance)
    save_lines(save, [model.labels[place] for place in found.predicted])
    if out is not None:
        say(f"wrote {draw_confusion(found, model.labels, out)}")
    if as_json:
        print_json({"run": run, "on": on, "notes": notes, **found.data()})
    else:
        print_label_scores(run, on, found)


def print_label_scores(
    run: str,
    on: list[str],
    found: LabelEvaluation | PictureEvaluation | SoundEvaluation | StoryEvaluation,
    what: str = "texts",
) -> None:
    scores = found.scores
    print_table(
        (f"{run}", "score", "95% interval"),
        [
            ("accuracy", f"{scores.accuracy:.1f}", f"{scores.low:.1f} to {scores.high:.1f}"),
            (f"always {scores.frequent}", f"{scores.majority:.1f}", ""),  # what accuracy is to be held against
            ("macro F1", f"{scores.macro_f1:.1f}", ""),
        ],
        right=("score",),
    )
    rows = [
        (each.label, *map(_share, (each.precision, each.recall, each.f1)), f"{each.support:,}")
        for each in scores.labels[:MOST_LABELS]
    ]
    print_table(("label", "precision", "recall", "F1", what), rows, right=("precision", "recall", "F1", what))
    print_confusion(scores)
    speed = len(found.wanted) / max(1e-9, found.seconds)
    left = f" ({len(found.left_out):,} left out)" if found.left_out else ""
    results().print(f"{len(found.wanted):,} {what} of {' '.join(on)}{left}, {speed:,.0f} a second", markup=False)


def draw_confusion(
    found: LabelEvaluation | PictureEvaluation | SoundEvaluation, labels: Sequence[str], out: Path
) -> Path:
    """Draw which labels were taken for which; of pictures, with some of them."""
    from regard.look.figures.confusion import save_confusion, save_confusion_samples

    title = f"{found.scores.accuracy:.1f}% of {len(found.wanted):,} right"
    samples = getattr(found, "samples", None)
    if samples is None:
        return save_confusion(found.scores.confusion, labels, out, title)
    return save_confusion_samples(found.scores.confusion, labels, samples, out, title)


def print_confusion(scores: ClassificationScores) -> None:
    """Which label was taken for which, and how often: all counts of a few labels, the most frequent mistakes of many."""
    names = [each.label for each in scores.labels]
    if len(names) <= MOST_SQUARE:
        columns = [f"as {name}" for name in names]
        counts = [[f"{count:,}" for count in row] for row in scores.confusion.tolist()]
        rows = [[name, *row] for name, row in zip(names, counts, strict=True)]
        print_table(("taken:", *columns), rows, right=columns, fold=("taken:",))
        return
    pairs = [(int(scores.confusion[i, j]), i, j) for i in range(len(names)) for j in range(len(names)) if i != j]
    worst = [pair for pair in sorted(pairs, reverse=True)[:MOST_SQUARE] if pair[0]]
    if worst:
        rows = [[f"{names[i]} taken for {names[j]}", f"{count:,}"] for count, i, j in worst]
        print_table(("most frequent mistakes", "times"), rows, right=("times",))


def _graphs(model: GraphLabeller, run: str, on: list[str], save: Path | None, out: Path | None, as_json: bool) -> None:
    from regard.tasks.classify_graphs.evaluate import evaluate_graphs

    with progress("classifying") as advance:
        found, notes = evaluate_graphs(model, on, progress=advance)
    say_notes(notes)
    save_lines(save, [model.labels[place] for place in found.predicted])
    if out is not None:
        say(f"wrote {draw_confusion(found, model.labels, out)}")
    if as_json:
        print_json({"run": run, "on": on, "notes": list(notes), **found.data()})
    else:
        print_label_scores(run, on, found, "graphs" if model.format.whole else "nodes")


def _stories(reader: StoryReader, run: str, on: list[str], save: Path | None, as_json: bool) -> None:
    from regard.data.stories import read_stories
    from regard.tasks.ask.evaluate import evaluate_stories

    stories = read_stories(on)
    with progress("answering") as advance:
        found = evaluate_stories(reader, stories, advance)
    say_notes(found.notes)
    names = [*reader.labels, *sorted({story.answer for story in stories} - set(reader.labels))]
    save_lines(save, [names[place] for place in found.predicted])
    if as_json:
        print_json({"run": run, "on": on, **found.data()})
        return
    print_label_scores(run, on, found, "questions")
    if found.needing:
        rows = [
            (f"{each.sentences} sentence{'s' if each.sentences > 1 else ''}", f"{each.questions:,}", f"{each.right:,}")
            for each in found.needing
        ]
        print_table(("the answer follows from", "questions", "right"), rows, right=("questions", "right"))
    if (support := found.support) is not None:
        told = f"{support.found:.1f}% of the supporting sentences of {support.questions:,} questions are what a hop read most"
        results().print(f"{told}; by chance {support.chance:.1f}%", markup=False)


def _sequences(rememberer: Rememberer, run: str, on: list[str], as_json: bool) -> None:
    from regard.cli.remember import print_remembered
    from regard.data.bits import sequences_of

    asked = [sequences_of(name) for name in on]
    if wrong := [each.task for each in asked if each.task != rememberer.sequences]:
        raise UsageError(f"{run} remembers {rememberer.sequences}, not {wrong[0]}")
    with progress("remembering") as advance:
        found = [rememberer.remember(each.length or each.most, progress=advance) for each in asked]
    if as_json:
        print_json({"run": run, "on": on, "lengths": [each.data() for each in found]})
    else:
        print_remembered(rememberer.sequences, found)


def _tables(computer: TableComputer, run: str, on: list[str], save: Path | None, as_json: bool) -> None:
    from regard.cli.compute import print_computed
    from regard.data.tables import read_tables
    from regard.tasks.compute.evaluate import evaluate_tables

    questions = read_tables(on)
    with progress("computing") as advance:
        found = evaluate_tables(computer, questions, advance)
    save_lines(save, [str(each) for each in found.found])
    if as_json:
        print_json({"run": run, "on": on, **found.data()})
    else:
        print_computed(run, on, found)


def _reward(rewarder: Rewarder, run: str, on: list[str], as_json: bool) -> None:
    pairs = read_preferences(on)
    found = rewarder.accuracy(pairs)
    if as_json:
        print_json({"run": run, "on": on, "pairs": len(pairs), "accuracy": found.data()})
        return
    print_table((run, "score", "95% interval"), [("accuracy", f"{found.value:.1f}", f"{found.interval(1)}")])
    results().print(
        f"{len(pairs):,} pairs of {' '.join(on)}: how often the chosen answer has the greater reward", markup=False
    )


def _aligned(generator: Generator, run: str, on: list[str], as_json: bool) -> None:
    from regard.tasks.align.evaluate import evaluate_aligned

    found = evaluate_aligned(generator, run, read_preferences(on))
    if as_json:
        print_json({"run": run, "on": on, **found.data()})
    else:
        print_aligned(run, on, found)


def print_aligned(run: str, on: list[str], found: AlignEvaluation) -> None:
    """How often answers are better than before, how far the model has gone, and some answers before and after."""
    rows = []
    if (rate := found.win_rate) is not None:
        by_sort = "; ".join(f"{sort} {value:.1f}" for sort, value in found.by_sort.items())
        rows.append((f"win rate by the {found.judge}", f"{rate.value:.1f}", rate.interval(1), by_sort))
    told = "nats an answer: the mean over its own, exact for each token"
    rows.append(("KL", f"{found.kl.value:.2f}", found.kl.interval(2), told))
    for name, pair in (("learned reward", found.rewards), ("reward by the rule", found.rules)):
        if pair is not None:
            rows.append((name, f"{pair[1]:.2f}", "", f"before {pair[0]:.2f}"))
    print_table((run, "score", "95% interval", " "), rows, right=("score",), fold=(" ",))
    console = results()
    console.print(
        f"{found.prompts:,} prompts of {' '.join(on)}, against the model it started from, ties half", markup=False
    )
    for prompt, before, after in found.samples:
        console.print(f"{one_line(prompt)}\n  before  {one_line(before)}\n  after   {one_line(after)}", markup=False)


def score_pictures(
    predictor: Any, run: str, on: list[str], options: Tables, save: Path | None, out: Path | None, as_json: bool
) -> None:
    """Score labels, captions or answers of a test set."""
    from regard.tasks import evaluate_pictures as scoring

    task = family_of(predictor.config.task)
    if task == "caption":
        captions = scoring.evaluate_captions(predictor, on, **options)
        say_notes(captions.notes, captions.left_out)
        save_lines(save, captions.outputs)
        if as_json:
            print_json({"run": run, "on": on, **options, **captions.data()})
        else:
            print_caption_scores(run, on, captions)
        return
    answers = task == "answer"
    with progress("answering" if answers else "classifying") as advance:
        if answers:
            found = scoring.evaluate_answers(predictor, on, progress=advance)
        else:
            found = scoring.evaluate_pictures(predictor, on, progress=advance)
    say_notes(found.notes, found.left_out)
    save_lines(save, [predictor.labels[place] for place in found.predicted])
    if out is not None:
        say(f"wrote {draw_confusion(found, predictor.labels, out)}")
    if as_json:
        print_json({"run": run, "on": on, **found.data()})
    else:
        print_label_scores(run, on, found, "questions" if answers else "pictures")


def score_sounds(
    predictor: Any, run: str, on: list[str], options: Tables, save: Path | None, out: Path | None, as_json: bool
) -> None:
    """Score labels or transcripts of a test set."""
    from regard.tasks import evaluate_sounds as scoring

    if family_of(predictor.config.task) == "transcribe":
        speech = scoring.evaluate_speech(predictor, on, **options)
        say_notes(speech.notes, speech.left_out)
        save_lines(save, speech.outputs)
        if as_json:
            print_json({"run": run, "on": on, **options, **speech.data()})
        else:
            print_word_scores(run, on, speech)
        return
    with progress("classifying") as advance:
        found = scoring.evaluate_sounds(predictor, on, advance)
    say_notes(found.notes, found.left_out)
    save_lines(save, [predictor.labels[place] for place in found.predicted])
    if out is not None:
        say(f"wrote {draw_confusion(found, predictor.labels, out)}")
    if as_json:
        print_json({"run": run, "on": on, **found.data()})
    else:
        print_label_scores(run, on, found, "sounds")


def print_word_scores(run: str, on: list[str], found: SpeechEvaluation) -> None:
    scores, edits = found.scores, found.scores.edits
    rows = [
        (name, f"{each.value:.2f}%", f"{each.low:.2f} to {each.high:.2f}")
        for name, each in (("word error rate", scores.wer), ("character error rate", scores.cer))
    ]
    rows.append(("sounds without an error", f"{scores.exact:.1f}%", ""))
    print_table((run, "score", "95% interval"), rows, right=("score",))
    wrong = f"{edits.substitutions:,} substituted, {edits.deletions:,} deleted, {edits.insertions:,} inserted"
    speed = found.heard / max(1e-9, found.seconds)
    told = f"{len(found.outputs):,} sounds of {' '.join(on)}: {scores.words:,} words, {wrong}; {speed:,.0f} s of sound a second"
    results().print(told, markup=False)


def print_caption_scores(run: str, on: list[str], found: CaptionEvaluation) -> None:
    scores = found.scores
    rows = [(f"BLEU-{n}", f"{getattr(scores, f'bleu{n}'):.1f}") for n in (1, 2, 3, 4)]
    rows += [("CIDEr-D", f"{100 * scores.cider_d:.1f}"), ("ROUGE-L", f"{scores.rouge_l:.1f}")]
    if found.exact is not None:
        rows.append(("exact", f"{found.exact:.1f}"))
    print_table((run, "score"), rows, right=("score",))
    speed = len(found.outputs) / max(1e-9, found.seconds)
    left = f" ({len(found.left_out):,} left out)" if found.left_out else ""
    results().print(f"{len(found.outputs):,} pictures of {' '.join(on)}{left}, {speed:,.0f} a second", markup=False)
