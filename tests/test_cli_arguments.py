"""What people type, and what the doctor says, without a model."""

from __future__ import annotations

import builtins
import errno
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import regard
from regard import doctor
from regard.cli import main
from regard.cli.arguments import Typed, plugins_first, spread_files, take_debug
from regard.cli.model import choose_device
from regard.config import read_toml
from regard.errors import UsageError
from regard.tasks.configure import run_config
from regard.tasks.generate.config import GenerateConfig
from regard.tasks.run import RunResult
from regard.tasks.settings import preset_sizes
from regard.tasks.table import TASKS

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("train translate --data a.en a.de --steps 3", "train translate --data a.en --data a.de --steps 3"),
        ("train --data a.tsv translate", "train --data a.tsv translate"),
        ("train --data a.tsv b.toml", "train --data a.tsv b.toml"),
        ("train translate --data a.tsv --valid v.en v.de", "train translate --data a.tsv --valid v.en --valid v.de"),
        ("train translate --data a.en --data a.de", "train translate --data a.en --data a.de"),
        ("eval run --on a.en a.de", "eval run --on a.en --on a.de"),
        ("eval --on a.tsv folder", "eval --on a.tsv folder"),
        ("compare --on a.en a.de folder folder", "compare --on a.en --on a.de folder folder"),
        ("compare --data a.tsv seq2seq luong", "compare --data a.tsv seq2seq luong"),
        ("compare --join 2 3 4 a.toml -o x", "compare --join 2 --join 3 --join 4 a.toml -o x"),
        ("translate -- --on a b", "translate -- --on a b"),
    ],
)
def test_two_files_after_one_option(typed: str, read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert spread_files(typed.split()) == read.split()


def test_debug_anywhere_but_in_a_text() -> None:
    assert take_debug(["train", "x", "--debug"]) == (True, ["train", "x"])
    assert take_debug(["translate", "--", "--debug"]) == (False, ["translate", "--", "--debug"])


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("train mine --plugin a.py --steps 3", "--plugin a.py train mine --steps 3"),
        ("--plugin a.py train mine --plugin=b.py", "--plugin a.py --plugin=b.py train mine"),
        ("translate a -- --plugin b", "translate a -- --plugin b"),
        ("train mine", "train mine"),
    ],
)
def test_plugins_come_before_the_verb(typed: str, read: str) -> None:
    assert plugins_first(typed.split()) == read.split()


@pytest.mark.parametrize("typed", ["--plugin a.py --plugin b.py runs", "runs --plugin a.py --plugin=b.py", "runs"])
def test_a_plugin_is_read_before_the_file_of_its_verb(typed: str, tmp_path: Path) -> None:
    """In a process of its own, which says what had been imported when each was read; without options, by REGARD_PLUGINS."""
    line = "import sys; print('read', __file__[-4:], 'regard.cli.runs' in sys.modules, 'torch' in sys.modules)"
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(line)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if typed == "runs":
        env["REGARD_PLUGINS"] = os.pathsep.join(["a.py", "b.py"])
    done = subprocess.run(
        [sys.executable, "-m", "regard", *typed.split()], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["read a.py False False", "read b.py False False"], done.stderr


def test_a_plugin_that_is_missing_or_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("raise ValueError('no such kernel')")
    for typed, told in (
        ("runs --plugin nope.py", "there is no plugin nope.py"),
        ("--plugin broken.py runs", "the plugin broken.py fails: ValueError: no such kernel"),
        ("runs --plugin", "--plugin needs a Python file"),
    ):
        assert main.run(typed.split()) == 2
        err = capsys.readouterr().err
        assert told in err and err.count("\n") == 1


def test_help_groups_every_verb_once(capsys: Captured) -> None:
    assert main.run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:-1] for line in lines if line[:-1] in main.GROUPS] == list(main.GROUPS)
    shown = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in main.VERBS]
    assert shown == list(main.VERBS)


def test_auto_takes_the_best_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    with pytest.raises(UsageError, match="torch finds no cuda"):
        choose_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (choose_device("auto"), choose_device("cuda:1"), choose_device("cpu")) == ("cuda", "cuda:1", "cpu")


@pytest.mark.parametrize(
    ("cores", "threads", "load", "advice"),
    [
        (2, 2, 0.3, None),
        (2, 2, 1.1, "OMP_NUM_THREADS=1"),
        (16, 16, 5.0, "OMP_NUM_THREADS=11"),
        (16, 4, 5.0, None),
        (2, 1, 1.0, None),
        (2, 1, 4.0, "everything is slower"),
    ],
)
def test_a_busy_machine(
    cores: int, threads: int, load: float, advice: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "cores", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    found = doctor._busy(load)
    assert (advice in found[0]) if advice else not found


def test_versions_are_held_against_the_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "pinned_versions", lambda: {"torch": "2.13.0", "rich": "15.0.0", "mypy": "1.0"})
    assert doctor._mismatched({"torch": "2.13.0+cpu", "rich": "15.0.0", "numpy": "2.0"}) == []
    missing, other = doctor._mismatched({"torch": "2.6.0", "rich": "missing"})
    assert "rich" in missing and "torch 2.6.0 (not 2.13.0)" in other and "rich" not in other


def test_what_is_installed_is_found() -> None:
    assert doctor.installed_versions()["torch"] == torch.__version__
    assert (
        doctor.installed_versions().keys() >= {"numpy", "typer", "rich"} and "pytest" not in doctor.installed_versions()
    )
    total, free = doctor.memory()
    assert total >= free >= 0


def test_wrong_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    assert doctor._wrong_data() == []
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "nowhere"))
    assert "nowhere" in doctor._wrong_data()[0]


# --- The verbs, and what is told before torch is imported


def test_every_verb_is_told_in_the_words_of_its_file() -> None:
    """The list of commands does not import them; what it says of each is what the verb says of itself."""
    for name, verb in main.VERBS.items():
        made = getattr(import_module(f"regard.cli.{verb.module}"), verb.function)
        own = made.info.help if isinstance(made, typer.Typer) else inspect.getdoc(made).split("\n")[0]
        assert verb.does == own, name


def test_flags_are_shown_as_flags(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for verb in main.VERBS:
        assert main.run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "<bool>" not in shown and "--json  " in shown and "--removal / --no-removal" in shown
    assert "╭" not in shown and max(map(len, shown.splitlines())) <= 110
    made = [main.command(verb) for verb in main.VERBS]
    each = [command for group in made for command in getattr(group, "commands", {"": group}).values()]
    json_options = [option for command in each for option in command.params if "--json" in option.opts]
    assert len(json_options) > 20 and all(option.is_flag for option in json_options)  # bench took the name of a file


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("regard tr", ["train", "translate", "transcribe"]),
        ("regard train --pre", ["--preset"]),
        ("regard bench a", ["attention"]),
    ],
)
def test_a_shell_completes(typed: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capfd: Captured) -> None:
    """What bash asks for when a person types Tab."""
    monkeypatch.setenv("_REGARD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    assert main.run([]) == 0
    assert capfd.readouterr().out.split() == offered


def test_completion_is_installed_and_works_in_bash(tmp_path: Path) -> None:
    wrapper = tmp_path / "bin" / "regard"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m regard "$@"\n')
    wrapper.chmod(0o755)
    home = {**os.environ, "HOME": str(tmp_path), "PATH": f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}"}
    typed = (
        "regard --install-completion; exit $?"  # a shell that waits: whoever types it is the one it is installed for
    )
    done = subprocess.run(["bash", "-c", typed], env=home, capture_output=True, text=True)
    assert done.returncode == 0 and "bash completion installed" in done.stdout, done.stderr
    typed = "COMP_WORDS=(regard extra); COMP_CWORD=1; _regard_completion regard; echo ${COMPREPLY[@]}"
    asked = f"source ~/.bash_completions/regard.sh; {typed}; complete -p regard"
    done = subprocess.run(["bash", "-c", asked], env=home, capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "extrapolate" and "-F _regard_completion regard" in done.stdout, done.stderr


@pytest.fixture
def nothing_imported() -> Iterator[None]:
    """The package as if nobody had used it: what is imported already would hide an import of torch.

    Afterwards everything is as it was, also what the package knows of its parts: else later tests change one module and
    ask another of the same name.
    """
    parts = {name: module for name, module in sys.modules.items() if name.startswith("regard.")}
    known = dict(vars(regard))
    for name in parts:
        del sys.modules[name]
    yield
    for name in [name for name in sys.modules if name.startswith("regard.")]:
        del sys.modules[name]
    for name in set(vars(regard)) - set(known):
        delattr(regard, name)
    sys.modules.update(parts)
    vars(regard).update(known)


@pytest.mark.usefixtures("nothing_imported")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("translate a -m RUN --beam 0", 2, "decode: beam: must be 1 or more, not 0"),
        ("translate a -m RUN --n-best 9 --beam 3", 2, "n_best 9 is more than beam 3"),
        ("look a -m RUN --layer 99", 2, "no layer 99; there are 2, numbered from 0 to 1, with 3 heads each"),
        ("look a -m RUN --layer 0 --head 3", 2, "no head 3; layer 0 has 3, numbered from 0 to 2"),
        ("walk a -m RUN --layer 2", 2, "no layer 2; there are 2"),
        ("look a -m RUN -o map.gif", 2, "cannot tell how to write map.gif; use .png"),
        ("look a -m RUN -o .", 2, "is a folder; name a file in it"),
        ("eval RUN --on nope.tsv", 1, "there is no nope.tsv"),
        ("eval RUN --on pairs.tsv --beam 0", 2, "beam: must be 1 or more"),
        ("eval RUN --on pairs.tsv --context 9", 2, "--context has no meaning for a model to translate"),
        ("score RUN nope.tsv", 1, "there is no nope.tsv"),
        ("heads RUN --on nope.tsv", 1, "there is no nope.tsv"),
        ("translate a -m RUN --device gpu", 2, "no device gpu"),
        ("generate a -m RUN", 2, "is a model to translate, not to generate; try: regard translate"),
        ("train translate --data nope.tsv", 1, "there is no nope.tsv"),
        ("train translate --data pairs.tsv --device gpu", 2, "no device gpu"),
        ("train translate --data pairs.tsv -o RUN", 2, "is not empty"),
        ("train translate --data pairs.tsv -o pairs.tsv", 2, "pairs.tsv is a file; a run needs a folder"),
        ("compare RUN RUN --on nope.tsv", 1, "there is no nope.tsv"),
        ("extrapolate RUN --on nope.txt", 1, "there is no nope.txt"),
        ("summary pairs.tsv", 2, "pairs.tsv is a file of data, not a model"),
        ("translate a -m some", 2, "some is a folder of runs; the newest is some/run"),
        (
            "translate a -m some/runn",
            2,
            "there is no some/runn; regard runs lists the runs here; the newest is some/run",
        ),
        ("translate a -m some/run/best/config.json", 2, "name the folder that it lies in: some/run/best"),
        ("translate a -m mine.toml", 2, "train it first: regard train mine.toml"),
        ("translate a -m empty", 2, "empty is neither a run nor a bundle: it has no config.json"),
        ("train --resume some", 2, "some is a folder of runs; the newest is some/run"),
        ("runs nowhere", 2, "there is no folder nowhere"),
        ("config translate --preset huge", 2, "no preset huge"),
        ("config train.lr", 2, "no task train.lr; keys are those of a task, as in: regard config translate train.lr"),
        ("config additive", 2, "no task additive; it is a kind of model: classify --model additive"),
        ("train vit", 2, "no task vit; it is a kind of model: classify --model vit"),
        ("train translate --model additive", 2, "an additive does not translate"),
    ],
)
def test_mistakes_are_told_without_torch(
    words: str, code: int, message: str, some: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of these once waited for torch and the model; now whatever imports torch is an error here."""
    real = builtins.__import__

    def without_torch(name: str, *more: Any, **rest: Any) -> Any:
        if name == "torch" or name.startswith("torch."):
            raise AssertionError(f"torch was imported before it was told: {words}")
        return real(name, *more, **rest)

    monkeypatch.chdir(some)
    monkeypatch.setattr(builtins, "__import__", without_torch)
    typed = importlib.import_module("regard.cli.main").run
    assert typed(words.replace("RUN", "some/run").split()) == code
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("regard: ") == 1


@pytest.fixture(scope="session")
def some(tiny_run: RunResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, data, a configuration and an empty folder; no test writes into it."""
    home = tmp_path_factory.mktemp("some")
    shutil.copytree(tiny_run.folder, home / "some" / "run")
    (home / "pairs.tsv").write_text("a\tb\n")
    (home / "mine.toml").write_text('task = "translate"\n')
    (home / "empty").mkdir()
    return home


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "a.tsv"), "no permission to open a.tsv; change it"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "a"), "a is a folder; name a file in it"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a"), "there is no a"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"), "a/b goes through a file as if it were a folder"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full; make room"),
        (OSError(errno.ELOOP, "Too many levels", "a"), "a: Too many levels"),
    ],
)
def test_what_the_system_refuses_is_told_in_our_words(
    error: OSError, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*words: Any, **more: Any) -> None:
        raise error

    monkeypatch.setattr(main, "app", refuse)
    assert main.run(["doctor"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"regard: {told}") and "Error" not in err and err.count("\n") == 1


# --- Configuration, looked up


@pytest.mark.parametrize("task", TASKS)
def test_a_file_to_edit_is_what_the_task_is_by_default(task: str, tmp_path: Path, capsys: Any) -> None:
    """As written, and with every key said aloud: both are the configuration that the task has without a file."""
    assert main.run(["config", task, "--toml", "-o", str(tmp_path / "a.toml")]) == 0
    text = (tmp_path / "a.toml").read_text()
    (tmp_path / "b.toml").write_text(re.sub(r"^#(?! )", "", text, flags=re.MULTILINE))
    assert flat(read_toml(tmp_path / "b.toml")) > flat(read_toml(tmp_path / "a.toml")) >= {"task", "data.train"}
    for name in ("a.toml", "b.toml"):
        assert run_config(str(tmp_path / name)) == run_config(task)
    assert main.run(["config", task, "--toml", "-o", str(tmp_path / "a.toml")]) == 2  # a file is not lost
    assert "is there already" in capsys.readouterr().err


def test_keys_are_listed_with_default_range_and_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["config", "generate", "--json"]) == 0
    found = {each["key"]: each for each in json.loads(capsys.readouterr().out)}
    assert (
        found["train.lr"]["default"] == GenerateConfig.defaults["train"]["lr"]
        and found["train.lr"]["range"] == "number over 0"
    )
    assert found["train.schedule"]["range"] == "noam, inverse_sqrt, cosine, linear, constant, wsd"
    assert found["tokens.joint"]["range"] == "true or false" and found["model.kind"]["range"].startswith("llama, gpt1")
    leaves = flat(run_config("generate").dump())
    assert {key for key in leaves if key.split(".")[-1] != "kind"} <= found.keys() <= leaves
    assert all(each["meaning"] for key, each in found.items() if not key.endswith(".kind"))
    assert main.run(["config", "translate", "warmup", "--model", "luong"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[1].split()[:2] == ["train.warmup", "1000"]
    assert main.run(["config"]) == 0 and "convmixer" in capsys.readouterr().out


def flat(values: dict[str, Any], before: str = "") -> set[str]:
    tables = {key for key, value in values.items() if isinstance(value, dict)}
    below = [flat(values[key], f"{before}{key}.") for key in tables]
    return {before + key for key in values.keys() - tables}.union(*below)


def test_presets_say_how_large_they_are() -> None:
    """GPT-2's own count (Radford et al. 2019: 124,439,808 with 50,257 tokens), from ours by the rows of the table."""
    sizes = {(each.preset, each.kind): each for each in preset_sizes("generate")}
    base = sizes["base", "gpt2"]
    assert (base.width, base.layers, base.vocabulary) == ("768", "12", 4096)
    assert base.parameters == 124_439_808 - (50_257 - 4096) * 768
    assert sizes["tiny", "llama"].parameters < sizes["small", "llama"].parameters < sizes["base", "llama"].parameters


@pytest.mark.parametrize(
    ("task", "sets", "warmup", "said"),
    [
        (
            "translate",
            ["train.steps=20", "train.schedule=linear"],
            2,
            "train.warmup is 2, not 1000, as there are only 20",
        ),
        ("translate", ["train.steps=3000"], 1000, ""),
        ("generate", ["train.steps=20"], 2, "train.warmup is 2, not 50"),
        ("generate", ["train.steps=2000"], 50, ""),
        ("generate", ["train.steps=20", "train.warmup=7"], 7, ""),
    ],
)
def test_a_warmup_that_nobody_set_gives_way(task: str, sets: list[str], warmup: int, said: str) -> None:
    notes: list[str] = []
    assert run_config(task, assignments=sets, note=notes.append).train.warmup == warmup
    assert len(notes) == bool(said) and said in "".join(notes)


def test_a_warmup_that_was_set_is_refused() -> None:
    with pytest.raises(UsageError, match="warmup 30 is not shorter than steps 20; lower"):
        run_config("generate", assignments=["train.steps=20", "train.warmup=30"])


# --- Runs and summary


def test_runs_are_found_where_they_were_put(some: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-o FOLDER/NAME` makes a run that `regard runs FOLDER` did not list."""
    monkeypatch.chdir(some)
    for where in (".", "some", "some/run"):
        assert main.run(["runs", where, "--json"]) == 0
        assert [each["folder"] for each in json.loads(capsys.readouterr().out)] == ["some/run"]


@pytest.mark.parametrize("words", [["runs", "some"], ["summary", "some/run"]])
def test_tables_fit_sixty_columns_and_are_whole_in_a_pipe(
    words: list[str], some: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(some)
    monkeypatch.setenv("COLUMNS", "60")
    assert main.run(words) == 0
    piped = capsys.readouterr().out
    assert max(map(len, piped.splitlines())) > 60 and "…" not in piped
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main.run(words) == 0
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, narrow.splitlines())) <= 60 and "…" not in narrow
    numbers = r"\d[\d,]{2,}"
    assert re.findall(numbers, narrow) == re.findall(numbers, piped)  # no number is cut or folded


def test_the_time_of_a_command_counts_from_when_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression: by the import of a verb, so that a second search in one process had used up its time before it began."""
    monkeypatch.setattr(Typed, "at", -1e9)
    assert main.run(["doctor", "--no-such-option"]) == 2
    assert time.monotonic() - Typed.at < 60
    before = Typed.at
    monkeypatch.setattr("sys.argv", ["regard", "doctor", "--no-such-option"])
    assert main.run() == 2 and Typed.at == before  # what a process was begun for was typed when it began
