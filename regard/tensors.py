"""Named tensors in safetensors files. Nothing unpickles: a pickle by any name is refused with the way to convert it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from regard.errors import RegardError
from regard.files import write_bytes


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file, whole or not at all."""
    write_bytes(path, save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise RegardError(f"there is no {path}", "copy the folder again") from error
    except OSError as error:
        raise RegardError(f"cannot read {path}: {error.strerror or error}") from error
    _refuse_pickle(path, data[:HEAD])
    try:
        return load(data)
    except (SafetensorError, ValueError) as error:
        raise RegardError(f"{path} is not a whole safetensors file ({error})", "copy it again") from error


def map_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file that stays as it is: their bytes are mapped, and read where they are used."""
    with open_tensors(path) as mapped:
        return {name: mapped.get_tensor(name) for name in mapped.keys()}  # noqa: SIM118


def open_tensors(path: Path) -> Any:
    """A safetensors file to take tensors from, or some rows of them (`get_tensor`, `get_slice`)."""
    try:
        with open(path, "rb") as file:
            _refuse_pickle(path, file.read(HEAD))
        return safe_open(os.fspath(path), framework="pt")
    except FileNotFoundError as error:
        raise RegardError(f"there is no {path}", "copy the folder again") from error
    except OSError as error:
        raise RegardError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError) as error:
        raise RegardError(f"{path} is not a whole safetensors file ({error})", "copy it again") from error


HEAD = (
    9  # bytes by which formats are told: of safetensors, the length of its header, and the brace that this begins with
)


def _refuse_pickle(path: Path, start: bytes) -> None:
    """Refuse what begins as a pickle does; as does a safetensors file whose header has 640, 896, 1152, 1408 or 19280 bytes."""
    if start[4:] == b"\0\0\0\0{":
        return
    if start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK"):
        raise RegardError(
            f"{path} is a pickle, whatever its name says",
            "loading one can run any program, so it is refused. Convert it "
            "where you trust it: safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')",
        )


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's own tensors, each once: parameters (tied ones under their first name) and saved buffers."""
    unsaved = {
        f"{place}.{name}" if place else name
        for place, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    return tensors | {name: buffer for name, buffer in model.named_buffers() if name not in unsaved}
