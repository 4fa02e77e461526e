"""Translation memories, archives, folders and Parquet as sources of pairs, and what of them is refused, in which words."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from regard.check.data import Asked, check_data
from regard.data import archives
from regard.data.config import PairsConfig
from regard.data.lines import LONGEST_LINE, opened
from regard.data.pairs import load_pairs, read_pairs
from regard.data.tmx import read_units
from regard.errors import RegardError, UsageError

EN_DE = ("en", "de")
PAIRS = [("a man", "ein Mann"), ("two dogs", "zwei Hunde"), ("the red house", "das rote Haus")]


def tmx(*units: str, head: str = "") -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}<tmx version="1.4"><header/>\n<body>{"".join(units)}</body></tmx>\n'


def unit(**texts: str) -> str:
    sides = "".join(f'<tuv xml:lang="{tag.replace("__", "-")}"><seg>{text}</seg></tuv>' for tag, text in texts.items())
    return f"<tu>{sides}</tu>\n"


def write(folder: Path, name: str, content: str | bytes) -> str:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return str(folder / name)


def zipped(folder: Path, name: str = "a.zip", /, **members: str | bytes) -> str:
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as file:
        for member, content in members.items():
            file.writestr(member, content)
    return str(folder / name)


def refusal(*names: str, languages: tuple[str, str] | None = EN_DE) -> str:
    with pytest.raises(RegardError) as caught:
        read_pairs(names, languages=languages)
    return str(caught.value)


# -- translation memories ----------------------------------------------------------------------------------------------


def test_a_memory_by_hand(tmp_path: Path) -> None:
    """A region is passed over, of several the exact code is taken, and a unit without a side is counted."""
    file = write(
        tmp_path,
        "m.tmx",
        tmx(
            unit(en__GB="a man", fr="un homme", de="ein Mann"),
            unit(DE_at="zwei Hunde", EN_us="two dogs"),
            unit(en="one", fr="un"),
            unit(en__US="the red home", en="the red house", de="das rote Haus"),
        ),
    )
    notes: list[str] = []
    assert read_pairs([file], languages=EN_DE, notes=notes) == PAIRS
    assert notes == [f"{file}: 1 of 4 units lack en or de, and are left out"]
    assert read_pairs([file], languages=("fr", "en-gb")) == [("un homme", "a man")]
    assert [each.line for each in read_units(Path(file))] == [3, 4, 5, 6]


def test_inline_codes_go_and_highlighted_text_stays(tmp_path: Path) -> None:
    """TMX 1.4b: bpt, ept, it, ph and ut hold codes of another format, sub a text of its own; hi only marks text."""
    seg = (
        'A <bpt i="1">&lt;b&gt;</bpt>red<ept i="1">&lt;/b&gt;</ept>\n  <hi type="x">big <hi>old</hi></hi> house'
        '<ph>{fn <sub>a footnote<bpt i="2"/></sub>}</ph>, <it pos="begin">\\i</it>here &amp; <![CDATA[<there>]]><ut>x</ut>.'
    )
    file = write(tmp_path, "m.tmx", tmx(unit(en=seg, de="x")))
    assert read_pairs([file], languages=EN_DE) == [("A red big old house, here & <there>.", "x")]


def test_a_memory_of_two_languages_needs_no_more(tmp_path: Path) -> None:
    data = tmx(*(unit(en=source, de=target) for source, target in PAIRS)).replace("UTF-8", "UTF-16").encode("utf-16")
    file, notes = write(tmp_path, "m.tmx.gz", gzip.compress(data)), list[str]()
    assert read_pairs([file], notes=notes) == PAIRS
    assert notes == [f"{file}: source is en, target is de (its only two; the other way: languages='de,en')"]
    three = write(tmp_path, "n.tmx", tmx(unit(en="a", de="b", fr="c")))
    assert refusal(three, languages=None) == (
        f"{three}: from which language into which? there is en, de, fr; say languages='en,de'"
    )
    assert refusal(three, languages=("en", "cs")) == (
        f"{three}: no unit has en and cs; the languages of its 1 units are en (1), de (1), fr (1)"
    )


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 9))
HOSTILE = {
    "billion laughs": tmx(unit(en="&l8;", de="x"), head=f'<!DOCTYPE tmx [<!ENTITY l0 "lol">{LAUGHS}]>'),
    "quadratic blowup": tmx(unit(en="&a;" * 1000, de="x"), head=f'<!DOCTYPE tmx [<!ENTITY a "{"a" * 100_000}">]>'),
    "external entity": tmx(unit(en="&x;", de="x"), head='<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
    "parameter entity": tmx(head='<!DOCTYPE tmx [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x.dtd">%p;]>'),
}


@pytest.mark.parametrize("which", HOSTILE)
def test_entities_are_refused(tmp_path: Path, which: str) -> None:
    file = write(tmp_path, "m.tmx", HOSTILE[which])
    assert refusal(file) == (
        f"{file}, line 2: a DTD inside the file, which is refused; take it out: a translation memory needs none"
    )


def test_other_hostile_memories_are_refused(tmp_path: Path) -> None:
    deep = write(tmp_path, "d.tmx", tmx(unit(en="<hi>" * 100_000 + "x" + "</hi>" * 100_000, de="x")))
    assert "line 3: more than 64 elements inside each other" in refusal(deep)
    wide = write(tmp_path, "w.tmx", tmx(f'<tu x="{"a" * (5 << 20)}"/>'))
    assert "a tag or comment of more than 4 MiB" in refusal(wide)
    many = write(tmp_path, "v.tmx", tmx(unit(**{f"l{n}": "x" for n in range(1001)})))
    assert "a unit of more than 1,000 languages" in refusal(many)
    elsewhere = write(tmp_path, "e.tmx", tmx(unit(en="&uuml;", de="x"), head='<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'))
    assert "line 4: the entity uuml, which is defined elsewhere" in refusal(elsewhere)
    endless = write(tmp_path, "l.tmx", tmx(unit(en="a" * 1_000_000, de="x"), unit(en="a", de="b")))
    lengths = [len(source) for source, _ in read_pairs([endless], languages=EN_DE)]
    assert lengths == [LONGEST_LINE + 1, 1]  # one more than is a sentence: it will be left out


def test_a_bare_doctype_is_passed_over_and_never_fetched(tmp_path: Path) -> None:
    head = '<!DOCTYPE tmx SYSTEM "http://127.0.0.1:1/tmx14.dtd">\n'
    file = write(tmp_path, "m.tmx", tmx(unit(en="a man", de="ein Mann"), head=head))
    assert read_pairs([file], languages=EN_DE) == PAIRS[:1]


def test_broken_memories_say_where(tmp_path: Path) -> None:
    whole = tmx(unit(en="grün", de="x"), unit(en="a", de="b"))
    cut = write(tmp_path, "cut.tmx", whole.removesuffix("</body></tmx>\n"))
    assert refusal(cut) == f"{cut}, line 5: not whole XML (no element found); it ends too early: fetch it again"
    latin = write(tmp_path, "latin.tmx", whole.encode("latin1"))
    assert refusal(latin).startswith(f"{latin}, line 3: not whole XML (not well-formed (invalid token)); look at this")
    assert "is empty" in refusal(write(tmp_path, "none.tmx", ""))
    assert "this is XML of <xliff>, not a translation memory" in refusal(write(tmp_path, "x.tmx", "<xliff></xliff>"))
    short = write(tmp_path, "s.tmx.gz", gzip.compress(whole.encode())[:-20])
    assert "is not a whole gzip file" in refusal(short)


def test_a_memory_is_read_in_constant_memory(tmp_path: Path) -> None:
    """Ten times as many units take no more memory than these: a chunk and its units."""
    file = write(tmp_path, "m.tmx", tmx(*(unit(en=f"sentence number {n}", de=f"Satz Nummer {n}") for n in range(5000))))
    tracemalloc.start()
    assert sum(1 for _ in read_units(Path(file))) == 5000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5e6 < 2 * Path(file).stat().st_size + 1e6


# -- archives and folders ----------------------------------------------------------------------------------------------


def test_an_archive_of_tatoebas_kind(tmp_path: Path) -> None:
    """One text with tabs and a third column, beside a text about it and what a Mac leaves in archives."""
    rows = "".join(f"{source}\t{target}\tCC-BY 2.0 (France) #1\n" for source, target in PAIRS)
    file = zipped(
        tmp_path, **{"deu-eng/deu.txt": rows, "deu-eng/_about.txt": "About", "__MACOSX/deu-eng/._deu.txt": b"\0"}
    )
    assert read_pairs([file]) == read_pairs([file], languages=EN_DE) == PAIRS
    bad = zipped(tmp_path, "b.zip", **{"p.tsv": "a\tb\nonly one\n"})
    assert refusal(bad).startswith(f"{bad}/p.tsv, line 2: no tab; write source, tab, target")


@pytest.mark.parametrize("stem", ["x", "Books.en-de", "sub/x"])
def test_parallel_files_are_found_by_their_languages(tmp_path: Path, stem: str) -> None:
    sides = ["\n".join(side) + "\n" for side in zip(*PAIRS, strict=True)]
    members = {f"{stem}.en": sides[0], f"{stem}.de": sides[1], f"{stem}.xml": "<x/>", "README": "read", "LICENSE": "!"}
    file = zipped(tmp_path, **members)
    assert read_pairs([file], languages=EN_DE) == PAIRS
    assert read_pairs([file], languages=("de", "en")) == [(target, source) for source, target in PAIRS]
    assert "say languages='en,de' where two end in their languages" in refusal(file, languages=None)
    if "/" in stem:
        return
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in members.items():
        write(folder, name, text)
    assert read_pairs([str(folder)], languages=EN_DE) == PAIRS
    (folder / f"{stem}.de").rename(folder / f"{stem}.de_AT")
    assert read_pairs([str(folder)], languages=EN_DE) == PAIRS
    assert "none end in en and fr" in refusal(str(folder), languages=("en", "fr"))
    write(folder, "valid.en", "a\n")
    write(folder, "valid.de", "b\n")
    assert "several pairs of files" in refusal(str(folder))


def test_archives_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path(zipped(tmp_path, **{"p.tsv": "a man\tein Mann\n" * 100})).read_bytes()
    assert "is not a whole zip archive" in refusal(write(tmp_path, "cut.zip", whole[:-40]))
    assert "is not a whole zip archive" in refusal(write(tmp_path, "none.zip", ""))
    damaged = bytearray(whole)
    damaged[45] ^= 0xFF
    assert "is not a whole text of a zip archive" in refusal(write(tmp_path, "damaged.zip", bytes(damaged)))
    assert "is an archive inside an archive" in refusal(zipped(tmp_path, "n.zip", **{"in.zip": whole}))
    assert "is an archive inside an archive" in refusal(
        zipped(tmp_path, "g.zip", **{"p.tsv.gz": gzip.compress(b"a\tb")})
    )
    assert "there is no text in" in refusal(zipped(tmp_path, "e.zip"))
    assert "is empty" in refusal(zipped(tmp_path, "empty.zip", **{"p.tsv": ""}))
    assert "which files of" in refusal(zipped(tmp_path, "two.zip", **{"p.tsv": "a\tb", "q.tsv": "a\tb"}))
    assert "is not UTF-8" in refusal(zipped(tmp_path, "latin.zip", **{"p.tsv": "grün\tb\n".encode("latin1")}))
    assert "there is no text in" in refusal(zipped(tmp_path, "out.zip", **{"../p.tsv": "a\tb", "/q.tsv": "a\tb"}))
    monkeypatch.setattr(archives, "FREE", 1 << 16)
    bomb = zipped(tmp_path, "bomb.zip", **{"p.tsv": b"\0" * (1 << 22)})
    assert "unpacks to more than" in refusal(bomb) and "over 250 times what is packed" in refusal(bomb)
    packed = write(tmp_path, "bomb.tsv.gz", gzip.compress(b"\0" * (1 << 22)))
    assert "unpacks to more than" in refusal(packed)


def test_a_packed_file_can_be_read_again(tmp_path: Path) -> None:
    file = Path(write(tmp_path, "t.txt.gz", gzip.compress(b"one\ntwo\n")))
    with opened(file) as stream:
        assert stream.readline() == b"one\n" and stream.seek(0) == 0
        assert list(stream) == [b"one\n", b"two\n"]


def test_a_bomb_that_lies_about_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The declared size is lowered in both headers: no more is read than declared, and then the sum is wrong."""
    monkeypatch.setattr(archives, "FREE", 1 << 16)
    data = bytearray(Path(zipped(tmp_path, **{"p.tsv": b"\0" * (1 << 22)})).read_bytes())
    real, lie = (1 << 22).to_bytes(4, "little"), (500).to_bytes(4, "little")
    assert data.count(real) == 2
    assert "is not a whole text" in refusal(write(tmp_path, "lie.zip", bytes(data.replace(real, lie))))


# -- Parquet -----------------------------------------------------------------------------------------------------------


def test_parquet_without_pyarrow_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    file = write(tmp_path, "p.parquet", b"PAR1")
    assert refusal(file).endswith(
        "Parquet is read with pyarrow, which is not installed; pip install pyarrow, or write the pairs as .tsv, .csv or .jsonl"
    )
    assert "Parquet is not read inside an archive" in refusal(zipped(tmp_path, **{"p.parquet": b"PAR1"}))


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"id": str(n), "translation": {"de": target, "en": source}} for n, (source, target) in enumerate(PAIRS)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    file = str(tmp_path / "p.parquet")
    assert read_pairs([file], languages=EN_DE) == read_pairs([file], ("en", "de")) == PAIRS
    plain = [{"source": source, "target": target} for source, target in PAIRS] + [{"source": "a", "target": None}]
    parquet.write_table(pyarrow.Table.from_pylist(plain), tmp_path / "q.parquet")
    assert read_pairs([str(tmp_path / "q.parquet")]) == [*PAIRS, ("a", "")]
    assert "is not a whole Parquet file" in refusal(write(tmp_path, "r.parquet", b"PAR1"))


# -- the same for training and for the check ---------------------------------------------------------------------------


def test_training_and_check_take_the_same_files(tmp_path: Path) -> None:
    many = [(f"{source} {n}", f"{target} {n}") for n in range(20) for source, target in PAIRS]
    folder = tmp_path / "folder"
    folder.mkdir()
    for code, side in zip(EN_DE, zip(*many, strict=True), strict=True):
        write(folder, f"c.{code}", "\n".join(side) + "\n")
    lines = "".join(f"{source}\t{target}\tme\n" for source, target in many)
    memory = tmx(*(unit(en__GB=source, de=target) for source, target in many), unit(en="alone"))
    files = [str(folder), zipped(tmp_path, **{"fra.txt": lines}), write(tmp_path, "m.tmx", memory)]
    for name in files:
        sets = load_pairs(PairsConfig(train=(name,), languages=EN_DE))
        assert sorted((*sets.train, *sets.valid)) == sorted(many)
        report = check_data([name], Asked(languages=EN_DE))
        assert (report.task, report.sets[0].examples) == ("translate", 60)
    assert "1 of 61 units lack en or de" in " ".join(report.notes)
    assert json.dumps(report.data())
    with pytest.raises(UsageError, match="from which language into which"):
        check_data([write(tmp_path, "n.tmx", tmx(unit(en="a")))])
