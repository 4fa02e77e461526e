"""Speed of decoding with a cache beside transformers' `generate`: the same weights, the same ids, in turns.

    python benchmarks/generation_speed.py [--threads 1] [--rounds 7] [--out FILE]

Models have random weights, made with transformers and brought over through a folder. Both decode greedily, 128 tokens
after a prompt of 16, one sequence alone and 16 together; the end token is forbidden on both sides, so that all go on to
the last token. Transformers runs at its defaults (eval, sdpa attention, DynamicCache). The ids must be equal. Round by
round in turns, so that whatever else the machine does meets both alike. Prints new tokens per second of each, and the
median and range of the ratio. Without transformers (the `hf` extra: pip install regard[hf]) only our side is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.interop.folder import import_folder
from regard.models.config import GPT2Config, LlamaConfig
from regard.models.fast.language import FastLanguage
from regard.models.fast.stepper import LaidOut
from regard.models.table import build
from regard.tokens import TokensConfig, train_tokenizer

try:
    import transformers
except ImportError:
    transformers = None  # type: ignore[assignment]

PROMPT, NEW = 16, 128  # tokens
END = 0  # the id that ends a sequence, forbidden here


@dataclass(frozen=True)
class Size:
    layers: int
    heads: int
    width: int
    vocabulary: int
    rounds: int | None = None  # None: as many as asked for
    new: int = NEW  # tokens


SIZES = {
    "4 x 128": Size(4, 4, 128, 10_000),
    "6 x 384": Size(6, 6, 384, 10_000),
    "12 x 768": Size(12, 12, 768, 50_257, rounds=3),
}
TINY = Size(2, 2, 32, 300, rounds=1, new=5)


def make_gpt2(size: Size) -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=size.vocabulary,
            n_positions=PROMPT + NEW + 1,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            bos_token_id=END,
            eos_token_id=END,
        )
    )


def make_llama(size: Size) -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=size.vocabulary,
            hidden_size=size.width,
            intermediate_size=8 * size.width // 3 // 8 * 8,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads // 2,
            max_position_embeddings=PROMPT + NEW + 1,
            bos_token_id=END,
            eos_token_id=END,
        )
    )


@torch.no_grad()
def stirred(foreign: Any) -> Any:
    """Larger weights in the blocks: as it is made, a model only repeats its last token, and equal ids would say little."""
    for name, parameter in foreign.named_parameters():
        if parameter.dim() > 1 and (".h." in name or ".layers." in name):
            parameter.normal_(std=2 * foreign.config.hidden_size**-0.5)
    return foreign.eval()


def brought_over(foreign: Any) -> Any:
    """The same weights in a model of ours, by way of a folder; the tokenizer there is not used."""
    with tempfile.TemporaryDirectory() as folder:
        foreign.save_pretrained(folder)
        train_tokenizer([], TokensConfig(kind="byte")).save(Path(folder) / "tokenizer.json")
        return import_folder(folder).model.eval()


def alone(kind: str, size: Size) -> Any:
    """A model of ours of the same shape, for where there is nobody to be beside."""
    shape: dict[str, Any] = {"layers": size.layers, "heads": size.heads, "width": size.width}
    shape |= {"feed_forward": 4 * size.width, "max_length": PROMPT + NEW + 1}
    config = GPT2Config(**shape) if kind == "gpt2" else LlamaConfig(**shape, groups=size.heads // 2)
    return build("generate", config, (size.vocabulary,)).eval()


MAKE: dict[str, Callable[[Size], Any]] = {"gpt2": make_gpt2, "llama": make_llama}


def ours(model: Any, prompt: Tensor, new: int) -> list[list[int]]:
    found = generate(
        LaidOut(model, FastLanguage.of).stepper(),
        None,
        prompt,
        end=END,
        limits=[new] * len(prompt),
        options=DecodeConfig(beam=1, scores=False),
        forbidden=[END],
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


def measure(kind: str, size: Size, batch: int, rounds: int, only: str | None = None) -> dict[str, Any]:
    torch.manual_seed(1)
    foreign = None if transformers is None or only == "regard" else stirred(MAKE[kind](size))
    own = alone(kind, size) if foreign is None or only is not None else brought_over(foreign)
    prompt = torch.randint(1, size.vocabulary, (batch, PROMPT))
    runs: dict[str, Callable[[], list[list[int]]]] = {"regard": lambda: ours(own, prompt, size.new)}
    if foreign is not None:
        runs["transformers"] = lambda: theirs(foreign, prompt, size.new)
    runs = {name: run for name, run in runs.items() if only in (None, name)}
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        ids = {}
        for name in runs if turn % 2 else reversed(runs):  # each goes first as often as the other
            started = time.perf_counter()
            ids[name] = runs[name]()
            if turn:  # the first round warms up
                speeds[name].append(batch * size.new / (time.perf_counter() - started))
        assert len(ids) < 2 or ids["regard"] == ids["transformers"], "the two wrote different ids"
    nobody = [math.nan] * rounds
    ratios = [a / b for a, b in zip(speeds.get("regard", nobody), speeds.get("transformers", nobody), strict=True)]
    return {
        "tokens_per_second": {name: round(statistics.median(values)) for name, values in speeds.items()},
        "speeds": {name: [round(value, 1) for value in values] for name, values in speeds.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "rounds": rounds,
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", nargs="+", choices=MAKE, default=list(MAKE))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--only", choices=("regard", "transformers"), help="measure one alone, such as for its memory")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    torch.set_num_threads(options.threads)
    sizes = {"tiny": TINY} if options.tiny else {name: SIZES[name] for name in options.sizes}
    if transformers is None:
        print("transformers is not installed (pip install regard[hf]); this is Regard alone")
    else:
        transformers.utils.logging.disable_progress_bar()
    rows = []
    print(f"{'':28}{'regard':>12}{'transformers':>14}{'ratio':>8}   from .. to")
    for name, size in sizes.items():
        for kind in options.kinds:
            for batch in options.batches:
                found = measure(kind, size, batch, min(options.rounds, size.rounds or options.rounds), options.only)
                rows.append({"kind": kind, "size": name, "batch": batch, **found})
                speed, (least, most) = found["tokens_per_second"], found["ratio_range"]
                print(
                    f"{kind:7}{name:10} batch {batch:3}  {speed.get('regard', 0):8,}/s {speed.get('transformers', 0):12,}/s"
                    f"{found['ratio']:8.2f}   {least:.2f} .. {most:.2f}",
                    flush=True,
                )
    if options.out:
        conditions = {
            "threads": options.threads,
            "prompt": PROMPT,
            "new_tokens": NEW,
            "torch": torch.__version__,
            "transformers": getattr(transformers, "__version__", None),
        }
        options.out.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
