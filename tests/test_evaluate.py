"""Scores against sacreBLEU's own command of the same thing, and alignments counted by hand."""

import json
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from regard.bundle import Bundle, BundleConfig, save_bundle
from regard.cli import main
from regard.compare.translation import TestSet, compare
from regard.errors import RegardError, UsageError
from regard.evaluate import (
    alignment_error_rate,
    exact_match,
    hard_alignment,
    paired_bootstrap,
    score_translations,
    translation,
)
from regard.evaluate import bootstrap as bootstrap_module
from regard.evaluate.by_length import Bucket, score_bucket
from regard.evaluate.translation import Tokenizing, bleu_tokenizer
from regard.models.table import build_model
from regard.tasks.configure import run_config
from regard.tasks.translate.evaluate import evaluate
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.recipe import validation
from regard.tokens import TokenizerPair

SENTENCES = 307
TEXT = "The man rides a red Bike through the old Town while two dogs sleep under trees ."
WORDS = TEXT.split()


def corrupted(sentences: list[str], rate: float, seed: int) -> list[str]:
    """What a system with that rate of wrong words would write."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choice(WORDS) if draw.random() < rate else word for word in line.split()) for line in sentences
    ]


@pytest.fixture(scope="module")
def references() -> list[str]:
    draw = random.Random(7)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 13))) for _ in range(SENTENCES)]


@pytest.fixture(scope="module")
def weak(references: list[str]) -> list[str]:
    return corrupted(references, 0.37, seed=11)


@pytest.fixture(scope="module")
def strong(references: list[str]) -> list[str]:
    return corrupted(references, 0.29, seed=13)


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_intervals_and_signatures_are_those_of_sacrebleu(references, weak, lowercase):
    scores = score_translations(weak, references, lowercase=lowercase)
    for name, oracle in (("bleu", BLEU(lowercase=lowercase)), ("chrf", CHRF(lowercase=lowercase)), ("ter", TER())):
        expected = oracle.corpus_score(weak, [references], n_bootstrap=1000)
        score = scores[name]
        assert score.name == expected.name
        assert score.value == pytest.approx(expected.score, abs=1e-9)
        assert score.signature == str(oracle.get_signature())
        # sacreBLEU resamples in float32 and reports half the width
        assert (score.high - score.low) / 2 == pytest.approx(expected._ci, abs=1e-3)
        assert score.low < score.value < score.high


def test_the_interval_ends_are_the_25th_from_each_end_of_sacrebleus_resamples(references, weak):
    metric = BLEU()
    rows = np.array(metric._extract_corpus_statistics(weak, [references]))
    generator = np.random.default_rng(12345)
    drawn = generator.choice(SENTENCES, size=(1000, SENTENCES), replace=True)
    ordered = sorted(metric._compute_score_from_stats(list(rows[index].sum(axis=0))).score for index in drawn)
    score = score_translations(weak, references, metrics=("bleu",))["bleu"]
    assert (score.low, score.high) == pytest.approx((ordered[25], ordered[-26]), abs=1e-9)


def test_lowercase_is_in_the_signature_and_forgives_case(references):
    shouted = [line.upper() for line in references]
    exact = score_translations(shouted, references, metrics=("bleu", "chrf"), resamples=0)
    forgiving = score_translations(shouted, references, metrics=("bleu", "chrf"), resamples=0, lowercase=True)
    for name in ("bleu", "chrf"):
        assert "case:mixed" in exact[name].signature
        assert "case:lc" in forgiving[name].signature
        assert exact[name].value < 50 < forgiving[name].value == pytest.approx(100)


def test_without_resamples_there_is_no_interval(references, weak):
    score = score_translations(weak, references, metrics=("bleu",), resamples=0)["bleu"]
    assert score.low == score.value == score.high
    assert "bs:" not in score.signature


def test_the_seed_moves_the_interval_but_not_the_score(references, weak):
    one, other = (score_translations(weak, references, metrics=("bleu",), seed=seed)["bleu"] for seed in (3, 5))
    assert one.value == other.value
    assert (one.low, one.high) != (other.low, other.high)
    assert "seed:3" in one.signature


def test_draws_in_chunks_are_the_draws_at_once(references, weak, monkeypatch):
    """A long test set is resampled in pieces; the numbers must not depend on where it is cut."""
    whole = score_translations(weak, references, metrics=("ter",), resamples=101)
    monkeypatch.setattr(bootstrap_module, "DRAWS_AT_ONCE", 17 * SENTENCES)  # 101 = 5 x 17 + 16: the last is shorter
    assert score_translations(weak, references, metrics=("ter",), resamples=101) == whole


@pytest.mark.parametrize(("name", "oracle"), [("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())])
def test_paired_bootstrap_is_sacrebleus(references, weak, strong, name, oracle):
    test = PairedTest([("baseline", weak), ("system", strong)], {name: oracle}, [references], test_type="bs")
    _, table = test()
    (expected,) = (results for key, results in table.items() if key != "System")
    ours = paired_bootstrap(weak, strong, references, metric=name)
    assert ours.baseline == pytest.approx(expected[0].score, abs=1e-9)
    assert ours.system == pytest.approx(expected[1].score, abs=1e-9)
    assert ours.p_value == pytest.approx(expected[1].p_value, abs=1e-12)
    assert ours.difference == pytest.approx(ours.system - ours.baseline)
    assert ours.low < ours.difference < ours.high


def test_close_systems_are_not_told_apart(references, weak):
    """A p-value in the middle of its range must agree with sacreBLEU too, not only a very small one."""
    near = corrupted(references, 0.37, seed=17)
    test = PairedTest([("baseline", weak), ("system", near)], {"bleu": BLEU()}, [references], test_type="bs")
    _, table = test()
    ours = paired_bootstrap(weak, near, references)
    assert ours.p_value == pytest.approx(table["BLEU"][1].p_value, abs=1e-12)
    assert ours.p_value > 0.05
    assert ours.low < 0 < ours.high


def test_a_system_is_not_better_than_itself(references, weak):
    comparison = paired_bootstrap(weak, weak, references, resamples=101)
    assert (comparison.difference, comparison.low, comparison.high, comparison.p_value) == (0, 0, 0, 1)


def test_swapping_the_systems_changes_only_the_sign(references, weak, strong):
    there, back = paired_bootstrap(weak, strong, references), paired_bootstrap(strong, weak, references)
    assert there.difference == -back.difference
    assert there.p_value == back.p_value
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))


def test_mistakes_are_told_with_their_numbers():
    with pytest.raises(RegardError, match=r"2 hypotheses but 3 references"):
        score_translations(["a", "b"], ["a", "b", "c"])
    with pytest.raises(RegardError, match="nothing to score"):
        score_translations([], [])
    with pytest.raises(UsageError, match="did you mean bleu"):
        score_translations(["a"], ["a"], metrics=("blue",))
    with pytest.raises(RegardError, match="1 outputs of the system but 2 references"):
        paired_bootstrap(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(RegardError, match="1 hypotheses but 2 references"):
        exact_match(["a"], ["a", "b"])
    with pytest.raises(UsageError, match="-1"):
        score_translations(["a"], ["a"], resamples=-1)
    with pytest.raises(UsageError, match="at least 1"):
        paired_bootstrap(["a"], ["a"], ["a"], resamples=0)


def test_alignment_error_rate_by_hand():
    sure = {(0, 0), (1, 2)}
    possible = {(0, 0), (1, 2), (2, 1), (2, 2)}
    predicted = {(0, 0), (2, 1), (3, 3)}
    # agreed with sure: 1 link; with possible: 2 links; predicted 3, sure 2: 1 - (1 + 2) / (3 + 2)
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(0.4)
    assert alignment_error_rate(predicted, sure, possible - sure) == pytest.approx(0.4)  # sure implies possible
    assert alignment_error_rate(sure, sure, possible) == 0.0
    assert alignment_error_rate(sure | {(2, 1)}, sure, possible) == 0.0  # a possible link costs nothing
    assert alignment_error_rate(set(), sure, possible) == 1.0
    assert alignment_error_rate({(4, 4)}, sure, possible) == 1.0
    assert alignment_error_rate(set(), set(), possible) == 0.0


def test_hard_alignment_by_hand():
    nan = float("nan")
    weights = np.array(
        [
            [0.1, 0.2, 0.7, 0.0, 0.0],
            [nan, 0.1, 0.1, 0.5, 0.3],  # a masked cell is never chosen
            [nan, nan, nan, nan, nan],  # looks nowhere
        ]
    )  # T = 3, S = 5
    assert hard_alignment(weights) == {(2, 0), (3, 1)}


def test_exact_match_is_a_percentage():
    references = ["1998-03-03", "2001-12-31", "1970-01-01"]
    assert exact_match(["1998-03-03", "2001-12-30", "1970-01-01"], references) == pytest.approx(200 / 3)
    assert exact_match(["1998-03-03 ", "x", "y"], references) == 0.0


def test_scores_need_no_torch():
    code = "import sys, regard.evaluate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- what a word is --------------------------------------------------------------------------------------------------

CHINESE = [
    ("I like apples", "我 喜欢 吃 苹果 ， 也 喜欢 吃 香蕉 。".replace(" ", ""), "我喜欢吃苹果,也爱吃香蕉。"),
    ("The weather is fine", "今天天气非常好，我们去公园。", "今天天气很好，我们去公园。"),
    ("A dog runs", "一只狗在雪地里奔跑。", "一条狗在雪地里奔跑。"),
]


def test_each_language_has_the_tokenizer_that_others_score_it_with(monkeypatch: pytest.MonkeyPatch) -> None:
    for code in ("en", "de-AT", "fi", "ru_RU", None):
        assert bleu_tokenizer("auto", code) == Tokenizing("13a")
    for code in ("zh", "zh-CN", "ZH_Hant", "zho_Hans", "cmn", "yue"):
        assert bleu_tokenizer("auto", code).name == "zh"
    for code in ("th", "lo", "km", "khm_Khmr", "my", "bo", "dz"):
        assert bleu_tokenizer("auto", code).name == "char" and f"is {code};" in bleu_tokenizer("auto", code).note
    here = {"13a", "zh", "char"}
    monkeypatch.setattr(translation, "_installed", lambda name: name in here)
    for code, name, extra in (("ja", "ja-mecab", "ja"), ("ko-KR", "ko-mecab", "ko")):
        without = bleu_tokenizer("auto", code)
        assert without.name == "char" and f"{name} is not installed (pip install 'sacrebleu[{extra}]')" in without.note
        with pytest.raises(UsageError, match=f"{name} is not installed"):
            bleu_tokenizer(name, code)
        here.add(name)
        assert bleu_tokenizer("auto", code).name == name == bleu_tokenizer(name).name
    assert bleu_tokenizer("13a", "zh") == Tokenizing("13a")
    with pytest.raises(UsageError, match="no tokenizer mecab; BLEU has 13a, char"):
        bleu_tokenizer("mecab")


@pytest.mark.parametrize(
    ("references", "name"),
    [
        (["我喜欢吃苹果", "Tom 吃香蕉"], "zh"),
        (["りんごが好きです", "日本語の文"], "ja-mecab"),
        (["ฉันชอบกินแอปเปิ้ล"], "char"),
        (["ខ្ញុំចូលចិត្តផ្លែប៉ោម"], "char"),
        (["the word 苹果 means apple"], "13a"),
        (["나는 사과를 좋아한다"], "13a"),  # has spaces
        (["1998-03-03"], "13a"),
        ([], "13a"),
    ],
)
def test_where_no_language_is_named_the_script_decides(
    references: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation, "_installed", lambda name: True)
    found = bleu_tokenizer("auto", None, references)
    assert found.name == name and bool(found.note) == (name != "13a")
    assert bleu_tokenizer("auto", "en", references).name == "13a"


@pytest.mark.parametrize("tokenize", ["13a", "zh", "char", "intl", "none"])
def test_every_score_of_chinese_is_sacrebleus(tokenize: str) -> None:
    _, references, outputs = (list(column) for column in zip(*CHINESE, strict=True))
    oracle = BLEU(tokenize=tokenize)
    wanted = oracle.corpus_score(outputs, [references]).score
    found = score_translations(outputs, references, tokenize=tokenize, metrics=("bleu",), resamples=0)["bleu"]
    assert found.value == pytest.approx(wanted) and found.signature == str(oracle.get_signature())
    assert f"tok:{tokenize}" in found.signature and (wanted > 40) == (tokenize in ("zh", "char"))
    bucket = Bucket(1, 3, 2.0, (0, 2))
    part = oracle.corpus_score([outputs[0], outputs[2]], [[references[0], references[2]]]).score
    assert score_bucket(bucket, outputs, references, tokenize=tokenize, resamples=0).value == pytest.approx(part)
    compared = paired_bootstrap(outputs, references, references, tokenize=tokenize, resamples=7)
    same = oracle.corpus_score(references, [references]).score
    assert (compared.baseline, compared.system) == (pytest.approx(wanted), pytest.approx(same))


def test_validation_eval_and_compare_count_chinese_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """BLEU once always cut words at spaces: good Chinese scored 0."""
    sources, references, outputs = (list(column) for column in zip(*CHINESE, strict=True))
    pairs = list(zip(sources, references, strict=True))
    config = run_config("translate", {"tokens": {"kind": "character"}, "preset": "demo"})
    tokenizers = TokenizerPair.train(sources, references, config.tokens)
    sizes = (tokenizers.source.size, tokenizers.target.size)
    bundle = BundleConfig(languages=("en", "zh"), tokens=config.tokens, vocabulary=sizes, model=config.model)
    model = build_model(config.model, *sizes)
    known = dict(zip(sources, outputs, strict=True))

    def good(self: Translator, texts: list[str], **options: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(text=known[text]) for text in texts]

    monkeypatch.setattr(Translator, "translate", good)
    wanted = {name: BLEU(tokenize=name).corpus_score(outputs, [references]).score for name in ("zh", "char")}
    wanted["13a"] = 0.0
    for name in ("auto", "13a", "char"):
        said = bundle.model_copy(update={"bleu_tokenizer": name})
        save_bundle(tmp_path / name, Bundle(said, model, tokenizers, {}))
        right = wanted["zh" if name == "auto" else name]
        assert validation(said, tokenizers, pairs, config)(model).metrics["bleu"] == pytest.approx(right)
        assert evaluate(Translator.load(tmp_path / name), pairs).scores["bleu"].value == pytest.approx(right)
    test = TestSet(("test.tsv",), tuple(pairs), join=())
    report = compare({"one": tmp_path / "auto", "other": tmp_path / "13a"}, test)
    for entry in report.entries:
        assert entry.bleu.value == pytest.approx(wanted["zh"]) and "tok:zh" in entry.bleu.signature
        assert entry.by_length[0].value == pytest.approx(wanted["zh"])
    assert report.entries[1].against_first is not None
    assert report.entries[1].against_first.baseline == pytest.approx(wanted["zh"])
    assert any("BLEU counts words by zh: the target language is zh" in note for note in report.notes)
    (tmp_path / "test.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    words = ["eval", str(tmp_path / "auto"), "--on", str(tmp_path / "test.tsv"), "--device", "cpu"]
    assert main.run([*words, "--tokenize", "char", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["bleu"]["value"] == pytest.approx(wanted["char"])
    assert main.run(words) == 0
    assert "tok:zh" in (shown := capsys.readouterr()).out and "the target language is zh" in shown.err
    assert main.run([*words, "--tokenize", "mecab"]) == 2


def test_validation_of_lower_cased_tokens_ignores_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that only writes lower case once lost points at every validation for the capitals of the references."""
    config = run_config(
        "translate",
        {"tokens": {"kind": "character", "lowercase": True}, "validate": {"sentences": 2}, "preset": "demo"},
    )
    pairs = [("Ein Hund", "A Dog Runs In The Snow"), ("Zwei Hunde", "Two Dogs Run In The Snow")]
    tokenizers = TokenizerPair.train(*map(list, zip(*pairs, strict=True)), config.tokens)
    sizes = (tokenizers.source.size, tokenizers.target.size)
    bundle = BundleConfig(tokens=config.tokens, vocabulary=sizes, model=config.model)

    def right(self: Translator, texts: list[str], **options: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(text=dict(pairs)[text].lower()) for text in texts]

    monkeypatch.setattr(Translator, "translate", right)
    found = validation(bundle, tokenizers, pairs, config)(build_model(config.model, *sizes))
    assert found.metrics["bleu"] == pytest.approx(100)
