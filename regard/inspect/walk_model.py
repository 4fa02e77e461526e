"""A walk through a whole block of a model, or through all its blocks to logits and the likeliest words.

The vectors that enter the first block are embedded again, and every block takes what the one before it gave, all in float64
and without the model's own code; at the end stands how far that is from what the model gave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from regard.attention import AttentionCall, MultiHead, Seen
from regard.blocks import Block, Experts, FeedForward, GatedFeedForward, Stack
from regard.errors import Advice, Option, UsageError, Verb
from regard.inspect.walk_attention import (
    WalkChoice,
    around_of,
    check_exact,
    embedded,
    embeddings_of,
    look_of,
    sides_of,
)
from regard.inspect.walk_output import model_logits, output_of, output_place
from regard.inspect.walk_pass import WatchedPass, activation_of, linear_of, norm_of, reasons_of, to_array, watch_pass
from regard.look.walk.block import BlockNumbers, block_steps, run_block, short_step
from regard.look.walk.embedding import embed, position_step, token_step
from regard.look.walk.feed_forward import ExpertsNumbers, FeedForwardNumbers
from regard.look.walk.heads import MultiHeadLook
from regard.look.walk.output import last_norm_step, output_steps
from regard.look.walk.steps import Array, Step, compare_step, name_asker
from regard.look.walk.sublayer import LinearNumbers
from regard.predictor import Reading

Steps = tuple[tuple[Step, ...], dict[str, float]]  # and how far numbers are from the model's own
MOST_TOKENS = 512  # of a text that is walked through whole


# --- One block


def block_walk(reading: Reading, choice: WalkChoice, seen: Seen) -> Steps:
    """The steps of one query through the block of the chosen attention."""
    model, query = reading.predictor.model, choice.query
    path = choice.call.path.rpartition(".")[0]
    block = _block(model, path)
    watched = watch_pass(reading, [block, *_parts(block), *embeddings_of(model)])
    numbers = block_numbers(reading, seen, watched, path)
    first, memory = embedded(reading, watched, choice)
    inside = block_steps(numbers, _seen_from(seen, numbers, path, choice))
    steps = (token_step(first, query, memory), position_step(first, query), *inside)
    own = sides_of(model, watched, choice.call.role)[0]
    compared = {
        "embedded": (embed(first), to_array(watched.output(own))[0]),
        "all tokens": (run_block(numbers).out, to_array(watched.output(block))[0]),
        "what leaves the block": (run_block(numbers).out[query], to_array(watched.output(block))[0, query]),
    }
    last, differences = compare_step(compared)
    return (*steps, last), differences


def _block(model: nn.Module, path: str) -> Block:
    """The block of that path, which the walk can go through."""
    block, stack = model.get_submodule(path), model.get_submodule(path.rpartition(".")[0])
    if not isinstance(block, Block):
        raise UsageError(
            "this attention stands alone, in no block of sub-layers",
            Advice("leave out ", Option("through"), ", or see a block on paper: ", Verb("walk", "--example block")),
        )
    if isinstance(stack, Stack) and stack.reversible:
        raise UsageError(
            "reversible blocks run in two streams, and these steps are of blocks in one",
            Advice("leave out ", Option("through"), " to walk through one of its heads"),
        )
    return block


def _parts(block: Block) -> list[nn.Module]:
    found = (block.attention, block.around_attention, block.cross, block.around_cross)
    return [each for each in found if each is not None]


def _calls(seen: Seen, path: str) -> dict[str, AttentionCall]:
    """The recorded attentions of a block, by their name in it."""
    return {call.path.rpartition(".")[2]: call for call in seen.calls if call.path.rpartition(".")[0] == path}


def block_numbers(reading: Reading, seen: Seen, watched: WatchedPass, path: str) -> BlockNumbers:
    """All weights of a block, with the vectors that it was given in the watched pass."""
    model = reading.predictor.model
    block, calls, looks = _block(model, path), _calls(seen, path), []
    for name, around in (("attention", block.around_attention), ("cross", block.around_cross)):
        attention = getattr(block, name)
        if attention is None:
            continue
        if not isinstance(attention, MultiHead):
            raise UsageError(
                f"block {path} has no attention but a {type(attention).__name__}: there is nothing to walk through"
            )
        check_exact(attention)
        call = calls[name]
        queries, keys = (labels_of(reading, axis, size) for axis, size in _axes(seen, call))
        looks.append(look_of(model, call, attention, around, watched, queries, keys))
    return BlockNumbers(tuple(looks), feed_forward_of(block.feed_forward), around_of(block.around_feed_forward))


def _axes(seen: Seen, call: AttentionCall) -> list[tuple[str, int]]:
    axes = seen.axes(call)
    return [(axes[0], call.q.size(-2)), (axes[1], call.k.size(-2))]


def labels_of(reading: Reading, axis: str, count: int) -> tuple[str, ...]:
    """The tokens along one axis of a map."""
    return tuple(reading.labels[axis][:count]) if axis in reading.labels else (axis,) * count


def _seen_from(seen: Seen, numbers: BlockNumbers, path: str, choice: WalkChoice) -> tuple[MultiHeadLook, ...]:
    """The looks of a block, each seen from the chosen query; the chosen attention with the chosen head."""
    found = []
    for look, call in zip(numbers.looks, _ordered(_calls(seen, path)), strict=True):
        head = choice.head if call is choice.call else int(call.weights()[0, :, choice.query].amax(dim=-1).argmax())
        asker = name_asker(call.role, look.queries[choice.query])
        found.append(look.at(choice.query, asker, head, reasons_of(call, choice.query)))
    return tuple(found)


def _ordered(calls: dict[str, AttentionCall]) -> list[AttentionCall]:
    return [calls[name] for name in ("attention", "cross") if name in calls]


def feed_forward_of(layer: nn.Module | None) -> FeedForwardNumbers | ExpertsNumbers | None:
    """The weights of a feed-forward layer, of several experts, or None where a block has none."""
    if layer is None or isinstance(layer, nn.Identity):
        return None
    if isinstance(layer, FeedForward):
        return FeedForwardNumbers(linear_of(layer.up), linear_of(layer.down), activation_of(layer.activation))
    if isinstance(layer, GatedFeedForward):
        gate, up = _halves(linear_of(layer.gate_up))
        return FeedForwardNumbers(up, linear_of(layer.down), "swish", gate)
    if isinstance(layer, Experts):
        each = tuple(feed_forward_of(expert) for expert in layer.experts)
        assert all(isinstance(expert, FeedForwardNumbers) for expert in each)
        return ExpertsNumbers(to_array(layer.router.weight).T, each, layer.used)  # type: ignore[arg-type]
    raise UsageError(f"the walk knows no feed-forward layer of the kind {type(layer).__name__}")


def _halves(both: LinearNumbers) -> tuple[LinearNumbers, LinearNumbers]:
    """Two linear layers whose products are computed at once."""
    weights = np.split(both.weight, 2, axis=1)
    biases = (None, None) if both.bias is None else np.split(both.bias, 2)
    return LinearNumbers(weights[0], biases[0]), LinearNumbers(weights[1], biases[1])


# --- The whole model


@dataclass(frozen=True, eq=False)
class StackPlace:
    """A stack of blocks in a model, and the norm behind it."""

    name: str  # encoder, decoder, or nothing where there is one stack
    path: str
    stack: Stack
    norm: nn.Module | None


def stacks_of(model: nn.Module) -> list[StackPlace]:
    """The stacks of blocks, in the order in which a text goes through them."""
    found = []
    for path, module in model.named_modules():
        if isinstance(module, Stack):
            parent, name = model.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]
            norm = getattr(parent, f"{name}_norm", None) or getattr(parent, "norm", None)
            found.append(StackPlace("" if name == "blocks" else name, path, module, norm))
    return found


def model_walk(reading: Reading, choice: WalkChoice, seen: Seen) -> Steps:
    """The steps of a text through every block in turn, to logits and the likeliest words of one place."""
    model, query = reading.predictor.model, choice.query
    stacks = stacks_of(model)
    if not stacks:
        raise UsageError(
            "this model has no stack of blocks to go through",
            Advice("leave out ", Option("through"), " to walk through its attention"),
        )
    _check_size(reading)
    blocks = [block for place in stacks for block in place.stack.each()]
    parts = [part for block in blocks for part in _parts(block)]
    watched = watch_pass(reading, [*blocks, *parts, *embeddings_of(model)])
    first, memory = embedded(reading, watched, choice)
    steps: list[Step] = [token_step(first, query, memory), position_step(first, query)]
    starts = [embed(each) for each in (memory, first) if each is not None]  # the source before what looks at it
    x: Array = starts[0]
    compared: dict[str, tuple[Array, Array]] = {}
    source: Array | None = None
    for place, start in zip(stacks, starts, strict=True):
        own = query if place is stacks[-1] else len(start) - 1
        found, x, pairs = _through(reading, seen, watched, place, start, source, own)
        steps += found
        compared |= pairs
        source = x
    output, last_place = output_of(reading.predictor), output_place(reading.predictor, query, len(x))
    steps += output_steps(output, x, last_place, first.labels[last_place])
    compared |= _ends(reading, watched, x, output.logits(x, last_place), last_place)
    last, differences = compare_step(compared)
    return (*steps, last), differences


def _check_size(reading: Reading) -> None:
    longest = max(len(each) for each in reading.labels.values())
    if longest > MOST_TOKENS:
        raise UsageError(
            f"the text has {longest} tokens, and a walk goes through at most {MOST_TOKENS}", "give a shorter one"
        )


def _through(
    reading: Reading, seen: Seen, watched: WatchedPass, place: StackPlace, x: Array, source: Array | None, query: int
) -> tuple[list[Step], Array, dict[str, tuple[Array, Array]]]:
    """All blocks of a stack in short, then its norm: the steps, the vectors that leave, and those of the model."""
    steps: list[Step] = []
    compared = {}
    labels: tuple[str, ...] = ()
    before = f"{place.name} " if place.name else ""
    for number, block in enumerate(place.stack.each()):
        numbers = block_numbers(reading, seen, watched, f"{place.path}.{number}").given(x, source)
        steps.append(short_step(numbers, query, f"{before}block {number}"))
        x, labels = run_block(numbers).out, numbers.looks[0].queries
        compared[f"{before}block {number}"] = (x, to_array(watched.output(block))[0])
    norm = norm_of(place.norm)
    if norm is not None and labels:
        steps.append(last_norm_step(norm, x[query], labels[query], f"the {before}blocks"))
        x = norm(x)
    return steps, x, compared


@torch.inference_mode()
def _ends(
    reading: Reading, watched: WatchedPass, x: Array, logits: Array, query: int
) -> dict[str, tuple[Array, Array]]:
    """The last vectors and the logits, recomputed and the model's own."""
    result = watched.result
    assert result is not None
    own = model_logits(reading.predictor, result, query)
    vectors = {"last vectors": (x, to_array(result)[0])} if result.dim() == 3 else {}  # a classifier gives its logits
    return {**vectors, "logits": (logits, own)}
