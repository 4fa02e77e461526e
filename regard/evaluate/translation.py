"""BLEU (Papineni et al. 2002), chrF (Popović 2015) and TER (Snover et al. 2006) of a corpus, as sacreBLEU defines them.

Every score carries sacreBLEU's signature (Post 2018, "A call for clarity in reporting BLEU scores"), which says how it
was computed, and a 95% confidence interval from bootstrap resampling (Koehn 2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from regard.errors import UsageError, nearest
from regard.evaluate.bootstrap import interval, resampled_scores, score_of, sentence_counts
from regard.evaluate.pairs import check_pairs

METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}  # what is asked for -> what sacreBLEU prints


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
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    resamples: int = 1000,
    seed: int = 12345,
) -> dict[str, Score]:
    """Score detokenised output against one reference a sentence. `resamples=0` leaves the interval out.

    `lowercase` is sacreBLEU's `-lc` (the signature then says case:lc). TER is lower-cased in any case, by sacreBLEU's
    default, so that the number is the one others report.
    """
    check_pairs(hypotheses, references)
    if resamples < 0:
        raise UsageError(f"resamples is {resamples}; give 0 for no interval, or about 1000")
    return {name: _score(name, lowercase, hypotheses, references, resamples, seed) for name in metrics}


def make_metric(name: str, lowercase: bool) -> Metric:
    """sacreBLEU's metric of that name."""
    if name == "bleu":
        return BLEU(lowercase=lowercase)
    if name == "chrf":
        return CHRF(lowercase=lowercase)
    if name == "ter":
        return TER()
    raise UsageError(f"no metric {name}{nearest(name, METRICS)}")


def _score(
    name: str, lowercase: bool, hypotheses: Sequence[str], references: Sequence[str], resamples: int, seed: int
) -> Score:
    metric = make_metric(name, lowercase)
    counts = sentence_counts(metric, hypotheses, references)
    value = low = high = score_of(metric, counts.sum(axis=0))
    if resamples:
        metric.n_bootstrap, metric.seed = resamples, str(seed)  # for the signature
        low, high = interval(resampled_scores(metric, [counts], resamples, seed)[0])
    return Score(METRICS[name], value, low, high, str(metric.get_signature()))
