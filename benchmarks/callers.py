"""Callers who come and go: 200 texts that arrive at random within a second, served together, against one by one and at once.

    python benchmarks/callers.py [--threads 2] [--rounds 3] [--texts 200] [--out FILE]

Translation (Transformer, 4 + 4 layers of width 128, 10,000 tokens, random weights; sources as long as those of Multi30k;
greedily and with a beam of 5, limits as in translating) and generation (GPT-2's line, 4 layers of width 128, prompts of 4 to
64 tokens, 32 new tokens each, greedily and drawn). For each, in turns:

    one by one   each text alone, after the one before
    at once      all texts given together, in groups, as `translate` and `generate` do it with a list
    served       a thread for each text, which asks when its text arrives, and waits; arrivals are drawn within a second

Rates are texts a second: of the served both by the clock, from the first arrival to the last answer, and by the time that
the engine computed, since nobody answers what has not arrived: 200 texts within a second are no more than that. With
`--texts 1000` more arrive than can be answered; 200 of them are asked one by one. In float64 all three give the same tokens,
which is checked. Then 1,000 requests are cancelled in the midst, and no row is left.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.bundle import Bundle, BundleConfig
from regard.decode.ranking import Hypothesis
from regard.decode.search import generate, groups
from regard.decode.tickets import Request
from regard.errors import Cancelled
from regard.models.config import GPT2Config, TransformerConfig
from regard.models.gpt import GPT
from regard.models.transformer import Transformer
from regard.tasks.generate.predictor import Generator
from regard.tasks.translate.predictor import Translator
from regard.tokens import TokenizerPair, TokensConfig, train_tokenizer

ALONE = 200  # texts that are asked one by one
FIRST, END = 300, 2  # ids below have a meaning of their own; of translations


@dataclass(frozen=True)
class Size:
    layers: int = 4
    width: int = 128
    heads: int = 4
    vocabulary: int = 10_000
    texts: int = 200
    seconds: float = 1.0  # within which they arrive
    new: int = 32  # tokens to generate
    cancelled: int = 1000


TINY = Size(layers=1, width=16, heads=2, vocabulary=330, texts=6, seconds=0.02, new=4, cancelled=20)
Answers = list[list[Hypothesis]]


@dataclass(frozen=True)
class Work:
    """One kind of model and of search, and what it is asked."""

    name: str
    predictor: Any  # a Translator or a Generator
    requests: list[Request]

    def alone(self) -> Answers:
        return [self._together([request])[0] for request in self.requests[:ALONE]]

    def at_once(self) -> Answers:
        found: Answers = [[] for _ in self.requests]
        options = self.requests[0].options
        for group in groups([len(each.source) for each in self.requests], options):
            for place, answer in zip(group, self._together([self.requests[i] for i in group]), strict=True):
                found[place] = answer
        return found

    def _together(self, requests: Sequence[Request]) -> Answers:
        model = self.predictor.served_model()
        return generate(
            model.stepper(requests[0]), *model.collate([each.source for each in requests]),
            end=model.ends[0], also_end=model.ends[1:], forbidden=model.forbidden, options=requests[0].options,
            limits=[each.limit for each in requests], streams=[each.stream for each in requests],
        )  # fmt: skip

    def served(self, arrivals: Sequence[float]) -> tuple[Answers, dict[str, float]]:
        """Each request by a thread of its own, at its time."""
        answers: dict[int, list[Hypothesis]] = {}
        waited: list[float] = []
        with self.predictor.served() as predictor:
            engine, begun = predictor.service.engine, time.perf_counter() + 0.05

            def ask(place: int) -> None:
                time.sleep(max(0.0, begun + arrivals[place] - time.perf_counter()))
                asked = time.perf_counter()
                answers[place] = engine.submit(self.requests[place]).result()
                waited.append(time.perf_counter() - asked)

            threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(self.requests))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.perf_counter() - begun - min(arrivals)
            done = engine.statistics()
        sizes = sum(size * steps for size, steps in done.batch_sizes.items()) / max(1, done.steps)
        figures = {"clock": seconds, "computing": done.seconds_computing, "batch": sizes}
        figures["median_wait"], figures["longest_wait"] = statistics.median(waited), max(waited)
        return [answers[place] for place in range(len(self.requests))], figures


def make_works(size: Size, dtype: torch.dtype) -> list[Work]:
    translator, generator = make_translator(size, dtype), make_generator(size, dtype)
    draw = np.random.default_rng(1)
    lengths = np.clip(np.round(draw.gamma(10.0, 1.3, size.texts)), 4, 35).astype(int)  # Multi30k's
    sources = [np.array([*draw.integers(FIRST, size.vocabulary, length - 1), END]) for length in lengths]
    prompts = [draw.integers(FIRST, size.vocabulary, length).tolist() for length in draw.integers(4, 65, size.texts)]
    works = []
    for beam in (1, 5):
        options = translator.options({"beam": beam, "max_ratio": 1.2, "max_extra": 3})
        asked = [Request(each, options, options.limit_for(len(each)), stream=i) for i, each in enumerate(sources)]
        works.append(Work(f"translation, beam {beam}", translator, asked))
    for name, asked_for in (("greedy", {"sample": False, "beam": 1}), ("drawn", {"sample": True, "top_k": 50})):
        options = generator.options({**asked_for, "min_length": size.new, "max_length": size.new})
        asked = [Request(each, options, size.new, stream=i) for i, each in enumerate(prompts)]
        works.append(Work(f"generation, {name}", generator, asked))
    return works


def make_translator(size: Size, dtype: torch.dtype) -> Translator:
    """Random weights, larger than those that training begins with, so that different sources give different tokens."""
    torch.manual_seed(1)
    config = TransformerConfig(
        encoder_layers=size.layers, decoder_layers=size.layers, width=size.width, heads=size.heads,
        feed_forward=2 * size.width, tied="none",
    )  # fmt: skip
    model = spread(Transformer(config, size.vocabulary, size.vocabulary)).to(dtype)
    tokenizer = train_tokenizer([], TokensConfig(kind="byte"))  # not used: sources are ids
    return Translator(Bundle(BundleConfig(model=config), model, TokenizerPair(tokenizer, tokenizer), {}))


def make_generator(size: Size, dtype: torch.dtype) -> Generator:
    torch.manual_seed(2)
    config = GPT2Config(layers=size.layers, width=size.width, heads=size.heads, feed_forward=4 * size.width)
    model = spread(GPT(config, size.vocabulary)).to(dtype)
    tokenizer = train_tokenizer([], TokensConfig(kind="byte"))
    bundle = BundleConfig(task="generate", model=config, vocabulary=(size.vocabulary,))
    return Generator(Bundle(bundle, model, TokenizerPair(tokenizer, tokenizer), {}))


@torch.no_grad()
def spread(model: nn.Module) -> nn.Module:
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "table" not in name and "output" not in name:
            nn.init.normal_(parameter, std=2 * parameter.size(1) ** -0.5)
    return model.eval()


def same(one: Answers, other: Answers) -> bool:
    return all([a.ids for a in ours] == [b.ids for b in theirs] for ours, theirs in zip(one, other, strict=True))


def arrivals_of(size: Size, seed: int) -> list[float]:
    return (size.seconds * np.random.default_rng(seed).random(size.texts)).tolist()


def timed(run: Callable[[], Answers]) -> tuple[Answers, float]:
    began = time.perf_counter()
    answers = run()
    return answers, time.perf_counter() - began


def measure(work: Work, size: Size, rounds: int) -> dict[str, Any]:
    """Medians of some rounds, in turns; the first round is not counted where there are others."""
    taken: list[dict[str, float]] = []
    differ = 0
    for number in range(rounds + (rounds > 1)):
        alone, one_by_one = timed(work.alone)
        answers, figures = work.served(arrivals_of(size, number))
        _, at_once = timed(work.at_once)
        differ = sum(a[0].ids != b[0].ids for a, b in zip(alone, answers, strict=False))
        taken.append({"one_by_one": one_by_one, "at_once": at_once, **figures})
    middle = {key: statistics.median(each[key] for each in taken[rounds > 1 :]) for key in taken[0]}
    rates = {key: size.texts / middle[key] for key in ("at_once", "clock", "computing")}
    rates["one_by_one"] = min(ALONE, size.texts) / middle["one_by_one"]
    return {
        "work": work.name, "texts_per_second": rates, "times_one_by_one": rates["clock"] / rates["one_by_one"],
        "of_at_once": rates["clock"] / rates["at_once"], "of_at_once_computing": rates["computing"] / rates["at_once"],
        "differ_in_float32": differ, "mean_batch": middle["batch"],
        "median_wait": middle["median_wait"], "longest_wait": middle["longest_wait"],
    }  # fmt: skip


def check_equal(size: Size, only: str) -> None:
    """In float64, whoever comes when, each text gives the same tokens, and the same probabilities but for rounding."""
    for work in [each for each in make_works(size, torch.float64) if only in each.name]:
        alone = work.alone()
        served, _ = work.served(arrivals_of(size, 7))
        assert same(alone, served) and same(alone, work.at_once()), work.name
        totals = [np.array([answer[0].log_probability for answer in answers]) for answers in (alone, served)]
        print(f"{work.name}: equal in float64; log-probabilities within {abs(totals[0] - totals[1]).max():.1e}")


def cancel_all(work: Work, size: Size) -> dict[str, int]:
    """Cancel requests at random moments; nothing is left of them, and the next one is answered as ever."""
    draw = np.random.default_rng(3)
    with work.predictor.served() as predictor:
        engine = predictor.service.engine
        tickets = [engine.submit(work.requests[n % len(work.requests)]) for n in range(size.cancelled)]
        for place in draw.permutation(len(tickets)).tolist():
            tickets[place].cancel()
            time.sleep(0.001 * draw.random())
        ended = {"cancelled": 0, "done before": 0}
        for ticket in tickets:
            try:
                ticket.result()
                ended["done before"] += 1
            except Cancelled:
                ended["cancelled"] += 1
        assert engine.submit(work.requests[0]).result()[0].ids == work.alone()[0][0].ids
        left = engine.statistics()
        assert (left.rows, left.running, left.waiting, left.tokens_held) == (0, 0, 0, 0), left
    return {**ended, "rows left": left.rows}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=200, help="that arrive within a second")
    parser.add_argument("--only", default="", help="kinds of work whose name holds this")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON")
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args(words)
    size, rounds = (TINY, 1) if asked.tiny else (Size(texts=asked.texts), asked.rounds)
    asked.threads = 1 if asked.tiny else asked.threads  # two would wait for each other's tiny products
    torch.set_num_threads(asked.threads)
    check_equal(replace(size, texts=min(ALONE, size.texts)), asked.only)
    found = []
    works = [work for work in make_works(size, torch.float32) if asked.only in work.name]
    for work in works:
        found.append(measure(work, size, rounds))
        show(found[-1])
    cancelled = cancel_all(works[0], size)
    print(f"{size.cancelled} requests: " + ", ".join(f"{count} {name}" for name, count in cancelled.items()))
    if asked.out is not None:
        everything = {"size": asdict(size), "threads": asked.threads, "rounds": rounds, "work": found}
        asked.out.write_text(json.dumps({**everything, "cancelling": cancelled}, indent=1) + "\n")


def show(row: dict[str, Any]) -> None:
    rates = row["texts_per_second"]
    print(
        f"{row['work']}: one by one {rates['one_by_one']:.0f}, at once {rates['at_once']:.0f}, served {rates['clock']:.0f} "
        f"a second ({rates['computing']:.0f} by computing): {row['times_one_by_one']:.2f} times one by one, "
        f"{row['of_at_once']:.2f} of at once ({row['of_at_once_computing']:.2f}); batches of {row['mean_batch']:.0f}, "
        f"waits {row['median_wait']:.3f} to {row['longest_wait']:.3f} s; {row['differ_in_float32']} differ in float32",
        flush=True,
    )


if __name__ == "__main__":
    main()
