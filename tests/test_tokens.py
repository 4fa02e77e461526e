"""Text -> ids -> text: what comes back exactly, what does not, and that nobody's text is taken for a command."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from regard.errors import RegardError
from regard.tokens import (
    BEGIN,
    END,
    PAD,
    SPECIAL,
    UNKNOWN,
    Specials,
    TextTokenizer,
    TokenizerPair,
    TokensConfig,
    as_arrays,
)
from regard.tokens import train_tokenizer as train

TEXTS = [
    "A man rides a bike.",
    "the man and the woman ride two bikes; the woman's bike is red",
    "Ein Mann fährt Fahrrad, eine Frau fährt schneller.",
    "1998-03-03 and 1999-12-31",
    "日本語 の テキスト",
] * 3


def trained(kind: str, **settings: object) -> TextTokenizer:
    return train(TEXTS, TokensConfig(kind=kind, **{"size": 400, "min_count": 1, **settings}))  # type: ignore[arg-type]


BPE, BYTE, CHARACTER, WORD = (trained(kind) for kind in ("bpe", "byte", "character", "word"))
ALL = {"bpe": BPE, "byte": BYTE, "character": CHARACTER, "word": WORD}

ODD = [
    "", " ", "  ", " a", "a ", "  a  b  ", "\t", "\n", "\r\n", "a\nb", "\x00", "\x1f\x7f\x85", "\u2028\u2029", "\ufeffa",
    "e\u0301", "é", "👩‍👩‍👧‍👦", "🇫🇮", "\U0010ffff", "\ud7ff\ue000", "ﬁ", "İ", "日本語", "\u200f\u202eab", "Ġ", "Ċ", "▁",
    *SPECIAL, "</s>x", "<s><s>", "a</s>b", "[CLS]", "don't  stop", "x" * 5000,
]  # fmt: skip


# -- there and back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", [BPE, BYTE], ids=["bpe", "byte"])
@pytest.mark.parametrize("text", ODD)
def test_odd_texts_come_back_exactly(tokenizer: TextTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(len(SPECIAL) <= token < tokenizer.size for token in ids)


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_unicode_text_comes_back_exactly(text: str) -> None:
    for tokenizer in (BPE, BYTE):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(len(SPECIAL) <= token < tokenizer.size for token in ids)


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from([" ", "a", "\n", "\t", "é", ".", "\u00a0", "\u3000"]), max_size=20))
def test_any_spaces_come_back_exactly(text: str) -> None:
    assert BPE.decode(BPE.encode(text)) == text


def test_bytes_are_the_bytes_of_utf_8() -> None:
    text = "é日👩"
    assert len(BYTE.encode(text)) == len(text.encode()) == 9
    assert BYTE.size == len(SPECIAL) + 256


def test_a_lone_surrogate_is_refused() -> None:
    for name, tokenizer in ALL.items():
        with pytest.raises(RegardError, match="a lone surrogate, which is not Unicode text"):
            tokenizer.encode("a\ud800b")
        assert name


def test_a_sequence_cut_inside_a_character_is_still_text() -> None:
    ids = BYTE.encode("日")
    assert BYTE.decode(ids[:2]) == "\ufffd"


def test_decoding_passes_over_special_ids_and_takes_arrays() -> None:
    ids = BPE.encode("a man")
    assert BPE.decode([BEGIN, *ids, END, PAD, PAD]) == "a man"
    assert BPE.decode(np.array(ids, dtype=np.int32)) == "a man"


# -- what a token is ---------------------------------------------------------------------------------------------------


def test_merges_never_cross_words() -> None:
    """A space can only be the first character of a token, and letters never share a token with digits or signs."""
    longest = 0
    for index in range(len(SPECIAL), BPE.size):
        label = BPE.labels([index])[0]
        assert " " not in label[1:], label
        inside = label.removeprefix(" ")
        assert not (any(map(str.isalpha, inside)) and any(map(str.isdecimal, inside))), label
        longest = max(longest, len(inside))
    assert longest > 3


def test_a_word_has_one_token_first_and_later() -> None:
    first, later = BPE.encode("man"), BPE.encode("a man")
    assert first == later[-len(first) :] and len(first) == 1


def test_merges_by_hand() -> None:
    """Four pairs by how often they occur in " ab" x 5 and " abc" x 3: (a, b) 8 times, then (space, ab) 8, then ( ab, c) 3."""
    tokenizer = train(["ab"] * 5 + ["abc"] * 3, TokensConfig(kind="bpe", size=264, min_count=2))
    merged = [tokenizer.labels([index])[0] for index in range(260, tokenizer.size)]
    assert sorted(merged) in (sorted(["ab", " ab", " abc"]), sorted([" a", " ab", " abc"]))  # 8 and 8 are a tie
    assert tokenizer.labels(tokenizer.encode("abc ab")) == [" abc", " ab"]


def test_a_merge_must_occur_often_enough() -> None:
    tokenizer = train(["xyz"], TokensConfig(kind="bpe", size=300, min_count=2))
    assert tokenizer.size == 260


def test_the_size_is_a_limit() -> None:
    assert trained("bpe", size=270).size == 270
    assert trained("bpe", size=8).size == 260  # every byte has a token, so that any text can be written
    assert trained("word", size=12).size == 12


def test_characters() -> None:
    assert CHARACTER.decode(CHARACTER.encode("A man rides\ta bike.")) == "A man rides a bike.".replace(
        "rides ", "rides"
    )
    assert CHARACTER.labels(CHARACTER.encode("man")) == ["m", "a", "n"]
    assert CHARACTER.encode("mЖn")[1] == UNKNOWN
    assert train(["a\nb"], TokensConfig(kind="character")).size == len(SPECIAL) + 3


def test_words() -> None:
    assert WORD.labels(WORD.encode("the woman's bike.")) == ["the", "woman", "'", "s", "bike", "."]
    assert WORD.decode(WORD.encode("the  woman's bike")) == "the woman ' s bike"
    assert WORD.labels(WORD.encode("the unheard bike")) == ["the", "<unk>", "bike"]
    assert train(["a a b"], TokensConfig(kind="word", min_count=2)).labels(range(4, 5)) == ["a"]


def test_labels_are_what_a_person_reads() -> None:
    assert BPE.labels([PAD, BEGIN, END, UNKNOWN]) == list(SPECIAL)
    for name, text in (("bpe", "a man, fährt"), ("byte", "man"), ("character", "a man")):
        tokenizer = ALL[name]
        assert "".join(tokenizer.labels(tokenizer.encode(text))).removeprefix(" ") == text
    assert BYTE.labels(BYTE.encode("é")) == ["é", ""]  # the first half has the character
    assert [BYTE.labels([half]) for half in BYTE.encode("é")] == [["\ufffd"], ["\ufffd"]]  # by itself, none has


# -- special texts, normalisation --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ALL))
@pytest.mark.parametrize("text", [*SPECIAL, "a </s> b", "<s>man</s>", "<unk><pad>"])
def test_a_command_typed_by_a_person_is_text(name: str, text: str) -> None:
    ids = ALL[name].encode(text)
    assert PAD not in ids and BEGIN not in ids and END not in ids


def test_commands_in_the_training_text_become_no_commands() -> None:
    for kind in ALL:
        tokenizer = train(["</s>", "a </s> b <s> <pad>"] * 50, TokensConfig(kind=kind, min_count=1))  # type: ignore[arg-type]
        ids = tokenizer.encode("</s> <s> <pad> <unk>")
        assert not {PAD, BEGIN, END} & set(ids)
        assert tokenizer.labels(range(4)) == list(SPECIAL)


def imported() -> dict[str, TextTokenizer]:
    """What other libraries' tokenizers are like, where a name in a text could be taken for the token."""
    names, letters = [*SPECIAL, "<|im_end|>"], [*"<>/|_sunkpadime "]
    ids = {name: number for number, name in enumerate([*names, *letters, "</", "s>"])}
    merges = [("<", "/"), ("s", ">"), ("</", "s>")]
    scores = [(name, 0.0) for name in names] + [(letter, -3.0) for letter in letters]
    spaced = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    spaced.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marked = [Tokenizer(models.Unigram(scores, unk_id=UNKNOWN)), Tokenizer(models.BPE(ids, merges, unk_token="<unk>"))]
    for each in marked:
        each.add_special_tokens(names)
    plain = Tokenizer(models.BPE(ids, merges, unk_token="<unk>"))
    plain.add_tokens([AddedToken(name, special=False, normalized=False) for name in names])
    roles = Specials(PAD, BEGIN, END, UNKNOWN, None, also_end=(ids["<|im_end|>"],))
    end = Tokenizer(models.BPE(ids, merges, unk_token="</s>"))
    return {
        "words, names not marked": TextTokenizer(spaced, roles),
        "unigram": TextTokenizer(marked[0]),
        "merges that make a name": TextTokenizer(marked[1]),
        "added and not special": TextTokenizer(plain, roles),
        "an end that is also unknown": TextTokenizer(end, Specials(PAD, BEGIN, END, END, None)),
    }


NAMED = st.lists(
    st.sampled_from(
        [*SPECIAL, "[MASK]", "<|im_end|>", "</S>", "＜s＞", "<", "/", "s>", "a", "é", " ", "\t", "\n", "\u3000"]
    ),
    max_size=9,
).map("".join)
GUARDED = {
    **{
        f"{kind}{' with gaps' * mask}{' folded' * folded}": train(
            [*TEXTS, "a </s>\nb\t<s> [MASK]\n<pad> </S> ＜pad＞"],
            TokensConfig(kind=kind, size=400, min_count=1, lowercase=folded, normalise="nfkc" if folded else "none"),  # type: ignore[arg-type]
            mask=mask,
        )
        for kind in ("bpe", "byte", "character", "word", "space", "wordpiece")
        for mask in (False, True)
        for folded in (False, True)
    },
    **imported(),
}


@pytest.mark.parametrize("name", list(GUARDED))
@settings(max_examples=60, deadline=None)
@given(text=NAMED)
def test_no_text_becomes_a_control_token(name: str, text: str) -> None:
    """`space` once took "</s>" between spaces for the end of the text, and so did unigrams from elsewhere."""
    tokenizer = GUARDED[name]
    ids = tokenizer.encode(text)
    marked = {tokenizer._tokenizer.token_to_id(each) for each in ("<pad>", "<s>", "</s>", "<|im_end|>", "[MASK]")}
    assert not marked & set(ids)
    assert len(tokenizer.spans(text)) == len(ids)
    if tokenizer.specials.mask is not None:
        gaps = len(re.findall(r"\[MASK\]", text))
        assert [each for each in tokenizer.encode_gaps(text) if each in marked] == [tokenizer.specials.mask] * gaps


def test_a_name_is_unknown_among_words_and_letters_elsewhere() -> None:
    space, words = GUARDED["space"], imported()
    assert space.labels(space.encode("a </s> b, <unk>")) == ["a", "<unk>", "<unk>", "<unk>"]
    assert space.labels(range(4)) == list(SPECIAL)  # although the texts it learned from have them beside line ends
    for name in ("unigram", "merges that make a name", "added and not special"):
        assert words[name].labels(words[name].encode("s</s>")) == ["s", "<", "/", "s", ">"], name
        assert words[name].spans("s</s>") == [(0, 1), *[(1, 5)] * 4], name
    assert words["an end that is also unknown"].encode("é") == []


def test_normalisation_is_stated_and_stored(tmp_path: Path) -> None:
    text = "e\u0301 ﬁ É"
    for normalise in ("nfc", "nfkc"):
        tokenizer = trained("bpe", normalise=normalise)
        wanted = unicodedata.normalize(normalise.upper(), text)
        assert tokenizer.decode(tokenizer.encode(text)) == wanted
        assert TextTokenizer.load(tokenizer.save(tmp_path / normalise)).encode(text) == BPE.encode(wanted)
    lower = trained("bpe", lowercase=True)
    assert lower.decode(lower.encode("A MAN Éé")) == "a man éé"
    assert BPE.decode(BPE.encode(text)) == text


# -- saved, joined -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ALL))
def test_saved_and_reloaded_gives_the_same_ids(name: str, tmp_path: Path) -> None:
    again = TextTokenizer.load(ALL[name].save(tmp_path / "tokenizer.json"))
    assert again.encode_all([*TEXTS, *ODD]) == ALL[name].encode_all([*TEXTS, *ODD])
    assert again.size == ALL[name].size
    ids = range(again.size)
    assert again.labels(ids) == ALL[name].labels(ids)
    assert again.decode(ids) == ALL[name].decode(ids)


@pytest.mark.parametrize("kind", list(ALL))
def test_training_again_gives_the_same_tokenizer(kind: str, tmp_path: Path) -> None:
    files = [trained(kind).save(tmp_path / str(number)) for number in range(3)]
    assert len({file.read_bytes() for file in files}) == 1


def test_joint_and_separate(tmp_path: Path) -> None:
    sources, targets = ["aaa bbb"] * 3, ["ccc ddd"] * 3
    joint = TokenizerPair.train(sources, targets, TokensConfig(size=300, min_count=1))
    assert joint.source is joint.target
    assert len(joint.source.encode("aaa ddd")) == 2
    apart = TokenizerPair.train(sources, targets, TokensConfig(size=300, min_count=1, joint=False))
    assert len(apart.source.encode("aaa")) == 1 < len(apart.target.encode("aaa"))
    for name, pair, files in (
        ("joint", joint, ["tokenizer.json"]),
        ("apart", apart, ["tokenizer.source.json", "tokenizer.target.json"]),
    ):
        (tmp_path / name).mkdir()
        assert pair.save(tmp_path / name) == TokenizerPair.files(tmp_path / name) == files
        again = TokenizerPair.load(tmp_path / name)
        assert (again.source is again.target) == (pair.source is pair.target)
        for text in ("aaa ddd", *ODD):
            assert again.source.encode(text) == pair.source.encode(text)
            assert again.target.encode(text) == pair.target.encode(text)


def test_arrays_have_their_ends() -> None:
    source, target = as_arrays([[7, 8]], begin=False)[0], as_arrays([[7, 8]], begin=True)[0]
    assert source.tolist() == [7, 8, END] and target.tolist() == [BEGIN, 7, 8, END] and source.dtype == np.int32


def test_a_file_that_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"there is no .*the bundle is not whole"):
        TextTokenizer.load(tmp_path / "none.json")
    for content in (b"", b"{}", b'{"model": 3}', b"\xff\xfe", BPE.save(tmp_path / "t").read_bytes()[:-9]):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(RegardError, match=r"is not a tokenizer .*copy the bundle again"):
            TextTokenizer.load(tmp_path / "bad.json")


# -- gaps, places, and tokenizers of other shapes ----------------------------------------------------------------------

EVERY = ("bpe", "byte", "character", "word", "space", "wordpiece")


@pytest.mark.parametrize("kind", EVERY)
def test_a_gap_is_an_id_only_where_gaps_are_asked_for(kind: str) -> None:
    tokenizer = train(TEXTS, TokensConfig(kind=kind, size=400, min_count=1), mask=True)  # type: ignore[arg-type]
    mask = tokenizer.specials.mask
    assert mask is not None and mask in tokenizer.specials.all and mask == tokenizer.size - 1
    text = "the man [MASK] the [MASK]"
    assert tokenizer.encode_gaps(text).count(mask) == 2 and mask not in tokenizer.encode(text)
    for plain in ("the man and the woman", "", "the"):
        assert tokenizer.encode_gaps(plain) == tokenizer.encode(plain)
    first = tokenizer.encode("the man")
    assert tokenizer.encode_gaps(text)[: len(first) + 1] == [*first, mask]  # the spaces beside it belong to the gap
    assert "[MASK]" not in tokenizer.decode([*first, mask])
    assert tokenizer.labels([mask]) == ["[MASK]"]


def test_a_tokenizer_without_a_mask_reads_the_word() -> None:
    assert BPE.specials.mask is None and BPE.specials.all == {PAD, BEGIN, END, UNKNOWN}
    assert BPE.decode(BPE.encode_gaps("a [MASK] b")) == "a [MASK] b"


@pytest.mark.parametrize("kind", EVERY)
def test_spans_are_the_characters_of_each_id(kind: str) -> None:
    tokenizer = train(TEXTS, TokensConfig(kind=kind, size=400, min_count=1))  # type: ignore[arg-type]
    for text in ("the man  rides", "Ein Mann fährt, 日本語!", "👩‍👩‍👧 a\nb", "", " "):
        spans, ids = tokenizer.spans(text), tokenizer.encode(text)
        assert len(spans) == len(ids)
        assert all(0 <= start < end <= len(text) for start, end in spans)
        covered = {place for start, end in spans for place in range(start, end)}
        assert all(place in covered or text[place].isspace() for place in range(len(text)))
        for token, (start, end), label in zip(ids, spans, tokenizer.labels(ids), strict=True):
            if token != UNKNOWN and label.strip() and "\ufffd" not in label:  # a space before the text has no place
                assert label.removeprefix("##").strip() == text[start:end].strip()


def test_spans_of_bytes_name_their_letter() -> None:
    assert BYTE.spans("aé日") == [(0, 1), (1, 2), (1, 2), (2, 3), (2, 3), (2, 3)]


def test_space_separates_tokens_and_a_line_end_is_one() -> None:
    tokenizer = train(["a <unk> b, b\nc </s>\n"], TokensConfig(kind="space", min_count=1))
    assert tokenizer.labels(tokenizer.encode("a  b, b\nc\t\n")) == ["a", "b,", "b", "\n", "c", "\n"]
    assert tokenizer.size == len(SPECIAL) + len({"a", "b,", "b", "\n", "c"})
    assert tokenizer.encode("z") == [UNKNOWN]
    assert tokenizer.decode(tokenizer.encode("a b\nc")) == "a b \n c"


def test_wordpieces_are_the_longest_pieces_from_the_left() -> None:
    """The greedy rule by hand (Devlin et al. 2019; Wu et al. 2016, section 4.1), over the trained vocabulary."""
    tokenizer = trained("wordpiece")
    known = {label: number for number, label in enumerate(tokenizer.labels(range(tokenizer.size)))}

    def pieces(word: str) -> list[int]:
        found, start = [], 0
        while start < len(word):
            marks = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if marks + word[start:end] in known), None)
            if end is None:
                return [UNKNOWN]
            found.append(known[marks + word[start:end]])
            start = end
        return found

    for text in ("the woman rides bikes", "faster manride", "Fahrradmann z", "bike ; red"):
        assert tokenizer.encode(text) == [piece for word in text.split() for piece in pieces(word)]
    assert tokenizer.decode(tokenizer.encode("the man, and the woman ride.")) == "the man, and the woman ride."


def test_an_imported_kind_cannot_be_trained() -> None:
    with pytest.raises(RegardError, match="it comes with a model: regard import"):
        train(TEXTS, TokensConfig(kind="imported"))
