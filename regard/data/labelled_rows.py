"""Labelled texts in arrays: written down as they are read, and mapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from regard.data import held_out
from regard.data.kept.cache import Progress, chunks, no_progress
from regard.data.kept.copies import Arrays, in_order, worker_count
from regard.data.kept.journal import Build, State
from regard.data.kept.ragged import Places, Ragged, TextRows, as_bytes
from regard.data.kept.sequences import TakenTogether
from regard.data.labelled_files import Labelled
from regard.errors import RegardError

TOGETHER = 10_000  # texts read and written at once
BLOCK = 1 << 20  # bytes that these have, about
TEXT, WHOLE = range(2)  # columns of hashes


class GatheredLabelled:
    """Labelled texts that are written down as they are read: texts, numbers of labels, trees, hashes."""

    def __init__(self, build: Build, which: str, prefix: str, numbers: dict[str, int]) -> None:
        self.build, self.which, self.numbers = build, which, numbers  # of labels, as they come
        self.text, self.lengths = build.column(f"{prefix}text", "u1"), build.column(f"{prefix}lengths", "<u4", (2,))
        self.labels = build.column(f"{prefix}labels", "<u4")
        self.tree, self.tree_lengths = (
            build.column(f"{prefix}tree", "<i4"),
            build.column(f"{prefix}tree_lengths", "<u4"),
        )
        self.characters = build.column(f"{prefix}characters", "<u4", kept=False)
        self._hashes = build.column(f"{prefix}hashes", "<u8", (2,), kept=False)  # of TEXT, WHOLE
        state = build.state.get(which, {})
        self.read, self.count = state.get("read", 0), state.get("count", 0)
        self.paired: bool | None = state.get("paired")  # of all texts; None: none has come
        self.trees: bool | None = state.get("trees")
        for name in state.get("names", ()):
            numbers.setdefault(name, len(numbers))

    def take(self, texts: Callable[[], Iterator[Labelled]], size: int = 0, progress: Progress = no_progress) -> None:
        """Write down all texts but those that were before a kill; `size` is how many bytes they have, about.

        `texts` is called by each of the processes that share the work, and each reads all of them.
        """
        skip = self.read

        def parts() -> Iterator[list[Labelled]]:
            return chunks(islice(texts(), skip, None), TOGETHER)

        for part, arrays in in_order(parts, _arrays_of, worker_count(size // BLOCK)):
            self.read += len(part)
            self._write([each for each in part if _is_full(each)], *arrays)
            state = {name: getattr(self, name) for name in ("read", "count", "paired", "trees")}
            self.build.commit({self.which: state | {"names": list(self.numbers)}})
            progress("reading texts", self.read, 0)
        if not self.count:
            raise RegardError(f"no {self.which} text is left of {self.read:,}: all are empty")

    def _write(
        self, texts: list[Labelled], data: np.ndarray, lengths: np.ndarray, characters: np.ndarray, hashes: np.ndarray
    ) -> None:
        self._check(texts)
        self.text.append(data)
        self.lengths.append(lengths)
        self.labels.append(np.array([self.numbers.setdefault(each.label, len(self.numbers)) for each in texts]))
        trees = [each.parents for each in texts if each.parents is not None]
        self.tree.append(np.array([parent for tree in trees for parent in tree], dtype=np.int32))
        self.tree_lengths.append(np.array([len(tree) for tree in trees]))
        self.characters.append(characters)
        self._hashes.append(hashes)
        self.count += len(texts)

    def _check(self, texts: Sequence[Labelled]) -> None:
        """All texts are pairs or none is, and all have a tree or none has."""
        paired = {each.second is not None for each in texts} | ({self.paired} - {None})
        trees = {each.parents is not None for each in texts} | ({self.trees} - {None})
        if len(paired) == 2:
            raise RegardError(
                f"some {self.which} texts are pairs and some are not", "a classifier reads the one or the other"
            )
        if len(trees) == 2:
            raise RegardError(
                f"some {self.which} texts have a tree and some have none", "give heads to all of them, or to none"
            )
        self.paired, self.trees = next(iter(paired), None), next(iter(trees), None)

    def hashes(self) -> np.ndarray:
        """The hashes of each text, and of it with its second text: (N, 2)."""
        return self._hashes.values()

    def notes(self) -> list[str]:
        left_out = self.read - self.count
        return [f"dropped {left_out:,} of {self.read:,} {self.which} texts: empty"] if left_out else []


def _is_full(each: Labelled) -> bool:
    return bool(each.text.strip()) and (each.second is None or bool(each.second.strip()))


def _arrays_of(part: list[Labelled]) -> Arrays:
    """Bytes, lengths in bytes, characters and hashes of the texts that are not empty."""
    texts = [each for each in part if _is_full(each)]
    data, lengths = as_bytes([side for each in texts for side in (each.text, each.second or "")])
    characters = np.array([len(each.text) + len(each.second or "") for each in texts], dtype=np.int64)
    whole = held_out.hashes_of(whole_text(each).strip() for each in texts)
    return (
        data,
        lengths.reshape(-1, 2),
        characters,
        np.stack([held_out.hashes_of(each.text for each in texts), whole], 1),
    )


class LabelledRows(TakenTogether[Labelled]):
    """Labelled texts in arrays that may be mapped; which of them are left out or come last, `Places` says."""

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        about: State,
        prefix: str,
        without: np.ndarray | None = None,
        behind: np.ndarray | None = None,
    ) -> None:
        self.texts = TextRows(arrays[f"{prefix}text"], arrays[f"{prefix}lengths"])
        self.labels, self.names = arrays[f"{prefix}labels"], list(about["names"])
        self.trees = Ragged(arrays[f"{prefix}tree"], arrays[f"{prefix}tree_lengths"])
        self.paired, self.has_trees = bool(about[f"{prefix}paired"]), bool(about[f"{prefix}trees"])
        self.places = Places(len(self.labels), without, behind)

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: np.ndarray) -> list[Labelled]:
        return self.at(self.places.of(rows))

    def at(self, places: np.ndarray) -> list[Labelled]:
        """The texts at these places among all."""
        found = zip(self.texts.at(places), places.tolist(), strict=True)
        return [self._labelled(text, second, place) for (text, second), place in found]

    def _labelled(self, text: str, second: str, place: int) -> Labelled:
        tree = tuple(self.trees[place].tolist()) if self.has_trees else None
        return Labelled(text, self.names[int(self.labels[place])], second if self.paired else None, tree)


def whole_text(each: Labelled) -> str:
    """A text with its second text, by which equal ones are told."""
    return each.text if each.second is None else f"{each.text}\t{each.second}"
