"""Folders from elsewhere that are damaged, hostile or beyond us are refused in words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import bert, byte_level, gpt2, llama, rewritten, saved
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.errors import RegardError
from regard.interop import export_folder, import_folder

Ready = Callable[..., Path]

# --- Folders that do not fit


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    """A copy of the folder of a model, to be damaged; each model is made once."""
    made: dict[Any, Path] = {}

    def copy_of(make: Callable[[], Any], place: Path, **options: Any) -> Path:
        key = (make, *options.items())
        if key not in made:
            made[key] = saved(make(), tmp_path_factory.mktemp("whole") / "hf", **options)
        return shutil.copytree(made[key], place)

    return copy_of


def pre_training() -> Any:
    return bert("BertForPreTraining")


def bare_bert() -> Any:
    return bert("BertModel")


@pytest.mark.parametrize(
    ("make", "change", "words"),
    [
        (gpt2, {"model_type": "gpt3000"}, "gpt2"),
        (gpt2, {"model_type": "t5"}, "type t5; it imports bert, gpt2, llama, marian, vit$"),
        (gpt2, {"model_type": None}, "no model_type"),
        (gpt2, {"n_embd": None}, "no n_embd"),
        (gpt2, {"n_embd": "21"}, "n_embd is '21'"),
        (gpt2, {"n_embd": 24}, r"\(286, 21\)"),
        (gpt2, {"n_layer": 10**9}, "n_layer is 1000000000"),
        (gpt2, {"n_layer": 4}, "12 missing: transformer.h.3"),
        (gpt2, {"n_layer": 2}, "12 unknown: transformer.h.2"),
        (gpt2, {"n_head": 2}, "cannot be split into 2 heads"),
        (gpt2, {"n_inner": 38}, r"is \(21, 37\), and by its config.json it would be \(21, 38\)"),
        (gpt2, {"n_positions": 31}, r"wpe.weight is \(29, 21\)"),
        (gpt2, {"vocab_size": 285}, r"would be \(285, 21\)"),
        (gpt2, {"activation_function": "silu"}, "activation_function is 'silu'"),
        (gpt2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        (gpt2, {"scale_attn_weights": False}, "scale_attn_weights is False"),
        (gpt2, {"tie_word_embeddings": False}, "1 missing: lm_head.weight"),
        (gpt2, {"quantization_config": {"bits": 4}}, "quantization_config"),
        (gpt2, {"resid_pdrop": 2}, "dropout"),
        (llama, {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5.0, "factor": 8}}, "rope_type is 'llama3'"),
        (llama, {"rope_parameters": {"rope_theta": 5.0, "factor": 8}}, "has factor"),
        (llama, {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2}}, "type is 'linear'"),
        (llama, {"attention_bias": True}, "attention_bias is True and mlp_bias is False"),
        (llama, {"head_dim": 8}, "head_dim is 8"),
        (llama, {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (
            llama,
            {"num_key_value_heads": 3},
            r"k_proj.weight is \(8, 24\), and by its config.json it would be \(12, 24\)",
        ),
        (llama, {"num_key_value_heads": 4}, "cannot share"),
        (llama, {"sliding_window": 7}, "sliding_window is 7"),
        (llama, {"tie_word_embeddings": True}, "lm_head.weight should be the same tensor"),
        (llama, {"max_position_embeddings": 10**15}, "max_position_embeddings"),
        (bert, {"position_embedding_type": "relative_key"}, "relative_key"),
        (bert, {"is_decoder": True}, "is_decoder"),
        (bert, {"tie_word_embeddings": False}, "tie_word_embeddings"),
        (bert, {"vocab_size": True}, "vocab_size is True"),
    ],
)
def test_configurations_that_do_not_fit(
    make: Any, change: dict[str, Any], words: str, ready: Ready, tmp_path: Path
) -> None:
    folder = ready(make, tmp_path / "hf")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | change))
    with pytest.raises(RegardError, match=words):
        import_folder(folder)


MLP = "model.layers.0.mlp"


def without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {each: tensor for each, tensor in tensors.items() if each != name}


@pytest.mark.parametrize(
    ("make", "change", "words"),
    [
        (gpt2, without("transformer.h.1.ln_2.bias"), "1 missing: transformer.h.1.ln_2.bias"),
        (gpt2, lambda old: old | {"score.weight": torch.ones(2, 21)}, "1 unknown: score.weight"),
        (gpt2, lambda old: old | {"transformer.h.1.attn.c_proj.bias": torch.ones(21, dtype=torch.int8)}, "int8"),
        (gpt2, lambda old: old | {"transformer.h.1.ln_1.bias": torch.ones(22)}, r"ln_1.bias is \(22,\)"),
        (gpt2, lambda old: old | {"lm_head.weight": torch.ones(286, 21)}, "should be the same tensor"),
        (
            llama,
            lambda old: old | {f"{MLP}.gate_proj.weight": torch.ones(36, 24), f"{MLP}.up_proj.weight": torch.ones(38, 24)},
            r"gate_proj.weight is \(36, 24\)",
        ),
        (pre_training, without("bert.pooler.dense.bias"), "missing: bert.pooler.dense.bias"),
        (bert, lambda old: old | {"bert.embeddings.LayerNorm.beta": torch.ones(21)}, "twice, under an old and a new name"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit(make: Any, change: Any, words: str, ready: Ready, tmp_path: Path) -> None:
    folder = rewritten(ready(make, tmp_path / "hf"), change)
    with pytest.raises(RegardError, match=words):
        import_folder(folder)


def edit_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    path = folder / "model.safetensors.index.json"
    values = json.loads(path.read_text())
    change(values["weight_map"])
    path.write_text(json.dumps(values))


def put_twice(folder: Path) -> None:
    first, second = sorted(folder.glob("*.safetensors"))[:2]
    name, tensor = next(iter(load_file(first).items()))
    save_file(load_file(second) | {name: tensor}, second)


SHARDS: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: sorted(folder.glob("*.safetensors"))[1].unlink(), "has no model-00002"),
    (
        lambda folder: edit_index(folder, lambda places: places.update({"model.norm.weight": "../x"})),
        "outside the folder",
    ),
    (
        lambda folder: edit_index(folder, lambda places: places.update({"model.norm.weight": "/etc/x"})),
        "outside the folder",
    ),
    (lambda folder: edit_index(folder, lambda places: places.pop("model.norm.weight")), "does not say so"),
    (
        lambda folder: edit_index(folder, lambda places: places.update({"x": min(places.values())})),
        "names x, which is in no",
    ),
    (put_twice, "and in another file"),
    (lambda folder: (folder / "model.safetensors.index.json").write_text("[]"), "no weight_map"),
    (lambda folder: (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": 1}}'), "no weight_map"),
]


@pytest.mark.parametrize(("damage", "words"), SHARDS)
def test_shards_that_do_not_fit(damage: Callable[[Path], object], words: str, ready: Ready, tmp_path: Path) -> None:
    folder = ready(llama, tmp_path / "hf", max_shard_size="9KB")
    damage(folder)
    with pytest.raises(RegardError, match=words):
        import_folder(folder)


def only_pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


FOLDERS: list[tuple[Callable[[Path], object], str]] = [
    (only_pickled, "a pickle; loading one can run any program"),
    (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"\x80\x04junk"), "is a pickle, whatever its name"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"junk"), "not a whole safetensors file"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "put its tokenizer.json there"),
    (lambda folder: (folder / "tokenizer.json").write_text("{}"), "is not a tokenizer"),
    (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    (lambda folder: (folder / "config.json").write_text("[]"), "does not hold a table"),
    (lambda folder: (folder / "config.json").write_text("{"), "not whole JSON"),
]


@pytest.mark.parametrize(("damage", "words"), FOLDERS)
def test_folders_that_do_not_fit(damage: Callable[[Path], object], words: str, ready: Ready, tmp_path: Path) -> None:
    folder = ready(gpt2, tmp_path / "hf")
    damage(folder)
    with pytest.raises(RegardError, match=words):
        import_folder(folder)


def test_a_tokenizer_of_another_model(ready: Ready, tmp_path: Path) -> None:
    folder = ready(bert, tmp_path / "hf")
    byte_level().save(str(folder / "tokenizer.json"))
    with pytest.raises(RegardError, match="ids up to 282, and the model knows 92 tokens"):
        import_folder(folder)


# --- Folders of sentence-transformers


def sentence_folder(ready: Ready, folder: Path, modes: dict[str, Any], *more: str) -> Path:
    ready(bare_bert, folder)
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **{each: f"2_{each}" for each in more}}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 21, **modes}))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 13}')
    return folder


@pytest.mark.parametrize(
    ("modes", "wanted"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
    ],
)
def test_pooling_is_kept(modes: dict[str, Any], wanted: str, ready: Ready, tmp_path: Path) -> None:
    bundle = import_folder(sentence_folder(ready, tmp_path / "st", modes, "Normalize"))
    config: Any = bundle.config.model
    assert (config.pooling, config.head, bundle.config.longest) == (wanted, False, 13)
    again = import_folder(export_folder(bundle, tmp_path / "back"))
    assert again.config == bundle.config


def test_pooling_that_does_not_fit(ready: Ready, tmp_path: Path) -> None:
    both = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    for number, modes in enumerate((both, {"pooling_mode_max_tokens": True}, {})):
        with pytest.raises(RegardError, match="Regard has one of"):
            import_folder(sentence_folder(ready, tmp_path / str(number), modes))
    with pytest.raises(RegardError, match="a module Dense"):
        import_folder(sentence_folder(ready, tmp_path / "dense", {"pooling_mode": "mean"}, "Dense"))
