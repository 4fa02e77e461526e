"""Experiments on the softmax of attention: why scores are divided by √d, what a temperature does, likeness and unlikeness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.attention import attend
from regard.config import merge
from regard.experiments.learning import Examples, test_pairs, train_network, train_run
from regard.experiments.study import (
    Check,
    Found,
    Group,
    Part,
    Report,
    Row,
    Settings,
    Study,
    Table,
    above,
    at_least,
    at_most,
    spread,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# --- √d: the deviation of scores, and the gradient through their softmax


def softmax_gradient(weights: Tensor) -> Tensor:
    """‖∂ softmax / ∂ scores‖: the Frobenius norm of diag(p) - p pᵀ for weights p (..., S), without making the matrix.

    Its square is Σ p² - 2 Σ p³ + (Σ p²)².
    """
    squares, cubes = weights.square().sum(dim=-1), weights.pow(3).sum(dim=-1)
    return (squares - 2 * cubes + squares.square()).clamp(min=0).sqrt()


def score_rows(widths: Sequence[int], queries: int, keys: int, seed: int, report: Report) -> Row:
    """Scores of random queries and keys of variance 1 at each width, as they are and divided by √d."""
    rows = []
    for place, width in enumerate(widths):
        draw = torch.Generator().manual_seed(1000 * seed + width)
        q, k = (torch.randn(count, width, generator=draw, dtype=torch.float64) for count in (queries, keys))
        for scaled in (False, True):
            scores = q @ k.T / (math.sqrt(width) if scaled else 1.0)  # (queries, keys)
            weights = scores.softmax(dim=-1)
            rows.append(
                {
                    "width": width,
                    "scaled": scaled,
                    "deviation": float(scores.std()),
                    "greatest": float(weights.amax(dim=-1).mean()),
                    "gradient": float(softmax_gradient(weights).median()),
                }
            )
        report((place + 1) / len(widths))
    return {"what": "scores", "seed": seed, "rows": rows}


def scaling_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    sizes = settings["widths"], settings["queries"], settings["keys"]
    parts = [Part(f"scores, seed {seed}", partial(score_rows, *sizes, seed), 0.02) for seed in seeds]
    for seed in seeds:
        for heads in settings["heads"]:
            for scaled in (True, False):
                name = f"training, {heads} heads, {'scaled' if scaled else 'unscaled'}, seed {seed}"
                parts.append(Part(name, partial(_learn_scaled, settings, heads, scaled, seed)))
    return parts


def _learn_scaled(settings: Settings, heads: int, scaled: bool, seed: int, report: Report) -> Row:
    values = merge(settings["run"], {"model": {"heads": heads, "scaled": scaled}})
    test = partial(test_pairs, settings["test"], settings["tested"])
    width = settings["run"]["model"]["width"] // heads
    return {"what": "training", "head_width": width, "scaled": scaled, "seed": seed} | train_run(
        "translate", values, seed, test, report
    )


def _head_widths(found: Found) -> list[int]:
    return sorted({row["head_width"] for row in found.where(what="training")})


def scaling_tables(found: Found) -> list[Table]:
    rows = [
        [
            str(width),
            *(
                spread(found.values(key, what="scores", width=width, scaled=scaled))
                for key in ("deviation", "greatest", "gradient")
                for scaled in (False, True)
            ),
        ]
        for width in found.settings["widths"]
    ]
    columns = ["d", "deviation q·k", "q·k/√d", "greatest weight q·k", "q·k/√d", "gradient q·k", "q·k/√d"]
    learned = [
        [
            f"{width}",
            name,
            *(spread(found.values(key, what="training", head_width=width, scaled=scaled)) for key in ("exact", "nll")),
        ]
        for width in _head_widths(found)
        for name, scaled in (("q·k/√d", True), ("q·k", False))
    ]
    return [
        Table(columns, rows, f"Random vectors of variance 1, softmax over {found.settings['keys']} keys"),
        Table(["head width", "score", "exactly right, %", "nll of a token"], learned, "Trained alike"),
    ]


def scaling_checks(found: Found) -> list[Check]:
    narrow, wide = found.settings["widths"][0], found.settings["widths"][-1]

    def group(name: str, key: str, width: int, scaled: bool) -> Group:
        return found.group(name, key, what="scores", width=width, scaled=scaled)

    ratio = Group(
        f"deviation at d = {wide} over √{wide}",
        [value / math.sqrt(wide) for value in found.values("deviation", what="scores", width=wide, scaled=False)],
    )
    kept = Group(
        f"gradient at d = {wide} over that at {narrow}, scaled",
        [
            after / before
            for before, after in zip(
                found.values("gradient", what="scores", width=narrow, scaled=True),
                found.values("gradient", what="scores", width=wide, scaled=True),
                strict=True,
            )
        ],
    )
    widest = _head_widths(found)[-1]
    learned = [
        found.group(name, "exact", what="training", head_width=widest, scaled=scaled)
        for name, scaled in (("scaled", True), ("unscaled", False))
    ]
    checks = [
        Check("The deviation of scores is √d", str(ratio), all(abs(value - 1) < 0.1 for value in ratio.values)),
        at_least(
            "Unscaled, the softmax saturates", group(f"greatest weight at d = {wide}", "greatest", wide, False), 0.9
        ),
        above(
            "Its gradient vanishes without the scale",
            group("scaled", "gradient", wide, True),
            group("unscaled", "gradient", wide, False),
        ),
        at_least("With the scale the gradient does not depend on the width", kept, 0.8),
    ]
    return [*checks, above(f"A model with heads of width {widest} learns better with the scale", *learned)]


def draw_scaling(found: Found) -> Figure:
    from regard.experiments.drawing import by, dots, line, logarithmic, noted, panels, powers, titled
    from regard.look.figures.sheet import COLORS, legend

    figure, axes = panels(2, 2)
    for panel, (key, title, y) in zip(
        axes,
        (
            ("deviation", "deviation of the scores", ""),
            ("greatest", "greatest weight of a softmax", f"mean, {found.settings['keys']} keys"),
            ("gradient", "gradient through the softmax", "median norm"),
        ),
        strict=False,
    ):
        for place, (name, scaled) in enumerate((("q·k", False), ("q·k / √d", True))):
            rows = found.where(what="scores", scaled=scaled)
            line(panel, by([(row["width"], row[key]) for row in rows]), name, place)
        powers(panel, found.settings["widths"])
        titled(panel, title, "width d of queries and keys", y)
    axes[1].set_ylim(0, 1.02)
    for panel in (axes[0], axes[2]):
        logarithmic(panel)
    groups = {
        f"{'q·k / √d' if scaled else 'q·k'}, d = {width}": found.values(
            "exact", what="training", head_width=width, scaled=scaled
        )
        for width in _head_widths(found)
        for scaled in (False, True)
    }
    colors = [COLORS[number % 2] for number in range(len(groups))]
    dots(axes[3], groups, colors, "a small Transformer after equal training", "exactly right, % of unseen dates")
    legend(figure, axes[0])
    noted(figure, f"line: mean of {len(found.seeds)} seeds; band: least to greatest; dots: each seed")
    return figure


DATES = {
    "preset": "demo",
    "data": {"train": "builtin/dates", "builtin_size": 10_000},
    "tokens": {"kind": "character"},
    "model": {"kind": "transformer", "encoder_layers": 1, "decoder_layers": 1, "width": 64, "feed_forward": 128},
    "train": {
        "steps": 300,
        "batch_tokens": 1024,
        "optimiser": "muon",
        "lr": 1e-2,
        "schedule": "linear",
        "warmup": 30,
        "smoothing": 0.0,
        "average": 0,
        "validate_every": 300,
        "patience": 0,
    },
    "validate": {"sentences": 0},
    "decode": {"beam": 1},
}
TINY_DATES = merge(
    DATES,
    {
        "data": {"builtin_size": 60, "hold_out": 10},
        "model": {"width": 16, "feed_forward": 16},
        "train": {"steps": 2, "validate_every": 2, "warmup": 0},
    },
)
SCALING = Study(
    settings={
        "widths": [4, 16, 64, 256, 1024],
        "queries": 512,
        "keys": 64,
        "heads": [4, 1],
        "run": DATES,
        "test": "builtin/dates/test",
        "tested": 300,
    },
    tiny={"widths": [4, 16], "queries": 7, "keys": 5, "heads": [1], "run": TINY_DATES, "tested": 3},
    seeds=(1, 2),
    parts=scaling_parts,
    tables=scaling_tables,
    checks=scaling_checks,
    draw=draw_scaling,
)


# --- A hard table becomes a soft one


def read_table(query: Tensor, keys: Tensor, values: Tensor, temperature: float) -> Tensor:
    """softmax(q · k / τ) v: (N, E), (K, E), (K, V) -> (N, V). At τ = 0, the value of the nearest key."""
    scores = query @ keys.T  # (N, K)
    if temperature == 0:
        return values[scores.argmax(dim=-1)]
    return (scores / temperature).softmax(dim=-1) @ values


def table_rows(settings: Settings, seed: int, report: Report) -> Row:
    """Of a table of random unit keys, at each temperature: how far a soft reading is from the hard one, the gradient, and
    how many queries find the entry that is wanted by descent."""
    draw = torch.Generator().manual_seed(seed)
    width, entries, tries = settings["width"], settings["entries"], settings["tries"]
    keys, values, starts, places = (
        torch.nn.functional.normalize(torch.randn(count, width, generator=draw, dtype=torch.float64), dim=-1)
        for count in (entries, entries, tries, tries)
    )
    wanted = torch.randint(entries, (tries,), generator=draw)
    rows, temperatures = [], settings["temperatures"]
    for place, temperature in enumerate(temperatures):
        query = places.clone().requires_grad_()
        soft = read_table(query, keys, values, temperature)
        away = (soft - read_table(query, keys, values, 0)).norm(dim=-1).mean()
        slope = torch.zeros_like(query)
        if soft.requires_grad:
            (slope,) = torch.autograd.grad((soft * starts).sum(), query)
        right = descend(starts, keys, values, wanted, temperature, settings["descent"])
        rows.append(
            {
                "temperature": temperature,
                "away": float(away.detach()),
                "gradient": float(slope.norm(dim=-1).median()),
                "learned": 100 * float(right.double().mean()),
            }
        )
        report((place + 1) / len(temperatures))
    return {"seed": seed, "rows": rows}


def descend(starts: Tensor, keys: Tensor, values: Tensor, wanted: Tensor, temperature: float, how: Settings) -> Tensor:
    """Whether each query, moved by gradient descent on ‖read - wanted value‖², ends at the wanted entry: (N,), bool."""
    query = starts.clone().requires_grad_()
    optimiser = torch.optim.SGD([query], lr=how["rate"], momentum=0.9)
    for _ in range(how["steps"]):
        read = read_table(query, keys, values, temperature)
        if not read.requires_grad:
            break  # the hard table: nothing to follow
        optimiser.zero_grad()
        (read - values[wanted]).square().sum().backward()
        optimiser.step()
    return (query @ keys.T).argmax(dim=-1) == wanted


def table_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    return [Part(f"table, seed {seed}", partial(table_rows, settings, seed)) for seed in seeds]


def table_tables(found: Found) -> list[Table]:
    rows = [
        [
            f"{temperature:g}",
            *(spread(found.values(key, temperature=temperature)) for key in ("away", "gradient", "learned")),
        ]
        for temperature in found.settings["temperatures"]
    ]
    return [
        Table(
            ["temperature", "distance from the hard reading", "gradient at the query", "entry found by descent, %"],
            rows,
        )
    ]


def table_checks(found: Found) -> list[Check]:
    coldest, *_, warmest = temperatures = [each for each in found.settings["temperatures"] if each > 0]
    best = max(temperatures, key=lambda each: found.group("", "learned", temperature=each).mean)

    def learned(name: str, temperature: float) -> Group:
        return found.group(name, "learned", temperature=temperature)

    return [
        at_most(
            "A small temperature reads as the table does",
            found.group(f"distance at {coldest:g}", "away", temperature=coldest),
            0.1,
        ),
        above(
            "A large one reads a mixture",
            found.group(f"distance at {warmest:g}", "away", temperature=warmest),
            found.group(f"at {coldest:g}", "away", temperature=coldest),
        ),
        above(
            "The gradient vanishes as the table becomes hard",
            found.group(f"gradient at {best:g}", "gradient", temperature=best),
            found.group(f"at {coldest:g}", "gradient", temperature=coldest),
        ),
        above(
            "Through a warmer table one can learn",
            learned(f"found at {best:g}, %", best),
            learned(f"at {coldest:g}", coldest),
        ),
        above("Through the hard one nothing is learned", learned(f"found at {best:g}, %", best), learned("hard", 0)),
    ]


def draw_table(found: Found) -> Figure:
    from regard.experiments.drawing import by, line, logarithmic, noted, panels, percent, powers, titled
    from regard.look.figures.sheet import QUIET

    figure, axes = panels(1, 3, width=4.0)
    soft = [row for row in found.rows if row["temperature"] > 0]
    for place, (panel, (key, title)) in enumerate(
        zip(
            axes,
            (
                ("away", "distance from the hard reading"),
                ("gradient", "gradient at the query (median norm)"),
                ("learned", "wanted entry found by descent, %"),
            ),
            strict=True,
        )
    ):
        line(panel, by([(row["temperature"], row[key]) for row in soft]), key, place)
        powers(panel, sorted({row["temperature"] for row in soft}))
        titled(panel, title, "temperature of the softmax")
    logarithmic(axes[1])
    hard = found.group("", "learned", temperature=0)
    if hard.values:
        axes[2].axhline(hard.mean, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
        axes[2].annotate("the hard table", (0.98, hard.mean), xycoords=("axes fraction", "data"), xytext=(0, 4),
                         textcoords="offset points", ha="right", fontsize=8.5, color=QUIET)  # fmt: skip
    percent(axes[2])
    noted(
        figure,
        f"{found.settings['entries']} random keys; line: mean of {len(found.seeds)} seeds; band: least to greatest",
    )
    return figure


SOFT_TABLE = Study(
    settings={
        "width": 16,
        "entries": 16,
        "tries": 200,
        "temperatures": [0, 0.0078125, 0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0],
        "descent": {"steps": 300, "rate": 0.05},
    },
    tiny={"tries": 5, "temperatures": [0, 0.0625, 0.5], "descent": {"steps": 3, "rate": 0.05}},
    seeds=(1, 2, 3, 4, 5),
    parts=table_parts,
    tables=table_tables,
    checks=table_checks,
    draw=draw_table,
)


# --- Likeness and unlikeness


class Rigid(nn.Module):
    """Self-attention without queries and keys of its own: softmax(β x·x / √D) x. β is 1 (like), -1 (unlike) or learned."""

    def __init__(self, width: int, sign: float, *, learned: bool) -> None:
        super().__init__()
        self.sign = nn.Parameter(torch.tensor(sign), requires_grad=learned)

    def forward(self, x: Tensor) -> Tensor:
        heads = x[:, None]  # (B, 1, T, D)
        return attend(self.sign * heads, heads, heads)[:, 0]


class Projected(nn.Module):
    """Self-attention of one head with learned queries and keys."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return attend(self.query(x)[:, None], self.key(x)[:, None], x[:, None])[:, 0]


LOOKS: dict[str, Callable[[int], nn.Module]] = {
    "the like (x·x)": lambda width: Rigid(width, 1.0, learned=False),
    "the unlike (-x·x)": lambda width: Rigid(width, -1.0, learned=False),
    "a learned sign": lambda width: Rigid(width, 0.0, learned=True),
    "learned queries and keys": Projected,
}
TASKS = {"match": "one item has the kind of the question", "odd one out": "all items but one have it"}


class Items(nn.Module):
    """Items (kind, value) as the sum of two embeddings; the first, which has no value, asks, and one look answers."""

    def __init__(self, look: nn.Module, kinds: int, values: int, width: int) -> None:
        super().__init__()
        self.kind, self.value = nn.Embedding(kinds, width), nn.Embedding(values + 1, width)
        self.look, self.answer = look, nn.Linear(width, values)

    def forward(self, items: Tensor) -> Tensor:
        x = self.kind(items[..., 0]) + self.value(items[..., 1])  # (B, T, D)
        return self.answer(self.look(x)[:, 0])


def draw_items(task: str, rows: int, items: int, kinds: int, values: int, draw: torch.Generator) -> Examples:
    """(rows, 1 + items, 2) of kind and value, the question first; wanted is the value of the one item that differs.

    In "match" one item has the kind of the question and the others have others; in "odd one out" it is the reverse.
    """
    asked = torch.randint(kinds, (rows, 1), generator=draw)
    others = (asked + torch.randint(1, kinds, (rows, items), generator=draw)) % kinds  # never the asked one
    alone = torch.randint(items, (rows, 1), generator=draw)
    single = torch.arange(items) == alone  # (rows, items)
    same = single if task == "match" else ~single
    kind = torch.cat([asked, torch.where(same, asked, others)], dim=1)
    value = torch.randint(values, (rows, items), generator=draw)
    told = torch.cat([torch.full((rows, 1), values), value], dim=1)  # the question has the value that is none
    return Examples(torch.stack([kind, told], dim=-1), value.gather(1, alone).squeeze(1))


def likeness_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    return [
        Part(f"{task}, {look}, seed {seed}", partial(_learn_items, settings, task, look, seed))
        for seed in seeds
        for task in TASKS
        for look in LOOKS
    ]


def _learn_items(settings: Settings, task: str, look: str, seed: int, report: Report) -> Row:
    kinds, values, width = settings["kinds"], settings["values"], settings["width"]
    network, row = train_network(
        lambda: Items(LOOKS[look](width), kinds, values, width),
        partial(draw_items, task, settings["rows"], settings["items"], kinds, values),
        settings["train"],
        seed,
        report,
    )
    sign = {"sign": float(network.look.sign.detach())} if isinstance(network.look, Rigid) else {}
    return {"task": task, "look": look, "seed": seed, **row, **sign}


def likeness_tables(found: Found) -> list[Table]:
    rows = [[look, *(spread(found.values("accuracy", task=task, look=look)) for task in TASKS)] for look in LOOKS]
    return [
        Table(
            ["looks at", *(f"{task}, % right" for task in TASKS)], rows, f"chance: {100 / found.settings['values']:g}%"
        )
    ]


def likeness_checks(found: Found) -> list[Check]:
    like, unlike, sign, learned = LOOKS

    def group(task: str, look: str) -> Group:
        return found.group(look, "accuracy", task=task, look=look)

    return [
        above("Looking at the like wins where the like is wanted", group("match", like), group("match", unlike)),
        above(
            "Looking at the unlike wins where the odd one is wanted",
            group("odd one out", unlike),
            group("odd one out", like),
        ),
        at_least("A learned sign does both", Group("least of both tasks, %", _least(found, sign)), 95),
        at_least("Learned queries and keys do both", Group("least of both tasks, %", _least(found, learned)), 95),
    ]


def _least(found: Found, look: str) -> list[float]:
    each = [found.values("accuracy", task=task, look=look) for task in TASKS]
    return [min(values) for values in zip(*each, strict=True)]


def draw_likeness(found: Found) -> Figure:
    from regard.experiments.drawing import dots, noted, panels
    from regard.look.figures.sheet import COLORS, QUIET

    figure, axes = panels(1, 2, width=5.2, height=2.6)
    chance = 100 / found.settings["values"]
    for panel, (task, told) in zip(axes, TASKS.items(), strict=True):
        groups = {look: found.values("accuracy", task=task, look=look) for look in LOOKS}
        dots(panel, groups, COLORS, f"{task}: {told}", "right answers, %", named=panel is axes[0])
        panel.axvline(chance, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
        panel.set_xlim(0, 104)
    noted(figure, f"bar: mean; dots: each of {len(found.seeds)} seeds; dashed: chance")
    return figure


LIKENESS = Study(
    settings={
        "kinds": 12,
        "values": 10,
        "items": 8,
        "width": 32,
        "rows": 128,
        "train": {"steps": 600, "lr": 1e-2, "warmup": 20},
    },
    tiny={"rows": 7, "train": {"steps": 2, "lr": 1e-2, "warmup": 0}},
    seeds=(1, 2, 3),
    parts=likeness_parts,
    tables=likeness_tables,
    checks=likeness_checks,
    draw=draw_likeness,
)
