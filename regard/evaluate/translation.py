"""BLEU (Papineni et al. 2002), chrF (Popović 2015) and TER (Snover et al. 2006) of a corpus, as sacreBLEU defines them.

Every score carries sacreBLEU's signature (Post 2018, "A call for clarity in reporting BLEU scores"), which says how it
was computed, and a 95% confidence interval from bootstrap resampling (Koehn 2004).

BLEU counts words, and what a word is depends on the language: `bleu_tokenizer` chooses the one of sacreBLEU's tokenizers
that others report scores of that language with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from regard.errors import UsageError, nearest
from regard.evaluate.bootstrap import interval, resampled_scores, score_of, sentence_counts
from regard.evaluate.pairs import check_pairs

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
            raise UsageError(f"no tokenizer {asked}; BLEU has {', '.join(TOKENIZERS)}, or auto: by the target language")
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
class Score:
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
) -> dict[str, Score]:
    """Score detokenised output against one reference a sentence. `resamples=0` leaves the interval out.

    `lowercase` is sacreBLEU's `-lc` (the signature then says case:lc), `tokenize` how BLEU cuts words. TER is lower-cased
    in any case, by sacreBLEU's default, so that the number is the one others report.
    """
    check_pairs(hypotheses, references)
    if resamples < 0:
        raise UsageError(f"resamples is {resamples}; give 0 for no interval, or about 1000")
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
    raise UsageError(f"no metric {name}{nearest(name, METRICS)}")


def _score(
    name: str, metric: Metric, hypotheses: Sequence[str], references: Sequence[str], resamples: int, seed: int
) -> Score:
    counts = sentence_counts(metric, hypotheses, references)
    value = low = high = score_of(metric, counts.sum(axis=0))
    if resamples:
        metric.n_bootstrap, metric.seed = resamples, str(seed)  # for the signature
        low, high = interval(resampled_scores(metric, [counts], resamples, seed)[0])
    return Score(METRICS[name], value, low, high, str(metric.get_signature()))
