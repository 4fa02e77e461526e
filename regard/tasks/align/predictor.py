"""A reward model, ready to use: a prompt and an answer in, a number out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.data.chat_batches import chat_batch, encode_chats, fitting_chats
from regard.data.config import ChatFormat
from regard.data.preferences import Preference
from regard.errors import UsageError
from regard.evaluate.bootstrap import Estimate
from regard.evaluate.preferences import win_rate
from regard.files import JSON
from regard.models.preference import RewardModel
from regard.predictor import Predictor, Result
from regard.tasks.align.judge import ROWS

LONGEST = 4096  # tokens, where positions reach any number


@dataclass(frozen=True)
class Rewarded(Result):
    """A prompt, an answer, and its reward. Only differences between answers to the same prompt mean something."""

    prompt: str
    answer: str
    reward: float

    def __repr__(self) -> str:
        return brief(self, quoted(self.prompt), quoted(self.answer), reward=self.reward)

    def data(self) -> dict[str, JSON]:
        return {"prompt": self.prompt, "answer": self.answer, "reward": self.reward}


class Rewarder(Predictor):
    """A trained reward model."""

    model: RewardModel

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.tokenizer = bundle.tokenizer
        self.form = bundle.config.chat or ChatFormat()

    @torch.inference_mode()
    def rewards(self, pairs: Sequence[tuple[str, str]]) -> list[Rewarded]:
        """The reward of each answer to its prompt."""
        encoded = encode_chats([(pair,) for pair in pairs], self.tokenizer, self.form)
        most = (self.config.model.longest or LONGEST) - 1
        if len(fitting_chats(encoded, most)[0]) < len(encoded):
            raise UsageError(f"an answer ends beyond the {most} tokens that the model reads", "give a shorter one")
        found: list[float] = []
        for start in range(0, len(encoded), ROWS):
            batch = chat_batch(encoded[start : start + ROWS], self.tokenizer.specials.pad).to(self.device)
            found += self.model.rewards(batch).double().tolist()
        return [Rewarded(*pair, reward) for pair, reward in zip(pairs, found, strict=True)]

    def accuracy(self, pairs: Sequence[Preference]) -> Estimate:
        """How often the chosen answer has the greater reward, in percent."""
        chosen = self.rewards([(each.prompt, each.chosen) for each in pairs])
        rejected = self.rewards([(each.prompt, each.rejected) for each in pairs])
        return win_rate([each.reward for each in chosen], [each.reward for each in rejected])
