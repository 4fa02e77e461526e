"""Classifying texts: rows and pairs, what counted for a label, and going on from a model that was trained first."""

from __future__ import annotations

import itertools
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from toy_run import Contents

from regard.bundle import Bundle, BundleConfig, load_bundle
from regard.config import check
from regard.data.batch import LabelBatch
from regard.data.batches import as_row
from regard.errors import RegardError, UsageError
from regard.models.classifier import label_parts
from regard.models.config import KINDS_OF
from regard.models.pictures.classifier import mixed_parts
from regard.models.presets import preset
from regard.models.table import build
from regard.tasks.classify.config import ClassifyConfig
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.configure import run_config
from regard.tasks.recipe import class_weights, prepare
from regard.tasks.run import resume_run, start_run
from regard.tasks.trained import load_model
from regard.tokens import BEGIN, END, TokenizerPair, TokensConfig, train_tokenizer
from regard.training.events import Progress
from regard.training.show import Show

TEXTS = [
    "the film was wonderful and the music too",
    "a boring film, a dull evening",
    "日本語のテキスト、とても良い 😀😀 fin",
    "e\u0301te\u0301 was great",
]
LABELS = ("bad", "good", "so-so")
SMALL = {"layers": 2, "width": 12, "heads": 3, "feed_forward": 20, "max_length": 29, "dropout": 0.0}
TOKENS = {"kind": "word", "size": 60, "min_count": 1}
SHORT = {
    "steps": 4, "validate_every": 2, "batch_tokens": 128, "warmup": 0, "precision": "float32", "log_every": 1,
    "optimiser": "adam",
}  # fmt: skip


def test_labels_count_by_their_weights() -> None:
    """Against torch's own loss with the same weights; of mean 1 over the data, so that the mean loss keeps its scale."""
    labels, counts = ("ham", "spam", "so-so"), (90, 2, 8)
    wanted = torch.tensor([0] * 90 + [1] * 2 + [2] * 8)
    logits = torch.randn(100, 3, generator=torch.Generator().manual_seed(3))
    for asked, ratios in (("balanced", (1 / 90, 1 / 2, 1 / 8)), ({"spam": 7.0}, (1.0, 7.0, 1.0))):
        weights = class_weights(asked, labels, counts)  # type: ignore[arg-type]
        assert weights is not None and float(weights[wanted].mean()) == pytest.approx(1)
        assert (weights / weights[0]).tolist() == pytest.approx([ratio / ratios[0] for ratio in ratios])
        for smoothing in (0.0, 0.1):
            part = label_parts(logits, wanted, smoothing, weights)["loss"]
            theirs = cross_entropy(logits, wanted, weight=torch.tensor(ratios), label_smoothing=smoothing)
            assert float(part.sum) / part.count == pytest.approx(float(theirs), rel=1e-5)
    mixed = mixed_parts(logits, wanted, wanted.flip(0), torch.full((100,), 0.3), 0.0, weights)["loss"]
    rows = -logits.log_softmax(dim=-1)
    by_hand = [
        0.3 * weights[a] * row[a] + 0.7 * weights[b] * row[b]
        for row, a, b in zip(rows, wanted, wanted.flip(0), strict=True)
    ]
    assert float(mixed.sum) == pytest.approx(float(sum(by_hand)), rel=1e-5)
    assert class_weights(None, labels, counts) is None
    assert torch.equal(label_parts(logits, wanted, 0.1)["loss"].sum, cross_entropy(logits, wanted, reduction="sum",
                                                                                   label_smoothing=0.1))  # fmt: skip
    with pytest.raises(UsageError, match="no label 'spma' in the training data; did you mean spam"):
        class_weights({"spma": 2.0}, labels, counts)


def test_weights_of_classes_are_for_training_of_classifiers_only() -> None:
    model: Any = classifier_of("additive").model
    batch = LabelBatch(torch.tensor([[4, 5, 6], [7, 8, 9]]), torch.tensor([3, 3]), torch.tensor([0, 2]), 4)
    rows = cross_entropy(model.logits(batch), batch.labels, reduction="none")
    model.class_weights = torch.tensor([0.5, 1.0, 2.0])
    assert "class_weights" not in model.state_dict()
    assert torch.allclose(model(batch).parts["loss"].sum, rows.sum())  # in validation all count alike
    model.train().rate = 0.0
    assert torch.allclose(model(batch).parts["loss"].sum, 0.5 * rows[0] + 2 * rows[1])
    assert torch.allclose(model(batch).parts["nll"].sum, rows.sum())
    with pytest.raises(UsageError, match=r"train\.class_weights: only classifiers have classes"):
        run_config("generate", {"train": {"class_weights": "balanced"}})
    with pytest.raises(UsageError, match=r"train\.class_weights"):
        run_config("classify", {"train": {"class_weights": {"ham": 0.0}}})
    assert run_config("classify", {"train": {"class_weights": "none"}}).train.class_weights is None


def classifier_of(kind: str, tokens: str = "bpe", longest: int = 29, seed: int = 1) -> TextClassifier:
    """A classifier with random weights."""
    tokenizer = train_tokenizer(TEXTS, TokensConfig(kind=tokens, size=330, min_count=1))  # type: ignore[arg-type]
    values = preset("demo", kind) | ({"max_length": 29, "width": 12, "heads": 3, "feed_forward": 20} if kind[:3] in
                                     ("ber", "gpt", "lla") else {})  # fmt: skip
    config = check(ClassifyConfig, {"model": values}, "test").model
    torch.manual_seed(seed)
    model = build("classify", config, (tokenizer.size,), labels=len(LABELS))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # what is counted stays: padding has no idf
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    bundle = BundleConfig(
        task="classify",
        labels=LABELS,
        longest=longest,
        tokens=TokensConfig(kind=tokens),  # type: ignore[arg-type]
        vocabulary=(tokenizer.size,),
        model=config,
    )
    return TextClassifier(Bundle(bundle, model.eval(), TokenizerPair(tokenizer, tokenizer), {}))


# --- rows


def test_rows_of_one_text_and_of_two() -> None:
    tokenizer = train_tokenizer(["a b c d e f g"], TokensConfig(kind="word", min_count=1))
    [a], [b], [c] = (tokenizer.encode(letter) for letter in "abc")
    ids, segments = as_row(tokenizer, "a b", None, 9)
    assert ids.tolist() == [BEGIN, a, b, END] and segments.tolist() == [0, 0, 0, 0]
    ids, segments = as_row(tokenizer, "a b", "c", 9)
    assert ids.tolist() == [BEGIN, a, b, END, c, END] and segments.tolist() == [0, 0, 0, 0, 1, 1]
    assert as_row(tokenizer, "a b c d", None, 5)[0].tolist() == [BEGIN, a, b, c, END]
    assert as_row(tokenizer, "", None, 5)[0].tolist() == [BEGIN, END]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("a b c d e f", "a b", (3, 2)),  # only the longer one gives way
        ("a", "a b c d e f", (1, 4)),
        ("a b c d e", "a b c d e", (2, 3)),  # of equals, the first one first
        ("a b", "", (2, 0)),
    ],
)
def test_the_longer_text_of_a_pair_gives_way(first: str, second: str, kept: tuple[int, int]) -> None:
    tokenizer = train_tokenizer(["a b c d e f g"], TokensConfig(kind="word", min_count=1))
    ids, segments = as_row(tokenizer, first, second, 8)
    assert ((segments == 0).sum() - 2, (segments == 1).sum() - 1) == kept and len(ids) <= 8
    assert ids.tolist() == [
        BEGIN, *tokenizer.encode(first)[: kept[0]], END, *tokenizer.encode(second)[: kept[1]], END
    ]  # fmt: skip


# --- labels and what counted


@pytest.mark.parametrize("kind", KINDS_OF["classify"])
def test_probabilities_do_not_depend_on_the_others(kind: str) -> None:
    classifier = classifier_of(kind)
    seconds = ["", "good", "x" * 50, "日"] if kind == "bert" else None
    found = classifier.classify(TEXTS, seconds)
    for place, each in enumerate(found):
        alone = classifier.classify(TEXTS[place], None if seconds is None else seconds[place])
        assert alone.label == each.label
        assert alone.probabilities == pytest.approx(each.probabilities, abs=1e-5)
        assert sum(each.probabilities.values()) == pytest.approx(1.0) and set(each.probabilities) == set(LABELS)
        shares = list(each.probabilities.values())
        assert shares == sorted(shares, reverse=True) and (each.label, each.probability) == next(
            iter(each.probabilities.items())
        )
    assert len({each.probability for each in found}) == len(TEXTS)


def test_the_second_text_and_where_it_begins_count() -> None:
    classifier = classifier_of("bert")
    kinds = [
        ("the film was great", None),
        ("the film", "was great"),
        ("the film was", "great"),
        ("the film was great", ""),
    ]
    found = [classifier.classify(text, second).probability for text, second in kinds]  # type: ignore[arg-type]
    assert len({round(each, 7) for each in found}) == len(kinds)
    with pytest.raises(UsageError, match="4 texts but 2 second texts; give one for each"):
        classifier.classify(TEXTS, ["a", "b"])
    assert classifier.classify([]) == []


@pytest.mark.parametrize("kind", KINDS_OF["classify"])
@pytest.mark.parametrize("tokens", ["bpe", "byte", "word", "wordpiece", "character"])
def test_what_counted_sums_to_one_and_lies_on_the_text(kind: str, tokens: str) -> None:
    classifier = classifier_of(kind, tokens)
    for text in TEXTS:
        seen = classifier.look(text)
        assert seen.text == text and seen.caption.startswith(classifier.classify(text).label)
        inside = [weight for (start, end), weight in zip(seen.spans, seen.weights, strict=True) if start < end]
        assert sum(inside) + seen.outside == pytest.approx(1.0, abs=1e-5)
        pieces = [(start, end) for start, end in seen.spans if start < end]
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(pieces))


def test_each_letter_of_several_bytes_has_the_weight_of_its_bytes() -> None:
    classifier = classifier_of("token-weights", "byte")
    text = "a日😀é"
    ids = [BEGIN, *classifier.tokenizer.encode(text), END]
    scores = classifier.model.token_scores.detach().double()[ids].exp().numpy()
    shares = scores / scores.sum()
    edges = np.cumsum([1, 1, 3, 4, 2])
    hand = [shares[start:end].sum() for start, end in itertools.pairwise(edges)]
    seen = classifier.look(text)
    assert [seen.text[start:end] for start, end in seen.spans if start < end] == list(text)
    assert [w for (a, b), w in zip(seen.spans, seen.weights, strict=True) if a < b] == pytest.approx(hand, abs=1e-6)
    assert seen.outside == pytest.approx(shares[0] + shares[-1], abs=1e-6)


def test_of_a_single_word_its_pieces_are_shown() -> None:
    seen = classifier_of("self-attention").look("wonderfulest")
    assert len([start for start, end in seen.spans if start < end]) > 1
    assert "".join(seen.text[start:end] for start, end in seen.spans) == "wonderfulest"


def test_words_of_a_pair_and_of_a_cut_text() -> None:
    classifier = classifier_of("token-weights", "word", longest=8)
    scores = classifier.model.token_scores.detach().double().exp()
    first, second = "the film was wonderful and the music", "a dull evening"

    def words(of: Any) -> list[tuple[str, float]]:
        pairs = zip(of.spans, of.weights, strict=True)
        return [(of.text[start:end], weight) for (start, end), weight in pairs if start < end]

    read = [*first.split()[:2], *second.split()]
    ids = [BEGIN, *classifier.tokenizer.encode(" ".join(read)), END, END]
    total = float(scores[ids].sum())
    hand = [float(scores[classifier.tokenizer.encode(word)[0]]) / total for word in read]
    found = words(classifier.look(first, second))
    assert [word for word, _ in found] == read
    assert [weight for _, weight in found] == pytest.approx(hand, abs=1e-6)
    assert classifier.look(first, second).text == f"{first}\n{second}"
    cut = classifier.look(first)
    assert [word for word, _ in words(cut)] == first.split()[:6] and cut.unweighed


# --- going on from a trained model


def corpus(folder: Path) -> Path:
    draw = np.random.default_rng(3)
    words = ["the", "film", "was", "a", "dull", "boring", "great", "wonderful", "evening", "music", "cat", "sea"]
    lines = [" ".join(draw.choice(words, size=draw.integers(4, 9))) for _ in range(90)]
    (folder / "book.txt").write_text("\n".join(lines))
    (folder / "texts.tsv").write_text("".join(f"{line}\t{'good' if 'great' in line else 'bad'}\n" for line in lines))
    return folder


def settings(task: str, **more: Any) -> dict[str, Any]:
    """The tables of a run of four updates."""
    kinds = {"generate": "gpt2", "fill": "bert", "classify": "bert"}
    data = {"train": "texts.tsv"} if task == "classify" else {"train": "book.txt", "context": 16}
    over: dict[str, Any] = {"data": data, "train": SHORT | more.pop("train", {}), **more}
    if "start" not in over:
        over |= {"tokens": TOKENS, "model": {"kind": kinds[task], **SMALL}}
    return over | ({"samples": 3} if task == "generate" else {})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts and two runs of four updates, `fill` and `generate`; not to be written to."""
    folder = corpus(tmp_path_factory.mktemp("trained"))
    for task in ("fill", "generate"):
        start_run(run_config(task, settings(task)), folder=folder / task, data_root=folder)
    return folder


def tuned(trained: Path, out: Path, task: str, **train: Any) -> Any:
    config = run_config("classify", settings("classify", start=str(trained / task), train=train))
    return start_run(config, folder=out, data_root=trained)


def pairs_of(classifier: dict[str, torch.Tensor], body: dict[str, torch.Tensor], task: str) -> list[tuple[str, str]]:
    """Names of the same parameter in the classifier and in what it started from."""
    if task == "generate":
        return [(f"body.{name}", name) for name in body]
    return [(name, name) for name in body if name.startswith("encoder.")]


@pytest.mark.parametrize("task", ["fill", "generate"])
def test_before_the_first_update_the_body_is_the_trained_one(trained: Path, tmp_path: Path, task: str) -> None:
    config = run_config("classify", settings("classify", start=str(trained / task)))
    assert config.model.kind == {"fill": "bert", "generate": "gpt2"}[task] and config.model.width == 12
    prepared = prepare(config, tmp_path, data_root=trained, resume=False)
    now = dict(prepared.job.model.named_parameters())
    body = dict(load_bundle(trained / task / "best").model.named_parameters())
    names = pairs_of(now, body, task)
    assert len(names) > 20
    assert all(torch.equal(now[ours], body[theirs]) for ours, theirs in names)
    assert (tmp_path / "tokens" / "tokenizer.json").read_bytes() == (
        trained / task / "best" / "tokenizer.json"
    ).read_bytes()


@pytest.mark.parametrize("task", ["fill", "generate"])
def test_frozen_layers_stay_equal_to_the_bit(trained: Path, tmp_path: Path, task: str) -> None:
    """2: the embeddings and the first of two blocks."""
    run = tuned(trained, tmp_path / "run", task, freeze=2, weight_decay=0.1)
    now = dict(load_bundle(run.folder / "last").model.named_parameters())
    body = dict(load_bundle(trained / task / "best").model.named_parameters())
    for ours, theirs in pairs_of(now, body, task):
        frozen = "tokens" in ours or "blocks.0" in ours
        assert torch.equal(now[ours], body[theirs]) == frozen, ours


@pytest.mark.parametrize("task", ["fill", "generate"])
def test_the_rate_falls_with_the_depth(trained: Path, tmp_path: Path, task: str) -> None:
    """The first update of Adam is the rate times the sign of the gradient (Kingma & Ba 2015, section 2.1)."""
    rate, decay = 1e-3, 0.5
    run = tuned(
        trained, tmp_path / "run", task, steps=1, validate_every=1, lr=rate, layer_decay=decay, schedule="constant",
        epsilon=1e-12, clip=0.0,
    )  # fmt: skip
    now = dict(load_bundle(run.folder / "last").model.named_parameters())
    body = dict(load_bundle(trained / task / "best").model.named_parameters())
    expected = {"tokens": decay**3, "blocks.0": decay**2, "blocks.1": decay}
    for part, share in expected.items():
        names = [pair for pair in pairs_of(now, body, task) if part in pair[0] and now[pair[0]].dim() > 1]
        moved = torch.cat([(now[ours] - body[theirs]).detach().abs().flatten() for ours, theirs in names])
        assert float(moved[moved > 0].median()) == pytest.approx(rate * share, rel=0.01), part


def test_what_a_run_can_start_from(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a fill model; generate goes on from generate"):
        run_config("generate", {"start": str(trained / "fill")})
    with pytest.raises(UsageError, match=r"is a generate model; fill goes on from fill"):
        run_config("fill", {"start": str(trained / "generate")})
    with pytest.raises(UsageError, match=r"is a fill model; translate goes on from translate"):
        run_config("translate", {"start": str(trained / "fill")})
    with pytest.raises(UsageError, match="brings its own model; leave out preset"):
        run_config("classify", {"start": str(trained / "fill"), "preset": "tiny"})
    with pytest.raises(UsageError, match="there is no"):
        run_config("classify", {"start": str(tmp_path / "nowhere")})
    with pytest.raises(UsageError, match="is neither a run nor a bundle"):
        run_config("classify", {"start": str(tmp_path)})
    over = settings("classify", start=str(trained / "fill"), model={"width": 18})
    with pytest.raises(RegardError, match=r"of the trained model is .*, but here it is"):
        start_run(run_config("classify", over), folder=tmp_path / "run", data_root=trained)
    assert not (tmp_path / "run").exists()


def test_a_model_goes_on_from_its_own_kind(trained: Path, tmp_path: Path) -> None:
    config = run_config("generate", settings("generate", start=str(trained / "generate"), train={"lr": 1e-9}))
    run = start_run(config, folder=tmp_path / "run", data_root=trained)
    now = dict(load_bundle(run.best).model.named_parameters())
    for name, value in load_bundle(trained / "generate" / "best").model.named_parameters():
        assert torch.allclose(now[name], value, atol=1e-6), name


def test_a_wrong_verb_is_told(trained: Path) -> None:
    with pytest.raises(UsageError, match="is a model to fill, not to classify; try: regard fill"):
        load_model(trained / "fill", task="classify")


# --- stopped and resumed


@dataclass
class Interrupts(Show):
    """Asks the run to stop while update `step` is made."""

    step: int

    def progress(self, event: Progress) -> None:
        if event.step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("task", ["generate", "fill", "classify"])
def test_a_resumed_run_is_equal_to_the_bit(trained: Path, tmp_path: Path, task: str) -> None:
    start = {"start": str(trained / "fill")} if task == "classify" else {}
    config = run_config(task, settings(task, **start))
    for name, show in (("whole", Show()), ("run", Interrupts(3))):
        outcome = start_run(config, folder=tmp_path / name, data_root=trained, show=show).outcome
    assert (outcome.reason, outcome.progress.step) == ("interrupted", 3)
    assert resume_run(tmp_path / "run").outcome.reason == "steps"
    assert Contents.of(tmp_path / "whole").unlike(Contents.of(tmp_path / "run")) == []
