"""The checkup of several processes: who they are, who is missing, what differs, and what their sums cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from several import processes

from regard.bench.exchange import Exchange, fitted
from regard.bench.hardware import Link, all_reduce
from regard.cli import main
from regard.cli.doctor import print_world, size_in_words
from regard.tasks.run import RunResult
from regard.world_doctor import RankFacts, WorldCheckup, crowded, differences, parameters_of

ONE = RankFacts(0, "a", "cpu", 4, "0.1", "3.11", "2.13", "gloo", 2)


def test_two_processes_are_joined_and_measured(
    tmp_path: Path, tiny_run: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.bench.exchange.ENOUGH", 2**18)
    said = tmp_path / "said"
    assert processes(2, "doctor", "--world", "-m", tiny_run.best, "--json", said=said) == [0, 0]
    found = json.loads(said.read_text())  # of the first alone
    assert [each["rank"] for each in found["ranks"]] == [0, 1]
    assert {each["backend"] for each in found["ranks"]} == {"gloo"} and len(
        {each["host"] for each in found["ranks"]}
    ) == 1
    assert all(each["seconds"] > 0 for each in found["exchanges"]) and len(found["exchanges"]) == 7
    assert found["exchanges"][0]["bytes_per_second"] == pytest.approx(1024 / found["exchanges"][0]["seconds"])
    count = sum(weight.numel() for weight in tiny_run.load().model.parameters())
    assert found["model"]["parameters"] == count == parameters_of(tiny_run.best)
    link = Link("", "", found["bandwidth"], found["latency"], "")
    assert found["model"]["seconds"] == pytest.approx(all_reduce(4 * count, 2, link))


def test_a_rank_that_does_not_answer_is_named(tmp_path: Path) -> None:
    told = tmp_path / "told"
    assert processes(2, "doctor", "--world", "--timeout", 0.4, told=told, world=3) == [1, 1]
    lines = [line for line in told.read_text().splitlines() if line.startswith("regard:")]
    assert len(lines) == 2 and all("rank 2 of 3 did not answer within 0.4 s (there are 0 on " in line for line in lines)


def test_it_starts_processes_by_itself(capfd: pytest.CaptureFixture[str], tiny_run: RunResult) -> None:
    assert main.run(["doctor", "--world", "--processes", "2", "-m", str(tiny_run.best), "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)["ranks"]) == 2


def test_one_process_is_told_how_to_be_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["doctor", "--world"]) == 2 and "--processes 2 starts two here" in capsys.readouterr().err
    assert main.run(["doctor", "--processes", "2"]) == 2 and "add --world" in capsys.readouterr().err


def test_what_differs_is_told_with_the_ranks_that_have_it() -> None:
    same = [replace(ONE, rank=rank, host=host) for rank, host in enumerate("aab")]
    assert differences(same) == [] and crowded(same) == []
    other = [*same, replace(ONE, rank=3, host="b", torch="2.12", threads=3)]
    torch, threads = differences(other)
    assert torch.startswith("torch differs between ranks: 2.13 (ranks 0, 1, 2), 2.12 (rank 3)")
    assert threads.startswith("threads differs between ranks: 2 (ranks 0, 1, 2), 3 (rank 3)")
    (full,) = crowded(other)
    assert full.startswith("2 processes of 5 threads share the 4 cores of b")


@pytest.mark.parametrize("ranks", [2, 3])
def test_latency_and_bandwidth_are_found_again(ranks: int) -> None:
    link = Link("", "", 3e8, 7e-5, "")
    found = fitted([Exchange(size, all_reduce(size, ranks, link)) for size in (2**10, 2**15, 2**20, 2**23)], ranks)
    assert (found.bytes, found.latency) == pytest.approx((3e8, 7e-5))


def test_a_checkup_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    exchanges = (Exchange(2**10, 1e-4), Exchange(2**26, 0.05))
    found = WorldCheckup(
        (ONE, replace(ONE, rank=1)), exchanges, Link("", "", 1e9, 2e-5, ""), ("runs/x/1", 250_000), ("be careful",)
    )
    print_world(found)
    out = capsys.readouterr().out
    assert "64 MiB" in out and "1.34 GB/s" in out and "! be careful" in out
    assert "runs/x/1 (250,000 parameters, 976.6 KiB in float32) takes 1.04 ms" in out
    assert size_in_words(7) == "7 bytes"
