"""A task, a score, a kernel and a kind of model from a user's own file stand beside ours, everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MINE = '''
"""A score, a kind of model and a task, each in a few lines."""
from typing import ClassVar, Literal

import torch
from torch import nn

import regard
from regard.attention.kernels.sparse import SlidingWindow
from regard.attention.scores import Score
from regard.config import StrictConfig
from regard.models.language import LanguageModel
from regard.embed import embedding_table
from regard.inspect.texts import Material
from regard.errors import Advice
from regard.tasks.comparison import Comparison, Scored, TestData
from regard.tasks.material import TextSource
from regard.tasks.translate.config import TranslateConfig
from regard.tasks.translate.predictor import Translator


class Distance(Score):
    """-|q - k|^2: the nearer, the better."""

    def __init__(self, query_width, key_width):
        super().__init__()
        self.key = nn.Linear(key_width, query_width, bias=False)

    def keys(self, memory):
        return self.key(memory)

    def forward(self, q, keys):
        return -torch.cdist(q, keys) ** 2


class NearConfig(StrictConfig):
    kind: Literal["near"] = "near"
    reach: int = 2


class Near(SlidingWindow):
    """A window that is narrow unless said otherwise."""


class BagConfig(StrictConfig):
    kind: Literal["bag"] = "bag"
    width: int = 16
    longest: ClassVar[None] = None


class Bag(LanguageModel):
    """The mean of all tokens so far predicts the next."""

    def __init__(self, config, vocabulary, smoothing=0.0):
        super().__init__(config, vocabulary, smoothing)
        self.tokens = embedding_table(vocabulary, config.width)
        self.output = nn.Linear(config.width, vocabulary, bias=False)

    def read(self, ids):
        return self.mean(self.tokens(ids).cumsum(dim=1), 0)

    def mean(self, sums, before):
        count = torch.arange(before + 1, before + 1 + sums.size(1), dtype=sums.dtype)
        return sums / count[:, None]

    def start(self, source, prefix):
        sums = self.tokens(prefix).sum(dim=1, keepdim=True)
        return self.output(self.mean(sums, prefix.size(1) - 1)), (sums, prefix.size(1))

    def step(self, ids, state):
        sums, count = state
        sums = sums + self.tokens(ids)
        return self.output(self.mean(sums, count) if ids.size(1) == 1 else sums / (count + 1)), (sums, count + 1)

    def reorder(self, state, parents):
        return state[0].gather(1, parents[:, :, None].expand(-1, -1, state[0].size(2))), state[1]

    def keep(self, state, rows):
        return state[0].index_select(0, rows), state[1]


class ReverseConfig(TranslateConfig):
    """A model that writes words backwards."""

    task: Literal["reverse"] = "reverse"


class Reverser(Translator):
    def predict(self, inputs):
        return self.translate(list(inputs))


class BackConfig(ReverseConfig):
    """The same, with texts and scores of its own."""

    task: Literal["back"] = "back"


class CompareLetters(Comparison):
    """The share of letters at their place."""

    task, unit = "back", "words"

    def read(self, names, first, columns, notes):
        lines = open(first.data_root / names[0] if first.data_root else names[0]).read().split()
        return TestData(tuple(names), items=list(zip(lines[::2], lines[1::2])))

    def score(self, predictor, test, progress):
        pairs = [(predictor.translate(source).text, target) for source, target in test.items]
        same = [a == b for written, target in pairs for a, b in zip(written.ljust(len(target)), target)]
        return Scored({"letters": 100 * sum(same) / len(same)}, len(pairs), 1.0, (0.0, 100.0), [w == t for w, t in pairs])


regard.add_score("distance", lambda query_width, key_width, longest: Distance(query_width, key_width))
regard.add_kernel("near", NearConfig, Near)
regard.add_kind("bag", BagConfig, Bag, tasks=["generate"])
regard.add_task(
    regard.Task(
        "reverse",
        ReverseConfig,
        recipe="regard.tasks.translate.recipe:prepare_translate",
        predictor=Reverser,
        subject="regard.tasks.translate.recipe:TranslateSubject",
        data="words.tsv",
        test="test.tsv",
        columns=("source", "target"),
        reads_text=True,
        like="translate",
    ),
    example='regard reverse -m {model} "a word"',
)
regard.add_task(
    regard.Task(
        "back",
        BackConfig,
        recipe="regard.tasks.translate.recipe:prepare_translate",
        predictor=Reverser,
        subject="regard.tasks.translate.recipe:TranslateSubject",
        texts=TextSource(
            Advice("--on words.tsv"),
            lambda names, run: [tuple(line.split()) for line in open(names[0])][:2],
            lambda config, folder, data_root: Material([("abc", "cba"), ("level", "level"), ("radio", "oidar")]),
        ),
        comparison=CompareLetters(),
        data_options=("source", "target"),
        reads_text=True,
        like="translate",
    ),
    example='regard back -m {model} "a word"',
)
'''

SCRIPT = """
import sys
from regard.cli.main import run
for line in open(sys.argv[1]).read().splitlines():
    print("$", line, flush=True)
    code = run(line.split("|"))
    print("=", code, flush=True)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    words = ["stone", "river", "cloud", "tree", "house", "bread", "light", "night", "glass", "paper", "green", "white"]
    pairs = "".join(f"{word}\t{word[::-1]}\n" for word in words)
    (folder / "words.tsv").write_text(pairs * 2, encoding="utf-8")
    (folder / "test.tsv").write_text(pairs, encoding="utf-8")
    (folder / "book.txt").write_text("the stone lies in the river and the river is cold\n" * 60, encoding="utf-8")
    return folder


def session(place: Path, *lines: str, plugins: str = "") -> dict[str, tuple[str, int]]:
    """What each line prints on stdout and its exit code, all in one process, so that nothing is added to this one."""
    (place / "lines").write_text("\n".join(line.replace(" ", "|") for line in lines), encoding="utf-8")
    (place / "script.py").write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "REGARD_PLUGINS": plugins}
    done = subprocess.run(
        [sys.executable, "script.py", "lines"], cwd=place, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, int]] = {}
    for part in done.stdout.split("$ ")[1:]:
        line, _, rest = part.partition("\n")
        out, _, code = rest.rpartition("= ")
        found[line.replace("|", " ")] = (out, int(code))
    assert len(found) == len(lines), done.stdout + done.stderr
    found["stderr"] = (done.stderr, 0)
    return found


TRAIN = "--set train.steps=4 --set train.validate_every=2 --set train.batch_tokens=200 --preset demo --data"


def test_a_task_a_score_and_a_kind_of_a_users_file(place: Path) -> None:
    words = f"train reverse {TRAIN} words.tsv --valid test.tsv --set tokens.kind=character -o reverse"
    score = "train translate --model bahdanau --set model.score=distance --set model.hidden=16 --set model.width=8"
    found = session(
        place,
        "--plugin mine.py --help",
        "train --help",
        words.replace("steps=4", "steps=8 --max-time 0.01s"),  # stopped
        "train --resume reverse --max-time 60s",
        "reverse -m reverse stone tree",
        "reverse -m reverse stone --json",
        "eval reverse --on test.tsv --json",
        "look -m reverse stone -o map.json",
        "verify reverse --json",
        f"{score} {TRAIN} words.tsv --valid test.tsv --set tokens.kind=character -o distance",
        "translate -m distance stone --attention",
        "walk -m distance stone",
        "verify distance --json",
        "train generate --model bag --set train.steps=4 --set train.validate_every=2 --data book.txt --set data.context=8"
        " --set tokens.kind=character --set train.batch_tokens=64 -o bag",
        "generate -m bag the --length 5",
        "verify bag --json",
        "train generate --model llama --set model.attention=near --set train.steps=4 --set train.validate_every=2 --preset demo"
        " --data book.txt --set data.context=8 --set tokens.kind=character --set train.batch_tokens=64 -o near",
        "train --resume bag --steps 6",
        "train --resume distance --steps 6",
        "verify near --json",
        "look -m near stone -o near.json",
        "compare reverse reverse --on test.tsv --json",
        "compare ./bag ./near --on book.txt --json",
        "compare distance reverse --on test.tsv --json",
        "heads reverse --texts 3 --no-removal --json",
        words.replace("train reverse", "train back").replace("-o reverse", "-o back"),
        "heads back --texts 9 --no-removal --json",
        "heads back --on test.tsv --no-removal --json",
        "compare back back/best --on test.tsv --json",
        "compare back reverse --on test.tsv",
        "config back --presets --json",
        "config",
        plugins="mine.py",
    )
    assert "A model that writes words backwards." in found["--plugin mine.py --help"][0]
    assert "reverse" in found["train --help"][0]
    assert len(found["reverse -m reverse stone tree"][0].splitlines()) == 2
    assert json.loads(found["reverse -m reverse stone --json"][0])
    assert json.loads((place / "map.json").read_text(encoding="utf-8"))
    for name in ("reverse", "distance", "bag", "near"):
        assert json.loads(found[f"verify {name} --json"][0])["failed"] == 0
        assert json.loads((place / name / "best" / "config.json").read_text(encoding="utf-8"))["plugins"] == ["mine"]
    compared = json.loads(found["compare ./bag ./near --on book.txt --json"][0])["runs"]
    assert [each["kind"] for each in compared] == ["bag", "llama"]
    on_own = [
        json.loads(found[f"heads {name} --no-removal --json"][0]) for name in ("reverse --texts 3", "back --texts 9")
    ]
    assert [(each["texts"], each["on"]) for each in on_own] == [
        (3, "its own validation data"),
        (3, "its own validation data"),
    ]
    assert json.loads(found["heads back --on test.tsv --no-removal --json"][0])["texts"] == 2
    own = json.loads(found["compare back back/best --on test.tsv --json"][0])
    assert (own["task"], own["count"], own["runs"][1]["p_value"]) == ("back", 12, 1.0)
    assert [*own["runs"][0]["scores"]] == ["letters"]
    assert "models are compared at one task: back is to back, reverse is to translate" in found["stderr"][0]
    assert "bag" in found["config"][0] and "reverse" in found["config"][0]
    assert "the walk knows the numbers of the scores" in found["stderr"][0]  # and of no other
    assert {line for line, (_, code) in found.items() if code} == {
        "walk -m distance stone",
        "compare back reverse --on test.tsv",
    }, found["stderr"]


def test_a_bundle_that_needs_a_plugin_says_which(place: Path) -> None:
    found = session(place, "reverse -m reverse stone", "verify bag")
    assert found["reverse -m reverse stone"][1] == 2
    assert "needs the plugin mine" in found["stderr"][0]


def test_a_name_that_is_taken_is_refused(place: Path) -> None:
    (place / "twice.py").write_text("import regard\nregard.add_score('dot', None)\n", encoding="utf-8")
    found = session(place, "--plugin twice.py runs")
    assert found["--plugin twice.py runs"][1] == 2 and "there is a score dot already" in found["stderr"][0]
