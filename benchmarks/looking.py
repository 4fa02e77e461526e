"""What the heads of trained models do, whether they matter, and how it came: the numbers of docs/looking.md.

    REGARD_DATA=... regard train configs/looking/transformer.toml --budget 20m -o runs/transformer     also bahdanau, llama
    REGARD_DATA=... python benchmarks/looking.py runs/transformer runs/bahdanau runs/llama --texts 500 --out looking.json

For each run: `regard heads` with faithfulness (of translations, which have a source), and what its probes say about when the
alignment formed. Of a language model, also how much each head looked, at each validation, from a token to what stood behind
its first occurrence, in a probe text that says everything twice; and which heads a repetition needs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.attention import Remove, intervene
from regard.compare.conditions import conditions
from regard.files import write_bytes, write_json
from regard.inspect.faithfulness import faithfulness
from regard.inspect.formation import formation_of
from regard.inspect.heads import heads_of, induction
from regard.inspect.probes import Probes
from regard.look.figures.sheet import COLORS, DPI, render, tidy
from regard.tasks.configure import run_config
from regard.tasks.material import material_of
from regard.tasks.run import start_run
from regard.tasks.trained import load_model


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--probe", type=int, default=1, help="Which probe text tells when the alignment formed.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path, help="Draw how induction formed in the language model among the runs.")
    parser.add_argument("--tiny", action="store_true", help="two models that learn next to nothing, in seconds")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as folder:
            options.out, options.figure = Path(folder) / "looking.json", Path(folder) / "induction.png"
            options.runs, options.texts, options.probe = made(Path(folder)), 4, 0
            look(options)
        return
    if not options.runs or options.out is None:
        parser.error("name runs, and --out (or --tiny)")
    look(options)


def made(folder: Path) -> list[Path]:
    """A run that translates and one that writes, of one step each, with probes as those of the configurations."""
    sizes, train = {"width": 16, "heads": 2, "feed_forward": 32}, {"steps": 1, "validate_every": 1, "warmup": 0}
    said = {
        "translate": {"preset": "demo", "data": {"builtin_size": 60}, "tokens": {"kind": "character"}},
        "generate": {
            "data": {"builtin_size": 3000, "context": 32},
            "tokens": {"kind": "byte"},
            "model": {"kind": "llama", "layers": 2, "max_length": 64, **sizes},
            "probes": ["abcdefg abcdefg "],
        },
    }
    said["translate"]["model"] = {"encoder_layers": 1, "decoder_layers": 1, **sizes}
    for task, values in said.items():
        start_run(run_config(task, {**values, "train": train}), folder=folder / task)
    return [folder / task for task in said]


def look(options: argparse.Namespace) -> None:
    """Every run that is not in the file yet, into the file."""
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    found["conditions"] = conditions("cpu").data()
    for run in options.runs:
        if run.name not in found:
            found[run.name] = looked(run, options.texts, options.probe)
            write_json(options.out, found)
        print(run.name, found[run.name]["summary"], flush=True)
        if options.figure and "repetition" in found[run.name]:
            write_bytes(options.figure, render(drawn(found[run.name]["repetition"]), options.figure.suffix[1:]))


def looked(run: Path, texts: int, probe: int) -> dict[str, Any]:
    """Everything that is known of one run's heads."""
    user = load_model(run, "cpu")
    material = material_of(user, run)
    report = heads_of(user, material, texts=texts, name=run.name).data()
    found = {"summary": summary(report), "heads": slim(report), "induction": report["induction"]}
    if user.config.task == "translate":
        found["faithfulness"] = faithfulness(user, material, texts=texts).data()
        found["formation"] = formation_of(run, text=probe).data()
    else:
        found["repetition"] = repetition(run)
        found["circuit"] = circuit(user)
    return found


def slim(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each head what names it and what it costs, without the numbers of every distance."""
    return [{key: value for key, value in head.items() if key != "offsets"} for head in report["heads"]]


def summary(report: dict[str, Any]) -> dict[str, Any]:
    worst = sorted(report["heads"], key=lambda head: -head["removed"]["value"])[:3]
    return {
        "loss": report["loss"],
        "texts": report["texts"],
        "named": sum(bool(head["rules"]) for head in report["heads"]),
        "heads": len(report["heads"]),
        "matter most": [
            (head["role"], head["layer"], head["head"], head["rules"], head["removed"]["value"]) for head in worst
        ],
        "layers": report["layers"],
    }


def circuit(user: Any) -> list[dict[str, Any]]:
    """Without each head in turn: what a repetition still helps, and how much the induction head still looks as one."""
    whole = induction(user)
    best = max(whole.scores, key=lambda head: whole.scores[head])
    found: list[dict[str, Any]] = [
        {"removed": None, "gain": whole.gain.value, "error": whole.gain.error, "induction": whole.scores[best]}
    ]
    for layer, head in whole.scores:
        with intervene(user.model, Remove("causal", layer=layer, head=head)):
            other = induction(user)
        gain = {"gain": other.gain.value, "error": other.gain.error, "induction": other.scores[best]}
        found.append({"removed": [layer, head], **gain})
    return found


def repetition(run: Path, text: int = 0) -> dict[str, Any]:
    """In a text that comes twice, the mean weight of each head, at each step, on what stood behind the first occurrence."""
    probes = Probes.of(run)
    labels = probes.labels[text]["text"]
    once = (len(labels) - 1) // 2  # behind the begin token
    if labels[1 : 1 + once] != labels[1 + once :]:
        raise SystemExit(f"probe {text} of {run} does not say everything twice: {labels}")
    behind: dict[str, list[list[float]]] = {}
    before: dict[str, list[list[float]]] = {}
    for step in probes.steps:
        for name, weights in probes.maps(step, text).items():  # (H, T, T)
            queries = range(1 + once, 2 * once)  # the last one has nothing behind it
            behind.setdefault(name, []).append(mean([weights[:, query, query - once + 1] for query in queries]))
            before.setdefault(name, []).append(mean([weights[:, t, t - 1] for t in range(1, len(labels))]))
    return {"steps": list(probes.steps), "tokens": once, "behind the first": behind, "previous": before}


def mean(seen: list[torch.Tensor]) -> list[float]:
    """Of each head."""
    return torch.stack(seen).mean(dim=0).tolist()


def drawn(found: dict[str, Any]) -> Figure:
    """What each head learned to look at, over training: the token behind the first occurrence, and the token before."""
    figure = Figure(figsize=(8.4, 3.4), dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    titles = {"behind the first": "weight on what stood behind the first occurrence", "previous": "on the token before"}
    for axes, (which, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        heads = {
            f"head {layer}.{head}": [row[head] for row in rows]
            for layer, rows in enumerate(found[which].values())
            for head in range(len(rows[0]))
        }
        best = max(heads, key=lambda name: heads[name][-1])
        for name, line in heads.items():
            chosen = name == best
            color, width = (COLORS[0], 2.2) if chosen else ("#b9c9d6", 0.9)
            axes.plot(found["steps"], line, color=color, linewidth=width, zorder=2 + chosen)
        axes.annotate(best, (found["steps"][-1], heads[best][-1]), (0, 14), textcoords="offset points", ha="right")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("step")
        axes.set_ylim(0, 1)
        tidy(axes)
    return figure


if __name__ == "__main__":
    main()
