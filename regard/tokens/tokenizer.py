"""Text <-> ids. Files, standard input, Python and a server all take this one path.

Byte and byte-level BPE tokenizers give back any Unicode string exactly. Character tokenizers do for characters they
know. Word tokenizers put one space between tokens. A space is put before every text, so that a word has one token
whether it stands first or later (and is taken off again).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import Advice, RegardError, UsageError, Verb
from regard.files import read_json, write_json, write_text
from regard.tokens.config import TokensConfig
from regard.tokens.notes import WORDS
from regard.tokens.pixels import words_of_pixels
from regard.tokens.samples import LETTERS, SPLIT, labels_in

PAD, BEGIN, END, UNKNOWN = 0, 1, 2, 3
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
MASK = "[MASK]"
CODES = 0x200  # letters that `TextTokenizer.letters` knows

_BETWEEN = r"\n|[^\s]+"  # what stands between white space, and line ends
_SPLIT = {
    "type": "Split",
    "pattern": {"Regex": _BETWEEN},
    "behavior": "Removed",
    "invert": True,
}  # as it is written down

# What other people's tokenizers call the same things, the likeliest first.
NAMES: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<|endoftext|>", "</s>"),
    "begin": ("<s>", "[CLS]", "<|begin_of_text|>", "<|endoftext|>"),
    "end": ("</s>", "[SEP]", "<|end_of_text|>", "<|endoftext|>"),
    "unknown": ("<unk>", "[UNK]", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
}


@dataclass(frozen=True)
class Specials:
    """Ids that stand for no text. `mask` is None where a tokenizer has none."""

    pad: int
    begin: int
    end: int
    unknown: int
    mask: int | None
    also_end: tuple[int, ...] = ()  # other ids that end a text, which some models have

    @cached_property
    def all(self) -> frozenset[int]:
        return self.control | {self.unknown}

    @cached_property
    def control(self) -> frozenset[int]:
        """Those that no text may become: a text may hold what is unknown, and nothing else of these."""
        ids = (self.pad, self.begin, self.end, self.mask, *self.also_end)
        return frozenset(i for i in ids if i is not None)

    @cached_property
    def ends(self) -> frozenset[int]:
        """Every id that ends a text."""
        return frozenset((self.end, *self.also_end))


class TextTokenizer:
    """A trained tokenizer: `encode` gives ids without begin and end, `decode` takes them off."""

    def __init__(self, tokenizer: Tokenizer, specials: Specials | None = None) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True  # "</s>" typed by a person is text, not a command
        self.specials, self._told = specials or named_specials(tokenizer), specials is not None

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size()

    @property
    def last(self) -> int:
        """The greatest id; others' tokenizers may leave some out."""
        return max(self._tokenizer.get_vocab().values(), default=-1)

    def vocabulary(self, size: int) -> list[str]:
        """The tokens of ids 0 .. size - 1, no two alike; an id that no token has is named by its number."""
        tokens = [self._tokenizer.id_to_token(index) for index in range(size)]
        return [f"<no token {index}>" if token is None else token for index, token in enumerate(tokens)]

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):
            raise RegardError(
                "the text holds a lone surrogate, which is not Unicode text", "decode it as UTF-8"
            ) from None
        return [self._as_text(encoding.ids) for encoding in encodings]

    @cached_property
    def spaces(self) -> Literal["go", "stay"] | None:
        """Where a single space goes or stays when a text is cut into words whose ids together are those of the text.

        It goes, or it stays with the word behind it; None where such a cut may change the ids. This is known of tokenizers
        that cut there themselves: bytes of words (Radford et al. 2019), words, and pieces of words.
        """
        about = json.loads(self._tokenizer.to_str())
        normal, cutter = _steps(about["normalizer"], "normalizers"), about["pre_tokenizer"] or {}
        others = [step for step in normal if step["type"] not in ("NFC", "Lowercase")]
        is_plain = about["model"].get("type") in ("BPE", "WordLevel", "WordPiece") and not about["model"].get("dropout")
        if (
            not is_plain
            or about["truncation"]
            or about["padding"]
            or any(not t["special"] for t in about["added_tokens"])
        ):
            return None
        if cutter.get("type") == "ByteLevel" and cutter["use_regex"] and not cutter["add_prefix_space"]:
            puts = [{"type": "Prepend", "prepend": " "}]
            return "go" if others == puts and normal[-1:] == puts else None if others else "stay"
        by_words = cutter.get("type") in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer") or cutter == _SPLIT
        return "go" if by_words and not others else None

    @cached_property
    def letters(self) -> np.ndarray | None:
        """The id of each letter by its code, where each letter of a text is a token, but for labels in brackets; else None."""
        about = json.loads(self._tokenizer.to_str())
        splits = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
        if about["pre_tokenizer"] != splits or about["normalizer"] or about["model"].get("type") != "WordLevel":
            return None
        found = np.full(CODES, self.specials.unknown, dtype=np.uint32)
        for letter, index in about["model"]["vocab"].items():
            if len(letter) == 1 and ord(letter) < CODES:
                found[ord(letter)] = index
        return found

    def encode_gaps(self, text: str) -> list[int]:
        """As `encode`, but a gap that a person marked, "Paris is the [MASK] of France", is the mask's id."""
        mask = self.specials.mask
        if mask is None:
            return self.encode(text)
        names = "|".join(re.escape(name) for name in (MASK, self._tokenizer.id_to_token(mask) or MASK))
        ids: list[int] = []
        for number, piece in enumerate(re.split(rf"\s*(?:{names})\s*", text)):
            ids += [mask] if number else []
            ids += self.encode(piece) if piece else []
        return ids

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Which characters of the text each id of `encode(text)` stands for."""
        found = self._tokenizer.encode(text, add_special_tokens=False)
        pairs = zip(found.ids, found.offsets, strict=True)
        return [span for index, span in pairs for _ in self._spelled.get(index, (index,))]

    def unknown_in(self, text: str) -> list[str]:
        """The pieces of a text that the vocabulary lacks, in the order of its unknown tokens in `encode(text)`."""
        ids = self.encode(text)
        if self.specials.unknown not in ids:
            return []
        pairs = zip(ids, self.spans(text), strict=True)
        return [text[start:end] for index, (start, end) in pairs if index == self.specials.unknown]

    def _as_text(self, ids: list[int]) -> list[int]:
        """The ids with what a text spelled of control tokens as text; most texts have nothing of the kind."""
        spelled = self._spelled
        if spelled.keys().isdisjoint(ids):
            return ids
        return [piece for index in ids for piece in spelled.get(index, (index,))]

    @cached_property
    def _spelled(self) -> dict[int, tuple[int, ...]]:
        """For each control token, the ids of its name as text: where a vocabulary has the name, a text can hit upon it.

        That is so for words between spaces, for unigrams, for merges that make the name, and for added tokens that are
        not marked as special. A vocabulary of words does not know the name; others write it letter by letter.
        """
        model, unknown = self._tokenizer.model, self.specials.unknown
        marked = {index for index, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        control = (marked | self.specials.all) - ({unknown} - self.specials.control)
        instead = () if unknown in control else (unknown,)
        found: dict[int, tuple[int, ...]] = {}
        for index in control:
            name = self._tokenizer.id_to_token(index) or ""
            if isinstance(model, models.WordLevel) or name == getattr(model, "unk_token", None):
                found[index] = instead
                continue
            letters = [_LETTER_OF[byte] for byte in name.encode()] if self._bytes else list(name)
            pieces = (token.id for letter in letters for token in model.tokenize(letter))
            found[index] = tuple(piece for piece in pieces if piece not in control) or instead
        return found

    def decode(self, ids: Iterable[int]) -> str:
        hidden = self.specials.all
        return self._tokenizer.decode([int(i) for i in ids if int(i) not in hidden], skip_special_tokens=False)

    def labels(self, ids: Iterable[int]) -> list[str]:
        """The label of each id for a person: its text, or its name if it is special.

        Of a letter that is split over several ids, the first has the letter and the others have nothing.
        """
        return _whole([self._label(int(i)) for i in ids])

    def _label(self, index: int) -> str | bytes:
        """The text of an id, or its bytes where they are not yet letters."""
        token = self._tokenizer.id_to_token(index) or ""
        return token if index in self.specials.all or not self._bytes else _of_bytes(token)

    @cached_property
    def _bytes(self) -> bool:
        """Whether tokens are written with one printable character for each byte."""
        return isinstance(self._tokenizer.decoder, decoders.ByteLevel | decoders.Sequence) and (
            "ByteLevel" in repr(self._tokenizer.decoder)
        )

    def save(self, path: str | Path) -> Path:
        """Write the tokenizer, and beside it its special ids if they were told and not read from their names."""
        if self._told:
            write_json(specials_beside(path), asdict(self.specials))
        return write_text(path, self.text)

    @property
    def text(self) -> str:
        """The tokenizer as the library writes it down."""
        return self._tokenizer.to_str(pretty=False)

    @classmethod
    def of(cls, text: str) -> TextTokenizer:
        """The tokenizer that has this `text`, with the special ids that their names tell."""
        return cls(Tokenizer.from_str(text))

    @classmethod
    def load(cls, path: str | Path) -> TextTokenizer:
        try:
            return cls(Tokenizer.from_str(Path(path).read_text(encoding="utf-8")), _stored_specials(path))
        except RegardError:
            raise
        except FileNotFoundError as error:
            raise RegardError(f"there is no {path}", "the bundle is not whole, copy it again") from error
        except Exception as error:  # the library raises a bare Exception for any malformed file
            raise RegardError(f"{path} is not a tokenizer ({error})", "copy the bundle again") from error


def as_read(labels: Sequence[str]) -> tuple[str, ...]:
    """The pieces of any tokenizer as a person reads them: "Ġman" and "▁man" are " man", bytes are their letters.

    Pieces are of bytes if one of them begins with a space or a new line in that writing, and all together are text.
    """
    if any(label.startswith("▁") for label in labels):
        return tuple(label.replace("▁", " ") for label in labels)
    plain = [label for label in labels if all(character in _BYTE_OF for character in label)]
    text = bytes(_BYTE_OF[character] for character in "".join(plain)).decode("utf-8", errors="replace")
    if not any(label.startswith(("Ġ", "Ċ")) for label in plain) or re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        return tuple(labels)
    return tuple(_whole([_of_bytes(label) for label in labels]))


def _of_bytes(token: str) -> str | bytes:
    """A token that is written with one printable character for each byte: its text, or its bytes if they are none yet."""
    if not all(character in _BYTE_OF for character in token):
        return token  # an added token
    data = bytes(_BYTE_OF[character] for character in token)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _whole(pieces: Sequence[str | bytes]) -> list[str]:
    """Labels of pieces; of a letter that is split over several, the first has the letter and the others have nothing."""
    shown: list[str] = []
    for place, label in enumerate(pieces):
        if len(shown) > place:  # a part of the letter before
            continue
        shown += [label] if isinstance(label, str) else _letters(pieces[place:])
    return shown


def _letters(pieces: Sequence[str | bytes]) -> list[str]:
    """The labels of the first pieces that together are whole letters: the letters, then nothing for each of the others."""
    data = b""
    for count, piece in enumerate(pieces, start=1):
        data += piece.encode() if isinstance(piece, str) else piece
        try:
            return [data.decode("utf-8"), *[""] * (count - 1)]
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                break
    first = pieces[0]
    return [first if isinstance(first, str) else first.decode("utf-8", errors="replace")]


def train_tokenizer(texts: Iterable[str], config: TokensConfig, *, mask: bool = False) -> TextTokenizer:
    """A tokenizer of the configured kind, made from `texts` in seconds; with `mask`, one that can mark gaps."""
    makers: dict[str, Callable[[TokensConfig], tuple[Tokenizer, trainers.Trainer | None]]] = {
        "bpe": _bpe,
        "byte": _byte,
        "character": _character,
        "word": _word,
        "space": _space,
        "wordpiece": _wordpiece,
        "notes": _notes,
    }
    if config.kind == "samples":
        return TextTokenizer(_letters_of([*LETTERS, *labels_in(texts)]))
    if config.kind == "pixels":
        return TextTokenizer(_letters_of(words_of_pixels(config.levels or 2, texts)))
    if config.kind not in makers:
        raise UsageError(
            f"tokens.kind {config.kind} cannot be trained", Advice("it comes with a model: ", Verb("import"))
        )
    tokenizer, trainer = makers[config.kind](config)
    if config.kind == "space":  # such corpora write <unk> themselves
        texts = _without_names(texts, tokenizer.normalizer)
    if trainer is not None:
        tokenizer.train_from_iterator(texts, trainer=trainer)
    if mask:
        tokenizer.add_special_tokens([AddedToken(MASK, lstrip=True, rstrip=True, special=True)])
    return TextTokenizer(tokenizer)


def _without_names(texts: Iterable[str], normalizer: normalizers.Normalizer | None) -> Iterable[str]:
    """The texts without words that are called as special tokens are: a trainer that counts one gives it a second id."""
    names = re.compile(rf"(?<!\S)(?:{'|'.join(map(re.escape, (*SPECIAL, MASK)))})(?!\S)")
    for text in texts:
        normal = text if normalizer is None else normalizer.normalize_str(text)
        yield names.sub("", normal) if names.search(normal) else text


def specials_beside(path: str | Path) -> Path:
    """The file of a tokenizer's special ids, where it has one."""
    return Path(path).with_suffix(".specials.json")


def _stored_specials(path: str | Path) -> Specials | None:
    beside = specials_beside(path)
    if not beside.exists():
        return None
    try:
        values = read_json(beside)
        return Specials(**{**values, "also_end": tuple(values["also_end"])})
    except (KeyError, TypeError) as error:
        raise RegardError(f"{beside} does not hold the special ids of a tokenizer", "copy the bundle again") from error


def named_specials(tokenizer: Tokenizer) -> Specials:
    """Find the special tokens of a tokenizer by the names that are usual."""
    return specials_of({role: named_special(tokenizer, role) for role in NAMES})


def named_special(tokenizer: Tokenizer, role: str) -> int | None:
    found = (tokenizer.token_to_id(name) for name in NAMES[role])
    return next((index for index in found if index is not None), None)


def specials_of(ids: Mapping[str, int | None], also_end: tuple[int, ...] = ()) -> Specials:
    """The ids of the roles that a tokenizer has; for one that it has not, the next best."""
    begin = ids["end"] if ids["begin"] is None else ids["begin"]
    if begin is None:
        raise RegardError("the tokenizer has no token that begins or ends a text (such as <s>, [CLS], <|endoftext|>)")
    end = begin if ids["end"] is None else ids["end"]
    pad, unknown = (end if ids[role] is None else ids[role] for role in ("pad", "unknown"))
    assert pad is not None and unknown is not None
    return Specials(pad, begin, end, unknown, ids["mask"], also_end)


def as_arrays(sequences: Sequence[Sequence[int]], *, begin: bool) -> list[np.ndarray]:
    """Each sequence as an array with its end token, and its begin token if asked."""
    head = [BEGIN] if begin else []
    return [np.array([*head, *sequence, END], dtype=np.int32) for sequence in sequences]


def _bpe(config: TokensConfig) -> tuple[Tokenizer, trainers.Trainer]:
    """Byte-level BPE (Sennrich et al. 2016; Radford et al. 2019). Merges stay inside a word and its leading space."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.normalizer = _normalizer(config, prepend=True)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = _byte_decoder()
    trainer = trainers.BpeTrainer(
        vocab_size=max(config.size, len(SPECIAL) + 256),
        min_frequency=config.min_count,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    return tokenizer, trainer


def _byte(config: TokensConfig) -> tuple[Tokenizer, None]:
    """One token for each byte of UTF-8: a BPE that has no merges."""
    names = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=[]))
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.normalizer = _normalizer(config, prepend=False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel()])
    return tokenizer, None


def _character(config: TokensConfig) -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL[UNKNOWN]))
    tokenizer.normalizer = _normalizer(config, prepend=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer, trainers.WordLevelTrainer(special_tokens=list(SPECIAL), show_progress=False)


def _word(config: TokensConfig) -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL[UNKNOWN]))
    tokenizer.normalizer = _normalizer(config, prepend=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # \w+ or a run of punctuation
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.size, min_frequency=config.min_count, special_tokens=list(SPECIAL), show_progress=False
    )
    return tokenizer, trainer


def _space(config: TokensConfig) -> tuple[Tokenizer, trainers.Trainer]:
    """Split at white space, as in corpora that were tokenized before; a line end is a token of its own."""
    tokenizer, trainer = _word(config)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_BETWEEN), behavior="removed", invert=True)
    return tokenizer, trainer


def _wordpiece(config: TokensConfig) -> tuple[Tokenizer, trainers.Trainer]:
    """Words and pieces of words that begin with ## (Schuster & Nakajima 2012; Devlin et al. 2019)."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIAL[UNKNOWN]))
    tokenizer.normalizer = _normalizer(config, prepend=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.size,
        min_frequency=config.min_count,
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    return tokenizer, trainer


def _notes(config: TokensConfig) -> tuple[Tokenizer, None]:
    """The words of `notes.py`, all of them, whatever the training pieces have."""
    tokenizer = _of_words([*SPECIAL, *WORDS])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer, None


def _letters_of(words: Sequence[str]) -> Tokenizer:
    """The letters of `samples.py` or `pixels.py`, each a token, and behind them labels in brackets."""
    tokenizer = _of_words([*SPECIAL, *words])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _of_words(words: Sequence[str]) -> Tokenizer:
    """A tokenizer that knows these words, numbered in their order."""
    vocabulary = {word: number for number, word in enumerate(words)}
    return Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[UNKNOWN]))


def _normalizer(config: TokensConfig, *, prepend: bool) -> normalizers.Normalizer | None:
    steps: list[normalizers.Normalizer] = []
    if config.normalise != "none":
        steps.append(normalizers.NFC() if config.normalise == "nfc" else normalizers.NFKC())
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    if prepend:
        steps.append(normalizers.Prepend(" "))
    return normalizers.Sequence(steps) if steps else None


def _byte_decoder() -> decoders.Decoder:
    return decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])


def _byte_table() -> dict[str, int]:
    """The printable character that byte-level tokenizers write for each byte (Radford et al. 2019), turned round."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def _steps(part: dict[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    """The steps of a part of a tokenizer as the library writes it down: none, itself, or those of a sequence."""
    return [] if part is None else part.get(inside, [part])


_BYTE_OF = _byte_table()
_LETTER_OF = {byte: letter for letter, byte in _BYTE_OF.items()}
