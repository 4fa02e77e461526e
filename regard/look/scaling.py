"""Scaling laws as they are shown: the runs of a family of sizes, the laws of its losses, and the best size for a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from regard.evaluate.power_law import Interval, PowerLaw
from regard.files import JSON
from regard.look.panels import Curve, Curves, Facts, OnePanel, Panels, short

LAWS = {  # name -> (what falls, in a table; what was fitted)
    "N": ("parameters", "all sizes on the most data"),
    "D": ("tokens", "the largest size on all amounts"),
    "C": ("operations", "the best run for its operations"),
    "N, D": ("both", "all runs: E + A N^-α + B D^-β"),
}
DRAWN = 60  # points of a law
RULE = 20.0  # tokens a parameter, of the rule of thumb (Hoffmann et al. 2022)


@dataclass(frozen=True)
class ScaleRun:
    """One run of a family."""

    size: str
    parameters: int
    embedding: int  # of these, in tables of the vocabulary
    tokens: int  # learned from
    operations: float  # floating-point, of the whole training
    loss: float  # nats for each token of unseen text
    seconds: float
    passes: float  # over the training text


@dataclass(frozen=True)
class Spending:
    """A size that so many operations are spent on: what learns from so many tokens, and its loss by the law."""

    parameters: float
    tokens: float
    loss: float


@dataclass(frozen=True)
class Choice:
    """Which size is best for so many operations: of those that were trained, by the law, by the rule of thumb."""

    operations: float
    among: tuple[str, ...]  # sizes that were trained with fewer operations and with more
    best: str  # of these, by losses between their runs; "" if none was
    best_parameters: int
    best_loss: float
    law: Spending
    rule: Spending

    @property
    def inside(self) -> bool:
        """Whether the best has a smaller and a larger one beside it."""
        return self.best in self.among[1:-1]


@dataclass(frozen=True, eq=False)
class Scaling(Panels):
    """A family of sizes, and what follows from its losses."""

    called = "a family of sizes"

    runs: tuple[ScaleRun, ...]
    laws: Mapping[str, PowerLaw]  # by what the loss falls with: N, D, C; "N, D" for both
    straight: Mapping[str, PowerLaw]  # the same with E = 0, of those with one exponent
    choices: tuple[Choice, ...]

    def panels(self) -> Sequence[OnePanel]:
        return [
            self.table_of_runs(),
            *([self.table_of_laws()] if self.laws else []),
            *([self.table_of_choices()] if self.choices else []),
            self._against_parameters(),
            self._against_tokens(),
            self._against_operations(),
            *([self._best_sizes()] if self.choices else []),
        ]

    def data(self) -> dict[str, JSON]:
        laws: dict[str, JSON] = {name: law.data() for name, law in self.laws.items()}  # type: ignore[misc]
        for name, line in self.straight.items():
            laws[name] |= {"without_floor": line.data()}  # type: ignore[operator]
        return {
            "title": self.title, "notes": list(self.notes), "runs": [asdict(each) for each in self.runs], "laws": laws,
            "choices": [{**asdict(each), "inside": each.inside} for each in self.choices],
        }  # fmt: skip

    # --- Tables

    def table_of_runs(self) -> Facts:
        columns = ("size", "parameters", "tokens", "a parameter", "operations", "seconds", "passes", "loss")
        lines = tuple(
            (
                each.size, f"{each.parameters:,}", f"{each.tokens:,}", f"{each.tokens / each.parameters:.3g}",
                short(each.operations), f"{each.seconds:,.0f}", f"{each.passes:.2g}", f"{each.loss:.4f}",
            )
            for each in self.runs
        )  # fmt: skip
        return Facts("runs", columns, lines)

    def table_of_laws(self) -> Facts:
        columns = ("the loss falls with", "points", "exponent", "95%", "E", "95%", "error", "exponent if E is 0", "95%")
        lines = []
        for name, law in self.laws.items():
            for number, (each, exponent) in enumerate(law.exponents.items()):
                first = number == 0
                line = self.straight.get(name)
                lines.append(
                    (
                        LAWS[each][0] + (" (of both)" if len(law.exponents) > 1 else ""), f"{law.points}",
                        f"{exponent:.3f}", interval(law.intervals[each]),
                        *((f"{law.floor:.2f}", interval(law.floors, 2), f"{law.error:.2%}") if first else ("", "", "")),
                        *((f"{line.exponents[each]:.3f}", interval(line.intervals[each])) if line else ("", "")),
                    )
                )  # fmt: skip
        return Facts("laws", columns, tuple(lines))

    def table_of_choices(self) -> Facts:
        columns = (
            "operations",
            "best trained",
            "its loss",
            "by the law",
            "tokens",
            "its loss",
            "20 a parameter",
            "its loss",
        )
        lines = tuple(
            (
                short(each.operations),
                f"{short(each.best_parameters)}{'' if each.inside else ' (at the edge)'}" if each.best else "not trained",
                f"{each.best_loss:.3f}" if each.best else "",
                short(each.law.parameters), short(each.law.tokens), f"{each.law.loss:.3f}",
                short(each.rule.parameters), f"{each.rule.loss:.3f}",
            )
            for each in self.choices
        )  # fmt: skip
        return Facts("which size for so many operations", columns, lines)

    # --- Curves

    def _by(self, key: str, names: Mapping[str, str], across: str) -> dict[str, Curve]:
        """The losses over one number of the runs, a curve for each value of another."""
        found: dict[str, Curve] = {}
        for value, name in names.items():
            runs = sorted(
                (run for run in self.runs if str(getattr(run, key)) == value), key=lambda run: getattr(run, across)
            )
            places = np.array([getattr(run, across) for run in runs], dtype=float)
            found[name] = Curve(places, np.array([run.loss for run in runs]))
        return found

    def _sizes(self) -> dict[str, str]:
        return {run.size: short(run.parameters) for run in self.runs}

    def _against_parameters(self) -> Curves:
        amounts = {str(run.tokens): f"{short(run.tokens)} tokens" for run in self.runs}
        points = self._by("tokens", amounts, "parameters")
        laws = {}
        if (law := self.laws.get("N, D")) is not None:
            for tokens, name in amounts.items():
                places = spread([run.parameters for run in self.runs])
                laws[name] = Curve(places, law.at(N=places, D=float(tokens)))
        return Curves("loss against parameters", points, laws, "parameters N", "nats a token", begins_line=True)

    def _against_tokens(self) -> Curves:
        points, laws = self._by("size", self._sizes(), "tokens"), {}
        if (law := self.laws.get("N, D")) is not None:
            for run in self.runs:
                places = spread([each.tokens for each in self.runs])
                laws[short(run.parameters)] = Curve(places, law.at(N=run.parameters, D=places))
        return Curves("loss against data", points, laws, "tokens D", "nats a token", note="dashed: the law of both")

    def _against_operations(self) -> Curves:
        points, laws = self._by("size", self._sizes(), "operations"), {}
        if (law := self.laws.get("C")) is not None:
            places = spread([run.operations for run in self.runs])
            laws["the best for it"] = Curve(places, law.at(C=places))
        return Curves(
            "loss against compute", points, laws, "floating-point operations C", "nats a token", begins_line=True
        )

    def _best_sizes(self) -> Curves:
        places = np.array([each.operations for each in self.choices])
        trained = [each for each in self.choices if each.best]
        points = {
            "best trained": Curve(
                np.array([each.operations for each in trained]),
                np.array([float(each.best_parameters) for each in trained]),
            )
        }
        laws = {
            "by the law": Curve(places, np.array([each.law.parameters for each in self.choices])),
            "20 tokens a parameter": Curve(places, np.array([each.rule.parameters for each in self.choices])),
        }
        return Curves("the size that so much compute is best spent on", points, laws, "floating-point operations C",
                      "parameters N", note="beyond the last dot: not measured")  # fmt: skip


def spread(places: Sequence[float]) -> np.ndarray:
    """Places evenly apart in the logarithm, from the least to the greatest."""
    return np.geomspace(min(places), max(places), DRAWN)


def interval(ends: Interval, digits: int = 3) -> str:
    """An interval in words: 0.12 to 0.34; open where nothing is excluded."""
    low, high = ends
    if math.isinf(high):
        return "any" if low <= 0 else f"{low:.{digits}f} or more"
    return f"{low:.{digits}f} to {high:.{digits}f}" if low > 0 else f"up to {high:.{digits}f}"
