"""`regard heads` as typed: tables, JSON, pictures and pages, which texts it takes, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from regard.cli import main
from regard.cli.heads import _narrow
from regard.errors import UsageError
from regard.evaluate.bootstrap import Estimate
from regard.inspect.heads import heads_of
from regard.inspect.texts import Material, prepare
from regard.look.heads import Head, HeadReport, LayerRemoved
from regard.look.roles import measure
from regard.tasks.configure import run_config
from regard.tasks.material import material_of
from regard.tasks.run import RunResult, start_run
from regard.tasks.trained import load_model

Captured = pytest.CaptureFixture[str]
LINES = ["the old king walked to the sea", "a grey cat looked at the moon", "the king saw a cat , and the moon"] * 9


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model, one that fills gaps, and a classifier, of a few updates each."""
    here = tmp_path_factory.mktemp("heads")
    (here / "book.txt").write_text("\n".join(LINES))
    (here / "valid.txt").write_text("\n".join(LINES[:7]))
    (here / "mood.tsv").write_text("".join(f"{line} good\tyes\n{line} bad\tno\n" for line in LINES))
    sizes = {"layers": 2, "width": 12, "heads": 3, "feed_forward": 16}
    train = {"steps": 2, "batch_tokens": 256, "validate_every": 2, "warmup": 1, "precision": "float32"}
    text = {"data": {"train": ["book.txt"], "valid": ["valid.txt"], "context": 20}, "tokens": {"kind": "word"}}
    runs: dict[str, dict[str, Any]] = {
        "generate": {**text, "model": {"kind": "gpt2", **sizes, "max_length": 40}, "samples": 0},
        "fill": {**text, "model": {"kind": "bert", **sizes, "max_length": 20}},
        "classify": {"data": {"train": ["mood.tsv"], "valid": ["mood.tsv"]}, "model": {"kind": "bert", **sizes}},
    }
    for task, settings in runs.items():
        start_run(run_config(task, {**settings, "train": train}), folder=here / "runs" / task / "1", data_root=here)
    return here


@pytest.fixture
def inside(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return home


def typed(capsys: Captured, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main.run(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys: Captured, *words: str) -> str:
    code, out, err = typed(capsys, *words)
    assert (code, out) == (2, "")
    return err


def test_the_table_of_a_translation_model(tiny_run: RunResult, capsys: Captured) -> None:
    """2 + 2 layers of 3 heads are 18 heads in three roles, each with a number and an error."""
    code, out, err = typed(capsys, "heads", str(tiny_run.folder), "--texts", "5")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == [
        "attention",
        "layer",
        "head",
        "what",
        "it",
        "does",
        "number",
        "also",
        "loss",
        "without",
        "it",
    ]
    heads = [line for line in lines if " ± " in line and " all " not in line and line[0] in "sc "]
    assert len(heads) == 18 and sum(" all " in line for line in lines if " ± " in line) == 6
    assert [line.split()[0] for line in heads if not line.startswith(" ")] == ["self", "causal", "cross"]
    assert "5 texts of its own validation data; loss" in out and "IBM Model 1" in out


def test_json_holds_every_number(tiny_run: RunResult, tmp_path: Path, capsys: Captured) -> None:
    saved = tmp_path / "heads.json"
    words = ["heads", str(tiny_run.folder), "--texts", "4", "--role", "cross", "--faithful"]
    words += ["--reference", "--json", "-o", str(saved)]
    code, out, err = typed(capsys, *words)
    assert (code, err) == (0, f"wrote {saved}\n")
    found = json.loads(out)
    assert json.loads(saved.read_text()) == found
    assert [(head["role"], head["layer"], head["head"]) for head in found["heads"]] == [
        ("cross", layer, head) for layer in range(2) for head in range(3)
    ]
    for head in found["heads"]:
        assert {"alignment", "late alignment", "broad", "first token"} <= head["measures"].keys()
        assert head["removed"]["low"] <= head["removed"]["value"] <= head["removed"]["high"]
        assert head["rules"] == [] or head["measures"][head["rules"][0]]["holds"]
    assert {rule["rule"] for rule in found["rules"]} == set().union(*(head["measures"] for head in found["heads"]))
    assert len(found["faithfulness"]["maps"]) == 2 + 2 + 6 and found["texts"] == 4
    assert typed(capsys, *words)[1] == out  # the same texts, the same numbers


@pytest.mark.parametrize("task", ["generate", "fill", "classify"])
def test_other_tasks(inside: Path, task: str, capsys: Captured) -> None:
    code, out, err = typed(capsys, "heads", f"runs/{task}/1", "--texts", "6", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and len(found["heads"]) == 6 and found["task"] == task
    roles = {head["role"] for head in found["heads"]}
    assert roles == ({"causal"} if task == "generate" else {"self"})
    assert (found["induction"] is not None) == (task == "generate")
    assert found["loss"]["value"] > 0 and found["predictions"] > 0


def test_without_removals_it_says_only_what_heads_do(inside: Path, capsys: Captured) -> None:
    code, out, _ = typed(capsys, "heads", "runs/generate/1", "--no-removal")
    assert code == 0 and "loss without" not in out and " ± " not in out.split("Induction")[0]


def test_the_newest_run_is_taken_and_said(inside: Path, capsys: Captured) -> None:
    code, _, err = typed(capsys, "heads", "--texts", "3")
    assert code == 0 and err == "model: runs/classify/1 (the newest run here; regard heads RUN takes another)\n"


def test_a_page_is_whole_and_loads_nothing(tiny_run: RunResult, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "heads.html"
    code, _, err = typed(capsys, "heads", str(tiny_run.folder), "--texts", "3", "--role", "cross", "-o", str(path))
    assert (code, err) == (0, f"wrote {path}\n")
    text = path.read_text()
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))  # well-formed
    assert "<script" not in text and "http" not in text and "src=" in text
    assert all(word in text for word in ("cross-attention", "late alignment", "The rules", "loss without it"))


def test_names_are_escaped(tmp_path: Path) -> None:
    text = replace(report(4), model="<b>&</b>", on='"<script>"').save(tmp_path / "heads.html").read_text()
    assert "<b>&</b>" not in text and "<script" not in text and "&lt;b&gt;&amp;&lt;/b&gt;" in text


def test_pictures_are_drawn_by_their_suffix(tmp_path: Path) -> None:
    png, svg = (report(5).save(tmp_path / f"heads.{suffix}") for suffix in ("png", "svg"))
    assert min(Image.open(png).size) > 300
    ElementTree.fromstring(svg.read_text())
    with pytest.raises(UsageError, match="which has no suffix; use "):
        report(5).save(tmp_path / "heads")


def test_what_on_names_is_read(tiny_run: RunResult, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "two.tsv"
    file.write_text("3 May 2001\t2001-05-03\n\t\n4 June 1999\t1999-06-04\n")
    code, out, _ = typed(capsys, "heads", str(tiny_run.folder), "--on", str(file), "--no-removal", "--json")
    found = json.loads(out)
    assert (code, found["texts"], found["on"]) == (0, 2, str(file))


def test_a_bundle_alone_must_be_told_on_what(tiny_bundle: Path, capsys: Captured) -> None:
    assert "it is no run. Name some with --on test.de test.en" in refused(capsys, "heads", str(tiny_bundle))
    words = ("heads", str(tiny_bundle), "--on", "builtin/dates/test", "--texts", "3", "--no-removal")
    assert typed(capsys, *words)[0] == 0


def test_validation_data_that_went_away(tiny_run: RunResult, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise UsageError("there is no such file")

    monkeypatch.setattr("regard.tasks.material.load_pairs", gone)
    assert "has no texts to look at: there is no such file" in refused(capsys, "heads", str(tiny_run.folder))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--role", "sideways"], "--role is one of self, causal, cross, pool, not sideways"),
        (["-o", "heads.pdf"], "cannot tell how to write heads.pdf; use .png, .svg, .html, .json"),
        (["--reference"], "add --faithful"),
        (["--texts", "0"], "texts"),
    ],
)
def test_wrong_words_are_told_before_anything_runs(words: list[str], message: str, capsys: Captured) -> None:
    assert message in refused(capsys, "heads", "nowhere", *words)


def test_what_a_model_cannot_do_is_said(inside: Path, tiny_run: RunResult, capsys: Captured) -> None:
    code, _, err = typed(capsys, "heads", str(tiny_run.folder), "--texts", "2", "--no-removal", "--faithful")
    assert code in (0, 2) and (code == 0 or "translations are empty; ask for references" in err)
    assert "a model to generate has none" in refused(capsys, "heads", "runs/generate/1", "--faithful")
    assert "has no attention in the role cross" in refused(capsys, "heads", "runs/generate/1", "--role", "cross")
    user = SimpleNamespace(config=SimpleNamespace(task="caption"))
    with pytest.raises(UsageError, match="the model is one to caption"):
        material_of(user, "anywhere")
    with pytest.raises(UsageError, match="never learned: maybe; it knows no, yes"):
        heads_of(load_model("runs/classify/1"), [("a text", "maybe")])


def test_the_first_texts_that_fit(inside: Path) -> None:
    user = load_model("runs/classify/1")
    texts = [("king " * 300, "yes"), ("the sea", "no"), ("a cat", "yes"), ("the moon", "no")]
    assert [each.text for each in prepare(user, Material(texts), 2).raw] == ["the sea", "a cat"]
    windows = prepare(load_model("runs/generate/1"), material_of(load_model("runs/generate/1"), "runs/generate/1"), 2)
    assert [len(each["text"]) for each in windows.ids] == [20, 20]  # the context of training, not the model's 40
    stream = np.concatenate([each["text"] for each in windows.ids])
    whole = load_file("runs/generate/1/valid.tokens")["tokens"][:40]
    assert stream.tolist() == whole.tolist()


def report(heads: int) -> HeadReport:
    itself = {"itself": measure("itself", 0.9, 0.1, 9)}
    rises = [Estimate(0.1 * n, 0.01, 0.1 * n - 0.02, 0.1 * n + 0.02) for n in range(heads)]
    made = tuple(Head("self", 0, n, "blocks.0", itself, (), rise) for n, rise in enumerate(rises))
    layers = (LayerRemoved("self", 0, Estimate(0.5, 0.1, 0.3, 0.7)),)
    return HeadReport("made", "fill", "texts", 3, made, layers, Estimate(2.0, 0.1, 1.8, 2.2), 40)


def test_the_heads_that_matter_most_are_few_and_sure() -> None:
    assert report(1).marked() == frozenset()
    assert report(8).marked() == {("self", 0, 7), ("self", 0, 6)}
    assert report(16).marked() == {("self", 0, 15), ("self", 0, 14), ("self", 0, 13)}


def test_figures_hold_every_head_with_its_number() -> None:
    drawn = {text.get_text() for axes in report(5).figure().axes for text in axes.texts}
    assert {f"head {n}" for n in range(5)} <= drawn and {"layer 0", "itself", "0.90 (even 0.10)"} <= drawn
    assert {f"+{0.1 * n:.3f} ± 0.010" for n in range(5)} <= drawn and "+0.500" in drawn
    assert report(5)._repr_html_().startswith('<img src="data:image/svg+xml;base64,')


def test_a_narrow_table_loses_no_head_and_no_number() -> None:
    """In 80 columns place and head are one word; a row for a whole layer says so."""
    rows = [
        ["cross", "0", "0", "alignment", "0.61 (even 0.08)", "same word", "+0.0126 ± 0.0335", "◀"],
        ["", "", "1", "no rule", "broad 0.65", "", "-0.0010 ± 0.0002", ""],
        ["", "", "all", "", "", "", "+0.1000 ± 0.0100", ""],
        ["", "1", "0", "broad", "0.91", "", "+0.0001 ± 0.0001", ""],
    ]
    assert _narrow(rows) == [
        ["cross 0.0", "alignment", "0.61 (even 0.08)", "+0.0126 ± 0.0335", "◀"],
        ["cross 0.1", "no rule", "broad 0.65", "-0.0010 ± 0.0002", ""],
        ["cross 0", "all its heads", "", "+0.1000 ± 0.0100", ""],
        ["cross 1.0", "broad", "0.91", "+0.0001 ± 0.0001", ""],
    ]
