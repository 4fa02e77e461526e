"""In-context learning: right answers after so many examples of a mapping that only they tell, by the size of the model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.config import merge
from regard.data.batch import text_batch
from regard.data.builtin.mappings import (
    BETWEEN,
    EXAMPLES,
    LEARNED,
    MAP,
    MAPPINGS,
    Examples,
    best_guess,
    mapping_examples,
    written,
)
from regard.experiments.learning import train_run
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
    spread,
)
from regard.tasks.generate.predictor import Generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOGETHER = 100  # sequences of a batch
CLEARLY = 10.0  # points that examples must add: those of 300 sequences are off by 4 as a rule


@torch.inference_mode()
def right_by_examples(generator: Generator, sequences: Sequence[Examples]) -> np.ndarray:
    """Whether each answer is right, by how many examples stand before it: (sequences, examples).

    An answer is right if each of its letters is the likeliest, given those before it: then greedy decoding writes it, too.
    """
    special, tokenizer = generator.tokenizer.specials, generator.tokenizer
    found = []
    for first in range(0, len(sequences), TOGETHER):
        some = sequences[first : first + TOGETHER]
        ids = [np.array([special.begin, *each]) for each in tokenizer.encode_all([written(each) for each in some])]
        batch = text_batch(ids, special.pad).to(generator.device)
        logits = generator.model.output(generator.model.read(batch.ids[:, :-1]))
        likeliest = (logits.argmax(dim=-1) == batch.ids[:, 1:]).cpu().numpy()  # (rows, letters)
        found += [answers(row, each) for row, each in zip(likeliest, some, strict=True)]
    return np.array(found)


def answers(right: np.ndarray, examples: Examples) -> list[bool]:
    """Whether all letters of each answer are right, of a sequence whose letters are (T,)."""
    found, at = [], 0
    for source, target in examples:
        at += len(source) + len(MAP)
        found.append(bool(right[at : at + len(target)].all()))
        at += len(target) + len(BETWEEN)
    return found


def in_context_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    return [
        Part(f"size {name}, seed {seed}", partial(_learn, settings, name, seed), model["width"] ** 1.5)
        for seed in seeds
        for name, model in settings["models"].items()
    ]


def _learn(settings: Settings, name: str, seed: int, report: Report) -> Row:
    values = merge(settings["run"], {"model": settings["models"][name]})
    return {
        "model": name,
        "seed": seed,
        **train_run("generate", values, seed, partial(_test, settings["tested"]), report),
    }


def _test(count: int, generator: Any) -> Row:
    """A row for each mapping and each number of examples before the question."""
    rows = []
    for mapping in MAPPINGS:
        shares = 100 * right_by_examples(generator, mapping_examples(mapping, "test", count)).mean(axis=0)
        rows += [{"mapping": mapping, "examples": k, "right": float(share)} for k, share in enumerate(shares)]
    return {"rows": rows}


def in_context_tables(found: Found) -> list[Table]:
    shown = [k for k in (0, 1, 2, 4, 8) if k < EXAMPLES]
    tables = []
    for mapping in MAPPINGS:
        rows = [
            [name, *(spread(found.values("right", model=name, mapping=mapping, examples=k)) for k in shown)]
            for name in found.settings["models"]
        ]
        rows.append(["at best", *(f"{100 * best_guess(mapping, k):.3g}" for k in shown)])
        tables.append(Table([f"{mapping}, % right after", *map(str, shown)], rows))
    return tables


def in_context_checks(found: Found) -> list[Check]:
    smallest, *_, largest = found.settings["models"]
    last = EXAMPLES - 1

    def gain(name: str, mapping: str) -> Group:
        """How much the examples of a prompt add to an answer without any."""
        many, none = (found.values("right", model=name, mapping=mapping, examples=k) for k in (last, 0))
        return Group(f"{name}: {last} examples add", [after - zero for after, zero in zip(many, none, strict=True)])

    checks = []
    for mapping in MAPPINGS:
        checks.append(at_least(f"The largest learns {mapping} from examples", gain(largest, mapping), CLEARLY))
    for mapping in LEARNED:
        checks.append(
            above(
                f"A larger model makes more of the examples ({mapping})",
                gain(largest, mapping),
                gain(smallest, mapping),
            )
        )
    return checks


def draw_in_context(found: Found) -> Figure:
    from regard.experiments.drawing import by, line, noted, panels, percent, titled
    from regard.look.figures.sheet import QUIET, legend

    figure, axes = panels(1, len(MAPPINGS), width=3.3)
    for panel, mapping in zip(axes, MAPPINGS, strict=True):
        for place, name in enumerate(found.settings["models"]):
            rows = found.where(model=name, mapping=mapping)
            line(panel, by([(row["examples"], row["right"]) for row in rows]), name, place)
        best = [100 * best_guess(mapping, k) for k in range(EXAMPLES)]
        panel.plot(range(EXAMPLES), best, color=QUIET, linewidth=1, linestyle=(0, (4, 4)), zorder=1)
        titled(panel, mapping, "examples before the question", "right, %" if panel is axes[0] else "")
        percent(panel)
    legend(figure, axes[0])
    noted(
        figure,
        f"line: mean of the seeds ({len(found.seeds)}); band: least to greatest; dashed: whoever knows how sequences are made",
    )
    return figure


RUN: dict[str, Any] = {
    "data": {"train": "builtin/mappings", "valid": "builtin/mappings/valid", "builtin_size": 4_000_000, "context": 96},
    "tokens": {"kind": "character"},
    "model": {"kind": "llama", "dropout": 0.0},
    "train": {
        "steps": 5000,
        "batch_tokens": 1024,
        "optimiser": "muon",
        "lr": 1e-2,
        "embedding_rate": 3.0,
        "schedule": "linear",
        "warmup": 50,
        "validate_every": 1_000_000,  # only at the end
        "patience": 0,
        "average": 0,
    },
    "samples": 0,
    "probes": 0,
    "validate": {"tokens": 16_384},
}
IN_CONTEXT = Study(
    settings={
        "models": {
            "width 16": {"width": 16, "layers": 2, "heads": 2, "feed_forward": 48},
            "width 48": {"width": 48, "layers": 2, "heads": 2, "feed_forward": 128},
            "width 96": {"width": 96, "layers": 3, "heads": 4, "feed_forward": 256},
        },
        "run": RUN,
        "tested": 300,
    },
    tiny={
        "models": {
            "width 8": {"width": 8, "layers": 1, "heads": 2, "feed_forward": 8},
            "width 16": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 8},
        },
        "run": merge(
            RUN,
            {
                "data": {"builtin_size": 4_000},
                "train": {"steps": 2, "warmup": 0, "batch_tokens": 128},
                "validate": {"tokens": 128},
            },
        ),
        "tested": 3,
    },
    seeds=(1,),
    parts=in_context_parts,
    tables=in_context_tables,
    checks=in_context_checks,
    draw=draw_in_context,
)
