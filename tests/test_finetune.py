"""Fine-tuning: what a run takes over, old data among the new, frozen parts, blended weights, and what was gained and lost."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from toy_run import Contents

from regard.bundle import load_bundle
from regard.data.batches import Batches, TokenPairs
from regard.data.mixed import MixedBatches
from regard.errors import RegardError, UsageError
from regard.models.loss import Loss, Part
from regard.runs import read_run
from regard.tasks.choose import Chooser
from regard.tasks.configure import run_config
from regard.tasks.recipe import prepare
from regard.tasks.rules import BLENDED, RATE, TRANSLATE
from regard.tasks.run import RunResult, resume_run, start_run
from regard.tensors import read_tensors
from regard.tokens import PAD
from regard.training import loop
from regard.training.events import Progress
from regard.training.finetune import FORGOTTEN, NEW, OLD, FineTuning, Side, _ratio_error, blended, choose_share
from regard.training.optimiser import freeze_parts
from regard.training.show import Show

ENCODER = {"kind": "convnet", "channels": [4, 8], "layers": 1}
MODELS: dict[str, dict[str, Any]] = {
    "translate": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "width": 12,
        "heads": 3,
        "feed_forward": 20,
        "dropout": 0.1,
    },
    "generate": {"kind": "gpt2", "layers": 1, "width": 12, "heads": 3, "feed_forward": 20, "max_length": 29},
    "caption": {"kind": "show-and-tell", "width": 16, "hidden": 16, "encoder": ENCODER},
}
MORE: dict[str, dict[str, Any]] = {
    "translate": {"validate": {"sentences": 3}, "probes": 0},
    "generate": {"samples": 2, "probes": 0},
    "caption": {"validate": {"pictures": 2}, "decode": {"max_length": 4}},
}
TRAIN = {"steps": 4, "validate_every": 2, "batch_tokens": 64, "batch_pictures": 4, "warmup": 0, "log_every": 1}
OLD_WORDS, NEW_WORDS = ("a man", "two dogs", "the house"), ("the left pump", "a red valve", "one filter")
VERBS = ("sees", "hears", "likes", "finds", "takes")


def settings(task: str, file: str, **more: Any) -> dict[str, Any]:
    """The tables of a run of four updates."""
    data = {"train": file, **({"context": 8} if task == "generate" else {}), **more.pop("data", {})}
    learn = {**TRAIN, "precision": "float32", **more.pop("train", {})}
    over: dict[str, Any] = {"data": data, "train": learn, **MORE[task], **more}
    if "start" not in over:
        over |= {"tokens": {"kind": "word", "min_count": 1, "size": 60}, "model": MODELS[task]}
    return over


def write_data(folder: Path, task: str, name: str, words: tuple[str, ...]) -> None:
    texts = [f"{first} {verb} {second} now" for first, verb, second in product(words, VERBS, words)]
    if task == "translate":
        (folder / f"{name}.tsv").write_text("".join(f"{text}\t{text.upper()}\n" for text in texts))
    elif task == "generate":
        (folder / f"{name}.txt").write_text("\n".join(texts))
    else:
        rows, draw = [], np.random.default_rng(len(words[0]))
        for number, text in enumerate(texts[:40]):
            pixels = draw.integers(0, 255, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{name}-{number}.png")
            rows.append(json.dumps({"picture": f"{name}-{number}.png", "caption": text}))
        (folder / f"{name}.jsonl").write_text("\n".join(rows))


SUFFIX = {"translate": "tsv", "generate": "txt", "caption": "jsonl"}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Old and new data of three tasks, and a run of four updates on the old data of each; not to be written to."""
    folder = tmp_path_factory.mktemp("before")
    for task, suffix in SUFFIX.items():
        write_data(folder, task, f"{task}-old", OLD_WORDS)
        write_data(folder, task, f"{task}-new", NEW_WORDS)
        config = run_config(task, settings(task, f"{task}-old.{suffix}"))
        start_run(config, folder=folder / task, data_root=folder)
    return folder


def tune(before: Path, out: Path, task: str = "translate", show: Show | None = None, **more: Any) -> RunResult:
    over = settings(task, f"{task}-new.{SUFFIX[task]}", start=str(before / task), **more)
    return start_run(run_config(task, over), folder=out, data_root=before, show=show)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = read_tensors(folder / "model.safetensors")
    return found


@dataclass
class Interrupts(Show):
    """Asks the run to stop while update `step` is made."""

    step: int

    def progress(self, event: Progress) -> None:
        if event.step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


# --- What a run takes over


def test_vocabulary_model_decoding_and_data_of_the_old_run(before: Path, tmp_path: Path) -> None:
    over = settings("translate", "translate-new.tsv", start=str(before / "translate"))
    config = run_config("translate", over)
    prepared = prepare(config, tmp_path, data_root=before, resume=False)
    best = before / "translate" / "best"
    old = load_bundle(best)
    assert (config.model, config.tokens, config.decode) == (old.config.model, old.config.tokens, old.config.decode)
    assert config.train.select == "bleu"
    assert (tmp_path / "tokens" / "tokenizer.json").read_bytes() == (best / "tokenizer.json").read_bytes()
    now = dict(prepared.job.model.named_parameters())
    assert all(torch.equal(now[name], value) for name, value in weights(best).items() if name in now)
    named = config.data.old["train"]
    assert named == [str(before / "translate-old.tsv")] and config.data.mix == 0.5
    assert any(f"old data: {named[0]}" in note and "50% of the batches" in note for note in prepared.notes)
    assert isinstance(prepared.job.batches, MixedBatches)
    assert [side.name for side in prepared.job.tuning.sides] == ["new", "old"]


def test_the_same_data_is_not_mixed_with_itself_nor_what_is_gone(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(before)
    config = run_config("translate", {"start": "translate", "data": {"train": "translate-old.tsv"}})
    assert config.data.old == ()
    over = {"train": "translate-new.tsv", "old": {"hold_out": 7}}
    old = run_config("translate", {"start": "translate", "data": over}).data.old
    assert old["hold_out"] == 7 and old["train"] == [str(before / "translate-old.tsv")]
    record = read_run(before / "translate")
    run = tmp_path / "run"
    run.mkdir()
    (run / "best").symlink_to(before / "translate" / "best")
    (run / "run.json").write_text(json.dumps({**record, "beside": str(tmp_path)}))
    monkeypatch.chdir(tmp_path)
    config = run_config("translate", settings("translate", str(before / "translate-new.tsv"), start=str(run)))
    assert config.data.old == ()
    told = prepare(config, tmp_path / "new", data_root=before, resume=False).notes
    assert any("no old data is mixed in" in note and "data.old=" in note for note in told)


def test_the_rate_is_lower_by_a_rule(before: Path) -> None:
    over = {"start": str(before / "translate"), "data": {"train": "x.tsv"}}
    assert run_config("translate", over).train.lr == pytest.approx(RATE * 2e-3)
    assert run_config("translate", {**over, "train": {"lr": 0.7}}).train.lr == 0.7
    chooser = Chooser(frozenset(), 60.0, 0.0, clock=lambda: 0.0)
    config = run_config("translate", over)
    found = chooser.by_rules(config, TRANSLATE, {"examples": 50_000, "characters": 1e6})
    assert (found.model, found.tokens, found.decode) == (config.model, config.tokens, config.decode)
    assert found.train.lr == pytest.approx(RATE * 1e-2)
    choice = next(each for each in chooser.choices if each.setting == "train.lr")
    assert choice.why == "0.2 of the 0.01 of a fresh run: larger steps would forget what the weights know"


@pytest.mark.parametrize(
    ("data", "asked", "blend"), [({}, (), "auto"), ({"mix": 0.0}, (), 0.0), ({}, ("train.blend",), 0.0)]
)
def test_weights_are_blended_where_old_data_is_mixed_in(
    before: Path, data: dict[str, Any], asked: tuple[str, ...], blend: float | str
) -> None:
    """Half of the batches were old, and yet 1.7 BLEU of Multi30k were forgotten."""
    over = {"start": str(before / "translate"), "data": {"train": "x.tsv", **data}}
    chooser = Chooser(frozenset(asked), 60.0, 0.0, clock=lambda: 0.0)
    found = chooser.by_rules(run_config("translate", over), TRANSLATE, {"examples": 500, "characters": 1e6})
    assert found.train.blend == blend
    assert f"rises by {FORGOTTEN:.0%} at most" in BLENDED.why


def test_what_is_refused(before: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a generate model; translate goes on from translate"):
        run_config("translate", {"start": str(before / "generate")})
    with pytest.raises(UsageError, match="is a translate model; caption goes on from caption"):
        run_config("caption", {"start": str(before / "translate")})
    with pytest.raises(UsageError, match=r"train\.blend: only a run that goes on from another model"):
        run_config("translate", {"train": {"blend": 0.3}})
    with pytest.raises(UsageError, match=r"data\.old: only a run that goes on from another model"):
        run_config("generate", {"data": {"old": "a.txt"}})
    with pytest.raises(UsageError, match=r"data\.old: no run to fill mixes old and new"):
        run_config("fill", {"data": {"old": "a.txt"}})
    with pytest.raises(RegardError, match=r"train\.freeze: the model has no part head; there is decoder, .*embeddings"):
        tune(before, tmp_path / "a", train={"freeze": ["head"]})
    with pytest.raises(RegardError, match="leaves nothing to train; name fewer parts"):
        tune(before, tmp_path / "b", train={"freeze": ["encoder", "decoder", "embeddings", "source"]})
    with pytest.raises(RegardError, match="does not fit"):
        tune(before, tmp_path / "c", model={"width": 18, "heads": 3})
    assert not any((tmp_path / name).exists() for name in "abc")


# --- Old among new


def numbered(count: int, first: int) -> TokenPairs:
    """Pairs of one length, whose tokens say which they are."""
    return TokenPairs([np.full(4, first + n) for n in range(count)], [np.full(5, first + n) for n in range(count)], PAD)


@pytest.mark.parametrize(("share", "olds"), [(0.5, 7), (0.3, 3), (0.75, 21), (0.01, 1)])
def test_every_new_batch_once_an_epoch_and_old_ones_in_turn(share: float, olds: int) -> None:
    def made() -> MixedBatches:
        return MixedBatches(Batches(numbered(21, 100), 12, 5), Batches(numbered(33, 500), 12, 5), share, 5)

    mixed, seen = made(), []
    for epoch in range(3):
        batches = [mixed.get(epoch, index).source[:, 0] for index in range(mixed.count(epoch))]
        new = sorted(int(n) for batch in batches for n in batch if n < 500)
        assert new == list(range(100, 121)) and mixed.count(epoch) == 7 + olds
        seen += [int(n) for batch in batches for n in batch if n >= 500]
    assert len(seen) == 9 * olds
    most = -(-9 * olds // 33)  # passes over the old data that were begun
    assert max(np.unique(seen, return_counts=True)[1]) <= most
    again = made()  # another object, asked in another order
    assert torch.equal(again.get(2, 4).source, mixed.get(2, 4).source)
    assert torch.equal(again.get(0, 1).target, mixed.get(0, 1).target)


# --- Stopped and resumed


@pytest.mark.parametrize("task", SUFFIX)
def test_a_resumed_run_is_equal_to_the_bit(before: Path, tmp_path: Path, task: str) -> None:
    train = {"blend": 0.3, "average": 2, "freeze": ["encoder"] if task == "caption" else ["embeddings"]}
    for name, show in (("whole", Show()), ("run", Interrupts(3))):
        outcome = tune(before, tmp_path / name, task, show, train=train).outcome
    assert (outcome.reason, outcome.progress.step) == ("interrupted", 3)
    run = resume_run(tmp_path / "run")
    assert run.outcome.reason == "steps"
    assert Contents.of(tmp_path / "whole").unlike(Contents.of(tmp_path / "run")) == []
    assert run.tuning is not None and run.tuning["blend"] == 0.3
    assert {row["data"] for row in run.tuning["rows"]} == {"new", "old"}
    for row in run.tuning["rows"]:
        assert row["change"]["value"] == pytest.approx(row["after"]["value"] - row["before"]["value"], abs=1e-9)
    figure = next(row for row in run.tuning["rows"] if row["metric"] == "loss")["change"]
    assert figure["low"] < figure["value"] < figure["high"]


def test_a_stop_while_weights_are_blended_changes_nothing(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the bundle of the weights before it, a run that goes on would blend what is blended already."""
    tune(before, tmp_path / "whole", train={"blend": 0.4})
    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_table", lambda *_: (_ for _ in ()).throw(OSError("no room")))
        with pytest.raises(OSError, match="no room"):
            tune(before, tmp_path / "run", train={"blend": 0.4})
    resume_run(tmp_path / "run")
    for name in ("best", "tuned"):
        whole, run = weights(tmp_path / "whole" / name), weights(tmp_path / "run" / name)
        assert all(torch.equal(value, run[key]) for key, value in whole.items())
    resume_run(tmp_path / "run")  # which had ended
    assert all(torch.equal(value, run[key]) for key, value in weights(tmp_path / "run" / "tuned").items())


# --- Frozen and blended


def test_frozen_parts_stay_equal_to_the_bit(before: Path, tmp_path: Path) -> None:
    train = {"freeze": ["encoder", "embeddings"], "weight_decay": 0.1, "average": 2, "ema": 0.5, "blend": 0.3}
    run = tune(before, tmp_path / "run", train=train)
    old, new = weights(before / "translate" / "best"), weights(run.best)
    still = {name for name, value in new.items() if torch.equal(value, old[name])}
    assert {name for name in old if name.startswith(("encoder", "source.table"))} <= still
    assert not any(name in still for name in old if name.startswith("decoder.") and old[name].dim() > 1)


def test_a_frozen_batch_norm_keeps_its_statistics() -> None:
    model = nn.Sequential()
    model.add_module("encoder", nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)))
    model.add_module("decoder", nn.Sequential(nn.Linear(5, 2), nn.BatchNorm1d(2)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    freeze_parts(model, ["encoder"])
    model.eval()
    model.train()
    model(torch.randn(7, 3)).sum().backward()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {f"decoder.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert [name for name, each in model.named_parameters() if each.grad is None] == [
        "encoder.0.weight", "encoder.0.bias", "encoder.1.weight", "encoder.1.bias"
    ]  # fmt: skip


def test_blending_by_hand(before: Path, tmp_path: Path) -> None:
    run = tune(before, tmp_path / "run", train={"blend": 0.3})
    old, tuned, best = (weights(folder) for folder in (before / "translate" / "best", run.folder / "tuned", run.best))
    for name, value in best.items():
        assert torch.allclose(value, 0.7 * tuned[name] + 0.3 * old[name], atol=1e-7), name
    assert any(not torch.equal(best[name], tuned[name]) for name in best)
    assert run.outcome.chosen.startswith("blend of 0.7 step ")
    one = {"w": torch.tensor([1.0, 3.0]), "n": torch.tensor(5)}
    two = {"w": torch.tensor([2.0, 3.0]), "n": torch.tensor(7)}
    found = blended(one, two, 0.25)
    assert found["w"].tolist() == [1.25, 3.0] and int(found["n"]) == 5


class Bowl(nn.Module):
    """One weight w, whose loss on a batch (steepness, wanted) is steepness · (w - wanted)²."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, batch: torch.Tensor) -> Loss:
        steepness, wanted = batch
        return Loss({"nll": Part(steepness * (self.weight[0] - wanted) ** 2, 1)})


@pytest.mark.parametrize(("steepness", "share"), [(0.03, 0.0), (0.05, 0.1), (0.09, 0.3), (1.0, 0.5), (10.0, 0.7)])
def test_the_share_is_the_smallest_with_which_little_is_forgotten(steepness: float, share: float) -> None:
    """By hand: with a share s of the old weight 0 in the new one 1, the old loss is steepness · (1 - s)², the new one s².

    The perplexity rises by at most 5% if the old loss is at most ln 1.05 = 0.0488: (1 - s)² at most 1.63, 0.976, 0.542. For a
    steepness of 1 and 10, 0.7 would still be too little, and the mean decides: it is least at s = 1/2 and 10/11.
    """

    def side(name: str, *batch: float) -> Side:
        return Side(name, lambda model: pytest.fail("not asked for"), lambda: [torch.tensor(batch)])

    old, new = {"weight": torch.tensor([0.0])}, {"weight": torch.tensor([1.0])}
    sides = (side(NEW, 1.0, 1.0), side(OLD, steepness, 0.0))
    assert choose_share(Bowl(), new, FineTuning("before", lambda: old, sides)) == share
    assert choose_share(Bowl(), new, FineTuning("before", lambda: old, sides[:1])) == 0.0  # nothing old to tell by


def test_a_run_ends_with_the_share_that_it_chose(before: Path, tmp_path: Path) -> None:
    run = tune(before, tmp_path / "run", train={"blend": "auto", "lr": 0.05})
    assert run.tuning is not None
    over = settings("translate", "translate-new.tsv", start=str(before / "translate"))
    job = prepare(run_config("translate", over), tmp_path / "other", data_root=before, resume=False).job
    tuned = weights(run.folder / ("tuned" if run.tuning["blend"] else "best"))
    assert job.tuning is not None
    assert run.tuning["blend"] == choose_share(job.model, tuned, job.tuning)


def test_the_error_of_a_mean_over_equal_batches_is_the_classical_one() -> None:
    sums = np.array([3.0, 5.0, 4.0, 9.0, 2.0])
    assert _ratio_error(sums, np.full(5, 2.0)) == pytest.approx(np.std(sums / 2, ddof=1) / np.sqrt(5))
    assert np.isnan(_ratio_error(sums[:1], sums[:1]))
