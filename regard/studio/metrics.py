"""Counters, gauges and histograms, written in the text format of Prometheus (exposition format 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class Metric:
    """A family of numbers under one name, one for each combination of its labels."""

    kind = ""

    def __init__(self, name: str, does: str, labels: Sequence[str] = ()) -> None:
        self.name, self.does, self.labels, self.lock = name, does, tuple(labels), threading.Lock()

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.does}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.samples()

    def samples(self) -> Iterator[str]:
        raise NotImplementedError

    def sample(self, values: Labels, number: float, suffix: str = "", more: str = "") -> str:
        pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(self.labels, values, strict=True)]
        inside = ",".join([*pairs, more] if more else pairs)
        return f"{self.name}{suffix}{'{' + inside + '}' if inside else ''} {_number(number)}"


class Counter(Metric):
    """A number that only rises."""

    kind = "counter"

    def __init__(self, name: str, does: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, does, labels)
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, *labels: str, by: float = 1.0) -> None:
        with self.lock:
            self.values[labels] = self.values.get(labels, 0.0) + by

    def samples(self) -> Iterator[str]:
        with self.lock:
            found = sorted(self.values.items())
        return (self.sample(labels, value) for labels, value in found)


class Gauge(Metric):
    """A number that is asked for when it is written."""

    kind = "gauge"

    def __init__(self, name: str, does: str, ask: Callable[[], float]) -> None:
        super().__init__(name, does)
        self.ask = ask

    def samples(self) -> Iterator[str]:
        yield self.sample((), self.ask())


class Histogram(Metric):
    """How many observations were at most so large, for some sizes."""

    kind = "histogram"

    def __init__(self, name: str, does: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        super().__init__(name, does, labels)
        self.bounds = tuple(bounds)
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def observe(self, value: float, *labels: str, times: int = 1) -> None:
        with self.lock:
            counts = self.counts.setdefault(labels, [0] * (len(self.bounds) + 1))
            counts[bisect_left(self.bounds, value)] += times
            self.sums[labels] = self.sums.get(labels, 0.0) + value * times

    def samples(self) -> Iterator[str]:
        with self.lock:
            found = [(labels, list(counts), self.sums[labels]) for labels, counts in sorted(self.counts.items())]
        for labels, counts, total in found:
            reached = 0
            for bound, count in zip((*map(_number, self.bounds), "+Inf"), counts, strict=True):
                reached += count
                yield self.sample(labels, reached, "_bucket", f'le="{bound}"')
            yield self.sample(labels, total, "_sum")
            yield self.sample(labels, reached, "_count")


Steps = Callable[[], Mapping[str, Mapping[int, int]]]


class Sizes(Histogram):
    """A histogram of what someone else has counted: of each label, how often there was each size."""

    ask: Steps

    def __init__(self, name: str, does: str, bounds: Sequence[float], labels: Sequence[str]) -> None:
        super().__init__(name, does, bounds, labels)
        self.ask = dict

    def samples(self) -> Iterator[str]:
        with self.lock:
            self.counts.clear()
            self.sums.clear()
        for name, counted in self.ask().items():
            for size, times in counted.items():
                self.observe(size, name, times=times)
        return super().samples()


class Metrics:
    """What a service counts."""

    def __init__(self) -> None:
        self.requests = Counter("regard_requests_total", "Requests answered.", ("method", "route", "status"))
        self.seconds = Histogram(
            "regard_request_seconds", "Seconds from a request's arrival to the end of its answer.", SECONDS, ("route",)
        )
        self.refused = Counter("regard_refused_total", "Requests refused before any work.", ("reason",))
        self.batches = Sizes("regard_batch_size", "Sources of a step of decoding.", SIZES, ("model",))
        self.tokens = Counter("regard_tokens_total", "Tokens read and written.", ("model", "side"))
        self.loads = Counter("regard_model_loads_total", "Models loaded.", ("model",))
        self.gauges: list[Gauge] = []

    def gauge(self, name: str, does: str, ask: Callable[[], float]) -> None:
        self.gauges.append(Gauge(name, does, ask))

    def text(self) -> str:
        families: list[Metric] = [
            *(self.requests, self.seconds, self.refused, self.batches, self.tokens, self.loads),
            *self.gauges,
        ]
        return "".join(f"{line}\n" for family in families for line in family.lines())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
