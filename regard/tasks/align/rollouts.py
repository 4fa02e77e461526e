"""What PPO learns from: answers that the policy of the moment writes, judged by the reward model, with their advantages.

An epoch is an iteration: at its first batch the policy writes answers to drawn prompts, and all batches of the iteration are
of these. They depend on nothing but seed, iteration and the weights at that time, and are part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.batch import RolloutBatch, TextBatch
from regard.data.batches import generator as random_numbers
from regard.data.chat_batches import EncodedChat, chat_batch
from regard.models.language import LanguageModel
from regard.models.preference import (
    RewardModel,
    RolloutLearner,
    adapted,
    generalised_advantages,
    token_log_probs,
    token_rewards,
    whitened,
)
from regard.tasks.align.config import AlignMethod
from regard.tasks.align.judge import partwise, rewards_of, write_answers
from regard.tasks.generate.predictor import Generator

PROMPTS, ORDER, SCALE, KEPT = (
    11,
    12,
    13,
    14,
)  # marks of keys: which prompts, in which order, and for the scale of rewards
PARTS = ("ids", "lengths", "learned", "log_probs", "values", "advantages", "returns", "rewards", "penalties")


class Rollouts:
    """`rollouts.get(iteration, index)`: the batches of one iteration, each answer in `passes` of them."""

    def __init__(
        self,
        learner: RolloutLearner,
        generator: Generator,
        start: Generator,
        reward: RewardModel,
        prompts: Sequence[str],
        answers: Sequence[EncodedChat],
        config: AlignMethod,
        seed: int,
    ) -> None:
        """`answers` of people are learned beside, if the configuration keeps some."""
        self.learner, self.generator, self.start, self.reward = learner, generator, start, reward
        self.prompts, self.answers, self.config, self.seed = tuple(prompts), answers, config, seed
        self.coefficient = config.penalty
        self.scale = (0.0, 1.0)  # mean and deviation of the rewards of the model that was gone on from
        self.iteration, self.held = -1, dict[str, Tensor]()

    def count(self, epoch: int) -> int:
        return self.config.passes * self.config.minibatches

    def get(self, epoch: int, index: int) -> RolloutBatch:
        if epoch != self.iteration:
            self.held = self.write(epoch)
            self.iteration = epoch
        around, place = divmod(index, self.config.minibatches)
        order = random_numbers(self.seed, epoch, ORDER, around).permutation(self.config.rollouts)
        rows = torch.from_numpy(order[place :: self.config.minibatches].copy())
        taken = {name: each[rows.to(each.device)] for name, each in self.held.items()}
        return RolloutBatch(**taken, tokens=int(taken["learned"].sum()), kept=self.kept(epoch, index, len(rows)))

    def kept(self, epoch: int, index: int, count: int) -> TextBatch | None:
        """So many answers of people, drawn for a batch."""
        if not self.config.keep:
            return None
        drawn = random_numbers(self.seed, epoch, KEPT, index).integers(len(self.answers), size=count)
        return chat_batch([self.answers[place] for place in drawn.tolist()], self.generator.tokenizer.specials.pad)

    def padding_share(self) -> float:
        return 0.0

    # --- As part of a checkpoint

    def tensors(self) -> dict[str, Tensor]:
        """All that a run needs to go on within an iteration."""
        numbers = [float(self.iteration), self.coefficient, *self.scale]
        return {**self.held, "state": torch.tensor(numbers, dtype=torch.float64)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        iteration, self.coefficient, *scale = tensors["state"].tolist()
        self.iteration, self.scale = int(iteration), (scale[0], scale[1])
        device = self.generator.device
        self.held = {name: tensors[name].to(device) for name in PARTS if name in tensors}

    # --- An iteration

    @torch.no_grad()
    def write(self, iteration: int) -> dict[str, Tensor]:
        """Write and judge the answers of an iteration, and adapt the coefficient of the penalty for the next one."""
        drawn = random_numbers(self.seed, iteration, PROMPTS).integers(len(self.prompts), size=self.config.rollouts)
        asked = [self.prompts[place] for place in drawn.tolist()]
        key = int(random_numbers(self.seed, iteration).integers(2**31))
        batch = write_answers(self.generator, asked, self.config.longest, key).batch
        found = self.judged(batch)
        wanted = self.config.divergence
        if wanted:
            self.coefficient = adapted(self.coefficient, float(found["penalties"].mean()), wanted)
        return found

    def judged(self, batch: TextBatch) -> dict[str, Tensor]:
        """The parts of the batches of an iteration."""
        assert batch.learned is not None
        learned, config = batch.learned, self.config
        log_probs, reference = (_log_probs(model, batch) for model in (self.generator.model, self.start.model))
        critic = self.learner.critic
        values = partwise(lambda part: critic.scores(part.ids, part.lengths)[:, :-1], batch) * learned
        mean, deviation = self.scale
        ratios, rewards = log_probs - reference, (rewards_of(self.reward, batch) - mean) / deviation
        each = token_rewards(rewards, ratios, learned, self.coefficient)
        advantages, returns = generalised_advantages(each, values, learned, config.discount, config.decay)
        return {
            "ids": batch.ids,
            "lengths": batch.lengths,
            "learned": learned,
            "log_probs": log_probs,
            "values": values,
            "advantages": whitened(advantages, learned),
            "returns": returns,
            "rewards": rewards,
            "penalties": ratios.sum(dim=1),
        }

    @torch.no_grad()
    def rescale(self) -> None:
        """Give rewards mean 0 and deviation 1 over answers of the model that was gone on from (Ouyang et al. 2022, 3.5).

        The critic, which begins as the reward model, says the same of whole answers then.
        """
        draw = random_numbers(self.seed, SCALE)
        asked = [self.prompts[place] for place in draw.integers(len(self.prompts), size=self.config.rollouts).tolist()]
        written = write_answers(self.start, asked, self.config.longest, int(draw.integers(2**31)))
        usual, head = rewards_of(self.reward, written.batch), self.learner.critic.head
        mean, deviation = self.scale = float(usual.mean()), max(1e-6, float(usual.std(correction=0)))
        head.weight.div_(deviation)
        head.bias.sub_(mean).div_(deviation)


def _log_probs(model: LanguageModel, batch: TextBatch) -> Tensor:
    return partwise(lambda part: token_log_probs(model, part), batch)
