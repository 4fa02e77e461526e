"""`regard extrapolate`: losses at each length against windows read one by one, and what is said where a model cannot."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.bench.extrapolate import Extrapolation, extrapolate
from regard.cli import main
from regard.cli.bench import losses
from regard.cli.extrapolate import read_times
from regard.errors import UsageError
from regard.look.comparison import LengthLine
from regard.look.figures.comparison import draw_lengths
from regard.models.config import LlamaConfig
from regard.models.gpt import GPT
from regard.tasks.configure import run_config
from regard.tasks.generate.evaluate import evaluate_text
from regard.tasks.generate.predictor import Generator
from regard.tasks.run import RunResult, start_run

CONTEXT = 12
KINDS = ("rotary", "alibi", "learned")
WORDS = ("the", "old", "king", "walked", "to", "the", "sea", "and", "grey", "cat", "looked", "at", "a", "red", "moon")


def text(count: int, seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choices(WORDS, k=count))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each kind of positions, and text to read."""
    here = tmp_path_factory.mktemp("extrapolate")
    for name, count in (("book", 400), ("valid", 131), ("other", 200)):
        (here / f"{name}.txt").write_text(text(count, len(name)))
    for kind in KINDS:
        settings: dict[str, Any] = {
            "data": {"train": ["book.txt"], "valid": ["valid.txt"], "context": CONTEXT},
            "tokens": {"size": 280},
            "model": {"kind": "llama", "layers": 2, "width": 12, "heads": 2, "feed_forward": 16},
            "train": {"steps": 3, "batch_tokens": 128, "validate_every": 3, "warmup": 1, "precision": "float32"},
            "samples": 0,
        }
        settings["model"] |= {"positions": kind, "max_length": 2 * CONTEXT}
        start_run(run_config("generate", settings), folder=here / kind, data_root=here)
    return here


@pytest.fixture
def inside(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return home


def by_hand(generator: Generator, name: str, window: int, scale: float = 1.0) -> list[float]:
    """The loss of each token but the first, one window after another, read by a model that is built anew."""
    special = generator.tokenizer.specials
    ids = [special.begin, *generator.tokenizer.encode(Path(name).read_text()), special.end]
    config = generator.config.model
    assert isinstance(config, LlamaConfig)
    model = GPT(config.model_copy(update={"rotary_scale": scale}), generator.config.vocabulary[0])
    model.load_state_dict(generator.model.state_dict())
    losses: list[float] = []
    for start in range(0, len(ids) - 1, window):
        part = torch.tensor([ids[start : start + window + 1]])
        with torch.no_grad():
            shares = model.eval().output(model.read(part[:, :-1]))[0].softmax(dim=-1)  # (T, V)
        losses += [-math.log(float(share[wanted])) for share, wanted in zip(shares, part[0, 1:], strict=True)]
    return losses


def one(run: str, **options: Any) -> Extrapolation:
    (found,) = extrapolate([run], **options)
    return found


@pytest.mark.parametrize("kind", ["rotary", "alibi"])
def test_losses_are_those_of_windows_read_one_by_one(inside: Path, kind: str) -> None:
    found, generator = one(kind, on=["other.txt"], times=(1, 2, 3)), Generator.load(kind)
    usual = by_hand(generator, "other.txt", CONTEXT)
    size = len(Path("other.txt").read_bytes())
    for each in found.lengths:
        losses = by_hand(generator, "other.txt", each.times * CONTEXT)
        assert each.tokens == len(losses) == len(usual)
        assert each.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
        assert each.perplexity == pytest.approx(math.exp(each.loss), rel=1e-9)
        assert each.bits_per_byte == pytest.approx(sum(losses) / math.log(2) / size, rel=1e-5)
        assert [(part.first, part.end) for part in each.by_place] == [
            (number * CONTEXT, (number + 1) * CONTEXT) for number in range(each.times)
        ]
        for number, part in enumerate(each.by_place):
            here = [i for i in range(len(losses)) if part.first <= i % each.window < part.end]
            assert here, number
            assert part.loss == pytest.approx(sum(losses[i] for i in here) / len(here), rel=1e-5)
            change = sum(losses[i] - usual[i] for i in here) / len(here)
            assert part.change == pytest.approx(change, abs=1e-6)
    assert abs(found.lengths[-1].by_place[-1].change) > 1e-5
    assert all(part.change == 0 for part in found.lengths[0].by_place)


def test_the_numbers_are_those_of_eval(inside: Path) -> None:
    found = one("alibi", on=["other.txt"], times=(2,)).lengths[0]
    theirs = evaluate_text(Generator.load("alibi"), ["other.txt"], context=2 * CONTEXT)
    assert found.loss == pytest.approx(theirs.loss, rel=1e-6)
    assert found.bits_per_byte == pytest.approx(theirs.bits_per_byte, rel=1e-6)
    assert found.tokens == theirs.tokens


def test_without_a_text_it_is_that_of_validation_and_a_bundle_knows_its_run(inside: Path) -> None:
    found = one("alibi", times=(1, 2))
    assert found == one("alibi", on=["valid.txt"], times=(1, 2))
    assert found.lengths == one("alibi/best", times=(1, 2)).lengths
    assert (found.trained, found.positions) == (CONTEXT, "alibi")


def test_interpolation_divides_positions_by_the_multiple_and_leaves_other_models_alone(inside: Path) -> None:
    plain, turned, other = extrapolate(["rotary", "alibi"], ["other.txt"], times=(1, 3), interpolate=True)
    assert (plain.interpolated, turned.interpolated, other.interpolated) == (False, True, False)
    assert turned.name == "rotary (interpolated)"
    losses = by_hand(Generator.load("rotary"), "other.txt", 3 * CONTEXT, scale=3.0)
    assert turned.lengths[1].loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert turned.lengths[0] == plain.lengths[0]
    assert turned.lengths[1] != plain.lengths[1]


def test_learned_positions_end_and_so_does_the_text(inside: Path) -> None:
    found = one("learned", on=["other.txt"], times=(1, 2, 4))
    assert [each.cannot for each in found.lengths] == ["", "", "24 learned positions"]
    assert math.isnan(found.lengths[2].loss) and not math.isnan(found.lengths[1].loss)
    short = one("alibi", on=["valid.txt"], times=(1, 400))
    assert short.lengths[1].cannot.startswith("the text has ")


def test_what_it_cannot_do_is_said_in_words(inside: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is for language models .generate.; for longer inputs: regard compare"):
        extrapolate([tiny_bundle])
    with pytest.raises(UsageError, match="none of these models has"):
        extrapolate(["alibi"], interpolate=True)
    with pytest.raises(UsageError, match=r"not \[0, 2\]"):
        extrapolate(["alibi"], times=(0, 2))
    lonely = tmp_path / "lonely"
    (inside / "alibi" / "best").rename(lonely)
    try:
        with pytest.raises(UsageError, match="with context="):
            extrapolate([lonely], ["other.txt"])
        with pytest.raises(UsageError, match="name a text with on="):
            extrapolate([lonely], context=CONTEXT)
        found = one(str(lonely), on=["other.txt"], times=(1, 2), context=CONTEXT)
    finally:
        lonely.rename(inside / "alibi" / "best")
    assert found.lengths == one("alibi", on=["other.txt"], times=(1, 2)).lengths


def test_a_bench_of_trained_models_refuses_those_of_other_tasks(tiny_run: RunResult) -> None:
    with pytest.raises(UsageError, match="is a model to translate"):
        losses([str(tiny_run.folder)], 64)


def test_runs_with_other_validation_texts_need_one_for_all(inside: Path) -> None:
    run = inside / "rotary" / "run.json"
    before = run.read_text()
    run.write_text(before.replace("valid.txt", "other.txt"))
    try:
        with pytest.raises(UsageError, match="different texts; name one"):
            extrapolate(["alibi", "rotary"])
    finally:
        run.write_text(before)


# --- As typed


def test_the_table_has_a_row_for_each_length(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["extrapolate", "rotary", "learned", "--on", "other.txt", "--times", "1,4"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("reading other.txt with rotary, learned, in windows of 1×, 4× the context of training")
    rows = [line.split() for line in out.splitlines()]
    expected = one("rotary", on=["other.txt"], times=(4,)).lengths[0]
    assert rows[1][:3] == ["rotary", "rotary", "12"]
    assert rows[2][:3] == ["48", "(4×)", f"{expected.loss:.4f}"]
    assert rows[2][-1] == f"{expected.by_place[-1].change:+.4f}"
    assert "cannot (24 learned positions)" in out
    assert f"{expected.tokens:,} predictions of other.txt" in out


def test_json_and_figures(inside: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["extrapolate", "alibi", "learned", "--on", "other.txt", "--times", "1,2,4"]
    assert main.run([*words, "--json", "-o", str(tmp_path / "found.json")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "found.json").read_text())
    assert [model["run"] for model in printed["models"]] == ["alibi", "learned"]
    assert printed["models"][1]["lengths"][2]["loss"] is None
    for name, begins in (("found.png", b"\x89PNG"), ("found.svg", b"<?xml")):
        assert main.run([*words, "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(begins)
    assert f"wrote {tmp_path / 'found.svg'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("extrapolate alibi --times 1,two", "as 1,2,4,8; not '1,two'"),
        ("extrapolate alibi --times 0", "as 1,2,4,8"),
        ("extrapolate alibi -o figure.gif", "use .png, .svg, .json"),
        ("extrapolate nowhere", "there is no nowhere"),
        ("extrapolate", "missing argument"),
    ],
)
def test_mistakes(inside: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words.split()) == 2
    assert message in capsys.readouterr().err


def test_times_are_sorted_and_each_once() -> None:
    assert read_times("4, 1,2,2") == (1, 2, 4)


def test_the_figure_has_a_line_for_each_model_and_doublings_take_equal_room() -> None:
    lines = [
        LengthLine("one", [1, 2, 4], [3.0, 3.1, 3.3], [0.5, 1.5, 2.5, 3.5], [0.0, 0.1, 0.2, 0.3]),
        LengthLine("two", [1, 2, 4], [3.0, math.nan, math.nan], [0.5], [0.0]),
    ]
    left, right = draw_lengths(lines).axes
    named = [line for line in left.get_lines() if not str(line.get_label()).startswith("_")]
    assert [line.get_label() for line in named] == ["one", "two"]
    assert np.asarray(named[0].get_ydata()).tolist() == [3.0, 3.1, 3.3]
    assert left.get_xscale() == "log" and list(left.get_xticks()) == [1, 2, 4]
    assert right.get_xscale() == "linear"
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_lengths([LengthLine("none", [1], [math.nan], [], [])])
