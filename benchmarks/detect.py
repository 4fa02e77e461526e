"""How often the language of a text is told right, by `/detect` of `regard serve` and by its classifier alone.

    python benchmarks/detect.py sentences.tsv              a text and its language a line, with a tab between
    python benchmarks/detect.py sentences.tsv --among      only languages of the file can be meant, as where models are of these

Percent, with a 95% interval (Wilson), and the most frequent mistakes.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import regard
from regard.studio.detecting import language_shares
from regard.tasks.classify.predictor import TextClassifier

TINY = [("Deutschland", "de"), ("a man in a blue shirt is standing on a ladder", "en")]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("-m", "--model", default="names")
    parser.add_argument("--among", action="store_true", help="choose among the languages of the file")
    parser.add_argument("--tiny", action="store_true", help="two texts")
    options = parser.parse_args(words)
    if options.file is None and not options.tiny:
        parser.error("name a file, or --tiny")
    rows = TINY if options.tiny else read(options.file)
    classifier = regard.load(options.model, task="classify")
    assert isinstance(classifier, TextClassifier)
    known = {language for _, language in rows} if options.among else set(classifier.config.labels)
    alone = [best(dict(each.probabilities), known) for each in classifier.classify([text for text, _ in rows])]
    voted = [best(language_shares(classifier, text), known) for text, _ in rows]
    for name, found in (("the classifier alone", alone), ("/detect", voted)):
        tell(name, found, [language for _, language in rows])


def read(file: Path) -> list[tuple[str, str]]:
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = [tuple(line.rsplit("\t", 1)) for line in lines if line.strip()]
    if any(len(row) != 2 for row in rows):
        sys.exit(f"{file}: each line has a text, a tab and its language")
    return [(text, language) for text, language in rows]


def best(shares: dict[str, float], known: set[str]) -> str:
    return max((label for label in shares if label in known), key=shares.__getitem__)


def tell(name: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    right, count, z = sum(map(str.__eq__, found, wanted)), len(wanted), 1.96
    middle, width = right + z * z / 2, z * math.sqrt(right * (count - right) / count + z * z / 4)
    low, high = ((middle + side * width) / (count + z * z) for side in (-1, 1))
    print(f"{name}: {right / count:.1%} of {count:,} ({low:.1%} to {high:.1%})")
    wrong = Counter((own, guess) for own, guess in zip(wanted, found, strict=True) if own != guess)
    for (own, guess), many in wrong.most_common(3):
        print(f"    {own} taken for {guess}: {many}")


if __name__ == "__main__":
    main()
