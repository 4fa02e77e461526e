"""A trained model, ready to use: the base of all that `regard.load` returns, and one text as such a model reads it.

    predictor = regard.load("runs/translate/3")
    reading = predictor.read("ein Mann", "a man")        a text as the model reads it in one pass
    seen = reading.look(only="cross")                    every attention of that pass, with labels
    reading.log_probabilities()                          of each token that is predicted

Figures, the walk, the head report, probes and `--exact` all look through `read`. A translation that is not given is the
one that the model writes: one pass over it gives the same weights as the steps that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, Protocol, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import Role, Seen, record
from regard.brief import brief
from regard.bundle import Bundle, load_bundle
from regard.decode.config import DecodeConfig
from regard.decode.ranking import Hypothesis
from regard.errors import Cancelled, UsageError
from regard.files import JSON
from regard.look import SentenceAttention, sentence_of
from regard.models.loss import target_log_probabilities
from regard.runs import bundle_folder
from regard.tokens import TextTokenizer

Progress = Callable[[int, int], None]  # is told how many inputs are done, and of how many
Cancel = Callable[[], bool]  # is asked between steps and batches whether to stop, such as `threading.Event().is_set`


class Result:
    """A prediction for one input: the base of frozen dataclasses that give their JSON themselves."""

    def data(self) -> dict[str, JSON]:
        """The result as JSON holds it, in the schema of docs/json.md, which Python and the command line share."""
        raise NotImplementedError


def check_cancel(cancel: Cancel | None) -> None:
    """Raise `Cancelled` where whoever asked wants to stop."""
    if cancel is not None and cancel():
        raise Cancelled("cancelled")


class HasData(Protocol):
    """Whatever gives its JSON itself."""

    def data(self) -> Mapping[str, object]: ...


def text_data(found: Mapping[str, JSON], alternatives: Sequence[Result], attention: HasData | None) -> dict[str, JSON]:
    """The data of a text that a model wrote, with its alternatives and where the model looked, if there are any."""
    others: dict[str, JSON] = {"alternatives": [each.data() for each in alternatives]} if alternatives else {}
    looked = {} if attention is None else {"attention": cast("JSON", attention.data())}
    return {**found, **others, **looked}


def label_list(probabilities: Mapping[str, float]) -> list[JSON]:
    """Labels with their probabilities, in their order, as a result's data has them."""
    return [{"label": label, "probability": value} for label, value in probabilities.items()]


@dataclass(frozen=True, eq=False)
class Reading:
    """One text (or pair) as one model reads it in a single pass.

    Axes are source, target (what is predicted) and prefix (what a decoder has read), or text.
    """

    predictor: Predictor
    ids: dict[str, tuple[int, ...]]  # of each axis
    labels: dict[str, tuple[str, ...]]
    run: Callable[[], Tensor]  # one pass: the last vectors (1, T, D), or a classifier's logits (1, labels)
    role: Role  # of the attention that a person wants to see first
    predicted: tuple[int, ...] = ()  # tokens that the vectors should predict, one each
    left_out: int = 0  # tokens at the end of the text that the model cannot read

    def look(
        self,
        *,
        only: Role | Sequence[Role] | None = None,
        layers: int | Sequence[int] | None = None,
        rows: int | slice | None = None,
        most_tokens: int | None = None,
    ) -> Seen:
        """Every attention of one pass, or those within the bounds (see `regard.record`)."""
        labels = {axis: [tokens] for axis, tokens in self.labels.items()}
        bounds = record(
            self.predictor.model, only=only, layers=layers, rows=rows, most_tokens=most_tokens, labels=labels
        )
        with torch.inference_mode(), bounds as seen:
            self.run()
        return seen

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that belong beside whatever is shown of this reading."""
        kept = len(self.ids.get("text", ()))
        return (f"the first {kept:,} tokens; the model cannot read {self.left_out:,} more",) if self.left_out else ()

    @torch.inference_mode()
    def log_probabilities(self) -> np.ndarray:
        """The log-probability of each predicted token, in the order of `predicted`: (T,)."""
        table = self.predictor.output_table()
        if not self.predicted:
            raise UsageError("the text is empty: there is no token to predict")
        wanted = torch.tensor(self.predicted, device=self.predictor.device)
        return target_log_probabilities(self.run()[0, : len(wanted)], table, wanted).double().cpu().numpy()


@dataclass(frozen=True, eq=False)
class SearchStart:
    """All that a search of one text begins with, for whoever wants to follow it step by step."""

    options: DecodeConfig
    tokenizer: TextTokenizer  # of what is written
    ends: tuple[int, ...]  # ids that end it, the first of them forced at the limit
    forbidden: tuple[int, ...]
    limit: int  # most tokens, end not counted
    vector: Callable[[Sequence[int]], Tensor]  # (D,): what predicts the token after the ids that were written
    found: Callable[[], list[Hypothesis]]  # the search itself, best first


class Predictor:
    """A trained model, ready to use: the base of what each task makes of a bundle.

    A task's own class says what it can do: it overrides `read` and `read_ids` if it reads texts, `output_table` if it
    predicts one token after another, and `second` if a text may come with another one.
    """

    second: ClassVar[Literal["translation", "pair"] | None] = None  # what the second text of `read` is
    model: nn.Module

    def __init__(self, bundle: Bundle) -> None:
        self.bundle, self.config = bundle, bundle.config
        self.model = bundle.model

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Load a bundle's folder, or a run's."""
        return cls(load_bundle(bundle_folder(path), device))

    def __repr__(self) -> str:
        return brief(self, *self.bundle.words())

    @property
    def device(self) -> torch.device:
        """Where the model is now: the training loop moves it after its predictor was made."""
        first = next(self.model.parameters(), None)
        return torch.device("cpu") if first is None else first.device

    def predict(self, inputs: Sequence[str]) -> Sequence[object]:
        """Predict for each input, where an input is one text: the verb of a plugin's task prints these."""
        raise UsageError(f"a model to {self.config.task} has no prediction of single texts")

    def read(self, text: str, second: str | None = None) -> Reading:
        """Read a text in one pass; `second` is its translation (None: the model's own), or the other text of a pair."""
        raise UsageError(f"this looks at models of text; the model is one to {self.config.task}")

    def read_ids(self, source: Sequence[int], target: Sequence[int] = ()) -> Reading:
        """Read ids without begin and end: of a source and a target, or of one text."""
        raise UsageError(f"a model to {self.config.task} reads texts, not ids")

    def output_table(self) -> Tensor:
        """The output layer, (V, D): its product with a vector of a reading are the logits of the next token."""
        raise UsageError(f"a model to {self.config.task} predicts no tokens of a whole text")

    def search_start(self, text: str, over: Mapping[str, object]) -> SearchStart:
        """The start of a search for one text; `over` are options of decoding that lie over the bundle's own."""
        raise UsageError(f"a model to {self.config.task} writes no text, so it has no loop of decoding")

    def attentions(self, text: str, second: str | None = None) -> SentenceAttention:
        """All attentions of one pass over a text, first the one that a person wants to see first."""
        reading = self.read(text, second)
        seen = reading.look()
        found = sentence_of(seen, reading.role if seen.only(reading.role) else None)
        return replace(found, notes=(*found.notes, *reading.notes))

    def as_row(self, ids: Sequence[int]) -> Tensor:
        """Ids as a batch of one: (1, T)."""
        return torch.tensor([list(ids)], device=self.device)


def read_one(
    predictor: Predictor,
    tokenizer: TextTokenizer,
    ids: Sequence[int],
    run: Callable[[], Tensor],
    role: Role,
    *,
    whole: int,
    predicted: tuple[int, ...] = (),
) -> Reading:
    """A reading of one text; `whole` counts its tokens with those that the model cannot read."""
    labels = {"text": tuple(tokenizer.labels(ids))}
    return Reading(predictor, {"text": tuple(ids)}, labels, run, role, predicted, whole - len(ids))


def check_predictor(thing: object, name: str) -> None:
    """Refuse anything but what `regard.load` returns; `name` is the function of `regard` that needs one."""
    if isinstance(thing, Predictor):
        return
    kind = type(thing).__name__
    if isinstance(thing, nn.Module) and type(thing).__module__.startswith("regard."):
        raise UsageError(f"regard.{name} takes what regard.load gives, with its tokens; this is its {kind} alone")
    raise UsageError(
        f"regard.{name} takes what regard.load gives, and this is a {kind}. A BERT, GPT-2, LLaMA or ViT of Hugging Face "
        "becomes one: regard import FOLDER -o BUNDLE. Of any other module, regard.record(model) sees where it looks and "
        "regard.intervene(model, ...) changes it"
    )
