"""ONNX: onnxruntime computes what our modules do, and the loop of the exported README writes what our greedy search does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign import TEXTS, shake
from torch import Tensor

from regard.bundle import Bundle, BundleConfig, save_bundle
from regard.cli.main import run
from regard.errors import RegardError
from regard.interop import export_onnx, family
from regard.interop.to_onnx import graphs_of
from regard.models.config import GPT2Config, GPT3Config, LlamaConfig, LSTMConfig, TransformerConfig
from regard.models.table import build
from regard.tasks.generate.predictor import Generator
from regard.tasks.translate.predictor import Translator
from regard.tokens import PAD, TokenizerPair, TokensConfig, train_tokenizer

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

PAIR: dict[str, Any] = {
    "encoder_layers": 3, "decoder_layers": 2, "width": 24, "heads": 3, "feed_forward": 37, "max_length": 61,
}  # fmt: skip
LINE: dict[str, Any] = {"layers": 2, "width": 24, "heads": 6, "feed_forward": 37, "max_length": 47}
ROUNDED = 1e-4  # of the largest logit, in float32


def bundle_of(config: Any, joint: bool = True) -> Bundle:
    tokens = TokensConfig(kind="bpe", size=300, joint=joint)
    source = train_tokenizer(TEXTS, tokens)
    target = source if joint else train_tokenizer(TEXTS[:3], TokensConfig(kind="bpe", size=291))
    task = "translate" if config.kind == "transformer" else "generate"
    sizes = (source.size, target.size) if task == "translate" else (source.size,)
    settings = BundleConfig(task=task, tokens=tokens, vocabulary=sizes, model=config)
    return Bundle(settings, shake(build(task, config, sizes)), TokenizerPair(source, target), {})


Run = Callable[..., list[np.ndarray]]


def graph(folder: Path, name: str) -> Run:
    """A graph as a function of its inputs, held against the names and shapes that regard.json tells."""
    told = json.loads((folder / "regard.json").read_text())["graphs"][name]
    session = onnxruntime.InferenceSession(str(folder / told["file"]), providers=["CPUExecutionProvider"])
    assert {each.name: each.shape for each in session.get_inputs()} == told["inputs"]
    assert [each.name for each in session.get_outputs()] == list(told["outputs"])
    return lambda **inputs: session.run(None, {name: np.asarray(value) for name, value in inputs.items()})


def traced(bundle: Bundle) -> list[Run]:
    """The modules that graphs are traced from, as functions of arrays."""

    def as_function(module: torch.nn.Module) -> Run:
        return lambda **inputs: [
            each.numpy() for each in module(**{name: torch.as_tensor(value) for name, value in inputs.items()})
        ]

    return [as_function(each.module) for each in graphs_of(bundle)]


def loop_of(folder: Path) -> dict[str, Any]:
    """The functions of the program in the README, run as it stands there."""
    (program,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program.replace('folder = "."', f"folder = {str(folder)!r}"), names)
    return names


def apart(ours: Tensor, theirs: np.ndarray) -> float:
    return float(np.abs(ours.numpy() - theirs).max() / ours.abs().max())


def pair_apart(bundle: Bundle, encoder: Run, step: Run) -> float:
    """How far logits lie apart, of tokens that are read one by one or several at once, behind sources of any length."""
    model, (layers, heads) = bundle.model, (bundle.config.model.decoder_layers, bundle.config.model.heads)
    lengths, numbers = torch.tensor([11, 4, 1, 7]), torch.Generator().manual_seed(2)
    ids = torch.randint(4, bundle.config.vocabulary[0], (4, 11), generator=numbers)
    ids = ids.masked_fill(torch.arange(11) >= lengths[:, None], PAD)
    prefix = torch.randint(1, bundle.config.vocabulary[1], (4, 9), generator=numbers)
    wanted = model.output(model.decode(prefix, model.encode(ids, lengths)))
    keys, values = encoder(ids=ids, lengths=lengths)
    memory = {"memory_keys": keys, "memory_values": values, "memory_lengths": lengths}
    past, most = [np.zeros((layers, 4, heads, 0, 24 // heads), np.float32)] * 2, 0.0
    for start, end in ((0, 1), (1, 2), (2, 7), (7, 9)):
        places = np.tile(np.arange(start, end), (4, 1))
        given = {"ids": prefix[:, start:end], "positions": places, "past_keys": past[0], "past_values": past[1]}
        logits, *past = step(**given, **memory)
        assert past[0].shape == past[1].shape == (layers, 4, heads, end, 24 // heads)
        most = max(most, apart(wanted[:, start:end], logits))
    return most


def text_apart(bundle: Bundle, step: Run) -> float:
    model, config = bundle.model, bundle.config.model
    ids = torch.randint(4, bundle.config.vocabulary[0], (3, 17), generator=torch.Generator().manual_seed(2))
    wanted = model.output(model.read(ids))
    past, most = [np.zeros((config.layers, 3, config.groups or 6, 0, 4), np.float32)] * 2, 0.0
    for start, end in ((0, 8), (8, 9), (9, 17)):
        places = np.tile(np.arange(start, end), (3, 1))
        logits, *past = step(ids=ids[:, start:end], positions=places, past_keys=past[0], past_values=past[1])
        most = max(most, apart(wanted[:, start:end], logits))
    return most


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary"},
        {"positions": "sinusoidal", "norm": "post", "activation": "gelu", "scaled": False},
        {"positions": "learned", "norm": "none", "tied": "none", "random_offset": 5},
        {"positions": "none", "residual": False},
    ],
)
@torch.inference_mode()
def test_the_modules_of_translation(changes: dict[str, Any]) -> None:
    bundle = bundle_of(TransformerConfig(**PAIR, **changes))
    assert pair_apart(bundle, *traced(bundle)) < ROUNDED


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**LINE, groups=2, rotary_scale=1.3, tied=False),
        GPT3Config(**LINE, band=5, norm="post"),
        GPT2Config(**LINE, positions="sinusoidal", bias=False),
        GPT2Config(**LINE, positions="none", norm="none", activation="swiglu"),
    ],
)
@torch.inference_mode()
def test_the_modules_of_language_models(config: Any) -> None:
    bundle = bundle_of(config)
    assert text_apart(bundle, *traced(bundle)) < ROUNDED


@torch.inference_mode()
def test_translation_by_onnxruntime(tmp_path: Path) -> None:
    config = TransformerConfig(**PAIR | {"encoder_layers": 1, "decoder_layers": 1}, positions="rotary", tied="target")
    bundle = bundle_of(config, joint=False)
    folder = export_onnx(bundle, tmp_path / "out")
    assert pair_apart(bundle, graph(folder, "encoder"), graph(folder, "step")) < ROUNDED
    translate = loop_of(folder)["translate"]
    for each in Translator(bundle).translate(list(TEXTS), beam=1, max_length=13):
        assert translate(bundle.tokenizers.source.encode(each.source), most=13) == list(each.ids)


@torch.inference_mode()
def test_a_language_model_by_onnxruntime(tmp_path: Path) -> None:
    bundle = bundle_of(LlamaConfig(**LINE | {"layers": 1}, groups=2))
    folder = export_onnx(bundle, tmp_path / "out")
    assert text_apart(bundle, graph(folder, "step")) < ROUNDED
    generate, tokenizer = loop_of(folder)["generate"], bundle.tokenizer
    for text in TEXTS[:3]:
        found = Generator(bundle).generate(text, sample=False, max_length=13)
        assert tokenizer.labels(generate(tokenizer.encode(text), most=13)) == list(found.tokens)


REFUSED = [
    (
        TransformerConfig(**PAIR, positions="shaw"),
        "the ONNX export has no equal for model.positions = 'shaw'; .* 'rotary'",
    ),
    (TransformerConfig(**PAIR, cross_attention={"kind": "linear"}), "model.cross_attention = 'linear'"),
    (GPT2Config(**LINE, experts=2), "model.experts = 2"),
    (GPT2Config(**LINE, reversible=True), "model.reversible = True"),
    (LSTMConfig(), "a lstm for generate has no ONNX graphs here"),
]


@pytest.mark.parametrize(("config", "words"), REFUSED)
def test_what_has_no_graph_is_refused_in_words(config: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=words):
        export_onnx(bundle_of(config), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_verb_before_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """A folder that is there, an unknown form, a library that is missing: one line each, nothing written."""
    folder = str(save_bundle(tmp_path / "bundle", bundle_of(GPT2Config(**LINE))))
    assert run(["export", folder, "--to", "onnx", "-o", folder]) == 2
    assert "already exists" in capsys.readouterr().err
    assert run(["export", folder, "--to", "onyx", "-o", str(tmp_path / "no")]) == 2
    assert "did you mean onnx?" in capsys.readouterr().err

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(family, "import_module", missing)
    assert run(["export", folder, "--to", "onnx", "-o", str(tmp_path / "no")]) == 1
    assert "pip install 'regard[onnx]'" in capsys.readouterr().err and not (tmp_path / "no").exists()
    assert run(["export", "--help"]) == 0
    told = capsys.readouterr().out
    assert all(form in told for form in ("hf", "ctranslate2", "onnx")), told
