"""Features of pictures from a network that does not learn: computed once, kept in a file, mapped from then on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from regard.data.pictures.augment import normalise
from regard.data.pictures.config import PictureFormat
from regard.data.pictures.store import PictureStore, cache_folder
from regard.errors import RegardError
from regard.files import writing
from regard.tensors import weights_of

CHUNK = 32


@dataclass(frozen=True, eq=False)
class PictureFeatures:
    """What a network saw in each picture of a store: (N, P, K)."""

    values: np.ndarray  # float16, memory-mapped
    sha256: str

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """(n, P, K), float32."""
        taken: np.ndarray = self.values[rows]
        return taken.astype(np.float32)


def features_of(
    encoder: nn.Module,
    store: PictureStore,
    picture_format: PictureFormat,
    progress: Callable[[int, int], None] | None = None,
) -> PictureFeatures:
    """Those that were kept of the same pictures and weights, or computed now."""
    name = _name(encoder, store, picture_format)
    path = cache_folder() / f"{name}.features.npy"
    if not path.exists():
        _compute(encoder, store, picture_format, path, progress)
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise RegardError(f"{path} is damaged ({error}); delete it, and it is computed again") from error
    if len(values) != len(store):
        raise RegardError(f"{path} has {len(values)} rows for {len(store)} pictures; delete it")
    return PictureFeatures(values, name)


def _name(encoder: nn.Module, store: PictureStore, picture_format: PictureFormat) -> str:
    """A digest of the pictures, the weights, and how pixels become numbers."""
    digest = hashlib.sha256(store.sha256.encode())
    digest.update(json.dumps(picture_format.model_dump(mode="json"), sort_keys=True).encode())
    for tensor_name, tensor in weights_of(encoder).items():
        digest.update(tensor_name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


@torch.inference_mode()
def _compute(
    encoder: nn.Module,
    store: PictureStore,
    picture_format: PictureFormat,
    path: Path,
    progress: Callable[[int, int], None] | None,
) -> None:
    encoder.eval()
    with writing(path, "make room, or set REGARD_CACHE to a folder that has it") as file:
        for start in range(0, len(store), CHUNK):
            shown = store.take(np.arange(start, min(start + CHUNK, len(store))))
            found = encoder(normalise(torch.from_numpy(shown).permute(0, 3, 1, 2), picture_format)).places.numpy()
            if start == 0:
                shape = (len(store), *found.shape[1:])
                about = {"descr": np.dtype(np.float16).str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, about)
            file.write(found.astype(np.float16).tobytes())
            if progress is not None:
                progress(start + len(found), len(store))
