"""The tokenizers of a translation model: one for both sides, or one each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from regard.tokens.config import TokensConfig
from regard.tokens.tokenizer import TextTokenizer, specials_beside, train_tokenizer

JOINT, SOURCE, TARGET = "tokenizer.json", "tokenizer.source.json", "tokenizer.target.json"


@dataclass(frozen=True)
class TokenizerPair:
    source: TextTokenizer
    target: TextTokenizer  # the same object when the vocabulary is joint

    @classmethod
    def train(cls, sources: Sequence[str], targets: Sequence[str], config: TokensConfig) -> TokenizerPair:
        if config.joint:
            both = train_tokenizer(chain(sources, targets), config)
            return cls(both, both)
        return cls(train_tokenizer(sources, config), train_tokenizer(targets, config))

    def save(self, folder: Path) -> list[str]:
        """Write the tokenizer files into `folder`; their names."""
        if self.source is self.target:
            self.source.save(folder / JOINT)
        else:
            self.source.save(folder / SOURCE)
            self.target.save(folder / TARGET)
        return self.files(folder)

    @staticmethod
    def files(folder: Path) -> list[str]:
        """Names of the files that `load` reads."""
        names = _names(folder)
        beside = [specials_beside(name).name for name in names]
        return [*names, *(name for name in beside if (folder / name).exists())]

    @classmethod
    def load(cls, folder: Path) -> TokenizerPair:
        loaded = [TextTokenizer.load(folder / name) for name in _names(folder)]
        return cls(loaded[0], loaded[-1])


def _names(folder: Path) -> list[str]:
    return [SOURCE, TARGET] if (folder / SOURCE).exists() else [JOINT]
