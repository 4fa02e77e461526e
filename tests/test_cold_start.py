"""Loading one model: what is imported for it, what is read for it, and that nothing is drawn that a file brings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import regard.bundle
from regard.blocks import Undrawn
from regard.bundle import load_bundle
from regard.errors import UsageError
from regard.files import sha256
from regard.models.config import ModelConfig
from regard.models.kinds import CONFIGS, KINDS_OF, all_kinds
from regard.models.table import build
from regard.plugins import NamedParts
from regard.tasks.run import RunResult
from regard.tasks.table import TASKS
from regard.tensors import map_tensors, read_tensors, weights_of

PROGRAM = """
import sys
from regard.cli.main import run
code = run(["translate", "-m", sys.argv[1], "mardi 3 mars 1998"])
print("\\n".join(sys.modules))
sys.exit(code)
"""


def test_a_sentence_is_translated_without_what_other_verbs_need(tiny_run: RunResult) -> None:
    """The bug: one sentence imported seven tasks, every kind of model, every kernel, rich and babel."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tiny_run.best)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = set(done.stdout.splitlines())
    assert {"regard.tasks.translate.predictor", "regard.models.transformer"} <= names
    heavy = {"matplotlib", "sacrebleu", "babel", "rich", "PIL", "jinja2", "filelock", "transformers"}
    assert not names & heavy
    assert not {name for name in names if name.endswith(".recipe")}
    own = {"regard.tasks.translate", "regard.tasks.translate.predictor", "regard.tasks.translate.results"}
    assert not {n for n in names if n.startswith("regard.tasks.") and n.count(".") > 2} - own
    files = {part.partition(":")[0] for task in TASKS.values() for part in (task.config, task.predictor)}
    assert not names & (files - {"regard.tasks.translate.predictor"})
    kinds = ("bert", "gpt", "language", "classifier", "text_classifiers", "recurrent", "bytenet", "pictures.captioner")
    assert not names & {f"regard.models.{kind}" for kind in kinds}
    assert not names & {f"regard.models.configs.{file}" for file in ("language", "pictures", "classification")}
    assert not names & {f"regard.attention.kernels.{file}" for file in ("sparse", "linear", "reformer", "linformer")}
    assert not {name for name in names if name.startswith(("regard.training", "regard.attention.foreign"))}


def test_every_file_of_a_bundle_is_hashed_once(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: the weights were hashed twice and then read."""
    hashed: list[str] = []

    def counted(path: Path) -> str:
        hashed.append(path.name)
        return sha256(path)

    monkeypatch.setattr(regard.bundle, "sha256", counted)
    load_bundle(tiny_bundle)
    assert sorted(hashed) == ["model.safetensors", "tokenizer.json"]


def test_mapped_tensors_are_the_tensors_of_the_file(tiny_bundle: Path) -> None:
    file = tiny_bundle / "model.safetensors"
    mapped, whole = map_tensors(file), read_tensors(file)
    assert mapped.keys() == whole.keys() and all(torch.equal(mapped[name], whole[name]) for name in whole)


# --- Kinds


def test_every_kind_names_its_own_configuration() -> None:
    assert set(CONFIGS) == set(all_kinds())
    for kind, config in CONFIGS.items():
        assert config.model_fields["kind"].default == kind
    assert set(CONFIGS.values()) == set(_classes(ModelConfig))


def _classes(annotation: Any) -> list[type]:
    from typing import get_args

    union, *_ = get_args(annotation)
    return list(get_args(union))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "transfomer"}, "model: no kind transfomer; did you mean transformer"),
        ({"widht": 8}, "no key model.widht; did you mean width"),
        ({"width": "wide"}, "model.width: must be a whole number, not 'wide'"),
        ({"heads": -1}, "model.heads: must be 1 or more, not -1"),
    ],
)
def test_what_is_wrong_with_a_model_is_told_as_of_a_run(tiny_bundle: Path, change: dict[str, Any], told: str) -> None:
    values = json.loads((tiny_bundle / "config.json").read_text())
    values["model"].update(change)
    (tiny_bundle / "config.json").write_text(json.dumps(values))
    with pytest.raises(UsageError) as error:
        load_bundle(tiny_bundle)
    assert told in str(error.value)


def test_a_table_imports_what_is_looked_up_and_takes_more() -> None:
    table = NamedParts[Any]({"loads": "json:loads", "nothing": "no.such.module:name"})
    assert list(table) == ["loads", "nothing"] and len(table) == 2 and "nothing" in table
    assert table["loads"] is json.loads and table.get("else") is None
    with pytest.raises(ModuleNotFoundError):
        table["nothing"]
    table["mine"] = len
    del table["nothing"]
    assert table.lent() == {"loads": json.loads, "mine": len}


# --- Nothing is drawn


@pytest.mark.parametrize("task", ["translate", "generate", "fill", "classify"])
def test_a_model_that_is_not_drawn_is_the_same_once_its_weights_are_there(task: str) -> None:
    vocabulary = (23, 23) if task == "translate" else (23,)
    for kind in KINDS_OF[task]:
        config: Any = CONFIGS[kind]()
        torch.manual_seed(5)
        drawn = build(task, config, vocabulary, labels=3).eval()
        with Undrawn():
            loaded = build(task, config, vocabulary, labels=3).eval()
        with torch.no_grad():
            for name, tensor in weights_of(loaded).items():
                tensor.copy_(weights_of(drawn)[name])
        tensors = {**dict(loaded.named_parameters()), **dict(loaded.named_buffers())}  # also buffers that are not saved
        others = {**dict(drawn.named_parameters()), **dict(drawn.named_buffers())}
        assert tensors.keys() == others.keys()
        assert all(torch.equal(tensor, others[name]) for name, tensor in tensors.items()), kind


def test_loading_a_model_draws_nothing(tiny_run: RunResult) -> None:
    before = torch.get_rng_state()
    load_bundle(tiny_run.best)
    assert torch.equal(before, torch.get_rng_state())


def test_a_buffer_is_drawn_as_ever() -> None:
    with Undrawn():
        plain = torch.full((7,), 9.0).normal_()
        parameter = torch.nn.Parameter(torch.full((7,), 9.0))
        torch.nn.init.normal_(parameter)
        torch.nn.init.kaiming_uniform_(torch.nn.Parameter(torch.ones(3, 5)).chunk(2)[0])
    assert (plain != 9).any() and (parameter == 9).all()
