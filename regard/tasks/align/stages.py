"""The models that learning from preferences begins with, each kept in the run's folder: where none is named, it is trained.

start/        the supervised model that is gone on from, the reference of the penalty
supervised/   its run, where no model was named: on built-in chats, or on the chosen answers of the person's pairs
reward/       the reward model of PPO, or its run
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard.bundle import Bundle, load_bundle, save_bundle
from regard.config import Tables
from regard.data.builtin.preferences import CHATS, PREFERENCES
from regard.data.config import ChatFormat
from regard.data.preferences import Preference
from regard.errors import UsageError
from regard.files import write_text
from regard.models.preference import RewardModel
from regard.runs import CONFIG, bundle_folder, bundle_task
from regard.tasks.align.config import AlignConfig
from regard.tasks.config import RunConfig
from regard.tasks.configure import run_config
from regard.tasks.recipe import Setup
from regard.tasks.run import resume_run, start_run
from regard.training.events import Event, Note, Progress, Validated, Working
from regard.training.history import read_progress
from regard.training.show import metrics_line

START, SUPERVISED, REWARD, CHOSEN = "start", "supervised", "reward", "chosen.jsonl"


def start_model(config: AlignConfig, setup: Setup, pairs: Sequence[Preference]) -> Bundle:
    """The language model that the run goes on from; it answers prompts from now on."""
    kept = setup.folder / START
    if not (kept / "config.json").exists():
        origin = config.start or stage(SUPERVISED, supervised_config(config, setup, pairs), setup)
        found = load_bundle(bundle_folder(origin), setup.device)
        form = found.config.chat or ChatFormat()
        decode = found.config.decode.model_copy(update={"max_length": config.align.longest})
        about = found.config.model_copy(update={"chat": form, "decode": decode})
        save_bundle(kept, replace(found, config=about))
    return load_bundle(kept, setup.device)


def reward_model(config: AlignConfig, setup: Setup) -> RewardModel | None:
    """The reward model that is named, or that PPO learns first; None where there is none."""
    place = setup.folder / REWARD
    if config.align.reward is None:
        if config.align.method != "ppo":
            return None
        stage(REWARD, reward_config(config, setup), setup)
    elif not (place / "config.json").exists():
        if bundle_task(config.align.reward) != "align":
            told = f"align.reward: {config.align.reward} is a model to {bundle_task(config.align.reward)}"
            raise UsageError(told, "train a reward model: regard train align --method reward")
        save_bundle(place, load_bundle(bundle_folder(config.align.reward), setup.device))
    found = load_bundle(bundle_folder(place), setup.device)
    if found.tokenizer.text != load_bundle(setup.folder / START).tokenizer.text:
        raise UsageError(
            f"align.reward: {config.align.reward} has other tokens than the model", "train one from the same"
        )
    model = found.model.requires_grad_(False)
    assert isinstance(model, RewardModel)
    return model


def supervised_config(config: AlignConfig, setup: Setup, pairs: Sequence[Preference]) -> RunConfig:
    """The supervised run: built-in chats; of a person's own pairs the chosen answers (Rafailov et al. 2023, section 4)."""
    names: list[str] = [CHATS]
    if any(not name.startswith(PREFERENCES) for name in config.data.train):
        rows = (json.dumps({"prompt": each.prompt, "answer": each.chosen}, ensure_ascii=False) for each in pairs)
        names = [str(write_text(setup.folder / CHOSEN, "".join(f"{row}\n" for row in rows)).absolute())]
    steps = config.align.supervised_steps
    train: Tables = {"steps": steps, "seed": config.train.seed, "batch_tokens": 2048, "patience": 0}
    train |= {"precision": config.train.precision, "validate_every": max(1, steps // 4)}
    assert config.tokens is not None
    over: Tables = {
        "data": {"train": names, "context": config.align.context, "builtin_size": config.data.builtin_size},
        "tokens": config.tokens.model_dump(mode="json"),
        "model": config.model.model_dump(mode="json"),
        "train": train,
        "decode": config.decode.model_dump(mode="json"),
        "samples": config.align.longest,
    }
    return run_config("generate", over)


def reward_config(config: AlignConfig, setup: Setup) -> RunConfig:
    """The run of the reward model, on the same pairs."""
    steps = config.align.reward_steps
    train: Tables = {"steps": steps, "seed": config.train.seed, "validate_every": max(1, steps // 4)}
    train |= {"precision": config.train.precision, "batch_tokens": config.train.batch_tokens}
    over: Tables = {
        "start": str((setup.folder / START).absolute()),
        "data": config.data.model_dump(mode="json"),
        "align": {"method": "reward", "context": config.align.context},
        "train": train,
    }
    return run_config("align", over)


def stage(name: str, config: RunConfig, setup: Setup) -> Path:
    """Train a stage in a folder of the run; one that was stopped goes on, one that has ended is there already."""
    folder = setup.folder / name

    def told(event: Event) -> None:
        """A stage is told in lines: the table of the run is its own."""
        match event:
            case Progress():
                setup.emit(Working(f"{name} model, step", event.step, event.steps))
            case Validated():
                setup.emit(Note(f"{name} model, step {event.step:,}: {metrics_line(event.metrics)}"))

    if not (folder / CONFIG).exists():
        result = start_run(config, data_root=setup.data_root, folder=folder, device=setup.device, on_event=told)
    elif not read_progress(folder).get("finished"):
        result = resume_run(folder, device=setup.device, on_event=told)
    else:
        return folder
    if result.outcome.reason == "interrupted":
        raise KeyboardInterrupt
    return folder
