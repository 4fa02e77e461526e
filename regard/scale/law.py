"""What follows from the losses of a family: laws in parameters, data and compute, and the size that a budget is best spent on.

The law of both, L = E + A N^-α + B D^-β, says for C operations which N is best: the one for which it is least along
D = C / f(N), where f(N) are the operations to learn from one token (Hoffmann et al. 2022, section 3.3; there 6 N). The rule of
thumb beside it is theirs for large models: 20 tokens a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from regard.errors import RegardError
from regard.evaluate.power_law import PowerLaw, fit_power_law
from regard.look.panels import short
from regard.look.scaling import LAWS, RULE, Choice, ScaleRun, Scaling, Spending
from regard.scale.family import Family

FEWEST = 3  # points of a law with one exponent
OF_BOTH = 6  # of the law of both, which has five numbers
COVERED = 3  # sizes that must have been trained around an amount of compute, to tell which is best
LEVELS = 200  # amounts of compute that are looked at to find where sizes can be compared
AGAIN = 4.0  # passes over a text from which on it is worth less than as many fresh tokens (Muennighoff et al. 2023)


def scaling_of(family: Family) -> Scaling:
    """The runs of a family, their laws, and the size that its compute would best be spent on."""
    runs = [_run(family, number) for number, point in enumerate(family.points) if not point.error]
    if len(runs) < FEWEST:
        errors = [point.error for point in family.points if point.error]
        raise RegardError(
            f"a law needs {FEWEST} runs, and {len(runs)} came to their end{f': {errors[0]}' if errors else ''}"
        )
    laws, straight = _laws(runs)
    choices = tuple(_choices(runs, laws["N, D"])) if "N, D" in laws else ()
    kind = family.config["model"]["kind"]
    notes = tuple(_notes(family, runs, laws, choices))
    return Scaling(f"{len(family.sizes)} sizes of {kind}", notes, tuple(runs), laws, straight, choices)


def _run(family: Family, number: int) -> ScaleRun:
    point = family.points[number]
    size = family.size(point.size)
    operations = family.operations[size.name] * point.tokens
    passes = point.tokens / max(1, family.text)
    return ScaleRun(
        size.name, size.parameters, size.embedding, point.tokens, operations, point.loss, point.seconds, passes
    )


# --- Laws


def _laws(runs: Sequence[ScaleRun]) -> tuple[dict[str, PowerLaw], dict[str, PowerLaw]]:
    """The laws that there are enough runs for; and those with one exponent again with E = 0."""
    most, largest = max(run.tokens for run in runs), max(run.parameters for run in runs)
    chosen = {
        "N": ("parameters", [run for run in runs if run.tokens == most]),
        "D": ("tokens", [run for run in runs if run.parameters == largest]),
        "C": ("operations", efficient(runs)),
    }
    laws, straight = {}, {}
    for name, (key, some) in chosen.items():
        if len(some) >= FEWEST:
            losses, places = [run.loss for run in some], {name: [float(getattr(run, key)) for run in some]}
            laws[name] = fit_power_law(losses, places)
            straight[name] = fit_power_law(losses, places, floor=False)
    different = len({run.parameters for run in runs}), len({run.tokens for run in runs})
    if len(runs) >= OF_BOTH and min(different) > 1:
        both = {"N": [float(run.parameters) for run in runs], "D": [float(run.tokens) for run in runs]}
        laws["N, D"] = fit_power_law([run.loss for run in runs], both)
    return laws, straight


def efficient(runs: Sequence[ScaleRun]) -> list[ScaleRun]:
    """The runs that no other reached with as few operations, by operations."""
    found: list[ScaleRun] = []
    for run in sorted(runs, key=lambda run: (run.operations, run.loss)):
        if not found or run.loss < found[-1].loss:
            found.append(run)
    return found


# --- Which size


def _choices(runs: Sequence[ScaleRun], law: PowerLaw) -> Iterator[Choice]:
    """The best size where several were trained around an amount of compute; then for all compute of the family at once."""
    for operations in _levels(runs):
        yield _choice(runs, law, operations)
    yield _choice(runs, law, sum(run.operations for run in runs))


def _levels(runs: Sequence[ScaleRun]) -> list[float]:
    """The least, the middle and the greatest compute around which enough sizes were trained to compare them."""
    every = np.geomspace(min(run.operations for run in runs), max(run.operations for run in runs), LEVELS)
    counts = np.array([len(_around(runs, operations)) for operations in every])
    enough = np.flatnonzero(counts >= min(COVERED, counts.max()))
    if counts.max() < 2:
        return []
    return sorted({float(every[place]) for place in (enough[0], enough[len(enough) // 2], enough[-1])})


def _around(runs: Sequence[ScaleRun], operations: float) -> dict[int, float]:
    """The loss at so many operations of each size that was trained with fewer and with more, by its parameters."""
    found = {}
    for parameters in sorted({run.parameters for run in runs}):
        own = sorted((run.operations, run.loss) for run in runs if run.parameters == parameters)
        if own[0][0] <= operations <= own[-1][0]:
            places, losses = zip(*own, strict=True)
            found[parameters] = math.exp(float(np.interp(math.log(operations), np.log(places), np.log(losses))))
    return found


def _choice(runs: Sequence[ScaleRun], law: PowerLaw, operations: float) -> Choice:
    names = {run.parameters: run.size for run in runs}
    around = _around(runs, operations)
    best = min(around, key=around.__getitem__) if around else 0
    every = np.geomspace(min(names) / 10, max(names) * 100, 4000)
    tokens = operations / _each(runs, every)
    losses = law.at(N=every, D=tokens)
    by_law, by_rule = int(losses.argmin()), int(np.abs(np.log(tokens / every / RULE)).argmin())
    spent = [Spending(float(every[place]), float(tokens[place]), float(losses[place])) for place in (by_law, by_rule)]
    among = tuple(names[parameters] for parameters in around)
    return Choice(operations, among, names.get(best, ""), best, around.get(best, math.nan), *spent)


def _each(runs: Sequence[ScaleRun], parameters: np.ndarray) -> np.ndarray:
    """Operations to learn from one token: 6 N, times a factor that is measured, and taken as at the ends beyond them."""
    known = sorted({(run.parameters, run.operations / run.tokens / (6 * run.parameters)) for run in runs})
    places, factors = zip(*known, strict=True)
    return np.asarray(6 * parameters * np.interp(np.log(parameters), np.log(places), factors))


# --- In words


def _notes(
    family: Family, runs: Sequence[ScaleRun], laws: dict[str, PowerLaw], choices: Sequence[Choice]
) -> Iterator[str]:
    yield (
        f"every loss is that of a run of its own, whose learning rate fell to zero; {family.rows:,} tokens an update, "
        "one seed; parameters with embeddings, operations forward and backward"
    )
    for name, law in laws.items():
        for each in law.exponents:
            if not law.known(each):
                yield f"{_fitted(name)}: {_not_told_apart(law, each)}"
    again = max(run.passes for run in runs)
    if again > AGAIN:
        yield f"the longest runs read the text {again:.0f} times: what is read again is worth less than fresh text"
    if choices and not any(each.inside for each in choices):
        yield "no size in the middle was the best anywhere: smaller ones, larger ones or another budget would tell more"
    for point in family.points:
        if point.error:
            yield f"size {point.size} on {short(family.steps[point.amount] * family.rows)} tokens failed: {point.error}"


def _fitted(name: str) -> str:
    return f"{LAWS[name][0] if name != 'N, D' else 'both'} ({LAWS[name][1].partition(':')[0]})"


def _not_told_apart(law: PowerLaw, name: str) -> str:
    """Say which pairs of E and exponent fit about as well."""
    (low, high), (first, last) = law.intervals[name], law.at_ends[name]
    symbol = {"N": "α", "D": "β", "C": "γ"}[name]
    ends = f"from {symbol} {'near 0' if low <= 0 else f'{low:.2g}'} with E {first:.2f} to {symbol} " + (
        "of any size" if math.isinf(high) else f"{high:.2g} with E {last:.2f}"
    )
    return f"E and {symbol} cannot be told apart by {law.points} points: {ends} all fit about as well"
