"""The tokenizer of a Hugging Face folder, in and out: tokenizer.json, or the older vocab.txt, vocab.json and merges.txt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.bundle import Bundle
from regard.errors import RegardError
from regard.files import read_json, write_json, write_text
from regard.tokens import TextTokenizer

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>")
UNLIMITED = 10**30  # what transformers writes for "any length"


def read_tokenizer(folder: Path) -> Tokenizer:
    if (folder / "tokenizer.json").exists():
        tokenizer = _from_json(folder / "tokenizer.json")
    elif (folder / "vocab.txt").exists():
        tokenizer = _wordpiece(folder)
    elif (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        tokenizer = _byte_level(folder)
    else:
        raise RegardError(
            f"{folder} has no tokenizer that can be read: put its tokenizer.json there (or vocab.txt for BERT, vocab.json "
            "and merges.txt for GPT-2). From any other form: AutoTokenizer.from_pretrained(x).save_pretrained(folder)"
        )
    tokenizer.no_padding()  # some files cut every text, or fill it up, to one length
    tokenizer.no_truncation()
    return tokenizer


def write_tokenizer(bundle: Bundle, folder: Path) -> None:
    """tokenizer.json, with begin and end put around a text as the model saw it, and tokenizer_config.json."""
    text = bundle.tokenizer
    text.save(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    names: dict[str, Any] = _names(text)
    if tokenizer.post_processor is None:
        tokenizer.post_processor = _around(text, both=bundle.config.task == "fill")
        write_text(folder / "tokenizer.json", tokenizer.to_str())
    if bundle.config.task == "fill":
        inputs = ["input_ids", "token_type_ids", "attention_mask"]  # which text of two a token belongs to, too
        names |= {"cls_token": names["bos_token"], "sep_token": names["eos_token"], "model_input_names": inputs}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": _longest(bundle), **names}
    write_json(folder / "tokenizer_config.json", config)


def _from_json(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises a bare Exception for any malformed file
        raise RegardError(f"{path} is not a tokenizer ({error}); copy it again") from error


def _wordpiece(folder: Path) -> Tokenizer:
    """BERT's: words and pieces of words, one a line in the order of their ids (Devlin et al. 2019)."""
    path = folder / "vocab.txt"
    lines = _text(path).removesuffix("\n").split("\n")
    ids = {token: number for number, token in enumerate(lines)}
    if len(ids) != len(lines) or "[UNK]" not in ids:
        raise RegardError(f"{path} names a token twice, or has no [UNK]; copy it again")
    told = _settings(folder)
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(told.get("tokenize_chinese_chars", True)),
        strip_accents=told.get("strip_accents"),
        lowercase=bool(told.get("do_lower_case", True)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.add_special_tokens([name for name in SPECIALS if name in ids])
    tokenizer.post_processor = _around(TextTokenizer(tokenizer), both=True)
    return tokenizer


def _byte_level(folder: Path) -> Tokenizer:
    """GPT-2's: byte-level BPE, its merges one a line, the earliest first (Radford et al. 2019)."""
    ids, lines = read_json(folder / "vocab.json"), _text(folder / "merges.txt").split("\n")
    try:
        pairs = [_pair(line) for line in lines if line and not line.startswith("#version")]
        tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    except Exception as error:  # the library raises a bare Exception
        raise RegardError(f"{folder}: vocab.json and merges.txt do not fit each other ({error}); copy both") from error
    first = bool(_settings(folder).get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=first)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([name for name in SPECIALS if name in ids])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def _pair(line: str) -> tuple[str, str]:
    left, right = line.split(" ")
    return left, right


def _around(text: TextTokenizer, *, both: bool) -> processors.PostProcessor:
    """begin A end, and begin A end B end with the second text marked; or, for a text to go on with, begin A."""
    ids = text.specials
    begin, end = text.labels([ids.begin, ids.end])
    tokens = list({begin: ids.begin, end: ids.end}.items())
    if both:
        return processors.TemplateProcessing(
            single=[begin, "$A", end], pair=[begin, "$A:0", end, "$B:1", f"{end}:1"], special_tokens=tokens
        )
    return processors.TemplateProcessing(single=[begin, "$A"], pair=[begin, "$A", "$B"], special_tokens=tokens)


def _names(text: TextTokenizer) -> dict[str, str]:
    """What transformers calls the special tokens."""
    ids = text.specials
    roles = {"bos_token": ids.begin, "eos_token": ids.end, "unk_token": ids.unknown, "pad_token": ids.pad}
    if ids.mask is not None:
        roles["mask_token"] = ids.mask
    return dict(zip(roles, text.labels(roles.values()), strict=True))


def _longest(bundle: Bundle) -> int:
    longest = bundle.config.longest or getattr(bundle.config.model, "longest", None)
    return UNLIMITED if longest is None else longest


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    values = read_json(path) if path.exists() else {}
    if not isinstance(values, dict):
        raise RegardError(f"{path} does not hold a table of settings; copy it again")
    return values


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegardError(f"cannot read {path} as UTF-8 text: {error}") from error
