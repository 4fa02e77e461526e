"""The verbs on pictures as a person types them: exit codes, what is printed, what is written, and what is refused."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.cli import main
from regard.data.builtin.scenes import scenes
from regard.runs import read_run
from regard.tasks.configure import check_run
from regard.tasks.recipe import prepare
from regard.tasks.trained import load_model

SHORT = ["train.steps=3", "train.warmup=1", "train.batch_pictures=8", "data.hold_out=10"]
ENCODER = ["model.encoder.channels=[4,4,8,8]"]
SMALL = ["model.width=16", "model.encoder.kind=convnet", *ENCODER, "data.builtin_size=40"]


def setting(names: list[str]) -> list[str]:
    return [f"--set={name}" for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with pictures, what is said and asked of them, and one run of each task; the tests are in it."""
    here = tmp_path_factory.mktemp("pictures")
    drawn = scenes(60, 7, 24)
    captions, questions = [], []
    for number, (picture, things) in enumerate(zip(drawn.pictures, drawn.things, strict=True)):
        place = here / "shapes" / things[0].kind
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(place / f"{number}.png")
        image = f"shapes/{things[0].kind}/{number}.png"
        captions.append({"image": image, "caption": drawn.captions[number]})
        questions += [{"image": image, "question": q, "answer": a} for q, a in drawn.questions[number]]
    for name, rows in (("said", captions), ("asked", questions)):
        (here / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    Image.fromarray(drawn.pictures[0]).resize((90, 60)).save(here / "photo.jpg")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("REGARD_CACHE", str(here / "cache"))
        vit = ["model.layers=1", "model.width=16", "model.heads=2", "model.feed_forward=16", "data.size=24"]
        assert main.run(["train", "classify", "--data", "shapes", "--model", "vit", *setting([*SHORT, *vit])]) == 0
        for task in ("caption", "answer"):
            more = ["validate.pictures=2", "decode.max_length=5"] if task == "caption" else ["model.heads=2"]
            assert main.run(["train", task, *setting([*SHORT, *SMALL, *more])]) == 0
        yield here


Captured = pytest.CaptureFixture[str]


def typed(capsys: Captured, *words: str, stdin: str | None = None) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        if stdin is not None:
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main.run(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys: Captured, *words: str, code: int = 2) -> str:
    found, out, err = typed(capsys, *words)
    assert (found, out) == (code, ""), (found, out, err)
    [line] = [line for line in err.splitlines() if line.startswith("regard: ")]
    return line


def test_a_folder_of_pictures_is_classified(folder: Path, capsys: Captured) -> None:
    files = [str(path) for path in sorted(folder.glob("shapes/*/*.png"))[:3]]
    code, out, err = typed(capsys, "classify", *files)
    expected = [f"{each.picture}\t{each.label}" for each in load_model("runs/classify/1").classify(files)]
    assert (code, out.splitlines()) == (0, expected) and all(out.count(file) == 1 for file in files)
    assert typed(capsys, "classify", stdin="\n".join(files))[:2] == (0, out)
    assert typed(capsys, "classify", files[0])[1].rstrip("\n") == expected[0].split("\t")[1]  # of one, no name
    assert err == "model: runs/classify/1 (the newest run here; -m takes another)\n"
    code, out, _ = typed(capsys, "classify", "photo.jpg", "--json")
    row = json.loads(out)
    shares = {each["label"]: each["probability"] for each in row["labels"]}
    assert code == 0 and sum(shares.values()) == pytest.approx(1) and row["label"] in shares


def test_what_classify_refuses(folder: Path, capsys: Captured) -> None:
    (folder / "broken.png").write_bytes(b"\x89PNG no more")
    assert "broken.png" in refused(capsys, "classify", "broken.png", code=1)
    assert "missing.png" in refused(capsys, "classify", "missing.png", code=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin.isatty", lambda: True)
        assert "name their files" in refused(capsys, "classify", "-m", "runs/classify/1")
    assert "classifies pictures" in refused(capsys, "classify", "photo.jpg", "--second", "b")


def test_a_bad_picture_costs_itself(folder: Path, capsys: Captured) -> None:
    """The bug: one unreadable file of several ended `classify` and `caption` with nothing printed for the good ones."""
    (folder / "bad.png").write_bytes(b"\x89PNG no more")
    files = ["photo.jpg", "bad.png", "photo.jpg", "missing.png", "photo.jpg"]
    for verb in ("classify", "caption"):
        alone = typed(capsys, verb, "photo.jpg")[1].rstrip("\n")
        code, out, err = typed(capsys, verb, *files)
        answers = {"photo.jpg": alone, "bad.png": "", "missing.png": ""}
        assert (code, out.splitlines()) == (1, [f"{file}\t{answers[file]}" for file in files])
        named = [line.partition(": ")[0] for line in err.splitlines() if not line.startswith("model: ")]
        assert named == ["bad.png", "missing.png", "regard"] and "2 of 5 got no answer" in err
        assert err.count("bad.png") == err.count("missing.png") == 1  # the name stood twice in a line
        rows = [json.loads(line) for line in typed(capsys, verb, *files, "--json")[1].splitlines()]
        assert [row["picture"] for row in rows] == files
        assert ["error" in row for row in rows] == [False, True, False, True, False]
    asked = ["how many shapes are there?", "what colour is the circle?"]
    first, second = typed(capsys, "answer", "photo.jpg", *asked)[1].splitlines()
    code, out, err = typed(capsys, "answer", "-", *asked, stdin="photo.jpg\nbad.png\n")
    expected = [("photo.jpg", first), ("photo.jpg", second), ("bad.png", ""), ("bad.png", "")]
    told = zip(expected, asked * 2, strict=True)
    assert (code, out.splitlines()) == (1, [f"{file}\t{question}\t{answer}" for (file, answer), question in told])
    assert "bad.png" in refused(capsys, "answer", "bad.png", *asked, code=1)  # the only picture: told once


def test_looking_at_a_picture_writes_every_format(folder: Path, capsys: Captured) -> None:
    for suffix in ("png", "svg", "html", "json", "csv"):
        code, out, err = typed(capsys, "look", "-m", "runs/classify/1", "photo.jpg", "-o", f"map.{suffix}")
        assert (code, out) == (0, "") and f"wrote map.{suffix}" in err and (folder / f"map.{suffix}").stat().st_size
    found = json.loads((folder / "map.json").read_text())
    assert found["grid"] == [6, 6] and found["panels"][0]["title"] == "rollout over all layers"
    assert np.sum(found["panels"][0]["weights"]) == pytest.approx(1, abs=1e-6)
    code, out, _ = typed(capsys, "look", "-m", "runs/classify/1", "photo.jpg", "--layer", "0", "--head", "1")
    assert code == 0 and "layer 0, head 1" in out
    assert "no layer 9; there is one, number 0, with 2 heads" in refused(
        capsys, "look", "-m", "runs/classify/1", "photo.jpg", "--layer", "9"
    )
    assert "question" in refused(capsys, "look", "-m", "runs/answer/1", "photo.jpg")


def test_the_newest_run_is_one_that_can_look_at_what_is_named(folder: Path, capsys: Captured, tmp_path: Path) -> None:
    """The bug: where a translator was trained last, `regard look photo.jpg` showed its look at the name of the file."""
    pairs = [(f"{word} a", f"{word} b") for word in ("one", "two", "six", "ten")] * 3
    tables = {"tokens": {"kind": "character"}, "train": {"warmup": 1}, "model": {"width": 16}}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr("regard.runs.SHIPPED", tmp_path / "nothing")  # no bundle comes with the package
        shutil.copytree(folder / "runs" / "classify", tmp_path / "runs" / "classify")
        shutil.copy(folder / "photo.jpg", tmp_path)
        reads = regard.train("translate", pairs, valid=pairs[:2], steps=1, quiet=True, **tables).folder
        code, _, err = typed(capsys, "look", "photo.jpg", "-o", "map.json")
        assert code == 0 and "model: runs/classify/1 (" in err
        assert json.loads((tmp_path / "map.json").read_text())["grid"] == [6, 6]
        words = "photo.jpg is a picture, and runs/translate/1 is a model to translate texts"
        assert words in refused(capsys, "look", "photo.jpg", "-m", str(reads))
        os.utime(tmp_path / "runs" / "classify" / "1" / "run.json", (2e9, 2e9))  # now it is the newest
        code, _, err = typed(capsys, "look", "one a", "-o", "text.json")
        assert code == 0 and "model: runs/translate/1 (" in err
        assert "no run here to answer" in refused(capsys, "look", "photo.jpg", "what is it?")


def test_folders_and_files_that_are_meant_otherwise(folder: Path, capsys: Captured) -> None:
    """Each was taken for a text, or the message spoke of .txt files."""
    (folder / "shapes" / "circle" / "notes.txt").write_text("a text")
    line = refused(capsys, "train", "classify", "--data", "shapes/circle", code=1)
    assert "shapes/circle holds pictures; give the folder above" in line
    line = refused(capsys, "train", "classify", "--data", "shapes", "--model", "tfidf", code=1)
    assert "shapes holds pictures, and the model reads texts" in line and "--model vit" in line
    (folder / "shapes" / "circle" / "notes.txt").unlink()
    (folder / "set").mkdir()
    (folder / "set" / "metadata.jsonl").write_text("")
    assert "name the file in it that has picture and caption: set/metadata.jsonl" in refused(
        capsys, "train", "caption", "--data", "set"
    )
    assert "photo.jpg is a picture" in refused(capsys, "walk", "photo.jpg")


def test_a_picture_is_captioned_and_a_sheet_drawn(folder: Path, capsys: Captured) -> None:
    code, out, err = typed(capsys, "caption", "photo.jpg", "-o", "words.png")
    caption = load_model("runs/caption/1").caption("photo.jpg")
    assert (code, out) == (0, caption.text + "\n") and "wrote words.png" in err
    assert Image.open(folder / "words.png").width > 300
    code, out, _ = typed(capsys, "caption", "photo.jpg", "photo.jpg", "--beam", "2", "--n-best", "2", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len(rows) == 4 and rows[0] == rows[2]
    assert "name one PICTURE" in refused(capsys, "caption", "photo.jpg", "photo.jpg", "-o", "words.png")


def test_questions_are_answered(folder: Path, capsys: Captured) -> None:
    asked = ["how many shapes are there?", "what colour is the circle?"]
    code, out, _ = typed(capsys, "answer", "photo.jpg", *asked)
    expected = [each.answer for each in load_model("runs/answer/1").answer("photo.jpg", asked)]
    assert (code, out.splitlines()) == (0, expected)
    code, out, err = typed(capsys, "answer", "photo.jpg", asked[1], "--attention", "-o", "where.png")
    assert (code, out) == (
        0,
        expected[1] + "\n",
    ) and "wrote where.png" in err  # the map is in its file, not here as well
    assert "colour" in typed(capsys, "answer", "photo.jpg", asked[1], "--attention")[1]
    code, out, err = typed(capsys, "answer", "photo.jpg", "what colour is the zeppelin?", "--attention")
    assert code == 0 and "<unk> zeppelin" in out and "learned from: zeppelin\n" in err  # it stood there as <unk>
    assert "learned from" not in typed(capsys, "answer", "photo.jpg", asked[1])[2]
    for second in ("photo.jpg", "missing.png"):  # they were taken for questions, and got answers
        line = refused(capsys, "answer", "photo.jpg", second, asked[0])
        assert f"{second} is the name of a picture, not a question" in line and "regard answer - " in line


@pytest.mark.parametrize(
    ("task", "on", "few", "says"),
    [
        ("classify", "shapes", "shapes", "accuracy"),
        ("caption", "builtin/shapes/valid", "said.jsonl", "BLEU-4"),
        ("answer", "builtin/shapes/valid", "asked.jsonl", "accuracy"),
    ],
)
def test_every_task_is_scored(folder: Path, capsys: Captured, task: str, on: str, few: str, says: str) -> None:
    code, out, _ = typed(capsys, "eval", f"runs/{task}/1", "--on", on)
    assert code == 0 and says in out and "nan" not in out  # of a label that was never given, precision is -
    code, out, _ = typed(capsys, "eval", f"runs/{task}/1", "--on", few, "--json")
    assert code == 0 and json.loads(out)["run"] == f"runs/{task}/1"


def test_what_eval_leaves_out_is_told_and_each_is_named(folder: Path, capsys: Captured) -> None:
    """The bug: of 1,507 pictures 1,504 could not be read, and the scores of three were printed without a word."""
    for number in range(5):  # broken.0.png to broken.4.png, and a text, beside good ones
        for kind in sorted(path.name for path in (folder / "shapes").iterdir())[:2]:
            (folder / "damaged" / kind).mkdir(parents=True, exist_ok=True)
            (folder / "damaged" / kind / f"broken.{number}.png").write_bytes(b"\x89PNG no more")
    for path in sorted(folder.glob("shapes/*/*.png"))[:2] + sorted(folder.glob("shapes/*/*.png"))[-2:]:
        (folder / "damaged" / path.parent.name).mkdir(exist_ok=True)
        (folder / "damaged" / path.parent.name / path.name).write_bytes(path.read_bytes())
    (folder / "damaged" / "notes.txt").write_text("no picture")
    code, out, err = typed(capsys, "eval", "runs/classify/1", "--on", "damaged")
    assert code == 0 and "4 pictures of damaged (11 left out)" in out
    assert "10 of 14 pictures left out: " in err and "broken.0.png" in err and "left out 1 files" in err
    assert "regard eval --json names all 11" in err
    found = json.loads(typed(capsys, "eval", "runs/classify/1", "--on", "damaged", "--json")[1])
    named = [each["name"] for each in found["left_out"]]
    broken = [str(path.relative_to(folder)) for path in folder.glob("damaged/**/broken*")]
    assert sorted(named) == sorted([*broken, "damaged/notes.txt"])
    assert all(each["why"] for each in found["left_out"]) and len(found["notes"]) == 2
    captions = [{"file_name": "photo.jpg", "text": "a circle"}, {"file_name": "gone.jpg", "text": "a square"}]
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, captions)))
    code, out, err = typed(capsys, "eval", "runs/caption/1", "--on", "captions.jsonl")
    assert code == 0 and "1 pictures of captions.jsonl (1 left out)" in out and "line 2: gone.jpg" in err
    found = json.loads(typed(capsys, "eval", "runs/caption/1", "--on", "captions.jsonl", "--json")[1])
    assert [each["name"] for each in found["left_out"]] == ["captions.jsonl, line 2: gone.jpg"]
    code, _, err = typed(capsys, "compare", "runs/caption/1", "runs/caption/1", "--on", "captions.jsonl")
    assert code == 0 and "line 2: gone.jpg" in err


def test_samples_of_a_validation_name_their_picture(folder: Path, tmp_path: Path) -> None:
    """The bug: a line with nothing, an arrow and a caption."""
    files = {path.name for path in folder.glob("shapes/*/*.png")}
    shown = {}
    for task in ("classify", "caption", "answer"):
        config = check_run(read_run(f"runs/{task}/1")["config"], task)  # type: ignore[arg-type]
        job = prepare(config, tmp_path / task, data_root=folder, resume=False).job
        with torch.no_grad():
            shown[task] = [source for source, _, _ in job.validate(job.model).samples]
    assert len(shown["classify"]) == 2 and set(shown["classify"]) <= files
    assert shown["caption"] == ["picture 0", "picture 1"]  # drawn scenes have no files
    assert [each.split(": ")[0] for each in shown["answer"]] == ["picture 0", "picture 0"]


def test_classes_of_pictures_have_weights(folder: Path, tmp_path: Path) -> None:
    values = json.loads(json.dumps(read_run("runs/classify/1")["config"]))
    values["train"]["class_weights"] = {"ring": 3.0, "cross": 0.5}
    job = prepare(check_run(values, "classify"), tmp_path / "run", data_root=folder, resume=False).job
    model: Any = job.model
    batches: Any = job.batches
    names = sorted(path.name for path in (folder / "shapes").iterdir())
    asked = torch.tensor([{"ring": 3.0, "cross": 0.5}.get(name, 1.0) for name in names])
    assert torch.allclose(model.class_weights, asked / asked[torch.from_numpy(batches.labels)].mean())
    batch = batches.take(np.arange(0, len(batches.labels), 5))
    model.eval().training, model.rate = True, 0.0  # no dropout anywhere, but the loss of training
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model.logits(batch), batch.labels, reduction="none")
        found = model(batch).parts["loss"].sum
        assert torch.allclose(found, (model.class_weights[batch.labels] * loss).sum(), rtol=1e-5)
        assert not torch.allclose(found, loss.sum(), rtol=1e-3)


def test_confusions_are_drawn_with_pictures(folder: Path, capsys: Captured) -> None:
    code, _, err = typed(capsys, "eval", "runs/classify/1", "--on", "shapes", "-o", "confusion.png")
    assert code == 0 and "wrote confusion.png" in err and (folder / "confusion.png").stat().st_size > 5000


def test_captions_are_validated_on_pictures(folder: Path, capsys: Captured) -> None:
    """The bug: it said "did you mean samples?"."""
    assert "validate.pictures" in refused(capsys, "train", "caption", "--set", "validate.sentences=5")


def test_a_model_is_only_asked_for_what_it_does(folder: Path, capsys: Captured) -> None:
    line = refused(capsys, "caption", "-m", "runs/classify/1", "photo.jpg")
    assert "a model to classify, not to caption; try: regard classify" in line


@pytest.mark.parametrize(
    ("task", "on", "says"),
    [
        ("classify", "shapes", "accuracy"),
        ("caption", "said.jsonl", "CIDEr-D"),
        ("answer", "asked.jsonl", "p"),
    ],
)
def test_models_that_see_are_compared(folder: Path, capsys: Captured, task: str, on: str, says: str) -> None:
    run = f"runs/{task}/1"
    code, out, _ = typed(capsys, "compare", run, run, "--on", on, "--json")
    first, second = json.loads(out)["runs"]
    assert code == 0 and first["scores"] == second["scores"]
    assert task == "caption" or second["p_value"] == 1.0
    code, out, _ = typed(capsys, "compare", run, run, "--on", on)
    assert code == 0 and says in out


def test_every_layer_of_a_model_is_listed(folder: Path, capsys: Captured) -> None:
    code, out, _ = typed(capsys, "summary", "runs/classify/1", "--json")
    found = json.loads(out)
    model = load_model("runs/classify/1").model
    assert code == 0 and found["parameters"] == sum(p.numel() for p in model.parameters())
    code, out, _ = typed(capsys, "summary", "runs/caption/1")
    assert code == 0 and "ShowAttendTell" in out and "multiply-adds" in out


def test_a_vit_goes_out_and_comes_back(folder: Path, capsys: Captured) -> None:
    code, out, err = typed(capsys, "export", "runs/classify/1", "--to", "hf", "-o", "theirs")
    assert (code, out) == (0, "theirs\n") and "AutoModelForImageClassification" in err
    code, out, err = typed(capsys, "import", "theirs", "-o", "ours")
    assert code == 0 and "24 x 24" in out and "regard classify -m ours photo.jpg" in err
    before, after = (load_model(name).classify("photo.jpg") for name in ("runs/classify/1", "ours"))
    assert after.probabilities == pytest.approx(before.probabilities, abs=1e-6)
    assert "has no equal in transformers" in refused(capsys, "export", "runs/caption/1", "-o", "no", code=1)
