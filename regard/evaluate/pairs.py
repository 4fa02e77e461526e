"""The one condition that every score shares: as many outputs as references, and at least one."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import RegardError


def check_pairs(hypotheses: Sequence[str], references: Sequence[str], what: str = "hypotheses") -> None:
    """Refuse to score lists that are not line by line the same text, with both numbers in the message."""
    if len(hypotheses) != len(references):
        raise RegardError(
            f"{len(hypotheses)} {what} but {len(references)} references; give one reference for each, in the same order"
        )
    if not references:
        raise RegardError(f"nothing to score: 0 {what} and 0 references")
