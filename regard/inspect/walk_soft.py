"""What the walk through a recurrent decoder's look needs of a model: state, annotations and weights, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from regard.attention import AttentionCall
from regard.attention.scores import Additive, Cosine, Dot, General, Location
from regard.attention.soft import PredictedPosition, SamePosition, SoftAttention
from regard.blocks import RecurrentEncoder
from regard.blocks.recurrent import BothDirections
from regard.inspect.walk_pass import array, one_pass, reasons_of
from regard.look.walk.ending import ending_step
from regard.look.walk.given import Place, Soft
from regard.look.walk.soft import combined, look
from regard.look.walk.soft_steps import soft_steps
from regard.look.walk.steps import Step
from regard.look.walk.sums import asker
from regard.predictor import Reading


def soft_walk(
    reading: Reading,
    call: AttentionCall,
    owner: SoftAttention,
    rows: tuple[str, ...],
    keys: tuple[str, ...],
    place: int,
) -> tuple[tuple[Step, ...], dict[str, float]]:
    """The steps of one look, and how far they are from what the model gave."""
    given = _given(reading.predictor, call, owner, rows, keys, place)
    weights, context = look(given)
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


def _given(
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
        place=_place(owner, place),
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


def _place(owner: SoftAttention, time: int) -> Place | None:
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
