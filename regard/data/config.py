"""Where pairs and texts come from and which are left out. No torch here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from regard.config import StrictConfig, Tables, check
from regard.data.form import RATE, Form
from regard.errors import UsageError

_GENERATED = re.compile(r"builtin/([a-z-]+)(?:/([1-9]\d{0,4}))?(?:/(train|valid|test)(?:/([1-9]\d{0,4}))?)?")


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _numbered(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]  # a single name may stand without brackets
OldData = Annotated[
    tuple[str, ...] | Tables, BeforeValidator(_listed)
]  # names, or a table like the one of the new data
OLD = (
    "Fine-tuning: what the model learned from before, to mix in; files, or a table of data. By default that of its run."
)
MIX = "Fine-tuning: share of the training batches that come from data.old."
Column = Annotated[str, BeforeValidator(_numbered), Field(min_length=1)]  # a name, or a number from 1


@dataclass(frozen=True)
class GeneratedData:
    """A built-in set that is made as it is needed, as a person names it: builtin/TASK[/MOST][/SPLIT[/LENGTH]].

    MOST is how long its texts become; LENGTH how long those of this split are, so that a test may be longer.
    """

    task: str
    most: int
    split: str | None
    length: int | None


def generated(name: str, most: dict[str, int]) -> GeneratedData:
    """Read the name of a generated set. `most` has the length of every task where the name says none."""
    found = _GENERATED.fullmatch(name)
    if found is None or found[1] not in most:
        task = name.split("/")[1]
        task = task if task in most else next(iter(most))
        raise UsageError(
            f"{name} names no built-in set",
            f"write builtin/{task} or builtin/{task}/{most[task]} (how long, at most), and "
            f"for one of train, valid and test builtin/{task}/test or builtin/{task}/test/{2 * most[task]} (how long)",
        )
    return GeneratedData(
        found[1], int(found[2] or most[found[1]]), found[3], None if found[4] is None else int(found[4])
    )


class Corpus(StrictConfig):
    """A further corpus to learn from, which is read as data.train is."""

    train: Names = Field(min_length=1)
    weight: float = Field(1.0, gt=0)


class CorporaConfig(StrictConfig):
    """Several corpora, of which some come more often than others: corpus i in a share w_i · n_i^(1/T) of the batches.

    n_i is its size in batches, w_i its weight, and T the temperature (Devlin et al. 2019, of many languages).
    """

    also: tuple[Tables, ...] = Field(
        (),
        description='Further corpora to learn from beside data.train: tables such as {train = ["b.tsv"], weight = 0.5}.',
    )
    weight: float = Field(1.0, gt=0, description="Weight of data.train beside further corpora (data.also).")
    temperature: float = Field(
        1.0,
        ge=1,
        description="With data.also: 1, corpora come as often as they are large; the higher, the more evenly.",
    )

    @field_validator("also")
    @classmethod
    def _are_corpora(cls, value: tuple[Tables, ...]) -> tuple[Tables, ...]:
        return tuple(check(Corpus, each, "data.also").model_dump(mode="json") for each in value)

    @property
    def further(self) -> tuple[Corpus, ...]:
        return tuple(Corpus.model_validate(each) for each in self.also)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each corpus, data.train first."""
        return (self.weight, *(each.weight for each in self.further))


class ChatFormat(StrictConfig):
    """How a prompt and its answer become one text; both are encoded apart, so that an answer's tokens are its own."""

    before: str = Field("", description="Text before a prompt.")
    after: str = Field("\n", description="Text between a prompt and its answer.")


class PairsConfig(CorporaConfig):
    """Pairs of texts. A set is one file of pairs (.tsv, .csv, .jsonl, .tmx, .parquet), two parallel files, or a folder or
    .zip with one of these; each may be gzipped.
    """

    train: tuple[str, ...] = Field(
        ("builtin/dates",),
        min_length=1,
        description="Training pairs: one file, two, or builtin/dates, spanish, copy, recall, addition.",
    )
    valid: tuple[str, ...] = Field(
        (), description="Validation pairs; without them some of the training pairs are held out."
    )
    test: tuple[str, ...] = Field((), description="Test pairs, only looked at to warn when training holds them.")
    fields: tuple[Column, Column] = Field(
        ("source", "target"), description="Columns (or keys in JSONL) of source and target, by name or number from 1."
    )
    languages: tuple[str, str] | None = Field(
        None,
        description="Language codes of source and target, such as en, de; they find sides of .tmx, files in folders.",
    )
    hold_out: int = Field(1000, ge=1, description="Most pairs held out for validation when there is no valid set.")
    max_length: int = Field(
        256, ge=2, description="Longest side of a training pair, in tokens; longer pairs are dropped."
    )
    max_ratio: float = Field(
        9.0, ge=1, description="Largest ratio of the two lengths in tokens, for pairs over 10 tokens."
    )
    builtin_size: int = Field(40_000, ge=1, description="Training pairs generated for built-in sets.")
    old: OldData = Field((), description=OLD)
    mix: float = Field(0.5, ge=0, lt=1, description=MIX)

    @field_validator("train", "valid", "test", mode="before")
    @classmethod
    def _one_or_two(cls, value: object) -> object:
        names = (value,) if isinstance(value, str) else value
        if isinstance(names, (list, tuple)) and len(names) > 2:
            raise ValueError(f"name one file of pairs or two parallel files, not {len(names)}")
        return names


class TextConfig(CorporaConfig):
    """Documents of text: files, folders of them, .jsonl with a text a row (each may be gzipped), or built-in ones.

    Files of music (.mid), sound (.wav) and pictures, and folders of them, are read as texts of notes, samples and pixels.
    """

    train: Names = Field(
        ("builtin/python",),
        min_length=1,
        description="Files, folders, or builtin/python, sentences; canon, scales, cadences; tones, chords; figures.",
    )
    valid: Names = Field((), description="Validation text; without it some of the training text is held out.")
    field: str = Field("text", description="Key of the text in JSONL.")
    share: float = Field(
        0.1, gt=0, lt=1, description="Share of the characters held out for validation when there is no valid text."
    )
    builtin_size: int = Field(4_000_000, ge=1, description="Most characters taken of built-in texts.")
    rate: int = Field(RATE, ge=100, le=192_000, description="Samples a second at which sounds are read.")
    side: int | None = Field(
        None,
        ge=4,
        le=96,
        description="Pixels of height and width of pictures; without, those of the data if they are small.",
    )
    levels: int = Field(
        2, ge=2, le=16, description="Grey levels of a pixel; 2: each is drawn once, white with probability grey / 255."
    )
    context: int = Field(256, ge=1, description="Tokens that are predicted in a window of training text.")
    chats: bool = Field(False, description="Chats, of which only answers are learned; found by the data themselves.")
    chat: ChatFormat = ChatFormat()
    old: OldData = Field((), description=OLD)
    mix: float = Field(0.5, ge=0, lt=1, description=MIX)

    @property
    def form(self) -> Form:
        """How finely files that are no text are read."""
        return Form(self.rate, self.side, self.levels)


class LabelledConfig(CorporaConfig):
    """Texts with a label each: .tsv, .csv, .jsonl (each may be gzipped), a folder for each label, or built-in ones."""

    train: Names = Field(
        ("builtin/names",),
        min_length=1,
        description="Labelled training texts: files, folders, builtin/names, or builtin/listops.",
    )
    valid: Names = Field((), description="Validation texts; without them some of the training texts are held out.")
    test: Names = Field((), description="Test texts, only looked at to warn when training holds them.")
    text: Column = Field(
        "text", description="Column (or key in JSONL) of the text, by name or number from 1; text: as usually called."
    )
    label: Column = Field("label", description="Column (or key) of the label, likewise.")
    second: Column | None = Field(None, description="Column (or key) of the second text, if the label is of a pair.")
    heads: str = Field("heads", description="Key in JSONL of a text's tree, where it has one: the head of each word.")
    label_first: bool = Field(
        False,
        description="Whether the label is the first column (or word) and not the last, where columns have no names.",
    )
    encoding: Literal["utf-8", "latin1", "cp1252"] = Field(
        "utf-8", description="How .tsv, .csv and plain files are encoded; JSONL is always UTF-8."
    )
    hold_out: int = Field(1000, ge=1, description="Most texts held out for validation when there is no valid set.")
    max_length: int = Field(256, ge=2, description="Longest text, in tokens; of longer ones the first tokens are kept.")
    builtin_size: int = Field(20_000, ge=1, description="Training texts generated for builtin/listops.")


class PreferencesConfig(StrictConfig):
    """Prompts with two answers each, of which people, or a rule, chose one."""

    train: Names = Field(
        ("builtin/preferences",), min_length=1, description="Training pairs: .jsonl files, or builtin/preferences."
    )
    valid: Names = Field((), description="Validation pairs; without them some prompts of training are held out.")
    test: Names = Field((), description="Test pairs, for the person's own notes; training never reads them.")
    hold_out: int = Field(500, ge=1, description="Most pairs held out for validation when there is no valid set.")
    builtin_size: int = Field(12_000, ge=1, description="Training pairs generated for builtin/preferences.")
    noise: float = Field(0.1, ge=0, le=0.5, description="Share of the built-in pairs that are the wrong way round.")


class StoriesConfig(StrictConfig):
    """Stories with questions: bAbI's files, folders of them, JSON Lines, or built-in ones."""

    train: Names = Field(
        ("builtin/stories",), min_length=1, description="Training stories: files, folders of bAbI, or builtin/stories."
    )
    valid: Names = Field((), description="Validation stories; without them some of the training stories are held out.")
    test: Names = Field((), description="Test stories, for the person's own notes; training never reads them.")
    hold_out: int = Field(1000, ge=1, description="Most questions held out for validation when there is no valid set.")
    builtin_size: int = Field(240_000, ge=1, description="Training questions generated for builtin/stories.")
    max_sentences: int = Field(50, ge=1, description="Sentences of a story that are kept: the last ones.")
    mixed: bool = Field(
        False,
        description="Batches of stories of any length, so that different tasks meet in them; else of like length.",
    )


class BitsConfig(StrictConfig):
    """Sequences of bits to remember: drawn anew for every batch, all of one batch equally long."""

    train: Names = Field(
        ("builtin/copy-bits",),
        min_length=1,
        max_length=1,
        description="builtin/copy-bits, repeat-bits, recall-bits, parity-bits or sum-bits, and how long: builtin/copy-bits/20.",
    )
    valid: Names = Field(
        (),
        max_length=1,
        description="Sequences to validate on, as builtin/copy-bits/valid/20; by default as in training.",
    )
    width: int = Field(8, ge=1, description="Bits of a step.")
    size: int = Field(10_000, ge=1, description="Sequences of an epoch.")
    batch: int = Field(16, ge=1, description="Sequences of a batch.")


class TablesConfig(StrictConfig):
    """Tables with questions whose answers can be computed: JSON Lines, or built-in ones."""

    train: Names = Field(
        ("builtin/tables",),
        min_length=1,
        description="Training questions: .jsonl files, or builtin/tables; builtin/tables/2 has two operations at most.",
    )
    valid: Names = Field((), description="Validation questions; without them some tables of training are held out.")
    test: Names = Field((), description="Test questions, for the person's own notes; training never reads them.")
    hold_out: int = Field(1000, ge=1, description="Most questions held out for validation when there is no valid set.")
    builtin_size: int = Field(10_000, ge=1, description="Training questions generated for builtin/tables.")
