"""What stands behind the last block of each kind of model: the table of the next token, the head of gaps, or of labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.errors import UsageError
from regard.inspect.texts import TextPredictor
from regard.inspect.walk_pass import activation_of, linear_of, norm_of, to_array
from regard.look.walk.output import HeadLayer, Labels, OutputNumbers, Pooling
from regard.look.walk.steps import Array
from regard.look.walk.sublayer import LinearNumbers
from regard.models.bert import GapHead
from regard.predictor import Predictor
from regard.tokens import TextTokenizer


def output_of(predictor: Predictor) -> OutputNumbers:
    """From the last vectors of a model to its logits."""
    head = getattr(predictor.model, "head", None)
    if predictor.config.labels:
        return _labels_output(predictor, head)
    if predictor.config.task == "fill" and head is None:
        raise UsageError(
            "this model gives vectors only, it has no head that fills gaps: there are no logits to walk to"
        )
    assert isinstance(predictor, TextPredictor)
    tokenizer = predictor.tokenizer_of("target")
    if isinstance(head, GapHead):
        layer = HeadLayer(linear_of(head.layer), activation_of(head.activation), norm_of(head.norm))
        table = LinearNumbers(to_array(predictor.model.table).T, to_array(head.bias))  # type: ignore[arg-type]
        return OutputNumbers(table, _names(tokenizer), "the token in this place", layer)
    return OutputNumbers(LinearNumbers(to_array(predictor.output_table()).T), _names(tokenizer), "the next token")


def _labels_output(predictor: Predictor, head: object) -> OutputNumbers:
    """The output of a classifier: one vector of the text, perhaps a layer, and a row for each label."""
    assert isinstance(head, nn.Linear)
    labels, config = predictor.config.labels, predictor.config.model
    pooling: Pooling = {"mean": "mean", "max": "max"}.get(getattr(config, "labels_from", "cls"), "token")  # type: ignore[assignment]
    pooler = getattr(getattr(predictor.model, "encoder", None), "pooler", None)
    layer = HeadLayer(linear_of(pooler), "tanh") if isinstance(pooler, nn.Linear) and pooling == "token" else None
    return OutputNumbers(linear_of(head), lambda ids: [labels[each] for each in ids], "the label", layer, pooling)


def _names(tokenizer: TextTokenizer) -> Labels:
    """Labels of ids, also of rows of the table that are no tokens."""

    def names(ids: Sequence[int]) -> list[str]:
        return [tokenizer.labels([each])[0] if each < tokenizer.size else f"(row {each})" for each in ids]

    return names


@torch.inference_mode()
def model_logits(predictor: Predictor, result: Tensor, place: int) -> Array:
    """The model's own logits (V,) from what one pass gave: vectors (1, T, D), or a classifier's logits (1, labels)."""
    if predictor.config.labels:
        return to_array(result[0])
    model = predictor.model
    if isinstance(getattr(model, "head", None), GapHead):
        return to_array(model.gaps(result[0, place]))  # type: ignore[operator]
    return to_array(result[0, place] @ predictor.output_table().mT)


def output_place(predictor: Predictor, asked: int, count: int) -> int:
    """The place whose vector predicts: the one asked for; a label's is the first, or the last if a text is read forwards."""
    if not predictor.config.labels:
        return asked
    heads = (each for each in predictor.model.modules() if isinstance(each, MultiHead))
    return count - 1 if any(each.role == "causal" for each in heads) else 0
