"""Train several configurations under one budget of time, each as an ordinary run, so that a stopped contest goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from regard.bundle import read_config
from regard.compare.contenders import Contender
from regard.config import Tables
from regard.data.kept.tokenizers import train_pair_tokenizers
from regard.data.pairs import load_pairs
from regard.errors import UsageError
from regard.files import alone_in
from regard.runs import CONFIG, bundle_folder, read_run
from regard.tasks.budget import MEASURING, Say, fit, under_budget
from regard.tasks.config import RunConfig
from regard.tasks.run import resume_run, start_run
from regard.tasks.translate.config import TranslateConfig
from regard.tokens import TokenizerPair
from regard.training.history import read_progress
from regard.training.pace import Plan
from regard.training.show import Show


class Interrupted(Exception):
    """The person stopped the contest; what was learned is kept."""


def check_reach(contenders: Sequence[Contender], texts: Mapping[str, Sequence[str]]) -> None:
    """Refuse translators that cannot read a test set before any is trained; `texts` are its sources by what they are."""
    for contender in contenders:
        longest, encode = _reading(contender)
        if longest is None:
            continue
        for what, sources in texts.items():
            length = max(len(ids) for ids in encode(sources)) + 1  # the end token
            if length > longest:
                raise UsageError(
                    f"{contender.name} reads {longest} tokens, and {what} have up to {length}: set model.max_length to "
                    f"{length} or more, or another kind of model.positions, or test on shorter ones"
                )


def _reading(contender: Contender) -> tuple[int | None, Callable[[Sequence[str]], Sequence[Sequence[int]]]]:
    """How many tokens a translator reads, if it has a limit, and what makes tokens of its sources."""
    if contender.config is None:
        folder = bundle_folder(contender.word)
        tokenizers = TokenizerPair.load(folder)
        return read_config(folder).model.longest, tokenizers.source.encode_all
    assert isinstance(contender.config, TranslateConfig)
    longest = contender.config.model.longest
    data, tokens, root = contender.config.data, contender.config.tokens, contender.data_root

    def encode(texts: Sequence[str]) -> Sequence[Sequence[int]]:
        return train_pair_tokenizers([load_pairs(data, root)], tokens).source.encode_all(texts)

    return longest, encode


def train_all(
    contenders: Sequence[Contender],
    budget: float,
    out: Path,
    *,
    device: str = "cpu",
    say: Say = lambda text: None,
    make_show: Callable[[], Show] = Show,
) -> dict[str, Path]:
    """A trained run for every contender, by name: those without a configuration are trained already."""
    out.mkdir(parents=True, exist_ok=True)
    runs: dict[str, Path] = {}
    with alone_in(out):
        for contender in contenders:
            if contender.config is None:
                runs[contender.name] = Path(contender.word)
                continue
            runs[contender.name] = _train_one(contender, budget, out, device, say, make_show)
    return runs


def _train_one(
    contender: Contender, budget: float, out: Path, device: str, say: Say, make_show: Callable[[], Show]
) -> Path:
    """Reuse a run that has ended, go on with one that has begun, or start a new one."""
    folder = out / contender.name
    assert contender.config is not None
    if not (folder / CONFIG).exists():
        config = fit(
            contender.name, contender.config, contender.data_root, budget, out / MEASURING, device, say, make_show()
        )
        result = start_run(config, data_root=contender.data_root, folder=folder, device=device, show=make_show())
    else:
        check_same_run(contender.config, folder, budget)
        progress = read_progress(folder)
        if progress.get("finished"):
            say(f"{contender.name}: already trained in {folder}, {progress['step']:,} steps")
            return folder
        say(f"{contender.name}: goes on in {folder} at step {progress.get('step', 0):,}")
        result = resume_run(folder, device=device, show=make_show())
    if result.outcome.reason == "interrupted":
        raise Interrupted
    return folder


def check_same_run(asked: RunConfig, folder: Path, budget: float) -> None:
    """Refuse to go on with a run of another configuration or budget; say what differs."""
    stored = read_run(folder)["config"]
    train = stored.get("train", {})
    every = asked.train.validate_every or train.get("validate_every", 1)
    expected = under_budget(asked, Plan(train.get("steps", 1), every), budget).dump()
    changed = differences(stored, expected)
    if changed:
        raise UsageError(f"{folder} was trained otherwise ({'; '.join(changed)})", "choose another folder with -o")


def differences(before: Tables, now: Tables, path: str = "") -> list[str]:
    """Keys whose values differ, each with both of them: "train.lr was 0.001, is 0.002"."""
    found = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{path}{key}.")
        elif old != new:
            found.append(f"{path}{key} was {old}, is {new}")
    return found
