"""Probes: what is kept of which texts, that it is what the model computes, that training does not notice, and bad files."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY
from toy_run import Contents

from regard.attention import record
from regard.data.batches import TokenPairs
from regard.data.pairs import load_pairs
from regard.errors import RegardError, UsageError
from regard.files import read_json, write_json
from regard.inspect.probes import LETTERS, LONGEST, MOST_TOKENS, Probes, choose, first_lines
from regard.tasks.configure import run_config
from regard.tasks.recipe import PreparedRun, prepare
from regard.tasks.run import RunResult, resume_run, start_run
from regard.tensors import read_tensors, weights_of, write_tensors
from regard.tokens import PAD, as_arrays
from regard.training.loop import Trainer

LINES = "the old king walked to the sea\nthe grey cat looked at the moon at night\n\nshort\n"
BLOCKS = {"layers": 2, "width": 12, "heads": 3, "feed_forward": 20, "max_length": 48, "dropout": 0.0}
TRAIN = {"steps": 2, "validate_every": 1, "batch_tokens": 256, "warmup": 0, "precision": "float32"}
PAIRS = "label\ttext\tsecond\n" + "".join(
    f"{name}\t{text} of the {number} kings\tthey saw {number} cats at sea\n"
    for number in range(12)
    for name, text in (("good", "a fine tale"), ("bad", "a dull tale"))
)


def prepared(task: str, folder: Path, probes: Any = 2, resume: bool = False, **tables: Any) -> PreparedRun:
    """A run of the task on a small file, ready to start."""
    data = {"translate": "pairs.tsv", "classify": "labelled.tsv"}.get(task, "book.txt")
    given: dict[str, Any] = {
        "data": {"train": [data]},
        "tokens": {"size": 300, "min_count": 1},
        "train": TRAIN,
        "probes": probes,
        "model": BLOCKS if task != "translate" else TINY["model"],
    }
    if task == "classify":
        given["model"] = {"kind": "bert", **BLOCKS}
    if task in ("translate", "fill"):
        given["data"] |= {"hold_out": 5} if task == "translate" else {"context": 32}
    values = {**given, **tables}
    folder.mkdir(exist_ok=True)
    return prepare(run_config(task, values), folder, data_root=folder.parent, resume=resume)


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(LINES * 40, encoding="utf-8")
    (tmp_path / "labelled.tsv").write_text(PAIRS, encoding="utf-8")
    pairs = [
        f"{number} alte Könige gingen ans {number}. Meer\t{number} old kings went to sea {number}"
        for number in range(40)
    ]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")


def probe(run: PreparedRun, step: int = 0) -> Path:
    assert run.job.probe is not None
    run.job.model.eval()
    run.job.probe(run.job.model, step)
    return run.job.folder


# -- which texts -------------------------------------------------------------------------------------------------------


def test_texts_of_some_words_come_first_then_short_ones_then_how_long_ones_begin() -> None:
    long = "word " * 99
    texts = [("a b", None), (long, None), ("one two three four five six", None), ("", None), ("c d e", None)]
    found = [text for text, _ in choose(texts)]
    assert found[:3] == ["one two three four five six", "a b", "c d e"]
    assert found[3] == " ".join(["word"] * LONGEST) and len(found) == 4
    assert [text for text, _ in choose([("字" * 999, None)])] == ["字" * LETTERS]


def test_a_pair_is_never_cut() -> None:
    assert list(choose([("word " * 99, "Wort " * 99), ("two words", "zwei Wörter")])) == [("two words", "zwei Wörter")]


def test_lines_are_taken_once_each_without_empty_ones() -> None:
    found = [text for text, _ in first_lines([LINES * 3, LINES])]
    assert found == [line for line in LINES.splitlines() if line]


def test_many_texts_are_chosen_among_quickly() -> None:
    """Each short text used to be looked for in the list of fitting ones: minutes for a large validation set."""
    many = [(f"text number {number} of very many texts", None) for number in range(300_000)]
    assert next(choose(many)) == many[0]


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_what_is_kept_is_what_the_model_computes(tiny_run: RunResult) -> None:
    """Against a pass over the same pair by hand, with the weights of the last step."""
    from regard.tasks.trained import load_model

    user, probes = load_model(tiny_run.folder / "last"), Probes.of(tiny_run.folder)
    assert probes.steps == (0, 2, 4) and len(probes.labels) == 2
    pairs = load_pairs(run_config("translate", copy.deepcopy(TINY)).data, None).valid  # type: ignore[arg-type]
    pairs = sorted(pairs, key=lambda pair: len(pair[0].split()) < 6)  # those of some words come first
    for number, (labels, (source, target)) in enumerate(zip(probes.labels, pairs[:2], strict=True)):
        assert labels["prefix"] == ("<s>", *labels["target"][:-1]) and labels["source"][-1] == "</s>"
        reads = as_arrays([user.tokenizers.source.encode(source)], begin=False)
        ids = (reads, as_arrays([user.tokenizers.target.encode(target)], begin=True))
        with torch.no_grad(), record(user.model) as seen:
            user.model.hidden(TokenPairs(*ids, PAD).take([0]))
        kept = probes.maps(4, number)
        assert sorted(kept) == sorted(f"{call.role}/{call.path}" for call in seen.calls) and len(kept) == 6
        for call in seen.calls:
            found = kept[f"{call.role}/{call.path}"]
            torch.testing.assert_close(found.nan_to_num(), call.weights()[0], atol=1e-6, rtol=0)
            above = torch.ones(found.shape[1:]).triu(1).bool() if call.role == "causal" else torch.zeros(()).bool()
            assert torch.equal(found.isnan(), above.expand_as(found)), call.role


@pytest.mark.parametrize("task", ["translate", "generate", "fill", "classify"])
def test_every_task_keeps_its_attentions(task: str, tmp_path: Path) -> None:
    folder = probe(prepared(task, tmp_path / "run"), step=7)
    probes = Probes.of(folder)
    roles = {"translate": {"cross", "causal", "self"}, "generate": {"causal"}}.get(task, {"self"})
    assert probes.steps == (7,) and len(probes.labels) == 2
    for number, labels in enumerate(probes.labels):
        maps = probes.maps(7, number)
        assert {name.split("/")[0] for name in maps} == roles
        for name, map in maps.items():
            own = "text" if task != "translate" else "prefix" if name.startswith("causal") else "source"
            rows, columns = ("target", "source") if name.startswith("cross") else (own, own)
            assert map.shape == (3, len(labels[rows]), len(labels[columns]))
            assert map.nansum(dim=-1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("kind", ["window", "strided", "bigbird", "linformer", "reformer", "performer", "linear"])
def test_kernels_are_kept_as_maps(kind: str, tmp_path: Path) -> None:
    run = prepared("fill", tmp_path / "run", model={**BLOCKS, "attention": {"kind": kind}})
    maps = Probes.of(probe(run)).maps(0)
    assert [map.shape[0] for map in maps.values()] == [3, 3]


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("translate", {"kind": "seq2seq"}),
        ("translate", {"kind": "bytenet"}),
        ("generate", {"kind": "lstm"}),
        ("fill", {**BLOCKS, "attention": {"kind": "s4d"}}),
    ],
)
def test_a_family_without_attention_keeps_nothing(task: str, model: dict[str, Any], tmp_path: Path) -> None:
    small = {} if "attention" in model else {"width": 12}
    folder = probe(prepared(task, tmp_path / "run", model={**model, **small}))
    assert not (folder / "probes").exists()
    with pytest.raises(
        UsageError, match=r"kept no probes: .* or its model has no attention between tokens; train with"
    ):
        Probes.of(folder)


def test_no_probes_write_nothing(tmp_path: Path) -> None:
    assert prepared("generate", tmp_path / "run", probes=0).job.probe is None
    assert prepared("generate", tmp_path / "run", probes=[]).job.probe is None


def test_layers_are_in_their_order(tmp_path: Path) -> None:
    """By name, layer 10 would come before layer 2."""
    names = [f"0/self/blocks.{number}.attention" for number in (10, 2, 9, 0)]
    write_tensors(tmp_path / "probes" / "step-3.safetensors", {name: torch.zeros(1, 1, 1) for name in names})
    write_json(tmp_path / "probes" / "texts.json", [{"text": ["a"]}])
    assert list(Probes.of(tmp_path).maps(3)) == [f"self/blocks.{number}.attention" for number in (0, 2, 9, 10)]


# -- texts that a person gives -----------------------------------------------------------------------------------------


def test_given_texts_are_kept_as_they_are(tmp_path: Path) -> None:
    run = prepared("translate", tmp_path / "run", probes=["alte Könige\told kings", "Meer\tsea"])
    labels = Probes.of(probe(run)).labels
    assert ["".join(each["source"]).strip() for each in labels] == ["alte Könige</s>", "Meer</s>"]
    assert ["".join(each["target"]).strip() for each in labels] == ["old kings</s>", "sea</s>"]


def test_a_tab_makes_two_texts_only_where_there_are_two(tmp_path: Path) -> None:
    pair = Probes.of(probe(prepared("classify", tmp_path / "pair", probes=["a fine tale\tthey saw cats"]))).labels[0]
    assert pair["text"].count("</s>") == 2
    one = Probes.of(probe(prepared("generate", tmp_path / "one", probes=["the old\tking"]))).labels[0]
    assert "".join(one["text"]) == "<s> the old\tking"


@pytest.mark.parametrize(
    ("task", "texts", "message"),
    [
        (
            "translate",
            ["alte\told", "ohne"],
            r"probe 1: of a translation model it is a source, a tab and its translation",
        ),
        ("translate", ["a " * 301 + "\tb"], rf"probe 0 has \d+ tokens; of at most {MOST_TOKENS} attention is kept"),
        ("generate", ["the cat", "  "], "probe 1 is empty"),
        ("generate", ["Q" * 250], rf"probe 0 has 252 tokens; of at most {MOST_TOKENS} attention is kept: shorten it"),
        ("generate", ["Q" * 47], "probe 0 has 49 tokens, of which the model reads 48; shorten it"),
        ("fill", ["Q" * 46], "probe 0 has 49 tokens, of which the model reads 48; shorten it"),
        ("classify", ["Q" * 46], "probe 0 has 49 tokens, of which the model reads 48; shorten it"),
        ("classify", ["Q" * 22 + "\t" + "Q" * 22], "probe 0 has 49 tokens, of which the model reads 48; shorten it"),
        ("generate", -1, "probes"),
    ],
)
def test_a_text_that_cannot_be_probed_is_told_before_training(
    task: str, texts: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        prepared(task, tmp_path / "run", probes=texts)


def test_a_model_of_trees_takes_no_texts_alone(tmp_path: Path) -> None:
    rows = "".join(f'{{"text": "a b {n}", "label": "{"xy"[n % 2]}", "heads": [0, 1, 1]}}\n' for n in range(20))
    (tmp_path / "trees.jsonl").write_text(rows, encoding="utf-8")
    tables: dict[str, Any] = {
        "model": {"kind": "bert", **BLOCKS, "positions": "tree"},
        "data": {"train": ["trees.jsonl"]},
    }
    tables["tokens"] = {"kind": "space", "size": 300, "min_count": 1}
    with pytest.raises(UsageError, match="reads a tree with each text, and a probe is a text alone; set probes=0"):
        prepared("classify", tmp_path / "run", probes=["a b"], **tables)
    assert prepared("classify", tmp_path / "run", **tables).job.probe is None


# -- training does not notice, and a run that was stopped keeps the same -----------------------------------------------


@pytest.mark.parametrize("kind", ["performer", "bahdanau"])
def test_probing_does_not_change_training(kind: str, tmp_path: Path) -> None:
    """With dropout, and with a kernel that draws random features."""
    ends = []
    for name, probes in (("without", 0), ("with", 3)):
        settings = copy.deepcopy(TINY) | {"probes": probes, "validate": {"sentences": 0}}
        if kind == "performer":
            settings["model"]["encoder_attention"] = {"kind": kind}
        if kind == "bahdanau":
            settings["model"] = {"kind": kind, "width": 12, "dropout": 0.1}
        settings["train"] = settings["train"] | {"steps": 3}
        ends.append(start_run(run_config("translate", settings), folder=tmp_path / name))
    without, with_ = (weights_of(run.load().model) for run in ends)
    assert without.keys() == with_.keys() and all(torch.equal(without[name], with_[name]) for name in without)
    assert (tmp_path / "without" / "log.jsonl").read_bytes() == (tmp_path / "with" / "log.jsonl").read_bytes()
    assert not (tmp_path / "without" / "probes").exists() and Probes.of(tmp_path / "with").steps == (0, 2, 3)


def test_a_killed_run_goes_on_to_the_same_files(
    tiny_run: RunResult, tiny_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies after the probe of step 2 was written and before its checkpoint: that file lies beyond the last one."""

    class Killed(BaseException):
        pass

    def dies(trainer: Trainer) -> None:
        if trainer.progress.step == 2:
            raise Killed
        save(trainer)

    save = Trainer.checkpoint
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Trainer, "checkpoint", dies)
        start_run(run_config("translate", tiny_settings), folder=tmp_path / "run")
    left = tmp_path / "run" / "probes" / ".step-2.safetensors.1.abc.tmp"
    left.write_bytes(b"half")
    assert Probes.of(tmp_path / "run").steps == (0, 2)
    resume_run(tmp_path / "run")
    assert Contents.of(tiny_run.folder).unlike(Contents.of(tmp_path / "run")) == []
    assert sorted(file.name for file in (tmp_path / "run" / "probes").iterdir()) == [
        "step-0.safetensors", "step-2.safetensors", "step-4.safetensors", "texts.json",
    ]  # fmt: skip


def test_other_texts_than_those_of_before_are_refused(tmp_path: Path) -> None:
    probe(prepared("generate", tmp_path / "run", probes=["the old king"]))
    prepared("generate", tmp_path / "run", probes=["the old king"], resume=True)
    with pytest.raises(UsageError, match=r"probes keeps other texts than this run has now: .*Delete .*probes to begin"):
        prepared("generate", tmp_path / "run", probes=["the grey cat"], resume=True)


# -- files that are not whole ------------------------------------------------------------------------------------------


def test_what_is_missing_or_broken_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no .*nowhere; regard runs lists the runs here"):
        Probes.of(tmp_path / "nowhere")
    folder = probe(prepared("generate", tmp_path / "run", probes=["the old king"]), step=5)
    file, texts = folder / "probes" / "step-5.safetensors", folder / "probes" / "texts.json"
    (folder / "probes" / "step-x.safetensors").write_bytes(b"?")
    probes, whole = Probes.of(folder), file.read_bytes()
    assert probes.steps == (5,)
    for number, message in ((1, "no text 1; 1 were probed"), (-1, "no text -1")):
        with pytest.raises(UsageError, match=message):
            probes.maps(5, number)
    with pytest.raises(UsageError, match="no step 6; there are 5"):
        probes.maps(6)
    for part in (whole[:-3], whole[:5], b""):
        file.write_bytes(part)
        with pytest.raises(
            RegardError, match=r"step-5\.safetensors is not a whole .* or delete it to see the other steps"
        ):
            probes.maps(5)
    texts.write_text('[{"text": ["a",')
    with pytest.raises(RegardError, match=r"texts\.json is not whole JSON"):
        Probes.of(folder)
    for wrong in (["a"], 5, [{"text": 5}]):
        write_json(texts, wrong)
        with pytest.raises(RegardError, match=r"texts\.json does not hold the labels of texts"):
            Probes.of(folder)
    file.unlink()
    with pytest.raises(RegardError, match="has texts, but no step of them; go on with: regard train --resume"):
        Probes.of(folder)


def test_labels_that_are_half_a_character_are_kept(tmp_path: Path) -> None:
    folder = probe(prepared("generate", tmp_path / "run", probes=["König 字 😀"], tokens={"kind": "byte"}))
    kept = Probes.of(folder)
    assert len(kept.labels[0]["text"]) == 1 + len("König 字 😀".encode())
    assert read_json(folder / "probes" / "texts.json")[0]["text"] == list(kept.labels[0]["text"])
    assert len(read_tensors(folder / "probes" / "step-0.safetensors")) == 2
