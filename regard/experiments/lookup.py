"""Experiments on what is looked up: a hard table that becomes a soft one, and attention to the like or the unlike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.attention import attend
from regard.experiments.learning import Examples, train_network
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


# --- A hard table becomes a soft one


def read_table(query: Tensor, keys: Tensor, values: Tensor, temperature: float) -> Tensor:
    """softmax(q · k / τ) v: (N, E), (K, E), (K, V) -> (N, V). At τ = 0, the value of the nearest key."""
    scores = query @ keys.T  # (N, K)
    if temperature == 0:
        return values[scores.argmax(dim=-1)]
    return (scores / temperature).softmax(dim=-1) @ values


def table_rows(settings: Settings, seed: int, report: Report) -> Row:
    """Measure a table of random unit keys at each temperature: how far a soft reading is from the hard one, the gradient,
    and how many queries find the entry that is wanted by descent."""
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
