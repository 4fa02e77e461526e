"""Two findings beside the roles of heads: whether a language model repeats by induction, and how faithful maps are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.evaluate.ratios import Estimate

HeadName = tuple[int, int]  # layer and head, from 0


def named(heads: tuple[HeadName, ...]) -> str:
    return ", ".join(f"{layer}.{head}" for layer, head in heads)


@dataclass(frozen=True)
class Induction:
    """What a language model does with random tokens that come twice (Olsson et al. 2022, "In-context learning and
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

    def data(self) -> dict[str, Any]:
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
    """How faithful one map is: (attended - random) / (best - random), of the fall of the log-probability of what is
    predicted when a word is removed: the most attended word, any word, the word whose removal it falls most with.
    """

    name: str
    score: Estimate
    drop: float  # mean fall without the most attended word, nats
    hits: float  # how often the most attended word is the best one

    def data(self) -> dict[str, Any]:
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

    def data(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "texts": self.texts,
            "predictions": self.predictions,
            "words": self.words,
            "random": self.random,
            "best": self.best,
            "maps": [each.data() for each in self.maps],
        }
