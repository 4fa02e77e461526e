"""The built-in names: one right answer each, native, and divided so that no test name occurs in training."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from collections import Counter

import pytest
from babel import Locale

from regard.data.builtin.names import LANGUAGES, LATIN, RELATED, SPLITS, all_names, language_names, left_out, split_of
from regard.errors import UsageError


def everything(split: str) -> list[tuple[str, str]]:
    return language_names(split)


def plain(text: str) -> str:
    """Without capitals and combining accents, by Unicode's own tables."""
    letters = unicodedata.normalize("NFD", text.casefold())
    kept = (letter for letter in letters if not 0x300 <= ord(letter) <= 0x36F)
    return "".join(kept).replace("ı", "i")


def test_the_examples_of_the_page() -> None:
    found = {name.text: name.language for name in all_names()}
    assert (found["Республика Корея"], found["coréen"], found["한국어"]) == ("ru", "fr", "ko")
    assert Locale.parse("en").territories["BM"] == Locale.parse("de").territories["BM"] == "Bermuda"
    assert "Bermuda" not in found


def test_enough_names_in_every_language() -> None:
    assert len(LANGUAGES) == len(set(LANGUAGES)) >= 15 and not set(LANGUAGES) & set(RELATED)
    for split, least in (("train", 400), ("valid", 40), ("test", 40)):
        counts = Counter(language for _, language in everything(split))
        assert set(counts) == set(LANGUAGES) and min(counts.values()) > least
    sizes = [len(everything(split)) for split in SPLITS]
    assert sum(sizes) == len(all_names()) > 15_000
    assert abs(sizes[0] / sum(sizes) - 0.8) < 0.02 and abs(sizes[1] / sum(sizes) - 0.1) < 0.02


def test_a_name_is_spelt_in_one_language_only() -> None:
    """Held against Babel's own tables: no other language calls anything so, not even without accents."""
    spellings: dict[str, set[str]] = {}
    for language in (*LANGUAGES, *RELATED):
        locale = Locale.parse(language)
        for table in (locale.territories, locale.languages, locale.scripts, locale.currencies):
            for name in table.values():
                if any(letter.isalpha() for letter in name):
                    spellings.setdefault(plain(" ".join(name.split())), set()).add(language)
    for name in all_names():
        assert spellings[plain(name.text)] == {name.language}
    assert left_out() > 1000


@pytest.mark.parametrize("language", sorted(set(LANGUAGES) - set(LATIN)))
def test_names_are_in_the_script_of_the_language(language: str) -> None:
    for text, of in everything("train") + everything("test"):
        if of == language:
            letters = [letter for letter in text if letter.isalpha()]
            latin = sum(unicodedata.name(letter).startswith("LATIN") for letter in letters)
            assert latin < len(letters) / 2, text


def test_no_name_of_one_split_occurs_in_another() -> None:
    """Nor does it in other capitals, without accents, or with another remark in brackets."""
    splits = {split: {plain(text).split(" (")[0] for text, _ in everything(split)} for split in SPLITS}
    assert not splits["train"] & splits["test"]
    assert not splits["train"] & splits["valid"]
    assert not splits["valid"] & splits["test"]
    assert split_of("Dollar (1990)") == split_of("dollar") == split_of("Dóllar (1991–1992)")


def test_names_are_distinct_and_normalised() -> None:
    texts = [name.text for name in all_names()]
    assert len(set(texts)) == len(texts)
    assert all(text == unicodedata.normalize("NFC", text.strip()) and "\n" not in text for text in texts)


def test_least_and_languages_choose() -> None:
    short = [pair for pair in everything("test") if len(pair[0]) < 5]
    assert short and [pair for pair in everything("test") if pair not in short] == language_names("test", least=5)
    greek = language_names("valid", ["el"])
    assert greek == [pair for pair in everything("valid") if pair[1] == "el"]


def test_another_process_has_the_same_names() -> None:
    program = "from regard.data.builtin.names import language_names; print(hash(1), language_names('test')[:200])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{hash(1)} {everything('test')[:200]}"


def test_unknown_splits_and_languages_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no split 'tset'; did you mean test\?"):
        language_names("tset")
    with pytest.raises(UsageError, match="no names in 'da'"):
        language_names("test", ["da"])
