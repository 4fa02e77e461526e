"""Errors: what is wrong and what would help, in Python's words and as they are typed in a shell."""

from __future__ import annotations

import pickle

import pytest

from regard.cli.arguments import as_typed
from regard.errors import Advice, Option, RegardError, Setting, UsageError, Verb, nearest, spelled


def test_an_error_knows_what_is_wrong_and_what_would_help() -> None:
    error = UsageError("no kernel windw", nearest("windw", ["window", "linear"]))
    assert (error.wrong, error.hint) == ("no kernel windw", "did you mean window?")
    assert str(error) == error.sentence() == "no kernel windw; did you mean window?"
    assert str(RegardError("the disk is full")) == "the disk is full"
    assert str(RegardError("which column is it?", "name it")) == "which column is it? name it"


@pytest.mark.parametrize(
    ("named", "in_python", "typed"),
    [
        (
            Setting("train.class_weights", "balanced"),
            "train.class_weights=balanced",
            "--set train.class_weights=balanced",
        ),
        (Setting("train.warmup"), "train.warmup", "--set train.warmup=VALUE"),
        (Option("form", "words"), "form='words'", "--as words"),
        (Option("on", "test.tsv"), "on='test.tsv'", "--on test.tsv"),
        (Option("hide_special"), "hide_special=", "--hide-special"),
        (Verb("import", "FOLDER -o BUNDLE"), "regard import FOLDER -o BUNDLE", "regard import FOLDER -o BUNDLE"),
    ],
)
def test_advice_is_spelled_for_its_reader(named: Setting | Option | Verb, in_python: str, typed: str) -> None:
    advice = Advice("say ", named, ", and {} stays as it is")
    assert advice == f"say {in_python}, and {{}} stays as it is"
    assert spelled(advice, as_typed) == f"say {typed}, and {{}} stays as it is"
    error = RegardError("it is wrong", advice)
    assert error.sentence(as_typed) == f"it is wrong; say {typed}, and {{}} stays as it is"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own, as between processes)
    assert (again.sentence(as_typed), type(again.hint)) == (error.sentence(as_typed), Advice)
    assert spelled(Advice("inside: ", advice), as_typed) == f"inside: say {typed}, and {{}} stays as it is"
