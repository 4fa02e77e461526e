"""A walk through one attention of a model: the vectors that enter it and its weights in float64, and the steps of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from regard.attention import AttentionCall, MultiHead
from regard.attention.kernels.sparse import Sparse
from regard.attention.relative import T5, ALiBi, DistanceTables, Shaw, bucket_of
from regard.attention.scores import Additive, Cosine, Dot, General, Location
from regard.attention.soft import PredictedPosition, SamePosition, SoftAttention
from regard.blocks import Around, Block, RecurrentEncoder
from regard.blocks.recurrent import BothDirections
from regard.embed import TokenEmbedding
from regard.errors import UsageError
from regard.inspect.walk_pass import Passed, array, embedding_of, norm_of, one_pass, reasons_of
from regard.look.walk.embedding import Embedding, embedded, position_step, token_step
from regard.look.walk.heads import Heads, Turn, around, joined, look
from regard.look.walk.heads_steps import heads_steps
from regard.look.walk.soft import Place, Soft, combined, soft_steps, weights_and_context
from regard.look.walk.steps import Step, asker, ending_step
from regard.predictor import Reading


def heads_walk(
    reading: Reading,
    call: AttentionCall,
    owner: MultiHead,
    rows: tuple[str, ...],
    keys: tuple[str, ...],
    place: int,
    head: int,
    axes: tuple[str, str],
) -> tuple[tuple[Step, ...], dict[str, float]]:
    """The steps of one query, and how far they are from what the model gave."""
    if owner.kernel is not None and not isinstance(owner.kernel, Sparse):
        raise UsageError(
            f"{owner.kernel.name} attention does not score every key, so these steps do not hold for it; what it mixes: "
            "regard look --exact, and the steps of exact attention: regard walk --toy"
        )
    model: nn.Module = reading.predictor.model
    enclosing = _around(model, call)
    passed = one_pass(reading, [owner, *([enclosing] if enclosing is not None else []), *_embeddings(model)])
    own, memory = _sides(model, passed, call)
    given = _heads_given(model, call, owner, enclosing, passed, (rows, keys, place, head))
    read = reading.labels["prefix" if axes[0] == "target" else axes[0]]
    first = embedding_of(passed, own, tuple(read), _positions(model, owner))
    other = None if memory is None else embedding_of(passed, memory, tuple(reading.labels["source"]), "none")
    steps = (token_step(first, place, other), position_step(first, place), *heads_steps(given))
    pairs = _pairs(given, first, passed, call, owner, enclosing, own)
    last, differences = ending_step(pairs)
    return (*steps, last), differences


def _pairs(
    given: Heads,
    first: Embedding,
    passed: Passed,
    call: AttentionCall,
    owner: MultiHead,
    enclosing: Around | None,
    own: TokenEmbedding,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Recomputed, and the model's own."""
    place = given.query
    out = joined(given)[1]
    pairs = {
        "embedded": (embedded(first)[place], array(passed.out(own))[0, place]),
        "weights": (look(given, given.head).weights, array(call.weights()[0, given.head, place])),
        "heads": (joined(given)[0].reshape(-1), array(call.out[0, :, place]).reshape(-1)),
        "output": (out, array(passed.out(owner))[0, place]),
    }
    if enclosing is not None and (given.residual or given.order == "post"):
        pairs["what leaves the sub-layer"] = (around(given, out)[1], array(passed.out(enclosing))[0, place])
    return pairs


def _heads_given(
    model: nn.Module,
    call: AttentionCall,
    owner: MultiHead,
    enclosing: Around | None,
    passed: Passed,
    chosen: tuple[tuple[str, ...], tuple[str, ...], int, int],
) -> Heads:
    rows, keys, place, head = chosen
    x, memory = passed.given(owner, 0, "x"), passed.given(owner, 1, "memory")
    crossed = memory is not x
    before = x if enclosing is None else passed.given(enclosing, 0, "x")
    width, groups = owner.head_width, owner.groups
    weight, bias = array(owner.key_value.weight).T, owner.key_value.bias
    both = None if bias is None else array(bias)
    split = groups * width
    turns = owner.rotary if not crossed else None
    return Heads(
        queries=rows, keys=keys, query=place, asker=asker(call.role, rows[place]), head=head, heads=owner.heads, groups=groups,
        x=array(before)[0], memory=array(memory)[0] if crossed else None,
        w_q=array(owner.query.weight).T, w_k=weight[:, :split], w_v=weight[:, split:], w_o=array(owner.out.weight).T,
        b_q=_optional(owner.query.bias), b_o=_optional(owner.out.bias),
        b_k=None if both is None else both[:split], b_v=None if both is None else both[split:],
        norm=None if enclosing is None else norm_of(enclosing.norm),
        order="none" if enclosing is None else enclosing.order,
        residual=enclosing is not None and enclosing.residual,
        scale=owner.scale, turn=None if turns is None else Turn(turns.base, turns.scale),
        allowed=array(call.allowed()[0, :, place]).astype(bool), reasons=reasons_of(call, place),
        blocks=_number_of(call.path), encoder=_encoder_blocks(model),
        **({} if crossed else _relative(owner, passed.given(owner, 3, "distances"), len(rows), place)),
    )  # fmt: skip


def _relative(owner: MultiHead, distances: Tensor | None, count: int, place: int) -> dict[str, Any]:
    """Positions that join the scores of one query."""
    relative, apart = owner.relative, np.arange(count) - place
    if isinstance(relative, ALiBi):
        return {"relative": "alibi", "bias": -np.array(relative.slopes)[:, None] * np.abs(apart)}
    if isinstance(relative, T5):
        buckets = [bucket_of(int(each), causal=relative.right == 0) for each in apart]
        return {"relative": "t5", "bias": array(relative.table)[buckets].T}
    if isinstance(relative, DistanceTables):
        row = relative.rows(count, count, 0, distances).expand(1, 1, count, count)[0, 0, place].tolist()
        kind = "shaw" if isinstance(relative, Shaw) else "tree"
        tables = {"key_rows": array(relative.key_table)[row], "value_rows": array(relative.value_table)[row]}
        return {"relative": kind, **tables}
    return {}


def _positions(model: nn.Module, owner: MultiHead) -> str:
    """How positions are told, where they are not added to embeddings."""
    if owner.rotary is not None:
        return "rotary"
    kinds = {ALiBi: "alibi", T5: "t5", Shaw: "shaw"}
    found = next((name for kind, name in kinds.items() if isinstance(owner.relative, kind)), None)
    if found or owner.relative is not None:
        return found or "tree"
    others = [each for each in model.modules() if isinstance(each, MultiHead)]
    return "inside" if any(each.rotary is not None or each.relative is not None for each in others) else "none"


def _around(model: nn.Module, call: AttentionCall) -> Around | None:
    """What stands around the attention, if it is in a block."""
    path, _, name = call.path.rpartition(".")
    block = model.get_submodule(path)
    if not isinstance(block, Block):
        return None
    return block.around_cross if name == "cross" else block.around_attention


def _embeddings(model: nn.Module) -> list[TokenEmbedding]:
    return [each for each in model.modules() if isinstance(each, TokenEmbedding)]


def _sides(model: nn.Module, passed: Passed, call: AttentionCall) -> tuple[TokenEmbedding, TokenEmbedding | None]:
    """The embedding of what asks, and in cross-attention that of the other side."""
    found = [each for each in _embeddings(model) if passed.ran(each)]
    source, target = found[0], found[-1]  # in the order in which a model names them
    if call.role == "cross":
        return target, source
    return (target if call.role == "causal" else source), None


def _number_of(path: str) -> int:
    """How many blocks come before the one of this path."""
    numbers = [int(part) for part in path.split(".") if part.isdigit()]
    return numbers[-1] if numbers else 0


def _encoder_blocks(model: nn.Module) -> int:
    encoder = getattr(model, "encoder", None)
    return len(encoder) if isinstance(encoder, nn.ModuleList) else 0


def _optional(parameter: Tensor | None) -> np.ndarray | None:
    return None if parameter is None else array(parameter)


def soft_walk(
    reading: Reading,
    call: AttentionCall,
    owner: SoftAttention,
    rows: tuple[str, ...],
    keys: tuple[str, ...],
    place: int,
) -> tuple[tuple[Step, ...], dict[str, float]]:
    """The steps of one look, and how far they are from what the model gave."""
    given = _soft_given(reading.predictor, call, owner, rows, keys, place)
    weights, context = weights_and_context(given)
    pairs = {
        "weights": (weights, array(call.weights()[0, 0, place])),
        "context": (context, array(call.out[0, 0, place])),
    }
    if given.w_c is not None:
        result = one_pass(reading, []).result
        assert result is not None
        pairs["vector"] = (combined(given), array(result)[0, place])
    last, differences = ending_step(pairs)
    return (*soft_steps(given), last), differences


def _soft_given(
    user: Any,
    call: AttentionCall,
    owner: SoftAttention,
    rows: tuple[str, ...],
    keys: tuple[str, ...],
    place: int,
) -> Soft:
    kind, weights = _score(owner.score)
    family = "pool" if call.role == "pool" else user.config.model.kind
    allowed = array(call.allowed()[0, 0, place]).astype(bool)
    reasons = reasons_of(call, place)
    unknown = owner.score.longest
    if unknown is not None:
        reasons = tuple("beyond what the score knows" if why and n >= unknown else why for n, why in enumerate(reasons))
    joined: dict[str, Any] = {}
    if family == "luong":
        joined = {"w_c": array(user.model.combine.weight).T, "b_c": array(user.model.combine.bias)}
    return Soft(
        asker=asker(call.role, rows[place]),
        keys=keys,
        s=array(call.q[0, 0, place]),
        h=array(call.v[0, 0]),
        score=kind,
        weights=weights,
        halves=_halves(user.model),
        temperature=owner.temperature,
        allowed=allowed,
        reasons=reasons,
        place=_window(owner, place),
        family=family,
        **joined,
    )


def _score(score: nn.Module) -> tuple[str, dict[str, np.ndarray]]:
    """The score's name, and its weights by letter, laid out so that a vector times a matrix is the next vector."""
    if isinstance(score, Additive):
        weights = {"W": score.query.weight.T, "U": score.key.weight.T, "v": score.value.weight[0]}
        return "additive", {name: array(each) for name, each in weights.items()}
    if isinstance(score, General):
        return "general", {"W": array(score.key.weight).T}
    if isinstance(score, Cosine):
        return "cosine", {"log β": array(score.log_strength)}
    if isinstance(score, Location):
        return "location", {"W": array(score.position.weight)}
    assert isinstance(score, Dot)
    return ("dot", {}) if score.scale == 1.0 else ("scaled-dot", {"scale": np.array([score.scale])})


def _window(owner: SoftAttention, time: int) -> Place | None:
    place = owner.place
    if isinstance(place, SamePosition):
        return Place("local-m", place.reach, time)
    if isinstance(place, PredictedPosition):
        return Place("local-p", place.reach, time, array(place.inner.weight).T, array(place.outer.weight)[0])
    return None


def _halves(model: nn.Module) -> bool:
    """Whether the annotations are of both directions."""
    encoders = [each for each in model.modules() if isinstance(each, RecurrentEncoder)]
    return bool(encoders) and isinstance(encoders[-1].layers[-1], BothDirections)
