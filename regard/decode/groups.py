"""Which sources are decoded together. No torch here."""

from __future__ import annotations

from collections.abc import Sequence

from regard.decode.config import DecodeConfig


def groups(lengths: Sequence[int], options: DecodeConfig) -> list[list[int]]:
    """Places of the sources, longest first, in groups within `batch_sentences` and `batch_tokens`.

    Sources of like length waste little padding and end at about the same step. A source longer than `batch_tokens`
    stands alone. Give the places to `generate` as its streams.
    """
    found: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        group = found[-1] if found else []
        positions = (len(group) + 1) * lengths[group[0]] if group else 0  # the first is the longest
        if group and len(group) < options.batch_sentences and positions <= options.batch_tokens:
            group.append(place)
        else:
            found.append([place])
    return found
