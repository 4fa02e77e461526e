"""The model and the device that the person means, and all that can be told of them before torch is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regard
from regard.cli.options import Tables
from regard.cli.output import say
from regard.config import check, find_file
from regard.data.notation import NOTATIONS
from regard.decode.config import DecodeConfig, check_engine, check_weights
from regard.errors import UsageError, nearest
from regard.files import read_json
from regard.runs import all_runs, bundle_folder, bundle_task, newest, shipped_for, used_by
from regard.tasks.table import TASKS, family_of
from regard.world import world_of

if TYPE_CHECKING:
    from regard.tasks.translate.predictor import Translator

DEVICES = ("auto", "cpu", "cuda", "mps")
MAPS = (".png", ".svg", ".html", ".json", ".csv")  # how a map can be saved
DRAWS = ("temperature", "top_k", "top_p", "min_p")  # what shapes random draws
# Attention blocks of each role, by the key of the model that counts them; a model without these keys has one attention.
LAYERS = {"cross": "decoder_layers", "causal": "decoder_layers", "self": "encoder_layers"}


# --- What a bundle's config.json tells, without torch


@dataclass(frozen=True)
class ModelFacts:
    """A model by its config.json: what it does and how large it is."""

    name: str  # as the person typed it
    task: str
    labels: tuple[str, ...]
    model: Tables
    decode: Tables

    @property
    def verb(self) -> str:
        """The verb that a person types: texts and pictures share `classify`."""
        return self.task.partition("-")[0]

    def layers(self, role: str | None) -> int | None:
        """Layers of attention in a role, or in any; None where the configuration does not tell."""
        if "decoder_layers" in self.model:
            keys = LAYERS.values() if role is None else [LAYERS[role]] if role in LAYERS else []
            counts = {int(self.model[key]) for key in keys}
            return counts.pop() if len(counts) == 1 else None
        blocks = "heads" in self.model and "layers" in self.model  # recurrent layers have no heads
        return int(self.model["layers"]) if blocks else None


def about(run: str | Path, verb: str | None = None) -> ModelFacts:
    """The facts of the model in a run's or a bundle's folder; with `verb`, only of one that the verb runs."""
    own = bundle_task(run)
    values = read_json(bundle_folder(run) / "config.json")
    tables = [value if isinstance(value := values.get(name), dict) else {} for name in ("model", "decode")]
    found = ModelFacts(str(run), own, tuple(values.get("labels") or ()), *tables)
    if verb is not None and found.verb != verb:
        raise UsageError(f"{run} is a model to {found.verb}, not to {verb}; try: regard {used_by(own)}")
    return found


def check_model(
    run: str | Path,
    device: str = "auto",
    verb: str | None = None,
    *,
    decode: Tables | None = None,
    role: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> ModelFacts:
    """The facts of a model, once a request of it is right: the model, the device, decoding, layer and head. No torch yet."""
    check_device(device)
    found = about(run, verb)
    if decode:
        check_decode(found, decode)
    if layer is not None or head is not None:
        check_layer(found, role, layer, head)
    return found


def check_device(name: str) -> None:
    """Whether there are such devices at all; whether this machine has one, torch must say."""
    if name.split(":")[0] not in DEVICES:
        raise UsageError(f"no device {name}", nearest(name, DEVICES))


def check_engine_for(engine: str, remove: Sequence[str] | None) -> None:
    """Whether there is such an engine, and whether it sees what else is asked for."""
    check_engine(engine)
    if engine != "regard" and remove:
        raise UsageError(f"--remove changes Regard's own attention, which {engine} does not run; leave out --engine")


def check_weights_for(engine: str, weights: str) -> None:
    """Whether there are such weights, and whether the engine has them."""
    check_weights(weights)
    if engine != "regard" and weights != "float32":
        raise UsageError(f"--weights {weights} is of Regard's own engine; leave out --engine {engine}")


def stopping_of(engine: str, stopping: str | None) -> str | None:
    """When a beam search ends: as asked for; CTranslate2 has one way only, which is taken where nobody asks for another."""
    return "early" if stopping is None and engine == "ctranslate2" else stopping


def check_decode(found: ModelFacts, over: Tables) -> None:
    """The model's own options of decoding, laid over by the given ones."""
    base = dict(found.decode)
    if family_of(found.task) == "generate" and (over.get("sample") is False or (over.get("beam") or 1) > 1):
        base = {name: value for name, value in base.items() if name not in (*DRAWS, "sample", "beam")} | {"beam": 1}
    check(DecodeConfig, {**base, **over}, "decode")


def check_layer(found: ModelFacts, role: str | None, layer: int | None, head: int | None) -> None:
    """A layer, and a head of it, that the configuration says are there; both count from 0."""
    layers, heads = found.layers(role), found.model.get("heads")
    if layer is None or layers is None:
        return
    from regard.look.layers import check_choice

    has = heads if isinstance(heads, int) else 0
    counts = {each: int(found.model[key]) for each, key in LAYERS.items() if key in found.model}
    others = {each: [has] * count for each, count in counts.items() if has and each != (role or "cross")}
    check_choice(layer, head if has else None, [has] * layers, others=others)


def check_out(out: Path | None, suffixes: Sequence[str] = MAPS) -> None:
    """A file to write that ends in one of the suffixes, and is no folder."""
    if out is None:
        return
    if out.is_dir():
        raise UsageError(f"-o {out} is a folder; name a file in it, such as {out / f'map{suffixes[0]}'}")
    if out.suffix.lower() not in suffixes:
        raise UsageError(f"cannot tell how to write {out.name}; use {', '.join(suffixes)}")


def check_files(names: Sequence[str], data_root: Path | None = None, task: str = "") -> None:
    """Files of data that are there, and of pairs not too many; built-in ones are made as they are read."""
    if task == "translate" and len(names) > 2:
        raise UsageError(f"name one file of pairs or two parallel files, not {len(names)}")
    for name in names:
        if not name.startswith("builtin/"):
            find_file(name, data_root)


def as_music(text: str) -> str:
    """A text as it is; if it names a file of music, the piece in words."""
    if Path(text).suffix.lower() not in NOTATIONS["notes"].suffixes or any(map(str.isspace, text)):
        return text
    return NOTATIONS["notes"].read(find_file(text))


# --- The model itself


def choose_device(name: str) -> str:
    """A device that torch has here: `auto` is cuda, then mps, then cpu."""
    check_device(name)
    import torch

    has: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    kind = name.split(":")[0]  # "cuda:1"
    if kind == "auto":
        return next(each for each, there in has.items() if there())
    if not has[kind]():
        raise UsageError(f"torch finds no {kind} on this machine; use --device auto (regard doctor says what there is)")
    return name


def own_device(name: str) -> str:
    """The device of this process: of several on one machine each has a GPU of its own."""
    found, place = choose_device(name), world_of(os.environ)
    return f"cuda:{place.local_rank}" if found == "cuda" and not place.is_alone else found


def load_model(run: str | Path, device: str, task: str | None = None) -> Any:
    """The model of a run's or a bundle's folder, ready to do its task."""
    check_model(run, device, task)
    return regard.load(bundle_folder(run), own_device(device))


def load_translator(run: str | Path, device: str) -> Translator:
    translator: Translator = load_model(run, device, "translate")
    return translator


READING = tuple(task.name for task in TASKS.values() if task.reads_text)


def newest_of_any(otherwise: str, another: str = "-m takes another", tasks: Sequence[str] = READING) -> Path:
    """The newest run of these tasks in this folder that has a model; says which. `otherwise`: what to type if none has."""
    trained = [run for run in all_runs() if run.has_bundle]
    found = [run for run in trained if bundle_task(run.best) in tasks]
    if found:
        say(f"model: {found[-1].folder} (the newest run here; {another})")
        return found[-1].folder
    which = f"run here to {' or '.join(tasks)}" if trained else "trained run here"
    return shipped_instead(tasks, f"there is no {which}", otherwise)


def newest_run(task: str) -> Path:
    """The newest run of a task in this folder that has a model; says which."""
    run = newest(task)
    if run is None:
        otherwise = f"make one with: regard train {task} --data {TASKS[task].data}; or name a model with -m"
        return shipped_instead((task,), f"there is no {task} run here (in runs/{task})", otherwise)
    say(f"model: {run.folder} (the newest run here; -m takes another)")
    return run.folder


def shipped_instead(tasks: Sequence[str], missing: str, otherwise: str) -> Path:
    """The bundle of one of these tasks that comes with Regard, where there is no run; says so."""
    found = shipped_for(tasks)
    if found is None:
        raise UsageError(f"{missing}; {otherwise}")
    say(f"model: {found.name}, which comes with Regard; {missing}; {otherwise}")
    return Path(found.name)
