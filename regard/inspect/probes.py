"""Probes: a few texts whose attention is kept at every validation, so that one can see how a model came to look.

    <run>/probes/texts.json             the labels of each text, by axis
    <run>/probes/step-400.safetensors   every attention of every text at step 400: "text/role/path" -> (H, T, S)

The texts are fixed (a translation is the reference), so that maps of different steps lie upon each other. A run that is
killed and goes on writes the same files again; looking draws no random numbers and leaves the weights as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Role
from regard.errors import Advice, RegardError, Setting, UsageError, Verb
from regard.files import clear_leftovers, read_json, write_json
from regard.models.config import reads_trees
from regard.predictor import Predictor, Reading
from regard.tensors import read_tensors, write_tensors

FOLDER = "probes"
TEXTS = "texts.json"
ROLES: tuple[Role, ...] = (
    "cross",
    "causal",
    "self",
    "pool",
)  # between tokens, the most telling first
SHORTEST, LONGEST = 6, 24  # words of a text that is chosen: enough to see something, few enough to see all
LETTERS = 300  # of a text that is chosen, at most
MOST_TOKENS = 200  # of any text: a map is their square, for each head, layer and validation
CANDIDATES = 2_000  # texts or lines among which is chosen
FROM = 20_000  # letters of each running text

Text = tuple[str, str | None]  # a text, and its translation or second text


def choose(texts: Sequence[Text]) -> Iterator[Text]:
    """Texts to look at, the best first: neither short nor long, then the short ones, then how long ones begin."""
    some = texts[:CANDIDATES]
    short = [text for text in some if len(text[0]) <= LETTERS and len(text[0].split()) <= LONGEST]
    yield from (text for text in short if len(text[0].split()) >= SHORTEST)
    yield from (text for text in short if 0 < len(text[0].split()) < SHORTEST)
    known = set(short)
    yield from ((_beginning(text), None) for text, second in some if second is None and (text, None) not in known)


def _beginning(text: str) -> str:
    """The first words of a long text that is not one of a pair: what is cut off had no counterpart."""
    return " ".join(text[:LETTERS].split()[:LONGEST])


def first_lines(texts: Iterable[str]) -> list[Text]:
    """Lines of running texts to choose from."""
    lines = (line.strip() for text in texts for line in text[:FROM].splitlines())
    return [(line, None) for line in dict.fromkeys(islice(filter(None, lines), CANDIDATES))]


def prober(
    predictor: Predictor, texts: Sequence[Text], wanted: int | Sequence[str], folder: Path
) -> Callable[[nn.Module, int], None] | None:
    """Make the function that the loop calls at a validation; None where there is nothing to keep.

    `predictor` has the model that is trained.

    `wanted` is how many of the texts, or those that a person gives instead: a pair with a tab between its halves.
    """
    readings = _choose(predictor, texts, wanted) if isinstance(wanted, int) else _given(predictor, wanted)
    if not readings:
        return None
    place, labels = folder / FOLDER, [{axis: list(each.labels[axis]) for axis in each.labels} for each in readings]
    clear_leftovers(place)
    if (place / TEXTS).exists() and read_json(place / TEXTS) != labels:
        raise UsageError(
            f"{place} keeps other texts than this run has now: `probes` or the validation texts have changed. "
            f"Delete {place} to begin anew with them"
        )

    def probe(model: nn.Module, step: int) -> None:
        kept = {f"{n}/{name}": looks for n, each in enumerate(readings) for name, looks in _maps(each).items()}
        if not kept:
            return
        if not (place / TEXTS).exists():
            write_json(place / TEXTS, labels)
        write_tensors(place / f"step-{step}.safetensors", kept)

    return probe


def _choose(predictor: Predictor, texts: Sequence[Text], wanted: int) -> list[Reading]:
    if wanted < 0:
        raise UsageError(f"probes: {wanted} texts? say how many, or 0 for none")
    readings = (predictor.read(*text) for text in choose(texts)) if wanted else iter(())
    return list(islice((each for each in readings if _size(each) <= MOST_TOKENS), wanted))


def _given(predictor: Predictor, texts: Sequence[str]) -> list[Reading]:
    if texts and reads_trees(predictor.config.model):
        raise UsageError("probes: this model reads a tree with each text, and a probe is a text alone; set probes=0")
    halves = [text.partition("\t") if predictor.second is not None else (text, "", "") for text in texts]
    return [_read(predictor, first, second or None, number) for number, (first, _, second) in enumerate(halves)]


def _read(predictor: Predictor, text: str, second: str | None, number: int) -> Reading:
    """A text that a person gave, or what is wrong with it."""
    name = f"probe {number}"
    if not text.strip():
        raise UsageError(f"{name} is empty")
    if predictor.second == "translation" and second is None:
        raise UsageError(
            f"{name}: of a translation model it is a source, a tab and its translation; {text!r} has no tab"
        )
    reading = predictor.read(text, second)
    read = _size(reading)
    count = read + reading.left_out
    if count > MOST_TOKENS:
        raise UsageError(f"{name} has {count} tokens; of at most {MOST_TOKENS} attention is kept: shorten it")
    if reading.left_out:
        raise UsageError(f"{name} has {count} tokens, of which the model reads {read}; shorten it")
    return reading


def _size(reading: Reading) -> int:
    return max(len(ids) for ids in reading.ids.values())


@torch.inference_mode()  # some kernels compute their maps only now, with weights that learn
def _maps(reading: Reading) -> dict[str, Tensor]:
    """Every attention between tokens, as role/path: (H, T, S); what a query must not see is NaN."""
    found = {}
    with warnings.catch_warnings():  # a model without attention is no reason to worry here
        warnings.simplefilter("ignore", UserWarning)
        seen = reading.look(only=ROLES)
    for call in seen.calls:
        if call.has_exact:  # a state-space layer has a map for each channel, and attends to nothing
            weights = call.weights()[0].float()
            found[f"{call.role}/{call.path}"] = weights.masked_fill(~call.allowed()[0], torch.nan)
    return found


@dataclass(frozen=True, eq=False)
class Probes:
    """Maps that the probes of a run kept."""

    labels: tuple[dict[str, tuple[str, ...]], ...]  # of each text, by axis
    steps: tuple[int, ...]
    folder: Path

    @classmethod
    def of(cls, run: str | Path) -> Probes:
        folder = Path(run) / FOLDER
        if not Path(run).exists():
            raise UsageError(f"there is no {run}", Advice(Verb("runs"), " lists the runs here"))
        if not (folder / TEXTS).exists():
            raise UsageError(
                f"{run} kept no probes: it is not a run's folder, was trained with probes=0, or its model has no "
                "attention between tokens",
                Advice("train with ", Setting("probes", "2"), ", or give texts in the configuration"),
            )
        names = [file.stem.removeprefix("step-") for file in folder.glob("step-*.safetensors")]
        steps = sorted(int(name) for name in names if name.isdecimal())
        if not steps:
            raise RegardError(
                f"{folder} has texts, but no step of them", Advice("go on with: ", Verb("train", f"--resume {run}"))
            )
        return cls(_labels(folder / TEXTS), tuple(steps), folder)

    def maps(self, step: int, text: int = 0) -> dict[str, Tensor]:
        """role/path -> (H, T, S), NaN where a query must not look; layers in their order."""
        if not 0 <= text < len(self.labels):
            raise UsageError(f"no text {text}; {len(self.labels)} were probed, numbered from 0")
        if step not in self.steps:
            raise UsageError(f"no step {step}; there are {', '.join(map(str, self.steps))}")
        try:
            kept = read_tensors(self.folder / f"step-{step}.safetensors")
        except RegardError as error:
            raise RegardError(f"{error}, or delete it to see the other steps") from error
        prefix = f"{text}/"
        names = sorted((name for name in kept if name.startswith(prefix)), key=_natural)
        return {name.removeprefix(prefix): kept[name] for name in names}


def _labels(path: Path) -> tuple[dict[str, tuple[str, ...]], ...]:
    texts: Any = read_json(path)
    try:
        return tuple({axis: tuple(map(str, tokens)) for axis, tokens in each.items()} for each in texts)
    except (AttributeError, TypeError) as error:
        raise RegardError(f"{path} does not hold the labels of texts ({error}); copy it again") from error


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Layer 10 comes after layer 9."""
    parts = chain.from_iterable(part.split(".") for part in name.split("/"))
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
