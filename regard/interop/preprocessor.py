"""How pictures are made to fit a model, as transformers writes it: preprocessor_config.json."""

from __future__ import annotations

import math
from typing import Any

from regard.config import check
from regard.data.pictures.config import PictureFormat
from regard.errors import RegardError
from regard.interop.table import Settings

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


def write_format(format: PictureFormat) -> dict[str, Any]:
    if format.fit == "pad":
        raise RegardError(
            "transformers has no equal for pictures.fit = 'pad'",
            "a model can be exported with 'crop' or 'squash' there",
        )
    square = {"height": format.size, "width": format.size}
    crop = format.fit == "crop"
    return {
        "image_processor_type": "CLIPImageProcessor"
        if crop
        else "ViTImageProcessor",  # the one that cuts out the middle
        "do_resize": True,
        "size": {"shortest_edge": format.size} if crop else square,
        "resample": RESAMPLE.index(format.resample),
        "do_center_crop": crop,
        **({"crop_size": square} if crop else {}),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(format.mean) * (format.channels // len(format.mean)),
        "image_std": list(format.deviation) * (format.channels // len(format.deviation)),
        "do_convert_rgb": format.channels == 3,
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


def _expect(settings: Settings, key: str, size: int, allowed: tuple[Any, ...]) -> None:
    value = settings.values.get(key)
    if value is not None and value not in allowed:
        raise RegardError(
            f"{settings.origin}: {key} is {value}, and for a model that sees {size} x {size} pixels Regard needs {allowed[0]}",
            "if a slightly other cut will do, write that there",
        )


def _by_channel(settings: Settings, key: str, channels: int) -> tuple[float, ...]:
    value = settings.values.get(key, 0.5)
    values = value if isinstance(value, list) else [value]
    if len(values) not in (1, channels) or not all(isinstance(each, (int, float)) for each in values):
        raise RegardError(
            f"{settings.origin}: {key} is {value!r}", f"it should be a number for each of {channels} channels"
        )
    if key == "image_std" and min(values) <= 0:
        raise RegardError(f"{settings.origin}: {key} is {value!r}", "it should be more than 0")
    return tuple(float(each) for each in values)
