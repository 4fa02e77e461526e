"""Pairs of answers as ids, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import PreferenceBatch
from regard.data.batches import padding_of, plan_by_length
from regard.data.chat_batches import EncodedChat, chat_batch, encode_chats
from regard.data.config import ChatFormat
from regard.data.preferences import Preference
from regard.errors import RegardError
from regard.tokens import TextTokenizer


@dataclass(frozen=True, eq=False)
class EncodedPreferences:
    """Pairs as ids, and, once they are known, the log-probabilities of both answers by the model that is gone on from."""

    chosen: Sequence[EncodedChat]
    rejected: Sequence[EncodedChat]
    fill: int
    reference: np.ndarray | None = None  # (N, 2)

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens to predict of the longer row of each pair: (N,)."""
        both = zip(self.chosen, self.rejected, strict=True)
        return np.array([max(len(one.ids), len(other.ids)) - 1 for one, other in both])

    def take(self, rows: Sequence[int] | np.ndarray) -> PreferenceBatch:
        every = [side[row] for side in (self.chosen, self.rejected) for row in rows]
        found = chat_batch(every, self.fill)
        assert found.learned is not None
        return PreferenceBatch(found.ids, found.lengths, found.learned, self._known(rows))

    def _known(self, rows: Sequence[int] | np.ndarray) -> Tensor | None:
        if self.reference is None:
            return None
        return torch.from_numpy(self.reference[np.asarray(rows, dtype=np.int64)].T.flatten())


def encode_preferences(
    pairs: Sequence[Preference], tokenizer: TextTokenizer, form: ChatFormat, most: int
) -> tuple[EncodedPreferences, tuple[str, ...]]:
    """Pairs as ids, without those of more than `most` tokens, which are counted in a note."""
    chosen = encode_chats([((each.prompt, each.chosen),) for each in pairs], tokenizer, form)
    rejected = encode_chats([((each.prompt, each.rejected),) for each in pairs], tokenizer, form)
    every = list(zip(chosen, rejected, strict=True))
    fitting = [pair for pair in every if max(len(each.ids) for each in pair) <= most + 1]
    if not fitting:
        raise RegardError(
            f"all {len(every):,} pairs have an answer that ends beyond {most} tokens", "give shorter ones"
        )
    dropped = len(every) - len(fitting)
    told = (f"dropped {dropped:,} of {len(every):,} pairs: more than {most} tokens",) if dropped else ()
    sides = tuple(zip(*fitting, strict=True))
    return EncodedPreferences(sides[0], sides[1], tokenizer.specials.pad), told


class PreferenceBatches:
    """`batches.get(epoch, index)`: pairs of like length, at most `batch_tokens` tokens of both answers with padding."""

    def __init__(self, pairs: EncodedPreferences, batch_tokens: int, seed: int) -> None:
        self.pairs, self.seed, self._lengths = pairs, seed, 2 * pairs.lengths
        self.budget = max(batch_tokens, int(self._lengths.max()))
        self.plan = lru_cache(maxsize=2)(self._plan)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> PreferenceBatch:
        return self.pairs.take(self.plan(epoch)[index])

    def padding_share(self) -> float:
        return padding_of(self.plan(0), self._lengths)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._lengths,), self._lengths, self.budget, (self.seed, epoch))
