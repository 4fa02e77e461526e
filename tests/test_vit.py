"""ViT: against its equations written out, and against transformers' with random weights, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import EXACT, ROUNDED, apart, rewritten, same_weights, shake, transformers
from torch import Tensor, nn
from torch.nn.functional import conv2d, gelu, layer_norm

from regard.attention import MultiHead, record
from regard.bundle import Bundle, BundleConfig, load_bundle, save_bundle
from regard.data.pictures.config import PictureFormat
from regard.embed.patches import grid_sinusoid
from regard.errors import RegardError, UsageError
from regard.interop.family import Settings
from regard.interop.vit import read_folder, write_folder
from regard.models.config import ViTConfig
from regard.models.pictures.classifier import PictureClassifier
from regard.models.pictures.vit import ViT

SIZES: dict[str, Any] = {"patch": 5, "layers": 3, "width": 12, "heads": 3, "feed_forward": 17}
FORMAT = PictureFormat(size=20, fit="squash", mean=(0.3, 0.4, 0.5), deviation=(0.2, 0.25, 0.3))


def vit(**changes: Any) -> ViT:
    torch.manual_seed(2)
    return shake(ViT(ViTConfig(**{**SIZES, **changes}), FORMAT)).double()  # type: ignore[return-value]


def pictures(size: int = 20, rows: int = 2, channels: int = 3) -> Tensor:
    return torch.randn(rows, channels, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def by_hand(model: ViT, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Equations 1 to 4 of the paper, from the model's own weights: vector, places, attention (layers, B, H, T, T)."""
    config, weights = model.config, dict(model.named_parameters())

    def norm(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, (config.width,), weights[f"{name}.weight"], weights[f"{name}.bias"], config.epsilon)

    def dense(x: Tensor, name: str) -> Tensor:
        return torch.einsum("bti,oi->bto", x, weights[f"{name}.weight"]) + weights[f"{name}.bias"]

    x = conv2d(pixels, weights["patches.weight"], weights["patches.bias"], stride=config.patch).flatten(2).mT
    first = config.pool == "class"
    table = grid_sinusoid(config.width, model.grid) if config.positions == "sinusoidal" else 0
    if config.positions == "learned":
        x = x + weights["positions.table"][int(first) :]
    x = x + table
    if first:
        token = weights["class_token"] + (weights["positions.table"][:1] if config.positions == "learned" else 0)
        x = torch.cat([token.expand(len(x), 1, -1), x], dim=1)
    heads, looked = config.heads, []
    for number in range(config.layers):
        name = f"blocks.{number}"
        y = norm(x, f"{name}.around_attention.norm")
        q = dense(y, f"{name}.attention.query")
        k, v = dense(y, f"{name}.attention.key_value").chunk(2, dim=-1)
        q, k, v = (each.unflatten(-1, (heads, -1)) for each in (q, k, v))
        scores = torch.einsum("bthe,bshe->bhts", q, k) / (config.width / heads) ** 0.5
        looked.append(scores.softmax(dim=-1))
        seen = torch.einsum("bhts,bshe->bthe", looked[-1], v).flatten(2)
        x = x + dense(seen, f"{name}.attention.out")
        y = gelu(dense(norm(x, f"{name}.around_feed_forward.norm"), f"{name}.feed_forward.up"))
        x = x + dense(y, f"{name}.feed_forward.down")
    x = norm(x, "norm")
    places = x[:, int(first) :]
    return (x[:, 0] if first else places.mean(dim=1)), places, torch.stack(looked)


VARIANTS = [
    {"pool": pool, "positions": positions}
    for pool in ("class", "mean")
    for positions in ("learned", "sinusoidal", "none")
]


@pytest.mark.parametrize("changes", VARIANTS)
@torch.no_grad()
def test_the_equations(changes: dict[str, Any]) -> None:
    model, pixels = vit(**changes), pictures()
    view = model(pixels)
    vector, places, _ = by_hand(model, pixels)
    assert view.vector.shape == (2, 12) and view.places.shape == (2, 16, 12) and model.grid == (4, 4)
    assert apart(view.vector, vector) < EXACT and apart(view.places, places) < EXACT
    assert apart(model(pixels[1:]).vector, vector[1:]) < EXACT


@pytest.mark.parametrize("changes", VARIANTS)
@torch.no_grad()
def test_where_it_looked(changes: dict[str, Any]) -> None:
    model, pixels = vit(**changes), pictures()
    with record(model) as seen:
        model(pixels)
    assert seen.check() < EXACT
    _, _, looked = by_hand(model, pixels)
    first = int(model.config.pool == "class")
    mixed = torch.eye(first + 16, dtype=torch.float64).expand(2, -1, -1)
    for weights in looked:  # Abnar & Zuidema 2020, section 3
        mixed = (0.5 * weights.mean(dim=1) + 0.5 * torch.eye(first + 16, dtype=torch.float64)) @ mixed
    row = (mixed[:, 0] if first else mixed.mean(dim=1))[:, first:]
    assert apart(model.rollout_map(seen), row / row.sum(dim=-1, keepdim=True)) < EXACT
    assert apart(model.rollout_map(seen).sum(dim=-1), torch.ones(2)) < EXACT
    if first:
        assert apart(model.class_attention(seen), looked[:, :, :, 0, 1:]) < EXACT
    else:
        with pytest.raises(UsageError, match="no class token"):
            model.class_attention(seen)


class Pair(nn.Module):
    """A ViT beside another attention, as in a model that answers questions."""

    def __init__(self, model: ViT) -> None:
        super().__init__()
        self.other, self.sees = MultiHead(12, 2, role="self").double(), model


@torch.no_grad()
def test_other_attentions_are_not_taken_for_its_own() -> None:
    model, pixels = vit(), pictures()
    pair, words = Pair(model), torch.randn(2, 17, 12, dtype=torch.float64)
    with record(pair) as seen:
        pair.other(words, words)
        pair.sees(pixels)
        pair.other(words, words)
    _, _, looked = by_hand(model, pixels)
    assert apart(model.class_attention(seen), looked[:, :, :, 0, 1:]) < EXACT
    with record(pair) as seen:
        pair.sees(pixels)
        pair.sees(pixels)
    with pytest.raises(UsageError, match="6 attentions of this ViT were seen, and one pass has 3"):
        model.rollout_map(seen)


# --- Of transformers


def theirs(**changes: Any) -> Any:
    sizes = {
        "num_hidden_layers": 3, "hidden_size": 21, "num_attention_heads": 3, "intermediate_size": 37, "image_size": 20,
        "patch_size": 5, "id2label": {0: "cat", 1: "dog", 2: "cat", 3: "a bird"}, "label2id": {},
    }  # fmt: skip
    return shake(transformers.ViTForImageClassification(transformers.ViTConfig(**{**sizes, **changes})))


def folder_of(model: Any, folder: Path, **preprocessor: Any) -> Path:
    model.save_pretrained(folder)
    if preprocessor:
        transformers.ViTImageProcessorPil(**preprocessor).save_pretrained(folder)
    return folder


def imported(folder: Path) -> Bundle:
    return read_folder(folder, Settings(json.loads((folder / "config.json").read_text()), f"{folder}/config.json"))


def exported(bundle: Bundle, folder: Path) -> Path:
    folder.mkdir()
    write_folder(bundle, folder)
    return folder


@pytest.mark.parametrize(
    "changes",
    [{}, {"qkv_bias": False}, {"layer_norm_eps": 0.1, "num_channels": 1}, {"id2label": None, "label2id": None}],
)
@torch.inference_mode()
def test_theirs_gives_the_same_logits_here(changes: dict[str, Any], tmp_path: Path) -> None:
    model = theirs(**changes)
    bundle = imported(folder_of(model, tmp_path / "hf"))
    ours: Any = bundle.model
    pixels = pictures(channels=changes.get("num_channels", 3), rows=3)
    config: Any = bundle.config.model
    names = ("LABEL_0", "LABEL_1") if "id2label" in changes else ("cat", "dog", "cat", "a bird")
    assert bundle.config.labels == names and bundle.config.task == "classify-pictures" and not ours.training
    assert (config.epsilon, config.dropout) == (changes.get("layer_norm_eps", 1e-12), 0.0)
    assert apart(ours.logits(pixels.float()), model(pixels.float()).logits) < ROUNDED
    with record(ours) as seen:
        logits = ours.double().logits(pixels)
    assert apart(logits, model.double()(pixels).logits) < EXACT
    model.set_attn_implementation("eager")  # which tells its weights, and rounds them to float32
    looked = torch.stack(model(pixels, output_attentions=True).attentions)  # (layers, B, H, T, S)
    assert apart(ours.encoder.class_attention(seen), looked[:, :, :, 0, 1:]) < 1e-6


@pytest.mark.parametrize("size", [15, 35])
@torch.inference_mode()
def test_another_size_is_theirs_interpolated(size: int, tmp_path: Path) -> None:
    model = theirs().double()
    ours: Any = imported(folder_of(theirs(), tmp_path / "hf")).model.double()
    encoder, pixels = ours.encoder.at_size(size), pictures(size)
    assert encoder.grid == (size // 5, size // 5) and not encoder.training
    wanted = model(pixels, interpolate_pos_encoding=True).logits
    assert apart(ours.head(encoder(pixels).vector), wanted) < EXACT
    with pytest.raises(RegardError, match="do not fill a picture of 21 x 21"):
        encoder.at_size(21)


@torch.no_grad()
def test_another_size_with_computed_positions() -> None:
    model = vit(positions="sinusoidal", pool="mean").train()
    larger, pixels = model.at_size(35), pictures(35)
    assert larger.training and larger.grid == (7, 7) and model.grid == (4, 4)
    assert apart(larger.eval()(pixels).vector, by_hand(larger, pixels)[0]) < EXACT
    assert apart(larger.blocks[1].attention.query.weight, model.blocks[1].attention.query.weight) == 0  # type: ignore


def our_classifier(config: ViTConfig, format: PictureFormat = FORMAT) -> Bundle:
    settings = BundleConfig(task="classify-pictures", labels=("a", "b", "c"), pictures=format, model=config)
    return Bundle(settings, shake(PictureClassifier(config, format, 3)), None, {})


@pytest.mark.parametrize("changes", [{}, {"epsilon": 0.1, "dropout": 0.3}])
@torch.inference_mode()
def test_ours_is_loaded_by_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    bundle = our_classifier(ViTConfig(**SIZES, **changes))
    folder = exported(bundle, tmp_path / "hf")
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    pixels, ours = pictures(), bundle.model
    assert model.config.id2label == {0: "a", 1: "b", 2: "c"} and model.config.hidden_dropout_prob == bundle.model.rate
    assert apart(ours.logits(pixels.float()), model(pixels.float()).logits) < ROUNDED  # type: ignore[operator]
    assert apart(ours.double().logits(pixels), model.double()(pixels).logits) < EXACT
    again = imported(folder)
    bundle.model.float()
    assert same_weights(bundle, again) and again.config == bundle.config


def test_an_imported_vit_is_a_bundle(tmp_path: Path) -> None:
    bundle = imported(folder_of(theirs(), tmp_path / "hf"))
    again = load_bundle(save_bundle(tmp_path / "bundle", bundle))
    assert same_weights(bundle, again) and again.config.pictures == bundle.config.pictures


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"num_hidden_layers": 4}, "16 missing: vit.encoder.layer.3"),
        ({"num_hidden_layers": 2}, "16 unknown: vit.encoder.layer.2"),
        ({"image_size": 25}, r"position_embeddings is \(17, 21\), and by its config.json it would be \(26, 21\)"),
        ({"image_size": 21}, "do not fill a picture of 21 x 21"),
        ({"image_size": [20, 20]}, r"image_size is \[20, 20\]"),
        ({"num_channels": 4}, "channels"),
        ({"num_attention_heads": 2}, "cannot be split into 2 heads"),
        ({"qkv_bias": False}, "qkv_bias is False, and the weights have"),
        ({"id2label": {"0": "a", "1": "b"}}, r"classifier.weight is \(4, 21\), and by its config.json it would be \(2, 21\)"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label"),
    ],
)  # fmt: skip
def test_configurations_that_do_not_fit(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = folder_of(theirs(), tmp_path / "hf")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | change))
    with pytest.raises(RegardError, match=words):
        imported(folder)


def test_tensors_that_do_not_fit(tmp_path: Path) -> None:
    folder = folder_of(theirs(), tmp_path / "hf")
    rewritten(folder, lambda tensors: tensors | {"vit.pooler.dense.bias": torch.ones(21)})
    with pytest.raises(RegardError, match=r"1 unknown: vit.pooler.dense.bias"):
        imported(folder)
    rewritten(folder, lambda tensors: {name: each for name, each in tensors.items() if "pooler" not in name})
    rewritten(folder, lambda tensors: tensors | {"vit.layernorm.bias": torch.ones(21, dtype=torch.int8)})
    with pytest.raises(RegardError, match=r"vit.layernorm.bias holds int8"):
        imported(folder)
    bare = theirs().vit
    with pytest.raises(RegardError, match=r"2 missing: classifier.bias, classifier.weight"):
        imported(folder_of(bare, tmp_path / "bare"))


@pytest.mark.parametrize("change", [{"pool": "mean"}, {"positions": "sinusoidal"}])
def test_what_transformers_cannot_express(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=f"no equal for model.{next(iter(change))}"):
        exported(our_classifier(ViTConfig(**SIZES, **change)), tmp_path / "hf")
    with pytest.raises(RegardError, match=r"no equal for pictures.fit = 'pad'"):
        exported(our_classifier(ViTConfig(**SIZES), FORMAT.model_copy(update={"fit": "pad"})), tmp_path / "other")


def test_the_preprocessor_that_was_saved_with_theirs(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "size": {"height": 20, "width": 20},
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.4, 0.5, 0.6],
    }
    found = imported(folder_of(theirs(), tmp_path / "hf", **values)).config.pictures
    colours = {"mean": (0.1, 0.2, 0.3), "deviation": (0.4, 0.5, 0.6)}
    assert found == PictureFormat(size=20, fit="squash", resample="bilinear", **colours)
    bare = imported(folder_of(theirs(), tmp_path / "bare")).config.pictures
    assert bare == PictureFormat(size=20, fit="squash", resample="bilinear", mean=(0.5,), deviation=(0.5,))
