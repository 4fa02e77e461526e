"""A long file in shards: whatever is killed and whoever goes on, the file is that of one process that knows no shards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from several import processes
from test_json import BLOCKS, make

import regard
from regard import shards
from regard.bundle import save_bundle
from regard.cli import main
from regard.cli.model import own_device
from regard.cli.output import one_line
from regard.data.builtin.dates import as_pairs, date_pairs
from regard.decode.workers import side_by_side, spread_over
from regard.errors import RegardError
from regard.files import read_json
from regard.shards import Shards, cut, in_words, opened, parts_of
from regard.tasks.run import RunResult
from regard.world import World

ROOT = Path(regard.__file__).parent.parent
Write = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "LEAST", 7)
    monkeypatch.setattr(shards, "PAUSE", 0.01)
    monkeypatch.setattr("regard.cli.eval.LEAST", 7)
    for verb in ("translate", "score", "generate"):
        monkeypatch.setattr(f"regard.cli.{verb}.CHUNK", 5)  # 1 + 4 + 5, and two of 5 from then on


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 53 sources, one of them too long, and the pairs without it."""
    folder = tmp_path_factory.mktemp("shards")
    pairs = as_pairs(date_pairs("test", 53))
    lines = [source for source, _ in pairs]
    lines[17] = "x" * 2_000_000  # more characters than a line may have
    (folder / "big.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return folder


@pytest.fixture
def type_(capsys: pytest.CaptureFixture[str]) -> Write:
    """Type a command in this process: its exit code and what it says."""

    def type_(*words: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main.run([str(word) for word in words])
        return code, capsys.readouterr().err

    return type_


# --- The mechanism


def test_shards_are_cut_by_size_alone() -> None:
    assert cut([1, 4, 5, 5, 5, 5, 3], 7) == [[1, 4, 5], [5, 5], [5, 3]]
    assert cut([11, 13], 7) == [[11], [13]] and cut([], 7) == [] and cut([3], 7) == [[3]]


def test_a_shard_is_made_once_and_what_a_dead_process_left_is_made_by_the_first(tmp_path: Path) -> None:
    made: list[tuple[int, int]] = []

    def make(rank: int) -> Callable[[int], Any]:
        return lambda number: made.append((rank, number)) or {"square": number**2}

    with opened(tmp_path / "out", {"what": "squares"}) as first:
        other = Shards(first.folder, World(1, 2))
        with first._claimed(2) as mine:  # by a process that is at work on it
            assert mine and not other.work(5, make(1))
            assert made == [(1, 0), (1, 1), (1, 3), (1, 4)]
        assert first.work(5, make(0)) and made[4:] == [(0, 2)]
        assert [first.read(number)["square"] for number in range(5)] == [0, 1, 4, 9, 16]
        first.remove()
        assert not other.work(5, make(1)) and len(made) == 5 and not first.folder.exists()


def test_another_job_is_refused_and_so_is_a_second_process_by_hand(tmp_path: Path) -> None:
    out, job = tmp_path / "out", {"model": "a", "input": "b"}
    with opened(out, job, {"seed": 3}) as begun:
        begun.work(1, lambda number: number)
        with pytest.raises(RegardError, match="another process is working in"), opened(out, job):
            pass
    refused = pytest.raises(RegardError, match="shards of another input and another model; remove that folder")
    with refused, opened(out, {"model": "A", "input": "B"}):
        pass
    heard: list[str] = []
    with opened(out, job, {"seed": 5}, heard.append) as again:
        assert again.chosen == {"seed": 3} and "1 shard is finished" in heard[0]


def test_groups_spread_over_shards_are_the_groups_side_by_side(tmp_path: Path) -> None:
    from regard.decode.ranking import Hypothesis

    groups = [[3, 1], [0, 2, 4], [5, 6], [7]]
    met: list[list[int]] = []

    def search(group: list[int], watch: Callable[[], None]) -> list[list[Hypothesis]]:
        met.append(group)
        return [[Hypothesis((place, 2), -1 / 3, float("nan"), (0.1,), True)] for place in group]

    plain = {tuple(group): found for group, found in side_by_side(groups, search, 1, lambda: None)}
    met.clear()
    with opened(tmp_path / "out", {}) as begun:
        spread = {tuple(group): found for group, found in spread_over(begun)(groups, search, 1, lambda: None)}
        assert begun.finished() == {0, 1} and met == groups  # 7 sources and 1
        assert repr(spread) == repr(plain)
        assert len(list(spread_over(begun)(groups, search, 1, lambda: None))) == 4 and len(met) == 4


# --- The verbs


def test_translations_in_shards_are_those_of_one_process(
    place: Path, tiny_run: RunResult, type_: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes, one killed in the fourth shard; then one process, which is told that another beam is another work."""
    words = ("translate", place / "big.txt", "-m", tiny_run.best, "--beam", 2, "--scores", "-o")
    with monkeypatch.context() as patch:
        patch.setattr(shards, "LEAST", 10**9)
        code, told = type_(*words, place / "plain.txt")
    assert code == 1 and "line 18: a text of 2,000,000 characters" in told and "1 of 53 got no answer" in told
    out, parts = place / "out.txt", parts_of(place / "out.txt")
    assert -signal.SIGKILL in processes(3, *words, out, deadly=3)
    finished = set(Shards(parts).finished())
    assert 1 <= len(finished) < 6 and 3 not in finished and not out.exists()
    kept = {number: (parts / f"{number:05}.json").stat().st_mtime_ns for number in finished}
    code, told = type_("translate", place / "big.txt", "-m", tiny_run.best, "--beam", 3, "--scores", "-o", out)
    assert code == 1 and "shards of another set of options" in told and not out.exists()
    seen: dict[int, int] = {}
    remove = Shards.remove

    def removed(self: Shards) -> None:
        seen.update({number: (parts / f"{number:05}.json").stat().st_mtime_ns for number in self.finished()})
        remove(self)

    monkeypatch.setattr(Shards, "remove", removed)
    code, told = type_(*words, out)
    assert code == 1 and "line 18: a text of 2,000,000 characters" in told and "1 of 53 got no answer" in told
    assert f"{in_words(len(finished))} finished" in told and f"wrote {out}" in told
    assert out.read_bytes() == (place / "plain.txt").read_bytes() and not parts.exists()
    assert len(seen) == 6 and kept.items() <= seen.items()  # what was there was not made again


def test_under_torchrun_two_processes_write_what_one_writes(
    place: Path, tiny_run: RunResult, type_: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = [str(each) for each in ("translate", place / "big.txt", "-m", tiny_run.best, "--beam", 1, "-o")]
    with monkeypatch.context() as patch:
        patch.setattr(shards, "LEAST", 10**9)
        type_(*words, tmp_path / "plain.txt")
    starter = tmp_path / "small.py"
    starter.write_text(
        "import sys\nfrom regard import shards\nfrom regard.cli import main, translate\n"
        "shards.LEAST, translate.CHUNK = 7, 5\nsys.exit(main.run())\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(starter)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launch, *words, str(tmp_path / "out.txt")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0  # one that failed would be started again, and its bad line fail again
    assert done.stderr.count("1 of 53 got no answer") == 1 and done.stderr.count("reading") == 1, done.stderr
    assert (tmp_path / "out.txt").read_bytes() == (tmp_path / "plain.txt").read_bytes()


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_scores_in_shards_are_those_of_one_process(
    words: tuple[str, ...], place: Path, tiny_run: RunResult, type_: Write, tmp_path: Path
) -> None:
    verb = ("score", tiny_run.best, place / "pairs.tsv", *words, "-o")
    assert processes(2, *verb, tmp_path / "many.txt") == [0, 0]
    assert type_(*verb, tmp_path / "one.txt")[0] == 0
    assert type_(*verb, "/dev/null")[0] == 0 and not Path("/dev/null.parts").exists()  # a device has nothing beside it
    assert (tmp_path / "many.txt").read_bytes() == (tmp_path / "one.txt").read_bytes()
    if words:
        pairs = json.loads((tmp_path / "many.txt").read_text())["pairs"]
        alone = regard.load(tiny_run.best).score([(pairs[11]["source"], pairs[11]["target"])])[0]
        assert len(pairs) == 53 and pairs[11]["log_probability"] == pytest.approx(alone.log_probability, rel=1e-5)


def test_an_evaluation_in_shards_has_the_score_of_one_process(
    place: Path,
    tiny_run: RunResult,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """One is killed, and two go on: groups of like length stay whole, so every bit is the same."""
    monkeypatch.setattr("regard.tasks.translate.predictor.BATCH", 11)  # sources of a group
    verb = ("eval", tiny_run.best, "--on", place / "pairs.tsv", "--beam", 2, "--json")
    assert main.run([str(word) for word in verb]) == 0
    plain = json.loads(capsys.readouterr().out)
    saved = tmp_path / "out.txt"
    assert processes(1, *verb, "--save", saved, deadly=2) == [-signal.SIGKILL]
    assert Shards(parts_of(saved)).finished() == {0, 1}
    assert processes(2, *verb, "--save", saved, said=tmp_path / "said") == [0, 0]
    found = json.loads((tmp_path / "said").read_text())
    assert "decoded before" in found["notes"][-1]
    assert found["scores"] == plain["scores"] and found["sentences"] == 53 and not parts_of(saved).exists()
    sources = [line.split("\t")[0] for line in (place / "pairs.tsv").read_text().splitlines()]
    texts = [one_line(each.text) for each in regard.load(tiny_run.best).translate(sources, beam=2, scores=False)]
    assert saved.read_text().splitlines() == texts


def test_a_seed_that_nobody_chose_is_that_of_the_first_time(
    type_: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Samples of a text that was killed would go on with another seed, and be another work at that."""
    bundle = save_bundle(tmp_path / "bundle", make("generate", "gpt2", **BLOCKS))
    (tmp_path / "prompts.txt").write_text("\n".join("abcdefghijklmnopq"))
    verb = ("generate", tmp_path / "prompts.txt", "-m", bundle, "-n", 7, "-o")
    assert processes(1, *verb, tmp_path / "out.txt", deadly=1) == [-signal.SIGKILL]
    seed = read_json(parts_of(tmp_path / "out.txt") / "job.json")["chosen"]["seed"]
    assert type_(*verb, tmp_path / "out.txt")[0] == 0
    monkeypatch.setattr(shards, "LEAST", 10**9)
    assert type_(*verb, tmp_path / "plain.txt", "--seed", seed)[0] == 0
    assert (tmp_path / "out.txt").read_bytes() == (tmp_path / "plain.txt").read_bytes()
    assert type_(*verb, tmp_path / "other.txt", "--seed", seed + 1)[0] == 0
    assert (tmp_path / "other.txt").read_bytes() != (tmp_path / "plain.txt").read_bytes()


def test_what_several_processes_cannot_share_is_refused(
    place: Path, tiny_run: RunResult, type_: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, told = type_("translate", place / "big.txt", "-m", tiny_run.best)
    assert code == 2 and "name files: regard translate FILE -o OUT" in told
    code, told = type_("eval", tiny_run.best, "--on", place / "pairs.tsv")
    assert code == 2 and "name the file of translations: --save FILE" in told
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert [own_device(name) for name in ("auto", "cuda", "cuda:0", "cpu")] == ["cuda:1", "cuda:1", "cuda:0", "cpu"]
