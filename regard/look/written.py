"""How a model wrote: the distribution at each token, with its entropy; and a beam search as a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from regard.files import JSON
from regard.look.labels import visible
from regard.look.panels import Chart, HeatMap, OnePanel, Panels
from regard.look.shown import Shown


@dataclass(frozen=True)
class LikelyToken:
    """A token with its probability under the model."""

    id: int
    label: str
    probability: float

    def data(self) -> dict[str, JSON]:
        return {"id": self.id, "label": self.label, "probability": self.probability}


@dataclass(frozen=True)
class OutputStep:
    """The distribution from which one token was taken."""

    token: LikelyToken  # which was written
    likeliest: tuple[LikelyToken, ...]
    entropy: float  # of all tokens, in bits

    def data(self) -> dict[str, JSON]:
        return {**self.token.data(), "entropy": self.entropy, "likeliest": [each.data() for each in self.likeliest]}


@dataclass(frozen=True, eq=False)
class Outputs(Panels):
    """The output distribution over time."""

    steps: tuple[OutputStep, ...]

    def panels(self) -> Sequence[OnePanel]:
        labels = tuple(step.token.label for step in self.steps)
        count = min(len(step.likeliest) for step in self.steps)
        shares = np.array([[step.likeliest[rank].probability for step in self.steps] for rank in range(count)])
        words = tuple(tuple(_share(step.likeliest[rank]) for step in self.steps) for rank in range(count))
        ranks = ("likeliest", *(f"{rank + 1}." for rank in range(1, count)))
        own = np.array([step.token.probability for step in self.steps])
        bits = np.array([step.entropy for step in self.steps])
        across, shown = np.arange(len(labels)), tuple(map(visible, labels))
        return [
            HeatMap("the likeliest tokens at each step", shares, ranks, labels, "probability", top=1.0, texts=words,
                    note="by the token that was written"),
            Chart("entropy", across, {"": bits}, y_label="bits", ticks=shown),
            Chart("probability of what was written", across, {"": own}, y_label="probability", ticks=shown),
        ]  # fmt: skip

    def data(self) -> dict[str, JSON]:
        return {"title": self.title, "notes": list(self.notes), "steps": [step.data() for step in self.steps]}


def _share(token: LikelyToken) -> str:
    share = f"{token.probability:.0%}" if token.probability >= 0.01 else "<1%"
    return f"{visible(token.label)} {share}"


# --- A beam search


@dataclass(frozen=True)
class Node:
    """A hypothesis after one step: where it goes on from, its newest token, and what became of it."""

    parent: int | None  # its place among the nodes of the step before; None at the first step
    id: int
    label: str
    log_probability: float  # of its newest token
    total: float  # of all its tokens
    score: float | None  # what ranks it, once it has ended
    state: Literal["alive", "ended", "dropped"]  # dropped: no candidate of the next step is of it

    def data(self) -> dict[str, JSON]:
        return {
            "parent": self.parent,
            "id": self.id,
            "label": self.label,
            "log_probability": self.log_probability,
            "total": self.total,
            "score": self.score,
            "state": self.state,
        }


Place = tuple[int, int]  # of a node: its step, and its number there


@dataclass(frozen=True, eq=False)
class BeamTree(Shown):
    """A beam search of one source, step by step. Its ended hypotheses are those that were ranked at the end."""

    called = "a tree"

    steps: tuple[tuple[Node, ...], ...]
    title: str = "beam search"

    def data(self) -> dict[str, JSON]:
        return {"steps": [[node.data() for node in step] for step in self.steps]}

    def nodes(self) -> Iterator[tuple[Place, Node]]:
        """Every node with its place, step by step."""
        for depth, step in enumerate(self.steps):
            for number, node in enumerate(step):
                yield (depth, number), node

    def children(self) -> dict[Place | None, list[Place]]:
        """Those that go on from each node, the likelier first; None: from the beginning."""
        found: dict[Place | None, list[Place]] = {}
        for (depth, number), node in self.nodes():
            parent = None if node.parent is None else (depth - 1, node.parent)
            found.setdefault(parent, []).append((depth, number))
        for places in found.values():
            places.sort(key=lambda place: -self.steps[place[0]][place[1]].total)
        return found

    @property
    def winner(self) -> Place | None:
        """The ended hypothesis with the best score."""
        ended = [(node.score, place) for place, node in self.nodes() if node.score is not None]
        return max(ended, default=(None, None), key=lambda each: each[0])[1]

    def path(self, place: Place | None) -> list[Place]:
        """The nodes from the first step to this one."""
        found: list[Place] = []
        while place is not None:
            found.append(place)
            depth, number = place
            parent = self.steps[depth][number].parent
            place = None if parent is None else (depth - 1, parent)
        return found[::-1]

    def rows(self) -> dict[Place, float]:
        """How far down each node is drawn: a row for each that nothing follows, others in the middle of theirs."""
        children, found, free = self.children(), dict[Place, float](), 0
        for place in self._leaves_first(children):
            below = [found[each] for each in children.get(place, [])]
            if below:
                found[place] = (below[0] + below[-1]) / 2
            else:
                found[place] = float(free)
                free += 1
        return found

    def _leaves_first(self, children: Mapping[Place | None, list[Place]]) -> Iterator[Place]:
        """Every node behind those that go on from it, the likelier branches first; without recursion: searches are deep."""
        todo: list[tuple[Place, bool]] = [(place, False) for place in reversed(children.get(None, []))]
        while todo:
            place, seen = todo.pop()
            if seen:
                yield place
                continue
            todo.append((place, True))
            todo += [(each, False) for each in reversed(children.get(place, []))]

    def html(self) -> str:
        """A whole page, with the scores under the pointer; nothing is loaded from elsewhere."""
        page: str = self._draw("page")
        return page

    def text(self, width: int = 80, color: bool = False) -> str:
        """The tree for a terminal of that width."""
        return self._terminal(width, color)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json}

    def _alternative(self) -> str:
        winner = self.path(self.winner)
        words = " ".join(self.steps[depth][number].label for depth, number in winner)
        return f"{self.title}: {len(self.steps)} steps, won by {words}"
