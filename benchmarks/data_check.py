"""How much of known damage `regard data check` finds, and how much of clean data it calls damaged.

    REGARD_DATA=... python benchmarks/data_check.py --out docs/results/data_check.json
    REGARD_DATA=... python benchmarks/data_check.py --large 1000000 --out docs/results/data_check.json

Into 5,000 pairs of Multi30k (en, de) damage is done to rows that are noted: sides swapped, shuffled, shifted by a line,
copied, in another script, decoded wrongly, repeated. Recall is the share of the damaged rows that the finding of that
kind names, precision the share of the named rows that are damaged in that way. The clean pairs are checked as they are,
and so are all 29,000 with validation and test. Thresholds were chosen on these; `unseen` are 5,000 other pairs, of English and
French, with other damage, that had no part in that. `--large` measures time and memory on so many
pairs, Multi30k again and again with a number behind each. `--tiny` takes sentences of a made language.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.check.pairs import check_pairs
from regard.check.reading import made_rows, pair_rows
from regard.check.report import Report
from regard.files import read_json, write_json

Pair = tuple[str, str]
SHARES = {"swapped": 0.02, "misaligned": 0.02, "shifted": 0.01, "copied": 0.01, "script": 0.005, "mojibake": 0.005,
          "duplicates": 0.01}  # fmt: skip
STRETCH = 10  # lines of each stretch that slips
CYRILLIC = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопкрстуввхуз")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="made sentences, in seconds")
    parser.add_argument("--large", type=int, help="Measure time and memory alone, on so many pairs.")
    options = parser.parse_args(words)
    if options.tiny:
        print(large(made(300), 900))
        print_rows(measured(made(1200)))
        return
    found: dict[str, Any]
    root = Path(os.environ["REGARD_DATA"]) / "multi30k"
    if options.large:
        found = {"large": large(multi30k(root, "de"), options.large)}
        print(found)
        if options.out is not None:
            write_json(options.out, (read_json(options.out) if options.out.exists() else {}) | found)
        return
    pairs = multi30k(root, "de")[: options.pairs]
    others = multi30k(root, "fr")[-options.pairs :]
    found = {"pairs": len(pairs), "damage": measured(pairs)}
    found["unseen"] = measured(others, seed=2)
    print_rows(found["damage"])
    print_rows(found["unseen"])
    for name, clean in (("clean", pairs), ("unseen-clean", others)):
        found[name] = flagged(check_pairs(made_rows(["multi30k"], ("source", "target"), clean)))
    started = time.monotonic()
    paths = {
        name: [root / f"{part}.{code}.gz" for code in ("en", "de")]
        for name, part in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))
    }
    rows = {name: pair_rows(each, ("source", "target"), ("en", "de")) for name, each in paths.items()}
    whole = check_pairs(rows.pop("train"), rows)
    found["whole"] = {"pairs": whole.sets[0].examples, "findings": flagged(whole)}
    print(found["clean"], found["unseen-clean"], found["whole"], f"{time.monotonic() - started:.0f} s")
    if options.out is not None:
        write_json(options.out, found)


def multi30k(root: Path, target: str) -> list[Pair]:
    sides = []
    for code in ("en", target):
        with gzip.open(root / f"train.{code}.gz", "rt", encoding="utf-8") as file:
            sides.append([line.rstrip("\n") for line in file])
    return list(zip(*sides, strict=True))


def made(count: int) -> list[Pair]:
    """Sentences of 6 to 10 words of a made language, and word for word of another."""
    draw = random.Random(3)
    lexicon = [("".join(draw.choices("bdgmnaeio", k=6)), "".join(draw.choices("kprstüöuzy", k=6))) for _ in range(150)]
    pairs = []
    for _ in range(count):
        words = draw.choices(lexicon, k=draw.randint(6, 10))
        pairs.append((" ".join(word for word, _ in words) + ".", " ".join(word for _, word in words) + "."))
    return pairs


def damaged(pairs: Sequence[Pair], seed: int = 1) -> tuple[list[Pair], dict[str, set[int]]]:
    """The pairs with damage, and which rows have which; no row has two kinds."""
    draw, rows, found = random.Random(seed), list(pairs), dict[str, set[int]]()
    free = set(range(1, len(rows) - 1))
    stretches = max(1, round(SHARES["shifted"] * len(rows) / STRETCH))
    found["shifted"], ends = set(), set[int]()
    for part in range(stretches):  # one in each part of the file, so that they do not meet
        start = draw.randrange(part * len(rows) // stretches + 1, (part + 1) * len(rows) // stretches - STRETCH - 2)
        targets = [rows[row][1] for row in range(start, start + STRETCH)]
        for row, target in zip(range(start, start + STRETCH), targets[1:] + targets[:1], strict=True):
            rows[row] = (rows[row][0], target)
        found["shifted"] |= set(range(start + 1, start + STRETCH))  # each finds its target a line above
        ends.add(start)  # the target of the first went to the last, far away
        free -= set(range(start - 1, start + STRETCH + 1))
    for kind, share in SHARES.items():
        if kind != "shifted":
            found[kind] = set(draw.sample(sorted(free), max(4, round(share * len(rows)))))
            free -= found[kind]
    mixed = sorted(found["misaligned"])
    far = {row: rows[mixed[(place + len(mixed) // 2) % len(mixed)]][1] for place, row in enumerate(mixed)}
    clean = sorted(free)
    for kind, of_kind in found.items():
        for row in sorted(of_kind) if kind != "shifted" else ():
            rows[row] = _damage(kind, rows[row], far.get(row, ""), rows[draw.choice(clean)])
    found["misaligned"] |= ends
    found["duplicates"] = _later_copies(rows, found["duplicates"])
    return rows, found


def _damage(kind: str, pair: Pair, far: str, other: Pair) -> Pair:
    source, target = pair
    return {
        "swapped": (target, source),
        "misaligned": (source, far),
        "copied": (source, source.upper()),
        "script": (source, target.lower().translate(CYRILLIC)),
        "mojibake": (source, f"{target} für".encode().decode("cp1252", "replace")),
        "duplicates": other,
    }[kind]


def _later_copies(rows: Sequence[Pair], written: set[int]) -> set[int]:
    """Which row of two equal ones counts as the copy: the later one."""
    first: dict[Pair, int] = {}
    wanted = {rows[row] for row in written}
    return {row for row, pair in enumerate(rows) if first.setdefault(pair, row) != row and pair in wanted}


def measured(pairs: Sequence[Pair], seed: int = 1) -> dict[str, dict[str, float]]:
    """Recall and precision of each kind of damage."""
    rows, known = damaged(pairs, seed)
    report = check_pairs(made_rows(["damaged"], ("source", "target"), rows))
    found = {}
    for kind, damage in known.items():
        finding = report.find(kind)
        named = set() if finding is None else set(finding.rows.tolist())
        right = len(named & damage)
        found[kind] = {
            "damaged": len(damage),
            "found": len(named),
            "recall": right / len(damage),
            "precision": right / len(named) if named else 0.0,
        }
    return found


def large(pairs: Sequence[Pair], count: int) -> dict[str, float]:
    """Seconds of one core, and the most memory, for a file of so many pairs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.tsv"
        with open(path, "w", encoding="utf-8") as file:
            for number in range(count):
                source, target = pairs[number % len(pairs)]
                file.write(f"{source} {number // len(pairs)}\t{target} {number // len(pairs)}\n")
        started = time.process_time()
        report = check_pairs(pair_rows([path], ("source", "target"), None))
        seconds = time.process_time() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB
    return {"pairs": report.sets[0].examples, "seconds": round(seconds, 1), "MiB": round(memory)}


def flagged(report: Report) -> list[dict[str, Any]]:
    """How many rows each finding names, and how bad it is said to be."""
    return [
        {"kind": each.kind, "set": each.set, "severity": each.severity, "count": each.count} for each in report.findings
    ]


def print_rows(rows: dict[str, dict[str, float]]) -> None:
    for kind, row in rows.items():
        told = f"{row['damaged']:4.0f} damaged, {row['found']:4.0f} found"
        print(f"{kind:12} {told}, recall {row['recall']:.2f}, precision {row['precision']:.2f}", flush=True)


if __name__ == "__main__":
    main()
