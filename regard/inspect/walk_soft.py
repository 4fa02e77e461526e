"""A walk through one look of a recurrent decoder, or of a learned query, recomputed and compared step by step."""

from __future__ import annotations

import numpy as np
from torch import nn

from regard.attention.scores import Additive, Cosine, Dot, General, Location
from regard.attention.soft import PredictedPosition, SamePosition, SoftAttention
from regard.blocks import RecurrentEncoder
from regard.blocks.recurrent import BothDirections
from regard.errors import UsageError
from regard.inspect.walk_attention import WalkChoice
from regard.inspect.walk_pass import allowed_of, linear_of, reasons_of, to_array, watch_pass
from regard.look.walk.soft import (
    Family,
    LocalWindow,
    Score,
    SoftLook,
    attentional_vector,
    soft_steps,
    weights_and_context,
)
from regard.look.walk.steps import Array, Step, compare_step
from regard.predictor import Predictor, Reading


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
