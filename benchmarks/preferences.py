"""Learning from preferences whose truth is known by a rule: supervised model, reward model, DPO, PPO, and over-optimisation.

    python benchmarks/preferences.py methods --seeds 1 2 3 --folder runs-preferences --out docs/results/preferences.json
    python benchmarks/preferences.py over --folder runs-preferences --out docs/results/preferences.json
    python benchmarks/preferences.py draw --out docs/results/preferences.json --images docs/images/preferences
    python benchmarks/preferences.py table --out docs/results/preferences.json

Each seed: a supervised model on built-in chats of mixed quality, a reward model on 12,000 built-in pairs of which a tenth are
the wrong way round, then DPO on the pairs and PPO on the reward model. Both are scored on the test prompts, which no stage has
seen, by the rule: how often is the answer better than that of the supervised model? `over` learns from a reward model of 300
pairs, three tenths of them wrong, and from the good one, without a penalty: the reward that is learned from rises, and the true
one turns.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import regard
from regard.data.preferences import Preference, read_preferences
from regard.files import write_bytes, write_json
from regard.look.figures.sheet import DPI, TEXT, render, tidy
from regard.runs import CONFIG
from regard.tasks.align.evaluate import evaluate_aligned
from regard.tasks.configure import run_config
from regard.tasks.generate.predictor import Generator
from regard.tasks.run import resume_run, start_run
from regard.training.history import RunLog, read_progress

Row = dict[str, Any]
TEST = "builtin/preferences/test"
WATCHED = 200  # prompts
FEW, NOISE = 300, 0.3  # pairs of the small reward model, and the share of them that is wrong
TINY: Row = {
    "data": {"builtin_size": 40, "hold_out": 6},
    "model": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 24},
    "train": {"steps": 2, "validate_every": 2},
    "align": {"supervised_steps": 2, "reward_steps": 2, "rollouts": 4, "minibatches": 2, "passes": 1, "answers": 3,
              "longest": 5},
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="methods", choices=("methods", "over", "draw", "table"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument(
        "--folder", type=Path, default=Path("runs-preferences"), help="of the runs; what is there is kept"
    )
    parser.add_argument("--out", type=Path, default=Path("preferences.json"))
    parser.add_argument("--images", type=Path, help="a folder for the figure")
    parser.add_argument("--tiny", action="store_true", help="two updates of tiny models, of everything")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    if options.tiny:
        with tempfile.TemporaryDirectory() as place:
            folder, out = Path(place) / "runs", Path(place) / "preferences.json"
            measured(("methods", "over", "draw"), [1], folder, out, Path(place) / "images", TINY)
        return
    measured((options.what,), options.seeds, options.folder, options.out, options.images, {})


def measured(
    what: Sequence[str], seeds: Sequence[int], folder: Path, out: Path, images: Path | None, over: Row
) -> None:
    """Do what is asked, and keep the rows in a file after each part."""
    found: Row = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    for seed in seeds if "methods" in what else ():
        rows = methods(folder / str(seed), seed, over)
        kept = [row for row in found.get("methods", []) if row["seed"] != seed]
        found["methods"] = [*kept, *rows]
        write_json(out, found)
    if "over" in what:
        found["over"] = over_optimised(folder, seeds[0], over)
        write_json(out, found)
    if "draw" in what and images is not None:
        print(f"wrote {draw(found['over'], images / 'over.png')}")
    print(table(found))


# --- Runs


def methods(folder: Path, seed: int, over: Row) -> list[Row]:
    """The rows of one seed: DPO begins with the supervised model of PPO's run, and is compared with it."""
    ppo = trained(folder / "ppo", seed, over, {"align": {"method": "ppo"}})
    dpo = trained(folder / "dpo", seed, over, {"start": str(folder / "ppo" / "start"), "align": {"method": "dpo"}})
    accuracy = regard.load(folder / "ppo" / "reward", task=None).accuracy(tested(over))  # type: ignore[attr-defined]
    rows = [
        {"method": "ppo", **ppo, **scored(folder / "ppo", tested(over))},
        {"method": "dpo", **dpo, **scored(folder / "dpo", tested(over))},
    ]
    return [{"seed": seed, **row, "reward_accuracy": round(accuracy.value, 2)} for row in rows]


def trained(folder: Path, seed: int, over: Row, values: Row) -> Row:
    """Train a run, or go on with it; what it cost."""
    began = time.process_time()
    if not (folder / CONFIG).exists():
        tables = merged(over, {"train": {"seed": seed}}, values)
        if "start" in tables:
            tables.pop("model", None)
        start_run(run_config("align", tables), folder=folder)
    elif not read_progress(folder).get("finished"):
        resume_run(folder)
    return {"processor_seconds": round(time.process_time() - began, 1), "updates": read_progress(folder)["step"]}


def merged(*tables: Row) -> Row:
    found: Row = {}
    for table in tables:
        for name, value in table.items():
            found[name] = {**found.get(name, {}), **value} if isinstance(value, dict) else value
    return found


def tested(over: Row) -> list[Preference]:
    """The test pairs; a few, where all is tiny."""
    return read_preferences([TEST])[: 6 if over else None]


def watched() -> list[Preference]:
    """Pairs of the prompts that validations of `over` answer."""
    found: dict[str, Preference] = {}
    for each in read_preferences(["builtin/preferences/valid"]):
        found.setdefault(each.prompt, each)
    return list(found.values())[:WATCHED]


def scored(folder: Path, pairs: Sequence[Preference]) -> Row:
    """A run on prompts that it has not seen."""
    generator = regard.load(folder, task="generate")
    assert isinstance(generator, Generator)
    found = evaluate_aligned(generator, folder, pairs, shown=9)
    return found.data()


def over_optimised(folder: Path, seed: int, over: Row) -> list[Row]:
    """The rewards of PPO without a penalty at each validation, with the small reward model and with the good one."""
    start = folder / str(seed) / "ppo"
    few = {"data": {"builtin_size": FEW, "noise": NOISE}, "start": str(start / "start"), "align": {"method": "reward"}}
    small = merged(few, {"train": {"steps": 200, "validate_every": 100}})
    if over:
        small = merged(small, {"data": over["data"], "train": over["train"]})
    trained(folder / "small-reward", seed, {}, small)
    return [
        {
            "reward": name,
            "pairs": pairs,
            "rows": unpenalised(folder / f"over-{name}", start / "start", place, seed, over),
        }
        for name, pairs, place in (("small", FEW, folder / "small-reward"), ("good", 12_000, start / "reward"))
    ]


def unpenalised(folder: Path, start: Path, reward: Path, seed: int, over: Row) -> list[Row]:
    """KL, learned and true reward at each validation of a run; the first row is of the model that it began with."""
    method = {
        "method": "ppo",
        "reward": str(reward),
        "penalty": 0.0,
        "divergence": 0.0,
        "keep": 0.0,
        "answers": WATCHED,
    }
    values = {
        "train": {"steps": 400, "schedule": "constant", "validate_every": 16},
        "start": str(start),
        "align": method,
    }
    values = merged(values, {name: each for name, each in over.items() if name != "model"})
    trained(folder, seed, {}, values)
    before = scored(folder, watched())
    first = {"kl": 0.0, "reward": before["reward"]["before"], "rule": before["rule"]["before"]}
    keys = ("kl", "reward", "rule", "win_rate")
    rows = [row for row in RunLog(folder).rows() if row["kind"] == "valid"]
    return [first, *({key: row[key] for key in keys} for row in rows)]


# --- Shown


def draw(found: list[Row], path: Path) -> Path:
    """True reward and the one that is learned from over √KL (Gao et al. 2023), a panel for each reward model."""
    figure = Figure(figsize=(9.6, 3.8), dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, each in zip(grid, found, strict=True):
        x = np.sqrt([row["kl"] for row in each["rows"]])
        proxy, true = (np.array([row[key] for row in each["rows"]]) for key in ("reward", "rule"))
        axes.plot(x, true, color="#1b7f5c", marker="o", markersize=4, linewidth=1.6, label="true reward (rule)")
        axes.set_ylabel("true reward", color="#1b7f5c", fontsize=9.5)
        axes.set_xlabel("√KL, nats an answer", color=TEXT, fontsize=9.5)
        axes.set_title(f"reward model of {each['pairs']:,} pairs", color=TEXT, fontsize=10)
        tidy(axes)
        other = axes.twinx()
        other.plot(x, proxy, color="#c44e00", marker="s", markersize=3.5, linewidth=1.3, linestyle="--")
        other.set_ylabel("learned reward (dashed)", color="#c44e00", fontsize=9.5)
        other.spines[["top"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_bytes(path, render(figure, "png"))


def table(found: Row) -> str:
    """The results as tables in Markdown."""
    lines = ["| method | seed | win rate by the rule | 95% interval | KL, nats | reward by the rule | of it before |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in found.get("methods", []):
        rate, rule = row["win_rate"], row["rule"]
        lines.append(
            f"| {row['method'].upper()} | {row['seed']} | {rate['value']:.1f} | {rate['low']:.1f} to {rate['high']:.1f} "
            f"| {row['kl']['value']:.2f} | {rule['after']:.2f} | {rule['before']:.2f} |"
        )
    for each in found.get("over", []):
        best = max(each["rows"], key=lambda row: row["rule"])
        last = each["rows"][-1]
        lines.append(
            f"\nreward model of {each['pairs']:,} pairs: true reward {each['rows'][0]['rule']:.2f} at first, at most "
            f"{best['rule']:.2f} at {best['kl']:.1f} nats, at last {last['rule']:.2f} at {last['kl']:.1f} nats; learned "
            f"reward {each['rows'][0]['reward']:.2f}, {best['reward']:.2f}, {last['reward']:.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
