"""`regard train` and `regard demo`, and what only a real process shows: signals, pipes, and what --help imports."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.cli import main
from regard.data.builtin.dates import DatePair, as_pairs, date_pairs
from regard.files import alone_in
from regard.look.sentence import SentenceAttention
from regard.tasks import demo
from regard.tasks.translate.alignment import alignment_error, sure_links

SETTINGS = {
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.feed_forward": 32,
    "tokens.kind": "character",
    "train.warmup": 10,
    "train.batch_tokens": 512,
    "train.average": 0,
    "validate.sentences": 5,
}
SMALL = ["--preset=demo", *(f"--set={key}={value}" for key, value in SETTINGS.items())]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with parallel files."""
    monkeypatch.chdir(tmp_path)
    sources, targets = zip(*as_pairs(date_pairs("train", 200)), strict=True)
    (tmp_path / "a.src").write_text("".join(f"{line}\n" for line in sources))
    (tmp_path / "a.iso").write_text("".join(f"{line}\n" for line in targets))
    return tmp_path


def start(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "regard.cli.main", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_make_demo_installs_nothing_that_only_tests_need(tmp_path: Path) -> None:
    """The bug: the first minute went into transformers, mypy and pytest."""
    root = Path(__file__).parent.parent
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((root / name).read_bytes())

    def installed(target: str) -> list[str]:
        done = subprocess.run(["make", "-n", target], cwd=tmp_path, capture_output=True, text=True, check=True)
        return [line.split()[-1] for line in done.stdout.splitlines() if "pip install" in line]

    assert installed("demo") == ["."]
    assert installed("test") == [".", "'.[dev]'"]


# --- train


def test_the_run_is_named_first_and_left_to_who_is_in_it(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bugs: the device was chosen, which imports torch, before a word was said; and a second process that was refused
    removed the folder of the first.
    """
    said: list[str] = []

    def choose(name: str) -> str:
        said.append(capsys.readouterr().err)
        return "cpu"

    monkeypatch.setattr("regard.cli.processes.choose_device", choose)
    (here / "run").mkdir()
    words = ["train", "translate", "--data", "a.src", "a.iso", "-o", "run", *SMALL]
    with alone_in(here / "run"):
        assert main.run(words) == 1
        assert "another process is training in run" in capsys.readouterr().err and (here / "run").exists()
    assert said == ["run: run\n"]
    assert main.run(["train", "--resume", "nowhere", "--device", "gpu"]) == 2
    assert "no device gpu" in capsys.readouterr().err


def test_train_then_go_on(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        "train",
        "translate",
        "--data",
        "a.src",
        "a.iso",
        "--languages",
        "mul,iso",
        "--steps=6",
        "--seed=7",
        *SMALL,
    ]
    assert main.run([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["run"], found["reason"], found["step"]) == ("runs/translate/1", "steps", 6)
    assert found["metrics"]["loss"] > 0 and Path(found["curves"]).exists()
    assert "held out" in err and "runs/translate/1" in err
    config = json.loads((here / "runs/translate/1/run.json").read_text())["config"]
    assert config["data"]["train"] == ["a.src", "a.iso"] and config["data"]["languages"] == ["mul", "iso"]
    assert (config["train"]["seed"], config["model"]["width"]) == (7, 16)
    made = json.loads((here / "runs/translate/1/best/config.json").read_text())
    assert 0 < made["decode"]["max_extra"] < 20  # limits of length are those of the data

    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")  # the data is still found
    assert main.run(["train", "--resume", "../runs/translate/1", "--steps=9", "--max-time=1h"]) == 0
    out, _ = capsys.readouterr()
    assert main.run(["train", "--resume", "../runs/translate/1", "--json"]) == 0
    assert "--steps N or --max-time TIME lengthen it" in capsys.readouterr().err
    assert "9 steps" in out and "regard translate -m ../runs/translate/1" in out and "curves.png" in out


def test_train_from_a_file_of_settings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "sub").mkdir()
    for name in ("a.src", "a.iso"):
        (here / name).rename(here / "sub" / name)
    (here / "sub" / "run.toml").write_text('preset = "demo"\n[data]\ntrain = ["a.src", "a.iso"]\n')
    words = ["train", "sub/run.toml", *SMALL[1:], "--max-time=1s", "--steps=2", "--out=mine", "--json"]
    assert main.run(words) == 0
    assert json.loads(capsys.readouterr().out)["bundle"] == "mine/best"


# --- Real processes


def wait_for(path: Path, process: subprocess.Popen[bytes], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, f"it ended with {process.returncode}"
        assert time.monotonic() < end, f"no {path.name} after {seconds:.0f} s"
        time.sleep(0.05)


def test_ctrl_c_leaves_a_run_that_goes_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "translate", "--data=a.src", "--data=a.iso", "--steps=100000", *SMALL]
    with start(*words, cwd=here) as process:
        try:
            wait_for(here / "runs" / "translate" / "1" / "checkpoints" / "latest.json", process)
            main.run(["runs", "--json"])
            assert [run["state"] for run in json.loads(capsys.readouterr().out)] == ["running"]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130 and out == b""
    assert err.decode().splitlines()[-1] == "interrupted; go on with: regard train --resume runs/translate/1"
    main.run(["runs", "--json"])
    (stopped,) = json.loads(capsys.readouterr().out)
    assert stopped["state"] == "can be resumed"
    steps = stopped["steps"] + 3
    assert main.run(["train", "--resume", "runs/translate/1", f"--steps={steps}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == steps


def test_a_reader_that_leaves_early(here: Path) -> None:
    assert main.run(["train", "translate", "--data=a.src", "--data=a.iso", "--steps=2", "--out=run", *SMALL]) == 0
    (here / "many.txt").write_text("3 mars 1998\n" * 600)
    options = "-m run --beam=1 --max-length=90 --min-length=90"  # more than a pipe holds
    pipe = f"{sys.executable} -m regard translate {options} < many.txt | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, cwd=here)
    assert done.stdout.count(b"\n") == 1 and done.stderr == b"" and done.returncode == 1


def test_help_imports_nothing_heavy(here: Path) -> None:
    """`regard --help` and `regard runs` are instant."""
    program = (
        "import sys; from regard.cli.main import VERBS, run\n"
        "for words in [['--help'], ['--version'], ['runs'], *([verb, '--help'] for verb in VERBS)]:\n"
        "    assert run(words) == 0, words\n"
        "heavy = {'torch', 'matplotlib', 'tokenizers', 'sacrebleu', 'babel'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=here)
    assert done.returncode == 0, done.stderr
    assert "regard train --resume" in done.stdout and "builtin/dates/test" in done.stdout


def test_the_list_of_commands_imports_none_of_them(here: Path) -> None:
    program = (
        "import sys; from regard.cli.main import run\n"
        "assert run(['--help']) == 0\n"
        "heavy = {'rich', 'pydantic', 'numpy', 'regard.cli.train', 'regard.cli.output'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=here)
    assert done.returncode == 0, done.stderr


def test_help_is_quick(here: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert subprocess.run([sys.executable, "-m", "regard", "--help"], capture_output=True, cwd=here).returncode == 0
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 0.5  # of the processor; 0.12 is usual


def test_text_is_utf8_whatever_the_locale(here: Path) -> None:
    _, err = start("prêt", cwd=here, env={**os.environ, "PYTHONIOENCODING": "ascii"}).communicate()
    assert err.decode("utf-8").startswith("regard: no command prêt; ")


# --- demo


def test_the_demo_and_what_it_tells_to_type_next(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 32}
    train = {**demo.DEMO["train"], "steps": 4, "warmup": 2, "validate_every": 2, "batch_tokens": 512}
    changes = {"model": small, "train": train, "data": {"builtin_size": 300}, "validate": {"sentences": 5}}
    monkeypatch.setattr(demo, "DEMO", {**demo.DEMO, **changes})
    monkeypatch.setattr(demo, "TEST_PAIRS", 11)
    monkeypatch.setattr(demo, "ALIGNED_PAIRS", 7)
    assert main.run(["demo", "--seed=3", "--out=pictures"]) == 0
    out, err = capsys.readouterr()
    assert (here / "pictures" / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert "wrote pictures/attention.png" in out and "of 11 dates" in out and "on 7 of these dates" in out
    assert all(source in out for source, _ in demo.EXAMPLES)
    assert "run: runs/translate/1" in err and "learns to read dates" in err
    assert main.run(["translate", "3 mai 2004", "--attention"]) == 0
    assert main.run(["walk", "3 mai 2004", "-o", "walk.html"]) == 0
    assert main.run(["formation", "runs/translate/1", "-o", "formation.gif"]) == 0
    assert main.run(["heads", "runs/translate/1", "--texts", "3"]) == 0
    assert main.run(["eval", "runs/translate/1", "--on", "builtin/dates/test", "--beam=1"]) == 0
    printed = [line.strip() for line in out.splitlines() if line.startswith("regard ")]
    assert [line.split("  ")[0] for line in printed] == [
        'regard translate "3 mai 2004" --attention',
        'regard walk "3 mai 2004" -o walk.html',
        "regard formation runs/translate/1 -o formation.gif",
        "regard heads runs/translate/1",
        "regard eval runs/translate/1 --on builtin/dates/test",
        "regard train translate --data pairs.tsv",
        "regard runs",
    ]


def test_the_configuration_of_the_demo() -> None:
    config = demo.demo_config(5, "20s")
    assert (config.train.seed, config.train.max_time, config.tokens.kind) == (5, 20.0, "character")


class Perfect:
    """A model that looks exactly where each digit comes from, and nowhere in particular for the hyphens."""

    def __init__(self, pairs: list[DatePair], shift: int = 0) -> None:
        self.alignments = {pair.source: pair.alignment for pair in pairs}
        self.tokenizers, self.target, self.shift = self, self, shift

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def attention(self, source: str, ids: list[int]) -> SentenceAttention:
        weights = np.full((len(ids) + 1, len(source) + 1), 1e-3)
        for place, target in self.alignments[source]:
            weights[target, (place + self.shift) % len(source)] = 1.0
        labels = (*source, "</s>"), (*map(chr, ids), "</s>")
        return SentenceAttention(*labels, {"only": weights[None] / weights.sum(axis=1, keepdims=True)}, 0.0)


def test_alignment_error_of_perfect_and_of_wrong_attention() -> None:
    pairs = date_pairs("test", 50)
    assert alignment_error(Perfect(pairs), pairs) == 0.0  # type: ignore[arg-type]
    chinese = [pair for pair in pairs if pair.language == "zh" and "-" not in pair.source and "." not in pair.source]
    assert chinese and alignment_error(Perfect(chinese, shift=1), chinese) > 0.4  # type: ignore[arg-type]


def test_links_that_are_sure() -> None:
    """Of "3 mai 2004" the year and the day are sure; "mai" gives both digits of the month, letter by letter."""
    pair = DatePair("3 mai 2004", "2004-05-03", "fr", ((0, 8), (0, 9), (2, 5), (2, 6), (3, 5), (3, 6), (6, 0), (7, 1)))
    assert sure_links(pair) == {(0, 8), (0, 9), (6, 0), (7, 1)}


def test_examples_say_which_days_were_seen() -> None:
    class Echo:
        def translate(self, texts: list[str]) -> list[Any]:
            return [type("Found", (), {"text": text}) for text in texts]

    examples = demo.read_examples(Echo(), demo.EXAMPLES)  # type: ignore[arg-type]
    assert {each.seen for each in examples} == {True, False}
    assert not any(
        each.reference in {pair.target for pair in date_pairs("train", 2000)} for each in examples if not each.seen
    )
