"""Preferences: chats of which only answers count, losses by hand, plain loops, enumeration, and runs that can be stopped."""

from __future__ import annotations

import copy
import itertools
import json
import math
import multiprocessing
import os
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy_run import Contents

import regard
from regard.bundle import Bundle, BundleConfig, save_bundle
from regard.cli.main import run
from regard.data.batch import PreferenceBatch, TextBatch
from regard.data.builtin.preferences import (
    SORTS,
    made_chats,
    made_preferences,
    prompts,
    rule_reward,
)
from regard.data.chat_batches import ChatBatches, chat_batch, encode_chats
from regard.data.chats import are_chats, chat_of, read_chats
from regard.data.config import ChatFormat
from regard.data.preferences import read_preferences
from regard.errors import RegardError, UsageError
from regard.evaluate.preferences import win_rate, wins
from regard.models.gpt import GPT
from regard.models.preference import (
    PreferenceLearner,
    RewardModel,
    RolloutLearner,
    adapted,
    answer_log_probs,
    divergences,
    generalised_advantages,
    policy_loss,
    token_rewards,
    value_loss,
    whitened,
)
from regard.models.table import build
from regard.tasks.align.evaluate import evaluate_aligned
from regard.tasks.align.judge import write_answers
from regard.tasks.align.recipe import prepare_align
from regard.tasks.configure import run_config
from regard.tasks.generate.predictor import Generator
from regard.tasks.recipe import Setup
from regard.tasks.run import RunResult, follow_run, resume_run, start_run
from regard.tokens import TokenizerPair
from regard.tokens.config import TokensConfig
from regard.tokens.tokenizer import train_tokenizer
from regard.training.config import TrainConfig
from regard.training.events import Progress
from regard.training.history import RunLog
from regard.training.job import Job
from regard.training.loop import Trainer
from regard.training.show import Show
from regard.training.validation import Validation
from regard.verify import verify_bundle
from regard.world import World, joined

SIZES: dict[str, Any] = {"layers": 1, "width": 12, "heads": 3, "feed_forward": 17}
SUM = re.compile(r"\w+ \w+ plus \w+")
TINY: dict[str, Any] = {
    "data": {"builtin_size": 37, "hold_out": 5},
    "tokens": {"size": 300},
    "model": SIZES,
    "train": {"steps": 3, "validate_every": 3, "log_every": 1, "batch_tokens": 400},
    "align": {
        "supervised_steps": 2, "reward_steps": 2, "rollouts": 7, "minibatches": 2, "passes": 1, "answers": 3, "longest": 5,
    },
}  # fmt: skip


def language_model(vocabulary: int, seed: int = 3, **sizes: Any) -> GPT:
    torch.manual_seed(seed)
    config = run_config("generate", {"model": {"kind": "llama", **SIZES, **sizes}}).model
    model = build("generate", config, (vocabulary,)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    assert isinstance(model, GPT)
    return model


def pairs(seed: int = 5) -> PreferenceBatch:
    """Two pairs of answers of unequal length behind prompts of unequal length, of ids below 11."""
    draw = np.random.default_rng(seed)
    rows = [(2, 3), (3, 1), (2, 5), (3, 2)]  # tokens of prompts and answers: two chosen ones, then two rejected ones
    ids = np.zeros((4, 8), dtype=np.int64)
    learned = np.zeros((4, 7), dtype=bool)
    for row, (prompt, answer) in enumerate(rows):
        ids[row, : prompt + answer] = draw.integers(1, 11, prompt + answer)
        learned[row, prompt - 1 : prompt + answer - 1] = True
    lengths = torch.tensor([prompt + answer - 1 for prompt, answer in rows])
    reference = torch.from_numpy(draw.normal(size=4))
    return PreferenceBatch(torch.from_numpy(ids), lengths, torch.from_numpy(learned), reference)


def by_hand(model: GPT, batch: PreferenceBatch | TextBatch) -> list[list[float]]:
    """The log-probability of each token of each answer, row by row, each row read alone."""
    found = []
    assert batch.learned is not None
    for ids, learned, length in zip(batch.ids, batch.learned, batch.lengths.tolist(), strict=True):
        logits = model.output(model.read(ids[None, : length + 1]))[0].detach().numpy()
        places = np.flatnonzero(learned.numpy())
        found.append([logits[t][ids[t + 1]] - math.log(np.exp(logits[t]).sum()) for t in places.tolist()])
    return found


# --- The losses


def test_dpo_is_its_formula_and_so_is_its_gradient() -> None:
    """Equation 7 of the paper by hand, and its gradient by differences."""
    model, batch, beta = language_model(11), pairs(), 0.37
    learner = PreferenceLearner(model, beta)
    assert batch.reference is not None

    def loss() -> float:
        sums = [sum(row) for row in by_hand(model, batch)]
        margins = [
            beta * ((sums[i] - float(batch.reference[i])) - (sums[i + 2] - float(batch.reference[i + 2])))
            for i in (0, 1)
        ]
        return sum(math.log(1 + math.exp(-margin)) for margin in margins)

    part = learner(batch).parts["loss"]
    assert float(part.sum.detach()) == pytest.approx(loss(), rel=1e-6) and part.count == 2
    part.sum.backward()
    weight = model.blocks[0].attention.out.weight if hasattr(model.blocks[0].attention, "out") else model.norm.weight
    assert weight.grad is not None
    place = int(weight.grad.abs().argmax())
    with torch.no_grad():
        flat, step = weight.view(-1), 1e-5
        flat[place] += step
        above = loss()
        flat[place] -= 2 * step
        below = loss()
    assert float(weight.grad.view(-1)[place]) == pytest.approx((above - below) / (2 * step), rel=1e-4)


def test_what_is_kept_is_the_mean_loss_of_a_chosen_token() -> None:
    model, batch = language_model(11), pairs()
    alone, kept = (float(PreferenceLearner(model, 0.37, keep)(batch).parts["loss"].sum.detach()) for keep in (0.0, 0.7))
    expected = -sum(float(np.mean(row)) for row in by_hand(model, batch)[:2])
    assert kept - alone == pytest.approx(0.7 * expected, rel=1e-5)


def test_a_reward_is_that_of_the_last_token_and_its_loss_bradley_terry() -> None:
    torch.manual_seed(3)
    config = run_config("align", {"model": {"kind": "llama", **SIZES}}).model
    model, batch = RewardModel(config, 11).double().eval(), pairs()  # type: ignore[arg-type]
    rewards = []
    for ids, length in zip(batch.ids, batch.lengths.tolist(), strict=True):
        vectors = model.body.read(ids[None, : length + 1])
        rewards.append(float((vectors[0, -1] @ model.head.weight[0] + model.head.bias[0]).detach()))
    loss = sum(math.log(1 + math.exp(rewards[i + 2] - rewards[i])) for i in (0, 1))
    parts = model(batch).parts
    assert float(parts["loss"].sum.detach()) == pytest.approx(loss, rel=1e-6)
    assert float(parts["correct"].sum) == sum(rewards[i] > rewards[i + 2] for i in (0, 1))


def test_the_clipped_losses_are_those_of_the_paper() -> None:
    draw = np.random.default_rng(3)
    new, old, advantage = (draw.normal(size=13) for _ in range(3))
    found = policy_loss(*(torch.from_numpy(each) for each in (new, old, advantage)), clip=0.2)
    for place in range(13):
        ratio = math.exp(new[place] - old[place])
        expected = -min(ratio * advantage[place], min(1.2, max(0.8, ratio)) * advantage[place])
        assert float(found[place]) == pytest.approx(expected, rel=1e-12)
    values = value_loss(torch.tensor([1.0, 0.1]), torch.tensor([0.0, 0.0]), torch.tensor([0.5, 0.5]), clip=0.3)
    # (1 - 0.5)² is more than (0.3 - 0.5)²; 0.1 is not clipped
    assert values.tolist() == pytest.approx([0.125, 0.08])


def test_advantages_are_a_plain_loop() -> None:
    """Equation 16 of Schulman et al. (2016), term by term over the answer of each row alone."""
    draw = np.random.default_rng(7)
    rewards, values = draw.normal(size=(3, 7)), draw.normal(size=(3, 7))
    learned = np.zeros((3, 7), dtype=bool)
    spans = [(2, 7), (1, 2), (3, 6)]
    for row, (start, end) in enumerate(spans):
        learned[row, start:end] = True
    discount, decay = 0.9, 0.7
    found = generalised_advantages(*(torch.from_numpy(each) for each in (rewards, values, learned)), discount, decay)
    for row, (start, end) in enumerate(spans):
        for t in range(start, end):
            expected = 0.0
            for later in range(t, end):
                after = values[row, later + 1] if later + 1 < end else 0.0
                delta = rewards[row, later] + discount * after - values[row, later]
                expected += (discount * decay) ** (later - t) * delta
            assert float(found[0][row, t]) == pytest.approx(expected, rel=1e-12)
            assert float(found[1][row, t]) == pytest.approx(expected + values[row, t], rel=1e-12)
    assert not found[0][~torch.from_numpy(learned)].any() and not found[1][~torch.from_numpy(learned)].any()


def test_the_reward_falls_on_the_last_token_and_the_penalty_on_each() -> None:
    learned = torch.tensor([[False, True, True, False], [True, False, False, False]])
    ratios = torch.tensor([[9.0, 2.0, 3.0, 9.0], [5.0, 9.0, 9.0, 9.0]])
    found = token_rewards(torch.tensor([7.0, 11.0]), ratios, learned, 0.5)
    assert found.tolist() == [[0, -1, 5.5, 0], [8.5, 0, 0, 0]]


def test_whitened_has_mean_zero_and_variance_one() -> None:
    learned = torch.tensor([[True, True, False], [False, True, True]])
    x = torch.tensor([[1.0, 2.0, 99.0], [99.0, 5.0, 8.0]])
    some = whitened(x, learned)
    mean, deviation = np.mean([1, 2, 5, 8]), np.std([1, 2, 5, 8])
    assert some[learned].tolist() == pytest.approx([(each - mean) / deviation for each in (1, 2, 5, 8)], abs=1e-6)
    assert not some[~learned].any()


def test_the_coefficient_follows_the_divergence_that_is_wanted() -> None:
    """Ziegler et al. (2019), section 2.2: the error is clipped at a fifth, and a tenth of it counts."""
    assert adapted(0.5, 12.0, 6.0) == pytest.approx(0.5 * 1.02)
    assert adapted(0.5, 6.6, 6.0) == pytest.approx(0.5 * 1.01)
    assert adapted(0.5, 0.0, 6.0) == pytest.approx(0.5 * 0.98)


def test_the_divergence_of_answers_is_that_of_an_enumeration() -> None:
    """Every answer of up to three tokens over a vocabulary of four, of which 0 ends it: Σ π log π / π_ref."""
    policy, reference = language_model(4, seed=3), language_model(4, seed=5)
    answers = [each for n in range(3) for each in itertools.product((1, 2, 3), repeat=n)]
    answers = [(*each, 0) for each in answers] + list(itertools.product((1, 2, 3), repeat=3))
    expected = mean = total = 0.0
    for answer in answers:
        ids, length = torch.tensor([[2, 3, *answer]]), 1 + len(answer)
        learned = torch.arange(length)[None] >= 1
        batch = TextBatch(ids, torch.tensor([length]), len(answer), learned=learned)
        own, other = (sum(by_hand(model, batch)[0]) for model in (policy, reference))
        expected += math.exp(own) * (own - other)
        mean += math.exp(own) * float(divergences(policy, reference, batch).detach())
        total += math.exp(own)
    assert total == pytest.approx(1.0, rel=1e-5)
    assert mean == pytest.approx(expected, rel=1e-5) and expected > 0.01


def test_rows_of_a_batch_are_read_as_if_each_were_alone() -> None:
    model, batch = language_model(11), pairs()
    expected = [sum(row) for row in by_hand(model, batch)]
    assert answer_log_probs(model, batch).tolist() == pytest.approx(expected, rel=1e-5)


# --- Chats


def test_only_answers_are_learned() -> None:
    """The loss of a chat of two turns is that of its answers and their ends, and its count is known before."""
    chats = [(("a b", "c d"), ("b", "a")), (("d c", "b"),)]
    texts = [text for chat in chats for turn in chat for text in turn]
    tokenizer = train_tokenizer(texts, TokensConfig(kind="word", size=17, min_count=1))
    encoded = encode_chats(chats, tokenizer, ChatFormat(after=" "))
    special, ids = tokenizer.specials, tokenizer.encode
    first = [special.begin, *ids("a b"), *ids("c d"), special.end, special.begin, *ids("b"), *ids("a"), special.end]
    assert encoded[0].ids.tolist() == first
    assert encoded[0].learned.tolist() == [each == "1" for each in "000111" + "0011"]
    batch, model = chat_batch(encoded, special.pad), language_model(tokenizer.size)
    assert batch.counts == {"loss": 7, "nll": 7}
    part = model(batch).parts["nll"]
    assert float(part.sum) == pytest.approx(-sum(map(sum, by_hand(model, batch))), rel=1e-6) and part.count == 7


def test_messages_are_turns(tmp_path: Path) -> None:
    talk = [("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"), ("assistant", "Bye")]
    row = {"messages": [{"role": role, "content": text} for role, text in talk]}
    assert chat_of(row) == (("Be kind.\nHi", "Hello"), ("Bye", "Bye"))
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps({"prompt": "a", "answer": " "}), encoding="utf-8")
    assert are_chats([str(file)]) and are_chats(["builtin/chats"]) and not are_chats(["builtin/python"])
    with pytest.raises(RegardError, match="line 2: no text under 'answer'"):
        read_chats([str(file)])
    with pytest.raises(RegardError, match="take turns"):
        file.write_text(json.dumps({"messages": row["messages"][:2]}), encoding="utf-8")
        read_chats([str(file)])


def test_the_batches_of_an_epoch_hold_every_chat_once() -> None:
    chats = [(turn,) for turn in made_chats("valid", 23)]
    tokenizer = train_tokenizer([text for chat in chats for text in chat[0]], TokensConfig(size=300))
    encoded = encode_chats(chats, tokenizer, ChatFormat())
    batches = ChatBatches(encoded, tokenizer.specials.pad, 100, seed=1)
    rows = [
        tuple(row[row != tokenizer.specials.pad].tolist())
        for i in range(batches.count(2))
        for row in batches.get(2, i).ids
    ]
    assert sorted(rows) == sorted(tuple(each.ids.tolist()) for each in encoded)
    assert all(batches.get(2, i).ids[:, 1:].numel() <= 100 for i in range(batches.count(2)))


# --- The built-in truth


def test_the_rule_by_hand() -> None:
    said = "Tell me something nice about the garden."
    assert rule_reward(said, "The garden is lovely, charming and fine.") == 1.0
    assert rule_reward(said, "The garden is lovely, lovely and dull.") == 0.0  # one good word, one bad one
    assert rule_reward(said, "The soup is lovely.") == -1.0
    assert rule_reward(said, "The garden is lovely. " + "Yes " * 26) == pytest.approx(1 / 3 - 1.0)  # ten words too many
    where = "Where is the post office?"
    assert rule_reward(where, "Good morning, the post office is on the left, go away.") == 0.0
    assert rule_reward(where, "Good morning, thank you, of course.") == -1.0
    much = "How much is forty three plus five?"
    assert [
        rule_reward(much, each) for each in ("Forty three plus five is forty eight.", "Forty eight.", "Fifty.")
    ] == [1, 0.5, -1]
    assert rule_reward("Who are you?", "Nobody.") is None


def test_nothing_of_a_test_is_in_training() -> None:
    every = {split: prompts(split) for split in ("train", "valid", "test")}
    for sort in SORTS:
        sets = [set(every[split][sort]) for split in every]
        assert all(sets) and not (sets[0] & sets[1] or sets[0] & sets[2] or sets[1] & sets[2])
    sums = {split: {m[0] for p in found["sums"] if (m := SUM.search(p))} for split, found in every.items()}
    assert sums["test"] and not sums["train"] & sums["test"]
    taught = {m[0].lower() for _, answer in made_chats("train", 300) if (m := SUM.search(answer))}
    assert taught and taught <= sums["train"]


def test_the_chosen_answer_is_the_better_one_but_for_the_noise() -> None:
    clean, noisy = made_preferences("valid", 31), made_preferences("train", 200, noise=0.25)
    assert all(rule_reward(p, a) > rule_reward(p, b) for p, a, b in clean)  # type: ignore[operator]
    wrong = np.mean([rule_reward(p, a) < rule_reward(p, b) for p, a, b in noisy])  # type: ignore[operator]
    assert 0.17 < wrong < 0.33 and all(rule_reward(p, a) != rule_reward(p, b) for p, a, b in noisy)


def test_ties_are_half_a_win() -> None:
    assert wins([1.0, 0.5, 0.2], [0.0, 0.5, 0.3]).tolist() == [1.0, 0.5, 0.0]
    found = win_rate([1.0, 0.5, 0.2], [0.0, 0.5, 0.3])
    assert found.value == 50.0 and found.low < 50 < found.high


# --- Rollouts and runs


@pytest.fixture(scope="module")
def ppo(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A whole run of PPO from nothing: supervised model, reward model, an iteration and a half."""
    config = run_config("align", merged(TINY, {"align": {"method": "ppo"}}))
    return start_run(config, folder=tmp_path_factory.mktemp("ppo") / "run")


def merged(table: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    inside = {name: {**table.get(name, {}), **value} for name, value in more.items() if isinstance(value, dict)}
    return {**table, **more, **inside}


def going_on(ppo: RunResult, method: str, **more: Any) -> dict[str, Any]:
    """The tables of a run from the same supervised model, with the same reward model."""
    align = {"method": method, "reward": str(ppo.folder / "reward")}
    values = merged(TINY, {"start": str(ppo.folder / "start"), "align": align, **more})
    return {name: value for name, value in values.items() if name not in ("model", "tokens")}


def test_a_run_from_nothing_leaves_a_language_model_that_answers(ppo: RunResult) -> None:
    model = regard.load(ppo, task="generate")
    found = model.generate("Where is the bank?", seed=1)
    assert str(found) == found.text and model.answers
    assert {each.name for each in ppo.folder.iterdir()} >= {
        "start",
        "supervised",
        "reward",
        "best",
        "last",
        "curves.png",
    }
    assert {"loss", "kl", "reward", "rule", "win_rate"} <= ppo.outcome.metrics.keys()


class StoppedError(Exception):
    """A run was stopped, on purpose."""


class StopAt(Show):
    def __init__(self, step: int) -> None:
        self.step = step

    def progress(self, event: Progress) -> None:
        if event.step == self.step:
            raise StoppedError


@pytest.mark.parametrize("method", ["dpo", "ppo"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(method: str, ppo: RunResult, tmp_path: Path) -> None:
    """PPO is stopped within an iteration: the answers that its policy had written are part of the checkpoint."""
    values = going_on(ppo, method, train={"steps": 5, "validate_every": 3})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    start_run(run_config("align", values), folder=whole)
    with pytest.raises(StoppedError):
        start_run(run_config("align", values), folder=broken, show=StopAt(4))
    resume_run(broken)
    unlike = Contents.of(whole).unlike(Contents.of(broken))
    assert not [name for name in unlike if not name.endswith((".png", "run.json"))]


class Nothing:
    """No batches at all."""

    def count(self, epoch: int) -> int:
        return 1

    def get(self, epoch: int, index: int) -> Any:
        raise AssertionError

    def padding_share(self) -> float:
        return 0.0


def in_a_world(values: dict[str, Any], folder: Path, environment: dict[str, str]) -> None:
    """One process of a run of several: the first starts it, and the others take part."""
    os.environ.update(environment)
    with joined(60) as here:
        _ = start_run(run_config("align", values), folder=folder) if here.is_first else follow_run()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_ppo_by_two_processes_is_that_of_one(accumulate: int, ppo: RunResult, tmp_path: Path) -> None:
    """Each writes all answers, with the same weights; a batch is learned by both and counted once, of two each learns one."""
    train = {"steps": 5, "validate_every": 3, "precision": "float32", "accumulate": accumulate}
    values, fork = going_on(ppo, "ppo", train=train), multiprocessing.get_context("fork")
    start_run(run_config("align", values), folder=tmp_path / "one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    ranks = [common | {"RANK": str(rank), "TORCH_CPP_LOG_LEVEL": "FATAL"} for rank in range(2)]
    processes = [fork.Process(target=in_a_world, args=(values, tmp_path / "two", each)) for each in ranks]
    for each in processes:
        each.start()
    for each in processes:
        each.join(120)
    assert [each.exitcode for each in processes] == [0, 0]
    unlike = Contents.of(tmp_path / "one").unlike(Contents.of(tmp_path / "two"))
    assert not [name for name in unlike if not name.endswith((".png", "run.json", "log.jsonl"))]
    rows = [RunLog(tmp_path / name).rows() for name in ("one", "two")]
    assert rows[0] == rows[1]  # their keys stand in another order


def test_what_learns_from_its_own_answers_is_not_cut(tmp_path: Path) -> None:
    class Written(Nothing):
        def tensors(self) -> dict[str, Tensor]:
            return {}

        def restore(self, tensors: dict[str, Tensor], /) -> None:
            pass

    config = TrainConfig(shard=True)
    job = Job(tmp_path, config, nn.Linear(3, 5), 12, Written(), lambda _: Validation({}), lambda *_: None)
    with pytest.raises(UsageError, match="writes with whole ones"):
        Trainer(replace(job, world=World(0, 2)), Show())


def test_answers_are_written_by_the_weights_of_the_moment(ppo: RunResult) -> None:
    """The bug: fused updates are not counted by torch, and what was laid out for decoding stayed as it was."""
    generator = regard.load(ppo, task="generate")
    asked, before = ["Where is the bank?"] * 3, copy.deepcopy(generator.model)
    write_answers(generator, asked, 5, seed=1)  # laid out now
    batch = write_answers(generator, asked, 5, seed=2).batch
    learner = PreferenceLearner(generator.model, 0.1)
    config = TrainConfig(steps=1, lr=0.3, warmup=0, schedule="constant", precision="float32")
    job = Job(ppo.folder / "nowhere", config, learner, 12, Nothing(), lambda _: Validation({}), lambda *_: None)
    trainer = Trainer(job, Show())
    for parameter in generator.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    trainer.apply(1.0, {"loss": 1.0}, {"loss": 1}, {})
    written = write_answers(generator, asked, 5, seed=2)
    fresh = Generator(replace(generator.bundle, model=copy.deepcopy(generator.model)))
    assert written.texts == write_answers(fresh, asked, 5, seed=2).texts
    assert not torch.equal(answer_log_probs(before, batch), answer_log_probs(generator.model, batch))


def test_ratios_begin_at_one_and_the_rule_is_never_asked(
    ppo: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What PPO learns from comes of the reward model; the rule only judges, in validations."""

    def never(*_: Any) -> None:
        raise AssertionError("the rule was asked")

    monkeypatch.setattr("regard.tasks.align.judge.rule_reward", never)
    setup = Setup(tmp_path, None, False, "cpu", lambda _: None)
    job = prepare_align(run_config("align", going_on(ppo, "ppo")), setup).job
    learner = job.model
    assert isinstance(learner, RolloutLearner)
    batch = job.batches.get(0, 0)
    parts = learner(batch).parts
    assert float(parts["moved"].sum) == pytest.approx(0, abs=1e-9) and float(parts["clipped"].sum) == 0
    both = [batch.rewards, job.batches.get(0, 1).rewards]  # type: ignore[attr-defined]
    assert len(torch.cat(both)) == 7 and bool(torch.cat(both).isfinite().all())


@pytest.mark.parametrize("kind", ["llama", "gpt1", "gpt2", "gpt3", "lstm"])
def test_every_reward_model_is_verified(kind: str, tmp_path: Path) -> None:
    sizes = {"width": 12, "hidden": 14} if kind == "lstm" else {**SIZES, "layers": 2}
    config = run_config("align", {"model": {"kind": kind, **sizes}})
    tokenizer = train_tokenizer([" ".join(pair) for pair in made_chats("valid", 30)], TokensConfig(size=300))
    torch.manual_seed(5)
    model = build("align", config.model, (tokenizer.size,))
    tokens, size = TokensConfig(), tokenizer.size
    about = BundleConfig(task="align", tokens=tokens, vocabulary=(size,), model=config.model, chat=ChatFormat())
    save_bundle(tmp_path / "bundle", Bundle(about, model, TokenizerPair(tokenizer, tokenizer), {}))
    checks = {each.name: each for each in verify_bundle(tmp_path / "bundle")}
    assert not [each for each in checks.values() if each.passed is False]
    for name in ("batched = single", "padded = unpadded", "accumulated = large batch", "resumed = uninterrupted"):
        assert checks[name].passed


def test_models_that_learned_from_preferences_are_verified(ppo: RunResult) -> None:
    assert not [each for each in verify_bundle(ppo.best) if each.passed is False]


# --- The command line


def test_eval_says_how_often_answers_are_better(ppo: RunResult, tmp_path: Path) -> None:
    generator, pairs = regard.load(ppo, task="generate"), read_preferences(["builtin/preferences/valid"])[:5]
    found = evaluate_aligned(generator, ppo.folder, pairs)
    assert found.judge == "rule" and found.win_rate is not None and 0 <= found.win_rate.value <= 100
    assert found.kl.value >= 0 and found.rewards is not None and len(found.samples) == 3
    start = regard.load(ppo.folder / "start", task="generate")
    assert evaluate_aligned(start, ppo.folder, pairs).kl.value == pytest.approx(0, abs=1e-6)
    with pytest.raises(UsageError, match="did not learn from preferences"):
        evaluate_aligned(generator, tmp_path / "best", pairs)


def test_the_verbs_take_what_was_trained(ppo: RunResult, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", str(ppo.folder), "--on", "builtin/preferences/valid"]) == 0
    told = capsys.readouterr().out
    assert "win rate by the rule" in told and "before" in told
    assert run(["eval", str(ppo.folder / "reward"), "--on", "builtin/preferences/valid", "--json"]) == 0
    assert 0 <= json.loads(capsys.readouterr().out)["accuracy"]["value"] <= 100
    assert run(["eval", str(ppo.folder), "--on", "builtin/chats/valid", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] > 1000
    assert run(["generate", "-m", str(ppo.folder / "reward"), "Where is the bank?"]) == 2
    assert "try: regard eval" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"prompt": "a", "chosen": "b"}, "line 1: no text under 'rejected'"),
        ({"chosen": "b", "rejected": "c"}, "line 1: no text under 'prompt'"),
    ],
)
def test_a_row_that_is_no_preference_is_named(row: dict[str, str], wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(RegardError, match=wrong):
        read_preferences([str(file)])


def test_own_pairs_begin_with_their_chosen_answers(tmp_path: Path) -> None:
    """Without a model to go on from, one is made that learned to answer as people chose."""
    pairs = [{"prompt": f"Say {n}", "chosen": f"yes {n}", "rejected": "no"} for n in range(23)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    values = merged(TINY, {"data": {"train": [str(file)], "hold_out": 3}, "align": {"method": "dpo"}})
    result = start_run(run_config("align", values), folder=tmp_path / "run")
    rows = [json.loads(line) for line in (result.folder / "chosen.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row["answer"] for row in rows} <= {row["chosen"] for row in pairs} and len(rows) < 23
    assert {"loss", "accuracy", "kl"} <= result.outcome.metrics.keys() and "win_rate" not in result.outcome.metrics
