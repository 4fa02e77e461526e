"""Speed of decoding with a cache beside transformers' `generate`: the same weights, the same ids, in turns.

    python benchmarks/generation_speed.py [--threads 1] [--rounds 7] [--out FILE]

Models have random weights, made with transformers and copied over. Both decode greedily, 128 tokens after a prompt of
16, one sequence alone and 16 together; the end token is forbidden on both sides, so that all go on to the last token.
Transformers runs at its defaults (eval, sdpa attention, DynamicCache). The ids must be equal. Round by round in turns, so
that whatever else the machine does meets both alike. Prints new tokens per second of each, and the median and range of
the ratio. Needs the `hf` extra: pip install regard[hf].
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.models import config as regard_config
from regard.models.gpt import GPT

PROMPT, NEW = 16, 128  # tokens
END = 0  # the id that ends a sequence, forbidden here
SPREAD = 0.08  # standard deviation of the weights: large enough that no two logits are equal up to rounding


@dataclass(frozen=True)
class Size:
    layers: int
    heads: int
    width: int
    vocabulary: int
    rounds: int | None = None  # None: as many as asked for


SIZES = {
    "4 x 128": Size(4, 4, 128, 10_000),
    "6 x 384": Size(6, 6, 384, 10_000),
    "12 x 768": Size(12, 12, 768, 50_257, rounds=3),
}


def make_gpt2(size: Size) -> tuple[GPT2LMHeadModel, GPT]:
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=size.vocabulary,
            n_positions=PROMPT + NEW + 1,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            bos_token_id=END,
            eos_token_id=END,
            initializer_range=SPREAD,
        )
    )
    config = regard_config.GPT2Config(
        layers=size.layers,
        heads=size.heads,
        width=size.width,
        feed_forward=4 * size.width,
        max_length=PROMPT + NEW + 1,
    )
    return theirs, copied(config, size, gpt2_weights(theirs))


def gpt2_weights(theirs: GPT2LMHeadModel) -> dict[str, Tensor]:
    """Their linear layers are (in, out), and queries, keys and values are one."""
    found = theirs.transformer.state_dict()
    weights = {
        "tokens.table.weight": found["wte.weight"],
        "tokens.positions.table": found["wpe.weight"],
        "output.weight": found["wte.weight"],
        "norm.weight": found["ln_f.weight"],
        "norm.bias": found["ln_f.bias"],
    }
    for layer in range(theirs.config.n_layer):
        for part in ("weight", "bias"):
            both = found[f"h.{layer}.attn.c_attn.{part}"].t()  # (3 D, D) or (3 D,)
            query, key_value = both.split([theirs.config.n_embd, 2 * theirs.config.n_embd])
            weights |= {
                f"blocks.{layer}.attention.query.{part}": query,
                f"blocks.{layer}.attention.key_value.{part}": key_value,
                f"blocks.{layer}.attention.out.{part}": found[f"h.{layer}.attn.c_proj.{part}"].t(),
                f"blocks.{layer}.feed_forward.up.{part}": found[f"h.{layer}.mlp.c_fc.{part}"].t(),
                f"blocks.{layer}.feed_forward.down.{part}": found[f"h.{layer}.mlp.c_proj.{part}"].t(),
                f"blocks.{layer}.around_attention.norm.{part}": found[f"h.{layer}.ln_1.{part}"],
                f"blocks.{layer}.around_feed_forward.norm.{part}": found[f"h.{layer}.ln_2.{part}"],
            }
    return weights


def make_llama(size: Size) -> tuple[LlamaForCausalLM, GPT]:
    inner, groups = 8 * size.width // 3 // 8 * 8, size.heads // 2
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=size.vocabulary,
            hidden_size=size.width,
            intermediate_size=inner,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=groups,
            max_position_embeddings=PROMPT + NEW + 1,
            bos_token_id=END,
            eos_token_id=END,
            initializer_range=SPREAD,
        )
    )
    config = regard_config.LlamaConfig(
        layers=size.layers,
        heads=size.heads,
        groups=groups,
        width=size.width,
        feed_forward=inner,
        epsilon=theirs.config.rms_norm_eps,
        tied=False,
    )
    return theirs, copied(config, size, llama_weights(theirs))


def llama_weights(theirs: LlamaForCausalLM) -> dict[str, Tensor]:
    found = theirs.model.state_dict()
    weights = {
        "tokens.table.weight": found["embed_tokens.weight"],
        "output.weight": theirs.lm_head.weight,
        "norm.weight": found["norm.weight"],
    }
    for layer in range(theirs.config.num_hidden_layers):
        own = {name.removeprefix(f"layers.{layer}."): value for name, value in found.items()}
        weights |= {
            f"blocks.{layer}.attention.query.weight": own["self_attn.q_proj.weight"],
            f"blocks.{layer}.attention.key_value.weight": torch.cat(
                [own["self_attn.k_proj.weight"], own["self_attn.v_proj.weight"]]
            ),
            f"blocks.{layer}.attention.out.weight": own["self_attn.o_proj.weight"],
            f"blocks.{layer}.feed_forward.gate_up.weight": torch.cat(
                [own["mlp.gate_proj.weight"], own["mlp.up_proj.weight"]]
            ),
            f"blocks.{layer}.feed_forward.down.weight": own["mlp.down_proj.weight"],
            f"blocks.{layer}.around_attention.norm.weight": own["input_layernorm.weight"],
            f"blocks.{layer}.around_feed_forward.norm.weight": own["post_attention_layernorm.weight"],
        }
    return weights


def copied(config: Any, size: Size, weights: dict[str, Tensor]) -> GPT:
    model = GPT(config, size.vocabulary).eval()
    model.load_state_dict({name: value.detach().clone() for name, value in weights.items()})
    return model


MAKE: dict[str, Callable[[Size], tuple[Any, GPT]]] = {"gpt2": make_gpt2, "llama": make_llama}


def ours(model: GPT, prompt: Tensor, new: int) -> list[list[int]]:
    found = generate(
        model, None, prompt, end=END, limits=[new] * len(prompt), options=DecodeConfig(beam=1), forbidden=[END]
    )
    return [list(best[0].ids) for best in found]


def theirs(model: Any, prompt: Tensor, new: int) -> list[list[int]]:
    found = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=new,
        min_new_tokens=new,
        pad_token_id=END,
    )
    return found[:, prompt.size(1) :].tolist()


def measure(kind: str, size: Size, batch: int, rounds: int) -> dict[str, Any]:
    torch.manual_seed(1)
    foreign, own = MAKE[kind](size)
    foreign.eval()
    prompt = torch.randint(1, size.vocabulary, (batch, PROMPT))
    runs: dict[str, Callable[[], list[list[int]]]] = {
        "regard": lambda: ours(own, prompt, NEW),
        "transformers": lambda: theirs(foreign, prompt, NEW),
    }
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        ids = {}
        for name in runs if turn % 2 else reversed(runs):  # each goes first as often as the other
            started = time.perf_counter()
            ids[name] = runs[name]()
            if turn:  # the first round warms up
                speeds[name].append(batch * NEW / (time.perf_counter() - started))
        assert ids["regard"] == ids["transformers"], "the two wrote different ids"
    ratios = [a / b for a, b in zip(speeds["regard"], speeds["transformers"], strict=True)]
    return {
        "tokens_per_second": {name: round(statistics.median(values)) for name, values in speeds.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", nargs="+", choices=MAKE, default=list(MAKE))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    print(f"{'':28}{'regard':>12}{'transformers':>14}{'ratio':>8}   from .. to")
    for name in options.sizes:
        for kind in options.kinds:
            for batch in options.batches:
                size = SIZES[name]
                found = measure(kind, size, batch, min(options.rounds, size.rounds or options.rounds))
                rows.append({"kind": kind, "size": name, "batch": batch, **found})
                speed, (least, most) = found["tokens_per_second"], found["ratio_range"]
                print(
                    f"{kind:7}{name:10} batch {batch:3}  {speed['regard']:8,}/s {speed['transformers']:12,}/s"
                    f"{found['ratio']:8.2f}   {least:.2f} .. {most:.2f}",
                    flush=True,
                )
    if options.out:
        conditions = {
            "threads": options.threads,
            "prompt": PROMPT,
            "new_tokens": NEW,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        options.out.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
