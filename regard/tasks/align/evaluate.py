"""Score a model that learned from preferences against the one that it started from, on prompts that neither has seen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.bundle import load_bundle
from regard.data.builtin.preferences import SORTS, sort_of
from regard.data.preferences import Preference
from regard.errors import UsageError
from regard.evaluate.bootstrap import Estimate
from regard.evaluate.preferences import wins
from regard.files import JSON
from regard.models.preference import RewardModel
from regard.predictor import Result
from regard.runs import CONFIG, bundle_folder
from regard.tasks.align.judge import Judge, Judged
from regard.tasks.align.stages import REWARD, START
from regard.tasks.generate.predictor import Generator

LONGEST = 48  # tokens of an answer where the model does not say


@dataclass(frozen=True)
class AlignEvaluation(Result):
    """What became of a model; the figures before and after are means over the prompts."""

    prompts: int
    judge: str  # who says which answer is better: "rule", "reward model"; "" nobody
    win_rate: Estimate | None  # %, ties half, against the model that it started from
    by_sort: dict[str, float]  # the win rate of each sort of built-in prompts
    kl: Estimate  # nats an answer; estimated over answers, exact for each token
    rewards: tuple[float, float] | None  # before and after, by the reward model
    rules: tuple[float, float] | None  # before and after, by the rule
    samples: tuple[tuple[str, str, str], ...]  # prompt, answer before, answer after
    seconds: float

    def data(self) -> dict[str, JSON]:
        def pair(found: tuple[float, float] | None) -> JSON:
            return None if found is None else {"before": found[0], "after": found[1]}

        samples: list[JSON] = [{"prompt": each[0], "before": each[1], "after": each[2]} for each in self.samples]
        return {
            "prompts": self.prompts,
            "judge": self.judge,
            "win_rate": None if self.win_rate is None else {**self.win_rate.data()},
            "by_sort": {**self.by_sort},
            "kl": {**self.kl.data()},
            "reward": pair(self.rewards),
            "rule": pair(self.rules),
            "samples": samples,
            "seconds": self.seconds,
        }


def evaluate_aligned(
    generator: Generator, run: str | Path, pairs: Sequence[Preference], seed: int = 0, shown: int = 3
) -> AlignEvaluation:
    """Answer each prompt once before and after, and compare; whoever trained in the folder `run` left what it started from."""
    start = _beside(run, START)
    if start is None:
        told = f"{run} did not learn from preferences: there is no {START}/ in it to compare with"
        raise UsageError(told, "on pairs, score a run of regard train align; on chats, any language model")
    reward = _beside(run, REWARD)
    began = time.perf_counter()
    prompts = tuple(dict.fromkeys(each.prompt for each in pairs))
    longest = generator.config.decode.max_length or LONGEST
    judge = Judge(generator, Generator(load_bundle(start, generator.device)), prompts, _reward(reward), longest, seed)
    return _told(judge(), time.perf_counter() - began, shown)


def _beside(run: str | Path, name: str) -> Path | None:
    """The bundle of a stage of the run that is meant by its folder, or by that of one of its bundles."""
    folder = Path(run) if (Path(run) / CONFIG).exists() else Path(run).parent
    return bundle_folder(folder / name) if (folder / name).is_dir() else None


def _reward(place: Path | None) -> RewardModel | None:
    if place is None:
        return None
    model = load_bundle(place).model
    assert isinstance(model, RewardModel)
    return model


def _told(found: Judged, seconds: float, shown: int) -> AlignEvaluation:
    sorts = np.array([sort_of(prompt) or "" for prompt in found.prompts])
    rates = {} if found.rules is None else {sort: wins(*found.rules[sorts == sort].T) for sort in SORTS}
    spread = np.linspace(0, len(found.prompts) - 1, min(shown, len(found.prompts))).astype(int)
    return AlignEvaluation(
        len(found.prompts),
        found.judge,
        found.win_rate,
        {sort: 100 * float(each.mean()) for sort, each in rates.items() if len(each)},
        found.kl,
        _means(found.rewards),
        _means(found.rules),
        tuple((found.prompts[place], found.before[place], found.after[place]) for place in spread.tolist()),
        seconds,
    )


def _means(values: np.ndarray | None) -> tuple[float, float] | None:
    """The means before and after of values (N, 2), after first."""
    return None if values is None else (float(values[:, 1].mean()), float(values[:, 0].mean()))
