"""A walk through one multi-head attention of a model: its vectors and weights, recomputed and compared step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import nn

from regard.attention import AttentionCall, MultiHead
from regard.attention.kernels.sparse import Sparse
from regard.attention.relative import T5, ALiBi, DistanceTables, Shaw, bucket_of
from regard.blocks import Block, Residual
from regard.blocks.norm import SequenceBatchNorm
from regard.embed import ConcatenatedPositions, TokenEmbedding
from regard.errors import Advice, UsageError, Verb
from regard.inspect.walk_pass import (
    WatchedPass,
    embedding_of,
    linear_of,
    norm_of,
    reasons_of,
    to_array,
    watch_pass,
)
from regard.look.walk.embedding import Embedding, embed, position_step, token_step
from regard.look.walk.heads import (
    ALL,
    MultiHeadLook,
    RelativeNumbers,
    RotaryNumbers,
    attend_head,
    join_heads,
    leave_layer,
)
from regard.look.walk.heads_steps import heads_steps
from regard.look.walk.steps import Array, Step, compare_step, name_asker
from regard.look.walk.sublayer import Around, LinearNumbers
from regard.predictor import Predictor, Reading

Compared = Mapping[str, tuple[Array, Array]]  # recomputed, and the model's own


@dataclass(frozen=True, eq=False)
class WalkChoice:
    """The query that a walk follows: one row of one head of a recorded attention."""

    call: AttentionCall
    queries: tuple[str, ...]  # T labels
    keys: tuple[str, ...]  # S labels
    query: int
    head: int
    axis: str  # of the queries: source, target or text

    @property
    def asker(self) -> str:
        """Who looks, in a sentence."""
        return name_asker(self.call.role, self.queries[self.query])

    def seen_from(self, look: MultiHeadLook) -> MultiHeadLook:
        """The look of all queries, seen from this one."""
        return look.at(self.query, self.asker, self.head, reasons_of(self.call, self.query))


# --- Multi-head attention


def heads_walk(reading: Reading, choice: WalkChoice, attention: MultiHead) -> tuple[tuple[Step, ...], dict[str, float]]:
    """The steps of one query of multi-head attention, and how far they are from what the model gave."""
    check_exact(attention)
    model, query = reading.predictor.model, choice.query
    around = _around(model, choice.call)
    watched = watch_pass(reading, [attention, *([] if around is None else [around]), *embeddings_of(model)])
    look = choice.seen_from(look_of(model, choice.call, attention, around, watched, choice.queries, choice.keys))
    first, memory = embedded(reading, watched, choice)
    steps = (token_step(first, query, memory), position_step(first, query), *heads_steps(look))
    own = sides_of(model, watched, choice.call.role)[0]
    compared = {
        "embedded": (embed(first)[query], to_array(watched.output(own))[0, query]),
        **_compare_heads(look, choice.call, to_array(watched.output(attention))[0, query]),
    }
    if around is not None and look.around.is_there:
        left = leave_layer(look, join_heads(look)[1])[1]
        compared["what leaves the sub-layer"] = (left, to_array(watched.output(around))[0, query])
    last, differences = compare_step(compared)
    return (*steps, last), differences


def check_exact(attention: MultiHead) -> None:
    """Refuse a kernel that does not score every key."""
    if attention.kernel is not None and not isinstance(attention.kernel, Sparse):
        raise UsageError(
            f"{attention.kernel.name} attention does not score every key, so these steps do not hold for it",
            Advice(
                *("what it mixes: ", Verb("look", "--exact")),
                *(", and the steps of exact attention: ", Verb("walk", "--toy")),
            ),
        )


def embedded(reading: Reading, watched: WatchedPass, choice: WalkChoice) -> tuple[Embedding, Embedding | None]:
    """How the side that asks was embedded, and in cross-attention the other side."""
    model = reading.predictor.model
    own, other = sides_of(model, watched, choice.call.role)
    attention = model.get_submodule(choice.call.path)
    assert isinstance(attention, MultiHead)
    labels = reading.labels["prefix" if choice.axis == "target" else choice.axis]
    first = embedding_of(watched, own, tuple(labels), _positions(model, attention))
    memory = None if other is None else embedding_of(watched, other, tuple(reading.labels["source"]), "none")
    return first, memory


def _compare_heads(look: MultiHeadLook, call: AttentionCall, output: Array) -> Compared:
    """Weights, heads and output, recomputed and recorded."""
    heads, out = join_heads(look)
    return {
        "weights": (attend_head(look, look.head).weights, to_array(call.weights()[0, look.head, look.place])),
        "heads": (heads.reshape(-1), to_array(call.out[0, :, look.place]).reshape(-1)),
        "output": (out, output),
    }


def look_of(
    model: nn.Module,
    call: AttentionCall,
    attention: MultiHead,
    around: Residual | None,
    watched: WatchedPass,
    queries: tuple[str, ...],
    keys: tuple[str, ...],
) -> MultiHeadLook:
    """All that the queries of an attention meet, from the pass and from the weights."""
    x, memory = watched.tensor(attention, 0, "x"), watched.tensor(attention, 1, "memory")
    crossed = memory is not x
    before = x if around is None else watched.tensor(around, 0, "x")
    rotary = None if crossed else attention.rotary
    to_key, to_value = _keys_values(attention)
    return MultiHeadLook(
        queries,
        keys,
        ALL,
        "",
        0,
        attention.heads,
        attention.groups,
        x=to_array(before)[0],
        memory=to_array(memory)[0] if crossed else None,
        to_query=linear_of(attention.query),
        to_key=to_key,
        to_value=to_value,
        to_out=linear_of(attention.out),
        around=around_of(around),
        scale=attention.scale,
        rotary=None if rotary is None else RotaryNumbers(rotary.base, rotary.scale),
        relative=None if crossed else _relative(attention, watched, len(queries)),
        allowed=call.allowed()[0].cpu().numpy().astype(np.bool_),  # (H, T, S)
        blocks=_block_number(call.path),
        encoder_blocks=_encoder_blocks(model),
    )


def around_of(around: Residual | None) -> Around:
    """The norm and the residual connection around a sub-layer."""
    return Around() if around is None else Around(norm_of(around.norm), around.order, around.residual)


def _keys_values(attention: MultiHead) -> tuple[LinearNumbers, LinearNumbers]:
    """The two halves of the layer that makes keys and values at once."""
    both, split = linear_of(attention.key_value), attention.groups * attention.head_width
    if both.bias is None:
        return LinearNumbers(both.weight[:, :split]), LinearNumbers(both.weight[:, split:])
    return LinearNumbers(both.weight[:, :split], both.bias[:split]), LinearNumbers(
        both.weight[:, split:], both.bias[split:]
    )


def _relative(attention: MultiHead, watched: WatchedPass, count: int) -> RelativeNumbers | None:
    """Relative positions of `count` queries and as many keys."""
    relative, places = attention.relative, np.arange(count)
    apart = places[None] - places[:, None]  # (T, S)
    if isinstance(relative, ALiBi):
        return RelativeNumbers("alibi", bias=-np.array(relative.slopes)[:, None, None] * np.abs(apart))
    if isinstance(relative, T5):
        bucket = {far: bucket_of(far, causal=relative.right == 0) for far in range(-count, count + 1)}
        rows = np.vectorize(bucket.__getitem__)(apart)
        return RelativeNumbers("t5", bias=np.moveaxis(to_array(relative.table)[rows], 2, 0))  # (H, T, S)
    if isinstance(relative, DistanceTables):
        distances = watched.argument(attention, 3, "distances")
        rows = relative.rows(count, count, 0, distances).expand(1, 1, count, count)[0, 0].cpu().numpy()
        keys, values = to_array(relative.key_table)[rows], to_array(relative.value_table)[rows]
        return RelativeNumbers("shaw" if isinstance(relative, Shaw) else "tree", key_rows=keys, value_rows=values)
    return None


def _positions(model: nn.Module, attention: MultiHead) -> str:
    """The way in which positions are told, where they are not added to embeddings."""
    if attention.rotary is not None:
        return "rotary"
    kinds = {ALiBi: "alibi", T5: "t5", Shaw: "shaw"}
    found = next((name for kind, name in kinds.items() if isinstance(attention.relative, kind)), None)
    if found or attention.relative is not None:
        return found or "tree"
    others = [each for each in model.modules() if isinstance(each, MultiHead)]
    return "inside" if any(each.rotary is not None or each.relative is not None for each in others) else "none"


def check_known(predictor: Predictor) -> None:
    """Refuse a model with parts that these steps do not have."""
    if getattr(predictor, "joins", False):
        raise UsageError(
            "these steps know a source and a target by themselves, and this model reads them as one sequence",
            Advice("where it looks: ", Verb("look"), ", and the steps of attention: ", Verb("walk", "--toy")),
        )
    for module in predictor.model.modules():
        unusual = isinstance(module, SequenceBatchNorm | ConcatenatedPositions)
        if unusual or (isinstance(module, Block) and module.places is not None):
            raise UsageError(
                "these steps know layer norm and positions that are added to embeddings, and this model has others",
                Advice(
                    "train it with model.norm_kind = layer and model.positions_where = add, or ", Verb("walk", "--toy")
                ),
            )


def _around(model: nn.Module, call: AttentionCall) -> Residual | None:
    """The norm and residual connection around an attention, if it is in a block."""
    path, _, name = call.path.rpartition(".")
    block = model.get_submodule(path)
    if not isinstance(block, Block):
        return None
    return block.around_cross if name == "cross" else block.around_attention


def embeddings_of(model: nn.Module) -> list[TokenEmbedding]:
    """The embeddings of a model, in the order in which it names them."""
    return [each for each in model.modules() if isinstance(each, TokenEmbedding)]


def sides_of(model: nn.Module, watched: WatchedPass, role: str) -> tuple[TokenEmbedding, TokenEmbedding | None]:
    """The embedding of the side that asks, and in cross-attention that of the other side."""
    found = [each for each in embeddings_of(model) if watched.ran(each)]
    source, target = found[0], found[-1]  # in the order in which a model names them
    if role == "cross":
        return target, source
    return (target if role == "causal" else source), None


def _block_number(path: str) -> int:
    """The number of blocks before the one of this path."""
    numbers = [int(part) for part in path.split(".") if part.isdigit()]
    return numbers[-1] if numbers else 0


def _encoder_blocks(model: nn.Module) -> int:
    encoder = getattr(model, "encoder", None)
    return len(encoder) if isinstance(encoder, nn.ModuleList) else 0
