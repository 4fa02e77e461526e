"""Quality of translations: BLEU, chrF and TER by sacreBLEU with confidence intervals, exact match, and paired significance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from regard.errors import RegardError, UsageError, nearest
from regard.evaluate.bootstrap import interval, resampled_scores, score_of, sentence_counts


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The percentage of hypotheses equal to their reference, character by character (case and spaces count)."""
    check_pairs(hypotheses, references)
    right = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return 100.0 * right / len(references)


def check_pairs(hypotheses: Sequence[str], references: Sequence[str], what: str = "hypotheses") -> None:
    """Refuse to score lists that are not line by line the same text, with both numbers in the message."""
    if len(hypotheses) != len(references):
        raise RegardError(
            f"{len(hypotheses)} {what} but {len(references)} references",
            "give one reference for each, in the same order",
        )
    if not references:
        raise RegardError(f"nothing to score: 0 {what} and 0 references")


METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}  # what is asked for -> what sacreBLEU prints

TOKENIZERS = ("13a", "char", "intl", "zh", "ja-mecab", "ko-mecab", "none")  # those that need nothing from the network
EXTRA = {"ja-mecab": "ja", "ko-mecab": "ko"}  # what of sacreBLEU must be installed for it

# Languages by their codes (ISO 639-1, -2 and -3): English and most others have spaces between words.
OF_LANGUAGE = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue", "wuu", "hak", "nan", "lzh"), "zh"),
    **dict.fromkeys(("ja", "jpn", "jp"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
    **dict.fromkeys(("th", "tha", "nod", "lo", "lao", "km", "khm", "my", "mya", "bur", "shn", "mnw"), "char"),
    **dict.fromkeys(("bo", "bod", "tib", "dz", "dzo"), "char"),
}
# Scripts without spaces between words, for texts whose language nobody named; the first that is seen decides.
OF_SCRIPT = {
    "ja-mecab": re.compile("[\u3040-\u30ff]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"),
    "char": re.compile("[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff]"),
}


@dataclass(frozen=True)
class Tokenizing:
    """How BLEU cuts texts into words: sacreBLEU's name of it, and what a person should be told about the choice."""

    name: str
    note: str = ""


def bleu_tokenizer(asked: str = "auto", language: str | None = None, references: Sequence[str] = ()) -> Tokenizing:
    """The tokenizer that was asked for; with "auto" that of the target language, or of the references' script.

    Japanese and Korean need MeCab; where it is not installed, characters are counted, and the note says so.
    """
    if asked != "auto":
        if asked not in TOKENIZERS:
            raise UsageError(
                f"no tokenizer {asked}", f"BLEU has {', '.join(TOKENIZERS)}, or auto: by the target language"
            )
        if not _installed(asked):
            raise UsageError(f"{asked} is not installed: pip install 'sacrebleu[{EXTRA[asked]}]', or take char")
        return Tokenizing(asked)
    code = re.split(r"[-_]", language or "")[0].lower()
    name, why = OF_LANGUAGE.get(code, "13a"), f"the target language is {language}"
    if not code:
        name, why = _of_script(references), "no target language is set, and by their script the references"
        why += " have no spaces between words"
    if name == "13a":
        return Tokenizing(name)
    if not _installed(name):
        why += f", and {name} is not installed (pip install 'sacrebleu[{EXTRA[name]}]')"
        name = "char"
    compared = "; scores of other tokenizers cannot be compared with it"
    return Tokenizing(name, f"BLEU counts {'characters' if name == 'char' else 'words'} by {name}: {why}{compared}")


def _of_script(references: Sequence[str]) -> str:
    """By the script of most letters, where it is one that has no spaces between words."""
    text = "".join(references[:1000])
    found = {name: len(script.findall(text)) for name, script in OF_SCRIPT.items()}
    if 2 * sum(found.values()) <= sum(character.isalpha() for character in text):
        return "13a"
    if found["ja-mecab"] > found["zh"] / 20:  # Japanese has Chinese characters too
        found["ja-mecab"] += found["zh"]
    return max(found, key=lambda name: found[name]) if any(found.values()) else "13a"


def _installed(name: str) -> bool:
    """Whether sacreBLEU can make this tokenizer here."""
    try:
        BLEU(tokenize=name)
    except (ImportError, RuntimeError, AssertionError):  # no MeCab, or another dictionary than the one that counts
        return False
    return True


@dataclass(frozen=True)
class CorpusScore:
    """A corpus score on sacreBLEU's scale: 0 to 100, more is better, but TER counts edits and less is better."""

    name: str  # "BLEU", "chrF2", "TER"
    value: float
    low: float  # the 95% confidence interval; both ends are the value itself when nothing was resampled
    high: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.1f} [{self.low:.1f}, {self.high:.1f}]"


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    resamples: int = 1000,
    seed: int = 12345,
) -> dict[str, CorpusScore]:
    """Score detokenised output against one reference a sentence. `resamples=0` leaves the interval out.

    `lowercase` is sacreBLEU's `-lc` (the signature then says case:lc), `tokenize` how BLEU cuts words. TER is lower-cased
    in any case, by sacreBLEU's default, so that the number is the one others report.
    """
    check_pairs(hypotheses, references)
    if resamples < 0:
        raise UsageError(f"resamples is {resamples}", "give 0 for no interval, or about 1000")
    made = {name: make_metric(name, lowercase, tokenize) for name in metrics}
    return {name: _score(name, metric, hypotheses, references, resamples, seed) for name, metric in made.items()}


def make_metric(name: str, lowercase: bool, tokenize: str = "13a") -> Metric:
    """sacreBLEU's metric of that name."""
    if name == "bleu":
        return BLEU(lowercase=lowercase, tokenize=bleu_tokenizer(tokenize).name)
    if name == "chrf":
        return CHRF(lowercase=lowercase)
    if name == "ter":
        return TER()
    raise UsageError(f"no metric {name}", nearest(name, METRICS))


def _score(
    name: str, metric: Metric, hypotheses: Sequence[str], references: Sequence[str], resamples: int, seed: int
) -> CorpusScore:
    counts = sentence_counts(metric, hypotheses, references)
    value = low = high = score_of(metric, counts.sum(axis=0))
    if resamples:
        metric.n_bootstrap, metric.seed = resamples, str(seed)  # for the signature
        low, high = interval(resampled_scores(metric, [counts], resamples, seed)[0])
    return CorpusScore(METRICS[name], value, low, high, str(metric.get_signature()))


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same test set. A small p-value says the difference is unlikely to be luck of the draw."""

    baseline: float
    system: float
    difference: float  # system - baseline
    p_value: float
    low: float  # the 95% confidence interval of the difference
    high: float


def paired_bootstrap(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    metric: str = "bleu",
    lowercase: bool = False,
    tokenize: str = "13a",
    resamples: int = 1000,
    seed: int = 12345,
) -> Comparison:
    """Score both systems on the same resampled test sets, and count how often chance alone does as much."""
    check_pairs(baseline, references, "outputs of the baseline")
    check_pairs(system, references, "outputs of the system")
    if resamples < 1:
        raise UsageError(f"resamples is {resamples}", "a comparison needs at least 1, and about 1000 to mean something")
    scorer = make_metric(metric, lowercase, tokenize)
    tables = [sentence_counts(scorer, outputs, references) for outputs in (baseline, system)]
    first, second = (score_of(scorer, table.sum(axis=0)) for table in tables)
    scores = resampled_scores(scorer, tables, resamples, seed)  # (2, resamples)
    differences = scores[1] - scores[0]
    low, high = interval(differences)
    return Comparison(first, second, second - first, _p_value(differences, second - first), low, high)


def _p_value(differences: np.ndarray, observed: float) -> float:
    """How often a resampled difference, moved to have mean zero, exceeds the observed one; both without their sign.

    sacreBLEU's formula (from Moses and MultEval), with its +1 for the observed sample. One case is ours: systems that
    never differ get 1, where the formula's strict comparison would call them significantly different.
    """
    sizes = np.abs(differences)
    if not sizes.any():
        return 1.0
    as_large = int((sizes - sizes.mean() > abs(observed)).sum())
    return (as_large + 1) / (len(sizes) + 1)
