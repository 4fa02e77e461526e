"""What `regard.load` returns: its type, where the task is named, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import UsageError
from regard.tasks.translate.predictor import Translator

ROOT = Path(regard.__file__).parent.parent

TYPED = """
import regard

reveal_type(regard.load("run", task="translate"))
reveal_type(regard.load("run", task="translate").translate("a"))
reveal_type(regard.load("run", "cpu", task="generate").generate(["a"]))
reveal_type(regard.load("run", task="fill").fill("a [MASK]"))
reveal_type(regard.load("run", task="classify").classify("a"))
reveal_type(regard.load("run", task="classify-pictures").classify(["a.png"]))
reveal_type(regard.load("run", task="caption").caption("a.png"))
reveal_type(regard.load("run", task="answer").answer("a.png", "what?"))
reveal_type(regard.load("run"))
"""


def test_an_editor_knows_what_a_loaded_model_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mypy = pytest.importorskip("mypy.api")
    (tmp_path / "typed.py").write_text(TYPED)
    monkeypatch.chdir(ROOT)  # its cache is there
    out, err, code = mypy.run(["--config-file", "pyproject.toml", str(tmp_path / "typed.py")])
    assert (code, err) == (0, ""), out + err
    found = re.findall(r'Revealed type is "(.+)"', out)
    assert [re.sub(r"[a-z_]+\.", "", each) for each in found] == [
        "Translator", "Translation", "list[Generated]", "Filled", "Classified", "list[ClassifiedPicture]", "Caption",
        "Answer", "Predictor",
    ]  # fmt: skip


def test_a_model_of_another_task_is_refused(tiny_run: Any) -> None:
    assert isinstance(regard.load(tiny_run.best, task="translate"), Translator)
    with pytest.raises(UsageError, match="is a model to translate, not to generate; say task='translate'"):
        regard.load(tiny_run.best, task="generate")
