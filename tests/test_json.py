"""docs/json.md against real output: each verb's JSON has the keys and the kinds of values of the page, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from test_graph_use import bundle_of as of_graphs
from test_recorder import EYES, SEEN_BY, SMALL_EYES, transformer
from test_verify import BLOCKS, RUNG, make
from test_verify_pictures import make as make_seeing

import regard
from regard.bundle import Bundle, save_bundle
from regard.cli.main import run
from regard.tasks.generate.predictor import Generator
from regard.tasks.translate.predictor import Translator

PAGE = (Path(regard.__file__).parent.parent / "docs" / "json.md").read_text(encoding="utf-8")
EXAMPLES: dict[str, Any] = {
    name: json.loads(text) for name, text in re.findall(r"```json ([a-z-]+)\n(.*?)```", PAGE, flags=re.DOTALL)
}
MAPPINGS = {"layers", "settings", "metrics"}  # whose keys are names of a model's parts, of settings, of metrics


def kind(value: Any, key: str = "") -> Any:
    """The shape of a JSON value: keys with the kinds of their values; of a list, the kind of its first."""
    if isinstance(value, dict):
        if key in MAPPINGS:
            return {"...": kind(next(iter(value.values())))}
        return {name: kind(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [kind(value[0])] if value else []
    if isinstance(value, bool) or value is None:
        return value if value is None else "bool"
    return "number" if isinstance(value, int | float) else "text"


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    code = run(words)
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def bundles() -> dict[str, Bundle]:
    return {
        "translate": transformer(),
        "generate": make("generate", "gpt2", **BLOCKS),
        "fill": make("fill", "bert", **BLOCKS),
        "classify": make("classify", "self-attention", **RUNG),
        "classify-pictures": make_seeing(
            "classify-pictures", "convnet", {k: v for k, v in EYES.items() if k != "kind"}
        ),
        "classify-graphs": of_graphs("gcn"),
        "caption": make_seeing("caption", "show-attend-tell", SMALL_EYES | {"encoder": EYES}),
        "answer": make_seeing("answer", "answerer", SEEN_BY | {"encoder": EYES}),
    }


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle for each task, and a picture."""
    folder = tmp_path_factory.mktemp("json")
    for task, bundle in bundles().items():
        save_bundle(folder / task, bundle)
    Image.fromarray(np.arange(48 * 40 * 3, dtype=np.uint8).reshape(48, 40, 3)).save(folder / "photo.png")
    (folder / "pairs.tsv").write_text("two dogs\tsgod owt\n")
    rows = [f"dog number {number}\t{number} rebmun god\n" for number in range(60)]
    (folder / "check.tsv").write_text("".join([*rows, rows[0]]))
    (folder / "valid.tsv").write_text("dog number one hundred\tderdnuh eno rebmun god\n")
    return folder


WORDS = {
    "translate": ["translate", "two dogs sleep", "--n-best", "2", "--max-length", "5", "-m", "translate"],
    "generate": ["generate", "two dogs", "-n", "4", "--min-length", "4", "--seed", "3", "-m", "generate"],
    "fill": ["fill", "two [MASK] sleep", "--top", "2", "-m", "fill"],
    "vectors": ["vectors", "two dogs", "-m", "fill"],
    "classify": ["classify", "two dogs", "-m", "classify"],
    "classify-pictures": ["classify", "photo.png", "-m", "classify-pictures"],
    "classify-graphs": ["classify", "builtin/communities/50", "--node", "17", "-m", "classify-graphs"],
    "caption": ["caption", "photo.png", "-m", "caption"],
    "answer": ["answer", "photo.png", "is there a ring ?", "-m", "answer"],
    "score": ["score", "translate", "pairs.tsv"],
    "data-check": ["data", "check", "check.tsv", "--valid", "valid.tsv"],
}


def test_the_page_has_an_example_for_each_verb() -> None:
    assert EXAMPLES.keys() == {
        *WORDS,
        "error",
        "attention",
        "picture-attention",
        "piece",
        "tune",
        "bench",
        "compute",
        "transcribe",
    }  # of the last four: test_tune.py, test_bench_model.py, test_programmer.py, test_hearing.py


@pytest.mark.parametrize("name", WORDS)
def test_the_page_shows_what_a_verb_prints(
    name: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    out = typed(capsys, *WORDS[name], *([] if name == "vectors" else ["--json"]))
    assert kind(json.loads(out)) == kind(EXAMPLES[name])


@pytest.mark.parametrize(("name", "example"), [("translate", "attention"), ("caption", "picture-attention"),
                                               ("answer", "picture-attention")])  # fmt: skip
def test_the_page_shows_where_a_model_looked(
    name: str, example: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    found = json.loads(typed(capsys, *WORDS[name], "--json", "--attention"))
    assert kind(found.pop("attention")) == kind(EXAMPLES[example])
    assert kind(found) == kind(EXAMPLES[name])


def test_python_and_the_command_line_say_the_same(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    printed = json.loads(typed(capsys, *WORDS["translate"], "--json"))
    found = Translator.load("translate").translate("two dogs sleep", n_best=2, max_length=5)
    assert json.loads(json.dumps(found.data())) == printed
    (*pieces, whole) = Generator.load("generate").stream("two dogs", max_length=4, min_length=4, seed=3, sample=True)
    assert json.loads(json.dumps(whole.data())) == json.loads(typed(capsys, *WORDS["generate"], "--json"))
    assert kind(pieces[0].data()) == kind(EXAMPLES["piece"])
    bad = typed_bad(capsys)
    assert kind(bad) == kind(EXAMPLES["error"])


def typed_bad(capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert run(["translate", "two", "two\udcff dogs", "-m", "translate", "--json"]) == 1
    return json.loads(capsys.readouterr()[0].splitlines()[1])
