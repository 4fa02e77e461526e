"""The training loop, for every family and task. It is handed what to learn from, how to validate and how to save."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from regard.bundle import WEIGHTS
from regard.errors import RegardError
from regard.files import clear_leftovers, read_json, standing_folder
from regard.tensors import read_tensors, weights_of, write_tensors
from regard.training.cut import whole
from regard.training.events import Checkpoint, End, Note, Validated, Working
from regard.training.finetune import (
    BLEND,
    TUNED,
    FineTuning,
    blended,
    choose_share,
    compare,
    write_table,
)
from regard.training.guard import ADVICE, stop_requests
from regard.training.job import Outcome
from regard.training.optimiser import (
    learning_rate,
)
from regard.training.outlook import SCHEDULES, look_ahead, outlook_row
from regard.training.shares import Share
from regard.training.state import (
    load_checkpoint,
    mean_of,
    save_checkpoint,
    weights_in_place,
)
from regard.training.update import Updates
from regard.training.validation import Selection, Validation, choose


class Trainer(Updates):
    """A run of updates: what is due between them, what is kept, and which weights are the best."""

    def run(self, resume: bool, longer: bool = False) -> Outcome:
        """Train until a limit, early stopping or a signal; then average, choose and save."""
        if self.world.is_first:
            clear_leftovers(self.job.folder)
            clear_leftovers(self.checkpoints)
        self.world.wait()
        if resume:
            self.restore()
            if longer:
                self.go_on_longer()
            self.emit(Note(f"going on at step {self.progress.step:,}"))
        else:
            self.begin()
        if self.progress.finished and self.reason_to_stop():  # nothing is left to do
            return self.end(self.progress.finished)
        self.progress.finished = ""
        self.watch = self.new_watch()
        self.emit(Working("the first update"))
        with stop_requests(patient=not self.world.is_alone) as self.asked, contextlib.closing(self.feed):
            while True:
                if self.is_told_to_stop():
                    self.checkpoint()
                    return self.end("interrupted")
                if self.validation_is_due():
                    self.look()
                elif reason := self.reason_to_stop():
                    break
                else:
                    self.learn()
        return self.finish(reason)

    def is_told_to_stop(self) -> bool:
        """Whether a signal came; to any of several processes, as all of them know since the last update."""
        return bool(self.asked) if self.world.is_alone else self.together.stops

    def begin(self) -> None:
        """Keep what there is before the first update."""
        self.note_prepared()
        self.probe()
        self.checkpoint()

    def note_prepared(self) -> None:
        """Note how long it took to get ready, since the run was asked for."""
        self.together.agree_on_time()
        self.progress.prepared = self.world.agree(0.0 if self.job.asked is None else self.clock() - self.job.asked)

    def validation_is_due(self) -> bool:
        """Once for each multiple of `every`, also when the run was stopped or went back just there."""
        step = self.progress.step
        return step > 0 and self.progress.validated != step and step % self.every == 0

    def reason_to_stop(self) -> str:
        config = self.config
        if self.progress.step >= self.most_steps:
            return "steps"
        if config.max_time is not None and self.spent() >= config.max_time:
            return "time"
        return "patience" if self.is_idle() else ""

    def is_idle(self) -> bool:
        """Whether validations have not got better for as long as a person has patience."""
        return bool(self.config.patience) and self.progress.waited >= self.config.patience

    def look(self) -> None:
        """Validate, and keep all that was learned so far."""
        self.validate()
        self.look_ahead()
        self.checkpoint()

    def go_on_longer(self) -> None:
        """Make ready for more time than was known before. A run that does not go by the clock simply goes on."""

    def validate(self) -> None:
        """Look at unseen data; keep these weights if they are the best so far, and for the final average."""
        progress = self.progress
        averaged = self.averaged()
        with self.together.whole(), weights_in_place(self.model, averaged):
            found = self.evaluate()
            self.probe()
            choice = choose(found, progress.best, self.config.select)
            if choice.better:
                self.save("best", {"weights": f"step {progress.step}", **found.metrics})
            self.keep_snapshot()
        if choice.better:
            progress.best, progress.best_step, progress.waited = found.metrics, progress.step, 0
            progress.chosen = f"step {progress.step}"
        else:
            progress.waited += 1
        progress.validated = progress.step
        self.log.write(
            {"kind": "valid", "step": progress.step, **found.metrics, **_choice_row(choice), **_error_row(found)}
        )
        self.emit_validation(f"step {progress.step}", found, choice)

    def averaged(self) -> dict[str, Tensor] | None:
        """The moving average of the weights, if there is one."""
        ema = self.learner.ema
        return None if ema is None else {name: whole(tensor) for name, tensor in ema.tensors.items()}

    def look_ahead(self) -> None:
        """Tell what to expect of the end, if the schedule says when that is."""
        foreseen = self.foreseen()
        if foreseen is None or not self.world.is_first:
            return
        end, rate = foreseen
        found = look_ahead(self.log.rows(), self.config, self.progress.step / end, rate)
        if found is not None:
            self.log.write(outlook_row(found))
            self.emit(found)

    def foreseen(self) -> tuple[int, float] | None:
        """The last update as one can tell now, and the present rate as a share of its peak."""
        step, config = self.progress.step, self.config
        if config.schedule not in SCHEDULES or self.most_steps != config.steps:
            return None
        return config.steps, learning_rate(step, config, self.job.width) / config.lr

    def emit_validation(self, weights: str, found: Validation, choice: Selection) -> None:
        best, spent = (choice.better, choice.by, choice.why), self.spent()
        self.emit(Validated(self.progress.step, weights, found.metrics, tuple(found.samples), *best, spent))
        self.watch.pause(spent, self.progress.tokens)

    def evaluate(self) -> Validation:
        self.emit(Working("validating"))
        self.model.eval()
        with torch.no_grad():
            found = self.job.validate(self.model)
        if not self.world.is_alone:  # other machines may round otherwise
            metrics, errors = self.world.agree([found.metrics, found.errors])
            found = replace(found, metrics=metrics, errors=errors)
        if self.config.select not in found.metrics:
            known = ", ".join(found.metrics)
            raise RegardError(f"train.select is {self.config.select}, but a validation gives {known}")
        return found

    def probe(self) -> None:
        """Keep where the model looks now, if the job has texts for it."""
        if self.job.probe is None:
            return
        with self.together.whole():
            if self.world.is_first:
                self.model.eval()
                self.job.probe(self.model, self.progress.step)

    def keep_snapshot(self) -> None:
        if not self.config.average:
            return
        if self.world.is_first:
            self.snapshots.mkdir(exist_ok=True)
            write_tensors(self.snapshot(self.progress.step), weights_of(self.model))
        self.progress.snapshots = [*self.progress.snapshots, self.progress.step][-self.config.average :]

    def snapshot(self, step: int) -> Path:
        return self.snapshots / f"step-{step}.safetensors"

    def finish(self, reason: str) -> Outcome:
        """Choose between the best weights and the average of the last ones; write `last` and the best as bundles."""
        progress = self.progress
        if progress.validated != progress.step or not progress.best:
            self.validate()
        self.save("last", {"weights": f"step {progress.step}"})
        if len(progress.snapshots) > 1:
            mean = mean_of([self.snapshot(step) for step in progress.snapshots])
            with self.together.whole(), weights_in_place(self.model, mean):
                found = self.evaluate()
                choice = choose(found, progress.best, self.config.select)
                name = f"average of steps {progress.snapshots[0]}..{progress.snapshots[-1]}"
                if choice.better:
                    self.save("best", {"weights": name, **found.metrics})
                    progress.best, progress.best_step, progress.chosen = found.metrics, progress.step, name
            self.log.write({"kind": "average", "step": progress.step, **found.metrics, **_choice_row(choice)})
            self.emit_validation(name, found, choice)
        if self.job.tuning is not None:
            with self.together.whole():
                self.weigh_start(self.job.tuning)
        progress.finished = reason
        self.checkpoint()
        return self.end(reason)

    def weigh_start(self, tuning: FineTuning) -> None:
        """Blend the best weights with those that the run started from, if asked; write what was gained and lost."""
        self.emit(Working("comparing with the model that it started from"))
        old, new, share = tuning.weights(), self.tuned_weights(), 0.0
        if self.progress.chosen.startswith(BLEND):  # a run that had ended, was made longer and found nothing better
            return
        if self.config.blend:
            chosen = choose_share(self.model, new, tuning) if self.config.blend == "auto" else self.config.blend
            share = self.world.agree(chosen)
        if share:
            new = blended(new, old, share)
            self.keep_blend(new, share, tuning.start)
        found = compare(self.model, old, new, tuning.sides)
        if self.world.is_first:
            write_table(self.job.folder, tuning.start, share, found)

    def tuned_weights(self) -> dict[str, Tensor]:
        """The best weights; where a stop came after they were blended and before that was noted, those before it."""
        name = "best" if self.named_weights("best") == self.progress.chosen else TUNED
        weights: dict[str, Tensor] = read_tensors(standing_folder(self.job.folder / name) / WEIGHTS)
        return weights

    def named_weights(self, bundle: str) -> object:
        found = read_json(standing_folder(self.job.folder / bundle) / "metrics.json")
        return found.get("weights") if isinstance(found, dict) else None

    def keep_blend(self, weights: dict[str, Tensor], share: float, start: str) -> None:
        """Make the blended weights the best, and keep those before it beside them."""
        progress = self.progress
        if self.named_weights("best") == progress.chosen:
            with weights_in_place(self.model, self.tuned_weights()):
                self.save(TUNED, {"weights": progress.chosen, **progress.best})
        with weights_in_place(self.model, weights):
            found, name = self.evaluate(), f"{BLEND}{1 - share:g} {progress.chosen}, {share:g} {start}"
            self.save("best", {"weights": name, **found.metrics})
        progress.best, progress.chosen = found.metrics, name
        self.log.write({"kind": "blend", "step": progress.step, "share": share, **found.metrics, "best": True})
        self.emit_validation(name, found, Selection(True, "blend"))

    def end(self, reason: str) -> Outcome:
        progress = self.progress
        self.emit(End(reason, progress.step, self.spent(), progress.chosen, progress.best))
        return Outcome(reason, progress, progress.chosen, progress.best)

    def save(self, name: str, metrics: dict[str, object]) -> None:
        """Write the bundle `name`, once for all processes; all may read it then."""
        with self.together.whole():
            if self.world.is_first:
                self.job.save(self.model, name, metrics)
        self.world.wait()

    def checkpoint(self) -> None:
        self.note_progress()
        folder = self.keep_state(self.checkpoints)
        if self.world.is_first:
            self.drop_snapshots()
        self.emit(Checkpoint(self.progress.step, folder))

    def keep_state(self, folder: Path) -> Path:
        """Write a checkpoint, from which any number of processes may go on."""
        if self.together.sharded:
            return save_checkpoint(folder, self.learner, self.job.fingerprint, self.world)
        if self.world.is_first:
            save_checkpoint(folder, self.learner, self.job.fingerprint)
        return folder / f"step-{self.progress.step}"

    def note_progress(self) -> None:
        progress = self.progress
        progress.seconds, self.started = self.spent(), self.clock()
        progress.log_sizes, progress.scaling = self.log.sizes(), self.scaling.state_dict()

    def drop_snapshots(self) -> None:
        """Only what the checkpoint names stays: older ones are not needed, newer ones will be written again."""
        names = {self.snapshot(step).name for step in self.progress.snapshots}
        for file in self.snapshots.glob("*"):
            if file.name not in names:
                file.unlink()

    def restore(self) -> None:
        self.load_state(self.checkpoints)
        self.log.cut_back(self.progress.log_sizes)
        if self.world.is_first:
            self.drop_snapshots()
        self.started = self.clock()

    def load_state(self, folder: Path) -> None:
        """Put a checkpoint back, in every process, before any of them writes again."""
        load_checkpoint(folder, self.learner, self.job.fingerprint, tidy=self.world.is_first)
        if self.progress.scaling:
            self.scaling.load_state_dict(self.progress.scaling)
        self.world.wait()

    def rewind(self) -> None:
        """Back to the last checkpoint, to go another way from there."""
        self.restore()

    def go_back(self, trouble: str, shares: Sequence[Share]) -> None:
        """After a divergence: back to the last checkpoint with half the rate, once; then stop with advice."""
        trouble += f" at step {self.progress.step + 1}{self.locate(shares)}"
        self.learner.optimiser.zero_grad(set_to_none=True)
        self.scaling.update()
        went_back, spent = self.progress.went_back, self.spent()
        self.rewind()
        self.progress.seconds = spent
        if went_back:
            self.save("last", {"weights": f"step {self.progress.step}"})
            raise RegardError(
                f"{trouble}", f"it happened before, so the run stops at step {self.progress.step}. Now {ADVICE}"
            )
        self.progress.went_back, self.progress.rate_factor = 1, self.progress.rate_factor / 2
        self.log.write({"kind": "went back", "step": self.progress.step, "why": trouble})
        self.checkpoint()
        self.watch = self.new_watch()
        self.emit(Note(f"{trouble}; going back to step {self.progress.step} with half the learning rate"))


def _choice_row(choice: Selection) -> dict[str, object]:
    """A choice as columns of the log: whether these weights are the best so far, and by which metric."""
    return {"best": choice.better, "by": choice.by, **({"why": choice.why} if choice.why else {})}


def _error_row(found: Validation) -> dict[str, object]:
    """The standard errors of scores, where they have any, as a column of the log."""
    return {"errors": found.errors} if found.errors else {}
