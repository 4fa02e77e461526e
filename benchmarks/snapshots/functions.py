"""What the functions of `regard` give: attention itself, what is recorded of models, and what changes of heads change."""

from __future__ import annotations

import contextlib
import inspect
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import regard
from snapshots.data import tree

TEXT, PICTURE = "the red dog sees a small cat", "pictures/valid/ring/0.png"


def use(model: Any) -> Any:
    """One pass of a model of any task."""
    passes: dict[str, Callable[[], Any]] = {
        "translate": lambda: model.score([(TEXT, "der rote hund"), ("a bird", "ein vogel")]),
        "generate": lambda: model.score([TEXT]),
        "fill": lambda: model.fill("the red [MASK] sees a cat"),
        "classify": lambda: classified(model),
        "classify-pictures": lambda: model.classify(PICTURE),
        "caption": lambda: model.caption(PICTURE),
        "answer": lambda: model.answer(PICTURE, "what colour is it?"),
    }
    return passes[model.config.task]()


def classified(model: Any) -> Any:
    has_trees = getattr(model.config.model, "positions", "") == "tree"
    return model.classify(TEXT, "a bird" if model.config.pairs else None, heads=tree(TEXT) if has_trees else None)


def recorded(folder: Path) -> Any:
    """What a model gave, and every attention on the way: by whom, in which role, with which weights."""
    if not (folder / "best").exists():
        return None
    model = regard.load(folder)
    with regard.record(model) as seen:
        told = repr(use(model))
    try:
        calls = [[each.path, each.role, each.layer, rounded(each.weights())] for each in seen.calls]
    except (regard.RegardError, ValueError) as error:
        calls = [str(error)]
    return {"model": repr(model), "gave": told, "seen": repr(seen), "unseen": seen.unseen, "calls": calls}


def rounded(values: Any) -> Any:
    """A tensor as its shape and its numbers, each exactly as JSON can say it."""
    if isinstance(values, torch.Tensor):
        return {"shape": list(values.shape), "values": values.detach().double().flatten().tolist()}
    return values


def functions() -> dict[str, Any]:
    """What stands in `regard`, and what it gives: attention itself, modules of torch recorded and changed."""
    names = {name: signature(getattr(regard, name)) for name in regard.__all__}
    return {"names": names, "dir": dir(regard), "attend": attended(), "foreign": foreign(), "changed": changes()}


def signature(thing: Any) -> list[str]:
    """The arguments of a function and their defaults, without their types."""
    with contextlib.suppress(ValueError):  # an error has none
        return [str(each.replace(annotation=each.empty)) for each in inspect.signature(thing).parameters.values()]
    return []


def numbers(*shape: int) -> torch.Tensor:
    """Numbers without a random generator."""
    return torch.sin(torch.arange(math.prod(shape), dtype=torch.float32) * 1.7).reshape(shape)


def attended() -> dict[str, Any]:
    """`regard.attend` with each of its arguments, over short sequences and long ones."""
    q, k, v = numbers(2, 4, 5, 6), numbers(2, 4, 7, 6) * 0.5, numbers(2, 4, 7, 3)
    mask = numbers(2, 1, 5, 7) > -0.4
    long = numbers(1, 2, 140, 4)
    ways: dict[str, tuple[Any, ...]] = {
        "plain": ((q, k, v), {}),
        "mask": ((q, k, v), {"mask": mask}),
        "nothing seen": ((q, k, v), {"mask": torch.zeros(5, 7, dtype=torch.bool)}),
        "bias": ((q, k, v), {"bias": numbers(4, 5, 7), "mask": mask}),
        "scale": ((q, k, v), {"scale": 0.1}),
        "groups": ((q, k[:, :2], v[:, :2]), {"mask": mask}),
        "float64": ((q.double(), k.double(), v.double()), {}),
        "bfloat16": ((q.bfloat16(), k.bfloat16(), v.bfloat16()), {}),
        "long": ((long, long, long), {}),
        "long bias": ((long, long, long), {"bias": numbers(140, 140)}),
    }
    return {name: rounded(regard.attend(*given, **options)) for name, (given, options) in ways.items()}


def foreign() -> dict[str, Any]:
    """Torch's own modules, recorded, with a head removed, with a temperature, with a row pinned."""
    torch.manual_seed(5)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, dropout=0.0).eval()
    decoder = torch.nn.TransformerDecoderLayer(8, 2, 12, batch_first=True, dropout=0.0).eval()
    x, memory = numbers(2, 5, 8), numbers(2, 4, 8)
    ways: dict[str, tuple[Any, ...]] = {
        "nothing": (),
        "a head removed": (regard.Remove(layer=0, head=1),),
        "sharper": (regard.Temperature(layer=0, value=0.5),),
        "hard": (regard.Temperature(layer=0, hard=True),),
        "pinned": (regard.Pin(layer=0, row=2, weights=[0.25, 0.75]),),
    }
    found: dict[str, Any] = {}
    for name, change in ways.items():
        for module, given in ((layer, (x,)), (decoder, (x, memory))):
            with torch.no_grad(), regard.intervene(module, *change), regard.record(module) as seen:
                out = module(*given)
            calls = [[each.path, each.role, each.layer, rounded(each.weights())] for each in seen.calls]
            found[f"{name}, {type(module).__name__}"] = {"out": rounded(out), "calls": calls, "seen": repr(seen)}
    return found


def changes() -> dict[str, Any]:
    """What models give when one of their heads is changed."""
    ways = (
        regard.Remove(layer=0, head=1),
        regard.Temperature(layer=0, value=2.0),
        regard.Pin(layer=1, row=1, weights=0),
    )
    found: dict[str, Any] = {}
    for folder in sorted(Path("models").iterdir()):
        model = regard.load(folder) if (folder / "best").exists() else None
        for way in ways if model is not None else ():
            try:
                with regard.intervene(model, way), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found[f"{folder.name}, {way}"] = repr(use(model))
            except (regard.RegardError, ValueError) as error:
                found[f"{folder.name}, {way}"] = str(error)
    return found
