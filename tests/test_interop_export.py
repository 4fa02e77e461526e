"""Models of ours, loaded by transformers: the same logits and tokens there, the same weights back; the verbs of both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from foreign import (
    EXACT,
    ODD_TEXTS,
    ROUNDED,
    SIZES,
    apart,
    bert,
    bert_apart,
    exact,
    gpt2,
    ids_of,
    llama,
    our_bundle,
    same_weights,
    saved,
    transformers,
    uncached,
)
from safetensors.torch import load_file
from typer.testing import CliRunner

from regard.bundle import load_bundle
from regard.cli.interop import export_model, import_model
from regard.errors import RegardError
from regard.interop import export_folder, import_folder
from regard.models.config import BertConfig, GPT1Config, GPT2Config, GPT3Config, LlamaConfig, LSTMConfig

OURS = [
    pytest.param(GPT2Config(**SIZES), id="gpt2"),
    pytest.param(GPT2Config(**SIZES, tied=False, activation="gelu", groups=6), id="gpt2-untied"),
    pytest.param(GPT3Config(**SIZES, band=0, activation="relu"), id="gpt3"),
    pytest.param(LlamaConfig(**SIZES, groups=2, rotary_base=700.0), id="llama"),
    pytest.param(LlamaConfig(**SIZES, tied=False, bias=True, epsilon=0.01), id="llama-biases"),
]


@pytest.mark.parametrize("config", OURS)
@torch.inference_mode()
def test_ours_are_loaded_by_transformers(config: Any, tmp_path: Path) -> None:
    bundle, ids = our_bundle("generate", config), ids_of(3, 19, 60)
    folder = export_folder(bundle, tmp_path / "hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert apart(uncached(bundle.model, ids), theirs(ids).logits) < ROUNDED
    assert apart(uncached(bundle.model.double(), ids), exact(theirs)(ids).logits) < EXACT
    again = import_folder(folder)
    bundle.model.float()
    assert same_weights(bundle, again)
    wanted: dict[str, Any] = {"groups": getattr(config, "groups", 0) % config.heads, "kind": again.config.model.kind}
    if config.kind == "llama":
        wanted["dropout"] = 0.0
    assert again.config.model.model_dump() == config.model_dump() | wanted


@pytest.mark.parametrize(
    "config",
    [
        BertConfig(**SIZES, attention_dropout=0.2),
        BertConfig(**SIZES, next_sentence=True, pooler=True, activation="relu", segments=3),
        BertConfig(**SIZES, head=False, pooler=True, pooling="cls", epsilon=0.01),
    ],
)
@torch.inference_mode()
def test_our_bert_is_loaded_by_transformers(config: BertConfig, tmp_path: Path) -> None:
    bundle = our_bundle("fill", config)
    folder = export_folder(bundle, tmp_path / "hf")
    named = json.loads((folder / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, named).from_pretrained(folder).eval()
    assert bert_apart(bundle.model, theirs) < ROUNDED
    again = import_folder(folder)
    assert same_weights(bundle, again) and again.config.model == config
    assert transformers.AutoModel.from_pretrained(folder).config.vocab_size == bundle.tokenizer.size


@pytest.mark.parametrize(("task", "config"), [("generate", LlamaConfig(**SIZES)), ("fill", BertConfig(**SIZES))])
def test_our_tokenizer_is_loaded_by_transformers(task: str, config: Any, tmp_path: Path) -> None:
    bundle = our_bundle(task, config)
    theirs = transformers.AutoTokenizer.from_pretrained(export_folder(bundle, tmp_path / "hf"))
    ids = bundle.tokenizer.specials
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (ids.begin, ids.end, ids.pad)
    assert theirs.unk_token_id == ids.unknown and theirs.mask_token_id == ids.mask
    for text in ODD_TEXTS:
        around = [ids.begin, *bundle.tokenizer.encode(text), *([ids.end] if task == "fill" else [])]
        assert theirs(text)["input_ids"] == around
    if task == "fill":
        both = theirs("cat", "dog")
        cat, dog = bundle.tokenizer.encode("cat"), bundle.tokenizer.encode("dog")
        assert both["input_ids"] == [ids.begin, *cat, ids.end, *dog, ids.end]
        assert both["token_type_ids"] == [0] * (len(cat) + 2) + [1] * (len(dog) + 1)


@pytest.mark.parametrize("make", [gpt2, llama, lambda: bert("BertForPreTraining"), lambda: bert("BertModel")])
def test_there_and_back_is_the_same_file(make: Callable[[], Any], tmp_path: Path) -> None:
    """What was imported and exported has their names, shapes and numbers again."""
    folder = saved(make(), tmp_path / "hf")
    back = export_folder(import_folder(folder), tmp_path / "back")
    before, after = load_file(folder / "model.safetensors"), load_file(back / "model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_every_option_has_been_thought_of() -> None:
    """An option that is added to these families must be exported, or refused; then it joins this list."""
    blocks = {
        "layers",
        "width",
        "heads",
        "feed_forward",
        "max_length",
        "dropout",
        "attention_dropout",
        "epsilon",
        "kind",
        "attention",
        "reversible",
        "rotary_base",
        "rotary_scale",
        "reach",
        "random_offset",
        "positions_where",
    }
    line = {"groups", "activation", "norm", "norm_kind", "positions", "band", "experts", "experts_used"}
    for config in (GPT2Config, GPT3Config, LlamaConfig):
        assert set(config.model_fields) == blocks | line | {"balance", "bias", "tied", "language_weight"}
    own = {"activation", "norm", "norm_kind", "positions", "segments", "next_sentence", "head", "pooler", "pooling"}
    of_classifiers = {"labels_from"}
    assert set(BertConfig.model_fields) == blocks | own | of_classifiers


REFUSED = [
    (LSTMConfig(), "a lstm for generate has no equal"),
    (GPT1Config(**SIZES), "a gpt1 for generate has no equal"),
    (GPT3Config(**SIZES), "model.band = 128"),
    (GPT2Config(**SIZES, experts=2), "model.experts = 2"),
    (GPT2Config(**SIZES, groups=2), "model.groups = 2"),
    (GPT2Config(**SIZES, norm="post"), "model.norm = 'post'"),
    (GPT2Config(**SIZES, norm_kind="rms"), "model.norm_kind = 'rms'"),
    (GPT2Config(**SIZES, positions="rotary"), "model.positions = 'rotary'"),
    (GPT2Config(**SIZES, bias=False), "model.bias = False"),
    (GPT2Config(**SIZES, activation="swiglu"), "model.activation = 'swiglu'"),
    (LlamaConfig(**SIZES, activation="relu"), "model.activation = 'relu'"),
    (LlamaConfig(**SIZES, band=5), "model.band = 5"),
    (LlamaConfig(**SIZES, experts=3), "model.experts = 3"),
    (LlamaConfig(**SIZES, norm_kind="layer"), "model.norm_kind = 'layer'"),
    (LlamaConfig(**SIZES, positions="none"), "model.positions = 'none'"),
    (LlamaConfig(**SIZES, norm="none"), "model.norm = 'none'"),
    (LlamaConfig(**SIZES, attention="window"), "model.attention = 'window'; a model can be exported with 'exact'"),
    (LlamaConfig(**SIZES, reversible=True), "model.reversible = True"),
    (LlamaConfig(**SIZES, rotary_scale=2.0), "model.rotary_scale = 2.0"),
    (GPT2Config(**SIZES, attention="performer"), "model.attention = 'performer'"),
    (GPT2Config(**SIZES, reversible=True), "model.reversible = True"),
    (GPT2Config(**SIZES, random_offset=3), "model.random_offset = 3"),
    (GPT2Config(**SIZES, positions="alibi"), "model.positions = 'alibi'"),
]


@pytest.mark.parametrize(("config", "words"), REFUSED)
def test_what_has_no_equal_is_not_exported(config: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=words):
        export_folder(our_bundle("generate", config), tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize(
    "change", [{"norm": "pre"}, {"activation": "swiglu"}, {"positions": "shaw"}, {"attention": "linear"}]
)
def test_a_bert_that_has_no_equal_is_not_exported(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="BERT has no equal"):
        export_folder(our_bundle("fill", BertConfig(**SIZES, **change)), tmp_path / "hf")


def test_an_export_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RegardError, match="already exists"):
        export_folder(our_bundle("generate", GPT2Config(**SIZES)), tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


# --- The command line

app = typer.Typer()
app.command("import")(import_model)
app.command("export")(export_model)


def test_the_verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved(gpt2(), tmp_path / "small")
    shell = CliRunner()
    done = shell.invoke(app, ["import", "small"])
    assert done.exit_code == 0, done.output
    assert "gpt2" in done.output and "286" in done.output and 'regard generate -m models/small "' in done.output
    again = shell.invoke(app, ["import", "small"])
    assert "already exists" in str(again.exception)
    done = shell.invoke(app, ["export", "models/small", "--to", "hf", "-o", "out"])
    assert done.exit_code == 0 and "AutoModelForCausalLM" in done.output
    assert same_weights(import_folder(tmp_path / "out"), load_bundle(tmp_path / "models" / "small"))
    assert "no form gguf" in str(shell.invoke(app, ["export", "models/small", "--to", "gguf", "-o", "x"]).exception)
    assert "is a bundle of Regard already" in str(shell.invoke(app, ["import", "models/small", "-o", "y"]).exception)
    for name, words in (("nowhere", "there is no nowhere"), ("small/model.safetensors", "regard import small")):
        assert words in str(shell.invoke(app, ["import", name]).exception)
