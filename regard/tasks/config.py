"""A whole run: what to do, with which data, tokens, model, training and decoding. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from regard.config import StrictConfig, check, from_assignments, merge, read_toml
from regard.data.config import LabelledConfig, PairsConfig, TextConfig
from regard.data.pictures.config import CaptionsConfig, PicturesConfig, QuestionsConfig, are_pictures
from regard.decode.config import DecodeConfig
from regard.errors import UsageError, nearest
from regard.models.config import (
    KINDS_OF,
    AnswererConfig,
    BertConfig,
    ConvNetConfig,
    LlamaConfig,
    ModelConfig,
    SelfAttentionConfig,
    ShowAttendTellConfig,
    TransformerConfig,
)
from regard.models.presets import preset
from regard.tasks.start import started_from
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig

BUILTIN = "builtin/names"
_A_KEY = {"model": "width", "train": "lr", "tokens": "size"}


class RunConfig(StrictConfig):
    """What the runs of all tasks share."""

    task: str
    data: PairsConfig | TextConfig | LabelledConfig | PicturesConfig | CaptionsConfig | QuestionsConfig
    tokens: TokensConfig | None
    model: ModelConfig
    train: TrainConfig
    start: str | None = Field(None, description="A run or bundle to go on from: its model, tokenizer and weights.")

    @model_validator(mode="after")
    def _kind_does_the_task(self) -> RunConfig:
        kinds = KINDS_OF[self.task]
        if self.model.kind not in kinds:
            raise ValueError(
                f"model.kind: {_article(self.model.kind)} {self.model.kind} does not {self.task}; {', '.join(kinds)} do"
            )
        return self

    @model_validator(mode="after")
    def _classes_have_weights(self) -> RunConfig:
        if self.train.class_weights is not None and self.task not in ("classify", "classify-pictures"):
            raise ValueError(f"train.class_weights: only classifiers have classes; leave it out to {self.task}")
        return self

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


class TextRunConfig(RunConfig):
    """What the runs of all tasks on text share."""

    probes: int | tuple[str, ...] = Field(
        2, description="Texts whose attention is kept at each validation: how many, or which (a tab between pairs)."
    )

    @field_validator("probes", mode="before")
    @classmethod
    def _probes_are_texts(cls, value: Any) -> Any:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise ValueError(f"{value}? say how many texts, 0 for none, or give the texts")
        return value


class ValidateConfig(StrictConfig):
    """What a validation of a translation model looks at besides the loss."""

    sentences: int = Field(500, ge=0, description="Validation sentences translated (greedily) for BLEU; 0 for none.")
    samples: int = Field(2, ge=0, description="Translations shown to the person.")
    bleu_tokenizer: Literal["auto", "13a", "char", "intl", "zh", "ja-mecab", "ko-mecab", "none"] = Field(
        "auto", description="How BLEU cuts words (sacreBLEU's names); auto: as the target language needs it."
    )


class TranslateConfig(TextRunConfig):
    """A translation model from pairs of texts."""

    task: Literal["translate"] = "translate"
    data: PairsConfig = PairsConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = TransformerConfig()
    train: TrainConfig = TrainConfig(select="bleu")
    validate_: ValidateConfig = Field(ValidateConfig(), alias="validate")
    decode: DecodeConfig = DecodeConfig()

    # Where a configuration says nothing else.
    defaults: ClassVar[dict[str, Any]] = {}


class GenerateConfig(TextRunConfig):
    """A language model from any text."""

    task: Literal["generate"] = "generate"
    data: TextConfig = TextConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = LlamaConfig()
    train: TrainConfig = TrainConfig()
    samples: int = Field(120, ge=0, description="Tokens of a sample shown at each validation; 0 for none.")
    decode: DecodeConfig = DecodeConfig()

    defaults: ClassVar[dict[str, Any]] = {
        "tokens": {"size": 4096},
        "train": {
            "steps": 3000,
            "optimiser": "muon",
            "lr": 1e-2,
            "schedule": "linear",
            "warmup": 50,
            "weight_decay": 0.1,
            "smoothing": 0.0,
            "average": 0,
        },
        "decode": {"sample": True, "temperature": 0.8, "top_p": 0.95, "max_length": 200},
    }


class FillConfig(TextRunConfig):
    """A model that fills gaps, from any text."""

    task: Literal["fill"] = "fill"
    data: TextConfig = TextConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = BertConfig()
    train: TrainConfig = TrainConfig()
    masked: float = Field(0.15, gt=0, lt=1, description="Share of the tokens that must be guessed.")

    defaults: ClassVar[dict[str, Any]] = {
        "data": {"context": 128},
        "tokens": {"size": 4096},
        "train": {
            "steps": 3000,
            "optimiser": "muon",
            "lr": 5e-3,
            "schedule": "linear",
            "warmup": 100,
            "weight_decay": 0.1,
            "smoothing": 0.0,
            "average": 0,
        },
    }

    @model_validator(mode="after")
    def _no_trees(self) -> FillConfig:
        if isinstance(self.model, BertConfig) and self.model.positions == "tree":
            raise ValueError("model.positions: plain text has no trees; tree positions are for task classify")
        return self


class ClassifyConfig(TextRunConfig):
    """A classifier from labelled texts."""

    task: Literal["classify"] = "classify"
    data: LabelledConfig = LabelledConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = SelfAttentionConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[dict[str, Any]] = {
        "train": {
            "steps": 2000,
            "lr": 2e-3,
            "schedule": "linear",
            "warmup": 50,
            "smoothing": 0.0,
            "average": 0,
            "select": "accuracy",
        },
    }


_SEEING: dict[str, Any] = {
    "steps": 2000,
    "lr": 2e-3,
    "schedule": "linear",
    "warmup": 100,
    "weight_decay": 0.05,
    "betas": (0.9, 0.99),
    "epsilon": 1e-8,
    "smoothing": 0.0,
    "average": 0,
}


class CaptionValidateConfig(StrictConfig):
    """What a validation of a captioner looks at besides the loss."""

    pictures: int = Field(200, ge=0, description="Validation pictures captioned (greedily) for BLEU-4; 0 for none.")
    samples: int = Field(2, ge=0, description="Captions shown to the person.")

    @model_validator(mode="before")
    @classmethod
    def _pictures_not_sentences(cls, values: Any) -> Any:
        if isinstance(values, dict) and "sentences" in values:
            raise ValueError("no key validate.sentences; what is captioned are pictures: validate.pictures")
        return values


class ClassifyPicturesConfig(RunConfig):
    """A classifier from labelled pictures."""

    task: Literal["classify-pictures"] = "classify-pictures"
    data: PicturesConfig = PicturesConfig()
    tokens: None = None
    model: ModelConfig = ConvNetConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[dict[str, Any]] = {"train": {**_SEEING, "batch_pictures": 128, "select": "accuracy"}}


class CaptionConfig(RunConfig):
    """A model that says what is in a picture."""

    task: Literal["caption"] = "caption"
    data: CaptionsConfig = CaptionsConfig()
    tokens: TokensConfig = TokensConfig(kind="word")
    model: ModelConfig = ShowAttendTellConfig()
    train: TrainConfig = TrainConfig()
    validate_: CaptionValidateConfig = Field(CaptionValidateConfig(), alias="validate")
    decode: DecodeConfig = DecodeConfig()

    defaults: ClassVar[dict[str, Any]] = {
        "tokens": {"kind": "word", "lowercase": True},
        "train": {**_SEEING, "steps": 3000, "batch_pictures": 32},
        "decode": {"max_length": 40},
    }


class AnswerConfig(RunConfig):
    """A model that answers questions about pictures."""

    task: Literal["answer"] = "answer"
    data: QuestionsConfig = QuestionsConfig()
    tokens: TokensConfig = TokensConfig(kind="word")
    model: ModelConfig = AnswererConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[dict[str, Any]] = {
        "tokens": {"kind": "word", "lowercase": True},
        "train": {**_SEEING, "steps": 3000, "batch_pictures": 32, "select": "accuracy"},
    }


RUNS: dict[str, type[RunConfig]] = {
    "translate": TranslateConfig,
    "generate": GenerateConfig,
    "fill": FillConfig,
    "classify": ClassifyConfig,
    "classify-pictures": ClassifyPicturesConfig,
    "caption": CaptionConfig,
    "answer": AnswerConfig,
}
TASKS = tuple(RUNS)


def run_config(
    what: str,
    over: dict[str, Any] | None = None,
    assignments: list[str] | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> RunConfig:
    """The configuration of a run: a task's name or a TOML file, laid over by options, then by `--set` assignments.

    `note` hears what was changed that nobody asked for.
    """
    values = merge(_named(what), over or {})
    values = _seeing(merge(values, from_assignments(assignments or [])))
    return check_run(_short_warmup(_filled(values, what), values, note), what)


def _article(name: str) -> str:
    return "an" if name[0] in "aeiou" else "a"


def task_named(what: str) -> str:
    """The task that a person names, or that of a TOML file."""
    return str(_named(what).get("task", "translate"))


def _named(what: str) -> dict[str, Any]:
    if what in TASKS:
        return {"task": what}
    if what.endswith(".toml"):
        return read_toml(what)
    if (task := next((task for task, kinds in KINDS_OF.items() if what in kinds), None)) is not None:
        raise UsageError(f"no task {what}; it is a kind of model: {task.partition('-')[0]} --model {what}")
    raise UsageError(f"no task {what}", f"{nearest(what, TASKS)} (or name a .toml file)")


def _seeing(values: dict[str, Any]) -> dict[str, Any]:
    """To classify is one word for texts and pictures: the model or the data tell which."""
    if values.get("task") != "classify":
        return values
    model, data = values.get("model", {}), values.get("data", {})
    kind = model.get("kind") if isinstance(model, dict) else None
    names = data.get("train", ()) if isinstance(data, dict) else ()
    names = (names,) if isinstance(names, str) else names
    sees = kind in KINDS_OF["classify-pictures"] or (kind is None and are_pictures(names))
    return {**values, "task": "classify-pictures"} if sees else values


def check_run(values: dict[str, Any], origin: str) -> RunConfig:
    """The configuration of the task that the values name."""
    return check(_kind_of_run(values, origin), values, origin)


def _kind_of_run(values: dict[str, Any], origin: str) -> type[RunConfig]:
    task = values.get("task", "translate")
    if task not in RUNS:
        raise UsageError(f"{origin}: no task {task}", nearest(str(task), TASKS))
    return RUNS[task]


def _filled(values: dict[str, Any], origin: str) -> dict[str, Any]:
    """The values with what they leave open: the task's defaults, the preset, or the model that the run starts from."""
    _check_tables(values, origin)
    values = {"task": "translate", **values}
    defaults = _kind_of_run(values, origin).defaults  # type: ignore[attr-defined]
    size, model = values.pop("preset", None), values.get("model", {})
    if values.get("start") is not None:
        if size is not None:
            raise UsageError(f"{origin}: start = {values['start']!r} brings its own model; leave out preset")
        return merge(defaults, merge(started_from(values["start"], values["task"]), values))
    if values["task"] == "classify" and values.get("data", {}).get("train", BUILTIN) in (BUILTIN, [BUILTIN]):
        defaults = merge(defaults, {"tokens": {"kind": "character"}})  # names are short: their letters tell
    kind = model.get("kind", KINDS_OF[values["task"]][0])
    values = merge(merge(defaults, {"model": preset(size or "tiny", kind)}), values)
    return _select_bleu(_separate(values)) if values["task"] == "translate" else values


def _short_warmup(values: dict[str, Any], asked: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """A warm-up that nobody asked for gives way in a run that is shorter than usual."""
    train = values.get("train", {})
    usual: int = TrainConfig.model_fields["warmup"].default
    steps, warmup = train.get("steps"), train.get("warmup", usual)
    if "warmup" in asked.get("train", {}) or not isinstance(steps, int) or not isinstance(warmup, int):
        return values
    if steps < 1:
        return values  # refused later, by its own name
    most = steps // 10 if "warmup" in train or warmup >= steps else warmup  # the task's own, or one that never ends
    if warmup <= most:
        return values
    note(f"train.warmup is {most}, not {warmup}, as there are only {steps:,} steps; --set train.warmup=N sets it")
    return merge(values, {"train": {"warmup": most}})


def _check_tables(values: dict[str, Any], origin: str) -> None:
    """What is looked into before the whole is checked."""
    for name in ("model", "train", "tokens"):
        if not isinstance(values.get(name, {}), dict):
            hint = f"set a key of it, such as {name}.{_A_KEY[name]}"
            raise UsageError(f"{origin}: {name} is a table, not {values[name]!r}; {hint}")
    for name in ("preset", "start"):
        if not isinstance(values.get(name, ""), str):
            raise UsageError(f"{origin}: {name} is a name, not {values[name]!r}")


def _select_bleu(values: dict[str, Any]) -> dict[str, Any]:
    """The best translations are kept; without any, only the loss can select."""
    validate = values.get("validate")
    translates = not (isinstance(validate, dict) and validate.get("sentences") == 0)
    return merge({"train": {"select": "bleu" if translates else "loss"}}, values)


def _separate(values: dict[str, Any]) -> dict[str, Any]:
    """Separate vocabularies cannot share the source's table: the default follows `tokens.joint`."""
    if values.get("tokens", {}).get("joint") is False and "tied" not in values["model"]:
        return merge(values, {"model": {"tied": "target"}})
    return values


def data_folder(what: str) -> Path | None:
    """Beside which folder data files are looked for: that of the configuration file."""
    return Path(what).resolve().parent if what.endswith(".toml") else None
