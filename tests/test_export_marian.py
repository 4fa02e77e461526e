"""Marian's layout: transformers computes the logits of our translation models, writes their texts, and gives them back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import EXACT, ODD_TEXTS, ROUNDED, TEXTS, apart, rewritten, same_weights, shake, transformers
from safetensors.torch import load_file
from torch import Tensor

from regard.bundle import Bundle, BundleConfig, load_bundle, save_bundle
from regard.cli.main import run
from regard.errors import RegardError
from regard.interop import export_folder, import_folder
from regard.models.config import Seq2SeqConfig, TransformerConfig
from regard.models.table import build
from regard.tasks.translate.predictor import Translator
from regard.tokens import BEGIN, END, PAD, UNKNOWN, TokenizerPair, TokensConfig, train_tokenizer

SMALL: dict[str, Any] = {
    "encoder_layers": 3, "decoder_layers": 2, "width": 24, "heads": 3, "feed_forward": 37, "max_length": 59,
    "norm": "post",
}  # fmt: skip


def pair_bundle(joint: bool = True, **changes: Any) -> Bundle:
    tokens = TokensConfig(kind="bpe", size=300, joint=joint)
    source = train_tokenizer(TEXTS, tokens)
    target = source if joint else train_tokenizer(TEXTS[:3], TokensConfig(kind="bpe", size=291))
    config, sizes = TransformerConfig(**{**SMALL, **changes}), (source.size, target.size)
    settings = BundleConfig(task="translate", tokens=tokens, vocabulary=sizes, model=config)
    return Bundle(settings, shake(build("translate", config, sizes)), TokenizerPair(source, target), {})


def exactly(theirs: Any) -> Any:
    """The model in float64; transformers rounds its sinusoid to float32, this one is not."""
    theirs = theirs.double()
    for half in (theirs.model.encoder, theirs.model.decoder):
        half.embed_positions.weight = torch.nn.Parameter(_sinusoid(*half.embed_positions.weight.shape), False)
    return theirs


def _sinusoid(size: int, width: int) -> Tensor:
    places = torch.arange(size, dtype=torch.float64)[:, None]
    sines = places / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.cat([sines.sin(), sines[:, : width // 2].cos()], dim=1)


def batch(bundle: Bundle) -> tuple[Tensor, Tensor, Tensor]:
    """Padded sources with their lengths, and prefixes of targets."""
    numbers = torch.Generator().manual_seed(2)
    source, target = bundle.config.vocabulary
    lengths = torch.tensor([13, 7, 2])
    ids = torch.randint(4, source, (3, 13), generator=numbers)
    ids[torch.arange(13) >= lengths[:, None]] = PAD
    return ids, lengths, torch.randint(1, target, (3, 11), generator=numbers)


def our_logits(model: Any, ids: Tensor, lengths: Tensor, prefix: Tensor) -> Tensor:
    return model.output(model.decode(prefix, model.encode(ids, lengths)))


OURS = [
    pytest.param({}, True, id="tied"),
    pytest.param({"tied": "target", "activation": "gelu"}, False, id="two-vocabularies"),
    pytest.param({"tied": "none", "width": 21}, True, id="untied-odd-width"),
]


@pytest.mark.parametrize(("changes", "joint"), OURS)
@torch.inference_mode()
def test_ours_are_loaded_by_transformers(changes: dict[str, Any], joint: bool, tmp_path: Path) -> None:
    bundle = pair_bundle(joint, **changes)
    folder = export_folder(bundle, tmp_path / "hf")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert type(theirs).__name__ == "MarianMTModel"
    ids, lengths, prefix = batch(bundle)
    real = (torch.arange(13) < lengths[:, None]).long()

    def logits() -> Tensor:
        return theirs(input_ids=ids, attention_mask=real, decoder_input_ids=prefix).logits

    assert apart(our_logits(bundle.model, ids, lengths, prefix), logits()) < ROUNDED
    bundle.model.double(), exactly(theirs)
    assert apart(our_logits(bundle.model, ids, lengths, prefix), logits()) < EXACT

    again = import_folder(folder)
    bundle.model.float()
    assert same_weights(bundle, again) and again.config.vocabulary == bundle.config.vocabulary
    assert again.config.model == bundle.config.model


@torch.inference_mode()
def test_what_was_imported_is_a_bundle(tmp_path: Path) -> None:
    bundle = pair_bundle(joint=False, tied="target")
    again = load_bundle(save_bundle(tmp_path / "bundle", import_folder(export_folder(bundle, tmp_path / "hf"))))
    ours, theirs = (Translator(each).translate(list(TEXTS), beam=2, max_length=7) for each in (bundle, again))
    assert [each.text for each in ours] == [each.text for each in theirs]


@torch.inference_mode()
def test_transformers_writes_the_same_texts(tmp_path: Path) -> None:
    """Greedily, from text to text, with its own loop and our tokenizer."""
    bundle = pair_bundle(joint=False, tied="target")
    folder = export_folder(bundle, tmp_path / "hf")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    reads = transformers.AutoTokenizer.from_pretrained(folder)
    writes = transformers.AutoTokenizer.from_pretrained(folder / "target")
    inputs = reads(list(TEXTS), return_tensors="pt", padding=True)
    out = theirs.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=9)
    ours = Translator(bundle).translate(list(TEXTS), beam=1, max_length=9)
    for own, other in zip(ours, out.tolist(), strict=True):
        ids = [index for index in other[1:] if index not in (PAD, END)]
        assert list(own.ids) == ids and not {BEGIN, UNKNOWN} & set(ids)
        assert writes.decode(ids, clean_up_tokenization_spaces=False) == own.text


def test_the_tokenizer(tmp_path: Path) -> None:
    bundle = pair_bundle()
    theirs = transformers.AutoTokenizer.from_pretrained(export_folder(bundle, tmp_path / "hf"))
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id, theirs.unk_token_id) == (0, 1, 2, 3)
    for text in ODD_TEXTS:
        assert theirs(text)["input_ids"] == [*bundle.tokenizers.source.encode(text), END]
    assert set(theirs("a")) == {"input_ids", "attention_mask"}


def test_there_and_back_is_the_same_file(tmp_path: Path) -> None:
    sizes = {"d_model": 24, "vocab_size": 300, "max_position_embeddings": 31, "scale_embedding": True}
    for half, layers in (("encoder", 2), ("decoder", 3)):
        sizes |= {f"{half}_layers": layers, f"{half}_attention_heads": 4, f"{half}_ffn_dim": 37}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    theirs = shake(transformers.MarianMTModel(transformers.MarianConfig(**sizes, **special, forced_eos_token_id=2)))
    theirs.save_pretrained(tmp_path / "hf")
    pair_bundle().tokenizers.source.save(tmp_path / "hf" / "tokenizer.json")
    back = export_folder(import_folder(tmp_path / "hf"), tmp_path / "back")
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "hf", back))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


REFUSED = [
    ({"norm": "pre"}, "transformers' Marian has no equal for model.norm = 'pre'; .* 'post' there; to='ctranslate2'"),
    ({"positions": "rotary"}, "model.positions = 'rotary'; .* 'sinusoidal' there"),
    ({"positions": "learned"}, "model.positions = 'learned'"),
    ({"residual": False}, "model.residual = False"),
    ({"scaled": False}, "model.scaled = False"),
    ({"encoder_attention": {"kind": "performer"}}, "model.encoder_attention = 'performer'"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_marian_cannot_express(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=words):
        export_folder(pair_bundle(**changes), tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_every_option_has_been_thought_of() -> None:
    """An option that is added must be exported, or refused; then it joins this list."""
    told = {"encoder_layers", "decoder_layers", "width", "heads", "feed_forward", "activation", "max_length", "tied"}
    training = {"dropout", "attention_dropout", "activation_dropout", "token_dropout", "random_offset"}
    refused = {
        "norm",
        "norm_kind",
        "positions_where",
        "residual",
        "scaled",
        "positions",
        "encoder_attention",
        "decoder_attention",
        "cross_attention",
    }
    assert set(TransformerConfig.model_fields) == told | training | refused | {"kind", "reach"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation_function": "swish"}, "activation_function is 'swish'; Regard has relu, gelu"),
        ({"normalize_before": True}, "normalize_before is True, which Regard cannot express"),
        ({"scale_embedding": False}, "Regard multiplies embeddings"),
        ({"decoder_start_token_id": 0}, "decoder_start_token_id is 0"),
        ({"tie_word_embeddings": False}, "one table for both sides"),
        ({"decoder_ffn_dim": 41}, "decoder_ffn_dim is 41"),
        ({"d_model": 27}, r"\(271, 24\)"),
        ({"decoder_layers": 3}, "26 missing"),
        ({"vocab_size": 260, "decoder_vocab_size": 260}, "ids up to 270, and the model knows 260"),
    ],
)
def test_folders_that_do_not_fit(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = export_folder(pair_bundle(), tmp_path / "hf")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RegardError, match=words):
        import_folder(folder)


def test_a_bias_of_the_logits_is_refused(tmp_path: Path) -> None:
    folder = export_folder(pair_bundle(), tmp_path / "hf")
    rewritten(folder, lambda tensors: tensors | {"final_logits_bias": torch.ones(1, 271)})
    with pytest.raises(RegardError, match="final_logits_bias is not 0"):
        import_folder(folder)


def test_the_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_bundle(tmp_path / "bundle", pair_bundle())
    assert run(["export", str(tmp_path / "bundle"), "-o", str(tmp_path / "hf")]) == 0
    assert "transformers.AutoModelForSeq2SeqLM.from_pretrained" in capsys.readouterr().err
    assert run(["import", str(tmp_path / "hf"), "-o", str(tmp_path / "back")]) == 0
    assert "regard translate" in capsys.readouterr().err
    save_bundle(tmp_path / "rotary", pair_bundle(positions="rotary"))
    assert run(["export", str(tmp_path / "rotary"), "-o", str(tmp_path / "no")]) == 1
    assert "--to ctranslate2" in capsys.readouterr().err
    sizes = (97, 97)
    other = Bundle(
        BundleConfig(model=Seq2SeqConfig(), vocabulary=sizes), build("translate", Seq2SeqConfig(), sizes), None, {}
    )
    with pytest.raises(RegardError, match="a seq2seq for translate has no equal in transformers; transformer for"):
        export_folder(other, tmp_path / "no")
