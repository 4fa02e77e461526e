"""ViT (Dosovitskiy et al. 2021) as transformers writes it: a classifier of pictures, and how pictures are made to fit it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.bundle import Bundle, BundleConfig
from regard.config import check
from regard.data.pictures.config import PictureFormat
from regard.errors import RegardError
from regard.files import JSON, read_json, write_json
from regard.interop.family import MOST_LAYERS, Settings, TensorRow, check_names, layer, must_be, row, to_ours, to_theirs
from regard.interop.weights import SINGLE, read_weights
from regard.models.configs.attention import ExactConfig
from regard.models.configs.pictures import ViTConfig
from regard.models.pictures.vit import ViT
from regard.models.table import build
from regard.tensors import write_tensors

FILE = "preprocessor_config.json"
RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers, from 0 on


def read_format(settings: Settings | None, *, size: int, channels: int) -> PictureFormat:
    """For a model that sees `size` x `size` pixels. Without the file (None), its library's defaults hold."""
    settings = Settings({}, FILE) if settings is None else settings
    settings.only("do_resize", True)
    settings.only("do_rescale", True)
    settings.only("do_pad", False)
    if not math.isclose(settings.number("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-6):
        raise RegardError(f"{settings.origin}: rescale_factor is not 1 / 255, and pictures here are bytes of 0 to 255")
    normal = settings.flag("do_normalize", True)
    values = {
        "size": size,
        "channels": channels,
        "fit": _fit(settings, size),
        "resample": _resample(settings),
        "mean": _by_channel(settings, "image_mean", channels) if normal else (0.0,),
        "deviation": _by_channel(settings, "image_std", channels) if normal else (1.0,),
    }
    return check(PictureFormat, values, settings.origin)


def write_format(picture_format: PictureFormat) -> dict[str, JSON]:
    if picture_format.fit == "pad":
        raise RegardError(
            "transformers has no equal for pictures.fit = 'pad'",
            "a model can be exported with 'crop' or 'squash' there",
        )
    square = {"height": picture_format.size, "width": picture_format.size}
    crop = picture_format.fit == "crop"
    return {
        "image_processor_type": "CLIPImageProcessor"
        if crop
        else "ViTImageProcessor",  # the one that cuts out the middle
        "do_resize": True,
        "size": {"shortest_edge": picture_format.size} if crop else square,
        "resample": RESAMPLE.index(picture_format.resample),
        "do_center_crop": crop,
        **({"crop_size": square} if crop else {}),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(picture_format.mean) * (picture_format.channels // len(picture_format.mean)),
        "image_std": list(picture_format.deviation) * (picture_format.channels // len(picture_format.deviation)),
        "do_convert_rgb": picture_format.channels == 3,
    }


def _fit(settings: Settings, size: int) -> str:
    """squash: both sides to the size; crop: the shorter side to the size, then the middle."""
    if not settings.flag("do_center_crop", False):
        _expect(settings, "size", size, ({"height": size, "width": size}, size))
        return "squash"
    _expect(settings, "crop_size", size, ({"height": size, "width": size}, size))
    _expect(settings, "size", size, ({"shortest_edge": size}, size))
    return "crop"


def _resample(settings: Settings) -> str:
    """Pillow's number; where none is written, that of the processor's class: ViT's own is bilinear, others' bicubic."""
    of_class = settings.values.get("image_processor_type") or settings.values.get("feature_extractor_type") or "ViT"
    usual = "bilinear" if str(of_class).startswith("ViT") else "bicubic"
    value = settings.values.get("resample")
    value = RESAMPLE.index(usual) if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(RESAMPLE):
        known = ", ".join(f"{number} ({name})" for number, name in enumerate(RESAMPLE))
        raise RegardError(f"{settings.origin}: resample is {value!r}", f"Regard has {known}")
    return RESAMPLE[value]


def _expect(settings: Settings, key: str, size: int, allowed: tuple[object, ...]) -> None:
    value = settings.values.get(key)
    if value is not None and value not in allowed:
        raise RegardError(
            f"{settings.origin}: {key} is {value}, and for a model that sees {size} x {size} pixels Regard needs {allowed[0]}",
            "if a slightly other cut will do, write that there",
        )


def _by_channel(settings: Settings, key: str, channels: int) -> tuple[float, ...]:
    value = settings.values.get(key, 0.5)
    given = value if isinstance(value, list) else [value]
    values = [float(each) for each in given if isinstance(each, (int, float))]
    if len(given) not in (1, channels) or len(values) < len(given):
        raise RegardError(
            f"{settings.origin}: {key} is {value!r}", f"it should be a number for each of {channels} channels"
        )
    if key == "image_std" and min(values) <= 0:
        raise RegardError(f"{settings.origin}: {key} is {value!r}", "it should be more than 0")
    return tuple(values)


NAME = "vit"  # its model_type
PREFIX, HEAD = "vit.", "classifier."
WITH_BATCH = ("vit.embeddings.cls_token", "vit.embeddings.position_embeddings")  # theirs begin with an axis of one


@dataclass(frozen=True, eq=False)
class OurViT:
    """All that a bundle of a `PictureClassifier` is made of."""

    config: ViTConfig
    format: PictureFormat
    labels: tuple[str, ...]
    tensors: dict[str, Tensor]  # encoder.*, head.*


@dataclass(frozen=True, eq=False)
class TheirViT:
    """All that a folder of a ViTForImageClassification is made of."""

    config: dict[str, JSON]  # config.json
    preprocessor: dict[str, JSON]  # preprocessor_config.json
    tensors: dict[str, Tensor]


def read_folder(folder: Path, settings: Settings) -> Bundle:
    """The classifier of a folder whose config.json is `settings`, ready to run."""
    found = import_vit(settings, _preprocessor(folder), read_weights(folder))
    model = build("classify-pictures", found.config, labels=len(found.labels), pictures=found.format)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(found.tensors[name])
    config = BundleConfig(task="classify-pictures", labels=found.labels, pictures=found.format, model=found.config)
    return Bundle(config, model.eval(), None, {})


def write_folder(bundle: Bundle, inside: Path) -> None:
    """config.json, preprocessor_config.json and model.safetensors, so that transformers' Auto classes load them."""
    config, picture_format = bundle.config.model, bundle.config.pictures
    assert isinstance(config, ViTConfig) and picture_format is not None
    theirs = export_vit(config, picture_format, bundle.config.labels, dict(bundle.model.named_parameters()))
    write_json(inside / "config.json", theirs.config)
    write_json(inside / FILE, theirs.preprocessor)
    write_tensors(inside / SINGLE, theirs.tensors)


def import_vit(settings: Settings, preprocessor: Settings | None, tensors: Mapping[str, Tensor]) -> OurViT:
    """A classifier of theirs as ours. Without a preprocessor_config.json its defaults hold."""
    origin = settings.origin
    config, labels = read(settings), read_labels(settings)
    picture_format = read_format(
        preprocessor, size=settings.size("image_size"), channels=settings.size("num_channels", 3)
    )
    full = _with_biases(settings, config, _full_names(tensors))
    check_names(rows(config), full, origin)  # before anything of the size that config.json claims is built
    for name, tensor in full.items():
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise RegardError(f"{origin}: {name} holds {kind}", "take the model before it was quantised")
    plain = {name: _without_batch(name, tensor) for name, tensor in full.items()}
    return OurViT(
        config, picture_format, labels, to_ours(rows(config), plain, _shapes(config, picture_format, labels), origin)
    )


def export_vit(
    config: ViTConfig, picture_format: PictureFormat, labels: Sequence[str], ours: Mapping[str, Tensor]
) -> TheirViT:
    """A classifier of ours as theirs, in float32."""
    values = write(config, picture_format, labels)
    theirs = to_theirs(rows(config), {name: tensor.detach().float() for name, tensor in ours.items()})
    tensors = {name: tensor[None] if name in WITH_BATCH else tensor for name, tensor in theirs.items()}
    return TheirViT(values, write_format(picture_format), tensors)


def read(settings: Settings) -> ViTConfig:
    """Dropout of attention weights (`attention_probs_dropout_prob`) is not taken over: ours has none."""
    settings.choice("hidden_act", {"gelu": "gelu"}, "gelu")
    settings.only("quantization_config")
    values = {
        "patch": settings.size("patch_size"),
        "layers": settings.size("num_hidden_layers", most=MOST_LAYERS),
        "width": settings.size("hidden_size"),
        "heads": settings.size("num_attention_heads"),
        "feed_forward": settings.size("intermediate_size"),
        "pool": "class",
        "positions": "learned",
        "dropout": settings.number("hidden_dropout_prob", 0.0),
        "epsilon": settings.number("layer_norm_eps", 1e-12),
    }
    return check(ViTConfig, values, settings.origin)


def write(config: ViTConfig, picture_format: PictureFormat, labels: Sequence[str]) -> dict[str, JSON]:
    must_be(config, "ViT", pool="class", positions="learned", attention=ExactConfig())
    return {
        "model_type": NAME,
        "architectures": ["ViTForImageClassification"],
        "image_size": picture_format.size,
        "num_channels": picture_format.channels,
        "patch_size": config.patch,
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "intermediate_size": config.feed_forward,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": config.epsilon,
        "qkv_bias": True,
        "encoder_stride": config.patch,
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "torch_dtype": "float32",
    }


def read_labels(settings: Settings) -> tuple[str, ...]:
    """The names of the classes in `id2label`. transformers leaves it out when all are called LABEL_0, LABEL_1, ..."""
    names = settings.values.get("id2label")
    if names is None:
        return tuple(f"LABEL_{number}" for number in range(settings.size("num_labels", 2)))
    if not isinstance(names, dict) or set(names) != {str(number) for number in range(len(names))}:
        raise RegardError(f"{settings.origin}: id2label should name every class from 0 on", "copy the file again")
    return tuple(str(names[str(number)]) for number in range(len(names)))


def rows(config: ViTConfig) -> list[TensorRow]:
    embeddings = "vit.embeddings"
    found = [
        row("encoder.class_token", f"{embeddings}.cls_token"),
        row("encoder.positions.table", f"{embeddings}.position_embeddings"),
        *layer("encoder.patches", f"{embeddings}.patch_embeddings.projection"),
    ]
    for number in range(config.layers):
        found += _block(f"encoder.blocks.{number}", f"vit.encoder.layer.{number}")
    return [*found, *layer("encoder.norm", "vit.layernorm"), *layer("head", "classifier")]


def _block(ours: str, theirs: str) -> list[TensorRow]:
    look = f"{theirs}.attention.attention"
    found = layer(f"{ours}.attention.query", f"{look}.query")
    for kind in ("weight", "bias"):
        found.append(row(f"{ours}.attention.key_value.{kind}", (f"{look}.key.{kind}", f"{look}.value.{kind}")))
    return [
        *found,
        *layer(f"{ours}.attention.out", f"{theirs}.attention.output.dense"),
        *layer(f"{ours}.around_attention.norm", f"{theirs}.layernorm_before"),
        *layer(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense"),
        *layer(f"{ours}.feed_forward.down", f"{theirs}.output.dense"),
        *layer(f"{ours}.around_feed_forward.norm", f"{theirs}.layernorm_after"),
    ]


def _preprocessor(folder: Path) -> Settings | None:
    if not (folder / FILE).exists():
        return None
    values = read_json(folder / FILE)
    if not isinstance(values, dict):
        raise RegardError(f"{folder}/{FILE} does not hold a table", "copy it again")
    return Settings(values, f"{folder}/{FILE}")


def _full_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A model that was saved without its head has no prefix, and is found to lack its classifier."""
    bare = not any(name.startswith(PREFIX) for name in tensors)
    return {PREFIX + name if bare and not name.startswith(HEAD) else name: each for name, each in tensors.items()}


def _with_biases(settings: Settings, config: ViTConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys and values without biases are those with biases of zero."""
    if settings.flag("qkv_bias", True):
        return tensors
    looks = [f"vit.encoder.layer.{number}.attention.attention" for number in range(config.layers)]
    names = [f"{look}.{part}.bias" for look in looks for part in ("query", "key", "value")]
    found = [name for name in names if name in tensors]
    if found:
        raise RegardError(f"{settings.origin}: qkv_bias is False, and the weights have {found[0]}", "copy both again")
    return tensors | {name: torch.zeros(config.width) for name in names}


def _without_batch(name: str, tensor: Tensor) -> Tensor:
    return tensor[0] if name in WITH_BATCH and tensor.dim() == 3 and len(tensor) == 1 else tensor


def _shapes(config: ViTConfig, picture_format: PictureFormat, labels: Sequence[str]) -> dict[str, torch.Size]:
    with torch.device("meta"):
        encoder = ViT(config, picture_format)
    found = {f"encoder.{name}": parameter.shape for name, parameter in encoder.named_parameters()}
    return found | {"head.weight": torch.Size((len(labels), config.width)), "head.bias": torch.Size((len(labels),))}
