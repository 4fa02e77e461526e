"""Train a model on preferences: a reward model, or a language model by DPO or by PPO."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad as widened

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import PreferenceBatch
from regard.data.chat_batches import EncodedChat
from regard.data.preference_batches import EncodedPreferences, PreferenceBatches, encode_preferences
from regard.data.preferences import Preference, PreferenceSets, load_preferences
from regard.models.language import LanguageModel
from regard.models.preference import (
    PreferenceLearner,
    RewardModel,
    RolloutLearner,
    answer_log_probs,
    bradley_terry_loss,
)
from regard.tasks.align.config import AlignConfig
from regard.tasks.align.judge import Judge, Judged
from regard.tasks.align.rollouts import Rollouts
from regard.tasks.align.stages import START, reward_model, start_model
from regard.tasks.config import RunConfig
from regard.tasks.generate.predictor import Generator
from regard.tasks.recipe import PreparedRun, Setup, digest_of, every_batch, take_weights
from regard.tasks.subject import EXTRA, TEXT_LENGTHS, Subject, real_behind
from regard.tensors import read_tensors, write_tensors
from regard.tokens import TokenizerPair
from regard.training.events import Working
from regard.training.job import Job
from regard.training.state import Fingerprint
from regard.training.validation import Validation, share_error

REFERENCE = "reference.safetensors"  # file of a run: log-probabilities of all answers by the model that is gone on from
SHOWN = 2  # prompts whose answers before and after are shown


@dataclass(frozen=True, eq=False)
class Material:
    """What a run to align has before its method is chosen."""

    config: AlignConfig
    setup: Setup
    sets: PreferenceSets
    start: Bundle
    train: EncodedPreferences
    valid: EncodedPreferences

    @property
    def fingerprint(self) -> Fingerprint:
        return {"the training data": _digest(self.sets.train), "the validation data": _digest(self.sets.valid)}

    def batches(self) -> PreferenceBatches:
        return PreferenceBatches(self.train, self.config.train.batch_tokens, self.config.train.seed)

    def unseen(self) -> PreferenceBatches:
        return PreferenceBatches(self.valid, self.config.train.batch_tokens, seed=0)


def prepare_align(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the preferences, find or train the models that learning begins with. The run itself is not trained yet."""
    assert isinstance(config, AlignConfig)
    sets = load_preferences(config.data, setup.data_root)
    setup.note(config)
    start = start_model(config, setup, sets.train)
    model = start.config.model
    config = config.model_copy(update={"model": model, "tokens": start.config.tokens})
    assert start.config.chat is not None
    most = min(config.align.context, model.longest or config.align.context)
    train, left = encode_preferences(sets.train, start.tokenizer, start.config.chat, most)
    valid, _ = encode_preferences(sets.valid, start.tokenizer, start.config.chat, most)
    material = Material(config, setup, sets, start, train, valid)
    job, notes = METHODS[config.align.method](material)
    counts = f"{len(train):,} training and {len(valid):,} validation pairs"
    return PreparedRun(job, (*sets.notes, *left, counts, *notes))


def _digest(pairs: Sequence[Preference]) -> str:
    return digest_of(*((each.prompt, each.chosen, each.rejected) for each in pairs))


# --- The reward model


def prepare_reward(material: Material) -> tuple[Job, tuple[str, ...]]:
    """A reward model with the body of the language model that is gone on from, learned from pairs."""
    config, setup, start = material.config, material.setup, material.start
    model = setup.build(config.model_copy(update={"start": None}), start.config.vocabulary)
    take_weights(model, str(setup.folder / START))
    about = BundleConfig(
        task="align",
        tokens=config.tokens,
        vocabulary=start.config.vocabulary,
        model=config.model,
        chat=start.config.chat,
    )
    valid = material.unseen()
    job = setup.job(
        config,
        Bundle(about, model, TokenizerPair(start.tokenizer, start.tokenizer), {}),
        material.batches(),
        lambda model: Validation(*_pair_metrics(model, valid)),
        material.fingerprint,
        held_out=lambda: every_batch(valid),
        unit="pairs",
    )
    return job, ()


def _pair_metrics(model: nn.Module, batches: PreferenceBatches) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
    """Loss and share of pairs told rightly apart; no samples."""
    sums = {"loss": 0.0, "correct": 0.0}
    device, count = next(model.parameters()).device, 0
    for batch in every_batch(batches):
        parts = model(batch.to(device)).parts
        sums = {name: total + float(parts[name].sum) for name, total in sums.items()}
        count += parts["loss"].count
    return {"loss": sums["loss"] / count, "accuracy": 100 * sums["correct"] / count}, []


# --- DPO


def prepare_dpo(material: Material) -> tuple[Job, tuple[str, ...]]:
    """A policy that learns from pairs; what its reference thinks of them is computed once and kept."""
    config, setup = material.config, material.setup
    policy, judge = _policy(material)
    setup.emit(Working("reading all answers with the model that is gone on from"))
    known = _reference(setup.folder / REFERENCE, material)
    both = replace(
        material, train=replace(material.train, reference=known[0]), valid=replace(material.valid, reference=known[1])
    )
    valid, learner = both.unseen(), PreferenceLearner(policy, config.align.beta, config.align.keep)

    def validate(model: nn.Module) -> Validation:
        metrics, _ = _pair_metrics(model, valid)
        return _validation(metrics, judge())

    job = setup.job(
        config,
        material.start,
        both.batches(),
        validate,
        material.fingerprint,
        held_out=lambda: every_batch(valid),
        unit="pairs",
    )
    return _of_policy(job, learner), _judge_notes(judge)


def _reference(path: Path, material: Material) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of both answers of each pair, (N, 2) of training and of validation; a run that goes on has them."""
    if not (material.setup.resume and path.exists()):
        model = material.start.model
        assert isinstance(model, LanguageModel)
        parts = {"train": material.train, "valid": material.valid}
        write_tensors(path, {name: _answer_log_probs(model, pairs) for name, pairs in parts.items()})
    found = read_tensors(path)
    return found["train"].numpy(), found["valid"].numpy()


@torch.no_grad()
def _answer_log_probs(model: LanguageModel, pairs: EncodedPreferences) -> Tensor:
    device, found = next(model.parameters()).device, torch.zeros(len(pairs), 2)
    plan = PreferenceBatches(pairs, 8192, seed=0)
    for rows in plan.plan(0):
        found[torch.from_numpy(rows)] = answer_log_probs(model, pairs.take(rows).to(device)).view(2, -1).T.cpu()
    return found


# --- PPO


def prepare_ppo(material: Material) -> tuple[Job, tuple[str, ...]]:
    """A policy and a critic that learn from the policy's own answers, as the reward model judges them."""
    config, setup = material.config, material.setup
    reward = reward_model(config, setup)
    assert reward is not None
    policy, judge = _policy(material, reward)
    critic = copy.deepcopy(reward).requires_grad_(True)
    learner = RolloutLearner(policy, critic, config.align.clip, config.align.value_weight, config.align.keep)
    prompts = tuple(each.prompt for each in material.sets.train)  # as often as people asked them
    both, answers = (judge.generator, judge.start), material.train.chosen
    rollouts = Rollouts(learner, *both, reward, prompts, answers, config.align, config.train.seed)
    rollouts.rescale()

    def validate(model: nn.Module) -> Validation:
        judged = judge()
        assert judged.rewards is not None
        gains = bradley_terry_loss(*torch.from_numpy(judged.rewards).T)
        return _validation({"loss": float(gains.mean()) + config.align.penalty * judged.kl.value}, judged)

    job = setup.job(config, material.start, rollouts, validate, material.fingerprint, unit="answer tokens")
    each = f"{config.align.rollouts} answers in each iteration of {rollouts.count(0)} updates"
    told = f"PPO on {len(set(prompts)):,} prompts, {each}"
    return _of_policy(job, learner), (told, *_judge_notes(judge))


# --- What DPO and PPO share


def _policy(material: Material, reward: RewardModel | None = None) -> tuple[LanguageModel, Judge]:
    """The model that learns, and who judges its answers to unseen prompts."""
    start, config = material.start, material.config
    reward = reward or reward_model(config, material.setup)
    policy = copy.deepcopy(start.model)
    start.model.requires_grad_(False)
    assert isinstance(policy, LanguageModel)
    prompts = tuple(dict.fromkeys(each.prompt for each in material.sets.valid))[: config.align.answers]
    both = Generator(replace(start, model=policy)), Generator(start)
    return policy, Judge(*both, prompts, reward, config.align.longest)


def _judge_notes(judge: Judge) -> tuple[str, ...]:
    return (
        f"at each validation {len(judge.prompts)} unseen prompts are answered, and compared with the answers before",
    )


def _validation(metrics: dict[str, float], judged: Judged) -> Validation:
    """What was measured, and answers before and after."""
    rate = judged.win_rate
    errors = {} if rate is None else {"win_rate": share_error(rate.value, len(judged.prompts))}
    shown = zip(judged.prompts, judged.before, judged.after, strict=True)
    samples = [(f"{prompt}\n", f"  before: {old}\n  after:  {new}", "") for prompt, old, new in list(shown)[:SHOWN]]
    return Validation(metrics | judged.metrics(), samples, errors)


def _of_policy(job: Job, learner: PreferenceLearner | RolloutLearner) -> Job:
    """The job with a learner in the place of the model; what is saved is its policy, a language model as any other."""

    def save(model: nn.Module, name: str, metrics: dict[str, object]) -> None:
        job.save(learner.policy, name, metrics)

    return replace(job, model=learner, save=save)


METHODS: dict[str, Callable[[Material], tuple[Job, tuple[str, ...]]]] = {
    "reward": prepare_reward,
    "dpo": prepare_dpo,
    "ppo": prepare_ppo,
}


class AlignSubject(Subject):
    """Pairs of answers, for a reward model."""

    @cached_property
    def pairs(self) -> EncodedPreferences:
        one, other = ([_drawn(text) for text in self.draw(TEXT_LENGTHS, special=1, seed=seed)] for seed in (1, 2))
        return EncodedPreferences(one, other, self.bundle.tokenizer.specials.pad)

    def take(self, rows: Sequence[int]) -> PreferenceBatch:
        return self.pairs.take(rows)

    def lengthened(self, batch: PreferenceBatch) -> PreferenceBatch:
        return replace(batch, ids=real_behind(batch.ids), learned=widened(batch.learned, (0, EXTRA)))

    def real(self, outputs: Tensor, batch: PreferenceBatch) -> list[Tensor]:
        """The rewards of each pair: (2,)."""
        return list(outputs)

    def training(self, seed: int) -> PreferenceBatches:
        return PreferenceBatches(self.pairs, 30, seed)

    @property
    def name(self) -> str:
        return f"{super().name} reward model"


def _drawn(text: np.ndarray) -> EncodedChat:
    """A random text whose first token is the prompt."""
    return EncodedChat(text.astype(np.int64), np.arange(len(text)) > 0)
