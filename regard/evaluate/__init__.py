"""Scores of what a model wrote, with their uncertainty. Nothing here knows a model or imports torch."""

from regard.evaluate.alignment import alignment_error_rate, hard_alignment
from regard.evaluate.translation import (
    Comparison,
    CorpusScore,
    bleu_tokenizer,
    exact_match,
    paired_bootstrap,
    score_translations,
)

__all__ = [
    "Comparison",
    "CorpusScore",
    "alignment_error_rate",
    "bleu_tokenizer",
    "exact_match",
    "hard_alignment",
    "paired_bootstrap",
    "score_translations",
]
