"""A walk through one attention of a model: the vectors that enter it and its weights, recomputed and compared step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import nn

from regard.attention import AttentionCall, MultiHead
from regard.attention.kernels.sparse import Sparse
from regard.attention.relative import T5, ALiBi, DistanceTables, Shaw, bucket_of
from regard.attention.scores import Additive, Cosine, Dot, General, Location
from regard.attention.soft import PredictedPosition, SamePosition, SoftAttention
from regard.blocks import Block, RecurrentEncoder, Residual
from regard.blocks.norm import SequenceBatchNorm
from regard.blocks.recurrent import BothDirections
from regard.embed import ConcatenatedPositions, TokenEmbedding
from regard.errors import Advice, UsageError, Verb
from regard.inspect.walk_pass import (
    WatchedPass,
    allowed_of,
    embedding_of,
    linear_of,
    norm_of,
    reasons_of,
    to_array,
    watch_pass,
)
from regard.look.walk.embedding import LinearNumbers, embed, position_step, token_step
from regard.look.walk.heads import MultiHeadLook, RelativeNumbers, RotaryNumbers, attend_head, join_heads, leave_layer
from regard.look.walk.heads_steps import heads_steps
from regard.look.walk.soft import (
    Family,
    LocalWindow,
    Score,
    SoftLook,
    attentional_vector,
    soft_steps,
    weights_and_context,
)
from regard.look.walk.steps import Array, Step, compare_step, name_asker
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


# --- Multi-head attention


def heads_walk(reading: Reading, choice: WalkChoice, attention: MultiHead) -> tuple[tuple[Step, ...], dict[str, float]]:
    """The steps of one query of multi-head attention, and how far they are from what the model gave."""
    if attention.kernel is not None and not isinstance(attention.kernel, Sparse):
        raise UsageError(
            f"{attention.kernel.name} attention does not score every key, so these steps do not hold for it",
            Advice(
                *("what it mixes: ", Verb("look", "--exact")),
                *(", and the steps of exact attention: ", Verb("walk", "--toy")),
            ),
        )
    model, query = reading.predictor.model, choice.query
    _must_be_known(model)
    around = _around(model, choice.call)
    watched = watch_pass(reading, [attention, *([] if around is None else [around]), *_embeddings(model)])
    own, other = _sides(model, watched, choice.call)
    look = _heads_look(model, choice, attention, around, watched)
    labels = reading.labels["prefix" if choice.axis == "target" else choice.axis]
    first = embedding_of(watched, own, tuple(labels), _positions(model, attention))
    memory = None if other is None else embedding_of(watched, other, tuple(reading.labels["source"]), "none")
    steps = (token_step(first, query, memory), position_step(first, query), *heads_steps(look))
    compared = {
        "embedded": (embed(first)[query], to_array(watched.output(own))[0, query]),
        **_compare_heads(look, choice.call, to_array(watched.output(attention))[0, query]),
    }
    if around is not None and (look.residual or look.order == "post"):
        left = leave_layer(look, join_heads(look)[1])[1]
        compared["what leaves the sub-layer"] = (left, to_array(watched.output(around))[0, query])
    last, differences = compare_step(compared)
    return (*steps, last), differences


def _compare_heads(look: MultiHeadLook, call: AttentionCall, output: Array) -> Compared:
    """Weights, heads and output, recomputed and recorded."""
    heads, out = join_heads(look)
    return {
        "weights": (attend_head(look, look.head).weights, to_array(call.weights()[0, look.head, look.query])),
        "heads": (heads.reshape(-1), to_array(call.out[0, :, look.query]).reshape(-1)),
        "output": (out, output),
    }


def _heads_look(
    model: nn.Module, choice: WalkChoice, attention: MultiHead, around: Residual | None, watched: WatchedPass
) -> MultiHeadLook:
    """Everything that the chosen query meets, from the pass and from the weights."""
    x, memory = watched.tensor(attention, 0, "x"), watched.tensor(attention, 1, "memory")
    crossed = memory is not x
    before = x if around is None else watched.tensor(around, 0, "x")
    rotary = None if crossed else attention.rotary
    to_key, to_value = _keys_values(attention)
    return MultiHeadLook(
        choice.queries,
        choice.keys,
        choice.query,
        choice.asker,
        choice.head,
        attention.heads,
        attention.groups,
        x=to_array(before)[0],
        memory=to_array(memory)[0] if crossed else None,
        to_query=linear_of(attention.query),
        to_key=to_key,
        to_value=to_value,
        to_out=linear_of(attention.out),
        norm=None if around is None else norm_of(around.norm),
        order="none" if around is None else around.order,
        residual=around is not None and around.residual,
        scale=attention.scale,
        rotary=None if rotary is None else RotaryNumbers(rotary.base, rotary.scale),
        relative=None if crossed else _relative(attention, watched, len(choice.queries), choice.query),
        allowed=allowed_of(choice.call, choice.query),
        reasons=reasons_of(choice.call, choice.query),
        blocks=_block_number(choice.call.path),
        encoder_blocks=_encoder_blocks(model),
    )


def _keys_values(attention: MultiHead) -> tuple[LinearNumbers, LinearNumbers]:
    """The two halves of the layer that makes keys and values at once."""
    both, split = linear_of(attention.key_value), attention.groups * attention.head_width
    if both.bias is None:
        return LinearNumbers(both.weight[:, :split]), LinearNumbers(both.weight[:, split:])
    return LinearNumbers(both.weight[:, :split], both.bias[:split]), LinearNumbers(
        both.weight[:, split:], both.bias[split:]
    )


def _relative(attention: MultiHead, watched: WatchedPass, count: int, place: int) -> RelativeNumbers | None:
    """Relative positions of one of `count` queries."""
    relative, apart = attention.relative, np.arange(count) - place
    if isinstance(relative, ALiBi):
        return RelativeNumbers("alibi", bias=-np.array(relative.slopes)[:, None] * np.abs(apart))
    if isinstance(relative, T5):
        buckets = [bucket_of(int(each), causal=relative.right == 0) for each in apart]
        return RelativeNumbers("t5", bias=to_array(relative.table)[buckets].T)
    if isinstance(relative, DistanceTables):
        distances = watched.argument(attention, 3, "distances")
        row = relative.rows(count, count, 0, distances).expand(1, 1, count, count)[0, 0, place].tolist()
        keys, values = to_array(relative.key_table)[row], to_array(relative.value_table)[row]
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


def _must_be_known(model: nn.Module) -> None:
    """Refuse a model with parts that these steps do not have."""
    for module in model.modules():
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


def _embeddings(model: nn.Module) -> list[TokenEmbedding]:
    return [each for each in model.modules() if isinstance(each, TokenEmbedding)]


def _sides(model: nn.Module, watched: WatchedPass, call: AttentionCall) -> tuple[TokenEmbedding, TokenEmbedding | None]:
    """The embedding of the side that asks, and in cross-attention that of the other side."""
    found = [each for each in _embeddings(model) if watched.ran(each)]
    source, target = found[0], found[-1]  # in the order in which a model names them
    if call.role == "cross":
        return target, source
    return (target if call.role == "causal" else source), None


def _block_number(path: str) -> int:
    """The number of blocks before the one of this path."""
    numbers = [int(part) for part in path.split(".") if part.isdigit()]
    return numbers[-1] if numbers else 0


def _encoder_blocks(model: nn.Module) -> int:
    encoder = getattr(model, "encoder", None)
    return len(encoder) if isinstance(encoder, nn.ModuleList) else 0


# --- A recurrent decoder's attention, and a learned query's


def soft_walk(
    reading: Reading, choice: WalkChoice, attention: SoftAttention
) -> tuple[tuple[Step, ...], dict[str, float]]:
    """The steps of one look of a recurrent decoder, and how far they are from what the model gave."""
    call, query = choice.call, choice.query
    look = _soft_look(reading.predictor, choice, attention)
    weights, context = weights_and_context(look)
    compared = {
        "weights": (weights, to_array(call.weights()[0, 0, query])),
        "context": (context, to_array(call.out[0, 0, query])),
    }
    if look.combine is not None:
        result = watch_pass(reading, []).result
        assert result is not None
        compared["vector"] = (attentional_vector(look), to_array(result)[0, query])
    last, differences = compare_step(compared)
    return (*soft_steps(look), last), differences


def _soft_look(predictor: Predictor, choice: WalkChoice, attention: SoftAttention) -> SoftLook:
    """Everything that the chosen state meets, from the recorded attention and from the weights."""
    call, query, model = choice.call, choice.query, predictor.model
    score, weights = _score(attention.score)
    reasons, longest = reasons_of(call, query), attention.score.longest
    if longest is not None:
        reasons = tuple("beyond what the score knows" if why and n >= longest else why for n, why in enumerate(reasons))
    combine = getattr(model, "combine", None)
    family: Family = "pool" if call.role == "pool" else "luong" if isinstance(combine, nn.Linear) else "bahdanau"
    return SoftLook(
        choice.asker,
        choice.keys,
        s=to_array(call.q[0, 0, query]),
        h=to_array(call.v[0, 0]),
        score=score,
        weights=weights,
        halves=_both_directions(model),
        temperature=attention.temperature,
        allowed=allowed_of(call, query)[0],
        reasons=reasons,
        window=_window(attention, query),
        family=family,
        combine=linear_of(combine) if family == "luong" and isinstance(combine, nn.Linear) else None,
    )


def _score(score: nn.Module) -> tuple[Score, dict[str, Array]]:
    """The score's name, and its weights by letter, laid out so that a vector times a matrix is the next vector."""
    if isinstance(score, Additive):
        weights = {"W": score.query.weight.T, "U": score.key.weight.T, "v": score.value.weight[0]}
        return "additive", {name: to_array(each) for name, each in weights.items()}
    if isinstance(score, General):
        return "general", {"W": to_array(score.key.weight).T}
    if isinstance(score, Cosine):
        return "cosine", {"log β": to_array(score.log_strength)}
    if isinstance(score, Location):
        return "location", {"W": to_array(score.position.weight)}
    if not isinstance(score, Dot):
        known = "additive, general, cosine, location, dot and scaled-dot"
        raise UsageError(f"the walk knows the numbers of the scores {known}; a {type(score).__name__} is none of them")
    return ("dot", {}) if score.scale == 1.0 else ("scaled-dot", {"scale": np.array([score.scale])})


def _window(attention: SoftAttention, time: int) -> LocalWindow | None:
    """The window of local attention (Luong et al. 2015, section 3.2); None where all is looked at."""
    place = attention.place
    if isinstance(place, SamePosition):
        return LocalWindow("local-m", place.reach, time)
    if isinstance(place, PredictedPosition):
        inner, outer = to_array(place.inner.weight).T, to_array(place.outer.weight)[0]
        return LocalWindow("local-p", place.reach, time, inner, outer)
    return None


def _both_directions(model: nn.Module) -> bool:
    """Whether the annotations are those of both directions, side by side."""
    encoders = [each for each in model.modules() if isinstance(each, RecurrentEncoder)]
    return bool(encoders) and isinstance(encoders[-1].layers[-1], BothDirections)
