"""What it costs to record the attention of a forward pass, in time and in memory: our own models, and other people's.

    python benchmarks/recording.py [--rounds 15] [--threads 2] [--json FILE] [--busy] [--tiny]

Time: passes without and with `regard.record`, in turns, so that whatever else the machine does meets both alike; the
ratio of the medians, and how the ratios of the rounds spread (the middle half of them). "maps" is what it takes to compute
every recorded map afterwards: that is put off until someone asks. "off" is the comparison that each attention of ours makes
when nobody records.
Memory: models of 6 layers (and 6, where there is a decoder) with 8 heads and a width of 512 on one text of 1,024 tokens
(looking at 1,024), each in a process of its own: the most that was resident, of a pass, of a recorded pass, and of one whose
maps were then all computed, one after another.
Without transformers (the `hf` extra: pip install regard[hf]) its two models are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.attention import attend, record
from regard.attention.record import attend_seen
from regard.data.batch import PairBatch
from regard.models.config import GPT2Config, TransformerConfig
from regard.models.table import build

VOCABULARY = 1000


@dataclass(frozen=True)
class Size:
    """Of a model and what it reads."""

    width: int
    heads: int
    layers: int
    length: int
    batch: int


SIZES = {  # ordinary models for an ordinary machine
    "transformer": Size(256, 8, 4, 128, 8),
    "gpt": Size(256, 8, 6, 256, 4),
    "nn.Transformer": Size(256, 8, 4, 128, 8),
    "bert": Size(256, 8, 4, 128, 8),
    "gpt2": Size(512, 8, 6, 512, 4),
}
LARGE, SMALL = Size(512, 8, 6, 1024, 1), Size(24, 2, 2, 16, 2)
MODES = ("pass", "recorded", "maps")


def ours(size: Size) -> tuple[nn.Module, Callable[[], Any]]:
    layers = {"encoder_layers": size.layers, "decoder_layers": size.layers}
    shape: dict[str, Any] = {"width": size.width, "heads": size.heads, "feed_forward": 4 * size.width, **layers}
    model: Any = build("translate", TransformerConfig(**shape), (VOCABULARY, VOCABULARY)).eval()
    lengths = torch.full((size.batch,), size.length)
    source, target = ids(size), torch.cat([ids(size), ids(size)[:, :1]], dim=1)
    batch = PairBatch(source, lengths, target, lengths, size.batch * size.length)
    return model, lambda: model.hidden(batch)


def our_gpt(size: Size) -> tuple[nn.Module, Callable[[], Any]]:
    shape: dict[str, Any] = {
        "width": size.width,
        "heads": size.heads,
        "feed_forward": 4 * size.width,
        "layers": size.layers,
    }
    model: Any = build("generate", GPT2Config(**shape, max_length=size.length), (VOCABULARY,)).eval()
    tokens = ids(size)
    return model, lambda: model.read(tokens)


def torchs(size: Size) -> tuple[nn.Module, Callable[[], Any]]:
    layers = (size.layers, size.layers)  # of the encoder and of the decoder
    model = nn.Transformer(size.width, size.heads, *layers, 4 * size.width, batch_first=True).eval()
    source, target = (torch.randn(size.batch, size.length, size.width) for _ in range(2))
    later = nn.Transformer.generate_square_subsequent_mask(size.length)
    return model, lambda: model(source, target, tgt_mask=later, tgt_is_causal=True)


def hugging_bert(size: Size) -> tuple[nn.Module, Callable[[], Any]]:
    import transformers

    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        max_position_embeddings=max(512, size.length),
    )
    model, tokens = transformers.BertModel(config).eval(), ids(size)
    mask = torch.ones_like(tokens)
    mask[0, size.length // 2 :] = 0
    return model, lambda: model(tokens, attention_mask=mask)


def hugging_gpt2(size: Size) -> tuple[nn.Module, Callable[[], Any]]:
    import transformers

    shape: dict[str, Any] = {
        "n_embd": size.width,
        "n_layer": size.layers,
        "n_head": size.heads,
        "n_positions": size.length,
    }
    config = transformers.GPT2Config(vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2, **shape)
    model, tokens = transformers.GPT2Model(config).eval(), ids(size)
    return model, lambda: model(tokens, use_cache=False)


CASES: dict[str, Callable[[Size], tuple[nn.Module, Callable[[], Any]]]] = {
    "transformer": ours,
    "gpt": our_gpt,
    "nn.Transformer": torchs,
    "bert": hugging_bert,
    "gpt2": hugging_gpt2,
}
NAMES = {
    "transformer": "Transformer (ours)",
    "gpt": "GPT-2 (ours)",
    "nn.Transformer": "nn.Transformer",
    "bert": "BERT (Hugging Face)",
    "gpt2": "GPT-2 (Hugging Face)",
}


def ids(size: Size) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, (size.batch, size.length))


def in_turns(
    model: nn.Module, run: Callable[[], Any], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Seconds of a pass without and with recording, and of computing all maps afterwards."""
    times: dict[bool, list[float]] = {False: [], True: []}
    maps: list[float] = []
    worst, calls = 0.0, 0
    for turn in range(rounds + 1):
        for recorded in (False, True) if turn % 2 else (True, False):
            started = clock()
            with record(model) if recorded else nullcontext() as seen:
                run()
            passed = clock() - started
            if seen is not None:
                started, calls = clock(), len(seen.calls)
                for call in seen.calls:
                    call.weights()
                made = clock() - started
                worst = max(worst, seen.check()) if turn == 0 else worst
            if turn:  # the first round warms up
                times[recorded].append(passed)
                maps += [made] if recorded else []
    ratios = [on / off for off, on in zip(times[False], times[True], strict=True)]
    middle = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    off, on = (statistics.median(times[each]) for each in (False, True))
    return {
        "off_ms": off * 1e3,
        "on_ms": on * 1e3,
        "ratio": on / off,
        "ratio_middle_half": [middle[0], middle[2]],
        "maps_ms": statistics.median(maps) * 1e3,
        "attentions": calls,
        "worst_difference": worst,
    }


def cost_off(times: int = 20_000) -> float:
    """What `attend_seen` asks when nobody records or changes anything, in nanoseconds, the median of several tries."""
    x, owner = torch.ones(1, 1, 1, 4), nn.Identity()
    tries = []
    for _ in range(times // 100):  # in turns
        with torch.inference_mode():
            seen = _seconds(lambda: attend_seen(owner, "self", x, x, x), 100)
            plain = _seconds(lambda: attend(x, x, x), 100)
        tries.append(seen - plain)
    return statistics.median(tries) * 1e9


def _seconds(work: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


def memory_of(case: str, mode: str, size: Size) -> float:
    """The most that was resident, in MiB; in a process of its own it means something."""
    torch.manual_seed(1)
    model, run = CASES[case](size)
    with torch.no_grad(), nullcontext() if mode == "pass" else record(model) as seen:
        run()
    if seen is not None and mode == "maps":
        for call in seen.calls:
            call.weights()
    return peak()


def peak() -> float:
    """MiB. Linux hands `ru_maxrss` down from the process that started this one, but not VmHWM."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def memory(case: str, options: argparse.Namespace) -> dict[str, float]:
    found = {}
    for mode in MODES:
        if options.tiny:
            found[mode] = memory_of(case, mode, SMALL)
            continue
        command = [sys.executable, __file__, "--child", case, mode, "--threads", str(options.threads)]
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            sys.exit(f"{case}, {mode}: {done.stderr}")
        found[mode] = float(done.stdout)
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument(
        "--busy", action="store_true", help="one thread, and its own time: for a machine that others use"
    )
    parser.add_argument("--tiny", action="store_true", help="tiny sizes and one round, to see that it runs")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    torch.set_num_threads(1 if options.busy else options.threads)
    clock = time.process_time if options.busy else time.perf_counter
    warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors|enable_nested_tensor is True")
    if options.child:
        print(memory_of(options.child[0], options.child[1], LARGE))
        return
    if find_spec("transformers") is None:
        print("transformers is not installed (pip install regard[hf]); its models are left out")
        options.only = [case for case in options.only if case not in ("bert", "gpt2")]
    options.rounds = 1 if options.tiny else options.rounds
    figures: dict[str, Any] = {"time": {}, "memory": {}, "off_ns": cost_off(200 if options.tiny else 20_000)}
    print(f"{'':21} {'size':>24} {'off':>9} {'on':>9} {'ratio':>6} {'middle half':>13} {'maps':>9} {'difference':>11}")
    for case in options.only:
        size = SMALL if options.tiny else SIZES[case]
        torch.manual_seed(1)
        with torch.no_grad():
            row = in_turns(*CASES[case](size), options.rounds, clock)
        figures["time"][case] = {**vars(size), **row}
        low, high = row["ratio_middle_half"]
        said = f"{size.width} wide, {size.layers} x {size.heads}, {size.batch} x {size.length}"
        times = f"{row['off_ms']:6.1f} ms {row['on_ms']:6.1f} ms {row['ratio']:6.3f} {low:6.3f} {high:6.3f}"
        print(
            f"{NAMES[case]:21} {said:>24} {times} {row['maps_ms']:6.1f} ms {row['worst_difference']:11.1e}", flush=True
        )
    print(f"\nwhen nobody records, an attention of ours takes {figures['off_ns']:.0f} ns more\n")
    large = SMALL if options.tiny else LARGE
    print(
        f"{'peak at ' + format(large.length, ',') + ' tokens':21} {'pass':>9} {'recorded':>9} {'adds':>9} {'with maps':>10}"
    )
    for case in options.only:
        found = figures["memory"][case] = memory(case, options)
        adds = found["recorded"] - found["pass"]
        print(
            f"{NAMES[case]:21} {found['pass']:5.0f} MiB {found['recorded']:5.0f} MiB {adds:5.0f} MiB {found['maps']:6.0f} MiB"
        )
    figures |= {"threads": torch.get_num_threads(), "rounds": options.rounds, "torch": torch.__version__}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
