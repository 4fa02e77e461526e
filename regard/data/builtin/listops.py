"""The built-in labelled texts that need length: ListOps (Nangia & Bowman 2018), by the rules of the Long Range Arena.

    [MAX 4 [MIN 2 3 ] 0 ]        ->  4
    [SM 9 [MED 1 5 8 ] 7 ]       ->  1

MIN, MAX, MED (the median, rounded down) and SM (the sum modulo 10) of two to ten arguments, each of them a digit, or
with probability 1/4 an expression again, nine deep (Tay et al. 2021; labels are as they fall, they do not balance).
Texts of other lengths are thrown away: the Arena keeps 500 to 2,000 tokens, a quarter of the longest to the longest,
and so does every bound here; `builtin/listops` has 125 to 500.

    builtin/listops              training (data.builtin_size texts), validation and test of 125 to 500 tokens
    builtin/listops/2000         the same of 500 to 2,000
    builtin/listops/test/1000    the test texts of 250 to 1,000

Trees grow level by level, thousands at once. Each text knows its tree: the head of a digit, an expression or a closing
bracket is the operator that it belongs to, and that of the outermost operator is itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from regard.data.builtin.algorithms import split_of
from regard.data.labelled_files import Labelled
from regard.errors import UsageError

MOST = 500  # tokens, where nothing else is said
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
WORDS = (*map(str, range(10)), *OPERATORS, "]")
END = len(WORDS) - 1

DEEPEST, ARGUMENTS, NESTED = (
    10,
    10,
    0.25,
)  # of the Arena: depth of the deepest digit, most arguments, share of operators
SHORTEST = 12  # a bound below this leaves next to nothing to draw from
LONGEST = 8000  # of trees nine deep, one in a hundred has a length that this bound keeps; of longer ones ever fewer
TOGETHER = 8192  # trees grown at once


@dataclass(frozen=True)
class Level:
    """The nodes of one depth, of many trees: children stand together, in the order of their parents."""

    root: np.ndarray  # (N,) in which tree
    parent: np.ndarray  # (N,) which node of the level above
    kind: np.ndarray  # (N,) a place in WORDS: a digit or an operator
    children: np.ndarray  # (N,) how many; 0 for a digit

    @property
    def starts(self) -> np.ndarray:
        """Where the children of each operator begin in the level below."""
        return (np.cumsum(self.children) - self.children)[self.children > 0]


def listops(split: str, count: int, most: int = MOST, seed: int = 1) -> list[Labelled]:
    """`count` texts of a split, no two alike; a larger count goes on where a smaller ended. A hash divides the splits."""
    if most < SHORTEST:
        raise UsageError(f"builtin/listops/{most}: texts are too short to differ", f"write {SHORTEST} or more tokens")
    if most > LONGEST:
        raise UsageError(
            f"builtin/listops/{most}: texts so long are too rare to be drawn", f"write {LONGEST} or fewer tokens"
        )
    found: dict[str, Labelled] = {}
    part = 0
    while len(found) < count:
        random = np.random.Generator(np.random.SFC64(np.random.SeedSequence((seed, most, part))))
        for each in _expressions(random, max(1, most // 4), most):
            if len(found) < count and split_of(each.text) == split:
                found.setdefault(each.text, each)
        part += 1
    return list(found.values())


def _expressions(random: np.random.Generator, least: int, most: int) -> Iterator[Labelled]:
    """Those of many random trees whose lengths lie within the bounds."""
    levels = _grown(random, most)
    sizes = _sizes(levels)
    levels, sizes = _kept(levels, sizes, (sizes[0] >= least) & (sizes[0] <= most))
    answers = _values(levels)
    ends = np.cumsum(sizes[0])
    codes, parents = _written(levels, sizes, ends - sizes[0])
    for answer, end, size in zip(answers.tolist(), ends.tolist(), sizes[0].tolist(), strict=True):
        words = [WORDS[code] for code in codes[end - size : end].tolist()]
        tree = tuple((parents[end - size : end] - (end - size)).tolist())
        yield Labelled(" ".join(words), WORDS[answer], parents=tree)


def _grown(random: np.random.Generator, most: int) -> list[Level]:
    """Trees from their roots down. One that has become too long grows no more: it is thrown away in any case."""
    tokens = np.zeros(TOGETHER, dtype=np.int64)
    levels: list[Level] = []
    root = parent = np.arange(TOGETHER)
    for depth in range(1, DEEPEST + 1):
        nested = (random.random(len(root)) < NESTED) & (depth < DEEPEST)
        kind = np.floor(random.random(len(root)) * np.where(nested, len(OPERATORS), 10)).astype(np.int64) + 10 * nested
        tokens += np.bincount(root, 1 + nested, TOGETHER).astype(np.int64)
        arguments = 2 + np.floor(random.random(len(root)) * (ARGUMENTS - 1)).astype(np.int64)
        children = arguments * (nested & (tokens[root] <= most))
        levels.append(Level(root, parent, kind, children))
        root, parent = np.repeat(root, children), np.repeat(np.arange(len(root)), children)
    return levels


def _sizes(levels: list[Level]) -> list[np.ndarray]:
    """How many tokens each node has, its brackets and all that is inside: level by level, from below."""
    sizes = [np.ones(len(level.kind), dtype=np.int64) for level in levels]
    for depth in reversed(range(len(levels))):
        inside = levels[depth].children > 0
        sizes[depth] += levels[depth].kind >= 10
        if inside.any():
            sizes[depth][inside] += np.add.reduceat(sizes[depth + 1], levels[depth].starts)
    return sizes


def _kept(levels: list[Level], sizes: list[np.ndarray], keep: np.ndarray) -> tuple[list[Level], list[np.ndarray]]:
    """The same with some of the trees only."""
    found: list[Level] = []
    place = np.cumsum(keep) - 1
    for level in levels:
        mine = keep[level.root]
        found.append(Level(level.root[mine], place[level.parent[mine]], level.kind[mine], level.children[mine]))
        place = np.cumsum(mine) - 1
    return found, [size[keep[level.root]] for level, size in zip(levels, sizes, strict=True)]


def _values(levels: list[Level]) -> np.ndarray:
    """The value of each tree's expression."""
    below = np.zeros(0, dtype=np.int64)
    for level in reversed(levels):
        values = level.kind.copy()
        if len(level.starts):
            values[level.children > 0] = _applied(level, below)
        below = values
    return below


def _applied(level: Level, arguments: np.ndarray) -> np.ndarray:
    """The values of a level's operators, from those of all their arguments."""
    starts, inside = level.starts, level.children > 0
    counts = level.children[inside]
    owner = np.repeat(np.arange(len(starts)), counts)
    ordered = arguments[np.argsort(owner * 10 + arguments)]
    median = (ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) // 2
    least, greatest = ordered[starts], ordered[starts + counts - 1]
    results = np.stack([least, greatest, median, np.add.reduceat(arguments, starts) % 10])
    return results[level.kind[inside] - 10, np.arange(len(starts))]


def _written(levels: list[Level], sizes: list[np.ndarray], begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of all trees one behind the other, tree i from begins[i], and where the parent of each stands."""
    codes = np.empty(int(sizes[0].sum()), dtype=np.int64)
    parents = np.empty_like(codes)
    place = above = begins
    for depth, (level, size) in enumerate(zip(levels, sizes, strict=True)):
        if depth:
            before = np.cumsum(size) - size  # tokens of this level in front of a node
            upper = levels[depth - 1]
            eldest = np.repeat(before[upper.starts], upper.children[upper.children > 0])
            above = place[level.parent]
            place = above + 1 + before - eldest
        inside = level.children > 0
        close = (place + size - 1)[inside]
        codes[place], parents[place] = level.kind, above
        codes[close], parents[close] = END, place[inside]
    return codes, parents
