"""`train`, and the loop of a run that goes by the clock: its timetable, and the number of threads that is fastest now.

Whatever the clock decides is in the timetable and is written down (`schedule.json`): also the number of threads, for sums in
another order differ in their last bits.
"""

from __future__ import annotations

import torch

from regard.training.events import OnEvent, Working
from regard.training.job import Job, Outcome
from regard.training.loop import Trainer
from regard.training.show import Show
from regard.training.state import has_checkpoint
from regard.training.timetable import Timetable
from regard.trials import ThreadTrial

BEFORE_FALL = "before-fall"  # folder of the checkpoint from which a timed run can be made longer


def train(job: Job, show: Show, resume: bool = False, longer: bool = False) -> Outcome:
    """Run a job in its folder, from the start or from its last checkpoint; `longer`: it has been given more time."""
    job.folder.mkdir(parents=True, exist_ok=True)
    show = show if job.world.is_first else Show()
    with show:
        show(Working("getting ready to learn"))
        return trainer_of(job, show).run(resume, longer)


def trainer_of(job: Job, emit: OnEvent) -> Trainer:
    """The loop of a job: by the clock where it has a budget, else by its steps."""
    return Trainer(job, emit) if job.config.budget is None else TimedTrainer(job, emit)


class TimedTrainer(Trainer):
    """A loop that uses the time it was given: validations, the fall of the rate and the end come when the clock says so."""

    def __init__(self, job: Job, emit: OnEvent) -> None:
        super().__init__(job, emit)
        self.timetable = Timetable(job.config, job.folder, self.most_steps, writes=job.world.is_first)
        self.threads = torch.get_num_threads()  # most of them
        self.trial = ThreadTrial(self.threads)

    def run(self, resume: bool, longer: bool = False) -> Outcome:
        try:
            return super().run(resume, longer)
        finally:
            torch.set_num_threads(self.threads)

    def note_prepared(self) -> None:
        super().note_prepared()
        self.timetable.start(self.progress.prepared)
        self.timetable.restore(0, self.progress.prepared, self.progress.prepared)  # of a run that is repeated
        self.set_threads()

    def restore(self) -> None:
        super().restore()
        self.timetable.restore(self.progress.step, self.progress.prepared, self.spent_in_all())
        self.set_threads()

    def rewind(self) -> None:
        super().rewind()
        self.world.wait()  # all have read what is forgotten now
        self.timetable.forget(self.progress.step)

    def go_on_longer(self) -> None:
        """Go on from where the rate had not fallen yet. The best weights stay the best so far."""
        before = self.job.folder / BEFORE_FALL
        if not has_checkpoint(before):
            self.timetable.forget_end(self.progress.step)
            return
        ended = self.progress
        self.load_state(before)
        progress = self.progress
        progress.best, progress.best_step, progress.chosen = ended.best, ended.best_step, ended.chosen
        self.log.cut_back(progress.log_sizes)
        self.started = self.clock()
        self.timetable.restore(progress.step, progress.prepared, self.spent_in_all())
        self.world.wait()
        self.timetable.forget_fall(progress.step)
        self.set_threads()
        self.checkpoint()

    # --- What is due

    def validation_is_due(self) -> bool:
        step = self.progress.step
        if step == 0 or self.progress.validated == step:
            return False
        return self.timetable.validation_is_due(step, self.spent_in_all())

    def reason_to_stop(self) -> str:
        step, config = self.progress.step, self.config
        if step >= self.most_steps:
            return "steps"
        if config.max_time is not None and self.spent() >= config.max_time:
            return "time"
        if self.timetable.is_over(step, self.spent_in_all()):
            return self.timetable.reason
        falls = self.timetable.end is not None  # before, patience only begins the fall
        return "patience" if falls and self.is_idle() else ""

    def look(self) -> None:
        began = self.clock()
        self.validate()
        self.look_ahead()
        self.together.agree_on_time()
        if self.timetable.end is None:
            self.timetable.perhaps_idle(self.progress.step, self.spent_in_all(), self.is_idle())
            self.fall_began()
        self.checkpoint()
        self.together.agree_on_time()
        self.timetable.validated(self.progress.step, self.spent_in_all(), self.clock() - began)

    def learn(self) -> None:
        """One update of the weights; then see whether the clock decides anything."""
        before, step, falls = self.clock(), self.progress.step, self.timetable.end is not None
        tokens = self.progress.tokens
        super().learn()
        if self.progress.step == step:  # it went back
            return
        seconds = self.clock() - before
        self.timetable.updated(self.progress.step, self.spent_in_all(), seconds)
        if not falls:
            self.fall_began()
        if self.threads > 1 and not self.timetable.replaying(step):
            self.try_threads(seconds / max(1, self.progress.tokens - tokens))
        self.set_threads()

    def try_threads(self, pace: float) -> None:
        """Decide, after an update that took so many seconds a token, with how many threads the next one is done."""
        step, spent = self.progress.step, self.spent_in_all()
        due = self.timetable.threads_are_due(step, spent)
        self.timetable.use_threads(step, spent, self.trial.took(torch.get_num_threads(), pace, due), due)

    def fall_began(self) -> None:
        """If the rate falls from here on: keep the weights from before, from which a longer run can go on."""
        if self.timetable.end is not None:
            self.progress.waited = 0
            self.note_progress()
            self.keep_state(self.job.folder / BEFORE_FALL)

    def set_threads(self) -> None:
        """As many as were decided on last."""
        wanted = self.timetable.threads or self.threads
        if wanted != torch.get_num_threads():
            torch.set_num_threads(wanted)

    # --- What follows from it

    def rate(self, step: int) -> float:
        return self.config.lr * self.timetable.share(step)

    def logs_at(self, step: int) -> bool:
        return step % self.config.log_every == 0

    def last_update(self) -> int | None:
        return self.timetable.end

    def foreseen(self) -> tuple[int, float]:
        step = self.progress.step
        return self.timetable.foresee_end(step, self.spent_in_all()), self.timetable.share(step)

    def finish(self, reason: str) -> Outcome:
        self.timetable.finish(self.progress.step, reason)
        return super().finish(reason)
