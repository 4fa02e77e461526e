"""Text that is being written, cut into pieces as it becomes certain: whole letters, up to the first stop string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import UsageError
from regard.files import JSON
from regard.predictor import Result
from regard.tokens import TextTokenizer

NEAR = 8  # tokens that are enough to know how the next one is decoded
NO_LETTER = "\ufffd"  # what decoding puts for bytes that are no UTF-8


@dataclass(frozen=True)
class TextPiece(Result):
    """A piece of a text that is being written: what has just become certain of it."""

    text: str
    tokens: int  # written so far
    token_log_probabilities: tuple[float, ...] = ()  # of those that are new since the piece before

    def data(self) -> dict[str, JSON]:
        new: list[JSON] = [*self.token_log_probabilities]
        return {"text": self.text, "token_count": self.tokens, "token_log_probabilities": new}


def added(tokenizer: TextTokenizer, prompt: Sequence[int], new: Sequence[int]) -> str:
    """The text that new ids add behind a prompt's: decoding may join both, as where a letter is split over tokens.

    Bytes that are no letter, or not yet one, are left out: what more ids add only ever comes behind.
    """
    before, whole = (tokenizer.decode(ids).replace(NO_LETTER, "") for ids in (prompt, [*prompt, *new]))
    return whole[len(before) :]


def check_stop(stop: Sequence[str]) -> None:
    if not all(stop):
        raise UsageError("an empty stop string ends every text before it begins; leave it out")


def before_stop(text: str, stop: Sequence[str]) -> str:
    """The text up to the first stop string in it."""
    places = [place for each in stop if (place := text.find(each)) >= 0]
    return text[: min(places)] if places else text


class Pieces:
    """Cuts new text into pieces as it becomes certain: whole letters, and nothing that may begin a stop string."""

    def __init__(self, tokenizer: TextTokenizer, prompt: list[int], stop: Sequence[str]) -> None:
        self.tokenizer, self.prompt, self.stop = tokenizer, prompt, stop
        self.given, self.told = 0, 0  # characters that were handed out, and tokens

    def certain(self, ids: list[int], log_probabilities: Sequence[float]) -> TextPiece | None:
        """The text that the newest of all new ids made certain."""
        text = added(self.tokenizer, self.prompt, ids)
        certain = len(text)
        for each in self.stop:
            certain = min([certain, *(len(text) - n for n in range(1, len(each)) if text.endswith(each[:n]))])
        return self.rest(text[:certain], log_probabilities)

    def rest(self, text: str, log_probabilities: Sequence[float]) -> TextPiece | None:
        """The part of a text that is certain and was not yet handed out, with the tokens since the part before."""
        piece, self.given = text[self.given :], max(self.given, len(text))
        if not piece:
            return None
        new, self.told = tuple(log_probabilities[self.told :]), len(log_probabilities)
        return TextPiece(piece, self.told, new)
