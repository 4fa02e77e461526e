"""A language model, or a reward model, that learns from preferences. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from regard.config import StrictConfig, Tables, merge
from regard.data.config import PreferencesConfig
from regard.decode.config import DecodeConfig
from regard.models.config import LlamaConfig, ModelConfig
from regard.tasks.config import RunConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig

Method = Literal["dpo", "ppo", "reward"]


class AlignMethod(StrictConfig):
    """How preferences are learned."""

    method: Method = Field("dpo", description="DPO on the pairs, PPO on a reward model, or only the reward model.")
    beta: float = Field(
        0.1, gt=0, description="DPO: how much the model may leave the one it starts from; less is more."
    )
    keep: float = Field(
        0.15,
        ge=0,
        description="Weight of the loss of chosen answers, a token, beside the method's; 0: DPO or PPO alone.",
    )
    reward: str | None = Field(
        None, description="PPO: the run of a reward model; without one it is learned from the same preferences first."
    )
    penalty: float = Field(0.05, ge=0, description="PPO: coefficient of the penalty for each nat, at first.")
    divergence: float = Field(
        4.0, ge=0, description="PPO: nats of an answer to which the coefficient adapts; 0: it stays as it is."
    )
    rollouts: int = Field(256, ge=2, description="PPO: answers written in each iteration.")
    passes: int = Field(2, ge=1, description="PPO: times that they are learned from.")
    minibatches: int = Field(4, ge=1, description="PPO: updates of each of these times.")
    clip: float = Field(0.2, gt=0, description="PPO: how far ratios and values may move before they are clipped.")
    value_weight: float = Field(0.5, gt=0, description="PPO: weight of the critic's loss.")
    discount: float = Field(1.0, gt=0, le=1, description="PPO: discount γ of later rewards.")
    decay: float = Field(0.95, ge=0, le=1, description="PPO: decay λ of generalised advantages.")
    context: int = Field(256, ge=8, description="Most tokens of a prompt and its answer; longer pairs are dropped.")
    longest: int = Field(48, ge=1, description="Most tokens of an answer that is written.")
    answers: int = Field(120, ge=1, description="Held-out prompts that are answered at each validation.")
    supervised_steps: int = Field(
        1000, ge=1, description="Updates of the supervised model, where a run starts from none."
    )
    reward_steps: int = Field(600, ge=1, description="Updates of the reward model, where PPO is given none.")


class AlignConfig(RunConfig):
    """A language model, or a reward model, that learns from preferences."""

    size: ClassVar[str] = "demo"

    task: Literal["align"] = "align"
    data: PreferencesConfig = PreferencesConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = LlamaConfig()
    train: TrainConfig = TrainConfig()
    align: AlignMethod = AlignMethod()
    decode: DecodeConfig = DecodeConfig()

    defaults: ClassVar[Tables] = {
        "tokens": {"size": 1024},
        "train": {
            "steps": 500,
            "optimiser": "adam",
            "lr": 6e-4,
            "schedule": "linear",
            "warmup": 20,
            "betas": (0.9, 0.99),
            "smoothing": 0.0,
            "average": 0,
            "patience": 0,
            "batch_tokens": 4096,
            "validate_every": 100,
            "log_every": 10,
            "precision": "float32",  # bf16 blurs what two models differ in
        },
        "decode": {"sample": True, "temperature": 1.0, "top_p": 1.0, "max_length": 48},
    }
    # Laid over the defaults, by the method.
    by_method: ClassVar[dict[str, Tables]] = {
        "dpo": {},
        "ppo": {
            "train": {"steps": 400, "lr": 3e-4, "warmup": 10, "validate_every": 40, "log_every": 8},
        },
        "reward": {"train": {"steps": 600, "lr": 1e-3}},
    }

    @classmethod
    def defaults_for(cls, values: Tables) -> Tables:
        """The defaults of the method."""
        method = values.get("align", {})
        named = method.get("method", "dpo") if isinstance(method, dict) else "dpo"
        return merge(cls.defaults, cls.by_method.get(named, {}))
