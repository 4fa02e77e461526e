"""One word in a command or a configuration chooses the family; every verb then works as it does with any other."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.blocks.norm import BatchNorm
from regard.bundle import Bundle, BundleConfig
from regard.cli import main
from regard.data.batch import LabelBatch, MaskedBatch, PairBatch, PreferenceBatch, StoryBatch, TableBatch, TextBatch
from regard.data.batches import generator
from regard.data.bits import made
from regard.data.graphs.batch import GraphBatch
from regard.data.graphs.batches import graph_batch
from regard.data.graphs.config import GraphFormat
from regard.data.graphs.graph import Graph, tidy_edges
from regard.data.pictures.batch import AnswerBatch, CaptionBatch, PictureBatch
from regard.data.pictures.config import PictureFormat
from regard.data.sound.batch import SoundBatch, SpeechBatch
from regard.data.sound.config import SoundFormat
from regard.errors import RegardError, UsageError
from regard.models.config import KINDS_OF, all_kinds
from regard.models.presets import PRESETS, preset
from regard.models.table import FAMILIES, MODELS, build, build_model
from regard.noise import noise
from regard.tasks.configure import run_config
from regard.tasks.recipe import prepare
from regard.tasks.run import RunResult, start_run
from regard.tasks.table import TASKS
from regard.tasks.translate.predictor import Translator
from regard.tokens import TokenizerPair, TokensConfig, train_tokenizer
from regard.training.config import TrainConfig
from regard.training.job import Job
from regard.training.loop import Trainer
from regard.training.show import Show
from regard.training.timed import train
from regard.training.validation import Validation

TRANSLATE = KINDS_OF["translate"]
WITH_ATTENTION = {"transformer", "bahdanau", "luong", "decoder-only"}
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
    assert {task: set(kinds) for task, kinds in MODELS.items()} == {task: set(each) for task, each in KINDS_OF.items()}
    assert set(all_kinds()) == set(PRESETS["tiny"]) == set(PRESETS["demo"])
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
    if kind_of(run) not in WITH_ATTENTION - {"decoder-only"}:  # which has no attention to the source alone
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


LEARNED: dict[str, Any] = {
    "data": {"hold_out": 7, "max_length": 40},
    "tokens": {"kind": "character"},
    "model": {"kind": "transformer", "positions": "learned", "max_length": 17, "width": 12, "heads": 3, "dropout": 0.0},
    "train": {"steps": 2, "warmup": 1, "batch_tokens": 64, "validate_every": 1, "average": 0},
}


def test_a_table_of_positions_ends_no_run(tmp_path: Path) -> None:
    """Sentences of a model that has learned nothing went on to 2 S + 20 tokens, past the table, and the first validation
    ended the run; so did a pair that was longer than the table, in the middle of training.
    """
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{'ab' * (n % 7)}{n}\t{n}{'ba' * (n % 7)}\n" for n in range(60))
        + "".join(
            f"{'a' * 9}{n}\t{n}{'b' * (15 + n % 2)}\n" for n in range(10, 40)
        ),  # 18 and 19 with the end: too long
        encoding="utf-8",
    )
    values = {**LEARNED, "data": {**LEARNED["data"], "train": [str(tmp_path / "pairs.tsv")]}}
    prepared = prepare(run_config("translate", values), tmp_path / "run", data_root=None, resume=False)
    told = "\n".join(prepared.notes)
    assert "the model reads 17 tokens (model.max_length), fewer than data.max_length 40" in told
    dropped = [int(n) for n in re.findall(r"dropped (\d+) of \d+ \w+ pairs: \d+ with a side over 17 tokens", told)]
    assert len(dropped) == 2 and sum(dropped) == 30  # of training, and of validation
    assert train(prepared.job, Show()).reason == "steps"
    translator = Translator.load(tmp_path / "run" / "last")
    longest = translator.translate("ab", beam=1, min_length=300)
    assert len(longest.ids) == 16 and len(longest.token_log_probabilities) == 17  # with the end, all that it can read
    for use in (translator.translate, lambda text: translator.score([(text, "b")])):
        assert use("a" * 16) is not None
        with pytest.raises(RegardError, match=r"a text of 18 tokens, end included, is longer than the 17 that this"):
            use("a" * 17)
    with pytest.raises(RegardError, match=r"a text of 18 tokens"):
        translator.score([("a", "b" * 17)])
    assert translator.score([("a", "b" * 16)])[0].tokens == 17


def test_no_pair_that_the_model_can_read_is_told_before_training(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{'a' * 20}{n}\t{n}\n" for n in range(60)), encoding="utf-8")
    values = {**LEARNED, "data": {**LEARNED["data"], "train": [str(tmp_path / "pairs.tsv")]}}
    with pytest.raises(
        RegardError, match=r"no training pair is left: .*a side over 17 tokens; raise .*model\.max_length"
    ):
        prepare(run_config("translate", values), tmp_path / "run", data_root=None, resume=False)


@pytest.mark.parametrize(("longest", "kind", "expected"), [(None, "gpt2", 31), (20, "gpt2", 20), (40, "gpt2", 31)])
def test_a_text_is_cut_to_what_was_learned_and_has_positions(longest: int | None, kind: str, expected: int) -> None:
    """An imported classifier names no length: 512 tokens were given to a model of 31 positions."""
    model = run_config("classify", {"model": {"kind": kind, "max_length": 31}}).model
    assert BundleConfig(task="classify", longest=longest, model=model).reads(512) == expected
    rotary = run_config("classify", {"model": {"kind": "llama"}}).model
    assert BundleConfig(task="classify", longest=longest, model=rotary).reads(512) == (longest or 512)


HEARING = ("transcribe", "classify-sounds")
HEARD = SoundFormat(rate=8000, mels=17)
OTHERWISE = (  # one guesses numbers, one every frame; rewards of variance 1 cost a third more than ln 2
    ("compute", "programmer"),
    ("transcribe", "conformer"),
    *(("align", kind) for kind in KINDS_OF["align"]),
)
EVERY = [(task, kind) for task, kinds in KINDS_OF.items() for kind in kinds]
VOCABULARY, LABELS = 211, 7
SEEN = PictureFormat(size=16)
FEATURES = 13  # of a node, with its Laplacian positions


def whatever(task: str, rows: int, seed: int = 5) -> Any:
    """A batch of a task: random tokens and pixels, labels each as often as the others."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.where(torch.arange(rows) % 2 == 0, 11, 7)
    labels, tokens = torch.arange(rows) % LABELS, int(lengths.sum())

    def ids(*shape: int) -> Tensor:
        return torch.randint(5, VOCABULARY, shape, generator=draw)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    pixels = numbers(rows, SEEN.channels, SEEN.size, SEEN.size)
    places = (torch.arange(11) % 3 == 1).expand(rows, -1) & (torch.arange(11) < lengths[:, None])
    return {
        "translate": PairBatch(ids(rows, 11), lengths, ids(rows, 12), lengths, tokens),
        "generate": TextBatch(ids(rows, 12), lengths, tokens),
        "align": PreferenceBatch(ids(2 * rows, 12), lengths.repeat(2), torch.ones(2 * rows, 11, dtype=torch.bool)),
        "fill": MaskedBatch(ids(rows, 11), lengths, places, ids(int(places.sum()))),
        "classify": LabelBatch(ids(rows, 11), lengths, labels, tokens - rows),
        "classify-pictures": PictureBatch(pixels, labels),
        "caption": CaptionBatch(pixels, ids(rows, 12), lengths, tokens),
        "answer": AnswerBatch(pixels, ids(rows, 11), lengths, labels),
        "ask": StoryBatch(ids(rows, 4, 5), 1 + torch.arange(rows) % 4, ids(rows, 3), labels),
        "remember": made("copy-bits", generator(seed), rows, 3, 8, 3),
        "compute": tables(ids(rows, 11), lengths, draw),
        "transcribe": SpeechBatch(numbers(rows, 61, HEARD.mels), 5 * lengths, ids(rows, 12), lengths, tokens),
        "classify-sounds": SoundBatch(numbers(rows, 61, HEARD.mels), 5 * lengths, labels),
        "classify-graphs": graphs(rows, seed),
    }[task]


def graphs(rows: int, seed: int) -> GraphBatch:
    """Random graphs of which one node each has a label."""
    random, places = np.random.default_rng(seed), np.arange(rows)
    found = [
        Graph(
            tidy_edges(random.integers(0, 5, (2, 9)), 5, False, ""), random.standard_normal((5, FEATURES)), places[:1]
        )
        for _ in range(rows)
    ]
    return graph_batch(found, places % LABELS, 5 * places)


def tables(words: Tensor, lengths: Tensor, draw: torch.Generator) -> TableBatch:
    """Questions of random words about tables of five rows and three columns; every other answer is printed."""
    rows = len(words)
    cells = torch.randint(0, 90, (rows, 5, 3), generator=draw).float()
    numbers, prints = torch.randint(0, 90, (rows, 2), generator=draw), torch.arange(rows) % 2 == 0
    places, counts = torch.tensor([[1, 3], [2, 4]]).repeat(rows, 1)[:rows], torch.full((rows,), 2)
    signs, printed = (cells[:, None] - numbers[..., None, None]).sign(), (cells > 50) & prints[:, None, None]
    wanted = torch.where(prints, 0.0, cells[..., 0].sum(dim=-1))
    return TableBatch(
        words, lengths, places, places % 3, counts, places, counts, signs, cells, counts + 3, counts + 1, wanted, printed,
        prints,
    )  # fmt: skip


ROWS_OF_FIVE = {"columns": 5}  # so that a few tokens are several rows, of which one sees the other


def fresh(task: str, kind: str, **values: Any) -> nn.Module:
    torch.manual_seed(3)
    values = {**(ROWS_OF_FIVE if kind in ("pixelcnn", "pixelrnn", "image-transformer") else {}), **values}
    model = run_config(task, {"preset": "demo", "model": {"kind": kind, **values}}).model
    without = dict.fromkeys(("classify-pictures", "classify-sounds", "classify-graphs"), ())
    vocabularies = {"translate": (VOCABULARY, VOCABULARY), "remember": (10, 8), **without}.get(task, (VOCABULARY,))
    sees, hears = task in ("classify-pictures", "caption", "answer"), task in HEARING
    pictures, sounds = SEEN if sees else None, HEARD if hears else None
    graphs = GraphFormat(features=FEATURES - model.laplacian) if task == "classify-graphs" else None  # type: ignore[union-attr]
    return build(task, model, vocabularies, labels=LABELS, pictures=pictures, sounds=sounds, graphs=graphs)


class Whatever:
    """Four batches of a task."""

    def __init__(self, task: str) -> None:
        self.task = task

    def count(self, epoch: int) -> int:
        return 4

    def get(self, epoch: int, index: int) -> Any:
        return whatever(self.task, 3, seed=index)

    def padding_share(self) -> float:
        return 0.0


PARTS: list[tuple[str, str, dict[str, Any]]] = [  # of which autocast must leave no product with two types
    *(("translate", "transformer", {"positions": each}) for each in ("learned", "rotary", "shaw", "t5", "alibi")),
    ("translate", "transformer", {"attention_dropout": 0.1}),
    ("translate", "transformer", {"encoder_attention": "linformer"}),
    *(("translate", "luong", {"cell": each, "input_feeding": True, "layers": 2}) for each in ("rnn", "gru", "lstm")),
    ("translate", "luong", {"where": "local-p", "score": "cosine"}),
    ("translate", "bahdanau", {"cell": "lstm", "layers": 2}),
    ("translate", "seq2seq", {"cell": "gru", "context": "every"}),
    ("generate", "lstm", {"cell": "gru", "layers": 2}),
    ("generate", "llama", {"experts": 3, "groups": 2}),
    ("generate", "gpt2", {"reversible": True}),
    *(("generate", "gpt2", {"attention": each}) for each in ("performer", "linear", "reformer", "s4d", "mamba")),
    *(("fill", "bert", {"attention": each}) for each in ("window", "bigbird")),
    ("classify", "additive", {"cell": "lstm"}),
    ("classify-pictures", "resnet", {"attention": "cbam"}),
    ("caption", "show-attend-tell", {"hard": True}),
]


@pytest.mark.parametrize(("task", "kind", "values"), [*((*each, {}) for each in EVERY), *PARTS])
def test_every_kind_learns_in_bf16(task: str, kind: str, values: dict[str, Any], tmp_path: Path) -> None:
    """`precision = "auto"` is bf16 on processors that have it; there token-weights, plain-attention and all that has an
    LSTM could not be trained. Two updates of two micro-batches each, in the real loop: all stays finite, and moves.
    """
    config = TrainConfig(steps=2, accumulate=2, warmup=1, precision="bf16")
    model = fresh(task, kind, **values)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    job = Job(tmp_path, config, model, 64, Whatever(task), lambda _: Validation({}), lambda *_: None)
    trainer = Trainer(job, Show())
    for _ in range(2):
        trainer.learn()
    assert trainer.progress.step == 2 and trainer.progress.went_back == 0
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    learns = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert all(not torch.equal(before[name], model.get_parameter(name)) for name in learns if before[name].dim() > 1)


@pytest.mark.parametrize(("task", "kind"), [each for each in EVERY if each not in OTHERWISE])
def test_the_first_loss_is_about_that_of_a_blind_guess(task: str, kind: str) -> None:
    """Captions began at 9.95 where a blind guess costs ln 223 = 5.4, and wrote one word forty times: the embedding of the
    last word is a part of what predicts the next, through the same table.

    Logits of variance 1 cost half a nat above ln V, a tenth of it here; a Transformer with one table and embeddings
    scaled by √D (Vaswani et al. 2017, section 3.4) costs a little more, since it too finds the last word again.
    """
    labelled = ("classify", "classify-pictures", "classify-sounds", "classify-graphs", "answer", "ask")
    guesses = {"remember": 2, **dict.fromkeys(labelled, LABELS)}
    blind = math.log(guesses.get(task, VOCABULARY))
    for training in (True, False):
        model, total, count = fresh(task, kind).train(training), 0.0, 0.0
        for seed in range(12 if task.startswith("classify") else 3):  # which of a few labels come moves the loss
            batch = whatever(task, 5 * LABELS, seed)
            know_the_statistics(model, batch)
            with noise(1, 0, seed), torch.no_grad():
                part = model(batch).parts["nll"]
            total, count = total + float(part.sum), count + part.count
        assert total / count == pytest.approx(blind, rel=0.15), f"training: {training}"


def know_the_statistics(model: nn.Module, batch: Any) -> None:
    """Batch norm's own begin at 0 and 1 and know no picture yet: let them be those of the batch."""
    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    training = model.training
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        with torch.no_grad():
            model.train()(batch)
        model.train(training)


def test_an_untrained_captioner_does_not_expect_the_last_word_again() -> None:
    """Of Show, attend and tell: the logit of the word before, over the others, is of their size, not √D = 8 above them."""
    model: Any = fresh("caption", "show-attend-tell").eval()
    batch = whatever("caption", rows=17)
    with torch.no_grad():
        logits = model.logits(batch)  # (B, T, V)
    again = logits.gather(-1, batch.target[:, :-1, None]).squeeze(-1) - logits.mean(dim=-1)
    assert float(again.mean()) < 2.0


@pytest.mark.parametrize("task", KINDS_OF)
def test_a_predictor_is_where_its_model_is(task: str) -> None:
    """A resumed run makes its predictors before the loop moves the model to the GPU; they kept the CPU, and the first
    validation failed. There is no GPU here: the meta device stands for it.
    """
    tokenizer = train_tokenizer(["abc"], TokensConfig(kind="character"))
    config = run_config(task, {"preset": "demo"}).model
    sees = task in ("classify-pictures", "caption", "answer")
    about = {"vocabulary": (VOCABULARY,), "labels": ("a", "b"), "pictures": SEEN if sees else None, "model": config}
    about |= {"sounds": HEARD if task in HEARING else None}
    about |= {"vocabulary": (10, 8), "sequences": "builtin/copy-bits"} if task == "remember" else {}
    about |= {"graphs": GraphFormat(features=FEATURES)} if task == "classify-graphs" else {}
    bundle = Bundle(BundleConfig(task=task, **about), fresh(task, config.kind), TokenizerPair(tokenizer, tokenizer), {})
    predictor = TASKS[task].make_predictor(bundle)
    assert predictor.device.type == "cpu"
    bundle.model.to("meta")
    assert predictor.device.type == "meta"
