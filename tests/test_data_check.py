"""`regard data check` on made data whose damage is counted by hand."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from regard.check.aligning import stretches
from regard.check.data import Asked, check_data
from regard.check.report import Finding, Report
from regard.check.scan import disagreeing, repeated
from regard.check.texts import CONTROL, DECOMPOSED, EMPTY, HTML, MOJIBAKE, REPLACED, flags_of, script_of, words_of
from regard.cli.data import print_report
from regard.cli.main import run
from regard.errors import RegardError, UsageError

Pair = tuple[str, str]


def sentences(count: int, seed: int = 3) -> list[Pair]:
    """Different sentences of two made languages, word for word; none is short."""
    draw = random.Random(seed)
    lexicon = [("".join(draw.choices("bdgmnaeio", k=6)), "".join(draw.choices("kprstüöuzy", k=6))) for _ in range(97)]
    found: dict[Pair, None] = {}
    while len(found) < count:
        words = draw.choices(lexicon, k=draw.randint(6, 9))
        found[" ".join(word for word, _ in words), " ".join(word for _, word in words)] = None
    return list(found)


def tsv(path: Path, rows: list[tuple[str, ...]]) -> str:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def found(report: Report, kind: str, of: str = "train") -> Finding:
    return next(finding for finding in report.findings if (finding.kind, finding.set) == (kind, of))


def kinds(report: Report) -> set[str]:
    return {finding.kind for finding in report.findings}


# --- Single texts


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("fÃ¼r alle", MOJIBAKE),
        ("itâ€™s", MOJIBAKE),
        ("ÐŸÑ€Ð¸Ð²ÐµÑ‚", MOJIBAKE),
        ("f\ufffdr", REPLACED),
        ("a\x00b", CONTROL),
        ("a\x85b", CONTROL),
        ("a <br /> b", HTML),
        ("a &amp; b", HTML),
        ("it #39;s", HTML),
        ("fu\u0308r", DECOMPOSED),
        ("  ", EMPTY),
    ],
)
def test_what_is_wrong_with_a_text(text: str, flag: int) -> None:
    assert flags_of(text, len(words_of(text)), 100) == flag


@pytest.mark.parametrize(
    "text", ["für São João, Ångström: «Ñandú» – “É”", "SÃO PAULO", "x < y; a & b", "<unk> R&D", "Привет"]
)
def test_nothing_is_wrong_with_these(text: str) -> None:
    assert flags_of(text, len(words_of(text)), 100) == 0


def test_scripts_and_words_of_many_languages() -> None:
    texts = ["two dogs", "für", "два", "δύο", "犬が二匹", "두 마리", "दो कुत्ते", "12.3"]
    assert [script_of(text) for text in texts] == [0, 0, 2, 1, 10, 10, 6, 11]
    assert words_of("Two dogs, 2!") == ["two", "dogs", "2"]
    assert words_of("犬が2匹") == ["犬", "が", "2", "匹"] and words_of("दो कुत्ते") == ["दो", "कुत्ते"]


def test_equal_rows_are_told_by_their_hashes() -> None:
    keys = np.array([5, 7, 5, 5, 7, 9], dtype=np.uint64)
    assert repeated(keys).tolist() == [2, 3, 4]
    assert repeated(keys, np.array([0, 1, 1, 1, 0, 1], dtype=bool)).tolist() == [3]
    values = np.array([1, 2, 1, 3, 2, 4], dtype=np.uint64)
    assert disagreeing(keys, values, np.ones(6, dtype=bool)).tolist() == [0, 2, 3]


def test_a_stretch_is_where_most_vote() -> None:
    votes = np.array([0, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1], dtype=bool)
    assert stretches(votes) == [(4, 10)]
    assert stretches(np.ones(5, dtype=bool)) == [(0, 5)] and stretches(np.zeros(5, dtype=bool)) == []


# --- Pairs


def test_clean_pairs_are_fit(tmp_path: Path) -> None:
    report = check_data([tsv(tmp_path / "pairs.tsv", sentences(700))])
    assert report.task == "translate" and report.severity == "fine" and not report.findings
    assert report.verdict == "fit to train on; nothing stands out"
    size = report.sets[0]
    assert size.examples == 700 and [part.name for part in size.parts] == ["source", "target"]
    words = [len(source.split()) for source, _ in sentences(700)]
    assert (size.parts[0].words, size.parts[0].types) == (sum(words), 97)
    assert size.parts[0].median == np.median(words) and size.parts[0].longest == 9


def test_every_damage_of_pairs_is_found_and_counted(tmp_path: Path) -> None:
    rows: list[Pair] = sentences(800)
    for row in (10, 20, 30):
        rows[row] = (rows[row][1], rows[row][0])  # swapped
    rows[40] = rows[41]  # repeated: row 41 is the second
    rows[50] = (rows[50][0], f"{rows[50][0].upper()}!")  # copied
    rows[60] = ("", rows[60][1])
    rows[70] = (rows[70][0], "два слова и ещё одно слово тут")
    rows[80] = (rows[80][0], f"{rows[80][1]} fÃ¼r")
    rows[90] = (f"{rows[90][0]}\x07", rows[90][1])
    rows[100] = (rows[100][0], f"{rows[100][1]} <br>")
    rows[110] = (rows[110][0], "...")
    rows[120] = (rows[121][0], rows[120][1])  # one source, two targets
    rows[130] = (rows[130][0], " ".join([rows[130][1]] * 6))  # far too long
    rows[140] = (rows[140][0], f"{rows[140][1]} fu\u0308r")
    rows[150], rows[250] = (rows[150][0], rows[250][1]), (rows[250][0], rows[150][1])
    rows[160] = (f"{rows[160][0]} \ufffd", rows[160][1])
    targets = [target for _, target in rows[300:312]]
    for row in range(300, 311):
        rows[row] = (rows[row][0], targets[row - 299])  # the target of the next line
    report = check_data([tsv(tmp_path / "pairs.tsv", rows)])
    assert found(report, "swapped").rows.tolist() == [10, 20, 30]
    assert found(report, "duplicates").rows.tolist() == [41]
    for kind, row in {"copied": 50, "empty": 60, "script": 70, "mojibake": 80, "control": 90, "html": 100,
                      "wordless": 110, "unnormalised": 140, "replaced": 160}.items():  # fmt: skip
        assert found(report, kind).rows.tolist() == [row], kind
    assert found(report, "several-targets").rows.tolist() == [120, 121]
    assert {110, 130} == set(found(report, "length-ratio").rows.tolist())
    assert {150, 250} <= set(found(report, "misaligned").rows.tolist()) <= {120, 150, 250, 300}
    shifted = found(report, "shifted")
    assert set(range(302, 310)) <= set(shifted.rows.tolist()) <= set(range(300, 311)) and shifted.severity == "error"
    assert "the target stands 1 line above its source" in shifted.examples[0].note
    assert found(report, "swapped").examples[0].place.endswith("pairs.tsv:11")  # lines count from 1
    assert report.findings[0].severity == "error" and report.severity == "error"
    assert all(0 < finding.share <= 1 for finding in report.findings)


def test_columns_that_look_alike_say_nothing_of_swapped_sides(tmp_path: Path) -> None:
    rows = [(source, source[::-1]) for source, _ in sentences(400)]
    rows[:200] = [(target, source) for source, target in rows[:200]]
    report = check_data([tsv(tmp_path / "pairs.tsv", rows)])
    assert "swapped" not in kinds(report) and any("look alike" in note for note in report.notes)


def test_a_file_that_slipped_from_its_first_line_on(tmp_path: Path) -> None:
    rows = sentences(500)
    slipped = [(source, rows[number - 1][1]) for number, (source, _) in enumerate(rows)]
    shifted = found(check_data([tsv(tmp_path / "pairs.tsv", slipped)]), "shifted")
    assert shifted.count == 500 and shifted.severity == "error"
    assert shifted.examples[0].note == "the target stands 1 line below its source"


def test_parallel_files_of_different_length(tmp_path: Path) -> None:
    rows = sentences(400)
    (tmp_path / "a.en").write_text("".join(source + "\n" for source, _ in rows))
    del rows[100]  # a line is missing in the other
    with gzip.open(tmp_path / "a.de.gz", "wt", encoding="utf-8") as file:
        file.write("".join(target + "\n" for _, target in rows))
    report = check_data([str(tmp_path / "a.en"), str(tmp_path / "a.de.gz")])
    assert found(report, "unreadable").rows.tolist() == [399]
    assert found(report, "unreadable").examples[0].note == "no line beside it"


def test_leaks_into_validation_and_test(tmp_path: Path) -> None:
    rows = sentences(430)
    train, valid, test = rows[:400], rows[400:410], rows[410:430]
    long = "the seventh word of this long line is the eighth but one of them"
    train.append((long, "x " * 12))
    valid[0] = train[7]
    test[0], test[1] = (train[9][0].upper() + " !", "y y"), (f"{long} again", "z z")
    sets = {name: tsv(tmp_path / f"{name}.tsv", each) for name, each in (("t", train), ("v", valid), ("e", test))}
    report = check_data([sets["t"]], valid=[sets["v"]], test=[sets["e"]])
    assert found(report, "leak", "valid").rows.tolist() == [0] and found(report, "leak", "valid").severity == "error"
    assert found(report, "leak-alike", "test").rows.tolist() == [0]
    assert found(report, "leak-near", "test").rows.tolist() == [1]
    covered = {(each.set, each.part): each for each in report.coverage}
    assert covered["valid", "source"].words == 1.0 and covered["test", "target"].words < 1.0


# --- Labels, plain text, pictures


def labelled(count: int = 40) -> list[tuple[str, str]]:
    return [(f"text number {number} is here", "good" if number % 2 else "bad") for number in range(count)]


def test_labels(tmp_path: Path) -> None:
    rows = [*labelled(), ("text number 3 is here", "bad"), ("text number 3 is here", "good"), ("once", "Good "),
            ("", "bad"), ("lone", "odd")]  # fmt: skip
    valid = [("new", "good"), ("text number 5 is here", "good"), ("newer", "strange")]
    report = check_data([tsv(tmp_path / "a.tsv", rows)], valid=[tsv(tmp_path / "v.tsv", valid)])
    assert report.task == "classify" and dict(report.labels) == {"bad": 22, "good": 21, "Good ": 1, "odd": 1}
    assert found(report, "contradiction").rows.tolist() == [3, 40, 41]
    assert found(report, "duplicates").rows.tolist() == [41]
    assert found(report, "empty").rows.tolist() == [43]
    assert found(report, "label-spelling").severity == "error" and found(report, "label-spelling").count == 2
    assert found(report, "rare-labels").count == 2 and found(report, "imbalance").count == 22
    assert found(report, "leak", "valid").rows.tolist() == [1]
    assert [each.place for each in found(report, "unknown-labels", "valid").examples] == ["strange"]


def test_one_label_is_an_error_and_two_are_fine(tmp_path: Path) -> None:
    path = tsv(tmp_path / "a.tsv", [("text", "label"), *labelled()])
    report = check_data([path])
    assert report.severity == "fine" and dict(report.labels) == {"bad": 20, "good": 20}
    one = tsv(tmp_path / "b.tsv", [("text", "label"), *((text, "same") for text, _ in labelled())])
    assert found(check_data([one]), "one-label").severity == "error"


def test_columns_may_be_named(tmp_path: Path) -> None:
    rows = [{"id": number, "said": text, "mood": label} for number, (text, label) in enumerate(labelled())]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check_data([str(path)], Asked(text="said", label="mood"))
    assert report.task == "classify" and set(report.labels) == {"good", "bad"}
    pairs = tsv(tmp_path / "p.tsv", [(str(number), b, a) for number, (a, b) in enumerate(sentences(200))])
    parts = check_data([pairs], Asked(fields=("3", "2"), languages=("aa", "bb"))).sets[0].parts
    assert [part.name for part in parts] == ["aa", "bb"] and parts[0].types == 97
    csv = tmp_path / "c.csv.gz"
    with gzip.open(csv, "wt") as file:
        file.write('text;label\n"one; two";a\n"three\nfour";b\n')
    assert dict(check_data([str(csv)], Asked("classify")).labels) == {"a": 1, "b": 1}


def test_plain_text(tmp_path: Path) -> None:
    lines = [f"line {number} of some plain text" for number in range(30)]
    text = [*lines, "", "", lines[4], "yes", "yes", "fÃ¼r", ""]
    (tmp_path / "book.txt").write_text("\n".join(text), encoding="utf-8")
    (tmp_path / "valid.txt").write_text(f"{lines[9]}\nnothing of it stands there\n")
    report = check_data([str(tmp_path / "book.txt")], valid=[str(tmp_path / "valid.txt")])
    assert report.task == "generate" and report.sets[0].examples == 36
    assert found(report, "duplicates").rows.tolist() == [32] and found(report, "mojibake").rows.tolist() == [35]
    assert found(report, "leak", "valid").rows.tolist() == [0] and "empty" not in kinds(report)


def test_pictures(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    for name, count in (("cat", 6), ("dog", 7)):
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "valid" / name).mkdir(parents=True)
        for number in range(count):
            pixels = draw.integers(0, 255, (11, 13, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "train" / name / f"{number}.png")
        Image.fromarray(pixels[::-1]).save(tmp_path / "valid" / name / "new.png")
    train, dog = tmp_path / "train", tmp_path / "train" / "dog"
    (dog / "6.png").write_bytes((dog / "5.png").read_bytes()[:90])  # cut short
    (dog / "0.png").write_bytes((dog / "1.png").read_bytes())
    (dog / "2.png").write_bytes((train / "cat" / "3.png").read_bytes())
    (tmp_path / "valid" / "cat" / "old.png").write_bytes((train / "cat" / "4.png").read_bytes())
    report = check_data([str(train)], valid=[str(tmp_path / "valid")], test=[])
    assert report.task == "classify-pictures" and dict(report.labels) == {"dog": 7, "cat": 6}
    assert [each.place for each in found(report, "unreadable").examples] == [str(dog / "6.png")]
    assert found(report, "duplicates").count == 2 and found(report, "contradiction").count == 1
    assert [each.place[-11:] for each in found(report, "leak", "valid").examples] == ["cat/old.png"]
    assert [(part.name, part.longest) for part in report.sets[0].parts] == [("height", 11), ("width", 13)]


def test_captions_and_questions(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((9, 9, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    captions = tmp_path / "captions.jsonl"
    rows = [{"picture": "a.png", "caption": "a ring <br>"}, {"picture": "b.png", "caption": "a ring"},
            {"picture": "none.png", "caption": "a dog"}]  # fmt: skip
    captions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check_data([str(captions)])
    assert report.task == "caption" and kinds(report) == {"html", "unreadable", "left-out"}
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        "".join(json.dumps(row | {"question": "what is it?", "answer": row["picture"]}) + "\n" for row in rows)
    )
    assert check_data([str(questions)]).task == "answer"


# --- Files that are not as they should be


def test_bad_lines_are_findings_and_bad_files_are_errors(tmp_path: Path) -> None:
    rows = ["\t".join(pair).encode() for pair in sentences(40)]
    rows[3], rows[5], rows[7] = b"caf\xe9\tx", b"no tab here", b"a" * 150_000 + b"\tb"
    (tmp_path / "a.tsv").write_bytes(b"\n".join(rows))
    report = check_data([str(tmp_path / "a.tsv")])
    assert found(report, "unreadable").rows.tolist() == [3, 5] and found(report, "endless").rows.tolist() == [7]
    assert [each.note for each in found(report, "unreadable").examples] == [
        "byte 4 (0xe9) is not UTF-8",
        "1 columns where 2 should be",
    ]
    assert max(len(text) for each in found(report, "endless").examples for text in each.texts) < 400


def test_errors_name_the_file_and_what_would_help(tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").write_bytes(b"")
    with pytest.raises(RegardError, match=r"empty\.tsv is empty"):
        check_data([str(tmp_path / "empty.tsv")])
    whole = gzip.compress("".join(f"{a}\t{b}\n" for a, b in sentences(200)).encode())
    (tmp_path / "cut.tsv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RegardError, match="not a whole gzip file"):
        check_data([str(tmp_path / "cut.tsv.gz")])
    (tmp_path / "wide.txt").write_bytes("für alle\nund immer\nwieder\n".encode("utf-16"))
    with pytest.raises(RegardError, match=r"wide.txt, line 1: byte 1 .* is not UTF-8; .*iconv -f utf-16"):
        check_data([str(tmp_path / "wide.txt")])
    (tmp_path / "latin.txt").write_bytes("für\nüber\nund\n".encode("latin1"))
    with pytest.raises(RegardError, match=r"2 of 3 rows cannot be read; line 1: byte 2 \(0xfc\) is not UTF-8"):
        check_data([str(tmp_path / "latin.txt")])
    with pytest.raises(UsageError, match="did you mean translate"):
        check_data(["builtin/dates"], Asked("translat"))
    with pytest.raises(RegardError, match=r"there is no .*nowhere.tsv"):
        check_data([str(tmp_path / "nowhere.tsv")])


# --- The verb


def test_the_verb_exits_as_linters_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean, bad = tsv(tmp_path / "a.tsv", sentences(60)), tsv(tmp_path / "b.tsv", [(b, a) for a, b in sentences(60)])
    assert run(["data", "check", clean]) == 0
    out = capsys.readouterr().out
    assert "60 pairs" in out and out.endswith("✓ fit to train on; nothing stands out\n")
    with open(bad, "a") as file:
        file.write("no tab\n")
    assert run(["data", "check", bad]) == 1
    assert "✗ rows cannot be read: 1 of 61" in capsys.readouterr().out
    assert run(["data", "check", clean, "--json", "--valid", bad]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["severity"] == "error" and [each["name"] for each in told["sets"]] == ["train", "valid"]
    assert run(["data", "check", clean, "--task", "generate", "--source", "1"]) == 2
    assert run(["data", "check", clean, "--languages", "en"]) == 2


@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int, tmp_path: Path) -> None:
    rows = [*sentences(60), *sentences(3), ("<b>" + "long " * 90, "a\x1b[31mb\n".strip())]
    report = check_data([tsv(tmp_path / "pairs.tsv", rows)])
    console = Console(width=width, record=True, file=open("/dev/null", "w"), highlight=False)  # noqa: SIM115
    print_report(report, console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width and "\x1b" not in text


def test_the_check_does_not_import_torch(tmp_path: Path) -> None:
    path = tsv(tmp_path / "pairs.tsv", sentences(60))
    program = (
        f"import sys; from regard.cli.main import run; run(['data', 'check', {path!r}]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith("False\n"), done.stdout + done.stderr
