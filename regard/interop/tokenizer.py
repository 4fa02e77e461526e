"""The tokenizer of a Hugging Face folder, in and out: tokenizer.json, or the older vocab.txt, vocab.json and merges.txt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.bundle import Bundle
from regard.errors import RegardError
from regard.files import JSON, read_json, write_json, write_text
from regard.tokens import Specials, TextTokenizer, named_special, specials_of

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>")
UNLIMITED = 10**30  # what transformers writes for "any length"
CONFIG, GENERATION = "config.json", "generation_config.json"
TOKENIZER, MAP = "tokenizer_config.json", "special_tokens_map.json"

# Which key of which file says what a role's id is, or its name: the first that does so holds. A language model stops by
# its generation_config.json, which transformers makes of config.json where there is none; BERT is fed by its tokenizer.
AUTHORITIES: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {
    "generate": {
        role: ((GENERATION, f"{name}_id"), (CONFIG, f"{name}_id"), (TOKENIZER, name), (MAP, name))
        for role, name in (("begin", "bos_token"), ("end", "eos_token"), ("pad", "pad_token"))
    },
    "fill": {
        "begin": ((TOKENIZER, "cls_token"), (MAP, "cls_token")),
        "end": ((TOKENIZER, "sep_token"), (MAP, "sep_token")),
        "pad": ((TOKENIZER, "pad_token"), (MAP, "pad_token"), (CONFIG, "pad_token_id")),
    },
}
BOTH = {
    "unknown": ((TOKENIZER, "unk_token"), (MAP, "unk_token")),
    "mask": ((TOKENIZER, "mask_token"), (MAP, "mask_token")),
}


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


def read_specials(
    folder: Path, task: str, tokenizer: Tokenizer, report: Callable[[str], None] = lambda words: None
) -> Specials:
    """The ids that begin, end and pad a text, as the files of the folder say; `report` hears which file said so.

    Where none does, the tokenizer is searched for the usual names.
    """
    ids: dict[str, tuple[int, ...]] = {}
    sources: list[str] = []
    for role, places in (AUTHORITIES[task] | BOTH).items():
        found, where = _authority(folder, places, tokenizer, report)
        of_model = _known(getattr(tokenizer.model, "unk_token", None), tokenizer) if role == "unknown" else None
        found = found if of_model is None else (of_model,)  # this is what a text becomes
        if not found and (named := named_special(tokenizer, role)) is not None:
            found, where = (named,), "no file says, so by its name"
        ids[role] = found
        if found and role in AUTHORITIES[task]:
            names = ", ".join(f"{tokenizer.id_to_token(each)} ({each})" for each in found)
            sources.append(f"{role} {names}: {where}")
    specials = specials_of({role: found[0] if found else None for role, found in ids.items()}, ids["end"][1:])
    report("special tokens: " + "; ".join(sources))
    return specials


def _authority(
    folder: Path, places: Sequence[tuple[str, str]], tokenizer: Tokenizer, report: Callable[[str], None]
) -> tuple[tuple[int, ...], str]:
    """The ids that the first file says which says any, and which file that is."""
    for file, key in places:
        value = _settings(folder, file).get(key)
        values = value if isinstance(value, list) else [value]
        found = {str(each): _known(each, tokenizer) for each in values if each is not None}
        unknown = ", ".join(each for each, index in found.items() if index is None)
        if unknown:
            report(f"{folder}/{file}: {key} is {unknown}, which the tokenizer does not have; it is passed over")
        known = tuple(dict.fromkeys(index for index in found.values() if index is not None))
        if known:
            return known, f"{key} of {file}"
    return (), ""


def _known(value: object, tokenizer: Tokenizer) -> int | None:
    """The id that a file says, itself or by its token (a name, or a table with its `content`), if there is one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < 2**32 and tokenizer.id_to_token(value) is not None else None
    name = value.get("content") if isinstance(value, dict) else value
    return tokenizer.token_to_id(name) if isinstance(name, str) else None


def write_specials(bundle: Bundle, folder: Path) -> dict[str, JSON]:
    """The special tokens for config.json; a language model gets a generation_config.json too, which says when to stop.

    A language model's config.json names no pad: it may be the end token, whose embedding is learned.
    """
    ids = bundle.tokenizer.specials
    if bundle.config.task == "fill":
        return {"pad_token_id": ids.pad}
    ends = [ids.end, *ids.also_end] if ids.also_end else ids.end
    both: dict[str, JSON] = {"bos_token_id": ids.begin, "eos_token_id": ends}
    write_json(folder / GENERATION, both | {"pad_token_id": ids.pad})
    return both


def write_tokenizer(bundle: Bundle, folder: Path) -> None:
    """tokenizer.json, with begin and end put around a text as the model saw it, and tokenizer_config.json."""
    text = bundle.tokenizer
    text.save(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    names: dict[str, JSON] = {**_names(text)}
    if tokenizer.post_processor is None:
        tokenizer.post_processor = _around(text, both=bundle.config.task == "fill")
        write_text(folder / "tokenizer.json", tokenizer.to_str())
    if bundle.config.task == "fill":
        inputs = ["input_ids", "token_type_ids", "attention_mask"]  # which text of two a token belongs to, too
        names |= {"cls_token": names["bos_token"], "sep_token": names["eos_token"], "model_input_names": inputs}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": _longest(bundle), **names}
    write_json(folder / TOKENIZER, config)


def _from_json(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises a bare Exception for any malformed file
        raise RegardError(f"{path} is not a tokenizer ({error})", "copy it again") from error


def _wordpiece(folder: Path) -> Tokenizer:
    """BERT's: words and pieces of words, one a line in the order of their ids (Devlin et al. 2019)."""
    path = folder / "vocab.txt"
    lines = _text(path).removesuffix("\n").split("\n")
    ids = {token: number for number, token in enumerate(lines)}
    if len(ids) != len(lines) or "[UNK]" not in ids:
        raise RegardError(f"{path} names a token twice, or has no [UNK]", "copy it again")
    settings = _settings(folder)
    accents = settings.get("strip_accents")
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=None if accents is None else bool(accents),
        lowercase=bool(settings.get("do_lower_case", True)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.add_special_tokens([name for name in SPECIALS if name in ids])
    return tokenizer


def _byte_level(folder: Path) -> Tokenizer:
    """GPT-2's: byte-level BPE, its merges one a line, the earliest first (Radford et al. 2019)."""
    ids, lines = read_json(folder / "vocab.json"), _text(folder / "merges.txt").split("\n")
    try:
        pairs = [_pair(line) for line in lines if line and not line.startswith("#version")]
        tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    except Exception as error:  # the library raises a bare Exception
        raise RegardError(
            f"{folder}: vocab.json and merges.txt do not fit each other ({error})", "copy both"
        ) from error
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
    """The special tokens under the names that transformers gives them."""
    ids = text.specials
    roles = {"bos_token": ids.begin, "eos_token": ids.end, "unk_token": ids.unknown, "pad_token": ids.pad}
    if ids.mask is not None:
        roles["mask_token"] = ids.mask
    return dict(zip(roles, text.labels(roles.values()), strict=True))


def _longest(bundle: Bundle) -> int:
    longest = bundle.config.longest or getattr(bundle.config.model, "longest", None)
    return UNLIMITED if longest is None else longest


def _settings(folder: Path, file: str = TOKENIZER) -> dict[str, JSON]:
    path = folder / file
    values = read_json(path) if path.exists() else {}
    if not isinstance(values, dict):
        raise RegardError(f"{path} does not hold a table of settings", "copy it again")
    return values


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegardError(f"cannot read {path} as UTF-8 text: {error}") from error
