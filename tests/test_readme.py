"""What the README shows can be typed: its Python runs, and its commands and options exist."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import regard
from regard.data.pairs import builtin_pairs
from regard.tasks import train

ROOT = Path(regard.__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, but for the size of model and run: a test cannot train for an hour."""
    (block,) = (block for block in BLOCKS if "regard.train" in block)
    rows = "".join(f"{source}\t{target}\n" for source, target in builtin_pairs("train", 300))
    (tmp_path / "pairs.tsv").write_text(rows, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    small = {
        "model": {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 32},
        "train": {"steps": 4, "validate_every": 2, "warmup": 2},
        "tokens": {"size": 300},
        "validate": {"sentences": 3},
        "decode": {"max_length": 5},
    }
    monkeypatch.setattr(regard, "train", partial(train, **small), raising=False)
    names: dict[str, object] = {}
    exec(block, names)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert names["seen"].check() < 1e-4  # type: ignore[attr-defined]


def test_the_python_about_other_models_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, with a smaller model."""
    import transformers

    (block,) = (block for block in BLOCKS if "transformers" in block)
    small = partial(
        transformers.GPT2Config, n_layer=4, n_head=4, n_embd=16, vocab_size=50, bos_token_id=0, eos_token_id=0
    )
    monkeypatch.setattr(transformers, "GPT2Config", small)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"input_ids": torch.arange(12)[None]}
    exec(block, names)
    seen = names["seen"]
    assert len(seen.calls) == 4 and seen.check() < 1e-5  # type: ignore[attr-defined]
    assert (tmp_path / "map.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("verb", sorted(set(re.findall(r"regard ((?:bench )?[a-z]+)", README))))
def test_the_commands_of_the_readme_exist(verb: str) -> None:
    done = subprocess.run([sys.executable, "-m", "regard", *verb.split(), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = re.findall(rf"regard {verb} ([^\n`]*)", README)
    for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", " ".join(line.split("  ")[0] for line in lines)):
        assert option in done.stdout, f"{verb} has no {option}"


def test_the_files_that_the_readme_links_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) >= 5
    assert [link for link in links if not (ROOT / link).exists()] == []
