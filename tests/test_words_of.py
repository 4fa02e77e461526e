"""Which pieces are one word: by hand for every way in which tokenizers write a space, and as a partition for any labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from regard.tokens import train_tokenizer
from regard.tokens.config import TokensConfig
from regard.tokens.tokenizer import as_read
from regard.tokens.words import is_special, word_label, words_of


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["<s>", "Ein", " Mann", " mit", " orange", "far", "benen", " Hut", ".", "</s>"],
         ["<s>", "Ein", "Mann", "mit", "orangefarbenen", "Hut", ".", "</s>"]),
        (["The", "Ġstory", "tell", "er", "'s", "Ġb", "ike", "."], ["The", "storyteller's", "bike", "."]),
        (["▁un", "believ", "able", "▁story", "<|endoftext|>"], ["unbelievable", "story", "<|endoftext|>"]),
        (["[CLS]", "embed", "##ding", "##s", "work", "[SEP]"], ["[CLS]", "embeddings", "work", "[SEP]"]),
        (["the", "old", "king"], ["the", "old", "king"]),  # a tokenizer of words brings no spaces
        ([" 東", "京", "へ", " go", "ing"], ["東", "京", "へ", "going"]),  # written without spaces
        ([" black", "-", "and", " white"], ["black", "-", "and", "white"]),
        ([" dog", "\n", "cat"], ["dog", "\ncat"]),
        (["##", " a", "b"], ["##", "ab"]),  # a label that only looks like a mark
        (["[MASK]", "cat", "##s"], ["[MASK]", "cats"]),
        ([], []),
    ],
)  # fmt: skip
def test_words_by_hand(labels: list[str], words: list[str]) -> None:
    assert [word_label(labels, word).strip() for word in words_of(labels)] == [word.strip() for word in words]


@given(st.lists(st.text(alphabet="ab Ġ▁#.東<>s", max_size=4), max_size=12))
def test_every_piece_belongs_to_one_word_and_words_are_in_order(labels: list[str]) -> None:
    words = words_of(labels)
    assert [place for word in words for place in word] == list(range(len(labels)))
    assert all(words)


def test_special_tokens_are_told_from_text() -> None:
    for label in ("<s>", "</s>", "[CLS]", "[MASK]", "<|endoftext|>", "<pad>"):
        assert is_special(label)
    for label in ("<", "a<b>", "[x]", "< s >", "", "[CLS", " <s> "):
        assert not is_special(label)


def test_a_word_of_spaces_keeps_them() -> None:
    assert word_label(["Ġ"], [0]) == " "
    assert word_label(["a", "##b", "##c"], (0, 1, 2)) == "abc"
    assert word_label(["##b"], [0]) == "##b"  # a text that begins inside a word says so


def test_of_a_letter_that_is_split_over_ids_the_first_has_it_and_its_word_has_all() -> None:
    """Bytes of Chinese or Arabic are no letters by themselves, and nobody reads replacement signs."""
    tokenizer = train_tokenizer([], TokensConfig(kind="byte"))
    ids = tokenizer.encode("aé中\nь")
    labels = tokenizer.labels(ids)
    assert labels == ["a", "é", "", "中", "", "", "\n", "ь", ""]
    assert [word_label(labels, word) for word in words_of(labels)][-1] == "ь"
    assert [place for word in words_of(labels) for place in word] == list(range(len(ids)))
    assert all(word[0] == 0 or labels[word[0]] for word in words_of(labels))  # none begins inside a letter
    broken = tokenizer.labels([ids[3], ids[0]])  # the beginning of a letter that does not go on
    assert broken == ["\ufffd", "a"]


def test_pieces_of_other_tokenizers_are_shown_as_what_they_read_as() -> None:
    """Byte-level pieces as GPT-2 writes them, SentencePiece's, and what only looks like the former."""
    text = " für 日本\nGruß"
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    written = ["<|endoftext|>", *(piece for piece, _ in pieces)]
    assert "Ġ" in "".join(written) and "".join(as_read(written)) == "<|endoftext|>" + text
    assert as_read(["A", "Ġbi", "cy", "cle", "Ċ"]) == ("A", " bi", "cy", "cle", "\n")
    letters = ["Ġ", *pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("日")[0][0]]
    assert as_read(letters) == (" ", "日", "", "")
    assert as_read(["▁A", "▁man", "ner"]) == (" A", " man", "ner")
    for plain in (["Ġorġ", "mar"], ["play", "##ing"], ["é", "à"], []):  # Maltese, WordPiece, French
        assert as_read(plain) == tuple(plain)
