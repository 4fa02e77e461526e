"""What `regard.load` returns: its type where the task is named, streams, cancelling, and several threads at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest
from test_json import bundles
from test_recorder import SMALL, make_translator
from test_verify import LLAMA, RUNG, make

import regard
from regard.attention import Remove, intervene, record
from regard.data.labelled import Labelled
from regard.errors import UsageError
from regard.models.fast.stepper import FastStepper
from regard.predictor import Cancelled, Predictor
from regard.tasks.classify.evaluate import evaluate_labels
from regard.tasks.generate.evaluate import evaluate_text
from regard.tasks.generate.pieces import TextPiece
from regard.tasks.generate.predictor import Generator
from regard.tasks.table import TASKS
from regard.tasks.translate.evaluate import evaluate
from regard.tasks.translate.predictor import Translator

ROOT = Path(regard.__file__).parent.parent

TYPED = """
import regard

reveal_type(regard.load("run", task="translate"))
reveal_type(regard.load("run", task="translate").translate("a"))
reveal_type(regard.load("run", "cpu", task="generate").generate(["a"]))
reveal_type(regard.load("run", task="fill").fill("a [MASK]"))
reveal_type(regard.load("run", task="classify").classify("a"))
reveal_type(regard.load("run", task="classify-pictures").classify(["a.png"]))
reveal_type(regard.load("run", task="caption").caption("a.png"))
reveal_type(regard.load("run", task="answer").answer("a.png", "what?"))
reveal_type(regard.load("run"))
"""


def test_an_editor_knows_what_a_loaded_model_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mypy = pytest.importorskip("mypy.api")
    (tmp_path / "typed.py").write_text(TYPED)
    monkeypatch.chdir(ROOT)  # its cache is there
    out, err, code = mypy.run(["--config-file", "pyproject.toml", str(tmp_path / "typed.py")])
    assert (code, err) == (0, ""), out + err
    found = re.findall(r'Revealed type is "(.+)"', out)
    assert [re.sub(r"[a-z_]+\.", "", each) for each in found] == [
        "Translator", "Translation", "list[Generated]", "Filled", "Classified", "list[ClassifiedPicture]", "Caption",
        "Answer", "Predictor",
    ]  # fmt: skip


def test_a_model_of_another_task_is_refused(tiny_run: Any) -> None:
    assert isinstance(regard.load(tiny_run.best, task="translate"), Translator)
    with pytest.raises(UsageError, match="is a model to translate, not to generate; say task='translate'"):
        regard.load(tiny_run.best, task="generate")


# --- Streams, and what is not wanted any more

SAMPLED: dict[str, Any] = {"sample": True, "seed": 5, "max_length": 12, "min_length": 12}


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(make("generate", "gpt2", layers=2, width=12, heads=3, feed_forward=7))


def test_a_stream_ends_with_what_generate_gives(generator: Generator) -> None:
    *pieces, whole = generator.stream("two dogs", **SAMPLED)
    assert whole == generator.generate("two dogs", **SAMPLED)
    assert all(isinstance(each, TextPiece) for each in pieces) and len(pieces) > 2
    assert "".join(each.text for each in pieces) == whole.text
    counts = [each.tokens for each in pieces if isinstance(each, TextPiece)]
    assert counts == sorted(counts) and counts[-1] <= 12


def test_what_is_wrong_with_a_stream_is_told_before_it_begins(generator: Generator) -> None:
    with pytest.raises(UsageError, match="stream is for one prompt and one sequence"):
        generator.stream("a", beam=2)
    with pytest.raises(UsageError, match="an empty stop string"):
        generator.stream("a", stop=[""])


def test_a_closed_stream_computes_no_more(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, step = 0, FastStepper.step

    def counted(*given: Any) -> Any:
        nonlocal steps
        steps += 1
        return step(*given)

    monkeypatch.setattr(FastStepper, "step", counted)
    events = generator.stream("two dogs", **SAMPLED)
    next(events)
    before = steps
    events.close()  # type: ignore[attr-defined]
    assert steps == before and 0 < steps < 11 and list(events) == []


def test_whoever_records_between_two_pieces_sees_their_own(generator: Generator) -> None:
    """A stream that waits does not leave its inputs to whoever asks something else of the same model meanwhile."""
    expected = generator.generate("a", **SAMPLED).text
    with record(generator.model) as seen:
        events = generator.stream("two dogs", **SAMPLED)
        next(events)
        assert generator.generate("a", **SAMPLED).text == expected
        whole = [*events][-1]
    assert whole.text == generator.generate("two dogs", **SAMPLED).text and seen.calls


class After:
    """Says to stop when it was asked so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


TEXTS = ["two dogs sleep under a bike", "a man", "two dogs"]


def test_anything_long_can_be_cancelled(generator: Generator, tmp_path: Path) -> None:
    made = predictors()
    book = tmp_path / "book.txt"
    book.write_text("two dogs sleep under a bike\n", encoding="utf-8")
    labelled = [Labelled(text, made["classify"].labels[0]) for text in TEXTS]
    photo = np.zeros((40, 48, 3), np.uint8)
    ways: list[Callable[[Callable[[], bool]], object]] = [
        lambda cancel: made["translate"].translate(TEXTS, cancel=cancel),
        lambda cancel: made["translate"].score([("two", "dogs")], cancel=cancel),
        lambda cancel: generator.generate(TEXTS, cancel=cancel, **SAMPLED),
        lambda cancel: list(generator.stream("two", cancel=cancel, **SAMPLED)),
        lambda cancel: generator.score(TEXTS, cancel=cancel),
        lambda cancel: made["fill"].vectors(TEXTS, cancel=cancel),
        lambda cancel: made["fill"].text_vectors(TEXTS, cancel=cancel),
        lambda cancel: made["fill"].fill("two [MASK] sleep", cancel=cancel),
        lambda cancel: evaluate(made["translate"], [("two", "dogs")], cancel=cancel),
        lambda cancel: evaluate_text(generator, [str(book)], cancel=cancel),
        lambda cancel: evaluate_labels(made["classify"], labelled, cancel=cancel),
        lambda cancel: made["classify"].classify(TEXTS, cancel=cancel),
        lambda cancel: made["classify-pictures"].classify([photo], cancel=cancel),
        lambda cancel: made["caption"].caption([photo], cancel=cancel),
        lambda cancel: made["answer"].answer(photo, ["is there a ring ?"], cancel=cancel),
    ]
    for way in ways:
        way(lambda: False)
        event = Event()
        event.set()
        with pytest.raises(Cancelled):
            way(event.is_set)
    for way in ways[:1] + ways[2:4]:  # in the middle of a search
        with pytest.raises(Cancelled):
            way(After(4))


# --- Several threads at once


def predictors() -> dict[str, Any]:
    return {task: TASKS[task].make_predictor(bundle) for task, bundle in bundles().items()}


def plain(value: Any) -> Any:
    """Results as JSON, and arrays as lists, so that they can be compared to the bit."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else json.dumps(value.data())


def removed(predictor: Predictor, text: str) -> Any:
    """A translation while a head is taken away, in this thread only."""
    assert isinstance(predictor, Translator)
    with intervene(predictor.model, Remove("cross", 0, head=1)):
        return predictor.translate(text, max_length=7)


def jobs() -> Iterator[Callable[[], Any]]:
    """Something of each kind that a person may ask for, of one predictor of each kind."""
    made, llama = predictors(), Generator(make("generate", "llama", **LLAMA))
    soft = Translator(make_translator("bahdanau", **SMALL))
    rung = TASKS["classify"].make_predictor(make("classify", "self-attention", **RUNG))
    draw = np.random.default_rng(4)
    photos = [draw.integers(0, 256, (41, 53, 3), dtype=np.uint8) for _ in range(2)]
    for text in TEXTS:
        for translator in (made["translate"], soft):
            yield lambda text=text, one=translator: one.translate(text, attention=True, beam=3, n_best=2, max_length=7)
            yield lambda text=text, one=translator: one.read(text, "a man").log_probabilities()
        yield lambda text=text: removed(made["translate"], text)
        for writer in (made["generate"], llama):
            yield lambda text=text, one=writer: one.generate(text, attention=True, **SAMPLED)
            yield lambda text=text, one=writer: [*one.stream(text, **SAMPLED)]
        yield lambda text=text: made["fill"].fill(f"{text} [MASK] a")
        yield lambda text=text: made["fill"].vectors([text, *TEXTS])
        yield lambda text=text: made["classify"].classify([text, *TEXTS])
        yield lambda text=text: rung.look(text)  # type: ignore[attr-defined]
    for photo in photos:
        yield lambda photo=photo: made["classify-pictures"].classify([photo])
        yield lambda photo=photo: made["caption"].caption(photo, attention=True)
        yield lambda photo=photo: made["answer"].answer(photo, ["is there a ring ?", "a red cross ?"])


def test_four_threads_get_the_same_answers_as_one_after_another() -> None:
    asked = [*jobs()]
    expected = [plain(job()) for job in asked]
    together = Barrier(4)

    def work(number: int) -> list[Any]:
        """All jobs, each thread beginning elsewhere."""
        together.wait()
        order = [(place + number * len(asked) // 4) % len(asked) for place in range(len(asked))]
        found = {place: plain(asked[place]()) for place in order}
        return [found[place] for place in range(len(asked))]

    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(work, range(4)):
            assert found == expected
