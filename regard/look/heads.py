"""The report of heads: the role of each, whether it matters, whether a model repeats by induction, how faithful maps are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from regard.attention import Role
from regard.brief import brief, quoted
from regard.evaluate.bootstrap import Estimate
from regard.files import JSON, finite
from regard.look.roles import NO_RULE, Measure, names_of, rules_as_data
from regard.look.shown import Shown

HeadName = tuple[int, int]  # layer and head, from 0


def named(heads: tuple[HeadName, ...]) -> str:
    return ", ".join(f"{layer}.{head}" for layer, head in heads)


@dataclass(frozen=True)
class Induction:
    """Behaviour of a language model on random tokens that come twice (Olsson et al. 2022, "In-context learning and
    induction heads"): each token of the second half has been there before, and what followed it then comes next.
    """

    sequences: int
    length: int  # tokens that are repeated
    scores: dict[HeadName, float]  # mean weight from a token of the second half to the one behind its first occurrence
    previous: dict[HeadName, float]  # mean weight on the token before
    chance: float  # what an even map gives the first of these
    first: Estimate  # loss of the first half, nats a token
    second: Estimate  # and of the second
    gain: Estimate  # the first minus the second, of the whole model
    heads: tuple[HeadName, ...]  # those that the rule names, or the one that comes nearest
    holds: bool  # whether the rule names any
    gain_without: Estimate  # with these removed
    gain_random: tuple[float, ...]  # with as many others removed instead, drawn at random, one number for each draw

    def sentences(self) -> list[str]:
        best = max(self.scores, key=lambda head: self.scores[head])
        highest = f"{self.scores[best]:.2f}, an even map has {self.chance:.2f}"
        who = f"by head {named(self.heads)} ({highest})" if self.holds else f"by no head (at most {highest})"
        others = sum(self.gain_random) / len(self.gain_random) if self.gain_random else None
        instead = (
            "" if others is None else f", without as many others {others:+.2f} (mean of {len(self.gain_random)} draws)"
        )
        return [
            f"Induction, on {self.sequences} sequences of {self.length} random tokens that come twice: {who}.",
            f"The second half is easier than the first by {self.gain.value:+.2f} ± {self.gain.error:.2f} nats a token; without "
            f"head {named(self.heads)} by {self.gain_without.value:+.2f}{instead}.",
        ]

    def data(self) -> dict[str, JSON]:
        return {
            "sequences": self.sequences,
            "length": self.length,
            "chance": self.chance,
            "heads": [
                {"layer": layer, "head": head, "induction": score, "previous": self.previous[layer, head]}
                for (layer, head), score in self.scores.items()
            ],
            "holds": self.holds,
            "removed": [list(head) for head in self.heads],
            "first": self.first.data(),
            "second": self.second.data(),
            "gain": self.gain.data(),
            "gain_without": self.gain_without.data(),
            "gain_random": list(self.gain_random),
        }


@dataclass(frozen=True)
class MapScore:
    """Faithfulness of one map: (attended - random) / (best - random), of the fall of the log-probability of what is
    predicted when a word is removed: the most attended word, any word, the word whose removal it falls most with.
    """

    name: str
    score: Estimate
    drop: float  # mean fall without the most attended word, nats
    hits: float  # how often the most attended word is the best one

    def data(self) -> dict[str, JSON]:
        return {"map": self.name, "score": self.score.data(), "drop": self.drop, "hits": self.hits}


@dataclass(frozen=True)
class Faithfulness:
    """Scores of several maps on the same texts. 0 is no better than a random word, 1 is always the word that matters most."""

    what: str  # whose probability falls
    texts: int
    predictions: int
    words: float  # mean number of words in a text
    random: float  # mean fall without a random word, nats: the mean over all words
    best: float  # mean fall without the best word in hindsight
    maps: tuple[MapScore, ...]

    def of(self, name: str) -> MapScore:
        return next(each for each in self.maps if each.name == name)

    def sentences(self) -> list[str]:
        return [
            f"Faithfulness: {self.what}, {self.predictions:,} predictions of {self.texts:,} texts of {self.words:.1f} words. "
            f"Without a random word the log-probability falls by {self.random:.3f} nats, without the best word in hindsight "
            f"by {self.best:.3f}.",
            "Score: 0, the most attended word matters no more than a random one; 1, it is always the one that matters most.",
        ]

    def data(self) -> dict[str, JSON]:
        return {
            "what": self.what,
            "texts": self.texts,
            "predictions": self.predictions,
            "words": self.words,
            "random": self.random,
            "best": self.best,
            "maps": [each.data() for each in self.maps],
        }


MARKED = 3  # heads, at most, and at most a quarter of all, that are marked as those that matter most
FEW = 20  # texts below which the report warns


@dataclass(frozen=True)
class Head:
    """One head: what every rule measured, and how much the loss changes without it."""

    role: Role
    layer: int
    head: int
    path: str
    measures: dict[str, Measure]
    offsets: tuple[float, ...] = ()  # mean weight by distance from the query's own place
    removal: Estimate | None = None  # nats for each prediction; above zero is worse

    @property
    def rules(self) -> tuple[str, ...]:
        """All that hold, the strongest first."""
        return names_of(self.measures)

    @property
    def rule(self) -> str:
        return self.rules[0] if self.rules else NO_RULE

    def number(self, rule: str | None = None) -> str:
        """The number that made the rule fire; without a rule, that of the one that came nearest."""
        if not self.measures:
            return ""
        rule = rule or (self.rules[0] if self.rules else max(self.measures, key=lambda n: self.measures[n].strength))
        found = self.measures[rule]
        name = "" if rule in self.rules else f"{rule} "
        return f"{name}{found.value:.2f}" + ("" if rule == "broad" else f" (even {found.chance:.2f})")

    def data(self) -> dict[str, JSON]:
        return {
            "role": self.role,
            "layer": self.layer,
            "head": self.head,
            "path": self.path,
            "rules": list(self.rules),
            "measures": {name: each.data() for name, each in self.measures.items()},
            "offsets": list(self.offsets),
            "removed": None if self.removal is None else self.removal.data(),
        }


@dataclass(frozen=True)
class LayerRemoved:
    """Change of the loss without all heads of one attention."""

    role: Role
    layer: int
    removal: Estimate


@dataclass(frozen=True, eq=False)
class HeadReport(Shown):
    """Heads in the order in which the model has them."""

    called = "a report"

    model: str
    task: str
    on: str
    texts: int
    heads: tuple[Head, ...]
    layers: tuple[LayerRemoved, ...] = ()
    loss: Estimate | None = None  # of the whole model, nats for each prediction
    predictions: int = 0
    aligner: str = ""  # from what it learned
    induction: Induction | None = None
    faithful: Faithfulness | None = None
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return brief(
            self, quoted(self.model), self.task, f"{len(self.heads)} heads", f"{self.texts} texts of {self.on}"
        )

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(head.role for head in self.heads))

    def of(self, role: str) -> tuple[Head, ...]:
        return tuple(head for head in self.heads if head.role == role)

    @property
    def unit(self) -> str:
        """The thing that is predicted, one by one: a token, a hidden token, or the label of a text."""
        return {"classify": "text", "fill": "hidden token"}.get(self.task, "token")

    def marked(self) -> frozenset[tuple[str, int, int]]:
        """The heads that matter most: the loss rises most without them, and surely (the interval is above zero)."""
        sure = [head for head in self.heads if head.removal is not None and head.removal.low > 0]
        most = sorted(sure, key=lambda head: -head.removal.value if head.removal else 0.0)
        most = most[: min(MARKED, len(self.heads) // 4)]
        return frozenset((head.role, head.layer, head.head) for head in most)

    def meaning(self) -> list[str]:
        """In words what the numbers are: for the foot of a table, a figure, a page."""
        lines = [
            "Role: the mean weight on the keys that its rule names, beside what an even map has there (of broad: entropy, 1 "
            "if even). No rule: none reaches its threshold; the nearest is shown. All rules and numbers are in the JSON."
        ]
        if self.loss is not None:
            lines.append(
                f"Loss without it: how much the loss rises, in nats a {self.unit}, if what the head saw becomes zeros "
                f"(± a standard error, over {self.texts:,} texts). About 0 means that the others do without it, not that it "
                "does nothing."
            )
        if self.aligner:
            lines.append(f"Alignment: {self.aligner}")
        if self.texts < FEW:
            lines.append(f"{self.texts} texts are few: a rule may hold by luck, and more texts would tell.")
        return [*lines, *self.notes]

    def data(self) -> dict[str, JSON]:
        names = {name for head in self.heads for name in head.measures}
        return {
            "model": self.model,
            "task": self.task,
            "on": self.on,
            "texts": self.texts,
            "predictions": self.predictions,
            "loss": None if self.loss is None else self.loss.data(),
            "rules": rules_as_data(sorted(names)),
            "heads": [head.data() for head in self.heads],
            "layers": [
                {"role": each.role, "layer": each.layer, "removed": each.removal.data()} for each in self.layers
            ],
            "induction": None if self.induction is None else self.induction.data(),
            "faithfulness": None if self.faithful is None else self.faithful.data(),
            "meaning": self.meaning(),
        }

    def json(self) -> str:
        return json.dumps(finite(self.data()), indent=2, ensure_ascii=False) + "\n"

    def html(self) -> str:
        """A whole page: the grid, where heads look by distance, and every number; no script, nothing loaded."""
        page: str = self._draw("page")
        return page

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json}
