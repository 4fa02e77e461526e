"""The verbs as a person types them: exit codes, what goes to stdout, and numbers held against the Python side."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

import regard.verify
from regard.cli import inputs, main, translate
from regard.cli.output import finite, one_line, progress
from regard.cli.train import watch
from regard.data.builtin.dates import as_pairs, date_pairs
from regard.errors import ModelError, RegardError
from regard.tasks import load, run_config
from regard.tasks.run import RunResult, start_run
from regard.tasks.translate.predictor import Translator
from regard.verify import Check

SMALL: dict[str, Any] = {
    "preset": "demo",
    "model": {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 32},
    "tokens": {"kind": "character"},
    "data": {"builtin_size": 500},
    "train": {"steps": 40, "warmup": 10, "lr": 1e-2, "batch_tokens": 1024, "validate_every": 20, "average": 0},
    "validate": {"sentences": 20},
}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Type = Callable[..., Done]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run, runs/translate/1, and a small test set, test.tsv."""
    folder = tmp_path_factory.mktemp("home")
    start_run(run_config("translate", SMALL), folder=folder / "runs" / "translate" / "1")
    (folder / "test.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in as_pairs(date_pairs("test", 23))))
    return folder


@pytest.fixture
def type_(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Type:
    """Type a command in the home folder."""
    monkeypatch.chdir(home)
    capsys.readouterr()

    def type_(*words: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = main.run(words)
        return Done(code, *capsys.readouterr())

    return type_


@pytest.fixture
def empty(type_: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Type a command in a folder that has nothing."""
    monkeypatch.chdir(tmp_path)
    return type_


@pytest.fixture(scope="session")
def model(home: Path) -> Translator:
    return load(home / "runs" / "translate" / "1")


# --- Mistakes


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("transalte", 2, "no command transalte; did you mean translate?"),
        ("train transalte", 2, "no task transalte; did you mean translate?"),
        ("train", 2, "regard train translate --data pairs.tsv"),
        ("train translate --preset tinny", 2, "no preset tinny; did you mean tiny?"),
        ("train translate --set train.lrr=1", 2, "no key train.lrr; did you mean lr?"),
        ("train translate --max-time soon", 2, "'soon' is not a duration; write 45s, 30m or 1h30m"),
        ("train translate --steps few", 2, "--steps"),
        ("train translate --steps 0", 2, "translate: train.steps: must be 1 or more, not 0"),
        ("train translate --steps -5", 2, "translate: train.steps: must be 1 or more, not -5"),
        ("train translate --budget 0s", 2, "--budget 0s is no time to train; write 45s"),
        ("train translate --languages en", 2, "--languages en,de"),
        ("train translate --device gpu", 2, "no device gpu; did you mean cpu?"),
        ("train translate --data nowhere.tsv", 1, "there is no nowhere.tsv"),
        ("train nowhere.toml", 2, "there is no file nowhere.toml"),
        ("train translate --resume runs/translate/1", 2, "leave out WHAT"),
        ("train --resume runs/translate/1 --preset tiny --seed 3", 2, "leave out --preset, --seed"),
        ("train --resume runs/translate/1 --set train.lr=1", 2, "may only change train.steps"),
        ("train --resume runs/translate/8", 2, "runs/translate/8 is not a run"),
        ("train translate --out runs/translate/1", 2, "is not empty"),
        ("eval", 2, "missing argument 'RUN'; see regard eval --help"),
        ("eval runs/translate/8 --on test.tsv", 2, "there is no runs/translate/8"),
        ("eval runs/translate/1 --on nowhere.tsv", 1, "there is no nowhere.tsv"),
        ("eval runs/translate/1 --on builtin/dates/tset", 2, "did you mean test?"),
        ("compare runs/translate/1 --on test.tsv", 2, "two models or more"),
        ("score runs/translate/1 a b c", 2, "not 3"),
        ("translate x --bem 3", 2, "--beam"),
        ("translate x -m runs/translate/8", 2, "there is no runs/translate/8"),
        ("translate x --temperature 0.5", 2, "set sample = true"),
        ("translate x --length-penalty long", 2, "'gnmt', 'power' or 'none'"),
        ("translate --attention", 2, "attention needs a TEXT"),
        ("translate x --attention -o map.gif", 2, "saved as .png, .svg, .json, .csv"),
        ("translate x y --attention -o map.png", 2, "there are 2"),
        ("translate x -o map.png", 2, "add --attention"),
        ("translate nowhere.en", 2, "there is no file nowhere.en; check its name, or add --text"),
        ("translate runs/nowhere", 2, "there is no file runs/nowhere"),
        ("translate runs/translate", 2, "runs/translate is a folder"),
        ("translate test.tsv x", 2, "test.tsv is a file and 'x' is a text"),
    ],
)
def test_a_mistake_is_one_line_on_stderr(type_: Type, words: str, code: int, message: str) -> None:
    done = type_(*words.split())
    assert done.code == code
    last = done.err.splitlines()[-1]
    assert last.startswith("regard: ") and message in last
    assert "warmup" not in done.err  # which nobody asked for
    assert done.out == "" and "Traceback" not in done.err


def test_a_run_that_could_not_start_leaves_nothing(empty: Type, tmp_path: Path) -> None:
    assert empty("train", "translate", "--data", "nowhere.tsv").code == 1
    assert not [*tmp_path.rglob("run.json")] and not (tmp_path / "runs" / "translate" / "1").exists()


def test_without_any_run_it_says_how_to_make_one(empty: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.runs.SHIPPED", tmp_path)  # no bundle comes with the package
    done = empty("translate", "x")
    assert done.code == 2 and "regard demo" in done.err and "regard train translate" in done.err
    done = empty("runs")
    assert (done.code, done.out) == (0, "") and "regard demo" in done.err
    assert empty("runs", "--json").json() == []


def test_an_unforeseen_error_offers_debug(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> list[Check]:
        raise RuntimeError("boom\nand more")

    monkeypatch.setattr(regard.verify, "verify_bundle", fail)
    done = type_("verify", "runs/translate/1")
    assert (done.code, done.err) == (
        1,
        "regard: RuntimeError: boom and more; run again with --debug for the traceback\n",
    )
    done = type_("verify", "runs/translate/1", "--debug")
    assert done.code == 1 and "Traceback" in done.err and done.err.endswith("regard: RuntimeError: boom and more\n")


def test_an_interrupt_exits_130(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(folder: Path) -> list[Check]:
        raise KeyboardInterrupt

    monkeypatch.setattr(regard.verify, "verify_bundle", interrupt)
    assert type_("verify", "runs/translate/1").code == 130


def test_no_words_are_help(type_: Type) -> None:
    done = type_()
    assert done.code == 0 and all(verb in done.out for verb in main.VERBS)
    assert type_("--version").out == f"regard {regard.__version__}\n"


# --- translate

LINES = ["mardi 3 mars 1998", "", "3. März 1998", "   ", "1998年3月3日", "</s>", "March 3rd, 1998"]


def test_texts_and_standard_input_give_what_python_gives(type_: Type, model: Translator) -> None:
    expected = [each.text for each in model.translate(LINES)]
    done = type_("translate", *LINES)
    assert (done.code, done.out.split("\n")) == (0, [*expected, ""])
    assert "runs/translate/1" in done.err  # which model it took
    done = type_("translate", "-m", "runs/translate/1", stdin="\r\n".join(LINES).encode())
    assert (done.code, done.out.split("\n"), done.err) == (0, [*expected, ""], "")
    assert expected[1] == expected[3] == "" and all(expected[0::2])


def test_chunks_change_nothing(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = "".join(f"{line}\n" for line in LINES).encode()
    whole = type_("translate", stdin=stdin).out
    monkeypatch.setattr(translate, "CHUNK", 3)
    assert type_("translate", stdin=stdin).out == whole
    assert whole.count("\n") == len(LINES)


def test_each_chunk_is_sampled_with_its_own_numbers(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "CHUNK", 1)
    words = ("translate", "--sample", "--seed", "5", "--max-length", "10")
    first, second = type_(*words, stdin=b"3 mars\n3 mars\n").out.splitlines()
    assert first != second
    assert type_(*words, "3 mars").out.splitlines() == [first]


def test_a_bad_line_costs_itself(type_: Type, model: Translator) -> None:
    """The bug: one line that was too long, or not UTF-8, ended the job, and the answers of its chunk were lost."""
    lines = [b"3 mai 2004", b"b\xe9d", b"4 mai 2004", b"x" * 100_001, b"5 mai 2004", b"6 mai 2004", b"\xff"]
    good = {place: line.decode() for place, line in enumerate(lines) if place in (0, 2, 4, 5)}
    expected = [model.translate(good[place]).text if place in good else "" for place in range(len(lines))]
    done = type_("translate", "-m", "runs/translate/1", stdin=b"\n".join(lines))
    assert (done.code, done.out.split("\n")) == (1, [*expected, ""])
    first, second, third, last = done.err.splitlines()
    assert first.startswith("stdin, line 2: byte 2 (0xe9) is not UTF-8")
    assert second.startswith("stdin, line 4: a text of 100,001 characters") and third.startswith(
        "stdin, line 7: byte 1"
    )
    assert last.startswith("regard: 3 of 7 got no answer")
    rows = [json.loads(line) for line in type_("translate", "--json", stdin=b"\n".join(lines)).out.splitlines()]
    assert ["error" in row for row in rows] == [place not in good for place in range(len(lines))]
    assert rows[4]["text"] == expected[4] and "100,001" in rows[3]["error"]
    words = ("translate", "--sample", "--seed", "5", "--max-length", "10", "--json")
    drawn = [json.loads(line).get("text") for line in type_(*words, stdin=b"\n".join(lines)).out.splitlines()]
    whole = type_(*words, stdin=b"\n".join(line if place in good else b"" for place, line in enumerate(lines)))
    assert [json.loads(whole.out.splitlines()[place])["text"] for place in good] == [drawn[place] for place in good]


def test_what_is_wrong_with_the_model_ends_the_job(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Translator, texts: list[str], **options: Any) -> list[Any]:
        raise ModelError("the model gave NaN")

    monkeypatch.setattr(Translator, "translate", broken)
    done = type_("translate", "-m", "runs/translate/1", stdin=b"a\nb\n")
    assert (done.code, done.out, done.err) == (1, "", "regard: the model gave NaN\n")


class Told(io.StringIO):
    """A stdout that tells when a line was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.line = threading.Event()

    def write(self, text: str) -> int:
        if "\n" in text:
            self.line.set()
        return super().write(text)


def test_an_input_that_pauses_is_answered(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: nothing was printed before 256 lines had come, or the end."""
    reading, writing = os.pipe()
    told, in_time = Told(), []

    def write() -> None:
        with open(writing, "wb", buffering=0) as pipe:
            for line in (b"3 mai 2004\n", b"4 mai 2004\n", b"5 mai 2004"):
                told.line.clear()
                pipe.write(line)
                in_time.append(line.endswith(b"\n") and told.line.wait(20))

    with open(reading, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", told)
        writer = threading.Thread(target=write)
        writer.start()
        code = main.run(["translate", "-m", "runs/translate/1"])
        writer.join()
    assert code == 0 and in_time == [True, True, False] and told.getvalue().count("\n") == 3


def test_the_first_answers_come_first() -> None:
    items = inputs.arguments(["x"] * 700)
    chunks = list(items.chunks(256))
    assert [len(chunk) for chunk in chunks] == [1, 4, 16, 64, 256, 256, 103]
    assert [item.place for chunk in chunks for item in chunk] == list(range(700))


def test_a_pipe_is_cut_into_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks end anywhere: within a line, a letter, a line end."""
    text = "\ufeffdrei\r\nMärz\n\n日本\n" + "lang" * 50_000 + "\nend"
    reading, writing = os.pipe()
    threading.Thread(target=lambda: os.fdopen(writing, "wb").write(text.encode())).start()
    with open(reading, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(inputs, "BLOCK", 7)
        found = [item.value for chunk in inputs.lines_of_stdin("").chunks(3) for item in chunk]
    assert found == ["drei", "März", "", "日本", "lang" * 50_000, "end"]


@pytest.mark.parametrize("name", ["dates.en", "dates.txt.gz"])
def test_a_file_is_translated_line_by_line(type_: Type, tmp_path: Path, name: str) -> None:
    data = "".join(f"{line}\n" for line in LINES).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    expected = type_("translate", stdin=data).out
    done = type_("translate", str(tmp_path / name), "-m", "runs/translate/1", "-o", str(tmp_path / "dates.de"))
    assert (done.code, done.out, (tmp_path / "dates.de").read_text()) == (0, "", expected)
    assert done.err == (
        f"reading {tmp_path / name} line by line (--text takes its name for the text)\nwrote {tmp_path / 'dates.de'}\n"
    )
    assert type_("translate", str(tmp_path / name), "--text").out.count("\n") == 1
    (tmp_path / name).write_bytes(b"\x89PNG\0\0" if name.endswith(".en") else gzip.compress(b"\0"))
    assert "is not UTF-8 text" in type_("translate", str(tmp_path / name)).err


def test_what_was_translated_before_an_interrupt_stays(
    type_: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Translator.translate

    def interrupted(self: Translator, texts: list[str], **options: Any) -> Any:
        if len(texts) > 1:
            raise KeyboardInterrupt
        return told(self, texts, **options)

    monkeypatch.setattr(Translator, "translate", interrupted)
    done = type_("translate", "-o", str(tmp_path / "out.txt"), stdin=b"3 mai 2004\n4 mai 2004\n5 mai\n")
    assert done.code == 130 and "is in" in done.err and [path.name for path in tmp_path.iterdir()] == ["out.txt.part"]
    assert (tmp_path / "out.txt.part").read_text().count("\n") == 1


def test_only_what_was_kept_just_now_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bugs: the part of an earlier job was said to be this one's, and behind a link none was found."""
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    (tmp_path / "real.txt.part").write_text("of an earlier job\n")
    (tmp_path / "link.txt.part").write_text("of another\n")
    with pytest.raises(RegardError, match="at once"), inputs.output_to(tmp_path / "link.txt"):
        raise RegardError("at once")
    assert capsys.readouterr().err == ""
    with pytest.raises(RegardError, match="later"), inputs.output_to(tmp_path / "link.txt"):
        print("one line")
        raise RegardError("later")
    assert capsys.readouterr().err.strip() == f"what was done until then is in {tmp_path / 'real.txt.part'}"
    assert (tmp_path / "real.txt.part").read_text() == "one line\n"


def test_bad_lines_do_not_cost_the_file(type_: Type, tmp_path: Path) -> None:
    done = type_("translate", "-o", str(tmp_path / "out.txt"), stdin=b"3 mai 2004\n\xff\n")
    assert done.code == 1 and (tmp_path / "out.txt").read_text().count("\n") == 2


@pytest.mark.parametrize("text", ["3/4/2004", "and/or", "</s>", "3.5.2004", "..", "U.S.A", "a\0b"])
def test_what_only_looks_like_a_path_is_a_text(type_: Type, text: str) -> None:
    assert type_("translate", text).out.count("\n") == 1


def test_words_without_quotes_are_told_to_be_several_texts(type_: Type) -> None:
    done = type_("translate", "3", "mai")
    assert done.out.count("\n") == 2 and '2 texts, one for each argument; quotes make them one: "3 mai"' in done.err
    assert "quotes" not in type_("translate", "3 mai", "mai").err


def test_results_go_to_their_file_past_a_progress_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The bug: with stderr on a terminal, rich took what was printed meanwhile to the terminal; the file stayed empty."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with (tmp_path / "out").open("w") as file, redirect_stdout(file), progress("translating") as advance:
        advance(1, 2)
        print("a result")
    assert (tmp_path / "out").read_text() == "a result\n" and "translating" in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_a_wrong_option_is_told_before_anything_is_read(type_: Type) -> None:
    assert "n_best 9 is more than beam 2" in type_("translate", "--n-best", "9", "--beam", "2", stdin=b"\xff").err


def test_temperature_0_is_greedy(type_: Type, model: Translator) -> None:
    expected = model.translate("3 mars 1998", beam=1)
    done = type_("translate", "3 mars 1998", "--sample", "--temperature", "0", "--json")
    assert (done.code, done.json()["text"]) == (0, expected.text)
    assert done.json()["log_probability"] == pytest.approx(expected.log_probability)


def test_scores_and_alternatives(type_: Type, model: Translator, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = model.translate("3 mars 1998", n_best=3, beam=4)
    rows = [line.split("\t") for line in type_("translate", "3 mars 1998", "--n-best=3", "--beam=4").out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1"]
    assert [row[3] for row in rows] == [each.text for each in (best, *best.alternatives)]
    assert [float(row[1]) for row in rows] == pytest.approx([a.score for a in (best, *best.alternatives)], abs=1e-4)
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: [replace(best, alternatives=())])
    alone = type_("translate", "3 mars 1998", "--n-best=3", "--beam=4").out.rstrip("\n").split("\t")
    assert (alone[0], alone[3]) == ("1", best.text)  # the others were not found; it stays a list of numbered rows
    monkeypatch.undo()
    monkeypatch.chdir(home)
    row = type_("translate", "3 mars 1998", "--scores", "--beam=4").out.strip().split("\t")
    assert [float(cell) for cell in row[:2]] == pytest.approx([best.score, best.log_probability], abs=1e-4)


def test_json_is_one_object_a_line(type_: Type, model: Translator) -> None:
    done = type_("translate", "--json", "--n-best=2", stdin=b"3 mars 1998\n4 mai 2004\n")
    first, second = map(json.loads, done.out.splitlines())
    expected = model.translate("3 mars 1998", n_best=2)
    assert (first["text"], first["score"]) == (expected.text, pytest.approx(expected.score))
    assert first["alternatives"][0]["text"] == expected.alternatives[0].text
    assert second["source"] == "4 mai 2004"
    assert sum(first["token_log_probabilities"]) == pytest.approx(first["log_probability"], rel=1e-5)


def test_attention_is_shown_and_saved(type_: Type, model: Translator, tmp_path: Path) -> None:
    expected = model.translate("3 mai 2004", attention=True)
    assert expected.attention is not None
    shown = type_("translate", "3 mai 2004", "--attention").out
    assert shown == f"{expected.text}\n{expected.attention.map().text(width=80)}\n"
    done = type_("translate", "3 mai 2004", "--attention", "-o", str(tmp_path / "map.json"))
    assert done.out == f"{expected.text}\n"  # the map is in its file, and not here as well
    assert json.loads((tmp_path / "map.json").read_text()) == expected.attention.data()
    assert str(tmp_path / "map.json") in done.err
    done = type_("translate", "3 mai 2004", "--attention", "--json", "-o", str(tmp_path / "map.png"))
    assert done.json()["text"] == expected.text and (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert type_("translate", "3 mai 2004", "--attention", "--json").json()["attention"] == expected.attention.data()


def test_a_map_is_saved_also_if_nobody_reads_the_text(
    type_: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*words: Any, **options: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(translate, "print", gone, raising=False)
    monkeypatch.setattr(main, "_leave_pipe", lambda: 1)
    assert type_("translate", "3 mai 2004", "--attention", "-o", str(tmp_path / "map.csv")).code == 1
    assert (tmp_path / "map.csv").stat().st_size > 99


# --- eval, score, compare


def test_eval_agrees_with_sacrebleu(type_: Type, tmp_path: Path) -> None:
    saved = tmp_path / "out.txt"
    found = type_("eval", "runs/translate/1", "--on", "test.tsv", "--beam=1", "--json", "--save", str(saved)).json()
    pairs = as_pairs(date_pairs("test", 23))
    outputs = saved.read_text().splitlines()
    references = [target for _, target in pairs]
    scores = {name: score["value"] for name, score in found["scores"].items()}
    assert scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(outputs, [references]).score)
    assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(outputs, [references]).score)
    assert scores["ter"] == pytest.approx(sacrebleu.corpus_ter(outputs, [references]).score)
    assert all(score["low"] <= score["value"] <= score["high"] for score in found["scores"].values())
    assert (found["sentences"], found["exact"], found["decode"]["beam"]) == (23, None, 1)


def test_eval_counts_right_dates(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    def right_but_for_the_first(self: Translator, texts: list[str], **options: Any) -> list[Any]:
        answers = dict(as_pairs(date_pairs("test", 1000)))
        wrong = date_pairs("test", 1)[0].source
        return [type("Found", (), {"text": "?" if text == wrong else answers[text]}) for text in texts]

    monkeypatch.setattr(Translator, "translate", right_but_for_the_first)
    assert type_("eval", "runs/translate/1", "--on", "builtin/dates/test", "--json").json()["exact"] == pytest.approx(
        99.9
    )
    done = type_("eval", "runs/translate/1", "--on", "builtin/dates")
    assert "999 of 1,000 right" in done.out and "nrefs:1|bs:1000" in done.out


def test_score_prints_a_line_for_each_pair(type_: Type, model: Translator) -> None:
    expected = model.score(as_pairs(date_pairs("test", 23)))
    done = type_("score", "runs/translate/1", "test.tsv")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [float(row[0]) for row in rows] == pytest.approx([each.log_probability for each in expected], abs=1e-3)
    assert [int(row[1]) for row in rows] == [each.tokens for each in expected]
    assert [math.exp(-float(row[0]) / int(row[1])) for row in rows] == pytest.approx(
        [float(r[2]) for r in rows], rel=1e-3
    )
    found = type_("score", "runs/translate/1", "test.tsv", "--json").json()
    total = -sum(each.log_probability for each in expected) / sum(each.tokens for each in expected)
    assert found["perplexity"] == pytest.approx(math.exp(total), rel=1e-4)
    assert f"perplexity {math.exp(total):.4g}" in done.err


def test_score_names_its_columns_where_it_is_asked_to(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("score", "runs/translate/1", "test.tsv")
    plain = type_(*words).out
    assert type_(*words, "--header").out == f"log_probability\ttokens\tperplexity\n{plain}"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    header, *rows = type_(*words).out.splitlines()
    assert header == "log_probability  tokens  perplexity"  # on a terminal: the cells end below their names
    cells = [line.split("\t") for line in plain.splitlines()]
    assert [row.split() for row in rows] == cells and [row[17:23].strip() for row in rows] == [row[1] for row in cells]
    assert len(type_(*words, "--no-header").out.splitlines()) == len(rows)


def test_a_full_disk_leaves_a_run_that_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It said that nothing was changed, and not what is kept of hours of training, nor how to go on."""

    def work() -> RunResult:
        raise RegardError("cannot write: no space") from OSError(28, "No space left on device")

    with pytest.raises(RegardError):
        watch(work, tmp_path / "none")
    assert "--resume" not in capsys.readouterr().err
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "checkpoints" / "step-3").mkdir(parents=True)
    with pytest.raises(RegardError):
        watch(work, tmp_path)
    assert f"last checkpoint is kept; make room, then: regard train --resume {tmp_path}" in capsys.readouterr().err


def test_a_line_that_is_no_pair_costs_itself(type_: Type, model: Translator, tmp_path: Path) -> None:
    """One line without a tab or that is not UTF-8 refused the whole file, the first line as well as any other."""
    good = [("3 mai 2004", "a"), ("4 mai 2004", "b")]
    expected = pytest.approx([each.log_probability for each in model.score(good)], abs=1e-3)
    lines = [b"no tab", b"3 mai 2004\ta", b"\xe9t\xe9\tx", b"4 mai 2004\tb"]
    (tmp_path / "pairs.tsv").write_bytes(b"\n".join(lines) + b"\n")
    done = type_("score", "runs/translate/1", str(tmp_path / "pairs.tsv"))
    rows = done.out.split("\n")
    assert done.code == 1 and (rows[0], rows[2]) == ("", "")
    assert [float(rows[place].split("\t")[0]) for place in (1, 3)] == expected
    assert "line 1: no tab" in done.err and "line 3: byte 1 (0xe9) is not UTF-8" in done.err and "2 of 4" in done.err
    texts = [
        '{"source": "3 mai 2004", "target": "a"}',
        "{",
        '{"source": "x"}',
        '{"source": "4 mai 2004", "target": "b"}',
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(texts))
    found = type_("score", "runs/translate/1", str(tmp_path / "pairs.jsonl"), "--json").json()["pairs"]
    assert [found[place]["log_probability"] for place in (0, 3)] == expected
    assert "line 2" in found[1]["error"] and "no key 'target'" in found[2]["error"]
    (tmp_path / "a.fr").write_bytes("3 mai 2004\n\xe9\n4 mai 2004\n".encode("latin1"))
    (tmp_path / "a.iso").write_text("a\nx\nb\n")
    rows = type_("score", "runs/translate/1", str(tmp_path / "a.fr"), str(tmp_path / "a.iso")).out.split("\n")
    assert rows[1] == "" and [float(rows[place].split("\t")[0]) for place in (0, 2)] == expected


def test_a_bad_pair_costs_itself(type_: Type, model: Translator, tmp_path: Path) -> None:
    pairs = [("3 mai 2004", "a"), ("3 mai", "x"), ("4 mai 2004", "b")]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in pairs))
    encode = Translator.encode

    def picky(self: Translator, given: Any) -> Any:
        if ("3 mai", "x") in given:
            raise RegardError("too long")
        return encode(self, given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Translator, "encode", picky)
        done = type_("score", "runs/translate/1", str(tmp_path / "pairs.jsonl"))
        found = type_("score", "runs/translate/1", str(tmp_path / "pairs.jsonl"), "--json").json()
    first, bad, third = done.out.splitlines()
    assert done.code == 1 and bad == "" and "pair 2: too long" in done.err and "2 pairs" in done.err
    expected = model.score([pairs[0], pairs[2]])
    assert [float(row.split("\t")[0]) for row in (first, third)] == pytest.approx(
        [each.log_probability for each in expected], abs=1e-3
    )
    assert [row.get("error") for row in found["pairs"]] == [None, "too long", None]


def test_a_model_does_not_differ_from_itself(type_: Type, model: Translator) -> None:
    words = ("compare", "runs/translate/1", "runs/translate/1/best", "--on", "test.tsv", "--beam=1")
    first, second = type_(*words, "--json").json()["runs"]
    assert first["against_first"] is None and first["bleu"] == second["bleu"]
    assert (second["against_first"]["difference"], second["against_first"]["p_value"]) == (0.0, 1.0)
    assert first["parameters"] == sum(parameter.numel() for parameter in model.model.parameters())
    assert first["size"] > 4 * first["parameters"]  # float32, and the tokenizer
    table = type_(*words).out
    assert "+0.0  1.000" in table and "differences are to runs/translate/1" in table


# --- runs, verify, doctor


def test_runs_tells_what_there_is(type_: Type, model: Translator) -> None:
    (run,) = type_("runs", "--json").json()
    assert (run["folder"], run["state"], run["reason"], run["steps"]) == ("runs/translate/1", "finished", "steps", 40)
    assert run["parameters"] == sum(parameter.numel() for parameter in model.model.parameters())
    assert run["best"] == pytest.approx(model.bundle.metrics["bleu"])
    assert "all steps done" in type_("runs").out


def test_a_damaged_run_does_not_hide_the_others(type_: Type, home: Path) -> None:
    broken = home / "runs" / "translate" / "7"
    broken.mkdir()
    try:
        (broken / "run.json").write_text('{"config": {')
        states = {run["folder"]: run["state"] for run in type_("runs", "--json").json()}
        assert states == {"runs/translate/1": "finished", "runs/translate/7": "damaged"}
        (broken / "run.json").write_text('{"config": {}}')
        assert "damaged" in type_("runs").out
    finally:
        (broken / "run.json").unlink()
        broken.rmdir()


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (None, 0), (False, 1)])
def test_verify_fails_if_a_check_does(
    type_: Type, monkeypatch: pytest.MonkeyPatch, passed: bool | None, code: int
) -> None:
    monkeypatch.setattr(regard.verify, "verify_bundle", lambda folder: [Check("cached = uncached", passed, "3e-16")])
    done = type_("verify", "runs/translate/1")
    assert done.code == code and "cached = uncached" in done.out and "3e-16" in done.out
    done = type_("verify", "runs/translate/1", "--json")
    assert done.code == code and done.json()["checks"][0]["passed"] is passed


def test_doctor_examines(type_: Type) -> None:
    found = type_("doctor", "--json").json()
    facts = {fact["name"]: fact["value"] for fact in found["facts"]}
    assert float(facts["matrix products"].split()[0].replace(",", "")) > 0
    assert found["versions"]["typer"] and "torch" in facts


# --- What goes out


def test_small_things() -> None:
    assert one_line("a\r\nb\rc\nd\u2028e") == "a b c d\u2028e"
    assert finite({"a": [1.5, math.inf], "b": (math.nan, "x")}) == {"a": [1.5, None], "b": [None, "x"]}
