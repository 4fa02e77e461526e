"""Learning from preferences: a reward model, and the losses of Bradley and Terry, of DPO and of PPO.

Bradley & Terry 1952     -log σ(r(x, y_w) - r(x, y_l)), of a chosen answer y_w and a rejected one y_l
DPO, Rafailov 2023       the same, where r(x, y) = β log π(y|x) / π_ref(y|x) (eq. 7)
PPO, Schulman 2017       the clipped ratio (eq. 7) times advantages by GAE (Schulman 2016, eq. 16)
the penalty              -β log π / π_ref of each token joins its reward (Ouyang et al. 2022, eq. 2), and β follows the
                         divergence that is wanted (Ziegler et al. 2019, section 2.2)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from regard.blocks.norm import reading_rows
from regard.data.batch import PreferenceBatch, RolloutBatch, TextBatch
from regard.models.classifier import last_of, load_strictly
from regard.models.config import GPTLineConfig, LSTMConfig
from regard.models.language import LanguageModel
from regard.models.loss import Loss, Part
from regard.models.table import MODELS

Answered: TypeAlias = TextBatch | PreferenceBatch | RolloutBatch  # prompts with answers, of which only these count

# --- Log-probabilities and divergences


def answer_logits(model: LanguageModel, batch: Answered) -> Tensor:
    """The logits of each token of each answer, row by row: (N, V)."""
    assert batch.learned is not None
    hidden = model.hidden(batch)  # (B, T, D)
    return model.output(hidden[batch.learned]).float()  # bf16 would blur what two models differ in


def token_log_probs(model: LanguageModel, batch: Answered) -> Tensor:
    """The log-probability of each token of the answers, zero elsewhere: (B, T)."""
    assert batch.learned is not None
    logits, wanted = answer_logits(model, batch), batch.ids[:, 1:][batch.learned]
    found = logits.log_softmax(dim=-1).gather(1, wanted[:, None]).squeeze(1)  # (N,)
    return found.new_zeros(batch.learned.shape).masked_scatter(batch.learned, found)


def answer_log_probs(model: LanguageModel, batch: Answered) -> Tensor:
    """The log-probability of each answer: (B,)."""
    return token_log_probs(model, batch).sum(dim=1)


def divergences(model: LanguageModel, reference: LanguageModel, batch: Answered) -> Tensor:
    """Σ_t KL(π(·|y_<t) || π_ref(·|y_<t)) over each answer: (B,).

    Its mean over answers drawn from π is the KL of whole answers (the chain rule), with less chance in it than that of
    log π / π_ref: each token's divergence is summed over the vocabulary.
    """
    assert batch.learned is not None
    own, other = (answer_logits(each, batch).log_softmax(dim=-1) for each in (model, reference))  # (N, V)
    each = (own.exp() * (own - other)).sum(dim=-1)  # (N,)
    return each.new_zeros(batch.learned.shape).masked_scatter(batch.learned, each).sum(dim=1)


# --- Losses


def bradley_terry_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """-log σ(r_w - r_l) of each pair: (B,)."""
    return -logsigmoid(chosen - rejected)


def dpo_loss(policy: Tensor, reference: Tensor, beta: float) -> Tensor:
    """DPO's loss (eq. 7) of log-probabilities (2B,), those of the chosen answers first: (B,)."""
    chosen, rejected = (beta * (policy - reference)).chunk(2)
    return bradley_terry_loss(chosen, rejected)


def policy_loss(log_probs: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """-min(ρ A, clip(ρ, 1 - ε, 1 + ε) A) of each token, where ρ = π / π_old (PPO, eq. 7)."""
    ratio = (log_probs - old).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    """½ max((v - R)², (clip(v, v_old - ε, v_old + ε) - R)²) of each place: the critic moves as little as the policy."""
    near = old + (values - old).clamp(-clip, clip)
    return torch.maximum((values - returns) ** 2, (near - returns) ** 2) / 2


def pair_parts(losses: Tensor, margins: Tensor) -> dict[str, Part]:
    """The parts of a loss over pairs: the loss, how many are told rightly apart, and by how much."""
    count, right = len(losses), (margins.detach() > 0).to(losses.dtype).sum()
    return {
        "loss": Part(losses.sum(), count),
        "nll": Part(losses.detach().sum(), count, weight=0.0),
        "correct": Part(right, count, weight=0.0),
        "margin": Part(margins.detach().sum(), count, weight=0.0),
    }


# --- Rewards and advantages


def token_rewards(rewards: Tensor, ratios: Tensor, learned: Tensor, coefficient: float) -> Tensor:
    """-β log π / π_ref of each token of an answer, and on its last one the reward besides: (B, T)."""
    found = -coefficient * ratios * learned
    last = learned.shape[1] - 1 - learned.int().flip(1).argmax(dim=1)  # (B,)
    return found.index_put((torch.arange(len(found)), last), rewards, accumulate=True)


def generalised_advantages(
    rewards: Tensor, values: Tensor, learned: Tensor, discount: float, decay: float
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of each token of an answer (GAE): A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V_{t+1} - V_t, R = A + V.

    Behind the last token of an answer there is nothing to come. All are (B, T), zero outside of answers.
    """
    mask = learned.to(values.dtype)
    advantages, later, value = torch.zeros_like(values), values.new_zeros(len(values)), values.new_zeros(len(values))
    for place in reversed(range(values.size(1))):
        here = mask[:, place]
        delta = rewards[:, place] + discount * value - values[:, place]
        later = here * (delta + discount * decay * later)
        value = here * values[:, place]
        advantages[:, place] = later
    return advantages, (advantages + values) * mask


def whitened(x: Tensor, learned: Tensor) -> Tensor:
    """x with mean 0 and variance 1 over the tokens of all answers, zero elsewhere."""
    some = x[learned]
    return (x - some.mean()) / (some.std(correction=0) + 1e-8) * learned


def adapted(coefficient: float, divergence: float, wanted: float, pace: float = 0.1) -> float:
    """The coefficient of the penalty for the next answers: larger where the divergence exceeds the one that is wanted."""
    error = min(0.2, max(-0.2, divergence / wanted - 1))
    return coefficient * (1 + pace * error)


# --- Modules


class RewardModel(nn.Module):
    """A language model with one number for a token in the place of its output layer: an answer's is that of its last token.

    The same with a number for each token is the critic of PPO (Ouyang et al. 2022, section 3.5).
    """

    def __init__(self, config: GPTLineConfig | LSTMConfig, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.body: LanguageModel = MODELS["generate"][config.kind](config, vocabulary)
        self.head = nn.Linear(config.width, 1)
        nn.init.normal_(self.head.weight, std=config.width**-0.5)
        nn.init.zeros_(self.head.bias)

    def scores(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The number of each place of rows (B, T + 1) with so many tokens behind the first: (B, T + 1)."""
        with reading_rows(lengths + 1):
            return self.head(self.body.read(ids)).squeeze(-1).float()

    def rewards(self, batch: Answered) -> Tensor:
        """The reward of each row: (B,)."""
        return last_of(self.scores(batch.ids, batch.lengths)[..., None], batch.lengths + 1).squeeze(-1)

    def logits(self, batch: PreferenceBatch) -> Tensor:
        """The rewards of both answers of each pair, the chosen one's first: (B, 2)."""
        return self.rewards(batch).view(2, -1).T

    def forward(self, batch: PreferenceBatch) -> Loss:
        chosen, rejected = self.rewards(batch).chunk(2)
        return Loss(pair_parts(bradley_terry_loss(chosen, rejected), chosen - rejected))

    def load_body(self, weights: Mapping[str, Tensor]) -> None:
        """Take all of a trained language model."""
        load_strictly(self.body, dict(weights))


class PreferenceLearner(nn.Module):
    """A policy that learns by DPO: `model(batch)` is the loss of pairs whose reference log-probabilities are in the batch.

    With `keep`, the mean loss of a chosen answer's tokens joins it so many times (Pang et al. 2024, eq. 1): DPO alone may
    make both answers less likely, and what nobody wrote more.
    """

    def __init__(self, policy: LanguageModel, beta: float, keep: float = 0.0) -> None:
        super().__init__()
        self.policy, self.beta, self.keep = policy, beta, keep

    def train(self, mode: bool = True) -> Self:
        """Nothing is dropped: what one model says of an answer twice must be equal."""
        return super().train(False)

    def forward(self, batch: PreferenceBatch) -> Loss:
        assert batch.reference is not None
        found = answer_log_probs(self.policy, batch)  # (2B,)
        chosen, rejected = (self.beta * (found - batch.reference)).chunk(2)
        losses = dpo_loss(found, batch.reference, self.beta)
        if self.keep:
            count = len(losses)
            losses = losses - self.keep * found[:count] / batch.learned[:count].sum(dim=1)
        return Loss(pair_parts(losses, chosen - rejected))


class RolloutLearner(nn.Module):
    """A policy and its critic, which learn by PPO from answers that the policy wrote.

    With `keep`, the mean loss of a token of people's answers joins it so many times (PPO-ptx; Ouyang et al. 2022, eq. 2).
    """

    def __init__(
        self, policy: LanguageModel, critic: RewardModel, clip: float, value_weight: float, keep: float = 0.0
    ) -> None:
        super().__init__()
        self.policy, self.critic = policy, critic
        self.clip, self.value_weight, self.keep = clip, value_weight, keep

    def train(self, mode: bool = True) -> Self:
        """Nothing is dropped: ratios begin at 1."""
        return super().train(False)

    def forward(self, batch: RolloutBatch) -> Loss:
        learned, count = batch.learned, batch.tokens
        log_probs = token_log_probs(self.policy, batch)  # (B, T)
        values = self.critic.scores(batch.ids, batch.lengths)[:, :-1]  # (B, T)
        gain = policy_loss(log_probs, batch.log_probs, batch.advantages, self.clip)[learned].sum()
        error = value_loss(values, batch.values, batch.returns, self.clip)[learned].sum()
        moved = (log_probs - batch.log_probs).detach()[learned]
        clipped = ((moved.exp() - 1).abs() > self.clip).to(gain.dtype).sum()
        told = {"value": error.detach(), "clipped": clipped, "moved": (moved.exp() - 1 - moved).sum()}
        parts = {
            "loss": Part(gain + self.value_weight * error, count),
            **{name: Part(each, count, weight=0.0) for name, each in told.items()},
            "reward": Part(batch.rewards.sum(), len(batch.ids), weight=0.0),
            "penalty": Part(batch.penalties.sum(), len(batch.ids), weight=0.0),
        }
        if batch.kept is not None:
            parts["kept"] = Part(-token_log_probs(self.policy, batch.kept).sum(), batch.kept.tokens, weight=self.keep)
        return Loss(parts)
