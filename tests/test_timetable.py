"""Runs that go by the clock: all of the time is used, the rate falls with it, and what was decided is decided for good."""

from __future__ import annotations

import json
import random
import time
from bisect import bisect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from toy_run import ToyBatch, ToyBatches, ToyModel, toy_job, validate

from regard.errors import RegardError
from regard.models.loss import Loss
from regard.training.config import TrainConfig
from regard.training.events import Event, Forecast, Progress, silent
from regard.training.history import RunLog
from regard.training.job import Job, Outcome
from regard.training.optimiser import learning_rate
from regard.training.timed import BEFORE_FALL, TimedTrainer, trainer_of
from regard.training.timetable import SCHEDULE, Timetable
from regard.training.validation import Validation
from regard.trials import ThreadTrial, fastest_threads


class FakeClock:
    """A clock that only goes on when something is done."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LargeBatches(ToyBatches):
    """Batches whose losses are alike."""

    def get(self, epoch: int, index: int) -> ToyBatch:
        x = torch.randn(64, 3, generator=torch.Generator().manual_seed(1000 * epoch + index))
        return ToyBatch(x, x.sin().sum(dim=1))


class SlowModel(ToyModel):
    """A model of which an update takes as long as `pace` says at that time."""

    def __init__(self, clock: FakeClock, pace: Callable[[float], float]) -> None:
        super().__init__()
        self.clock, self.pace = clock, pace

    def forward(self, batch: ToyBatch) -> Loss:
        if self.training:
            self.clock.now += self.pace(self.clock.now - 1000.0)
        return super().forward(batch)


def timed(**over: object) -> TrainConfig:
    values = {"budget": 100.0, "schedule": "wsd", "steps": 10**6, "average": 0, "warmup": 10, "lr": 0.01, "patience": 0}
    return TrainConfig(**{**values, "log_every": 1, "precision": "float32", **over})  # type: ignore[arg-type]


def slow_job(
    folder: Path,
    config: TrainConfig,
    pace: Callable[[float], float] = lambda spent: 0.4,
    looking: float | Callable[[float], float] = 0.5,
    score: Callable[[int], float] | None = None,
) -> Job:
    """A toy job on a fake clock; `score` may say the loss of each validation."""
    clock, looks = FakeClock(), [0]

    def look(model: nn.Module) -> Validation:
        clock.now += looking(clock.now - 1000.0) if callable(looking) else looking
        looks[0] += 1
        return validate(model) if score is None else Validation({"loss": score(looks[0])})

    model, batches = SlowModel(clock, pace), LargeBatches()
    return toy_job(folder, config, model, look, batches=batches, clock=clock, asked=clock.now - 5.0)


def run(job: Job, resume: bool = False, longer: bool = False, events: list[Event] | None = None) -> Outcome:
    job.folder.mkdir(exist_ok=True)
    return trainer_of(job, silent if events is None else events.append).run(resume, longer)


def used(job: Job) -> float:
    """Seconds from when the run was asked for to the end of its loop."""
    assert isinstance(job.clock, FakeClock) and job.asked is not None
    return job.clock.now - job.asked


def rates(folder: Path) -> list[float]:
    return [row["learning_rate"] for row in RunLog(folder).rows() if row["kind"] == "train"]


def decisions(folder: Path, what: str) -> list[dict[str, object]]:
    found = json.loads((folder / SCHEDULE).read_text())["decisions"]
    return [each for each in found if each["what"] == what]


PACES: dict[str, Callable[[float], float]] = {
    "even": lambda spent: 0.4,
    "a second program from the middle on": lambda spent: 0.4 if spent < 50 else 0.9,
    "a second program that ends": lambda spent: 1.2 if spent < 40 else 0.4,
    "on and off": lambda spent: 0.4 if int(spent / 15) % 2 else 0.8,
    "a second program while the rate falls": lambda spent: 1.0 if 60 < spent < 75 else 0.4,
}


@pytest.mark.parametrize("name", PACES)
def test_all_of_the_time_is_used_and_the_rate_ends_with_it(tmp_path: Path, name: str) -> None:
    job = slow_job(tmp_path / "run", timed(), PACES[name])
    outcome = run(job)
    assert outcome.reason == "time"
    assert 95 <= used(job) + 2.0 <= 102  # two seconds are kept for the drawing of the curves
    found = rates(job.folder)
    assert max(found) == 0.01 and found[-1] < 0.06 * 0.01
    peak = [step for step, rate in enumerate(found) if rate == 0.01]
    assert peak == list(range(peak[0], peak[-1] + 1))  # it stays, then it only falls
    assert found[peak[-1] :] == sorted(found[peak[-1] :], reverse=True)
    first = decisions(job.folder, "fall")[0]
    assert first["why"] == "by the clock"


@pytest.mark.parametrize("seed", range(12))
def test_validations_that_another_program_slows_down_are_not_expected_to_be_slow_for_ever(
    tmp_path: Path, seed: int
) -> None:
    """The bug: a validation of five seconds beside another program had each of the last two expected to take as long."""
    dice, moments = random.Random(seed), [0.0]
    while moments[-1] < 200:
        moments.append(moments[-1] + dice.uniform(3, 12))

    def slower(spent: float) -> float:
        return 2.5 if bisect(moments, spent) % 2 else 1.0

    job = slow_job(
        tmp_path / "run", timed(average=5), lambda spent: 0.15 * slower(spent), lambda spent: 1.4 * slower(spent)
    )
    assert run(job).reason == "time"
    assert 94 <= used(job) + 2.0 <= 106, used(job)


def test_an_even_machine_falls_in_the_last_half_along_a_line(tmp_path: Path) -> None:
    job = slow_job(tmp_path / "run", timed(), looking=0.0)
    run(job)
    (fall,) = decisions(job.folder, "fall")
    found, start, end = rates(job.folder), int(str(fall["step"])), int(str(fall["end"]))
    assert len(found) == end and abs(start - end / 2) < 0.04 * end
    wanted = [0.01 * (end - step) / (end - start) for step in range(start, end)]
    assert found[start:] == pytest.approx(wanted)


def test_validations_take_a_small_share_of_the_time(tmp_path: Path) -> None:
    cheap, dear = (slow_job(tmp_path / str(cost), timed(), looking=cost) for cost in (0.1, 6.0))
    run(cheap)
    run(dear)
    assert 13 <= len(decisions(cheap.folder, "validate")) <= 16
    assert 1 <= len(decisions(dear.folder, "validate")) <= 2
    assert 93 <= used(dear) + 2.0 <= 102


def test_validations_come_as_often_as_they_were_asked_for(tmp_path: Path) -> None:
    job = slow_job(tmp_path / "run", timed(validate_every=30))
    run(job)
    assert [each["step"] for each in decisions(job.folder, "validate")][:4] == [30, 60, 90, 120]
    assert 95 <= used(job) + 2.0 <= 102


def test_a_warm_up_is_short_where_few_updates_fit(tmp_path: Path) -> None:
    job = slow_job(tmp_path / "run", timed(warmup=50), lambda spent: 1.0)
    run(job)
    assert decisions(job.folder, "warmup")[0]["end"] == 9  # a tenth of 91 or so


def test_the_passes_over_the_data_can_be_counted(tmp_path: Path) -> None:
    job = slow_job(tmp_path / "run", timed(epochs=20))
    outcome = run(job)
    assert (outcome.reason, outcome.progress.step) == ("steps", 100)  # five updates an epoch
    assert decisions(job.folder, "fall")[0]["step"] == 50
    assert rates(job.folder)[-1] == pytest.approx(0.01 / 50)


def test_validations_that_do_not_get_better_begin_the_fall(tmp_path: Path) -> None:
    job = slow_job(tmp_path / "run", timed(patience=2), score=lambda look: 1.0 if look == 1 else 2.0 - 0.01 * look)
    outcome = run(job)
    (fall,) = decisions(job.folder, "fall")
    third = decisions(job.folder, "validate")[2]
    assert fall["why"] == "validations no longer get better" and fall["step"] == third["step"]
    assert outcome.reason == "patience" and used(job) < 75
    assert outcome.progress.step <= 2 * int(str(fall["step"]))


def test_a_validation_that_gets_better_again_while_the_rate_falls_lets_it_go_on(tmp_path: Path) -> None:
    losses = {1: 1.0, 2: 1.5, 3: 1.5}
    job = slow_job(tmp_path / "run", timed(patience=2), score=lambda look: losses.get(look, 0.9 - 0.01 * look))
    outcome = run(job)
    assert outcome.progress.step == decisions(job.folder, "fall")[0]["end"]


class Killed(Exception):
    pass


def killed_at(job: Job, step: int) -> TimedTrainer:
    """Run it until an update is done, then end it as kill -9 does: nothing is written any more."""
    job.folder.mkdir(exist_ok=True)

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.step == step:
            raise Killed

    trainer = TimedTrainer(job, listen)
    with pytest.raises(Killed):
        trainer.run(False)
    return trainer


@pytest.mark.parametrize("step", [3, 90, 150, 190])  # before any decision, before the fall, behind it, near the end
def test_a_killed_run_decides_again_what_it_had_decided(tmp_path: Path, step: int) -> None:
    def pace(spent: float) -> float:
        return 0.4 if spent < 70 else 0.55

    whole = slow_job(tmp_path / "whole", timed(), pace)
    run(whole)
    killed = slow_job(tmp_path / "killed", timed(), pace)
    killed_at(killed, step)
    before = json.loads((killed.folder / SCHEDULE).read_text())["decisions"] if step > 3 else []
    again = slow_job(tmp_path / "killed", timed(), pace)
    again.clock.now = killed.clock()  # type: ignore[attr-defined]
    run(again, resume=True)
    after = json.loads((killed.folder / SCHEDULE).read_text())["decisions"]
    assert after[: len(before)] == before
    last = max((each["step"] for each in before), default=0)
    mine, theirs = rates(killed.folder), rates(whole.folder)
    assert mine[:last] == theirs[:last] and mine[-1] < 0.06 * 0.01


def test_after_the_last_decision_a_resumed_run_is_equal_bit_for_bit(tmp_path: Path) -> None:
    """Validations are by number here: those by the clock are decisions, too, and one of them chooses the best weights."""
    config = timed(validate_every=13)
    whole = slow_job(tmp_path / "whole", config)
    run(whole)
    killed = slow_job(tmp_path / "killed", config)
    killed_at(killed, 180)
    resumed = slow_job(tmp_path / "killed", config)
    run(resumed, resume=True)
    for name in ("best", "last"):
        mine, theirs = (load_file(each.folder / name / "model.safetensors") for each in (resumed, whole))
        assert mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert rates(killed.folder) == rates(whole.folder)


def test_a_finished_run_is_made_longer_from_before_its_fall(tmp_path: Path) -> None:
    job = slow_job(tmp_path / "run", timed())
    first = run(job)
    before = json.loads(next((job.folder / BEFORE_FALL).glob("step-*/state.json")).read_text())["progress"]
    spent = before["prepared"] + before["seconds"]
    longer = slow_job(tmp_path / "run", timed(budget=spent + 100.0))
    second = run(longer, resume=True, longer=True)
    assert 95 <= used(longer) - 5.0 + 2.0 <= 102
    found = rates(job.folder)
    assert found[before["step"] : before["step"] + 55] == [0.01] * 55  # as if it had never fallen
    assert found[-1] < 0.06 * 0.01 and len(found) > 1.4 * first.progress.step
    assert second.metrics["loss"] <= first.metrics["loss"]


def test_a_run_is_repeated_exactly_on_a_machine_of_another_speed(tmp_path: Path) -> None:
    first = slow_job(tmp_path / "first", timed(), PACES["on and off"])
    outcome = run(first)
    again = slow_job(tmp_path / "again", timed(), lambda spent: 3.0)
    again.folder.mkdir()
    (again.folder / SCHEDULE).write_bytes((first.folder / SCHEDULE).read_bytes())
    repeated = run(again)
    assert (repeated.reason, repeated.progress.step) == (outcome.reason, outcome.progress.step)
    assert RunLog(again.folder).rows() == RunLog(first.folder).rows()
    assert (again.folder / SCHEDULE).read_bytes() == (first.folder / SCHEDULE).read_bytes()


def test_the_best_of_the_first_time_stays_if_more_time_makes_it_worse(tmp_path: Path) -> None:
    job = slow_job(tmp_path / "run", timed(), score=lambda look: 1.0)
    first = run(job)
    kept = load_file(job.folder / "best" / "model.safetensors")
    longer = slow_job(tmp_path / "run", timed(budget=150.0), score=lambda look: 2.0)
    second = run(longer, resume=True, longer=True)
    assert (second.metrics, second.chosen) == (first.metrics, first.chosen)
    now = load_file(job.folder / "best" / "model.safetensors")
    assert all(torch.equal(kept[key], now[key]) for key in kept)


def test_a_time_that_is_gone_before_the_first_update_is_refused(tmp_path: Path) -> None:
    job = slow_job(tmp_path / "run", timed(budget=6.0))
    with pytest.raises(RegardError, match="6 s is too short: to get ready took 5 s of it") as caught:
        run(job)
    assert caught.value.hint == "give 30s or more"


def test_time_left_and_steps_are_those_of_the_clock(tmp_path: Path) -> None:
    events: list[Event] = []
    run(slow_job(tmp_path / "run", timed()), events=events)
    forecast = next(event for event in events if isinstance(event, Forecast))
    assert forecast.seconds == 95.0 and 225 < forecast.steps < 245
    seen = [event for event in events if isinstance(event, Progress)]
    assert all(0 <= event.left <= 95.0 - event.seconds + 1e-6 for event in seen)
    assert seen[-1].done > 0.95 and seen[-1].steps == seen[-1].step


def test_wsd_of_a_known_number_of_steps() -> None:
    config = TrainConfig(schedule="wsd", lr=1.0, warmup=10, steps=100, fall=0.4)
    found = [learning_rate(step, config, 8) for step in range(1, 101)]
    assert found[:10] == pytest.approx([step / 10 for step in range(1, 11)]) and found[9:60] == [1.0] * 51
    assert found[60:] == pytest.approx([1 - (step - 60) / 40 for step in range(61, 101)])


def test_only_wsd_goes_by_the_clock() -> None:
    with pytest.raises(ValueError, match="only schedule wsd goes by the clock, not cosine"):
        TrainConfig(schedule="cosine", budget=60.0)


def test_a_broken_schedule_is_named(tmp_path: Path) -> None:
    (tmp_path / SCHEDULE).write_text("{")
    with pytest.raises(RegardError, match=r"schedule\.json is not whole JSON"):
        Timetable(timed(), tmp_path, 100).restore(5, 0.0, 1.0)


def test_the_number_of_threads_is_written_down_and_followed(tmp_path: Path) -> None:
    """A run that is repeated where another number would be faster takes as many at the same steps."""
    seen: list[tuple[int, int]] = []

    class Watched(TimedTrainer):
        def learn(self) -> None:
            seen.append((self.progress.step, torch.get_num_threads()))
            super().learn()

    def disturbed(spent: float) -> float:
        """Two threads are faster, but for a while in the middle."""
        return {1: 1.0, 2: 3.0 if 30 < spent < 70 else 0.6}[torch.get_num_threads()]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first, again = (
            slow_job(tmp_path / "first", timed(), disturbed),
            slow_job(tmp_path / "again", timed(), lambda _: 3.0),
        )
        for job in (first, again):
            job.folder.mkdir()
        Watched(first, silent).run(False)
        took = dict(seen)
        alone = [step for step, threads in took.items() if threads == 1]
        assert 20 < len(alone) < len(took) - 20  # the trials, and most of the while
        assert took[max(took)] == 2
        (again.folder / SCHEDULE).write_bytes((first.folder / SCHEDULE).read_bytes())
        seen.clear()
        Watched(again, silent).run(False)
        assert dict(seen) == took
        assert torch.get_num_threads() == 2  # afterwards, as before
    finally:
        torch.set_num_threads(before)


def test_a_trial_takes_the_number_of_threads_that_is_clearly_faster() -> None:
    for paces, now, wanted in (({1: 1.0, 4: 2.0}, 4, 1), ({1: 2.0, 4: 1.0}, 1, 4), ({1: 1.0, 4: 1.05}, 4, 4)):
        trial, threads, tried = ThreadTrial(4), now, []
        for number in range(6):
            threads = trial.took(threads, paces[threads], due=number == 0)
            tried.append(threads)
        other = 1 if now == 4 else 4
        assert tried == [other, now, other, now, wanted, wanted]
    assert trial.took(4, 1.05 * 1.6, due=False) == 1  # suddenly slower: it tries again by itself


def test_speed_is_measured_with_the_fastest_number_of_threads() -> None:
    """With both cores taken by others, updates of two threads took 9 s, those of one less than a second."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError), fastest_threads(lambda: time.sleep(0.01 * torch.get_num_threads())):
            assert torch.get_num_threads() == 1
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
