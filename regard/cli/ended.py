"""What `regard train` says at the end of a run, or of a rehearsal: figures, a verdict, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.cli.cost import bill_line, operations
from regard.cli.options import Tables
from regard.cli.output import print_json, print_table, say
from regard.data.notation import NOTATIONS
from regard.runs import read_run
from regard.tasks.configure import check_run
from regard.tasks.table import TASKS
from regard.training.outlook import more_seconds
from regard.training.show import metrics_line, number
from regard.training.stopwatch import duration, roughly

if TYPE_CHECKING:
    from regard.tasks.rehearse import Rehearsal
    from regard.tasks.run import RunResult
    from regard.training.verdict import Verdict

REASONS = {
    "steps": "all steps done",
    "time": "the time is up",
    "patience": "validations no longer got better",
}
NO_TEST = "builtin/python"  # the only built-in data without a test set


def print_rehearsal(found: Rehearsal, as_json: bool) -> None:
    if as_json:
        print_json(found.data())
        return
    speed = f"{found.update:.2g} s an update, {found.validation:.2g} s a validation"
    passes = f"{found.passes:,.0f}" if found.passes >= 10 else f"{found.passes:.2g}"
    rows = [
        *(("data", note) for note in found.notes),
        *((each.setting, f"{each.value} ({each.why})") for each in found.choices if each.why),
        ("parameters", f"{found.parameters:,}"),
        ("speed", speed),
        ("updates", f"about {found.steps:,} in {roughly(found.seconds)}: {passes} passes over the data"),
        ("cost", f"{operations(found.operations)} floating-point operations; {bill_line(found.bill)}"),
        ("energy", f"{found.bill.how}; regard cost takes other prices, once it is trained"),
        (
            "to expect",
            str(found.expectation or "nothing like it was measured; a run says it from a quarter of its time on"),
        ),
    ]
    print_table(("", " "), rows, fold=(" ",))


def summary(result: RunResult) -> dict[str, object]:
    outcome = result.outcome
    return {
        "run": str(result.folder),
        "reason": outcome.reason,
        "step": outcome.progress.step,
        "seconds": outcome.progress.seconds,
        "tokens": outcome.progress.tokens,
        "weights": outcome.chosen,
        "metrics": outcome.metrics,
        "verdict": result.verdict.data(),
        "bundle": str(result.best),
        "curves": str(result.curves),
        **({} if result.tuning is None else {"fine_tuning": result.tuning}),
    }


def print_summary(result: RunResult) -> None:
    outcome, verdict = result.outcome, result.verdict
    took = f"{outcome.progress.step:,} steps in {duration(outcome.progress.seconds)}"
    rows = [
        ("run", str(result.folder)),
        ("ended", f"{REASONS.get(outcome.reason, outcome.reason)} ({took})"),
        ("weights", outcome.chosen),
        ("metrics", f"{metrics_line(outcome.metrics)} (validation)"),
        ("verdict", str(verdict)),
        *([("forecast", f"{verdict.came} (half way)")] if verdict.came else []),
        ("next", next_step(verdict, result)),
        ("bundle", str(result.best)),
        ("curves", str(result.curves)),
        ("try it", _first_try(result).format(model=result.folder)),
        ("score it", f"regard eval {result.folder} --on {_test_set(result)}"),
    ]
    print_table(("", " "), rows, fold=(" ",))
    if result.tuning is not None:
        print_tuning(result.tuning)


def print_tuning(table: Tables) -> None:
    """A table of the gain on the new data and the loss on the old, with 95% intervals."""
    share = f", blended {table['blend']:g} with its weights" if table["blend"] else ""
    say(f"against {table['start']}{share} (validation, with 95% intervals):")
    rows = [
        (row["data"], row["metric"], *(_figure(row["metric"], row[when]) for when in ("before", "after", "change")))
        for row in table["rows"]
    ]
    print_table(("data", "metric", "before", "after", "change"), rows)


def _figure(metric: str, found: Tables) -> str:
    if found["low"] is None:
        return number(metric, found["value"])
    return f"{number(metric, found['value'])} ({number(metric, found['low'])} to {number(metric, found['high'])})"


def next_step(verdict: Verdict, result: RunResult) -> str:
    """The thing to do after such a verdict."""
    config = check_run(read_run(result.folder)["config"], str(result.folder))
    if verdict.learning:
        train = config.train
        more = f"--steps {2 * train.steps}" if train.budget is None else f"--budget {typed(more_seconds(train.budget))}"
        better = f" (about {number(verdict.metric, verdict.gain)} {verdict.metric} better)" if verdict.gain else ""
        return f"regard train --resume {result.folder} {more}{better}"
    if verdict.state == "overfitting":
        drops = "dropout" in config.model.model_dump()
        return f"more data, or {'more dropout: --set model.dropout=0.3' if drops else 'a smaller model'}"
    if verdict.state == "not yet useful":
        return "more data, or other settings: regard tune"
    return "nothing; other settings might give a little more: regard tune"


def typed(seconds: float) -> str:
    """A time as a person types it: 45s, 20m, 2h."""
    if seconds < 120:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:g}m" if seconds < 7200 else f"{seconds / 3600:g}h"


def _first_try(result: RunResult) -> str:
    """What to type first of all with the model in {model}: of music and sound, what writes a file."""
    config: Any = read_run(result.folder)["config"]
    notation = NOTATIONS.get((config.get("tokens") or {}).get("kind", ""))
    return TASKS[result.task].first_try if notation is None else notation.example


def _test_set(result: RunResult) -> str:
    """Name the data to test a run on: the built-in test set of built-in data, or a file of the person's."""
    config: Any = read_run(result.folder)["config"]
    name = str(config["data"]["train"][0])
    built_in = name.startswith("builtin/") and not name.startswith(NO_TEST)
    notation = NOTATIONS.get((config.get("tokens") or {}).get("kind", ""))
    own = TASKS[result.task].test if notation is None else notation.test
    return f"{name.removesuffix('/train')}/test" if built_in else own
