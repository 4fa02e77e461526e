"""Training speed of the tiny Transformer against others of the same shape, on the same batches.

    REGARD_DATA=... python benchmarks/train_speed.py [--rounds 7] [--threads 2]

marian          Hugging Face's MarianMTModel (the `hf` extra: pip install regard[hf])
nn.Transformer  torch's own, with one table of embeddings
x-transformers  XTransformer with its flash attention, where it is installed

All train on the same Multi30k batches (the built-in dates when `REGARD_DATA` is not set) with the same optimiser, dropout,
label smoothing and clipping, in turns: round by round, so that whatever else the machine does meets all alike. Prints
target tokens per second of each, and the median and spread of the ratios of each round. `--only NAME` measures one alone,
such as for its memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.data.batch import PairBatch
from regard.data.batches import Batches
from regard.data.pairs import load_pairs
from regard.embed import sinusoid
from regard.models.table import build_model
from regard.noise import noise
from regard.tasks.configure import run_config
from regard.tasks.translate.config import TranslateConfig
from regard.tasks.translate.recipe import encode
from regard.tokens import PAD, TokenizerPair
from regard.training.optimiser import make_optimiser, set_rate

try:
    import transformers
except ImportError:
    transformers = None  # type: ignore[assignment]
try:
    import x_transformers
except ImportError:
    x_transformers = None

CONFIG = Path(__file__).parent.parent / "configs" / "multi30k-en-de.toml"


def configuration(tiny: bool) -> Any:
    if tiny:
        return run_config("translate", {"preset": "demo", "data": {"builtin_size": 200}, "tokens": {"size": 300}})
    if os.environ.get("REGARD_DATA"):
        return run_config(str(CONFIG))
    return run_config("translate", {"preset": "tiny", "tokens": {"size": 10_000}})


def regard_step(config: TranslateConfig, vocabulary: int) -> Callable[[PairBatch, int], None]:
    model = build_model(config.model, vocabulary, vocabulary, config.train.smoothing).train()
    optimiser = make_optimiser(model, config.train)
    set_rate(optimiser, 1e-4)

    def step(batch: PairBatch, number: int) -> None:
        with noise(1, number):
            loss = model(batch).objective(batch.counts)
        update(model, optimiser, loss, config.train.clip)

    return step


def marian_step(config: TranslateConfig, vocabulary: int) -> Callable[[PairBatch, int], None]:
    model = transformers.MarianMTModel(marian_config(config, vocabulary)).train()
    optimiser = make_optimiser(model, config.train)
    set_rate(optimiser, 1e-4)

    def step(batch: PairBatch, number: int) -> None:
        logits = model(
            input_ids=batch.source,
            attention_mask=(batch.source != PAD).long(),
            decoder_input_ids=batch.target[:, :-1],
            use_cache=False,
        ).logits
        wanted = batch.target[:, 1:].flatten()
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


def plain_step(config: TranslateConfig, vocabulary: int) -> Callable[[PairBatch, int], None]:
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


def x_step(config: TranslateConfig, vocabulary: int) -> Callable[[PairBatch, int], None]:
    return logits_step(XTransformers(config, vocabulary), config)


def logits_step(model: nn.Module, config: TranslateConfig) -> Callable[[PairBatch, int], None]:
    """An update of a model that gives logits of a source and a target."""
    optimiser = make_optimiser(model.train(), config.train)
    set_rate(optimiser, 1e-4)

    def step(batch: PairBatch, number: int) -> None:
        logits, wanted = model(batch.source, batch.target[:, :-1]), batch.target[:, 1:].flatten()
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
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=6, help="batches in a round")
    parser.add_argument(
        "--tokens", type=int, default=4096, help="tokens in a batch, on its larger side, padding included"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", choices=MAKE, help="measure one alone")
    parser.add_argument("--json", "--out", type=Path, help="also write the figures here")
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    if options.tiny:
        options.rounds = options.batches = 1
    torch.set_num_threads(options.threads)
    config = configuration(options.tiny)
    pairs = load_pairs(config.data).train
    tokenizers = TokenizerPair.train([a for a, _ in pairs], [b for _, b in pairs], config.tokens)
    source = Batches(encode(pairs, tokenizers), options.tokens, seed=1)
    batches = [source.get(0, index) for index in range(options.batches)]
    tokens = sum(batch.target_tokens for batch in batches)
    vocabulary = tokenizers.target.size
    names = present()
    if options.only is not None:
        names = [name for name in names if name == options.only]
    steps = {name: MAKE[name](config, vocabulary) for name in names}
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.rounds + 1):
        for name in steps if turn % 2 else reversed(steps):  # each goes first as often as the others
            started = time.perf_counter()
            for number, batch in enumerate(batches):
                steps[name](batch, number)
            if turn:  # the first round warms up
                speeds[name].append(tokens / (time.perf_counter() - started))
    report(speeds, options)


def report(speeds: dict[str, list[float]], options: argparse.Namespace) -> None:
    figures = {
        "tokens_per_second": {name: round(statistics.median(values)) for name, values in speeds.items()},
        "speeds": {name: [round(value, 1) for value in values] for name, values in speeds.items()},
        "rounds": options.rounds,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": getattr(transformers, "__version__", None),
    }
    for name, values in speeds.items():
        print(
            f"{name:15} {statistics.median(values):8,.0f} target tokens/s (from {min(values):,.0f} to {max(values):,.0f})"
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
