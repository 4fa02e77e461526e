"""How long and how fast to learn. No torch here."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from regard.config import StrictConfig

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: object) -> object:
    """A duration as a person writes it: 90, "90s", "30m", "1h30m"."""
    if not isinstance(text, str):
        return text
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text)
    if not parts or re.sub(r"(\d+(?:\.\d+)?)\s*([smhd]?)", "", text).strip():
        raise ValueError(f"{text!r} is not a duration; write 45s, 30m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _none(value: object) -> object:
    return None if value == "none" else value


Duration = Annotated[float, BeforeValidator(seconds)]
Parts = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
Share = Annotated[float, Field(ge=0, le=1)]
Weights = Annotated[dict[str, Annotated[float, Field(gt=0)]] | Literal["balanced"] | None, BeforeValidator(_none)]


class TrainConfig(StrictConfig):
    """The training loop: budget, optimiser, schedule, averaging, when to look and when to stop."""

    seed: int = Field(1, ge=0, description="Everything random is a pure function of it.")
    steps: int = Field(20_000, ge=1, description="Most updates of the weights.")
    max_time: Duration | None = Field(None, gt=0, description="Most training time, such as 30m (all resumes together).")
    epochs: float | None = Field(None, gt=0, description="Most passes over the training data.")
    budget: Duration | None = Field(
        None, gt=0, description="Time of the whole run by the clock, all of which is used: the schedule ends with it."
    )
    batch_tokens: int = Field(4096, ge=1, description="Tokens of a batch on its larger side, padding included.")
    batch_pictures: int = Field(64, ge=1, description="Pictures of a batch (or captions, or questions, each with one).")
    accumulate: int = Field(1, ge=1, description="Batches added up for one update.")

    lr: float = Field(2e-3, gt=0, description="Peak learning rate (for noam: a factor of the paper's formula).")
    schedule: Literal["noam", "inverse_sqrt", "cosine", "linear", "constant", "wsd"] = Field(
        "inverse_sqrt",
        description="The learning rate over time; noam is the paper's; wsd: warm-up, stable, decay, by the clock if there "
        "is a budget.",
    )
    fall: float = Field(0.5, gt=0, le=1, description="Share of the run in which the rate of wsd falls to zero.")
    warmup: int = Field(1000, ge=0, description="Updates during which the learning rate rises linearly.")
    last: float = Field(0.0, ge=0, le=1, description="Share of the peak rate that cosine and linear end at.")
    optimiser: Literal["adam", "muon", "sgd"] = Field(
        "adam",
        description="AdamW for everything, Muon for the matrices of the blocks and AdamW for the rest, or plain gradient "
        "descent.",
    )
    embedding_rate: float = Field(
        1.0, gt=0, description="Learning rate of embeddings and output layers as a multiple of the other weights'."
    )
    layer_decay: float = Field(1.0, gt=0, le=1, description="Learning rate of a layer as a share of the next one's.")
    freeze: Annotated[int, Field(ge=0)] | Parts = Field(
        0,
        description="What does not learn: so many layers from below (1 is the embeddings, 2 a block too), or parts by their "
        "names, such as encoder, decoder, embeddings.",
    )
    blend: Share | Literal["auto"] = Field(
        0.0,
        description="Fine-tuning: share of the old weights in the new ones at the end; auto: as little as keeps the old.",
    )
    betas: tuple[float, float] = Field((0.9, 0.98), description="Adam's two decay rates.")
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of matrices.")
    decay: Literal["decoupled", "l2"] = Field(
        "decoupled",
        description="Adam's weight decay: apart from the gradient (AdamW), or part of it (l2, as older papers).",
    )
    clip: float = Field(1.0, ge=0, description="Largest norm of the gradient; 0 for no limit.")
    smoothing: float = Field(0.1, ge=0, lt=1, description="Label smoothing.")
    class_weights: Weights = Field(
        None,
        description="How much each label counts in a classifier's loss: none (all alike), balanced (rare ones more), or a "
        "number for some labels.",
    )
    precision: Literal["auto", "float32", "tf32", "bf16", "fp16"] = Field(
        "auto",
        description="Of products: auto is bf16 where hardware has it; fp16 scales the loss; tf32 is float32 but on GPUs that "
        "have TF32.",
    )
    compile: bool | Literal["reduce-overhead"] = Field(
        False, description="Compile the blocks with torch.compile; reduce-overhead: as CUDA graphs, on a GPU."
    )
    prefetch: bool | Literal["auto"] = Field(
        "auto", description="Make the next batches in a thread while this update is computed; auto: on GPUs."
    )

    shard: bool = Field(
        False,
        description="Of several processes each holds a part of all weights and moments, for models that do not fit.",
    )

    recompute: bool = Field(
        False, description="Compute the inside of each block again for the gradient: less memory, a third more time."
    )

    ema: float = Field(0.0, ge=0, lt=1, description="Decay of a moving average of the weights; 0 for none.")
    average: int = Field(5, ge=0, description="Weights of the last N validations averaged at the end; 0 for none.")
    validate_every: int = Field(0, ge=0, description="Updates between validations; 0: about an epoch, 100 to 1000.")
    select: str = Field(
        "loss",
        description="The validation metric that says which weights are best; where it is within its error, the loss does.",
    )
    patience: int = Field(10, ge=0, description="Validations without a better one before stopping; 0: never stop.")
    log_every: int = Field(20, ge=1, description="Updates between rows of the log.")

    @model_validator(mode="after")
    def _warmup_within_steps(self) -> TrainConfig:
        if self.schedule in ("cosine", "linear", "wsd") and self.warmup >= self.steps:
            raise ValueError(f"warmup {self.warmup} is not shorter than steps {self.steps}; lower train.warmup")
        if self.budget is not None and self.schedule != "wsd":
            raise ValueError(f"budget: only schedule wsd goes by the clock, not {self.schedule}; set max_time or steps")
        return self
