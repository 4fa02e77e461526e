"""One forward pass in which inputs and outputs of some modules are kept, and parts of a model in float64 for the walk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import AttentionCall
from regard.attention.masks import Blocks, Both, Causal, Lengths, Mask, Window
from regard.blocks.feed_forward import ACTIVATIONS
from regard.embed import TokenEmbedding
from regard.embed.tokens import LearnedPositions, RandomOffset, SinusoidalPositions
from regard.errors import UsageError
from regard.look.walk.embedding import Embedding, sinusoid
from regard.look.walk.feed_forward import Activation
from regard.look.walk.softmax import LATER
from regard.look.walk.steps import Array
from regard.look.walk.sublayer import LinearNumbers, Norm
from regard.predictor import Reading

OUTSIDE = "outside the window"
MASK_REASONS = {
    Causal: LATER,
    Lengths: "of padding, behind the text's end",
    Window: "outside the band",
    Blocks: "of another document",
}


@dataclass(eq=False)
class WatchedPass:
    """Inputs and outputs of the watched modules; of one that ran several times, the first."""

    result: Tensor | None = None  # of the whole pass
    _inputs: dict[nn.Module, tuple[tuple[object, ...], dict[str, object]]] = field(default_factory=dict)
    _outputs: dict[nn.Module, Tensor] = field(default_factory=dict)

    def argument(self, module: nn.Module, place: int, name: str) -> Tensor | None:
        """A tensor that a module was called with, by its place or by its name; None where it was left out."""
        placed, named = self._inputs[module]
        found = placed[place] if place < len(placed) else named.get(name)
        assert found is None or isinstance(found, Tensor), f"{name} is a {type(found).__name__}, not a tensor"
        return found

    def tensor(self, module: nn.Module, place: int, name: str) -> Tensor:
        """An argument that is always there."""
        found = self.argument(module, place, name)
        assert found is not None, f"{type(module).__name__} was called without {name}"
        return found

    def output(self, module: nn.Module) -> Tensor:
        """The tensor that a module returned."""
        return self._outputs[module]

    def ran(self, module: nn.Module) -> bool:
        """Whether a module was called."""
        return module in self._outputs

    def keep(self, module: nn.Module, placed: tuple[object, ...], named: dict[str, object], out: Tensor) -> None:
        """Keep a call: a forward hook."""
        if not self.ran(module):
            self._inputs[module], self._outputs[module] = (placed, named), out


def watch_pass(reading: Reading, modules: Sequence[nn.Module]) -> WatchedPass:
    """Run the model over the text once more, watching these modules."""
    watched = WatchedPass()
    hooks = [each.register_forward_hook(watched.keep, with_kwargs=True) for each in modules]
    try:
        with torch.inference_mode():
            watched.result = reading.run()
    finally:
        for hook in hooks:
            hook.remove()
    return watched


# --- Parts of a model in float64


def to_array(x: Tensor) -> Array:
    """A tensor of any type and device as float64."""
    found: Array = x.detach().double().cpu().numpy()
    return found


def linear_of(linear: nn.Linear) -> LinearNumbers:
    """A linear layer, its weight turned so that a row times the matrix is the next row."""
    bias: Tensor | None = linear.bias
    return LinearNumbers(to_array(linear.weight).T, None if bias is None else to_array(bias))


def norm_of(norm: nn.Module | None) -> Norm | None:
    """A norm; None where there is none."""
    if isinstance(norm, nn.LayerNorm):
        return Norm("layer", to_array(norm.weight), to_array(norm.bias), norm.eps)
    if isinstance(norm, nn.RMSNorm):
        epsilon = torch.finfo(norm.weight.dtype).eps if norm.eps is None else norm.eps
        return Norm("rms", to_array(norm.weight), None, epsilon)
    return None


def activation_of(function: Callable[[Tensor], Tensor]) -> Activation:
    """The name of an activation, also of a copy of one."""
    names: tuple[Activation, ...] = ("relu", "gelu", "gelu-tanh")
    probe = torch.linspace(-3.0, 3.0, 7, dtype=torch.float64)
    for name in names:
        if torch.equal(function(probe), ACTIVATIONS[name](probe)):
            return name
    raise UsageError(f"the walk knows the activations {', '.join(names)} and swiglu, and this model has another one")


def embedding_of(watched: WatchedPass, module: TokenEmbedding, labels: tuple[str, ...], otherwise: str) -> Embedding:
    """How a text was embedded; `otherwise` says how positions are told if they are not added."""
    ids = watched.tensor(module, 0, "ids")[0].tolist()
    inner = module.positions.inner if isinstance(module.positions, RandomOffset) else module.positions
    kind, added = otherwise, None
    if isinstance(inner, SinusoidalPositions):
        kind, added = "sinusoidal", sinusoid(len(ids), inner.width)
    elif isinstance(inner, LearnedPositions):
        kind, added = "learned", to_array(inner.table)[: len(ids)]
    rows = to_array(module.table.weight)[ids]
    segments = _segments(module, watched.argument(module, 2, "segments"), len(ids))
    return Embedding(labels, rows, module.scale, kind, added, segments, norm_of(module.norm))


def _segments(module: TokenEmbedding, segments: Tensor | None, count: int) -> Array | None:
    if module.segments is None:
        return None
    numbers = [0] * count if segments is None else segments[0].tolist()
    return to_array(module.segments.weight)[numbers]


# --- Masks in words


def reasons_of(call: AttentionCall, place: int) -> tuple[str, ...]:
    """Why the query in row `place` of the first text may not see each key, in words; empty where it may."""
    keys = call.k.size(-2)
    reasons = [""] * keys
    for mask, reason in _parts(call.mask):
        seen = mask.dense(call.q.size(-2), keys, call.q.device).expand(*call.q.shape[:3], keys)[0, 0, place].tolist()
        reasons = [old or ("" if may else reason) for old, may in zip(reasons, seen, strict=True)]
    seen = call.allowed()[0, :, place].any(dim=0).tolist()
    return tuple("" if may else old or OUTSIDE for old, may in zip(reasons, seen, strict=True))


def allowed_of(call: AttentionCall, place: int) -> Array:
    """Where each head of the query in row `place` may look: booleans (H, S)."""
    found: Array = call.allowed()[0, :, place].cpu().numpy().astype(np.bool_)
    return found


def _parts(mask: Mask | None) -> list[tuple[Mask, str]]:
    """The simple masks that a mask is joined of, each with its reason."""
    if mask is None:
        return []
    if isinstance(mask, Both):
        return [*_parts(mask.first), *_parts(mask.second)]
    return [(mask, MASK_REASONS.get(type(mask), OUTSIDE))]
