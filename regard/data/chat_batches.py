"""Chats as ids, of which only those of answers are learned, and batches of them.

Each turn is begin, prompt, answer, end, and all turns of a chat stand one after the other, as in LLaMA 2 (Touvron et al. 2023,
section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from regard.data.batch import TextBatch, pad
from regard.data.batches import generator, padding_of, plan_by_length
from regard.data.chats import Chat
from regard.data.config import ChatFormat
from regard.errors import RegardError
from regard.tokens import TextTokenizer


@dataclass(frozen=True)
class EncodedChat:
    """A chat as ids, and which of them are learned: those of answers, and their ends."""

    ids: np.ndarray  # (T,)
    learned: np.ndarray  # (T,), bool


def prompt_ids(tokenizer: TextTokenizer, chat: ChatFormat, prompt: str) -> list[int]:
    """The ids after which an answer follows, the begin token first."""
    return [tokenizer.specials.begin, *tokenizer.encode(f"{chat.before}{prompt}{chat.after}")]


def encode_chats(chats: Sequence[Chat], tokenizer: TextTokenizer, form: ChatFormat) -> list[EncodedChat]:
    """Chats as ids, all texts at once."""
    turns = [turn for chat in chats for turn in chat]
    asked = tokenizer.encode_all([f"{form.before}{prompt}{form.after}" for prompt, _ in turns])
    both = iter(zip(asked, tokenizer.encode_all([answer for _, answer in turns]), strict=True))
    return [_joined([next(both) for _ in chat], tokenizer) for chat in chats]


def _joined(turns: Sequence[tuple[list[int], list[int]]], tokenizer: TextTokenizer) -> EncodedChat:
    begin, end = tokenizer.specials.begin, tokenizer.specials.end
    ids = [[begin, *prompt, *answer, end] for prompt, answer in turns]
    learned = [[False] * (1 + len(prompt)) + [True] * (len(answer) + 1) for prompt, answer in turns]
    return EncodedChat(np.concatenate(ids).astype(np.int64), np.concatenate(learned))


def fitting_chats(chats: Sequence[EncodedChat], most: int) -> tuple[list[EncodedChat], tuple[str, ...]]:
    """The chats of at most so many tokens, and how many are longer."""
    kept = [chat for chat in chats if len(chat.ids) <= most + 1]
    if not kept:
        raise RegardError(f"all {len(chats):,} chats have more than {most} tokens", "raise data.context")
    dropped = len(chats) - len(kept)
    told = f"dropped {dropped:,} of {len(chats):,} chats: more than data.context ({most}) tokens"
    return kept, (told,) if dropped else ()


def chat_batch(chats: Sequence[EncodedChat], fill: int) -> TextBatch:
    """A batch of chats, of which only answers count."""
    ids, lengths = pad([chat.ids for chat in chats], fill)
    learned, _ = pad([chat.learned for chat in chats], 0)
    count = sum(int(chat.learned[1:].sum()) for chat in chats)
    return TextBatch(ids, lengths - 1, count, learned=learned[:, 1:].to(torch.bool))


class ChatBatches:
    """`batches.get(epoch, index)`: chats of like length, at most `batch_tokens` of them with their padding."""

    def __init__(self, chats: Sequence[EncodedChat], fill: int, batch_tokens: int, seed: int) -> None:
        self.chats, self.fill, self.seed = chats, fill, seed
        self._lengths = np.array([len(chat.ids) - 1 for chat in chats])
        self.budget = max(batch_tokens, int(self._lengths.max()))
        self._plan = lru_cache(maxsize=2)(self._make_plan)

    def count(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def get(self, epoch: int, index: int) -> TextBatch:
        return chat_batch([self.chats[row] for row in self._plan(epoch)[index]], self.fill)

    def padding_share(self) -> float:
        return padding_of(self._plan(0), self._lengths)

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._lengths,), self._lengths, self.budget, (self.seed, epoch))


def first_prompts(chats: Sequence[Chat], most: int, seed: int = 0) -> list[str]:
    """Some different first prompts, the same each time."""
    every = list(dict.fromkeys(chat[0][0] for chat in chats))
    order = generator(seed).permutation(len(every))[:most]
    return [every[place] for place in order.tolist()]
