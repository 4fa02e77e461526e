"""Views of a text in a model of any task: which attention is shown, of which layer and head, in which form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from regard.attention import AttentionCall, Seen
from regard.errors import Advice, Option, UsageError, nearest
from regard.inspect.texts import LabelPredictor
from regard.look import AttentionMap, SentenceAttention
from regard.look.graph import DrawnGraph, graph_of_maps
from regard.look.lines import Lines
from regard.look.map import rows_into_words
from regard.look.recorded import EffectiveAttention, effective
from regard.look.sentence import AllHeads
from regard.look.words import RowTexts, WeighedText
from regard.predictor import Predictor, Reading

Form = Literal["map", "grid", "lines", "graph", "words", "rollout"]
FORMS: tuple[str, ...] = get_args(Form)
ROLES = ("cross", "self", "causal", "pool")
Shown = AttentionMap | AllHeads | Lines | DrawnGraph | RowTexts | WeighedText
LETTERS = ("character", "byte")  # kinds of tokens that are shown as they are: their words have no pieces


@dataclass(frozen=True)
class AskedView:
    """A choice of what is shown of a text; None leaves it to the model."""

    form: str | None = None  # map, grid, lines, graph, words, rollout
    role: str | None = None  # cross, self, causal
    layer: int | None = None
    head: int | None = None
    pieces: bool = False  # pieces of words stay apart
    specials: bool = True  # show <s>, </s> and the like
    word: str | None = None  # of the form words: whose look, by number or by text
    below: float | None = None  # of lines and graphs: weights that are left out

    def __post_init__(self) -> None:
        if self.form is not None and self.form not in FORMS:
            raise UsageError(f"nothing is shown as {self.form}", nearest(self.form, FORMS))
        if self.role is not None and self.role not in ROLES:
            raise UsageError(f"no role {self.role}", nearest(self.role, ROLES))
        if self.word is not None and self.form != "words":
            raise UsageError(
                Advice(Option("word"), " names whose look is shown in colours: add ", Option("form", "words"))
            )
        if self.below is not None and self.form not in ("lines", "graph"):
            raise UsageError(
                Advice(
                    Option("below"),
                    " leaves out faint lines: add ",
                    Option("form", "lines"),
                    " or ",
                    Option("form", "graph"),
                )
            )
        if self.form in ("grid", "rollout") and (self.layer is not None or self.head is not None):
            raise UsageError(
                Advice(Option("form", self.form), " is of all layers and heads"),
                Advice("leave out ", Option("layer"), " and ", Option("head")),
            )


def look_at(predictor: Predictor, text: str, second: str | None = None, view: AskedView | None = None) -> Shown:
    """Look at one text in the form that the view names, or in what suits the model.

    `second` is the translation (None: the model's own), or the other text of a pair.
    """
    view = view or AskedView()
    if second is not None and predictor.second is None:
        task = predictor.config.task
        raise UsageError(
            Advice(Option("second"), f" is for classifiers of pairs, and for translations; this is a model to {task}")
        )
    if isinstance(predictor, LabelPredictor):
        if view == AskedView(view.form) and view.form in (None, "words"):
            return predictor.look(text, second)
        if view.form is None:
            raise UsageError(
                "a classifier shows what each word counted for the label",
                Advice(
                    *("leave out ", Option("layer"), " and ", Option("head"), " (and ", Option("role"), ", "),
                    *(Option("pieces"), ", ", Option("hide_special"), "), or look at its attention: "),
                    Option("form", "map"),
                ),
            )
    return shown(predictor.attentions(text, second).of(view.role), view, has_pieces(predictor))


def shown(found: SentenceAttention, view: AskedView, pieces: bool) -> Shown:
    """One attention as the view says; `pieces`: its tokens are pieces of words."""
    form, joins = view.form or "map", pieces and not view.pieces
    if form == "words":
        return _words(found, view, joins)
    if form == "graph":
        return _graph(found, view, joins)
    whole = (
        found.grid() if form == "grid" else found.rollout() if form == "rollout" else found.map(view.layer, view.head)
    )
    whole = whole.words() if joins else whole
    whole = whole if view.specials else whole.hide()
    return Lines(whole, view.below) if form == "lines" and isinstance(whole, AttentionMap) else whole


def _graph(found: SentenceAttention, view: AskedView, joins: bool) -> DrawnGraph:
    """Tokens as nodes, weights as edges: of one head, of the mean, or of one layer a panel for each head."""
    whole = found.map(view.layer, view.head)
    every = view.layer is not None and view.head is None
    heads = range(len(list(found.layers.values())[view.layer or 0])) if every else (view.head,)
    maps = [found.map(view.layer, head) for head in heads] if every else [whole]
    maps = [each.words() if joins else each for each in maps]
    maps = maps if view.specials else [each.hide() for each in maps]
    title = f"{found.role} attention, layer {view.layer}, head by head" if every and len(maps) > 1 else whole.title
    return graph_of_maps(maps, [f"head {head}" for head in heads], title, view.below)


def _words(found: SentenceAttention, view: AskedView, joins: bool) -> RowTexts | WeighedText:
    """Rows of words, columns of pieces: the text is written from its pieces, and each word of it has one colour."""
    looks = found.map(view.layer, view.head)
    looks = looks if view.specials else looks.hide()
    texts = RowTexts(rows_into_words(looks) if joins else looks, joins)
    return texts if view.word is None else texts.row(view.word)


def has_pieces(predictor: Predictor) -> bool:
    """Whether tokens may be pieces of words."""
    tokens = predictor.config.tokens
    return tokens is not None and tokens.kind not in LETTERS


def effective_attention(
    predictor: Predictor, text: str, second: str | None = None, layer: int | None = None, head: int | None = None
) -> EffectiveAttention:
    """The effective map of a kernel, or of exact attention, beside what the model computed."""
    reading = predictor.read(text, second)
    seen = reading.look()
    calls = _chosen(reading, seen)
    with torch.inference_mode():
        layers = tuple(effective(call) for call in calls)
    rows, columns = seen.labelled(calls[0]) if calls else ((), ())
    return EffectiveAttention(columns, rows, layers, layer, head)


def _chosen(reading: Reading, seen: Seen) -> list[AttentionCall]:
    """The attention with a kernel; where none or several roles have one, that which a person wants to see first."""
    kernels = [role for role in ("cross", "self", "causal") if any(callable(each.reported) for each in seen.only(role))]
    return seen.only((kernels or [reading.role])[0])
