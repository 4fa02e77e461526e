"""Weights of 8 bits on a trained translator: speed and BLEU, beside CTranslate2 with the same weights.

    python benchmarks/int8.py RUN test.en test.de [--threads 2] [--rounds 5] [--beams 1 5] [--out FILE]

The texts are translated in float32 and in int8 by Regard and by CTranslate2 (as many workers of one thread as there are
threads, 32 texts at once), each contender in a process of its own, round by round in turns; tokens are made and joined by
Regard's tokenizers for both, outside the time that is taken. BLEU is lower-cased. CTranslate2 rounds every matrix, Regard
those that its kernel pays for.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where the folder of its parts lies

from peers.apart import Apart, Here, answer

from regard.bundle import Bundle, load_bundle, save_bundle
from regard.decode.config import Weights
from regard.evaluate.translation import score_translations
from regard.interop.ctranslate2_engine import converted
from regard.runs import bundle_folder
from regard.tasks.translate.predictor import Translator
from regard.tokens import TokenizerPair, as_arrays

CONTENDERS = ("regard float32", "regard int8", "ctranslate2 float32", "ctranslate2 int8")
Ids = list[list[int]]
Contender = Callable[[Ids, int], Ids]


def regard(bundle: Bundle, kind: str) -> Contender:
    translator = Translator(bundle)
    translator.use_weights(cast("Weights", kind))

    def run(sources: Ids, beam: int) -> Ids:
        options = translator.options({"beam": beam, "scores": False, "stopping": "early"})
        arrays = as_arrays(sources, begin=False)
        found = translator.search_ids(arrays, options, places=range(len(arrays)))
        return [list(best[0].ids) for best in found]

    return run


def in_ctranslate2(bundle: Bundle, kind: str, threads: int) -> Contender:
    import ctranslate2

    names = [bundle.tokenizers.source.vocabulary(bundle.config.vocabulary[0])]
    names.append(bundle.tokenizers.target.vocabulary(bundle.config.vocabulary[1]))
    numbers = {name: number for number, name in enumerate(names[1])}
    inner = ctranslate2.Translator(
        str(converted(bundle)), device="cpu", compute_type=kind, inter_threads=threads, intra_threads=1
    )
    alpha, specials = bundle.config.decode.alpha, bundle.tokenizers.target.specials

    def run(sources: Ids, beam: int) -> Ids:
        found = inner.translate_batch(
            [[names[0][token] for token in source] for source in sources],
            beam_size=beam, length_penalty=alpha, max_batch_size=32, disable_unk=True,
            suppress_sequences=[[names[1][token]] for token in (specials.pad, specials.begin)],
        )  # fmt: skip
        return [[numbers[name] for name in each.hypotheses[0]] for each in found]

    return run


def contender(folder: Path, name: str, threads: int) -> Contender:
    torch.set_num_threads(threads)
    bundle, (who, kind) = load_bundle(folder), name.split()
    return regard(bundle, kind) if who == "regard" else in_ctranslate2(bundle, kind, threads)


def compare(
    folder: Path, sources: list[str], references: list[str], asked: argparse.Namespace, tokenizers: TokenizerPair
) -> list[dict[str, Any]]:
    """A row for each beam and contender: seconds of each round, and BLEU."""
    ids, rows = tokenizers.source.encode_all(sources), []
    there = importlib.util.find_spec("ctranslate2") is not None
    if not there:
        print("ctranslate2 is not installed (pip install regard[fast])")
    words = [__file__, str(folder), "--threads", str(asked.threads), "--answer"]
    first, *others = [name for name in CONTENDERS if there or "regard" in name]
    runs: dict[str, Apart | Here] = {first: Apart([*words, first])}
    for name in others:
        runs[name] = Here(contender(folder, name, asked.threads)) if asked.tiny else Apart([*words, name])
    try:
        for beam in asked.beams:
            outputs, seconds = _in_turns(runs, ids, beam, asked.rounds)
            for name in runs:
                texts = [tokenizers.target.decode(each) for each in outputs[name]]
                bleu = score_translations(texts, references, lowercase=True, metrics=("bleu",))["bleu"]
                rows.append({"beam": beam, "contender": name, "seconds": seconds[name], "bleu": bleu.value})
                print(_line(rows[-1], seconds["regard float32"], len(sources)), flush=True)
    finally:
        for run in runs.values():
            run.end()
    return rows


def _in_turns(
    runs: dict[str, Apart | Here], ids: Ids, beam: int, rounds: int
) -> tuple[dict[str, Ids], dict[str, list[float]]]:
    """What each found, and the seconds of each round; the first warms up."""
    outputs: dict[str, Ids] = {}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name in runs if turn % 2 else reversed(runs):
            outputs[name], took = runs[name](ids, beam)
            if turn:
                seconds[name].append(took)
    return outputs, seconds


def _line(row: dict[str, Any], ours: list[float], count: int) -> str:
    ratios = [own / other for own, other in zip(ours, row["seconds"], strict=True)]
    middle = statistics.median(row["seconds"])
    return (
        f"beam {row['beam']}  {row['contender']:20} BLEU {row['bleu']:6.2f}  {count / middle:8,.0f} texts/s  "
        f"{statistics.median(ratios):.2f} times as fast as regard float32 ({min(ratios):.2f} .. {max(ratios):.2f})"
    )


def tiny_bundle(folder: Path) -> Path:
    """A translator with random weights, and characters for tokens."""
    from regard.bundle import BundleConfig
    from regard.models.config import TransformerConfig
    from regard.models.table import build_model
    from regard.tokens import TokensConfig, train_tokenizer

    tokenizer = train_tokenizer(["abc cab"], TokensConfig(kind="character"))
    shape = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 24}
    config, sizes = TransformerConfig(**shape), (tokenizer.size, tokenizer.size)
    about = BundleConfig(task="translate", vocabulary=sizes, model=config, tokens=TokensConfig(kind="character"))
    bundle = Bundle(about, build_model(config, *sizes).eval(), TokenizerPair(tokenizer, tokenizer), {})
    return save_bundle(folder / "bundle", bundle)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("texts", nargs="*", type=Path, metavar="FILE", help="sources, and references")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="in all, of each contender")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    parser.add_argument("--answer", help=argparse.SUPPRESS)  # what this script asks of itself
    asked = parser.parse_args(words)
    if asked.answer is not None:
        answer(contender(asked.run, asked.answer, asked.threads))
    elif asked.tiny:
        asked.rounds, asked.beams, asked.threads = 1, [1], 1
        with tempfile.TemporaryDirectory() as place:
            folder = tiny_bundle(Path(place))
            compare(folder, ["abc", "cab"], ["abc", "cab"], asked, TokenizerPair.load(folder))
    else:
        folder = bundle_folder(asked.run)
        sources, references = (path.read_text(encoding="utf-8").splitlines() for path in asked.texts)
        rows = compare(folder, sources, references, asked, TokenizerPair.load(folder))
        if asked.out:
            asked.out.write_text(json.dumps({"threads": asked.threads, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
