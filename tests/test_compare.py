"""`regard compare`: who is compared, training under one budget of time, going on after a kill, and the whole report."""

from __future__ import annotations

import io
import json
import math
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import typer

import regard.compare.translation
from regard.cli import compare as verb
from regard.cli import main
from regard.compare import contest
from regard.compare.contenders import Contender, check_same_data, named_test_set, read_contenders, unique
from regard.compare.report import summary
from regard.config import check
from regard.data import pairs
from regard.data.builtin.dates import as_pairs, date_pairs
from regard.errors import RegardError, UsageError
from regard.models.config import KINDS_OF
from regard.tasks import budget, load
from regard.training import pace
from regard.training.config import TrainConfig
from regard.training.events import Validated
from regard.training.history import read_history, read_progress
from regard.training.pace import Pace, plan
from regard.training.show import Show

TOY = """
preset = "demo"
[data]
train = "builtin/dates"
valid = "valid.tsv"
builtin_size = 300
[tokens]
kind = "character"
[model]
encoder_layers = 1
decoder_layers = 1
width = {width}
heads = 2
feed_forward = 32
[train]
schedule = "cosine"
lr = 1e-2
warmup = 7
batch_tokens = 512
log_every = 3
average = 0
[validate]
sentences = 3
[decode]
max_length = 12
"""
LEARNED = "compare a.toml b.toml --budget 1m --on test.tsv --set model.positions=learned --set model.max_length"
BUDGET = 6.0
TESTED = 97  # dates instead of a thousand


@dataclass(frozen=True)
class Compared:
    """A comparison that was killed in its first run and then finished."""

    home: Path
    killed_at: dict[str, Any]  # the progress that the kill left
    out: str
    err: str

    def progress(self, name: str) -> dict[str, Any]:
        return read_progress(self.home / "out" / name)

    def config(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self.home / "out" / name / "run.json").read_text())["config"]
        return config

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.home / "out" / "report.json").read_text())
        return report


def write_toys(folder: Path) -> None:
    for name, width in (("a", 12), ("b", 20)):
        (folder / f"{name}.toml").write_text(TOY.format(width=width))
    for name, split, count in (("test", "test", 60), ("valid", "valid", 5)):
        rows = "".join(f"{source}\t{target}\n" for source, target in as_pairs(date_pairs(split, count)))
        (folder / f"{name}.tsv").write_text(rows)


def few_test_dates(split: str, count: int, name: str = pairs.BUILTIN) -> list[tuple[str, str]]:
    return as_pairs(date_pairs(split, TESTED if split == "test" else count))


def step_of(folder: Path) -> int:
    """The step of the last checkpoint; 0 while there is none, or just another one."""
    with suppress(RegardError):
        return int(read_progress(folder).get("step", 0))
    return 0


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    home = tmp_path_factory.mktemp("compared")
    write_toys(home)
    words = ("compare", "a.toml", "b.toml", f"--budget={BUDGET}s", "--join", "2", "3", "--beam=2", "-o", "out")
    first = home / "out" / "a"
    with subprocess.Popen(
        [sys.executable, "-m", "regard", *words], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        end = time.monotonic() + 200
        while not step_of(first) and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        told = process.communicate()[1].decode()
    assert process.returncode == -signal.SIGKILL, told
    left = read_progress(first)
    (home / "out" / ".measuring").mkdir()  # as a kill while the speed is measured leaves it
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(home)
        patch.setattr(pairs, "builtin_pairs", few_test_dates)
        patch.setattr(regard.compare.translation, "ALIGNED", 11)
        code = main.run(words)
    assert code == 0, err.getvalue()
    return Compared(home, left, out.getvalue(), err.getvalue())


# --- Training under a budget


def test_both_had_the_same_time(compared: Compared) -> None:
    for name in ("a", "b"):
        config, progress = compared.config(name)["train"], compared.progress(name)
        assert (config["max_time"], config["patience"], config["warmup"]) == (BUDGET, 0, 7)
        assert progress["finished"] in ("steps", "time") and progress["step"] <= config["steps"] != 20_000
        assert 0.2 * BUDGET < progress["seconds"] < BUDGET + 3  # other programs may slow this machine down meanwhile
        assert (progress["finished"] == "steps") == (progress["step"] == config["steps"])
    assert compared.config("a")["model"]["width"] == 12 and not (compared.home / "out" / ".measuring").exists()


def test_after_a_kill_it_goes_on(compared: Compared) -> None:
    assert not compared.killed_at["finished"] and compared.killed_at["step"] > 0
    assert f"a: goes on in out/a at step {compared.killed_at['step']:,}" in compared.err
    assert compared.progress("a")["seconds"] > compared.killed_at["seconds"]
    assert "b: measuring its speed" in compared.err and "a: measuring its speed" not in compared.err


def test_the_same_command_again_trains_nothing(compared: Compared, tmp_path: Path) -> None:
    home = shutil.copytree(compared.home, tmp_path / "home")
    files = [file for name in "ab" for file in (home / "out" / name).rglob("*") if file.is_file()]
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}
    contenders = read_contenders([str(home / "a.toml"), str(home / "b.toml")])
    said: list[str] = []
    runs = contest.train_all(contenders, BUDGET, home / "out", say=said.append)
    assert runs == {"a": home / "out" / "a", "b": home / "out" / "b"}
    assert len(said) == 2 and all("already trained" in line for line in said)
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files} == before
    with pytest.raises(UsageError, match=rf"train\.max_time was {BUDGET}, is 9\.0\); choose another folder with -o"):
        contest.train_all(contenders, 9.0, home / "out")
    other = read_contenders([str(home / "a.toml")], assignments=["train.lr=0.5", "model.width=14"])
    with pytest.raises(UsageError, match=r"model\.width was 12, is 14; train\.lr was 0\.01, is 0\.5"):
        contest.train_all(other, BUDGET, home / "out")


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    write_toys(tmp_path)
    yield tmp_path


def test_the_schedule_ends_with_the_budget(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are done long before the time is up, and the cosine is at its end."""
    monkeypatch.setattr(budget, "measure", lambda job, seconds: Pace(update=2.0, validation=1.0))
    runs = contest.train_all(read_contenders(["a.toml"], assignments=["train.log_every=1"]), 60.0, toys / "out")
    progress, config = read_progress(runs["a"]), json.loads((runs["a"] / "run.json").read_text())["config"]["train"]
    assert progress["finished"] == "steps" and progress["step"] == config["steps"]
    rows = [json.loads(line) for line in (runs["a"] / "log.jsonl").read_text().splitlines()]
    rates = [row["learning_rate"] for row in rows if row["kind"] == "train"]
    assert rates[-1] == pytest.approx(0.0, abs=1e-12) and max(rates) == pytest.approx(1e-2)
    history = read_history(runs["a"])
    assert history is not None and history.planned == history.steps == len(rates) == 21
    looks = [row for row in rows if row["kind"] == "valid"]
    assert [look.step for look in history.looks] == [row["step"] for row in looks] and len(looks) >= 3
    assert [look.metrics["loss"] for look in history.looks] == [row["loss"] for row in looks]
    seconds = [look.seconds for look in history.looks]
    assert seconds == sorted(seconds) and seconds[0] > 0 and seconds[-1] <= history.seconds


def test_measuring_slow_updates_does_not_outlast_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: 13 updates of 6 s were made before `--budget 20s` was said to be too short, after two minutes."""
    clock = SimpleNamespace(now=0.0)

    class Slow:
        def __init__(self, job: object, tell: object) -> None:
            self.updates = 0

        def learn(self) -> None:
            clock.now += job.seconds
            job.made += 1

        def validate(self) -> None:
            clock.now += 1.25

        def checkpoint(self) -> None:
            pass

    monkeypatch.setattr(pace, "Trainer", Slow)
    monkeypatch.setattr(pace.time, "monotonic", lambda: clock.now)
    job: Any = SimpleNamespace(seconds=6.0, made=0)
    assert pace.measure(job, 20.0) == Pace(update=6.0, validation=1.25) and job.made == 2
    job, clock.now = SimpleNamespace(seconds=0.5, made=0), 0.0
    assert pace.measure(job, 20.0).update == 0.5 and job.made == 3 + 7  # 5 s: a quarter of the budget
    job, clock.now = SimpleNamespace(seconds=0.125, made=0), 0.0
    assert pace.measure(job, 20.0).update == 0.125 and job.made == 3 + 10


def test_when_validations_were_made(tmp_path: Path) -> None:
    """On the clock, between two of its rows in proportion, and after the last at the mean speed: 4 s / 6 steps."""
    (tmp_path / "run.json").write_text('{"config": {"train": {"steps": 9}}}')
    clock = [{"step": 3, "seconds": 1.5}, {"step": 6, "seconds": 4.0}]
    log = [{"kind": "valid", "step": step, "loss": 2.5, "best": True} for step in (3, 5, 8)]
    for name, rows in (("clock", clock), ("log", [{"kind": "train", "step": 3, "loss": 1.0}, *log])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_history(tmp_path)
    assert found is not None and found.planned == 9
    assert [look.seconds for look in found.looks] == pytest.approx([1.5, 1.5 + 2.5 * 2 / 3, 8 * 4 / 6])
    assert all(look.metrics == {"loss": 2.5} for look in found.looks)
    assert read_history(tmp_path / "nowhere") is None


@pytest.mark.parametrize(("every", "average"), [(100, 5), (7, 0), (10_000, 1)])
def test_the_plan_is_the_most_that_fits(every: int, average: int) -> None:
    """Against trying every number of steps."""
    config = check(TrainConfig, {"validate_every": every, "average": average}, "train")
    pace = Pace(update=0.1, validation=0.7)

    def seconds(steps: int) -> float:
        validations = math.ceil(steps / every) + (1 if average > 1 else 0)
        return 3 * pace.update + steps * pace.update + validations * pace.validation

    found = plan(pace, 100.0, config)
    assert found.validate_every == every
    assert found.steps == max(steps for steps in range(1, 1001) if seconds(steps) <= 95.0)


def test_where_the_configuration_is_silent_validations_take_little(toys: Path) -> None:
    config = TrainConfig(average=0)
    often, seldom = plan(Pace(0.1, 0.01), 100.0, config), plan(Pace(0.1, 3.0), 100.0, config)
    assert math.ceil(often.steps / often.validate_every) == 12
    assert math.ceil(seldom.steps / seldom.validate_every) == 5  # 15 s of 100 s
    assert seldom.steps * 0.1 + 5 * 3.0 <= 95.0 < (seldom.steps + 5) * 0.1 + 5 * 3.0
    with pytest.raises(RegardError, match="10 s is too short: an update of the weights takes 1 s and a validation 6 s"):
        plan(Pace(1.0, 6.0), 10.0, config)


def test_a_long_warmup_is_shortened(toys: Path) -> None:
    (contender,) = read_contenders(["a.toml"], assignments=["train.warmup=500"])
    assert contender.config is not None
    config = contest.under_budget(contender.config, contest.Plan(40, 10), 60.0)
    assert (config.train.warmup, config.train.steps, config.train.max_time) == (20, 40, 60.0)


class Stops(Show):
    """A person who types Ctrl-C after the first validation."""

    def validated(self, event: Validated) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_says_how_to_go_on(
    toys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.training.show.make_show", Stops)
    monkeypatch.setattr(budget, "measure", lambda job, seconds: Pace(update=2.0, validation=1.0))
    with pytest.raises(typer.Exit) as stopped:
        verb.train_all(read_contenders(["a.toml"]), 30.0, toys / "out", "cpu")
    assert stopped.value.exit_code == 130 and f"-o {toys / 'out'}" in capsys.readouterr().err
    assert (toys / "out" / "a" / "run.json").exists() and not read_progress(toys / "out" / "a").get("finished")


# --- Who is compared


def test_words_become_contenders(toys: Path) -> None:
    words = KINDS_OF["translate"]
    kinds = read_contenders([*words, "transformer", "a.toml"])
    assert [each.name for each in kinds] == [*words, "transformer-2", "a"]
    assert [each.config.model.kind for each in kinds if each.config] == [*words, "transformer", "transformer"]
    assert named_test_set(kinds[:2], []) == ("builtin/dates/test",)
    own = read_contenders(["seq2seq"], {"data": {"train": ["pairs.tsv"]}}, ["train.seed=3"])[0].config
    assert own is not None and own.data.train == ("pairs.tsv",) and (own.train.seed, own.tokens.kind) == (3, "bpe")
    assert unique(["x", "x", "x-2", "x"]) == ["x", "x-2", "x-2-2", "x-3"]


def test_data_must_agree(toys: Path) -> None:
    (toys / "sub").mkdir()
    shutil.copy("a.toml", "sub/c.toml")
    for change, key in (
        ('train = "builtin/dates"', 'train = "test.tsv"'),
        ("builtin_size = 300", "builtin_size = 301"),
        ('valid = "valid.tsv"', 'valid = "test.tsv"'),
        ("builtin_size = 300", 'test = "test.tsv"\nbuiltin_size = 300'),
    ):
        (toys / "b.toml").write_text(TOY.format(width=12).replace(change, key))
        name = key.split(" ")[0]
        with pytest.raises(UsageError, match=rf"a\.toml and b\.toml differ in data\.{name} \("):
            check_same_data(read_contenders(["a.toml", "b.toml"]), test_matters=True)
    check_same_data(read_contenders(["a.toml", "b.toml"]), test_matters=False)  # --on says what the test set is
    same = TOY.format(width=12).replace('"builtin/dates"', '"test.tsv"')
    (toys / "b.toml").write_text(same)
    (toys / "sub" / "c.toml").write_text(same.replace('"test.tsv"', '"../test.tsv"'))  # another name of the same file
    check_same_data(read_contenders(["b.toml", "sub/c.toml"]), test_matters=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compare a.toml", "two models or more"),
        ("compare a.toml b.toml", "a.toml is to be trained: say for how long, as --budget 15m"),
        ("compare a.toml b.toml --budget soon", "'soon' is not a duration"),
        ("compare a.toml b.toml --budget 1m --join 1", "cannot join 1 to one"),
        ("compare a.toml b.toml --budget 1m --on test.tsv --join 61", "cannot join 61 pairs of a test set that has 60"),
        (f"{LEARNED}=60 --join 3", "a reads 60 tokens, and 3 of them joined have up to "),
        (f"{LEARNED}=5 --join 3", "a reads 5 tokens, and the test sentences have up to "),
        ("compare a.toml transfromer --budget 1m", "did you mean transformer?"),
        ("compare a.toml transformer --budget 1m", "differ in data.valid ("),
        ("compare transformer seq2seq --data test.tsv --budget 1m", "--on test.tsv"),
        ("compare transformer seq2seq --budget 1m --set train.lrr=1", "no key train.lrr; did you mean lr?"),
        ("compare a.toml b.toml --budget 1m --beam 0", "beam: must be 1 or more, not 0"),
        ("compare a.toml b.toml --budget 1m --device gpu", "no device gpu"),
        ("compare a.toml b.toml --budget 1m --on a.tsv b.tsv --on c.tsv", "not 3"),
        ("compare tfidf additive --budget 1m --beam 2", "--beam has no meaning for models to classify"),
    ],
)
def test_wrong_use_is_told_before_anything_is_trained(
    words: str, message: str, toys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(words.split()) == 2
    assert message in capsys.readouterr().err and not (toys / "runs").exists()


def test_a_test_set_is_read_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown labels, and files that are not there, were found out after all training."""
    monkeypatch.chdir(tmp_path)
    rows = [f"a text of number {n}\t{'good' if n % 2 else 'bad'}\n" for n in range(80)]
    Path("texts.tsv").write_text("".join(rows))
    Path("test.tsv").write_text("a fine text\tgood\nanother one\tugly\n")

    def nobody(*words: object, **more: object) -> None:
        raise AssertionError("it was trained")

    monkeypatch.setattr(contest, "train_all", nobody)
    words = ["compare", "tfidf", "additive", "--data", "texts.tsv", "--budget", "1m", "--on"]
    assert main.run([*words, "test.tsv"]) == 1
    err = capsys.readouterr().err
    assert "test.tsv has labels that tfidf does not learn: ugly; it learns bad, good" in err
    for task, file in (("tfidf additive", "texts.tsv"), ("gpt2 llama", "texts.tsv"), ("convnet vit", ".")):
        assert main.run(f"compare {task} --data {file} --budget 1m --on nope.tsv".split()) == 1
        assert "there is no nope.tsv" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_by_default_the_test_set_is_that_of_the_data(toys: Path) -> None:
    """The built-in dates that the help promises, for kinds of models, and for runs that were trained on them."""
    (toys / "run.json").write_text(json.dumps({"config": {"data": {"train": ["builtin/dates/train"], "test": []}}}))
    trained = [Contender("a", str(toys)), Contender("b", str(toys))]
    dates = ("builtin/dates/test",)
    assert named_test_set(read_contenders(["bahdanau", "transformer"]), []) == named_test_set(trained, []) == dates
    (toys / "run.json").write_text(json.dumps({"config": {"data": {"train": ["own.tsv"], "test": ["held.tsv"]}}}))
    assert named_test_set(trained, []) == ("held.tsv",) and named_test_set(trained, ["x.tsv"]) == ("x.tsv",)
    (toys / "run.json").write_text(json.dumps({"config": {"data": {"train": ["own.tsv"]}}}))
    with pytest.raises(UsageError, match=r"Name it: on='test\.tsv'"):
        named_test_set(trained, [])


# --- The report

NUMBERS = {
    "name", "run", "kind", "tokens", "parameters", "size", "training", "bleu", "chrf", "exact", "decode", "by_length",
    "sentences_per_second", "against_first", "alignment", "attention", "attention_labels",
}  # fmt: skip


def test_what_is_printed(compared: Compared) -> None:
    lines = compared.out.splitlines()
    assert lines[0].split()[0] == "model" and [line.split()[0] for line in lines[1:3]] == ["a", "b"]
    assert max(map(len, lines[:3])) <= 100
    written = {line.removeprefix("wrote ") for line in lines if line.startswith("wrote ")}
    there = {str(file.relative_to(compared.home)) for file in (compared.home / "out").iterdir() if file.is_file()}
    figures = {f"out/{name}.{kind}" for name in ("attention", "bleu-by-length", "learning") for kind in ("png", "svg")}
    assert written == there == {"out/report.html", "out/report.json", *figures}


def test_the_numbers_are_those_of_the_files(compared: Compared) -> None:
    report = compared.report()
    dates = as_pairs(date_pairs("test", TESTED))
    assert (report["on"], report["sentences"], report["budget_seconds"]) == (["builtin/dates/test"], TESTED, BUDGET)
    for entry in report["runs"]:
        assert entry.keys() == NUMBERS
        progress, model = compared.progress(entry["name"]), load(compared.home / "out" / entry["name"])
        training = entry["training"]
        assert (training["steps"], training["tokens"], training["seconds"], training["validation"]) == (
            progress["step"], progress["tokens"], progress["seconds"], progress["best"]
        )  # fmt: skip
        assert training["tokens_per_second"] == pytest.approx(progress["tokens"] / progress["seconds"])
        assert entry["parameters"] == sum(parameter.numel() for parameter in model.model.parameters())
        outputs = [each.text for each in model.translate([source for source, _ in dates], beam=2)]
        direct = sacrebleu.corpus_bleu(outputs, [[target for _, target in dates]])
        assert entry["bleu"]["value"] == pytest.approx(direct.score) and entry["decode"]["beam"] == 2
        right = sum(output == target for output, (_, target) in zip(outputs, dates, strict=True))
        assert entry["exact"] == pytest.approx(100 * right / TESTED)
        assert 0 <= entry["alignment"]["best"] <= 1 and entry["alignment"]["layer"] == 0
        assert len(entry["by_length"]) == len(report["buckets"])
    joined = [bucket for bucket in report["buckets"] if bucket["joined"] > 1]
    assert [(bucket["joined"], bucket["sentences"]) for bucket in joined] == [(2, 48), (3, 32)]
    assert sum(bucket["sentences"] for bucket in report["buckets"] if bucket["joined"] == 1) == TESTED


def test_p_values_and_example(compared: Compared) -> None:
    report = compared.report()
    (none, one), (two, also_none) = report["p_values"]
    assert none is None and also_none is None and one == two == report["runs"][1]["against_first"]["p_value"]
    assert report["runs"][0]["against_first"] is None
    source, target = report["example"]["source"], report["example"]["target"]
    assert (source, target) in as_pairs(date_pairs("test", TESTED)) and report["example"]["reference"]
    for entry in report["runs"]:
        assert entry["attention_labels"]["target"] == [*target, "</s>"]
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in entry["attention"])


def test_the_page_tells_it_all(compared: Compared) -> None:
    text = (compared.home / "out" / "report.html").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    shown = " ".join("".join(root.find("body").itertext()).split())  # type: ignore[union-attr]
    report = compared.report()
    assert shown.startswith("a · b") and "of training each, " in shown and "score" in shown
    for entry in report["runs"]:
        assert f"{entry['parameters']:,}" in shown and f"{entry['training']['steps']:,}" in shown
        assert f"{entry['alignment']['mean']:.1%}" in shown and f"{entry['chrf']['value']:.1f}" in shown
    assert report["runs"][0]["bleu"]["signature"] in shown and "regard 0" in shown and "threads" in shown
    assert len(list(root.iter("img"))) == 3 and all(image.get("alt") for image in root.iter("img"))


def entry(name: str, bleu: float, exact: float | None = None) -> Any:
    return SimpleNamespace(name=name, exact=exact, bleu=SimpleNamespace(value=bleu, low=bleu - 1, high=bleu + 2))


def test_the_summary_says_whether_it_may_be_luck() -> None:
    p_values = ((None, 0.2, 0.3), (0.2, None, 0.04), (0.3, 0.04, None))
    report = SimpleNamespace(entries=(entry("a", 9.0), entry("b", 33.0, 12.5), entry("c", 31.5)), budget=90.0)
    report.p_values = p_values
    assert summary(report) == (  # type: ignore[arg-type]
        "Within 2 min of training each, b scores highest: BLEU 33.0 (95% interval 32.0 to 35.0, 12.5% exactly right), 1.5 "
        "above c, more than luck (p = 0.040)."
    )
    report.entries, report.budget = (entry("a", 9.0), entry("b", 8.0), entry("c", 1.0)), None
    assert summary(report) == (  # type: ignore[arg-type]
        "a scores highest: BLEU 9.0 (95% interval 8.0 to 11.0), 1.0 above b, which may be luck (p = 0.200)."
    )
    report.entries = (entry("a", 0.3), entry("b", 0.0, 0.0))  # one of them used to "score highest"
    told = "Nothing was learned yet that could tell the models apart: BLEU under 1 (a 0.3, b 0.0)."
    assert summary(report) == told  # type: ignore[arg-type]
    report.entries = (entry("a", 0.3, 40.0), entry("b", 0.0, 0.0))
    assert "a scores highest" in summary(report)  # type: ignore[arg-type]
    report.entries = (entry("a", 9.0), entry("b", 9.0))
    assert summary(report) == "a and b score the same: BLEU 9.0."  # type: ignore[arg-type]


def test_trained_runs_are_compared_as_before(
    compared: Compared, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With -o they get the report too; what is printed as JSON is what is written."""
    monkeypatch.chdir(compared.home)
    words = ["compare", "out/a", "out/b", "out/a/best", "--on", "test.tsv", "--beam=1", "--json", "-o", "again"]
    source = as_pairs(date_pairs("test", 60))[7][0]
    assert main.run([*words, "--sentence", source]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found == json.loads(Path("again/report.json").read_text()) and "wrote again/report.html" in err
    assert [entry["name"] for entry in found["runs"]] == ["out/a", "out/b", "out/a/best"]
    assert found["runs"][0]["bleu"] == found["runs"][2]["bleu"] and found["p_values"][0][2] == 1.0
    assert found["runs"][2]["training"] is None  # a bundle does not tell how it was trained
    assert (found["length_unit"], found["runs"][0]["exact"], found["example"]["source"]) == ("words", None, source)
    page = Path("again/report.html").read_text(encoding="utf-8")
    assert "Is it luck?" in page and "exactly right" not in page
    assert main.run([*words[:2], "out/b", *words[4:-2], "--sentence", "a text without a reference"]) == 0
    found = json.loads(capsys.readouterr().out)
    best = max(found["runs"], key=lambda entry: entry["bleu"]["value"])
    assert not found["example"]["reference"] and not Path("report.html").exists()
    assert found["example"]["target"] == load(best["run"]).translate("a text without a reference", beam=1).text
    assert main.run(["compare", "out/a", "out/b", "--on", "test.tsv", "--budget", "1m"]) == 2
    assert "leave out --budget" in capsys.readouterr().err
