"""Training speed of a Transformer against others of the same shape, on the same batches.

    REGARD_DATA=... python benchmarks/train_speed.py [--shape tiny] [--rounds 7] [--threads 2]

tiny            4 + 4 layers, width 128, feed-forward 256, 4 heads
base            6 + 6 layers, width 512, feed-forward 2,048, 8 heads, and 10,000 tokens whatever the data (Vaswani et al. 2017)

marian          Hugging Face's MarianMTModel (the `hf` extra: pip install regard[hf])
nn.Transformer  torch's own, with one table of embeddings
x-transformers  XTransformer with its flash attention, where it is installed

All train on the same Multi30k batches (the built-in dates when `REGARD_DATA` is not set) with the same optimiser, dropout,
label smoothing and clipping, in turns: round by round, so that whatever else the machine does meets all alike. Each has the
precision that is faster for it, float32 or bf16 autocast, where the processor has bf16 (`--precision float32`: none has).
Prints target tokens per second of each, what its own matrix products take of the multiply-adds that one large product makes
in the same time (the limit, in float32), and the median and spread of the ratios of each round. `--only NAME` measures one
alone, such as for its memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.bench.model import matrix_limit
from regard.data.batch import PairBatch
from regard.data.batches import Batches
from regard.data.pairs import load_pairs
from regard.embed import sinusoid
from regard.models.operations import multiply_adds_of
from regard.models.table import build_model
from regard.noise import noise
from regard.tasks.configure import run_config
from regard.tasks.translate.config import TranslateConfig
from regard.tasks.translate.recipe import encode
from regard.tokens import PAD, TokenizerPair
from regard.training.optimiser import make_optimiser, set_rate
from regard.training.precision import autocast, has_fast_bf16

try:
    import transformers
except ImportError:
    transformers = None  # type: ignore[assignment]
try:
    import x_transformers
except ImportError:
    x_transformers = None

CONFIG = Path(__file__).parent.parent / "configs" / "multi30k-en-de.toml"
VOCABULARY = 10_000
SHAPES = {
    "tiny": (6, 4096),
    "base": (1, 2048),
}  # with the batches of a round and the tokens of a batch, where nobody says
LIMIT_FOR = 1.0  # seconds of measuring the limit

Step = Callable[[PairBatch, int], None]


def configuration(shape: str, next_to_nothing: bool) -> Any:
    if next_to_nothing:
        return run_config("translate", {"preset": "demo", "data": {"builtin_size": 200}, "tokens": {"size": 300}})
    if os.environ.get("REGARD_DATA"):
        return run_config(str(CONFIG), {"preset": shape})
    return run_config("translate", {"preset": shape, "tokens": {"size": VOCABULARY}})


def regard_step(config: TranslateConfig, vocabulary: int) -> Step:
    model = build_model(config.model, vocabulary, vocabulary, config.train.smoothing).train()
    optimiser = make_optimiser(model, config.train)
    set_rate(optimiser, 1e-4)

    def step(batch: PairBatch, number: int) -> None:
        with noise(1, number), precise(config):
            loss = model(batch).objective(batch.counts)
        update(model, optimiser, loss, config.train.clip)

    return step


def precise(config: TranslateConfig) -> AbstractContextManager[object]:
    """The autocast of a forward pass, as everybody does it: the configuration's precision."""
    return autocast(config.train.precision, torch.device("cpu"))


def marian_step(config: TranslateConfig, vocabulary: int) -> Step:
    model = transformers.MarianMTModel(marian_config(config, vocabulary)).train()
    optimiser = make_optimiser(model, config.train)
    set_rate(optimiser, 1e-4)

    def step(batch: PairBatch, number: int) -> None:
        wanted = batch.target[:, 1:].flatten()
        with precise(config):
            logits = model(
                input_ids=batch.source,
                attention_mask=(batch.source != PAD).long(),
                decoder_input_ids=batch.target[:, :-1],
                use_cache=False,
            ).logits
            loss = cross_entropy(logits.flatten(0, 1), wanted, ignore_index=PAD, label_smoothing=config.train.smoothing)
        update(model, optimiser, loss, config.train.clip)

    return step


class PlainTransformer(nn.Module):
    """torch's `nn.Transformer` with what it leaves to others: one table for source, target and output, and positions."""

    def __init__(self, config: TranslateConfig, vocabulary: int) -> None:
        super().__init__()
        shape = config.model
        self.table = nn.Embedding(vocabulary, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.register_buffer("places", sinusoid(shape.max_length, shape.width).float())
        self.layers = nn.Transformer(
            shape.width, shape.heads, shape.encoder_layers, shape.decoder_layers, shape.feed_forward, shape.dropout,
            shape.activation, batch_first=True, norm_first=shape.norm == "pre",
        )  # fmt: skip

    def embedded(self, ids: Tensor) -> Tensor:
        return self.dropout(self.table(ids) * math.sqrt(self.table.embedding_dim) + self.places[: ids.size(1)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        found = self.layers(
            self.embedded(source), self.embedded(target), tgt_mask=causal, src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden, tgt_is_causal=True,
        )  # fmt: skip
        return found @ self.table.weight.T  # (B, T, V)


def plain_step(config: TranslateConfig, vocabulary: int) -> Step:
    return logits_step(PlainTransformer(config, vocabulary), config)


class XTransformers(nn.Module):
    """XTransformer, asked for its logits."""

    def __init__(self, config: TranslateConfig, vocabulary: int) -> None:
        super().__init__()
        shape, rate = config.model, config.model.dropout
        sides: dict[str, Any] = {"num_tokens": vocabulary, "max_seq_len": shape.max_length, "heads": shape.heads}
        sides |= {"attn_dim_head": shape.width // shape.heads, "ff_mult": shape.feed_forward / shape.width}
        sides |= {"ff_dropout": rate, "emb_dropout": rate, "attn_flash": True, "scaled_sinu_pos_emb": True}
        depths = {"enc_depth": shape.encoder_layers, "dec_depth": shape.decoder_layers}
        both = {f"{side}_{name}": value for side in ("enc", "dec") for name, value in sides.items()}
        self.inner = x_transformers.XTransformer(dim=shape.width, tie_token_emb=True, **depths, **both)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = source != PAD
        memory = self.inner.encoder(source, mask=mask, return_embeddings=True)
        return self.inner.decoder.net(target, context=memory, context_mask=mask)  # (B, T, V)


def x_step(config: TranslateConfig, vocabulary: int) -> Step:
    return logits_step(XTransformers(config, vocabulary), config)


def logits_step(model: nn.Module, config: TranslateConfig) -> Step:
    """An update of a model that gives logits of a source and a target."""
    optimiser = make_optimiser(model.train(), config.train)
    set_rate(optimiser, 1e-4)

    def step(batch: PairBatch, number: int) -> None:
        wanted = batch.target[:, 1:].flatten()
        with precise(config):
            logits = model(batch.source, batch.target[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), wanted, ignore_index=PAD, label_smoothing=config.train.smoothing)
        update(model, optimiser, loss, config.train.clip)

    return step


MAKE = {"regard": regard_step, "marian": marian_step, "nn.Transformer": plain_step, "x-transformers": x_step}


def present() -> list[str]:
    """Who is installed; who is not is named."""
    if transformers is None:
        print("transformers is not installed (pip install regard[hf]); there is no marian")
    if x_transformers is None:
        print("x-transformers is not installed (pip install x-transformers)")
    absent = {"marian": transformers, "x-transformers": x_transformers}
    return [name for name in MAKE if absent.get(name, name) is not None]


def update(model: nn.Module, optimiser: torch.optim.Optimizer, loss: Tensor, clip: float) -> None:
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def marian_config(config: TranslateConfig, vocabulary: int) -> Any:
    model = config.model
    return transformers.MarianConfig(
        vocab_size=vocabulary,
        d_model=model.width,
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
        encoder_attention_heads=model.heads,
        decoder_attention_heads=model.heads,
        encoder_ffn_dim=model.feed_forward,
        decoder_ffn_dim=model.feed_forward,
        dropout=model.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function=model.activation,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        max_position_embeddings=model.max_length,
        pad_token_id=PAD,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="tiny", help="of the models")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, help="batches in a round (6; of a base model 1)")
    parser.add_argument(
        "--tokens",
        type=int,
        help="tokens in a batch, on its larger side, padding included (4,096; of a base model 2,048)",
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--precision", choices=("best", "float32"), default="best", help="of each contender")
    parser.add_argument("--only", choices=MAKE, help="measure one alone")
    parser.add_argument("--json", "--out", type=Path, help="also write the figures here")
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    options.batches, options.tokens = (
        options.batches or SHAPES[options.shape][0],
        options.tokens or SHAPES[options.shape][1],
    )
    if options.tiny:
        options.rounds = options.batches = 1
    torch.set_num_threads(options.threads)
    config = configuration(options.shape, options.tiny)
    batches, vocabulary = batches_of(config, options)
    names = [name for name in present() if options.only in (None, name)]
    steps, options.chosen = {}, {}
    for name in names:
        options.chosen[name], steps[name] = fastest(name, config, vocabulary, batches[0], options.precision)
    report(*measure(steps, batches, options.rounds), options)


def fastest(name: str, config: Any, vocabulary: int, batch: PairBatch, asked: str) -> tuple[str, Step]:
    """A contender in the precision in which two updates on a batch take the least time, the first left out."""
    both = ("float32", "bf16") if asked == "best" and has_fast_bf16(torch.device("cpu")) else ("float32",)
    ways: dict[str, tuple[float, Step]] = {}
    for precision in both:
        train = config.train.model_copy(update={"precision": precision})
        step, taken = MAKE[name](config.model_copy(update={"train": train}), vocabulary), []
        for number in range(3 if len(both) > 1 else 0):
            began = time.perf_counter()
            step(batch, number)
            taken.append(time.perf_counter() - began)
        ways[precision] = (sum(taken[1:]), step)
    chosen = min(ways, key=lambda precision: ways[precision][0])
    return chosen, ways[chosen][1]


def batches_of(config: TranslateConfig, options: argparse.Namespace) -> tuple[list[PairBatch], int]:
    """The batches that all train on, and the size of the vocabulary."""
    pairs = load_pairs(config.data).train
    tokenizers = TokenizerPair.train([a for a, _ in pairs], [b for _, b in pairs], config.tokens)
    source = Batches(encode(pairs, tokenizers), options.tokens, seed=1)
    least = VOCABULARY if options.shape == "base" and not options.tiny else 0
    return [source.get(0, index) for index in range(options.batches)], max(tokenizers.target.size, least)


def measure(
    steps: dict[str, Step], batches: Sequence[PairBatch], rounds: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Target tokens a second of each contender and round, and what its products take of the limit at the median."""
    tokens = sum(batch.target_tokens for batch in batches)
    speeds: dict[str, list[float]] = {name: [] for name in steps}

    def train(name: str) -> None:
        for number, batch in enumerate(batches):
            steps[name](batch, number)

    products = {name: multiply_adds_of(partial(train, name)) for name in steps}  # which also warms up
    for turn in range(rounds):
        for name in steps if turn % 2 else reversed(steps):  # each goes first as often as the others
            started = time.perf_counter()
            train(name)
            speeds[name].append(tokens / (time.perf_counter() - started))
    limit = matrix_limit(LIMIT_FOR if rounds > 1 else 0.0, torch.device("cpu"))
    return speeds, {name: products[name] * statistics.median(speeds[name]) / tokens / limit for name in steps}


def report(speeds: dict[str, list[float]], shares: dict[str, float], options: argparse.Namespace) -> None:
    figures = {
        "tokens_per_second": {name: round(statistics.median(values)) for name, values in speeds.items()},
        "speeds": {name: [round(value, 1) for value in values] for name, values in speeds.items()},
        "shares_of_limit": {name: round(share, 3) for name, share in shares.items()},
        "precision": options.chosen,
        "shape": options.shape,
        "rounds": options.rounds,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": getattr(transformers, "__version__", None),
    }
    for name, values in speeds.items():
        print(
            f"{name:15} {statistics.median(values):8,.0f} target tokens/s (from {min(values):,.0f} to {max(values):,.0f}), "
            f"{shares[name]:.0%} of the limit, {options.chosen[name]}"
        )
    for name in speeds if "regard" in speeds else ():
        ratios = [ours / theirs for ours, theirs in zip(speeds["regard"], speeds[name], strict=True)]
        if name != "regard":
            median, spread = statistics.median(ratios), f"from {min(ratios):.2f} to {max(ratios):.2f}"
            print(f"ratio    {median:8.2f} to {name} ({spread}, {options.rounds} rounds in turns)")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
