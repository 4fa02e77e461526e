"""The report of heads: what each head of a model of text does, by rule, and whether it matters, measured on data.

    report = heads_of(regard.load("runs/translate/3"), pairs)
    report.save("heads.html")

Whether it matters is the loss with the head removed (Michel et al. 2019, "Are sixteen heads really better than one?",
section 3): what the head saw becomes zeros, and nothing is trained again. A head whose work others can do as well shows a
small number, so whole layers are removed too. Whether a language model repeats by induction is told by random tokens that come
twice (Olsson et al. 2022, "Prefix matching": A B ... A -> B), and by removing the heads that look there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import numpy as np

from regard.attention import Remove, Role, intervene
from regard.data.builtin.sentences import related_words
from regard.data.pairs import Pair
from regard.errors import Advice, UsageError, Verb, nearest
from regard.evaluate.alignment import Aligner
from regard.evaluate.bootstrap import Estimate, ratios
from regard.inspect.texts import ROLES, LanguagePredictor, Material, TextPredictor, Texts, prepare, stretches
from regard.look.heads import Head, HeadName, HeadReport, Induction, LayerRemoved
from regard.look.roles import Looked, Tally, WordLinks, measure
from regard.predictor import Cancel, Predictor, Progress, check_cancel, check_predictor
from regard.tokens.words import Words, is_special, word_label, words_of


@dataclass(frozen=True)
class Removals:
    """The loss of the whole model, in nats for each prediction, and how much each removal changes it."""

    loss: Estimate
    predictions: int
    changes: tuple[Estimate, ...]  # in the order of what was removed; above zero is worse


def without_each(
    texts: Texts,
    removals: Sequence[Sequence[Remove]],
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> Removals:
    """One pass for each removal, which may be of several heads at once. Differences are paired, text by text."""
    whole, counts = texts.losses()
    changes = np.zeros((len(texts), len(removals)))
    for place, removal in enumerate(removals):
        check_cancel(cancel)
        changes[:, place] = losses_without(texts, removal) - whole
        if progress is not None:
            progress(place + 1, len(removals))
    loss, *found = ratios(np.column_stack([whole, changes]), counts)
    return Removals(loss, int(counts.sum()), tuple(found))


def losses_without(texts: Texts, removal: Sequence[Remove]) -> np.ndarray:
    """The loss of each text, summed over its predictions, with these heads removed."""
    with intervene(texts.predictor.model, *removal):
        return texts.losses()[0]


def head_removal(head: Head) -> list[Remove]:
    """The removal of one head of a report."""
    return [Remove(head.role, head.layer, head=head.head)]


FEW = 500  # pairs, from which an aligner learns little: many words come once


def heads_of(
    predictor: Predictor,
    data: Material | Sequence[object],
    *,
    texts: int = 200,
    role: Role | None = None,
    removal: bool = True,
    name: str = "",
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> HeadReport:
    """Measure where each head of a model of text looks, which role that is, and what the loss is without it.

    data      pairs of texts; running texts; labelled texts, as (text, label); or what `material_of` found
    texts     the first so many that fit
    role      only attention in this role: self, causal, cross or pool
    removal   also measure the loss without each head, and without all heads of each layer
    cancel    is asked between passes whether to stop, which raises `Cancelled`
    """
    check_predictor(predictor, "heads_of")
    if role is not None and role not in ROLES:
        raise UsageError(f"no role {role}", nearest(role, ROLES))
    material = data if isinstance(data, Material) else Material(data)
    read = prepare(predictor, material, texts)
    heads, aligner = _roles(read, material, (role,) if role is not None else ROLES)
    if not heads:
        raise UsageError(_nothing(predictor, role))
    found = _induction(predictor, read, heads)
    heads = heads if found is None else [_with_induction(head, found) for head in heads]
    report = HeadReport(name or predictor.config.model.kind, predictor.config.task, read.name, len(read), tuple(heads),
                        aligner=aligner, induction=found)  # fmt: skip
    return _with_removals(report, read, progress, cancel) if removal else report


def _nothing(predictor: Predictor, role: str | None) -> str:
    what = "attention between tokens" if role is None else f"attention in the role {role}"
    return Advice(
        f"this model ({predictor.config.model.kind}) has no {what}; ", Verb("summary"), " shows what it is made of"
    )


def _roles(texts: Texts, material: Material, roles: Sequence[Role]) -> tuple[list[Head], str]:
    """Every head with what the rules measured, in the order of the model, and what the aligner learned from."""
    labels, tallies, paths = texts.labels(), dict[tuple[Role, int], Tally](), dict[tuple[Role, int], str]()
    related = lru_cache(maxsize=len(texts))(_syntax)
    links, aligner = _links(texts, material) if "cross" in roles and "target" in texts.ids[0] else ([], "")
    for each in texts.maps(*roles):
        key = each.role, each.layer
        tally = tallies.setdefault(key, Tally(each.role, len(each.weights)))
        paths[key] = each.path
        rows, columns = (labels[each.text].get(axis, ("",)) for axis in each.axes)
        linked = links[each.text] if each.role == "cross" and links else None
        syntax = related(rows) if each.axes[0] == each.axes[1] else {}
        tally.add(Looked(each.weights, each.allowed, rows, columns, linked, syntax))
    heads = [
        Head(*key, head, paths[key], tally.measures(head), () if key[0] == "pool" else tally.offsets(head))
        for key, tally in sorted(tallies.items(), key=lambda item: (ROLES.index(item[0][0]), item[0][1]))
        for head in range(tally.heads)
    ]
    return heads, aligner if any(key[0] == "cross" for key in tallies) else ""


def _syntax(labels: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """Pairs that grammar relates in a text of known trees, by relation: the last piece of who looks, each piece of at whom."""
    words, texts = words_in(labels)
    real = [(word, text.strip()) for word, text in zip(words, texts, strict=True) if text.strip()]
    found: dict[str, list[tuple[int, int]]] = {}
    for relation, one, other in related_words([text for _, text in real]):
        found.setdefault(relation, []).extend((real[one][0][-1], piece) for piece in real[other][0])
    return found


def words_in(labels: Sequence[str]) -> tuple[Words, list[str]]:
    """The words of a text that are no special tokens: their pieces, and what they read as."""
    words = [word for word in words_of(labels) if not any(is_special(labels[place]) for place in word)]
    return words, [word_label(labels, word).casefold() for word in words]


def _links(texts: Texts, material: Material) -> tuple[list[WordLinks], str]:
    """The words of each pair and which belong together, as IBM Model 1 says that learned from these and other pairs."""
    sides = [[words_in(each[axis]) for each in texts.labels()] for axis in ("source", "target")]
    here = [(source[1], target[1]) for source, target in zip(*sides, strict=True)]
    aligner = Aligner([*_words_of_pairs(texts.predictor, material.learned), *here])
    found = [
        WordLinks(target[0], source[0], aligner.links(source[1], target[1]))
        for source, target in zip(*sides, strict=True)
    ]
    few = ", too few to be trusted" if aligner.pairs < FEW else ""
    return found, (
        f"the share of target words whose most attended source word is the one that IBM Model 1 links it to "
        f"(both directions agree; learned from {aligner.pairs:,} pairs{few})."
    )


def _words_of_pairs(predictor: TextPredictor, pairs: Sequence[Pair]) -> list[tuple[list[str], list[str]]]:
    """Pairs of texts as words, cut as the model's tokenizers cut them."""
    sides = []
    for place, axis in enumerate(("source", "target")):
        tokenizer = predictor.tokenizer_of(axis)
        ids = tokenizer.encode_all([pair[place] for pair in pairs])
        numbers = sorted(set(chain.from_iterable(ids)))
        known = dict(zip(numbers, tokenizer.labels(numbers), strict=True))
        sides.append([words_in([known[number] for number in each])[1] for each in ids])
    return list(zip(*sides, strict=True)) if pairs else []


def _induction(predictor: Predictor, texts: Texts, heads: Sequence[Head]) -> Induction | None:
    """Induction on random tokens of the kind that the texts have, where a language model has heads that look back."""
    looks_back = any(head.role == "causal" for head in heads)
    if not isinstance(predictor, LanguagePredictor) or not looks_back or predictor.context < 16:
        return None
    return induction(predictor, np.concatenate([each["text"] for each in texts.ids]))


def _with_induction(head: Head, found: Induction) -> Head:
    score = found.scores.get((head.layer, head.head))
    if head.role != "causal" or score is None:
        return head
    queries = found.sequences * (found.length - 1)
    return replace(head, measures={**head.measures, "induction": measure("induction", score, found.chance, queries)})


def _with_removals(report: HeadReport, texts: Texts, progress: Progress | None, cancel: Cancel | None) -> HeadReport:
    """With the loss without each head, and without each layer that has more than one."""
    layers = list(dict.fromkeys((head.role, head.layer) for head in report.heads if head.head > 0))
    whole = [[Remove(role, layer)] for role, layer in layers]
    found = without_each(texts, [*map(head_removal, report.heads), *whole], progress, cancel)
    count = len(report.heads)
    heads = [replace(head, removal=each) for head, each in zip(report.heads, found.changes, strict=False)]
    removed = [LayerRemoved(*layer, each) for layer, each in zip(layers, found.changes[count:], strict=True)]
    return replace(
        report, heads=tuple(heads), layers=tuple(removed), loss=found.loss, predictions=found.predictions
    )  # fmt: skip


SEQUENCES, LENGTH, DRAWS, SEED = 48, 48, 5, 0
FREQUENT = 1000  # tokens of real text, at most, of which is drawn


def induction(predictor: Predictor, stream: np.ndarray | None = None) -> Induction:
    """Induction heads of a language model, on random tokens that come twice; `stream` are ids of real text to draw from."""
    if not isinstance(predictor, LanguagePredictor):
        raise UsageError(f"induction is asked of language models; the model is one to {predictor.config.task}")
    length = min(LENGTH, (predictor.context - 2) // 2)
    if length < 4:
        raise UsageError(f"a model of {predictor.context} tokens is too short for a text that comes twice")
    texts = repeated(predictor, _ordinary(predictor, stream), length)
    scores, previous, chance, queries = _looks(texts, length)
    if not scores:
        raise UsageError("this model has no attention that looks back")
    found = {head: measure("induction", score, chance, queries) for head, score in scores.items()}
    named = tuple(head for head, each in found.items() if each.holds)
    removed = named or (max(scores, key=lambda head: scores[head]),)
    first, second, gain = _halves(texts, length)
    others = [head for head in scores if head not in removed]
    draw = np.random.default_rng(SEED)
    random = []
    for _ in range(DRAWS if others else 0):
        chosen = draw.choice(len(others), size=min(len(removed), len(others)), replace=False)
        random.append(_without(texts, length, tuple(others[n] for n in chosen)).value)
    without = _without(texts, length, removed)
    return Induction(
        len(texts), length, scores, previous, chance, first, second, gain, removed, bool(named), without, tuple(random)
    )


def repeated(predictor: LanguagePredictor, ordinary: np.ndarray, length: int) -> Texts:
    """Begin token, `length` random tokens, all different if there are enough kinds, and the same again."""
    draw = np.random.default_rng(SEED)
    rows = []
    for _ in range(SEQUENCES):
        once = draw.choice(ordinary, size=length, replace=len(ordinary) < length)
        rows.append(np.array([predictor.tokenizer.specials.begin, *once, *once]))
    return stretches(predictor, rows, "random tokens, twice")


def _ordinary(predictor: LanguagePredictor, stream: np.ndarray | None) -> np.ndarray:
    """Ids that stand for text; of real text, the most frequent."""
    special = sorted(predictor.tokenizer.specials.all)
    if stream is None or not len(stream):
        return np.setdiff1d(np.arange(predictor.tokenizer.size), special)
    ids, counts = np.unique(np.asarray(stream), return_counts=True)
    order = ids[np.argsort(-counts, kind="stable")]
    return order[~np.isin(order, special)][:FREQUENT].astype(np.int64)


def _looks(texts: Texts, length: int) -> tuple[dict[HeadName, float], dict[HeadName, float], float, int]:
    """Measure the mean weight of each head from a token of the second half to the one behind its first occurrence, and on
    the token before; also the first of these in an even map, and the number of queries.
    """
    queries = np.arange(length + 1, 2 * length)  # of the second half, but for the last, which predicts nothing
    sums: dict[HeadName, np.ndarray] = {}
    chance = count = 0.0
    for each in texts.maps("causal"):
        behind = each.weights[:, queries, queries - length + 1].sum(axis=1)  # (H,)
        before = each.weights[:, queries, queries - 1].sum(axis=1)
        for head, both in enumerate(np.stack([behind, before], axis=1)):
            sums[each.layer, head] = sums.get((each.layer, head), np.zeros(2)) + both
        chance += float((1 / each.allowed[queries].sum(axis=1)).sum())
        count += len(queries)
    total = len(texts) * len(queries)
    scores = {head: float(both[0]) / total for head, both in sorted(sums.items())}
    previous = {head: float(both[1]) / total for head, both in sorted(sums.items())}
    return scores, previous, chance / max(1.0, count), total


def _halves(texts: Texts, length: int) -> tuple[Estimate, Estimate, Estimate]:
    """The loss of the first half and of the second, a token, and the difference; the first token of each is left out."""
    losses = np.stack(texts.prediction_losses())  # (sequences, 2 * length)
    first, second = losses[:, 1:length].sum(axis=1), losses[:, length + 1 :].sum(axis=1)
    found = ratios(np.stack([first, second, first - second], axis=1), np.full(len(losses), length - 1.0))
    return found[0], found[1], found[2]


def _without(texts: Texts, length: int, heads: tuple[HeadName, ...]) -> Estimate:
    with intervene(texts.predictor.model, *(Remove("causal", layer, head=head) for layer, head in heads)):
        return _halves(texts, length)[2]
