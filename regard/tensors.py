"""Named tensors in safetensors files. Nothing unpickles: a pickle by any name is refused with the way to convert it."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
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
    if data[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK"):
        raise RegardError(
            f"{path} is a pickle, whatever its name says",
            "loading one can run any program, so it is refused. Convert it "
            "where you trust it: safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')",
        )
    try:
        return load(data)
    except (SafetensorError, ValueError) as error:
        raise RegardError(f"{path} is not a whole safetensors file ({error})", "copy it again") from error


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's own tensors, each once: parameters (tied ones under their first name) and saved buffers."""
    names = set(model.state_dict())
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    return tensors | {name: buffer for name, buffer in model.named_buffers() if name in names}
