"""One word in a command or a configuration chooses the family; every verb then works as it does with any other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from regard.cli import main
from regard.errors import UsageError
from regard.models.config import KINDS, KINDS_OF
from regard.models.presets import PRESETS, preset
from regard.models.table import FAMILIES, TASKS, build_model
from regard.tasks.config import run_config
from regard.tasks.run import RunResult, start_run
from regard.tasks.translate import Translator

TRANSLATE = KINDS_OF["translate"]
WITH_ATTENTION = {"transformer", "bahdanau", "luong"}
SHORT = {
    "preset": "demo",
    "data": {"train": "builtin/dates", "builtin_size": 83},
    "tokens": {"kind": "character"},
    "train": {"steps": 2, "warmup": 1, "batch_tokens": 256, "validate_every": 2, "average": 0},
    "validate": {"sentences": 2},
    "decode": {"max_length": 12},
}


@pytest.fixture(scope="module", params=TRANSLATE)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run of two updates of each kind."""
    config = run_config("translate", {**SHORT, "model": {"kind": request.param}})
    return start_run(config, folder=tmp_path_factory.mktemp("kinds") / request.param)


def kind_of(run: RunResult) -> str:
    return run.folder.name


def test_every_kind_has_a_class_and_sizes() -> None:
    assert {task: set(kinds) for task, kinds in TASKS.items()} == {task: set(each) for task, each in KINDS_OF.items()}
    assert set(KINDS) == set(PRESETS["tiny"]) == set(PRESETS["demo"])
    assert set(TRANSLATE) == set(FAMILIES) <= set(PRESETS["base"])
    for kind in TRANSLATE:
        for size in ("demo", "tiny"):
            config = run_config("translate", {"preset": size, "model": {"kind": kind}}).model
            assert config.kind == kind
            assert type(build_model(config, 23, 23)) is FAMILIES[kind]


def test_the_tiny_models_are_of_about_one_size() -> None:
    """So that `regard compare` of kinds compares mechanisms and not sizes."""
    sizes = []
    for kind in TRANSLATE:
        model = build_model(run_config("translate", {"model": {"kind": kind}}).model, 8000, 8000)
        sizes.append(sum(parameter.numel() for parameter in model.parameters()))
    assert max(sizes) < 1.35 * min(sizes)


def test_a_wrong_kind_or_size_is_told() -> None:
    with pytest.raises(UsageError, match=r"no model\.kind bahdanua; did you mean bahdanau"):
        run_config("translate", {"model": {"kind": "bahdanua"}})
    with pytest.raises(UsageError, match="no preset big of luong; there are demo, tiny, base"):
        preset("big", "luong")
    with pytest.raises(UsageError, match=r"no key model\.heads"):
        run_config("translate", {"model": {"kind": "luong", "heads": 4}})
    with pytest.raises(UsageError, match=r"model: hidden 33 cannot be split over two directions"):
        run_config("translate", {"model": {"kind": "bahdanau", "hidden": 33}})


def test_translate_score_eval_and_verify(run: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, test = str(run.folder), tmp_path / "test.tsv"
    test.write_text("3. März 1998\t1998-03-03\nMay 5, 2001\t2001-05-05\n", encoding="utf-8")
    assert main.run(["translate", "-m", folder, "3. März 1998", "--beam", "3"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert main.run(["score", folder, str(test)]) == 0
    assert capsys.readouterr().out.count("\n") >= 2
    assert main.run(["eval", folder, "--on", str(test), "--softness", "0.5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sentences"] == 2 and found["decode"]["softness"] == 0.5
    assert main.run(["verify", folder, "--json"]) == 0
    checks = {check["name"]: check["passed"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks.pop("recorded weights = output") is (True if kind_of(run) in WITH_ATTENTION else None)
    assert all(checks.values())


def test_where_it_looks(run: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "map.png"
    code = main.run(["translate", "-m", str(run.folder), "3. März 1998", "--attention", "-o", str(picture)])
    if kind_of(run) in WITH_ATTENTION:
        assert code == 0 and picture.stat().st_size > 1000
    else:
        assert code == 2 and "no attention" in capsys.readouterr().err and not picture.exists()


def test_hard_and_soft(run: RunResult) -> None:
    """Softness 0 puts all weight on one position of the source; another temperature moves weights; 1 changes nothing."""
    translator = Translator.load(run.folder)
    ids = translator.tokenizers.target.encode("1998-03-03")
    if kind_of(run) not in WITH_ATTENTION:
        texts = [translator.translate("3. März 1998", softness=value).log_probability for value in (1.0, 0.0, 3.0)]
        assert len(set(texts)) == 1
        return
    maps = {value: translator.attention("3. März 1998", ids, value).layers for value in (1.0, 0.0, 3.0)}
    plain = translator.attention("3. März 1998", ids).layers
    for path, weights in maps[0.0].items():
        assert set(np.unique(weights)) == {0.0, 1.0} and (weights.sum(axis=-1) == 1).all()
        np.testing.assert_array_equal(maps[1.0][path], plain[path])
    first = next(iter(plain))  # what the first layer asks does not depend on how it looks
    step = (slice(None), 0)
    soft, softer = plain[first][step], maps[3.0][first][step]
    expected = soft ** (1 / 3) / (soft ** (1 / 3)).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(softer, expected, rtol=1e-4)
    np.testing.assert_array_equal(maps[0.0][first][step].argmax(axis=-1), soft.argmax(axis=-1))


def test_the_command_line_takes_the_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train",
        "translate",
        "--model",
        "luong",
        "--preset",
        "demo",
        "--steps",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    settings = {
        "data.train": "builtin/dates",
        "data.builtin_size": 60,
        "validate.sentences": 0,
        "train.batch_tokens": 128,
    }
    assert main.run([*words, *(f"--set={key}={value}" for key, value in settings.items())]) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["model"]["kind"] == "luong"
    capsys.readouterr()
    assert main.run(["train", "translate", "--model", "lung"]) == 2
    assert "did you mean luong" in capsys.readouterr().err
    assert main.run(["train", "--resume", str(tmp_path / "run"), "--model", "luong"]) == 2
    assert "leave out --model" in capsys.readouterr().err
