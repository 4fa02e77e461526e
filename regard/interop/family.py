"""What a family of models is called elsewhere, and a model of ours filled with tensors from there."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.errors import RegardError
from regard.interop.table import Row, Settings, check_names, to_ours, to_theirs
from regard.models.table import build
from regard.tokens import TextTokenizer, TokenizerPair, TokensConfig

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Family:
    """How transformers writes one family. Names are those of the model with its head: `transformer.wte.weight`."""

    name: str  # its model_type
    task: Literal["generate", "fill"]
    prefix: str  # before every name but those of heads; a model saved without its head has none
    heads: tuple[str, ...]  # how names of heads begin
    ignored: re.Pattern[str]  # buffers that are no weights
    table: str  # the name of the table of embeddings
    old_ends: dict[str, str]  # how names ended in earlier years, and how they end now
    copies: Callable[[Any], dict[str, str]]  # what may be saved twice: a name, and the name it must be equal to
    read: Callable[[Settings, Collection[str]], Any]  # config.json and the names of tensors -> our configuration
    write: Callable[[Any], dict[str, Any]]  # our configuration -> config.json
    rows: Callable[[Any], list[Row]]

    def full_names(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names that the table has: with prefix, and without buffers."""
        bare = not any(name.startswith(self.prefix) for name in tensors)
        full: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            new = self.prefix + name if bare and not name.startswith(self.heads) else name
            for old, now in self.old_ends.items():
                new = new.removesuffix(old) + now if new.endswith(old) else new
            if new in full:
                raise RegardError(f"the file holds {new} twice, under an old and a new name", "keep one of them")
            full[new] = tensor
        return {name: tensor for name, tensor in full.items() if not self.ignored.search(name)}


def assemble(
    family: Family, config: Any, vocabulary: int, tensors: dict[str, Tensor], text: TextTokenizer, origin: str
) -> Bundle:
    """A bundle of our model with these tensors, which have the family's full names."""
    tensors = _without_copies(tensors, family.copies(config), origin)
    rows = family.rows(config)
    check_names(rows, tensors, origin)  # before anything of the size that config.json claims is built
    table = tensors[family.table]
    if tuple(table.shape) != (vocabulary, config.width):
        raise RegardError(
            f"{origin}: the table of embeddings is {tuple(table.shape)}, and by its config.json it would be "
            f"{(vocabulary, config.width)}"
        )
    if text.last >= vocabulary:
        raise RegardError(
            f"{origin}: the tokenizer has ids up to {text.last}, and the model knows {vocabulary} tokens",
            "they do not belong together, so take both from one place",
        )
    model = build(family.task, config, (vocabulary,))
    _fill(model, rows, tensors, origin)
    settings = BundleConfig(
        task=family.task, tokens=TokensConfig(kind="imported"), vocabulary=(vocabulary,), model=config
    )
    return Bundle(settings, model.eval(), TokenizerPair(text, text), {})


def their_tensors(family: Family, bundle: Bundle) -> dict[str, Tensor]:
    """The model's parameters under the family's names; as transformers does, without the prefix if there is no head."""
    parameters = {name: parameter.detach().float() for name, parameter in bundle.model.named_parameters()}
    tensors = to_theirs(family.rows(bundle.config.model), parameters)
    if family.task == "fill" and not any(name.startswith(family.heads) for name in tensors):
        return {name.removeprefix(family.prefix): tensor for name, tensor in tensors.items()}
    return tensors


def _without_copies(tensors: dict[str, Tensor], copies: dict[str, str], origin: str) -> dict[str, Tensor]:
    for copy, original in copies.items():
        if copy in tensors and original in tensors and not torch.equal(tensors[copy], tensors[original]):
            raise RegardError(
                f"{origin}: {copy} should be the same tensor as {original}, and differs",
                "if the model was trained with both, its config.json should say tie_word_embeddings = false",
            )
    return {name: tensor for name, tensor in tensors.items() if name not in copies or copies[name] not in tensors}


def _fill(model: nn.Module, rows: list[Row], tensors: dict[str, Tensor], origin: str) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise RegardError(
                f"{origin}: {name} holds {str(tensor.dtype).removeprefix('torch.')}",
                "only float weights are read (16, 32 or 64 bits), so take the model before it was quantised",
            )
    parameters = dict(model.named_parameters())
    ours = to_ours(rows, tensors, {name: parameter.shape for name, parameter in parameters.items()}, origin)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(ours[name])
