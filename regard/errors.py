"""Errors that a person can act on: each message says what is wrong and what to type instead."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RegardError(ValueError):
    """The work failed for a reason the person can mend. The command line prints it in one line and exits 1."""

    exit_code = 1


class ModelError(RegardError):
    """The model fails whatever it is asked, as one whose weights are no numbers: going on with other inputs is no use."""


class UsageError(RegardError):
    """The request itself is wrong (unknown name, contradictory options). The command line exits 2."""

    exit_code = 2


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: '; did you mean X?', or the list of what there is."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there is {', '.join(known)}" if known else ""
