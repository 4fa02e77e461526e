"""A run that was killed, stopped or starved of disk space at any moment ends as if nothing had happened, bit for bit."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import toy_run
from PIL import Image
from toy_run import Contents, toy_job

import regard
import regard.files
from regard.config import StrictConfig
from regard.data.pairs import builtin_pairs
from regard.errors import RegardError, UsageError
from regard.files import alone_in, read_json, write_json
from regard.runs import read_run
from regard.tasks.configure import run_config
from regard.tasks.recipe import made_by, prepare
from regard.tasks.run import resume_run, start_run
from regard.tokens import TokenizerPair
from regard.training.config import TrainConfig
from regard.training.events import Checkpoint, End, Forecast, Note, Prepared, Progress, Validated, Working
from regard.training.history import read_progress
from regard.training.job import Job, Outcome
from regard.training.show import Show
from regard.training.state import has_checkpoint
from regard.training.timed import train

ENCODER = {"kind": "convnet", "channels": (4, 8), "layers": 1}
SEEING = {
    "caption": {"kind": "show-and-tell", "width": 16, "hidden": 16, "encoder": ENCODER},
    "answer": {"width": 16, "encoder": ENCODER},
}
DRIVER = Path(__file__).parent / "drivers" / "train_short.py"


# -- killed ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `drivers/train_short.py` found; one process for all, because importing torch takes seconds."""
    command = [sys.executable, str(DRIVER), str(tmp_path_factory.mktemp("driven"))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(1500)  # about a minute of one core that is free
def test_twenty_kills_change_no_bit(driven: dict[str, Any]) -> None:
    found = driven["kills"]
    assert sum(found["died"].values()) == 20 and min(found["died"].values()) >= 5, found["died"]
    assert [unlike for unlike in found["unlike"] if unlike] == []
    compared = set(found["files"])
    assert {"best/model.safetensors", "best/metrics.json", "last/model.safetensors", "log.jsonl"} <= compared
    assert {"checkpoints/step-44/ema.safetensors", "checkpoints/step-44/optimiser.safetensors"} <= compared
    assert {f"snapshots/step-{step}.safetensors" for step in (32, 40, 44)} <= compared


@pytest.mark.timeout(1500)
def test_signals_interrupt_and_change_no_bit(driven: dict[str, Any]) -> None:
    assert driven["signals"] == {"reasons": ["interrupted", "interrupted"], "unlike": []}


@pytest.mark.timeout(1500)
def test_a_kill_before_any_single_call_of_any_save_changes_no_bit(driven: dict[str, Any]) -> None:
    found = driven["crash_points"]
    assert found["calls"] > 80 and found["unlike"] == {}


def test_a_crash_between_the_two_renames_of_a_checkpoint(tmp_path: Path) -> None:
    """The bug: only `step-5.old` was there then, and resuming looked for `step-5`."""
    train(toy_job(tmp_path / "whole"), Show())
    train(toy_job(tmp_path / "run"), Show())
    (tmp_path / "run" / "checkpoints" / "step-5").rename(tmp_path / "run" / "checkpoints" / "step-5.old")
    assert train(toy_job(tmp_path / "run"), Show(), resume=True).reason == "steps"
    assert same(tmp_path)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    """The bug: it wrote the row of the final average once more."""
    first = train(toy_job(tmp_path), Show())
    before = Contents.of(tmp_path)
    again = train(toy_job(tmp_path), Show(), resume=True)
    assert before.unlike(Contents.of(tmp_path)) == []
    assert (again.reason, again.chosen, again.metrics) == (first.reason, first.chosen, first.metrics)


def test_a_finished_run_can_be_lengthened(tmp_path: Path) -> None:
    """A better average stays the best until something beats it, also when the run goes on."""
    first = train(toy_job(tmp_path), Show())
    longer = train(toy_job(tmp_path, with_steps(9)), Show(), resume=True)
    assert (longer.reason, longer.progress.step) == ("steps", 9)
    assert longer.metrics["loss"] <= first.metrics["loss"]
    best = json.loads((tmp_path / "best" / "metrics.json").read_text())
    assert best == {"weights": longer.chosen, **longer.metrics}


def test_a_run_killed_before_its_first_checkpoint_starts_over(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    config = run_config("translate", tiny_settings)
    start_run(config, folder=tmp_path / "whole")
    write_json(tmp_path / "run" / "run.json", read_json(tmp_path / "whole" / "run.json"))  # killed right after this
    assert not has_checkpoint(tmp_path / "run" / "checkpoints")
    assert resume_run(tmp_path / "run").outcome.reason == "steps"
    assert same(tmp_path)


def test_resuming_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a run: it has no run\.json"):
        resume_run(tmp_path)
    write_json(tmp_path / "run.json", ["no configuration"])
    with pytest.raises(RegardError, match="does not hold a configuration"):
        read_run(tmp_path)


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    write_json(tmp_path / "run.json", {"config": run_config("translate", tiny_settings).dump(), "beside": None})
    before = Contents.of(tmp_path)
    with alone_in(tmp_path), pytest.raises(RegardError, match=f"another process is training in {tmp_path}"):
        resume_run(tmp_path)
    assert before.unlike(Contents.of(tmp_path)) == []


# -- stopped -----------------------------------------------------------------------------------------------------------


@dataclass
class Interrupts(Show):
    """Sends a signal to this process while update `step` is made."""

    step: int
    signal: signal.Signals = signal.SIGINT

    def progress(self, event: Progress) -> None:
        if event.step == self.step:
            os.kill(os.getpid(), self.signal)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_stopped_at_any_step_and_resumed(tmp_path: Path, step: int) -> None:
    """Steps 2 and 4 are due for a validation. The bug: a stop just there skipped it for good."""
    config = toy_run.CONFIG.model_copy(update={"log_every": 1})
    train(toy_job(tmp_path / "whole", config), Show())
    stopped = train(toy_job(tmp_path / "run", config), Interrupts(step))
    assert stopped.reason == "interrupted" and stopped.progress.step == step
    assert train(toy_job(tmp_path / "run", config), Show(), resume=True).reason == "steps"
    assert same(tmp_path)


def test_sigterm_stops_like_ctrl_c_and_handlers_come_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    config = toy_run.CONFIG.model_copy(update={"log_every": 1})
    assert train(toy_job(tmp_path, config), Interrupts(3, signal.SIGTERM)).reason == "interrupted"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_ctrl_c_stops_at_once_and_the_run_still_resumes(tmp_path: Path) -> None:
    class Impatient(Interrupts):
        def progress(self, event: Progress) -> None:
            super().progress(event)
            super().progress(event)

    config = toy_run.CONFIG.model_copy(update={"log_every": 1})
    train(toy_job(tmp_path / "whole", config), Show())
    with pytest.raises(KeyboardInterrupt):
        train(toy_job(tmp_path / "run", config), Impatient(3))
    train(toy_job(tmp_path / "run", config), Show(), resume=True)
    assert same(tmp_path)


# -- starved -----------------------------------------------------------------------------------------------------------


class FullDisk:
    """Replaces `open` in `regard.files`: the chosen file to be written takes half of its bytes, then says ENOSPC."""

    def __init__(self, chosen: int) -> None:
        self.chosen, self.written, self.names = chosen, 0, set[str]()

    def __call__(self, path: Path, mode: str) -> io.BufferedIOBase:
        file = open(path, mode)  # noqa: SIM115
        if "w" in mode:
            self.written += 1
            self.names.add(Path(path).name.split(".")[1])  # .NAME.safetensors.123.ab12.tmp
            if self.written == self.chosen:
                file = _Full(file)  # type: ignore[assignment]
        return file  # type: ignore[return-value]


class _Full:
    def __init__(self, file: io.BufferedWriter) -> None:
        self.file = file

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> int:
        self.file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_any_write_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    whole, chosen = tmp_path / "whole", 0
    counter = FullDisk(0)
    monkeypatch.setattr(regard.files, "open", counter, raising=False)
    train(toy_job(whole), Show())
    for chosen in range(1, counter.written + 1):
        folder = tmp_path / str(chosen)
        monkeypatch.setattr(regard.files, "open", FullDisk(chosen))
        with pytest.raises(RegardError, match=r"^cannot write .*: No space left on device; nothing was changed$"):
            train(toy_job(folder), Show())
        assert list(folder.rglob("*.tmp")) == []  # the space is given back
        resume_or_start(folder)
        assert Contents.of(whole).unlike(Contents.of(folder)) == []
    assert chosen == counter.written
    assert counter.names >= {"model", "optimiser", "ema", "state", "latest", "metrics", "step-4"}  # every sort of file


def test_a_full_disk_under_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRoom(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    train(toy_job(tmp_path / "whole"), Show())
    openers = {"a": lambda path, **_: NoRoom(), "ab": lambda path: open(path, "ab")}  # noqa: SIM115
    monkeypatch.setattr("regard.training.history.open", lambda path, mode, **_: openers[mode](path), raising=False)
    with pytest.raises(RegardError, match=r"^cannot write .*log.jsonl: No space left on device"):
        train(toy_job(tmp_path / "run"), Show())
    monkeypatch.undo()
    resume_or_start(tmp_path / "run")
    assert same(tmp_path)


def resume_or_start(folder: Path) -> Outcome:
    return train(toy_job(folder), Show(), resume=has_checkpoint(folder / "checkpoints"))


# -- what else can be wrong with a checkpoint --------------------------------------------------------------------------


def test_changed_data_is_refused(tmp_path: Path) -> None:
    train(toy_job(tmp_path), Show())
    job = toy_job(tmp_path)
    job.fingerprint["the training data"] = "other"
    with pytest.raises(RegardError, match="cannot resume: the training data changed since the run started"):
        train(job, Show(), resume=True)


def test_a_run_of_an_older_regard_wrote_down_less(tmp_path: Path) -> None:
    train(toy_job(tmp_path), Show())
    job = toy_job(tmp_path, with_steps(7))
    job.fingerprint["the validation data"] = "not known then"
    assert train(job, Show(), resume=True).progress.step == 7


class OlderModel(StrictConfig):
    """A model's configuration as an older Regard wrote it down."""

    kind: Literal["toy"] = "toy"
    width: int = 8


class NewerModel(OlderModel):
    gate: bool = False  # a field that came later
    parts: tuple[OlderModel, ...] = ()


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (OlderModel(width=7), NewerModel(width=7), True),
        (OlderModel(width=7), NewerModel(width=7, gate=True), False),
        (OlderModel(width=7), NewerModel(width=6), False),
        (NewerModel(parts=(OlderModel(width=3),)), NewerModel(parts=(OlderModel(width=3),)), True),
        (NewerModel(parts=(OlderModel(width=3),)), NewerModel(parts=(OlderModel(width=2),)), False),
        (NewerModel(gate=True), OlderModel(), False),
    ],
)
def test_a_run_goes_on_when_models_have_learned_a_new_key(
    tmp_path: Path, before: StrictConfig, now: StrictConfig, same: bool
) -> None:
    """The bug: a new field of a model, though at its default, made runs of an older Regard refuse to go on."""
    job = toy_job(tmp_path)
    job.fingerprint["the model"] = before
    train(job, Show())
    job = toy_job(tmp_path, with_steps(7))
    job.fingerprint["the model"] = now
    if same:
        assert train(job, Show(), resume=True).progress.step == 7
        return
    with pytest.raises(RegardError, match="cannot resume: the model changed since the run started"):
        train(job, Show(), resume=True)


def language(folder: Path, *, resume: bool = False) -> Job:
    over = {
        "data": {"train": "book.txt", "context": 16},
        "tokens": {"kind": "character"},
        "model": {"width": 16, "heads": 2},
    }
    return prepare(run_config("generate", over), folder / "run", data_root=folder, resume=resume).job


def test_token_streams_follow_the_text(tmp_path: Path) -> None:
    """The bug: a run killed before its first checkpoint kept the streams of the text that it had begun with."""
    book = tmp_path / "book.txt"
    book.write_text("a rose is a rose\n" * 40, encoding="utf-8")
    first = language(tmp_path)
    files = [tmp_path / "run" / name for name in ("train.tokens", "valid.tokens")]
    made = [file.stat().st_mtime_ns for file in files]
    assert language(tmp_path, resume=True).fingerprint == first.fingerprint
    assert [file.stat().st_mtime_ns for file in files] == made  # a run that goes on only maps them
    book.write_text("a nose is a nose\n" * 40, encoding="utf-8")
    changed = language(tmp_path, resume=True)
    names = ("the training data", "the validation data")
    assert all(changed.fingerprint[name] != first.fingerprint[name] for name in names)
    again = language(tmp_path)
    text = TokenizerPair.load(tmp_path / "run" / "tokens").target.decode(again.batches.ids.tolist())  # type: ignore[attr-defined]
    assert text.startswith("a nose is a nose")


@pytest.mark.parametrize(("task", "key"), [("caption", "the captions"), ("answer", "the questions")])
def test_changed_words_about_the_same_pictures_are_refused(tmp_path: Path, task: str, key: str) -> None:
    """The bug: only the pictures and the number of texts were compared, so that a run went on with other captions."""
    for number in range(6):
        Image.new("RGB", (16, 16), (40 * number, 0, 9)).save(tmp_path / f"{number}.png")
    found = []
    for colour in ("red", "red", "sad"):
        words = (
            {"caption": f"a {colour} one"} if task == "caption" else {"question": f"is it {colour}?", "answer": "yes"}
        )
        rows = [{"image": f"{number}.png", **words} for number in range(6)]
        (tmp_path / "about.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        over = {"data": {"train": "about.jsonl", "hold_out": 2}, "tokens": {"min_count": 1}, "model": SEEING[task]}
        job = prepare(run_config(task, over), tmp_path / "run", data_root=tmp_path, resume=False).job
        found.append(job.fingerprint)
    assert found[0] == found[1]
    assert [name for name in found[0] if found[0][name] != found[2][name]] == [key, "the validation data"]


def test_a_run_goes_on_from_any_folder_and_says_what_made_it(
    tmp_path: Path, tiny_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bugs: the folder of the data was forgotten, and nothing said with which torch and how many threads it learned."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    pairs = "".join(f"{source}\t{target}\n" for source, target in builtin_pairs("train", 60))
    (here / "p.tsv").write_text(pairs, encoding="utf-8")
    (there / "p.tsv").write_text("another\tfile\n" * 60, encoding="utf-8")
    monkeypatch.chdir(here)
    tables = {name: tiny_settings[name] for name in ("tokens", "model", "train", "validate") if name in tiny_settings}
    run = regard.train("translate", data="p.tsv", folder="run", quiet=True, **tables)
    monkeypatch.chdir(there)
    noted = read_json(here / "run" / "run.json")
    assert noted["beside"] == str(here)
    made = {"torch": torch.__version__, "threads": torch.get_num_threads(), "precision": "float32", "device": "cpu"}
    assert made.items() <= noted["made"].items() and noted["made"]["regard"] == regard.__version__
    assert read_json(here / "run" / "best" / "config.json")["made"] == noted["made"]
    assert made_by(run_config("translate", {"train": {"precision": "bf16"}}), "cpu").precision == "bf16"
    said: list[Any] = []
    resume_run(here / "run", steps=6, on_event=said.append)
    assert run.folder == Path("run") and not [
        each for each in said if isinstance(each, Note) and "may differ" in each.text
    ]
    write_json(here / "run" / "run.json", {**noted, "made": {**noted["made"], "threads": 64, "torch": "1.0"}})
    resume_run(here / "run", steps=8, on_event=said.append)
    words = f"goes on with torch {torch.__version__} (was 1.0), threads {torch.get_num_threads()} (was 64)"
    assert [each.text for each in said if isinstance(each, Note) and each.text.startswith(words)]
    del noted["made"]  # as an older Regard left it
    write_json(here / "run" / "run.json", noted)
    assert resume_run(here / "run", steps=9).outcome.progress.step == 9


EXAMPLES: dict[str, list[Any]] = {
    "translate": [(f'{n} kings\tor "queens"', f"{n} Könige\n{n}") for n in range(40)],
    "classify": [(f"{word} number {n}", word) for n in range(50) for word in ("odd", "even")],
    "generate": [f"a rose is rose {n}\n" for n in range(40)],
}


@pytest.mark.parametrize("task", EXAMPLES)
def test_examples_of_python_are_kept_and_the_run_goes_on(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    small = {"width": 16, "heads": 2} if task == "generate" else {"width": 16}
    tables = {"tokens": {"kind": "character"}, "train": {"validate_every": 2, "warmup": 1}, "model": small}
    monkeypatch.chdir(tmp_path)
    data = {"train": EXAMPLES[task], "context": 16} if task == "generate" else EXAMPLES[task]
    run = regard.train(task, data, steps=4, folder="run", quiet=True, on_event=told.append, **tables)
    kinds = [type(event) for event in told if not isinstance(event, Working)]
    assert kinds[0] is Prepared and kinds[-1] is End and told[-1].reason == "steps"
    assert {Forecast, Progress, Validated, Checkpoint} <= set(kinds)
    with pytest.raises(dataclasses.FrozenInstanceError):
        told[-1].reason = "other"
    rows = [json.loads(line) for line in (tmp_path / "run" / "data.jsonl").read_bytes().splitlines()]
    texts = [tuple(row.values()) if task != "generate" else row["text"] for row in rows]
    assert texts == EXAMPLES[task] and run.outcome.progress.step == 4
    assert type(regard.load(run)) is type(regard.load("run"))  # the run itself names its folder
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "data.jsonl").write_text("{}", encoding="utf-8")  # not this one
    assert resume_run("moved", steps=6).outcome.progress.step == 6


def test_examples_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"data\[1\] should be a pair \(source, target\) to translate; it is"):
        regard.train("translate", [("a", "b"), ("c",)])
    with pytest.raises(UsageError, match=r"data\[0\] should be a pair .* names of files are a tuple"):
        regard.train("translate", ["a.en", "a.de"])
    with pytest.raises(UsageError, match="caption learns from files"):
        regard.train("caption", [("a.png", "a")])
    with pytest.raises(UsageError, match="budget says how long to train; leave out steps and max_time"):
        regard.train("translate", EXAMPLES["translate"], budget="10s", steps=3)
    with pytest.raises(UsageError, match="data holds no example"):
        regard.train("fill", [])
    pairs = EXAMPLES["translate"]
    for wrong, words in (
        ({"step": 3}, r"regard\.train: no step; did you mean steps\?"),
        ({"out": "here"}, r"regard\.train: no out; say folder"),
        ({"model": "transfomer"}, r"no model.kind transfomer; did you mean transformer\?"),  # a word is a kind
        ({"model": "bahdanau", "steps": 0}, r"^translate: train\.steps: must be 1 or more, not 0$"),
        ({"model": {"kind": "bahdanau"}, "tokns": {}}, r"regard\.train: no tokns; did you mean tokens\?"),
    ):
        with pytest.raises(UsageError, match=words):
            regard.train("translate", pairs, **wrong)
    for given in (None, 3, ["runs/translate/1"]):
        with pytest.raises(UsageError, match=r"takes the folder of a run.*, not a (NoneType|int|list)"):
            regard.load(given)
        with pytest.raises(UsageError, match=r"takes the folder of a run.*, not a (NoneType|int|list)"):
            regard.formation_of(given)
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_a_checkpoint_that_is_not_whole(tmp_path: Path) -> None:
    train(toy_job(tmp_path), Show())
    inside = tmp_path / "checkpoints" / "step-5"
    weights, state = (inside / "model.safetensors").read_bytes(), (inside / "state.json").read_text()
    (inside / "model.safetensors").write_bytes(weights[:-7])
    with pytest.raises(RegardError, match=r"model\.safetensors is not a whole safetensors file"):
        train(toy_job(tmp_path), Show(), resume=True)
    (inside / "model.safetensors").write_bytes(weights)
    (inside / "state.json").write_text(state[: len(state) // 2])
    with pytest.raises(RegardError, match=r"state\.json is not whole JSON"):
        train(toy_job(tmp_path), Show(), resume=True)
    (inside / "state.json").write_text("{}")
    with pytest.raises(RegardError, match=r"state\.json has no format; the checkpoint is not whole"):
        train(toy_job(tmp_path), Show(), resume=True)
    (inside / "state.json").write_text(state.replace('"format": 1', '"format": 2'))
    with pytest.raises(RegardError, match="has format 2, this Regard reads up to 1; upgrade Regard"):
        train(toy_job(tmp_path), Show(), resume=True)
    (tmp_path / "checkpoints" / "latest.json").unlink()
    with pytest.raises(RegardError, match="holds no checkpoint"):
        train(toy_job(tmp_path), Show(), resume=True)
    (tmp_path / "checkpoints" / "latest.json").write_text("{}")
    with pytest.raises(RegardError, match=r"latest\.json has no checkpoint; the checkpoint is not whole"):
        read_progress(tmp_path)  # the bug: a KeyError, before a resume began


def same(place: Path) -> bool:
    """Whether the runs `whole` and `run` are equal but for times."""
    unlike = Contents.of(place / "whole").unlike(Contents.of(place / "run"))
    assert unlike == []
    return not unlike


def with_steps(steps: int) -> TrainConfig:
    return toy_run.CONFIG.model_copy(update={"steps": steps})


def test_files_of_a_person_are_neither_replaced_nor_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: a folder with someone's data.jsonl counted as free, and a run that could not start removed the file."""
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "mine" / "data.jsonl"
    own.parent.mkdir()
    own.write_text('{"text": "mine"}\n', encoding="utf-8")
    for data in ("mine/data.jsonl", EXAMPLES["translate"]):
        with pytest.raises(UsageError, match="mine is not empty"):
            regard.train("translate", data, steps=2, folder="mine", quiet=True)
        assert own.read_text(encoding="utf-8") == '{"text": "mine"}\n'
    tables = {"tokens": {"kind": "character"}, "model": {"width": 16}, "data": {"train": [("a", "b")]}}
    with pytest.raises(RegardError, match="too few"):
        regard.train("translate", folder="run", budget="10s", quiet=True, **tables)
    assert not (tmp_path / "run").exists()


def test_a_run_that_starts_over_reads_its_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: of a run that was killed before its first checkpoint, a file of the same name was read wherever one was."""
    read: list[Any] = []

    def prepare(config: Any, *args: Any, **options: Any) -> Any:
        read.append(config.data.train)
        raise RegardError("enough")

    here, there = tmp_path / "here", tmp_path / "there"
    for place in (here, there):
        place.mkdir()
        (place / "p.tsv").write_text(f"{place.name}\tx\n", encoding="utf-8")
    config = run_config("translate", {"data": {"train": ["p.tsv"]}})
    (here / "run").mkdir()
    write_json(here / "run" / "run.json", {"config": config.dump(), "beside": str(here)})
    monkeypatch.chdir(there)
    monkeypatch.setattr("regard.tasks.run.prepare", prepare)
    with pytest.raises(RegardError, match="enough"):
        resume_run(here / "run")
    assert read == [(str(here / "p.tsv"),)]
