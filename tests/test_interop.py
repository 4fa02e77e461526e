"""Weights and tokenizers from transformers give the same logits and tokens here, cached or not, however they were saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import (
    EXACT,
    ODD_TEXTS,
    ROUNDED,
    TEXTS,
    apart,
    bert,
    bert_apart,
    byte_level,
    exact,
    gpt2,
    ids_of,
    llama,
    rewritten,
    same_weights,
    saved,
    transformers,
    uncached,
    wordpiece,
)
from torch import Tensor

from regard.bundle import load_bundle, save_bundle
from regard.interop import import_folder


def stepped(model: Any, ids: Tensor, read: int) -> Tensor:
    """Logits after the first `read` tokens and after each that follows: (B, T - read + 1, V)."""
    logits, state = model.start(None, ids[:, :read])
    found = [logits]
    for place in range(read, ids.size(1)):
        logits, state = model.step(ids[:, place : place + 1], state)
        found.append(logits)
    return torch.cat(found, dim=1)


def their_steps(model: Any, ids: Tensor, read: int) -> Tensor:
    out = model(ids[:, :read], use_cache=True)
    found = [out.logits[:, -1:]]
    for place in range(read, ids.size(1)):
        out = model(ids[:, place : place + 1], past_key_values=out.past_key_values, use_cache=True)
        found.append(out.logits)
    return torch.cat(found, dim=1)


# --- Theirs, here

LANGUAGE = [
    pytest.param(gpt2, {}, id="gpt2"),
    pytest.param(gpt2, {"tie_word_embeddings": False, "activation_function": "relu"}, id="gpt2-untied"),
    pytest.param(gpt2, {"n_inner": None, "activation_function": "gelu", "layer_norm_epsilon": 0.1}, id="gpt2-gelu"),
    pytest.param(llama, {}, id="llama"),
    pytest.param(llama, {"tie_word_embeddings": True, "num_key_value_heads": 6}, id="llama-tied"),
    pytest.param(llama, {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 0.1}, id="llama-biases"),
]


@pytest.mark.parametrize(("make", "changes"), LANGUAGE)
@torch.inference_mode()
def test_language_models_give_the_same_logits(
    make: Callable[..., Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    theirs, ids = make(**changes), ids_of(5, 23)
    bundle = import_folder(saved(theirs, tmp_path / "hf"))
    model: Any = bundle.model
    assert bundle.config.task == "generate" and bundle.config.tokens.kind == "imported" and not model.training
    assert apart(uncached(model, ids), theirs(ids).logits) < ROUNDED
    assert apart(stepped(model, ids, 7), their_steps(theirs, ids, 7)) < ROUNDED
    theirs, model = exact(theirs), model.double()
    assert apart(uncached(model, ids), theirs(ids).logits) < EXACT
    assert apart(stepped(model, ids, 7), their_steps(theirs, ids, 7)) < EXACT


BERTS = [
    pytest.param("BertForMaskedLM", {}, (True, False, False), id="masked"),
    pytest.param("BertForPreTraining", {"hidden_act": "gelu_new", "type_vocab_size": 3}, (True, True, True), id="both"),
    pytest.param("BertForNextSentencePrediction", {}, (False, True, True), id="next"),
    pytest.param("BertModel", {"layer_norm_eps": 0.1}, (False, False, True), id="bare"),
]


@pytest.mark.parametrize(("kind", "changes", "parts"), BERTS)
@torch.inference_mode()
def test_bert_gives_the_same_vectors_and_logits(
    kind: str, changes: dict[str, Any], parts: tuple[bool, bool, bool], tmp_path: Path
) -> None:
    theirs = bert(kind, **changes)
    bundle = import_folder(saved(theirs, tmp_path / "hf"))
    config: Any = bundle.config.model
    assert bundle.config.task == "fill" and (config.head, config.next_sentence, config.pooler) == parts
    for dtype, allowed in ((torch.float32, ROUNDED), (torch.float64, EXACT)):
        assert bert_apart(bundle.model.to(dtype), theirs.to(dtype)) < allowed


def other_spellings() -> list[Any]:
    """The same models as other versions of transformers saved them."""

    def bare(prefix: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
        return lambda tensors: {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}

    def buffers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        mask = torch.ones(1, 1, 29, 29).tril()
        extra = {"transformer.h.1.attn.bias": mask, "transformer.h.1.attn.masked_bias": torch.tensor(-1e4)}
        return tensors | extra | {"lm_head.weight": tensors["transformer.wte.weight"].clone()}

    def frequencies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}

    def old(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        renamed = {}
        for name, tensor in tensors.items():
            for now, then in ends.items():
                name = name.replace(now, then)
            renamed[name] = tensor
        table, bias = tensors["bert.embeddings.word_embeddings.weight"], tensors["cls.predictions.bias"]
        copies = {"cls.predictions.decoder.weight": table.clone(), "cls.predictions.decoder.bias": bias.clone()}
        return renamed | copies | {"bert.embeddings.position_ids": torch.arange(29)[None]}

    return [
        pytest.param(gpt2, bare("transformer."), id="gpt2-bare"),
        pytest.param(gpt2, buffers, id="gpt2-buffers"),
        pytest.param(lambda: llama(tie_word_embeddings=True), bare("model."), id="llama-bare"),
        pytest.param(llama, bare("model."), id="llama-bare-with-head"),
        pytest.param(llama, frequencies, id="llama-buffers"),
        pytest.param(lambda: bert("BertForPreTraining"), old, id="bert-old"),
    ]


@pytest.mark.parametrize(("make", "change"), other_spellings())
def test_other_spellings_are_the_same_model(make: Callable[[], Any], change: Any, tmp_path: Path) -> None:
    folder = saved(make(), tmp_path / "hf")
    first = import_folder(folder)
    again = import_folder(rewritten(folder, change))
    assert same_weights(first, again) and first.config == again.config


def test_shards_are_the_same_model(tmp_path: Path) -> None:
    theirs = llama()
    whole = import_folder(saved(theirs, tmp_path / "whole"))
    folder = saved(theirs, tmp_path / "shards", max_shard_size="9KB")
    assert len(list(folder.glob("*.safetensors"))) > 2 and not (folder / "model.safetensors").exists()
    assert same_weights(whole, import_folder(folder))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = gpt2().to(dtype)
    model: Any = import_folder(saved(theirs, tmp_path / "hf")).model
    found = model.blocks[1].attention.query.weight
    assert found.dtype == torch.float32
    assert torch.equal(found, theirs.transformer.h[1].attn.c_attn.weight[:, :21].T.float())


def test_an_imported_model_is_a_bundle(tmp_path: Path) -> None:
    bundle = import_folder(saved(bert(), tmp_path / "hf"))
    again = load_bundle(save_bundle(tmp_path / "bundle", bundle))
    assert same_weights(bundle, again)
    assert again.tokenizer.encode(TEXTS[1]) == bundle.tokenizer.encode(TEXTS[1])


# --- Tokenizers


@pytest.mark.parametrize("make", [gpt2, bert])
def test_tokenizers_encode_as_theirs(make: Callable[[], Any], tmp_path: Path) -> None:
    folder = saved(make(), tmp_path / "hf")
    ours, theirs = import_folder(folder).tokenizer, transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    for text in ODD_TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("lower", [True, False, None])
def test_a_bert_of_vocab_txt(lower: bool | None, tmp_path: Path) -> None:
    folder = saved(bert(vocab_size=97), tmp_path / "hf")
    (folder / "tokenizer.json").unlink()
    ids = wordpiece().get_vocab()
    (folder / "vocab.txt").write_text("\n".join([*sorted(ids, key=ids.__getitem__), "T", "##H", "##E"]) + "\n", "utf-8")
    settings = {} if lower is None else {"do_lower_case": lower}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "BertTokenizer"}))
    ours, theirs = import_folder(folder).tokenizer, transformers.BertTokenizer.from_pretrained(folder)
    for text in ODD_TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert len(ours.encode("THE")) == (3 if lower is False else 1)


def test_a_gpt2_of_vocab_json_and_merges(tmp_path: Path) -> None:
    folder = saved(gpt2(), tmp_path / "hf")
    (folder / "tokenizer.json").unlink()
    byte_level().model.save(str(folder))
    ours, wanted = import_folder(folder).tokenizer, byte_level()
    for text in ODD_TEXTS:
        assert ours.encode(text) == wanted.encode(text).ids and ours.decode(ours.encode(text)) == text
