"""The dates corpus, held against Babel's own formatting, against hand-made examples, and against its promises."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
import unicodedata
from datetime import date, timedelta
from itertools import chain

import pytest
from babel import Locale
from babel.dates import format_date, format_skeleton, get_month_names

from regard.data.builtin import dates
from regard.data.builtin.date_forms import LOCALES, Form, forms_of, is_unambiguous
from regard.data.builtin.dates import LANGUAGES, DatePair, as_pairs, date_pairs, forms, split_of, write
from regard.errors import UsageError

MARCH = date(1998, 3, 3)
EVERY_DAY = [date(1900, 1, 1) + timedelta(days=day) for day in range((date(2100, 1, 1) - date(1900, 1, 1)).days)]


def some_days(count: int, seed: int = 7) -> list[date]:
    return random.Random(seed).sample(EVERY_DAY, count)


def sources(day: date, language: str) -> set[str]:
    return {pair.source for pair in forms(day, language)}


@pytest.fixture(scope="module")
def sample() -> list[DatePair]:
    return [
        pair
        for split, count in (("train", 20011), ("valid", 3001), ("test", 3001))
        for pair in date_pairs(split, count)
    ]


# The text


@pytest.mark.parametrize(
    ("source", "language"),
    [
        ("mardi 3 mars 1998", "fr"),
        ("le mardi 3 mars 1998", "fr"),
        ("3. März 1998", "de"),
        ("am 3. März 1998", "de"),
        ("3. Mär 1998", "de"),  # the stand-alone abbreviation; the one of format is März
        ("March 3rd, 1998", "en"),
        ("Tue, Mar 3, 1998", "en"),
        ("1998/03/03", "en"),
        ("3 de marzo de 1998", "es"),
        ("3 марта 1998 г.", "ru"),
        ("1998年3月3日", "ja"),
        ("１９９８年３月３日", "ja"),
        ("一九九八年三月三日", "zh"),
        ("1998년 3월 3일", "ko"),
    ],
)
def test_what_people_write_is_there(source: str, language: str) -> None:
    assert source in sources(MARCH, language)


def test_there_are_the_eighteen_languages_of_the_documentation() -> None:
    assert len(LANGUAGES) == len(set(LANGUAGES)) == 18


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_pattern_reads_as_babel_writes_it(language: str) -> None:
    """Babel has no ordinals and only the digits 0 to 9; those forms have their own tests."""
    plain = [group[0] for group in forms_of(language) if group[0].numerals == "latin" and "do" not in group[0].pattern]
    assert plain
    for day in some_days(211):
        for form in plain:
            assert write(day, form).source == format_date(day, form.pattern, locale=form.locale), form


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_standard_formats_of_cldr_are_there_unless_ambiguous(language: str) -> None:
    for day in some_days(31):
        ours = sources(day, language)
        for locale in LOCALES[language]:
            assert format_date(day, "full", locale=locale) in ours
            assert format_date(day, "long", locale=locale) in ours
            for text in (format_date(day, "medium", locale=locale), format_skeleton("yMMMd", day, locale=locale)):
                day_first = re.fullmatch(r"\d\d?[./ -]+\d\d?[./ -]+\d{4}", text)
                assert (text in ours) == (not day_first), text


def test_english_ordinals_follow_the_plural_rules_of_cldr() -> None:
    suffix = {"one": "st", "two": "nd", "few": "rd", "other": "th"}
    for day in range(1, 32):
        ending = suffix[Locale("en").ordinal_form(day)]
        assert f"January {day}{ending}, 2001" in sources(date(2001, 1, day), "en")


def test_only_the_first_of_the_month_is_an_ordinal_elsewhere() -> None:
    assert "1er mai 2002" in sources(date(2002, 5, 1), "fr")
    assert "1º maggio 2002" in sources(date(2002, 5, 1), "it")
    assert "1º de maio de 2002" in sources(date(2002, 5, 1), "pt")
    assert "2 mai 2002" in sources(date(2002, 5, 2), "fr")


def test_chinese_numerals() -> None:
    months = get_month_names("wide", locale="zh")  # 一月 ... 十二月
    for month in range(1, 13):
        assert f"二〇一六年{months[month]}一日" in sources(date(2016, month, 1), "zh")
    for day, written in {
        9: "九",
        10: "十",
        11: "十一",
        19: "十九",
        20: "二十",
        21: "二十一",
        30: "三十",
        31: "三十一",
    }.items():
        assert f"一九〇五年一月{written}日" in sources(date(1905, 1, day), "zh")


def test_letters_change_case_as_their_language_does() -> None:
    assert {"3 NİSAN 1998", "3 nisan 1998"} <= sources(date(1998, 4, 3), "tr")
    assert {"3 KASIM 1998", "3 kasım 1998"} <= sources(date(1998, 11, 3), "tr")
    assert {"3 ΜΑΪΟΥ 1998", "3 μαΐου 1998"} <= sources(date(1998, 5, 3), "el")
    assert {"3. MÄRZ 1998", "3. märz 1998"} <= sources(MARCH, "de")
    assert {"MARCH 3RD, 1998", "Mardi 3 mars 1998"} <= sources(MARCH, "en") | sources(MARCH, "fr")


def test_a_hurried_hand_drops_full_stops_and_commas() -> None:
    assert "lun 9 janv 1995" in sources(date(1995, 1, 9), "fr")
    assert "Tue Mar 3 1998" in sources(MARCH, "en")
    assert "3.  März  1998" in sources(MARCH, "de")


# What must not be there


@pytest.mark.parametrize("pattern", ["M/d/yy", "dd/MM/y", "d.M.y", "d. M. y", "E, d/M/y", "yy. M. d.", "d MMM yy"])
def test_ambiguous_patterns_are_refused(pattern: str) -> None:
    assert not is_unambiguous(pattern)


@pytest.mark.parametrize("pattern", ["y-MM-dd", "y. M. d.", "E, y/M/d", "d MMM y", "d 'de' MMMM 'de' y", "y年M月d日"])
def test_patterns_that_anybody_resolves_are_kept(pattern: str) -> None:
    assert is_unambiguous(pattern)


def test_no_source_is_a_day_and_a_month_in_numbers_before_a_year(sample: list[DatePair]) -> None:
    day_first = re.compile(r"(?<!\d)\d{1,2}\s*[./ -]\s*\d{1,2}\s*[./ -]\s*\d{2,4}")
    assert day_first.search("Di., 3.4.1998") and not day_first.search("1998/03/04")
    for pair in sample:
        assert not day_first.search(pair.source), pair
        if not any(character.isalpha() for character in pair.source):
            assert re.match(r"\d{4}\D", pair.source), pair


def test_no_source_stands_for_two_days_even_to_a_careless_reader(sample: list[DatePair]) -> None:
    """Every form of every language for every day of a leap year, with case, accents and punctuation taken away.

    Forms of two years cannot meet, since each source has its whole year: see the test of the alignment.
    """
    year = [date(2024, 1, 1) + timedelta(days=day) for day in range(366)]
    meaning: dict[str, str] = {}
    every_form = [form for language in LANGUAGES for form in chain.from_iterable(forms_of(language))]
    for pair in chain(sample, (write(day, form) for day in year for form in every_form)):
        assert meaning.setdefault(careless(pair.source), pair.target) == pair.target, pair


def careless(text: str) -> str:
    letters = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    letters = letters.casefold().replace("ı", "i")  # the dot of a Turkish i counts as an accent
    return " ".join(letters.replace(".", " ").replace(",", " ").split())


# The alignment


@pytest.mark.parametrize(
    ("source", "language", "day", "links"),
    [
        (
            "mardi 3 mars 1998",
            "fr",
            MARCH,
            {(6, 8), (6, 9)} | {(c, t) for c in (8, 9, 10, 11) for t in (5, 6)} | {(13, 0), (14, 1), (15, 2), (16, 3)},
        ),
        (
            "2001年12月3日",
            "ja",
            date(2001, 12, 3),
            {(0, 0), (1, 1), (2, 2), (3, 3), (5, 5), (6, 6), (8, 8), (8, 9)},
        ),
        (
            "2001년 4월 23일",  # 월 says that 4 is a month, but the 4 says which
            "ko",
            date(2001, 4, 23),
            {(0, 0), (1, 1), (2, 2), (3, 3), (6, 5), (6, 6), (9, 8), (10, 9)},
        ),
        (
            "the 12th of May 2003",
            "en",
            date(2003, 5, 12),
            {(4, 8), (5, 9)} | {(c, t) for c in (12, 13, 14) for t in (5, 6)} | {(16, 0), (17, 1), (18, 2), (19, 3)},
        ),
        (
            "二〇〇三年五月二十一日",
            "zh",
            date(2003, 5, 21),
            {(0, 0), (1, 1), (2, 2), (3, 3), (5, 5), (5, 6)} | {(c, t) for c in (7, 8, 9) for t in (8, 9)},
        ),
    ],
)
def test_links_worked_out_by_hand(source: str, language: str, day: date, links: set[tuple[int, int]]) -> None:
    pair = next(pair for pair in forms(day, language) if pair.source == source)
    assert set(pair.alignment) == links


def test_links_agree_with_the_text_on_both_ends(sample: list[DatePair]) -> None:
    for pair in sample:
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert all(0 <= source < len(pair.source) for source, _ in pair.alignment)
        assert {target for _, target in pair.alignment} == {0, 1, 2, 3, 5, 6, 8, 9}  # every digit and no hyphen
        assert digits(source_text(pair, 0, 1, 2, 3)) == pair.target[:4]
        for source, target in pair.alignment:
            if pair.source[source].isdecimal() and digits(pair.source[source]) != pair.target[target]:
                assert pair.target[target] == "0" and target in (5, 8), pair  # the zero that the source left out


@pytest.mark.parametrize("language", LANGUAGES)
def test_linked_month_is_the_name_or_number_of_the_month(language: str) -> None:
    names = {month: cldr_names(language, month) for month in range(1, 13)}
    for pair in date_pairs("train", 300, seed=5, languages=[language]):
        month = int(pair.target[5:7])
        text = source_text(pair, 5, 6)
        assert careless(text) in names[month] | {str(month), f"{month:02d}"}, pair


@pytest.mark.parametrize("language", LANGUAGES)
def test_linked_day_is_the_number_of_the_day(language: str) -> None:
    for pair in date_pairs("train", 300, seed=5, languages=[language]):
        text = source_text(pair, 8, 9)
        if text.isdecimal():
            assert int(text) == int(pair.target[8:]), pair
        else:
            assert language == "zh" and set(text) <= set("一二三四五六七八九十"), pair


def source_text(pair: DatePair, *targets: int) -> str:
    """The source characters, in order, that have a link to any of the target characters."""
    return "".join(pair.source[place] for place in sorted({s for s, t in pair.alignment if t in targets}))


def digits(text: str) -> str:
    """The value of each digit, whichever script it is from."""
    return "".join(str(int(unicodedata.numeric(character))) for character in text)


def cldr_names(language: str, month: int) -> set[str]:
    """The names of a month in CLDR, as `careless` makes them; 三月 also as 三, since 月 is no part of the number."""
    names = {
        get_month_names(width, context, locale)[month]
        for locale in LOCALES[language]
        for width in ("wide", "abbreviated")
        for context in ("format", "stand-alone")
    }
    return {careless(name) for name in names} | {name.removesuffix("月") for name in names if language == "zh"}


# The sample


def test_splits_share_no_day_and_hold_the_shares_they_promise() -> None:
    counts = {"train": 0, "valid": 0, "test": 0}
    for day in EVERY_DAY:
        counts[split_of(day)] += 1
    shares = {split: 100 * count / len(EVERY_DAY) for split, count in counts.items()}
    assert shares == pytest.approx({"train": 90, "valid": 5, "test": 5}, abs=0.5)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_pairs_are_of_their_split(split: str) -> None:
    pairs = date_pairs(split, 2003)
    days = {date.fromisoformat(pair.target) for pair in pairs}
    assert {split_of(day) for day in days} == {split}
    assert {pair.language for pair in pairs} == set(LANGUAGES)
    assert len({pair.source for pair in pairs}) == 2003
    assert min(days).year < 1910 and max(days).year > 2089


def test_a_sample_depends_on_its_arguments_alone() -> None:
    pairs = date_pairs("valid", 101, seed=3, languages=["tr", "ja"])
    assert pairs == date_pairs("valid", 101, seed=3, languages=["tr", "ja"])
    assert pairs[:53] == date_pairs("valid", 53, seed=3, languages=["tr", "ja"])
    assert pairs != date_pairs("valid", 101, seed=4, languages=["tr", "ja"])
    assert {pair.language for pair in pairs} == {"tr", "ja"}
    assert date_pairs("valid", 0) == []


def test_another_process_makes_the_same_sample_and_needs_no_torch() -> None:
    program = (
        "import sys, hashlib; from regard.data.builtin.dates import date_pairs; pairs = date_pairs('test', 307); "
        "print(hashlib.sha256(repr(pairs).encode()).hexdigest(), 'torch' in sys.modules)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1 and outputs.pop().endswith(" False\n")


def test_sources_repeat_only_when_there_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dates, "_days", lambda split: (MARCH,))
    every_source = sources(MARCH, "ja")
    pairs = date_pairs("train", len(every_source) + 5, languages=["ja"])
    assert {pair.source for pair in pairs[: len(every_source)]} == every_source
    assert len(pairs) == len(every_source) + 5


def test_forty_thousand_pairs_take_about_a_second() -> None:
    date_pairs("train", 1)  # CLDR is read once for the process
    start = time.process_time()
    assert len(date_pairs("train", 40_000)) == 40_000
    assert time.process_time() - start < 4  # 1.0 s when measured; the rest is room for slower machines


def test_forms_are_distinct_and_of_their_day() -> None:
    for language in LANGUAGES:
        pairs = forms(MARCH, language)
        assert len({pair.source for pair in pairs}) == len(pairs) >= 10
        assert {(pair.target, pair.language) for pair in pairs} == {("1998-03-03", language)}


def test_each_pattern_of_a_language_differs_from_the_others() -> None:
    plain: list[Form] = [group[0] for language in LANGUAGES for group in forms_of(language)]
    for language in LANGUAGES:
        written = [
            tuple(write(day, form).source for day in some_days(97)) for form in plain if form.language == language
        ]
        assert len(set(written)) == len(written), language


def test_as_pairs_leaves_source_and_target() -> None:
    pairs = date_pairs("test", 13)
    assert as_pairs(pairs) == [(pair.source, pair.target) for pair in pairs]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: date_pairs("tests", 3), "did you mean test"),
        (lambda: date_pairs("zzz", 3), "there is test, train, valid"),
        (lambda: date_pairs("test", -3), "-3"),
        (lambda: date_pairs("test", 3, languages=["fr", "xx"]), "'xx'"),
        (lambda: date_pairs("test", 3, languages=[]), "no language"),
        (lambda: forms(date(1066, 10, 14), "en"), "1900 to 2099"),
        (lambda: forms(MARCH, "klingon"), "klingon"),
    ],
)
def test_errors_say_what_to_do(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=re.escape(message)):
        call()
