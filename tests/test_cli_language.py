"""`regard train`, `generate`, `fill`, `classify`, `vectors` and `look` of language models and classifiers, as typed."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.cli import main
from regard.errors import UsageError
from regard.tasks.fill.predictor import Filled, Filler, Guess
from regard.tasks.trained import load_model

WORDS = [
    "the",
    "old",
    "king",
    "walked",
    "to",
    "the",
    "sea",
    "and",
    "the",
    "grey",
    "cat",
    "looked",
    "at",
    "a",
    "red",
    "moon",
]
TINY = ["model.layers=1", "model.width=12", "model.heads=2", "model.feed_forward=16", "model.dropout=0.0"]
SHORT = ["train.batch_tokens=128", "train.validate_every=2", "train.precision=float32"]
TEXT = [*TINY, *SHORT, "tokens.size=300", "data.context=16"]
GOOD, BAD = "a great film with a great cat", "a dull film with a dull king"


def setting(names: list[str]) -> list[str]:
    return [f"--set={name}" for name in names]


def sentences(count: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 9))) + "." for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with texts and one run of each task; the tests are in it."""
    here = tmp_path_factory.mktemp("language")
    (here / "books").mkdir()
    for number in range(5):
        (here / "books" / f"{number}.txt").write_text("\n".join(sentences(30, number)))
    lines = sentences(120)
    (here / "book.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    labelled = [f"{line} {GOOD}\tgood\n{line} {BAD}\tbad\n" for line in lines]
    (here / "mood.tsv").write_text("".join(labelled))
    (here / "pairs.tsv").write_text("".join(f"{a}\t{b}\t{a < b}\n" for a, b in itertools.pairwise(lines)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        tasks = {
            "generate": ["--data", "books", "--model", "gpt2", *setting([*TEXT, "model.max_length=16", "samples=3"])],
            "fill": ["--data", "books", *setting([*TEXT, "model.max_length=16"])],
            "classify": ["--data", "mood.tsv", *setting([*SHORT, "model.width=12", "model.heads=2", "train.lr=3e-2"])],
        }
        for task, words in tasks.items():
            steps = "12" if task == "classify" else "3"
            assert main.run(["train", task, "--steps", steps, *words]) == 0
        yield here


Captured = pytest.CaptureFixture[str]


def typed(capsys: Captured, *words: str, stdin: str | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        if stdin is not None:
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main.run(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys: Captured, *words: str, stdin: str | None = None, code: int = 2) -> str:
    """The one line on stderr that says what is wrong; nothing goes to stdout, and no run is left."""
    before = sorted(Path("runs").rglob("*"))
    found, out, err = typed(capsys, *words, stdin=stdin)
    assert (found, out) == (code, ""), (found, out, err)
    assert sorted(Path("runs").rglob("*")) == before
    [line] = [line for line in err.splitlines() if line.startswith("regard: ")]
    return line


# --- generate


def test_generate_prints_the_prompt_and_how_it_goes_on(folder: Path, capsys: Captured) -> None:
    code, out, err = typed(capsys, "generate", "the old", "--greedy", "-n", "7")
    found = load_model("runs/generate/1").generate("the old", sample=False, beam=1, max_length=7)
    assert (code, out) == (0, f"the old{found.text}\n")
    assert err == "model: runs/generate/1 (the newest run here; -m takes another)\n"


def test_generate_json_is_a_line_for_each_text(folder: Path, capsys: Captured) -> None:
    words = ("generate", "the old", "a", "-m", "runs/generate/1", "--samples", "2", "--seed", "4", "-n", "5", "--json")
    code, out, err = typed(capsys, *words)
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "") and [row["prompt"] for row in rows] == ["the old", "the old", "a", "a"]
    for row in rows:
        assert row["log_probability"] == pytest.approx(math.fsum(row["token_log_probabilities"]))
        assert len(row["tokens"]) <= 5
    assert typed(capsys, *words)[1] == out
    assert typed(capsys, *words[:8], "5", *words[9:])[1] != out


def test_generate_reads_standard_input_and_stops(folder: Path, capsys: Captured) -> None:
    words = ("-m", "runs/generate/1", "--greedy", "-n", "9", "--min-length", "9")
    whole = typed(capsys, "generate", "-", *words, stdin="the grey\n")[1]
    assert whole == typed(capsys, "generate", "the grey", *words)[1]
    added = whole.removeprefix("the grey").rstrip("\n")
    stop = added[len(added) // 2 :][:2]
    out = typed(capsys, "generate", "the grey", *words[:-2], "--stop", "@@", "--stop", stop)[1]
    assert out == f"the grey{added[: added.index(stop)]}\n"


def test_temperature_0_is_greedy(folder: Path, capsys: Captured) -> None:
    words = ("generate", "the old", "-m", "runs/generate/1", "-n", "9")
    greedy = typed(capsys, *words, "--greedy")[1]
    assert typed(capsys, *words, "--temperature", "0", "--top-p", "0.9")[:2] == (0, greedy)
    model = load_model("runs/generate/1")
    cold, best = (model.generate("the old", max_length=9, **how) for how in ({"temperature": 0}, {"sample": False}))
    assert (cold.text, cold.log_probability) == (best.text, best.log_probability)
    assert greedy == f"the old{best.text}\n"


def test_a_bad_prompt_costs_itself(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_bytes(b"the old\nb\xe9d\na grey\n")
    words = ("-m", "runs/generate/1", "--seed", "4", "-n", "5", "--json")
    code, out, err = typed(capsys, "generate", str(tmp_path / "prompts.txt"), *words)
    first, bad, third = map(json.loads, out.splitlines())
    assert code == 1 and "not UTF-8" in bad["error"] and "prompts.txt, line 2: byte 2" in err
    drawn = [json.loads(line) for line in typed(capsys, "generate", "the old", "x", "a grey", *words)[1].splitlines()]
    assert (first["text"], third["text"]) == (drawn[0]["text"], drawn[2]["text"])  # each has its place's own numbers


def test_generate_beyond_the_context(folder: Path, capsys: Captured) -> None:
    """The context has 16 tokens."""
    words = ("-m", "runs/generate/1", "-n", "40", "--min-length", "40", "--json")
    code, out, _ = typed(capsys, "generate", "the " * 30, *words)
    assert code == 0 and len(json.loads(out)["tokens"]) == 40


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--greedy", "--temperature", "2"], "--temperature shape random draws, which --greedy and --beam do not make"),
        (["--temperature", "0", "--beam", "2"], "--temperature shape random draws"),
        (["--beam", "0"], "'--beam'"),
        (["-n", "-3"], "max_length"),
        (["--stop", ""], "an empty stop string"),
        (["-m", "nowhere"], "there is no nowhere; regard runs lists the runs here"),
        (["-m", "runs/fill/1"], "is a model to fill, not to generate; try: regard fill"),
        (
            ["--greedy", "--samples", "2"],
            "find one text, not --samples 2; leave them out for 2 random ones, or say --beam 2",
        ),
        (["--temperature", "0", "--samples", "3"], "find one text, not --samples 3; leave them out for 3 random ones"),
        (["--device", "abacus"], "no device abacus"),
    ],
)
def test_generate_refuses(folder: Path, capsys: Captured, words: list[str], message: str) -> None:
    given = words if "-m" in words else ["-m", "runs/generate/1", *words]
    assert message in refused(capsys, "generate", "the", *given)


def test_bytes_that_are_no_text_are_told_before_anything_is_printed(folder: Path, capsys: Captured) -> None:
    """As a shell hands them over. The bug: printing them failed first, with advice for programmers."""
    line = refused(capsys, "generate", "a\udcffb", "-m", "runs/generate/1", code=1)
    assert "the text holds a lone surrogate" in line


def test_a_terminal_is_not_given_control_characters(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = "a\x1b[31m\x07b\tc\n日👩\u200d👩"
    words = ("generate", prompt, "-m", "runs/generate/1", "-n", "0")
    assert typed(capsys, *words)[1] == prompt + "\n"  # into a file goes everything
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert typed(capsys, *words)[1] == "a[31mb\tc\n日👩\u200d👩\n"


# --- fill and vectors


def test_fill_prints_the_text_and_its_guesses(folder: Path, capsys: Captured) -> None:
    code, out, _ = typed(capsys, "fill", "the [MASK] king [MASK]", "--top", "3")
    found = load_model("runs/fill/1").fill("the [MASK] king [MASK]", 3)
    lines = out.splitlines()
    assert code == 0 and lines[0] == found.text and len(lines) == 2 + 6
    assert [line.split()[0] for line in lines[2:]] == ["1", "1", "1", "2", "2", "2"]
    code, out, _ = typed(capsys, "fill", "the [MASK]", "a [MASK] cat", "--json")
    rows = json.loads(out)
    assert code == 0 and [row["source"] for row in rows] == ["the [MASK]", "a [MASK] cat"]
    assert len(rows[0]["gaps"][0]) == 5


def test_a_text_without_a_gap_costs_itself(folder: Path, capsys: Captured) -> None:
    code, out, err = typed(capsys, "fill", "--top", "1", stdin="the [MASK]\nno gap\na [MASK]\n")
    alone = [typed(capsys, "fill", "--top", "1", text)[1] for text in ("the [MASK]", "a [MASK]")]
    assert (code, out) == (1, f"{alone[0]}\n{alone[1]}") and "stdin, line 2: the text has no gap" in err
    rows = json.loads(typed(capsys, "fill", "--json", "the [MASK]", "no gap")[1])
    assert "gaps" in rows[0] and "the text has no gap" in rows[1]["error"]


def test_fill_shows_a_newline(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    guesses = (Guess("\n", 0.5), Guess(" \n\n", 0.3), Guess(" ", 0.1), Guess(" the", 0.1))
    monkeypatch.setattr(Filler, "fill", lambda self, text, top: Filled(text, "the\nking", (guesses,)))
    lines = typed(capsys, "fill", "the [MASK] king")[1].splitlines()
    assert lines[0] == "the⏎king" and [line.split()[1] for line in lines[2:4]] == ["⏎", "⏎⏎"]
    assert "' '" in lines[4] and lines[5].split()[1] == "the"


def test_fill_refuses(folder: Path, capsys: Captured) -> None:
    assert 'the text has no gap; mark one: regard fill "' in refused(capsys, "fill", "the king")
    assert "'--top'" in refused(capsys, "fill", "the [MASK]", "--top", "0")
    assert "try: regard classify" in refused(capsys, "fill", "[MASK]", "-m", "runs/classify/1")


def test_vectors(folder: Path, capsys: Captured) -> None:
    code, out, _ = typed(capsys, "vectors", "the king", "a cat")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["text"] for row in rows] == ["the king", "a cat"]
    for row in rows:
        assert math.fsum(value * value for value in row["vector"]) == pytest.approx(1.0)
    assert typed(capsys, "vectors", stdin="the king\na cat\n")[1] == out
    alike = math.fsum(a * b for a, b in zip(rows[0]["vector"], rows[1]["vector"], strict=True))
    code, out, _ = typed(capsys, "vectors", "the king", "a cat", "--similar")
    assert [line.split()[1:3] for line in out.splitlines()[1:]] == [["1.00", f"{alike:.2f}"], [f"{alike:.2f}", "1.00"]]
    assert typed(capsys, "vectors", stdin="")[:2] == (0, "")
    code, out, _ = typed(capsys, "vectors", "the king", "a\udcffb")
    assert code == 1 and "vector" in json.loads(out.splitlines()[0]) and "error" in json.loads(out.splitlines()[1])


def test_vectors_that_tell_nothing_are_said_to(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    angles = {"a b": 0.0, "c d": 0.01, "e f": 0.02, "far": 0.1}  # cos 0.02 = 0.9998, cos 0.1 = 0.995

    def vectors(self: Filler, texts: list[str], pooling: str | None) -> np.ndarray:
        return np.array([[math.cos(angles[text]), math.sin(angles[text])] for text in texts])

    monkeypatch.setattr(Filler, "vectors", vectors)
    for more in ((), ("--similar",)):
        near = typed(capsys, "vectors", "a b", "c d", "e f", *more)[2]
        assert "all 3 texts have nearly the same vector (the least cosine with the first is 0.9998)" in near
        assert "nearly" not in typed(capsys, "vectors", "a b", "c d", "far", *more)[2]
        assert "nearly" not in typed(capsys, "vectors", "a b", "a b", *more)[2]  # the same text twice
    assert "--pooling max: choose mean or cls" in refused(capsys, "vectors", "a", "--pooling", "max")


# --- classify and look


def test_classify_has_a_line_for_each_line(folder: Path, capsys: Captured) -> None:
    assert typed(capsys, "classify", GOOD, BAD)[:2] == (0, "good\nbad\n")
    assert typed(capsys, "classify", stdin=f"{BAD}\n{GOOD}\n\n{BAD}\n")[1].splitlines()[:2] == ["bad", "good"]
    assert len(typed(capsys, "classify", stdin=f"{BAD}\n{GOOD}\n\n{BAD}\n")[1].splitlines()) == 4
    rows = [json.loads(line) for line in typed(capsys, "classify", GOOD, BAD, "--json")[1].splitlines()]
    assert [row["label"] for row in rows] == ["good", "bad"]
    assert all(sum(each["probability"] for each in row["labels"]) == pytest.approx(1.0) for row in rows)
    label, share = typed(capsys, "classify", GOOD, "--scores")[1].rstrip("\n").split("\t")
    assert label == "good" and float(share) == pytest.approx(rows[0]["probability"], abs=1e-4)
    assert "--second belongs to one TEXT" in refused(capsys, "classify", "a", "b", "--second", "c")


def test_a_tab_belongs_to_a_text_where_the_model_does_not_take_pairs(folder: Path, capsys: Captured) -> None:
    """The bug: one tab made pairs of all lines of its chunk and changed their labels."""
    lines = [GOOD, BAD, f"{GOOD}\tthe end", BAD, GOOD]
    model = load_model("runs/classify/1")
    assert model.config.pairs is False
    expected = [model.classify(line) for line in lines]
    code, out, err = typed(capsys, "classify", "-m", "runs/classify/1", "--json", stdin="\n".join(lines))
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "") and [row["text"] for row in rows] == lines
    assert [row["probability"] for row in rows] == pytest.approx([each.probability for each in expected])
    assert "trained on single texts" in refused(capsys, "classify", "a", "--second", "b", "-m", "runs/classify/1")


def test_an_old_bundle_does_not_say_what_it_takes(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    shutil.copytree("runs/classify/1/best", tmp_path / "old")
    settings = json.loads((tmp_path / "old" / "config.json").read_text())
    del settings["pairs"]
    (tmp_path / "old" / "config.json").write_text(json.dumps(settings))
    code, out, err = typed(
        capsys, "classify", "-m", str(tmp_path / "old"), "--json", stdin=f"{GOOD}\n{BAD}\tx\n{BAD}\n"
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["second"] for row in rows] == [None, "x", None]
    alone = json.loads(typed(capsys, "classify", "-m", "runs/classify/1", "--json", BAD)[1])
    assert rows[2]["probability"] == pytest.approx(alone["probability"])
    assert err.count("this bundle does not say whether its texts are pairs") == 1


def test_a_file_of_texts_is_classified(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{GOOD}\n{BAD}\n")
    words = ("classify", str(tmp_path / "texts.txt"), "-m", "runs/classify/1", "-o", str(tmp_path / "labels.txt"))
    assert typed(capsys, *words)[:2] == (0, "") and (tmp_path / "labels.txt").read_text() == "good\nbad\n"
    assert "there is no file nowhere.txt" in refused(capsys, "classify", "nowhere.txt")


def test_look_at_each_task(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    code, out, err = typed(capsys, "look", GOOD)
    assert code == 0 and "great" in out and "model: runs/" in err
    for task in ("generate", "fill"):
        code, out, _ = typed(capsys, "look", "the old king", "-m", f"runs/{task}/1", "--layer", "0", "--head", "1")
        assert code == 0 and "king" in out
    for name in ("a.png", "a.html", "a.json", "a.svg"):
        code, out, err = typed(capsys, "look", GOOD, "-m", "runs/classify/1", "-o", str(tmp_path / name))
        assert (code, out) == (0, "") and f"wrote {tmp_path / name}" in err and (tmp_path / name).stat().st_size > 99
    data = json.loads((tmp_path / "a.json").read_text())
    assert sum(piece["weight"] for piece in data["pieces"]) == pytest.approx(1.0, abs=1e-5)
    words = ("look", "a", "-m", "runs/classify/1")
    assert "leave out --layer and --head" in refused(capsys, *words, "--layer", "0")
    assert "use .png, .svg, .html, .json, .csv" in refused(capsys, *words, "-o", "a.gif")
    assert "--second is for classifiers of pairs" in refused(capsys, "look", "a", "-m", "runs/fill/1", "--second", "b")


# --- train


def test_train_on_jsonl_and_from_another_run(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "run"), "--json", "--steps", "2"]
    words = ["--data", "book.jsonl", "--from", "runs/generate/1", *setting([*SHORT, "data.context=16"])]
    code, printed, err = typed(capsys, "train", "generate", *words, *out)
    found = json.loads(printed)
    assert code == 0 and (found["step"], found["reason"]) == (2, "steps") and "held out 10%" in err
    assert found["metrics"]["perplexity"] == pytest.approx(math.exp(found["metrics"]["loss"]))
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert (config["model"]["kind"], config["start"]) == ("gpt2", "runs/generate/1")


def test_train_on_pairs(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "run"), "--steps", "2"]
    code, printed, _ = typed(capsys, "train", "classify", "--data", "pairs.tsv", "--from", "runs/fill/1", *out)
    assert code == 0 and "regard classify -m" in printed
    words = ("classify", "-m", str(tmp_path / "run"), "--json")
    code, printed, _ = typed(capsys, *words, stdin="the cat\ta king\n")
    row = json.loads(printed)
    assert code == 0 and (row["text"], row["second"]) == ("the cat", "a king") and row["label"] in ("True", "False")
    assert typed(capsys, *words, "the cat", "--second", "a king")[1] == printed
    code, several, err = typed(capsys, *words, stdin="the cat\ta king\nno second\nthe cat\ta king\n")
    assert code == 1 and "stdin, line 2: no tab, and this model was trained on pairs" in err
    first, bad, third = several.splitlines()
    assert json.loads(first)["probability"] == pytest.approx(row["probability"])
    assert json.loads(third)["label"] == row["label"] and "error" in json.loads(bad)
    with pytest.raises(UsageError, match="was trained on pairs of texts; give the second one"):
        load_model(tmp_path / "run").classify("the cat")


def test_ones_own_columns_and_a_rare_label(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    """From a CSV with odd names to eval and compare: columns are said once, and a run remembers them."""
    rows = [(f"{text} {number}", "spam" if number % 40 == 0 else "ham") for number, text in enumerate(sentences(240))]
    lines = [f'{number % 7},{label},"{text}, yes"' for number, (text, label) in enumerate(rows)]
    (tmp_path / "mail.csv").write_text("\n".join(["day,verdict,body text", *lines]))
    run, small = (
        str(tmp_path / "run"),
        setting([*SHORT, "model.width=12", "model.heads=2", "train.class_weights=balanced"]),
    )
    words = ["train", "classify", "--data", str(tmp_path / "mail.csv"), "--steps", "2", "-o", run, *small]
    line = refused(capsys, *words)
    assert "which column is the label? There is day, verdict, body text" in line and "--text 2 --label 1" in line
    code, out, err = typed(capsys, *words, "--text", "body text", "--label", "2", "--json")
    assert code == 0 and "text is column body text, label is column verdict; not read: day" in err
    assert "labels are uneven" in err and "are 'ham'" in err and "labels count by train.class_weights" in err
    assert {"accuracy", "majority", "f1"} <= json.loads(out)["metrics"].keys()
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert (config["data"]["text"], config["data"]["label"]) == ("body text", "2")
    assert config["train"]["class_weights"] == "balanced"

    (tmp_path / "test.jsonl").write_text(
        "".join(json.dumps({"m": text, "l": label}) + "\n" for text, label in rows[:20])
    )
    columns = ("--text", "m", "--label", "l")
    code, out, _ = typed(capsys, "eval", run, "--on", str(tmp_path / "test.jsonl"), *columns)
    assert code == 0 and "always ham" in out and "95.0" in out and "as spam" in out and "macro F1" in out
    (tmp_path / "other.tsv").write_text("".join(f"{label}\t{text}\n" for text, label in rows[:3]))
    code, out, err = typed(capsys, "eval", f"{run}/best", "--on", str(tmp_path / "other.tsv"), "--json")
    found = json.loads(out)  # three rows: its labels, which the model knows, tell the column
    assert (
        code == 0 and sum(found["confusion"][0]) == 2 and "label is column 1" in found["notes"][0] and "column 1" in err
    )
    code, out, _ = typed(capsys, "compare", run, run, "--on", str(tmp_path / "test.jsonl"), *columns)
    assert code == 0 and "20 texts of" in out
    assert "no key 'body text'" in refused(capsys, "eval", run, "--on", str(tmp_path / "test.jsonl"))
    assert "--source has no meaning for data to classify; say --text, --label, --pair" in refused(
        capsys, *words, "--source", "1"
    )


def test_language_models_are_tested_on_the_key_that_a_person_names(
    folder: Path, capsys: Captured, tmp_path: Path
) -> None:
    """The bugs: compare took --text for a classifier's column and then read another; eval forgot that of training."""
    rows = [{"text": "no", "body": line} for line in sentences(9, seed=7)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a", "b"):
        shutil.copytree("runs/generate/1", tmp_path / name)
    runs, on = [str(tmp_path / name) for name in ("a", "b")], ["--on", str(tmp_path / "t.jsonl")]
    named = json.loads(typed(capsys, "eval", runs[0], *on, "--text", "body", "--json")[1])
    plain = json.loads(typed(capsys, "eval", runs[0], *on, "--json")[1])
    assert named["tokens"] > plain["tokens"] and named["loss"] != plain["loss"]
    report = json.loads(typed(capsys, "compare", *runs, *on, "--text", "body", "--json")[1])
    assert [run["scores"]["loss"] for run in report["runs"]] == [named["loss"]] * 2
    noted = json.loads((tmp_path / "a" / "run.json").read_text())
    noted["config"]["data"]["field"] = "body"
    (tmp_path / "a" / "run.json").write_text(json.dumps(noted))
    assert json.loads(typed(capsys, "eval", runs[0], *on, "--json")[1])["loss"] == named["loss"]
    assert "--tokenize has no meaning for models to generate" in refused(
        capsys, "compare", *runs, *on, "--tokenize", "char"
    )


def test_a_budget_that_is_too_short_leaves_nothing(folder: Path, capsys: Captured) -> None:
    """The bug: an empty folder stayed, and the next run had the number after it."""
    words = ["--data", "books", "--budget", "0.001s", *setting([*TEXT, "model.max_length=16", "samples=0"])]
    assert "is too short" in refused(capsys, "train", "generate", *words, code=1)
    line = refused(capsys, "train", "generate", "--data", "books", "--budget", "9s", "--steps", "4")
    assert "leave out --steps and --max-time" in line


BAD_FILES: dict[str, bytes] = {
    "empty.txt": b"",
    "blank.txt": b" \n\n ",
    "binary.txt": b"\x00\x01\x02" * 50,
    "latin.txt": "café noir ".encode("latin1") * 50,
    "letter.txt": b"a",
    "one.tsv": b"".join(b"film %d\tgood\n" % number for number in range(40)),
    "column.tsv": b"a film\nanother film\n",
    "empty.tsv": b"",
    "bad.jsonl": b'{"text": "a"}\n{"text": \n',
    "key.jsonl": b'{"texts": "a"}\n',
}


@pytest.mark.parametrize(
    ("task", "name", "message"),
    [
        ("generate", "empty.txt", "there is no text in"),
        ("fill", "blank.txt", "there is no text in"),
        ("generate", "binary.txt", "is not text"),
        ("generate", "latin.txt", "UTF-8"),
        ("generate", "letter.txt", "too short to hold"),
        ("generate", "bad.jsonl", "bad.jsonl"),
        ("generate", "key.jsonl", "data.field"),
        ("classify", "one.tsv", "'good'"),
        ("classify", "column.tsv", "column.tsv"),
        ("classify", "empty.tsv", "empty.tsv"),
        ("classify", "nowhere.tsv", "nowhere.tsv"),
    ],
)
def test_bad_data_is_told_in_a_line(
    folder: Path, capsys: Captured, tmp_path: Path, task: str, name: str, message: str
) -> None:
    if name in BAD_FILES:
        (tmp_path / name).write_bytes(BAD_FILES[name])
    before = sorted(Path("runs").rglob("*"))
    code, out, err = typed(capsys, "train", task, "--data", str(tmp_path / name), "--steps", "2")
    assert code in (1, 2) and out == "" and sorted(Path("runs").rglob("*")) == before
    [line] = [line for line in err.splitlines() if line.startswith("regard: ")]
    assert message in line and "Traceback" not in err and "--debug" not in line


def test_a_text_shorter_than_the_context_is_learned(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("the old king walked")
    words = ["--data", str(tmp_path / "short.txt"), "--steps", "2", "-o", str(tmp_path / "run")]
    code, _, err = typed(capsys, "train", "generate", *words, *setting([*TINY, *SHORT, "tokens.kind=byte"]))
    assert code == 0, err


def test_wrong_tasks_and_kinds_are_told(folder: Path, capsys: Captured) -> None:
    data = ("--data", "books")
    assert "did you mean generate" in refused(capsys, "train", "generat", *data)
    line = refused(capsys, "train", "generate", *data, "--model", "bert")
    assert (
        "a bert does not generate; llama, gpt1, gpt2, gpt3, lstm, wavenet, pixelcnn, pixelrnn, image-transformer do"
        in line
    )
    assert "generate goes on from generate" in refused(capsys, "train", "generate", *data, "--from", "runs/fill/1")
    line = refused(
        capsys, "train", "generate", *data, "--model", "gpt2", *setting(["model.max_length=8", "data.context=256"])
    )
    assert "data.context 256 is more than model.max_length 8" in line


def test_weights_that_are_no_numbers_are_told(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    from regard.bundle import load_bundle, save_bundle

    bundle = load_bundle("runs/generate/1/best")
    with torch.no_grad():
        for parameter in bundle.model.parameters():
            parameter.fill_(math.nan)
    save_bundle(tmp_path / "nan", bundle)
    code, _, err = typed(capsys, "generate", "the", "-m", str(tmp_path / "nan"))
    assert code == 1 and "the model gave NaN" in err and "Traceback" not in err


def test_verbs_without_a_run_say_how_to_make_one(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.runs.SHIPPED", tmp_path)  # no bundle comes with the package
    verbs: dict[str, Any] = {"generate": "book.txt", "fill": "book.txt", "classify": "texts.tsv"}
    for verb, data in verbs.items():
        assert f"make one with: regard train {verb} --data {data}" in refused(capsys, verb, "a [MASK]")
    assert "regard train fill" in refused(capsys, "vectors", "a")
    assert "there is no trained run here" in refused(capsys, "look", "a")
