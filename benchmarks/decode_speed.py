"""Speed of translation beside CTranslate2 and Hugging Face's `generate`: a file of sentences, and one sentence alone.

    python benchmarks/decode_speed.py [--threads 2] [--rounds 5] [--beams 1 5] [--clock processor] [--out FILE]

A Transformer of 4 + 4 layers, width 128, with 10,000 tokens and random weights translates 1,000 sources, as long as those
of Multi30k, to exactly 20 tokens each: greedily and with a beam of 5. CTranslate2 (float32) has the same weights in its
own layout, and Hugging Face's Marian has the same shape; each runs in whichever of its settings of workers, threads and
batch size was fastest in a trial, for each beam, and Regard as a person finds it. All have the same number of threads in
all, each contender in a process of its own: in one, CTranslate2's setting of threads became torch's as well. Round by round
in turns, so that whatever else the machine does meets all alike; medians, and the least and the greatest. Greedily, nobody
is asked for scores ("regard, scored" gives them all the same, and reads one token more to score the end). "regard, in torch" is
without the kernels, as where there is no compiler. On a machine that others use, `--threads 1 --clock processor` counts the
processor time of each contender, all its threads together, and not that of helpers. Memory is the
greatest seen in the first round of a process and those that it began together, pages that they share counted once. Who is
not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where the folder of its parts lies

from peers.apart import Apart, Here, answer

from regard.attention import MultiHead
from regard.blocks import Block
from regard.bundle import Bundle, BundleConfig
from regard.embed import sinusoid
from regard.models.config import TransformerConfig
from regard.models.fast.stepper import LaidOut
from regard.models.fast.translation import FastDecoder
from regard.models.transformer import Transformer
from regard.native.compiled import SWITCH
from regard.tasks.translate.predictor import Translator
from regard.tokens import BEGIN, END, PAD, UNKNOWN, TokenizerPair, TokensConfig, train_tokenizer

PEERS = {"ctranslate2": "fast", "transformers": "hf"}  # and with which of Regard's extras they come
FIRST = 10  # ids below have a meaning of their own
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
BATCHES = (32, 64, 128)  # sizes that are tried for peers


@dataclass(frozen=True)
class Size:
    layers: int = 4
    width: int = 128
    heads: int = 4
    feed_forward: int = 256
    vocabulary: int = 10_000
    sources: int = 1000
    alone: int = 20  # of them, one after another
    tokens: int = 20  # to write


TINY = Size(layers=1, width=16, heads=2, feed_forward=24, vocabulary=60, sources=5, alone=1, tokens=4)

Ids = list[list[int]]
Contender = Callable[[Ids, int], Ids]  # of sources and a beam, the tokens of the best translations
Results = dict[str, "Measured"]


def make_sources(size: Size) -> Ids:
    """Sources with Multi30k's lengths: 13 tokens on average, from 4 to 35, the end included."""
    draw = np.random.default_rng(1)
    lengths = np.clip(np.round(draw.gamma(10.0, 1.3, size.sources)), 4, 35).astype(int)
    return [[*draw.integers(FIRST, size.vocabulary, length - 1).tolist(), END] for length in lengths]


@torch.no_grad()
def make_model(size: Size) -> Transformer:
    """Random weights, larger than those that training begins with, so that different sources give different tokens."""
    torch.manual_seed(1)
    config = TransformerConfig(
        encoder_layers=size.layers, decoder_layers=size.layers, width=size.width, heads=size.heads,
        feed_forward=size.feed_forward, tied="none",
    )  # fmt: skip
    model = Transformer(config, size.vocabulary, size.vocabulary).eval()
    for block in [*model.encoder.each(), *model.decoder.each()]:
        for parameter in block.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=2 * parameter.size(1) ** -0.5)
    return model


# --- Contenders


class ByModules(LaidOut):
    """The readable modules, whoever looks on or not."""

    def stepper(self) -> Any:
        return self.model


@contextmanager
def kernels(wanted: bool) -> Iterator[None]:
    """Inside this block Regard's kernels are on or off."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = str(int(wanted))
    try:
        yield
    finally:
        os.environ.pop(SWITCH)
        if before is not None:
            os.environ[SWITCH] = before


def regard(
    size: Size, threads: int, *, by_modules: bool = False, scored: bool = False, native: bool = True
) -> Contender:
    """Regard as a search of ids."""
    torch.set_num_threads(threads)
    model, tokenizer = make_model(size), train_tokenizer([], TokensConfig(kind="byte"))  # not used: sources are ids
    config = BundleConfig(model=model.config)
    translator = Translator(Bundle(config, model, TokenizerPair(tokenizer, tokenizer), {}))
    if by_modules:
        translator.laid_out = ByModules(model, FastDecoder.of)

    def run(sources: Ids, beam: int) -> Ids:
        asked = {"beam": beam, "min_length": size.tokens, "max_length": size.tokens, "length_penalty": "none"}
        options = translator.options({**asked, "scores": scored})
        arrays = [np.array(source) for source in sources]
        with kernels(native):
            found = translator.search_ids(arrays, options, places=range(len(arrays)))
        return [list(best[0].ids) for best in found]

    return run


class Fastest:
    """A peer in the setting that is fastest for a quarter of the sources, and for one sentence, tried for each beam."""

    def __init__(self, name: str, settings: dict[str, Contender]) -> None:
        self.name, self.settings = name, settings
        self.chosen: dict[tuple[int, bool], str] = {}  # for a beam, and for a file or one sentence

    def __call__(self, sources: Ids, beam: int) -> Ids:
        kind = (beam, len(sources) > 1)
        if kind not in self.chosen:
            some = sources[: len(sources) // 4 + 1]
            each = {name: min(_seconds(run, some, beam) for _ in range(3)) for name, run in self.settings.items()}
            self.chosen[kind] = min(each, key=lambda name: each[name])
            what = "a file" if kind[1] else "one sentence"
            print(f"{self.name}, for {what}: {self.chosen[kind]}", file=sys.stderr)
        return self.settings[self.chosen[kind]](sources, beam)


def in_ctranslate2(size: Size, threads: int) -> Contender:
    with tempfile.TemporaryDirectory() as folder:
        save_for_ctranslate2(make_model(size), size, folder)
        ways = [(a, b, n) for a, b in sorted({(threads, 1), (1, threads), (1, 1)}) for n in BATCHES]
        settings = {
            f"{a} x {b} workers and threads, {n} at once": with_setting(size, folder, a, b, n) for a, b, n in ways
        }
    return Fastest("CTranslate2", settings)


def with_setting(size: Size, folder: str, workers: int, threads: int, batch: int) -> Contender:
    """CTranslate2 with so many workers of so many threads each, and so many sources together."""
    import ctranslate2

    names = ctranslate2_names(size)
    numbers = {name: number for number, name in enumerate(names)}
    translator = ctranslate2.Translator(
        folder, device="cpu", compute_type="float32", inter_threads=workers, intra_threads=threads
    )

    def run(sources: Ids, beam: int) -> Ids:
        found = translator.translate_batch(
            [[names[token] for token in source] for source in sources],
            beam_size=beam, min_decoding_length=size.tokens, max_decoding_length=size.tokens, max_batch_size=batch,
        )  # fmt: skip
        return [[numbers[name] for name in each.hypotheses[0]] for each in found]

    return run


def ctranslate2_names(size: Size) -> list[str]:
    special = {PAD: "<blank>", BEGIN: "<s>", END: "</s>", UNKNOWN: "<unk>"}
    return [special.get(token, f"t{token}") for token in range(size.vocabulary)]


def save_for_ctranslate2(model: Transformer, size: Size, folder: str) -> None:
    """The weights of the model by CTranslate2's own specification."""
    import ctranslate2

    spec = ctranslate2.specs.TransformerSpec.from_config((size.layers, size.layers), size.heads, pre_norm=True)
    for side, embedded in ((spec.encoder, model.source), (spec.decoder, model.target)):
        table = side.embeddings[0] if side is spec.encoder else side.embeddings
        table.weight = embedded.table.weight.detach().numpy()
        side.scale_embeddings = True
        side.position_encodings.encodings = sinusoid(256, size.width).float().numpy()
    for layer, block in zip(spec.encoder.layer, model.encoder.each(), strict=True):
        _fill_layer(layer, block)
    for layer, block in zip(spec.decoder.layer, model.decoder.each(), strict=True):
        _fill_layer(layer, block)
    _fill(spec.encoder.layer_norm, model.encoder_norm)
    _fill(spec.decoder.layer_norm, model.decoder_norm)
    spec.decoder.projection.weight = model.output.weight.detach().numpy()
    for register in (spec.register_source_vocabulary, spec.register_target_vocabulary):
        register(ctranslate2_names(size))
    spec.validate()
    spec.optimize()
    spec.save(folder)


def _fill_layer(layer: Any, block: Block) -> None:
    assert isinstance(block.attention, MultiHead)
    own = block.attention
    _fill(layer.self_attention.layer_norm, block.around_attention.norm)
    _fill(layer.self_attention.linear[0], own.query, own.key_value)
    _fill(layer.self_attention.linear[1], own.out)
    if block.cross is not None and block.around_cross is not None:
        _fill(layer.attention.layer_norm, block.around_cross.norm)
        for linear, module in zip(
            layer.attention.linear, (block.cross.query, block.cross.key_value, block.cross.out), strict=True
        ):
            _fill(linear, module)
    _fill(layer.ffn.layer_norm, block.around_feed_forward.norm)
    feed_forward: Any = block.feed_forward
    _fill(layer.ffn.linear_0, feed_forward.up)
    _fill(layer.ffn.linear_1, feed_forward.down)


def _fill(spec: Any, *modules: Any) -> None:
    """The weights and biases of modules, one below the other; a norm calls its weight gamma."""
    weight, bias = (
        torch.cat([getattr(each, name).detach() for each in modules]).numpy() for name in ("weight", "bias")
    )
    if isinstance(modules[0], nn.LayerNorm):
        spec.gamma, spec.beta = weight, bias
    else:
        spec.weight, spec.bias = weight, bias


def in_transformers(size: Size, threads: int) -> Contender:
    import transformers

    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    config = transformers.MarianConfig(
        vocab_size=size.vocabulary, d_model=size.width, encoder_layers=size.layers, decoder_layers=size.layers,
        encoder_attention_heads=size.heads, decoder_attention_heads=size.heads, encoder_ffn_dim=size.feed_forward,
        decoder_ffn_dim=size.feed_forward, pad_token_id=PAD, eos_token_id=END, bos_token_id=BEGIN,
        decoder_start_token_id=BEGIN, forced_eos_token_id=None, scale_embedding=True,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config).eval()

    @torch.inference_mode()
    def run(sources: Ids, beam: int, batch: int) -> Ids:
        found: Ids = [[] for _ in sources]
        order = sorted(range(len(sources)), key=lambda place: -len(sources[place]))
        for group in (order[first : first + batch] for first in range(0, len(order), batch)):
            longest = len(sources[group[0]])
            ids = torch.tensor([[*sources[place], *[PAD] * (longest - len(sources[place]))] for place in group])
            written = model.generate(
                ids, attention_mask=(ids != PAD).long(), num_beams=beam, do_sample=False,
                min_new_tokens=size.tokens, max_new_tokens=size.tokens,
            )  # fmt: skip
            for place, row in zip(group, written[:, 1:].tolist(), strict=True):
                found[place] = row
        return found

    return Fastest("transformers", {f"{batch} at once": partial(run, batch=batch) for batch in BATCHES})


MAKERS: dict[str, Callable[[Size, int], Contender]] = {
    "regard": regard,
    "regard, scored": partial(regard, scored=True),
    "regard, in torch": partial(regard, native=False),
    "regard, by modules": partial(regard, by_modules=True),
    "ctranslate2": in_ctranslate2,
    "transformers": in_transformers,
}


def asked_of(name: str, size: Size, threads: int, clock: str = "wall") -> list[str]:
    """The words after `python` that make a process of a contender."""
    return [
        __file__,
        "--answer",
        json.dumps({"name": name, "size": asdict(size), "threads": threads}),
        "--clock",
        clock,
    ]


def contender(name: str, size: Size, threads: int) -> Callable[[Ids, int, bool], Ids]:
    """Translates sources with a beam, all together or one by one."""
    run = MAKERS[name](size, threads)
    return lambda sources, beam, alone: [run([one], beam)[0] for one in sources] if alone else run(sources, beam)


def contenders(size: Size, threads: int, without: Sequence[str], clock: str) -> dict[str, Apart | Here]:
    """Who is there, each in a process of its own; in the tiny mode only the first."""
    missing = [name for name in PEERS if importlib.util.find_spec(name) is None]
    for name in missing:
        print(f"{name} is not installed (pip install regard[{PEERS[name]}])")
    there = [name for name in MAKERS if name not in (*missing, *without)]
    here = there[1:] if size == TINY else []
    return {
        name: Here(contender(name, size, threads)) if name in here else Apart(asked_of(name, size, threads, clock))
        for name in there
    }


# --- Measuring


def _seconds(run: Contender, sources: Ids, beam: int) -> float:
    started = time.perf_counter()
    run(sources, beam)
    return time.perf_counter() - started


@dataclass
class Measured:
    """Seconds of each round, and the greatest memory in bytes, of one contender."""

    seconds: list[float] = field(default_factory=list)
    memory: int = 0


def measure(
    runs: dict[str, Apart | Here], sources: Ids, beam: int, rounds: int, tokens: int, *, one_by_one: bool
) -> Results:
    """Each contender in each round, in turns, in both orders; the first round warms up."""
    measured = {name: Measured() for name in runs}
    for turn in range(rounds + 1):
        for name in runs if turn % 2 else reversed(runs):
            if turn:
                measured[name].seconds.append(runs[name](sources, beam, one_by_one)[1])
                continue
            found, measured[name].memory = runs[name].watched(sources, beam, one_by_one)
            if not all(len(each) == tokens for each in found):
                raise ValueError(
                    f"{name} wrote sequences of {sorted({len(each) for each in found})} tokens, not {tokens}"
                )
    return measured


def show(title: str, measured: Results, count: int) -> dict[str, Any]:
    """Print what each took; how many times as fast as the others Regard was, round by round."""
    row: dict[str, Any] = {"what": title, "measured": {name: asdict(one) for name, one in measured.items()}}
    row["times_as_fast_as"] = {}
    print(title)
    for name, one in measured.items():
        each = [value / count * 1000 for value in one.seconds]
        ratios = [theirs / ours for theirs, ours in zip(one.seconds, measured["regard"].seconds, strict=True)]
        row["times_as_fast_as"][name] = round(statistics.median(ratios), 3)
        print(
            f"  {name:20}{1000 / statistics.median(each):10,.1f} sentences/s{statistics.median(each):10.2f} ms each "
            f"({min(each):.2f} .. {max(each):.2f})   Regard is {statistics.median(ratios):.2f} times as fast "
            f"({min(ratios):.2f} .. {max(ratios):.2f})   {one.memory / 2**20:,.0f} MiB",
            flush=True,
        )
    return row


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="in all, of each contender")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sources", type=int, help="fewer than 1,000")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall", help="what seconds are counted by")
    parser.add_argument("--without", nargs="+", default=[], help="contenders to leave out")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    parser.add_argument("--answer", type=json.loads, help=argparse.SUPPRESS)  # what this script asks of itself
    asked = parser.parse_args(words)
    if asked.answer is None:
        compare(asked)
    else:
        run = contender(asked.answer["name"], Size(**asked.answer["size"]), asked.answer["threads"])
        answer(run, CLOCKS[asked.clock])


def compare(asked: argparse.Namespace) -> None:
    """Measure all contenders in turns."""
    size, rounds = (TINY, 1) if asked.tiny else (Size(), asked.rounds)
    asked.threads = 1 if asked.tiny else asked.threads  # two would wait for each other's tiny products
    sources = make_sources(size)[: asked.sources]
    few, rows, runs = sources[: size.alone], [], contenders(size, asked.threads, asked.without, asked.clock)
    try:
        for beam in asked.beams:
            name = "greedy" if beam == 1 else f"beam {beam}"
            file = measure(runs, sources, beam, rounds, size.tokens, one_by_one=False)
            rows.append(show(f"{len(sources)} sentences, {name}", file, len(sources)))
            one = measure(runs, few, beam, rounds, size.tokens, one_by_one=True)
            rows.append(show(f"one sentence, {name}", one, len(few)))
    finally:
        for run in runs.values():
            run.end()
    if asked.out:
        there = ["torch", *(name for name in PEERS if importlib.util.find_spec(name))]
        versions = {name: importlib.metadata.version(name) for name in there}
        conditions = {
            "threads": asked.threads,
            "clock": asked.clock,
            "rounds": rounds,
            **asdict(size),
            "versions": versions,
        }
        asked.out.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
