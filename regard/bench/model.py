"""`regard bench RUN`: what one trained model costs on this machine, on random inputs as its task has them.

Training and decoding rates at several batch sizes, the latency of one input, memory and the time to load; beside them the
share of the matrix-product limit, and what to set. Everything is measured inside one budget of seconds: what does not fit
into it is left out, and the sentences at the end say only what was measured.

    share = multiply-adds of one update / its seconds / multiply-adds a second of one large matrix product
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.compare.conditions import Conditions, conditions
from regard.data.graphs.graph import Graph
from regard.data.sound.waves import Sound
from regard.errors import RegardError
from regard.files import JSON, read_json
from regard.models.operations import multiply_adds_of
from regard.predictor import Predictor
from regard.runs import bundle_folder
from regard.tasks.subject import ROWS, Subject
from regard.tasks.table import TASKS, family_of
from regard.tasks.trained import load_model
from regard.training.config import TrainConfig
from regard.training.optimiser import make_optimiser
from regard.training.stopwatch import peak_memory

BATCHES = (1, 8, 32, 128)  # inputs that are decoded together
READ = (7, 11, 13, 5, 17)  # tokens of an input
WRITTEN = 32  # tokens that a language model writes for each prompt
LARGE = 1024  # rows and columns of the matrices of the limit
COLD_FROM = 6.0  # seconds of budget from which on a second process is started to see how long loading takes there
MOST_ROUNDS = 200
CLEAR = 1.1  # how many times faster something must be before it is advised

OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class Decoding:
    """How fast inputs are answered, so many together in one way."""

    way: str  # "greedy", "beam 5", "sampling"; "labels" and "gaps" where nothing is written
    batch: int
    inputs_per_second: float
    tokens_per_second: float | None  # that are written
    rounds: int


@dataclass(frozen=True)
class Latency:
    """Seconds from one input to its answer."""

    way: str
    p50: float
    p90: float
    p99: float
    inputs: int


@dataclass(frozen=True)
class Training:
    """How fast the model learns from batches of so many examples."""

    batch: int
    updates_per_second: float
    tokens_per_second: float | None  # None: pictures have none
    share: float  # of the matrix-product limit
    rounds: int


@dataclass(frozen=True)
class ThreadCost:
    """The same work with another number of threads."""

    what: str  # "decoding" or "training"
    threads: int
    per_second: float  # inputs, or updates


@dataclass(frozen=True)
class ModelBench:
    """All that was measured of one model."""

    run: str
    task: str
    kind: str
    parameters: int
    conditions: Conditions
    limit: float  # multiply-adds a second of one large matrix product
    cold_load: float | None  # seconds of a new process that imports and loads; None: the budget was too small
    load: float  # seconds, all being imported
    memory: dict[str, int]  # bytes at most: once loaded, after decoding, after training
    decoding: tuple[Decoding, ...]
    latency: tuple[Latency, ...]
    training: tuple[Training, ...]
    threads: tuple[ThreadCost, ...]
    seconds: float
    advice: tuple[str, ...]

    def data(self) -> dict[str, JSON]:
        """The result as JSON holds it, in the schema of docs/json.md."""
        return asdict(self)


class Clock:
    """A budget of seconds, of which each measurement takes a share."""

    def __init__(self, budget: float) -> None:
        self.budget, self.began = budget, time.perf_counter()

    def spent(self) -> float:
        return time.perf_counter() - self.began

    def share(self, part: float) -> float:
        """So large a part of the whole budget, or what is left of it."""
        return max(0.0, min(part * self.budget, self.budget - self.spent()))


def bench_model(
    run: str | Path,
    *,
    budget: float = 20.0,
    threads: int | None = None,
    device: str = "cpu",
    on_progress: OnProgress = lambda what: None,
) -> ModelBench:
    """Measure a model within about `budget` seconds. Its weights in memory change; nothing is written."""
    clock, folder = Clock(budget), bundle_folder(run)
    with using_threads(threads):
        on_progress("loading")
        cold = _cold_load(folder, budget) if budget >= COLD_FROM else None
        load_model(folder, device)  # imports whatever loading needs
        began = time.perf_counter()
        predictor = load_model(folder, device)
        load, memory = time.perf_counter() - began, {"loaded": peak_memory()}
        on_progress("the limit of matrix products")
        limit = matrix_limit(clock.share(0.04), predictor.device)
        subject = TASKS[predictor.config.task].make_subject(predictor.bundle, {torch.float32: predictor.model})
        on_progress("decoding")
        decoding, latency, costs = bench_decoding(predictor, subject, clock, alone=threads is not None)
        memory["decoding"] = peak_memory()
        on_progress("training")
        train = train_config(run)
        training, more = bench_training(subject, train, limit, clock, alone=threads is not None)
        memory["training"] = peak_memory()
        return ModelBench(
            str(run), predictor.config.task, predictor.config.model.kind, _size(predictor), conditions(device), limit,
            cold, load, memory, tuple(decoding), tuple(latency), tuple(training), (*costs, *more), clock.spent(),
            tuple(advice(decoding, training, (*costs, *more), torch.get_num_threads())),
        )  # fmt: skip


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Inside, torch uses so many threads (None: as many as it does); afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_config(run: str | Path) -> TrainConfig:
    """The settings that a run learned with; those of a bundle alone are not known, and the defaults stand for them."""
    file = Path(run) / "run.json"
    values = read_json(file).get("config", {}).get("train") if file.exists() else None
    return TrainConfig.model_validate(values) if isinstance(values, dict) else TrainConfig()


def _size(predictor: Predictor) -> int:
    return sum(parameter.numel() for parameter in predictor.model.parameters())


def _cold_load(folder: Path, most: float) -> float | None:
    """Seconds of a new process that loads the model, imports included; None where it did not end in time."""
    program = "import sys, regard; regard.load(sys.argv[1])"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    began = time.perf_counter()
    try:
        subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=2 * most, env=environment)
    except (subprocess.SubprocessError, OSError):
        return None
    return time.perf_counter() - began


# --- The limit


def timed(work: Callable[[], object], seconds: float, *, least: int = 1) -> list[float]:
    """Seconds of each repetition, as many as fit; one more before them warms up, if there is time for it."""
    began, spans = time.perf_counter(), list[float]()
    while len(spans) < least + 1 or (time.perf_counter() - began < seconds and len(spans) < MOST_ROUNDS):
        start = time.perf_counter()
        work()
        spans.append(time.perf_counter() - start)
        if spans[0] > seconds:  # one was too long already, and must do
            return spans
    return spans[1:]


def matrix_limit(seconds: float, device: torch.device) -> float:
    """Multiply-adds a second of one large product in float32, the best of several."""
    a, b = torch.randn(LARGE, LARGE, device=device), torch.randn(LARGE, LARGE, device=device)

    def product() -> float:
        return float((a @ b)[0, 0])  # waits for a device

    return LARGE**3 / min(timed(product, seconds, least=3))


# --- Decoding


Ask = Callable[[Sequence[Any]], int | None]  # answers inputs; how many tokens it wrote


def ways_of(predictor: Any, task: str) -> dict[str, Ask]:
    """The ways in which a predictor answers inputs, by name: greedily, and as its bundle says where that is another one."""
    if task == "fill":
        named = predictor.model.head is not None
        return {"gaps": lambda texts: _count(predictor.fill, texts)} if named else {"vectors": predictor.vectors}
    if task == "classify":
        seconds = bool(predictor.config.pairs)
        return {"labels": lambda texts: _none(predictor.classify(list(texts), list(texts) if seconds else None))}
    if task in ("classify-pictures", "classify-sounds"):
        return {"labels": lambda inputs: _none(predictor.classify(list(inputs)))}
    if task == "classify-graphs":
        return {"labels": lambda graphs: _none(predictor.probabilities(list(graphs)))}
    if task == "transcribe":
        return {"transcripts": lambda sounds: _none(predictor.transcribe(list(sounds)))}
    if task == "answer":
        return {"labels": lambda asked: _none(predictor.answer(asked[0][0], [text for _, text in asked]))}
    write = {"translate": "translate", "generate": "generate", "caption": "caption"}.get(task)
    if write is None:
        return {"predictions": lambda texts: _none(predictor.predict(list(texts)))}
    own, limits = predictor.options({}), {"max_length": WRITTEN} if task == "generate" else {}
    ask = getattr(predictor, write)

    def greedy(inputs: Sequence[Any]) -> int:
        plain = {"sample": False, "beam": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "n_best": 1}
        return sum(len(each.tokens) for each in ask(list(inputs), batch_sentences=len(inputs), **plain, **limits))

    def as_told(inputs: Sequence[Any]) -> int:
        return sum(len(each.tokens) for each in ask(list(inputs), batch_sentences=len(inputs), **limits))

    if own.beam == 1 and not own.sample:
        return {"greedy": greedy}
    return {"greedy": greedy, "sampling" if own.sample else f"beam {own.beam}": as_told}


def _none(answers: object) -> None:
    return None


def _count(fill: Callable[[str], object], texts: Sequence[str]) -> None:
    for text in texts:
        fill(text)


def inputs_of(predictor: Any, subject: Subject, task: str, count: int) -> list[Any]:
    """Random inputs as the task has them: texts of ordinary tokens, pictures and sounds of noise, rings of nodes."""
    if predictor.config.graphs is not None:
        return [_ring(READ[number % len(READ)], predictor.config.graphs.features) for number in range(count)]
    if predictor.config.sounds is not None:
        rate = predictor.config.sounds.rate
        return [
            Sound(np.random.default_rng(number).uniform(-1, 1, rate).astype(np.float32), rate)
            for number in range(count)
        ]
    texts = [""] * count
    if predictor.config.tokens is not None:
        tokenizers = predictor.bundle.tokenizers
        tokenizer = tokenizers.source if task == "translate" else tokenizers.target
        side = 0 if task == "translate" else -1
        lengths = [READ[number % len(READ)] for number in range(count)]
        texts = [tokenizer.decode(ids.tolist()) or "a" for ids in subject.draw(lengths, special=3, side=side)]
        if task == "fill" and tokenizer.specials.mask is not None:
            texts = [f"{tokenizer.labels([tokenizer.specials.mask])[0]} {text}" for text in texts]
    if predictor.config.pictures is None or task in ("translate", "generate", "fill", "classify"):
        return list(texts)
    size, channels = predictor.config.pictures.size, predictor.config.pictures.channels
    noise = np.random.default_rng(1).integers(0, 256, (count, size, size, channels)).astype(np.uint8)
    return list(zip(noise, texts, strict=True)) if task == "answer" else list(noise)


def _ring(nodes: int, features: int) -> Graph:
    """Nodes of which each looks at the one before it, with features of noise."""
    places = np.arange(nodes)
    noise = np.random.default_rng(nodes).random((nodes, features), dtype=np.float32)
    return Graph(np.stack([places - 1, places]) % nodes, noise, np.full(nodes, -1))


def bench_decoding(
    predictor: Predictor, subject: Subject, clock: Clock, *, alone: bool
) -> tuple[list[Decoding], list[Latency], list[ThreadCost]]:
    """Rates at several batch sizes, the latency of one input, and the largest batch with one thread beside all."""
    task = family_of(predictor.config.task)
    inputs = inputs_of(predictor, subject, task, max(BATCHES))
    rates, latencies, ways = list[Decoding](), list[Latency](), ways_of(predictor, task)
    for way, ask in ways.items():
        spans, tokens = _one_by_one(ask, inputs, clock.share(0.16 / len(ways)))
        each = statistics.mean(spans)
        p50, p90, p99 = (float(np.percentile(spans, part)) for part in (50, 90, 99))
        latencies.append(Latency(way, p50, p90, p99, len(spans)))
        rates.append(Decoding(way, 1, 1 / each, None if tokens is None else tokens / each, len(spans)))
        for batch in BATCHES[1:]:
            seconds = clock.share(0.08 / len(ways))
            if seconds < each * batch / 8:  # a batch is cheaper than its inputs one by one, but not free
                break
            found = _rate(way, ask, inputs[:batch], seconds)
            rates.append(found)
    costs = []
    if not alone and torch.get_num_threads() > 1 and clock.share(0.06):
        best = max((each for each in rates if each.way == next(iter(ways))), key=lambda each: each.inputs_per_second)
        costs = [ThreadCost("decoding", torch.get_num_threads(), best.inputs_per_second)]
        with using_threads(1):
            again = _rate(best.way, ways[best.way], inputs[: best.batch], clock.share(0.06))
        costs.append(ThreadCost("decoding", 1, again.inputs_per_second))
    return rates, latencies, costs


def _one_by_one(ask: Ask, inputs: Sequence[Any], seconds: float) -> tuple[list[float], float | None]:
    """Seconds of each input asked alone, after the first, which warms up; and the mean number of tokens written."""
    written, turn = list[int | None](), iter(range(10**9))

    def one() -> None:
        written.append(ask([inputs[next(turn) % len(inputs)]]))

    spans = timed(one, seconds, least=3)
    counts = [count for count in written if count is not None]
    return spans, statistics.mean(counts) if counts else None


def _rate(way: str, ask: Ask, inputs: Sequence[Any], seconds: float) -> Decoding:
    written = list[int | None]()
    spans = timed(lambda: written.append(ask(inputs)), seconds)
    each, tokens = statistics.median(spans), written[0]
    return Decoding(way, len(inputs), len(inputs) / each, None if tokens is None else tokens / each, len(spans))


# --- Training


def bench_training(
    subject: Subject, config: TrainConfig, limit: float, clock: Clock, *, alone: bool
) -> tuple[list[Training], list[ThreadCost]]:
    """Updates on batches as large as the run had, a quarter of that and four times that, and with one thread beside all."""
    if not subject.learns:
        return [], []
    model: Any = subject.bundle.model.train()
    optimiser = make_optimiser(model, config)
    own, found, costs = _own_rows(subject, config), list[Training](), list[ThreadCost]()
    for rows in sorted({max(1, own // 4), own, 4 * own}):
        share, last = clock.share(0.09), found[-1] if found else None
        if last is not None and share < 2 * rows / last.batch / last.updates_per_second:
            break
        batch = _batch(subject, rows)

        def update(batch: Any = batch) -> None:
            model(batch).objective(dict(batch.counts)).backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

        each = statistics.median(spans := timed(update, share))
        tokens = _tokens(batch)
        products = multiply_adds_of(update) / each / limit
        found.append(Training(rows, 1 / each, None if tokens is None else tokens / each, products, len(spans)))
        if rows == own and not alone and torch.get_num_threads() > 1 and clock.share(0.06):
            costs.append(ThreadCost("training", torch.get_num_threads(), 1 / each))
            with using_threads(1):
                costs.append(ThreadCost("training", 1, 1 / statistics.median(timed(update, clock.share(0.06)))))
    return found, costs


def _own_rows(subject: Subject, config: TrainConfig) -> int:
    """Rows of the subject that make a batch as large as the run's: in tokens, padding included, or in pictures."""
    if subject.bundle.config.pictures is not None:
        return config.batch_pictures
    widest = max(value.size(1) for value in vars(subject.take(ROWS)).values() if _is_matrix(value))
    return max(1, config.batch_tokens // widest)


def _is_matrix(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 2


def _batch(subject: Subject, rows: int) -> Any:
    return subject.batch(subject.bundle.model, [row % len(ROWS) for row in range(rows)])


def _tokens(batch: Any) -> int | None:
    """Tokens of a batch: those to write, or those to read; pictures alone have none."""
    lengths = getattr(batch, "target_lengths", getattr(batch, "lengths", None))
    return None if lengths is None else int(lengths.sum())


# --- What to set


def advice(
    decoding: Sequence[Decoding], training: Sequence[Training], costs: Sequence[ThreadCost], threads: int
) -> Iterator[str]:
    """Sentences on what to set, each from figures that were measured here."""
    if not decoding:
        raise RegardError("nothing was measured", "give it more time")
    way = decoding[0].way
    rates = {each.batch: each.inputs_per_second for each in decoding if each.way == way}
    best = max(rates, key=lambda batch: rates[batch])
    enough = min(batch for batch, rate in rates.items() if rate * CLEAR >= rates[best])
    if rates[enough] > CLEAR * rates[1]:
        yield f"ask for {enough} inputs together: {rates[enough] / rates[1]:.1f} times as many a second as one by one"
    elif len(rates) > 1:
        yield "inputs one by one are as fast as many together"
    for what in ("decoding", "training"):
        found = {each.threads: each.per_second for each in costs if each.what == what}
        if len(found) < 2:
            continue
        quicker = max(found, key=lambda count: found[count])
        gain = found[quicker] / min(found.values())
        if gain < CLEAR:
            yield f"{what}: {threads} threads are as fast as one; OMP_NUM_THREADS=1 leaves cores to others"
        else:
            yield f"{what}: OMP_NUM_THREADS={quicker} is {gain:.1f} times as fast as {min(set(found) - {quicker})}"
    if training:
        top = max(training, key=lambda each: each.share)
        yield f"training uses {top.share:.0%} of what this machine multiplies at most, in batches of {top.batch}"
