"""What each head of a trained model of text does, by rule, and whether it matters, measured on data.

report = heads_of(regard.load("runs/translate/3"), pairs)
report.save("heads.html")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from regard.attention import Remove, Role
from regard.data.pairs import Pair
from regard.errors import UsageError, nearest
from regard.evaluate.alignment import Aligner
from regard.look.heads_findings import Induction
from regard.look.heads_report import Head, HeadReport, LayerRemoved
from regard.look.role_measures import Looked, WordLinks
from regard.look.roles import Tally, measure
from regard.tasks.heads_data import Material
from regard.tasks.heads_prepare import prepare
from regard.tasks.heads_removed import Progress, head_removal, without_each
from regard.tasks.heads_texts import ROLES, Texts, tokenizer_of
from regard.tasks.induction import induction
from regard.tasks.reading import check_user
from regard.tokens.words import Words, is_special, word_label, words_of

FEW = 500  # pairs, from which an aligner learns little: many words come once


def heads_of(
    user: Any,
    data: Material | Sequence[Any],
    *,
    texts: int = 200,
    role: Role | None = None,
    removal: bool = True,
    name: str = "",
    progress: Progress | None = None,
) -> HeadReport:
    """Of a model to translate, generate, fill or classify.

    data      pairs of texts; running texts; labelled texts, as (text, label); or what `material_of` found
    texts     the first so many that fit
    role      only attention in this role: self, causal, cross or pool
    removal   also measure the loss without each head, and without all heads of each layer
    """
    check_user(user, "heads_of")
    if role is not None and role not in ROLES:
        raise UsageError(f"no role {role}{nearest(role, ROLES)}")
    material = data if isinstance(data, Material) else Material(data)
    read = prepare(user, material, texts)
    heads, aligner = _roles(read, material, (role,) if role is not None else ROLES)
    if not heads:
        raise UsageError(_nothing(user, role))
    found = _induction(user, read, heads)
    heads = heads if found is None else [_with_induction(head, found) for head in heads]
    report = HeadReport(name or user.config.model.kind, user.config.task, read.name, len(read), tuple(heads),
                        aligner=aligner, induction=found)  # fmt: skip
    return _with_removals(report, read, progress) if removal else report


def _nothing(user: Any, role: str | None) -> str:
    what = "attention between tokens" if role is None else f"attention in the role {role}"
    return f"this model ({user.config.model.kind}) has no {what}; regard summary shows what it is made of"


def _roles(texts: Texts, material: Material, roles: Sequence[Role]) -> tuple[list[Head], str]:
    """Every head with what the rules measured, in the order of the model, and what the aligner learned from."""
    labels, tallies, paths = texts.labels(), dict[tuple[Role, int], Tally](), dict[tuple[Role, int], str]()
    links, aligner = _links(texts, material) if "cross" in roles and texts.user.config.task == "translate" else ([], "")
    for each in texts.maps(*roles):
        key = each.role, each.layer
        tally = tallies.setdefault(key, Tally(each.role, len(each.weights)))
        paths[key] = each.path
        rows, columns = (labels[each.text].get(axis, ("",)) for axis in each.axes)
        linked = links[each.text] if each.role == "cross" and links else None
        tally.add(Looked(each.weights, each.allowed, rows, columns, linked))
    heads = [
        Head(*key, head, paths[key], tally.measures(head), () if key[0] == "pool" else tally.offsets(head))
        for key, tally in sorted(tallies.items(), key=lambda item: (ROLES.index(item[0][0]), item[0][1]))
        for head in range(tally.heads)
    ]
    return heads, aligner if any(key[0] == "cross" for key in tallies) else ""


def words_in(labels: Sequence[str]) -> tuple[Words, list[str]]:
    """The words of a text that are no special tokens: their pieces, and what they read as."""
    words = [word for word in words_of(labels) if not any(is_special(labels[place]) for place in word)]
    return words, [word_label(labels, word).casefold() for word in words]


def _links(texts: Texts, material: Material) -> tuple[list[WordLinks], str]:
    """The words of each pair and which belong together, as IBM Model 1 says that learned from these and other pairs."""
    sides = [[words_in(each[axis]) for each in texts.labels()] for axis in ("source", "target")]
    here = [(source[1], target[1]) for source, target in zip(*sides, strict=True)]
    aligner = Aligner([*_words_of_pairs(texts.user, material.learned), *here])
    found = [
        WordLinks(target[0], source[0], aligner.links(source[1], target[1]))
        for source, target in zip(*sides, strict=True)
    ]
    return found, (
        f"the share of target words whose most attended source word is the one that IBM Model 1 links it to "
        f"(both directions agree; learned from {aligner.pairs:,} pairs{', too few to be trusted' * (aligner.pairs < FEW)})."
    )


def _words_of_pairs(user: Any, pairs: Sequence[Pair]) -> list[tuple[list[str], list[str]]]:
    """Pairs of texts as words, cut as the model's tokenizers cut them."""
    sides = []
    for place, axis in enumerate(("source", "target")):
        tokenizer = tokenizer_of(user, axis)
        ids = tokenizer.encode_all([pair[place] for pair in pairs])
        numbers = sorted(set(chain.from_iterable(ids)))
        known = dict(zip(numbers, tokenizer.labels(numbers), strict=True))
        sides.append([words_in([known[number] for number in each])[1] for each in ids])
    return list(zip(*sides, strict=True)) if pairs else []


def _induction(user: Any, texts: Texts, heads: Sequence[Head]) -> Induction | None:
    """On random tokens of the kind that the texts have, where a language model has heads that look back."""
    if user.config.task != "generate" or not any(head.role == "causal" for head in heads) or user.context < 16:
        return None
    return induction(user, np.concatenate([each["text"] for each in texts.ids]))


def _with_induction(head: Head, found: Induction) -> Head:
    score = found.scores.get((head.layer, head.head))
    if head.role != "causal" or score is None:
        return head
    queries = found.sequences * (found.length - 1)
    return replace(head, measures={**head.measures, "induction": measure("induction", score, found.chance, queries)})


def _with_removals(report: HeadReport, texts: Texts, progress: Progress | None) -> HeadReport:
    """With the loss without each head, and without each layer that has more than one."""
    layers = list(dict.fromkeys((head.role, head.layer) for head in report.heads if head.head > 0))
    whole = [[Remove(role, layer)] for role, layer in layers]
    found = without_each(texts, [*map(head_removal, report.heads), *whole], progress)
    count = len(report.heads)
    heads = [replace(head, removal=each) for head, each in zip(report.heads, found.changes, strict=False)]
    removed = [LayerRemoved(*layer, each) for layer, each in zip(layers, found.changes[count:], strict=True)]
    return replace(
        report, heads=tuple(heads), layers=tuple(removed), loss=found.loss, predictions=found.predictions
    )  # fmt: skip
