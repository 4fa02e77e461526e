"""Answers that a model writes, and what is thought of them: by a reward model, and by a rule where one is known.

Beside both stands how far the model has gone from the one that it started from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import TextBatch
from regard.data.builtin.preferences import rule_reward
from regard.data.chat_batches import EncodedChat, chat_batch
from regard.evaluate.bootstrap import Estimate
from regard.evaluate.preferences import mean_of, win_rate
from regard.models.preference import RewardModel, divergences
from regard.tasks.generate.predictor import Generator

ROWS = 64  # answers that go through a model together


@dataclass(frozen=True, eq=False)
class Written:
    """Answers to prompts, as texts and as rows of ids."""

    texts: tuple[str, ...]
    batch: TextBatch


@dataclass(frozen=True, eq=False)
class Judged:
    """The answers of a model and of the one that it started from, and what is thought of both."""

    prompts: tuple[str, ...]
    after: tuple[str, ...]
    before: tuple[str, ...]
    divergences: np.ndarray  # (N,) nats
    rewards: np.ndarray | None  # (N, 2), after and before, by the reward model; None: there is none
    rules: np.ndarray | None  # (N, 2), by the rule; None: none is known

    @property
    def judge(self) -> str:
        """Who says which answer is better: "rule", "reward model"; "" if nobody can."""
        return "rule" if self.rules is not None else "reward model" if self.rewards is not None else ""

    @property
    def win_rate(self) -> Estimate | None:
        """How often the answer is better than that of the model that was gone on from, in percent, ties half."""
        found = self.rewards if self.rules is None else self.rules
        return None if found is None else win_rate(*found.T)

    @property
    def kl(self) -> Estimate:
        """KL(π || π_start) of an answer in nats: the mean over answers of π, each token's divergence exact."""
        return mean_of(self.divergences)

    def metrics(self) -> dict[str, float]:
        """The means, as a row of the log."""
        found = {"kl": self.kl.value}
        if self.rewards is not None:
            found["reward"] = float(self.rewards[:, 0].mean())
        if self.rules is not None:
            found["rule"] = float(self.rules[:, 0].mean())
        if self.win_rate is not None:
            found["win_rate"] = self.win_rate.value
        return found


@dataclass(frozen=True, eq=False)
class Judge:
    """Judges the answers of a model to the same prompts again and again."""

    generator: Generator
    start: Generator
    prompts: tuple[str, ...]
    reward: RewardModel | None
    longest: int  # tokens of an answer
    seed: int = 0

    @cached_property
    def before(self) -> Written:
        """The answers of the model that was gone on from."""
        return write_answers(self.start, self.prompts, self.longest, self.seed)

    @torch.no_grad()
    def __call__(self) -> Judged:
        after = write_answers(self.generator, self.prompts, self.longest, self.seed + 1)
        both = (after, self.before)
        gone = partwise(lambda part: divergences(self.generator.model, self.start.model, part), after.batch)
        rewards = None if self.reward is None else [rewards_of(self.reward, each.batch) for each in both]
        rules = [[rule_reward(*pair) for pair in zip(self.prompts, each.texts, strict=True)] for each in both]
        known = all(value is not None for row in rules for value in row)
        return Judged(
            self.prompts,
            after.texts,
            self.before.texts,
            gone.double().cpu().numpy(),
            None if rewards is None else torch.stack(rewards, dim=1).double().cpu().numpy(),
            np.array(rules, dtype=np.float64).T if known else None,
        )


def write_answers(generator: Generator, prompts: Sequence[str], longest: int, seed: int) -> Written:
    """An answer to each prompt, drawn from the model itself: temperature 1, and nothing cut off but tokens that are no text."""
    found = generator.generate(
        list(prompts),
        sample=True,
        seed=seed,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        n_best=1,
        max_length=longest,
    )
    special, rows = generator.tokenizer.specials, list[EncodedChat]()
    for each in found:
        prompt, answer = generator.begun(each.prompt), [*each.ids, *([special.end] if each.finished else [])]
        learned = np.arange(len(prompt) + len(answer)) >= len(prompt)
        rows.append(EncodedChat(np.array([*prompt, *answer]), learned))
    batch = chat_batch(rows, special.pad).to(generator.device)
    return Written(tuple(each.text for each in found), batch)


def parts_of(batch: TextBatch) -> Iterator[TextBatch]:
    """The rows of a batch some at a time, as wide as before."""
    assert batch.learned is not None
    for start in range(0, len(batch.ids), ROWS):
        rows = slice(start, start + ROWS)
        learned = batch.learned[rows]
        yield TextBatch(batch.ids[rows], batch.lengths[rows], int(learned.sum()), learned=learned)


def partwise(compute: Callable[[TextBatch], Tensor], batch: TextBatch) -> Tensor:
    """What a function gives for the rows of a batch, some at a time."""
    return torch.cat([compute(part) for part in parts_of(batch)])


def rewards_of(model: RewardModel, batch: TextBatch) -> Tensor:
    """The reward of each row: (B,)."""
    return partwise(model.rewards, batch)
