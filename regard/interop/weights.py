"""The tensors of a Hugging Face folder: one safetensors file, or several that an index names. Nothing unpickles."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from regard.errors import RegardError
from regard.files import read_json
from regard.tensors import read_tensors

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pth", ".pt", ".ckpt")


def read_weights(folder: Path) -> dict[str, Tensor]:
    if (folder / SINGLE).exists():
        return read_tensors(folder / SINGLE)
    if (folder / INDEX).exists():
        return _read_shards(folder)
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise RegardError(
            f"{folder} has its weights in {pickles[0]}, a pickle",
            f"loading one can run any program, so it is refused. "
            "Convert it where you trust it: safetensors.torch.save_file(torch.load(path, weights_only=True), "
            f"'{SINGLE}')",
        )
    raise RegardError(f"{folder} has no weights: neither {SINGLE} nor {INDEX}", "copy the whole folder")


def _read_shards(folder: Path) -> dict[str, Tensor]:
    """Shard by shard; each holds exactly the tensors that the index says, and no tensor is in two."""
    places = _index(folder / INDEX)
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(places.values())):
        if not (folder / shard).is_file():
            raise RegardError(f"{folder} has no {shard}, which {INDEX} names", "copy the whole folder")
        for name, tensor in read_tensors(folder / shard).items():
            if name in tensors:
                raise RegardError(f"{folder}: {name} is in {shard} and in another file", "copy the whole folder again")
            if places.get(name) != shard:
                raise RegardError(f"{folder}: {shard} holds {name}, and {INDEX} does not say so", "copy it again")
            tensors[name] = tensor
    missing = sorted(places.keys() - tensors.keys())
    if missing:
        raise RegardError(f"{folder}: {INDEX} names {missing[0]}, which is in no file", "copy the whole folder again")
    return tensors


def _index(path: Path) -> dict[str, str]:
    """Which file each tensor is in; the files lie beside the index and nowhere else."""
    values = read_json(path)
    places = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        raise RegardError(f"{path} has no weight_map from tensors to files", "copy it again")
    for shard in places.values():
        if shard in ("", ".", "..") or Path(shard).name != shard or "\\" in shard or "\0" in shard:
            raise RegardError(f"{path} names a file outside the folder: {shard!r}")
    return places
