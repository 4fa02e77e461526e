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
    PADDING,
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
from regard.interop import export_folder, import_folder
from regard.tasks.generate.predictor import Generator, _last


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


# --- What begins and ends a text


def chat(folder: Path, *, generation: dict[str, Any] | None, tokenizer: dict[str, Any] | None, **config: Any) -> Path:
    """A LLaMA whose tokenizer has three tokens that stand for no text, with the files that say what they are for."""
    model = llama(**config)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    text = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    text.save(str(folder / "tokenizer.json"))
    for name, values in (("generation_config.json", generation), ("tokenizer_config.json", tokenizer)):
        if values is not None:
            (folder / name).write_text(json.dumps(values))
    return folder


CHAT = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|im_end|>",
    "bos_token": {"__type": "AddedToken", "content": "<|im_start|>"},
}
SAID = [  # of config.json, generation_config.json, tokenizer_config.json -> who says how a text ends
    ({"bos_token_id": 1, "eos_token_id": 2}, None, None, "eos_token_id of config.json"),
    ({"bos_token_id": 1, "eos_token_id": [2, 7]}, None, None, "eos_token_id of config.json"),
    (
        {"bos_token_id": 0, "eos_token_id": 0},
        {"bos_token_id": 1, "eos_token_id": [2, 0]},
        None,
        "of generation_config.json",
    ),
    ({"bos_token_id": 0, "eos_token_id": 0}, None, CHAT, "eos_token_id of config.json"),
]


@pytest.mark.parametrize(("config", "generation", "tokenizer", "who"), SAID)
def test_a_text_begins_and_ends_as_the_files_say(
    config: dict[str, Any], generation: Any, tokenizer: Any, who: str, tmp_path: Path
) -> None:
    """Once guessed from names: here begin = end = pad = 0, and a text that never stops."""
    folder, told = chat(tmp_path / "hf", generation=generation, tokenizer=tokenizer, **config), list[str]()
    bundle = load_bundle(save_bundle(tmp_path / "bundle", import_folder(folder, report=told.append)))
    for where in (folder, export_folder(bundle, tmp_path / "back")):
        theirs = transformers.AutoModelForCausalLM.from_pretrained(where).generation_config
        ends = theirs.eos_token_id if isinstance(theirs.eos_token_id, list) else [theirs.eos_token_id]
        ids = bundle.tokenizer.specials
        assert [ids.begin, ids.end, *ids.also_end] == [theirs.bos_token_id, *ends]
    assert who in told[-1] and f"end {bundle.tokenizer.labels([ids.end])[0]} ({ids.end})" in told[-1]


def test_where_no_model_file_says_the_tokenizer_does_and_then_the_names(tmp_path: Path) -> None:
    nothing = {"bos_token_id": None, "eos_token_id": None}
    folder = chat(tmp_path / "hf", generation=None, tokenizer=CHAT, **nothing)
    theirs, ids = transformers.AutoTokenizer.from_pretrained(folder), import_folder(folder).tokenizer.specials
    assert (ids.begin, ids.end) == (theirs.bos_token_id, theirs.eos_token_id) == (1, 2)
    (folder / "tokenizer_config.json").unlink()
    told: list[str] = []
    ids = import_folder(folder, report=told.append).tokenizer.specials
    assert (ids.begin, ids.end, ids.pad) == (0, 0, 0) and "no file says, so by its name" in told[-1]
    beyond = {"bos_token_id": 1, "eos_token_id": [50256, 2]}  # as a small model that kept the defaults of a large one
    ids = import_folder(
        chat(tmp_path / "beyond", generation=None, tokenizer=None, **beyond), report=told.append
    ).tokenizer.specials
    assert (ids.begin, ids.ends) == (1, {2}) and "eos_token_id is 50256, which the tokenizer does not have" in told[-2]


@torch.inference_mode()
def test_a_text_stops_where_theirs_stops(tmp_path: Path) -> None:
    """The ends are tokens that greedy search comes to of itself, each after another prompt."""
    theirs, prompts, unused = llama(), ([1, 40, 41], [1, 77, 90, 91]), [0, 1, *range(283, 283 + PADDING)]

    def go_on(prompt: list[int], ends: list[int] | None) -> list[int]:
        limits = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": ends, "pad_token_id": 0}
        return theirs.generate(torch.tensor([prompt]), suppress_tokens=unused, **limits)[0].tolist()[len(prompt) :]

    ends = [go_on(prompt, None)[place] for prompt, place in zip(prompts, (3, 5), strict=True)]
    config = {"bos_token_id": 1, "eos_token_id": ends, "pad_token_id": 0}
    user = Generator(import_folder(chat(tmp_path / "hf", generation=None, tokenizer=None, **config)))
    for prompt in prompts:
        wanted = go_on(prompt, ends)
        assert len(wanted) < 12 and wanted[-1] in ends
        search = user._steps([prompt], [0], user.options({"max_length": 12, "sample": False}), ())
        (found,) = _last(search, None)[0]
        assert found.finished and list(found.ids) == wanted[:-1]


def test_berts_tokens_have_the_names_that_its_tokenizer_says(tmp_path: Path) -> None:
    folder = saved(bert(), tmp_path / "hf")
    names = {"cls_token": "the", "sep_token": {"content": "cat"}, "pad_token": "[PAD]", "mask_token": "ran"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    tokenizer = import_folder(folder).tokenizer
    ids = tokenizer.specials
    assert tokenizer.labels([ids.begin, ids.end, ids.pad, ids.unknown]) == ["the", "cat", "[PAD]", "[UNK]"]
    assert ids.mask is not None and tokenizer.labels([ids.mask]) == ["ran"]


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
