"""Words, characters, bytes and byte pairs of a text, held against recounting, against tokenizers' own trainer, and by hand."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from regard.cli import main
from regard.look.figures.comparison import draw_vocabularies
from regard.tokens.levels import SPACED, Merge, joined_in, learn_merges, lengths_by_size, levels, pieces_of, shown


def recounted(texts: list[str], most: int, least: int = 2) -> list[Merge]:
    """Every pair counted anew for every merge."""
    counts = Counter(word for text in texts for word in SPACED.findall(text))
    words = [([bytes([byte]) for byte in word.encode()], times) for word, times in counts.items()]
    found: list[Merge] = []
    while len(found) < most:
        pairs: Counter[tuple[bytes, bytes]] = Counter()
        for word, times in words:
            for pair in pairwise(word):
                pairs[pair] += times
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < least:
            break
        words = [(joined_in(word, best), times) for word, times in words]
        found.append(Merge(*best, pairs[best], sum(len(word) * times for word, times in words)))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_merges_are_those_of_recounting_all_pairs_each_time(seed: int) -> None:
    draw = random.Random(seed)
    texts = ["".join(draw.choice("aab cé") for _ in range(draw.randrange(70))) for _ in range(6)]
    assert list(learn_merges(texts, 40)) == recounted(texts, 40)


def test_merges_by_hand() -> None:
    """aaab: aa stands there twice, and is joined from the left."""
    first, second, *_ = learn_merges(["aaab aaab aaab"], 2)
    assert (first.left, first.right, first.count, first.pieces) == (b"a", b"a", 6, 11)
    assert (second.joined, second.count) == (b"ab", 3)  # as often as aa + a; a comes before aa
    assert [shown(piece) for piece in pieces_of("aaaaab", [first])] == ["aa", "aa", "a", "b"]


def test_merges_are_those_of_the_library_where_no_counts_are_equal() -> None:
    """Which of equals it takes is its own affair; so the words occur so often that no two pairs do equally."""
    words = {"lower": 70, "lowest": 31, "newer": 17, "wider": 9, "new": 5}
    text = " ".join(word for word, times in words.items() for _ in range(times))
    ours = list(learn_merges([" " + text], 8))
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    library.train_from_iterator([text], trainers.BpeTrainer(vocab_size=1000, min_frequency=2, show_progress=False))
    theirs = [("".join(pair)).replace("Ġ", " ") for pair in json.loads(library.to_str())["model"]["merges"]]
    distinct = [merge for merge in ours if sum(other.count == merge.count for other in ours) == 1]
    assert len(distinct) >= 2
    for merge in distinct[:2]:
        assert theirs.index(shown(merge.joined)) == ours.index(merge)


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=40), st.lists(st.text(max_size=20), max_size=4))
def test_pieces_give_back_any_text(text: str, texts: list[str]) -> None:
    merges = list(learn_merges(texts, 30))
    assert b"".join(pieces_of(text, merges)) == text.encode()
    assert [b"".join(pieces_of(text, merges[:n])) for n in (0, 5)] == [text.encode()] * 2


def test_a_text_at_four_levels() -> None:
    words, characters, raw, pairs = levels("Yo soy, ñ", list(learn_merges(["soy soy"], 3)))
    assert words.tokens == ("Yo", "soy", ",", "ñ") and characters.tokens == tuple("Yo soy, ñ")
    assert raw.tokens == ("59", "6f", "20", "73", "6f", "79", "2c", "20", "c3", "b1")
    assert "".join(pairs.tokens) == "Yo soy, <c3><b1>" and len(pairs.tokens) < len(raw.tokens)


def test_more_merges_never_lengthen_a_text() -> None:
    texts = ["the old man and the sea", "the other one"]
    found = lengths_by_size(texts, list(learn_merges(texts, 20)), [256, 258, 262, 276])
    assert found[0] == 1.0 and found == sorted(found, reverse=True)
    figure = draw_vocabularies([256, 258, 262, 276], {str(number): found for number in range(11)})
    assert len(figure.axes[0].lines) == 8


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["tokens", "Me puedes traer un tenedor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [level["count"] for level in found["levels"]][:3] == [5, 26, 26] and len(found["merges"]) == 200
    text = tmp_path / "mine.txt"
    text.write_text("low low lower lowest\n" * 4, encoding="utf-8")
    picture = tmp_path / "sizes.png"
    assert main.run(["tokens", "lower", "--data", str(text), "--merges=3", "--each", "-o", str(picture)]) == 0
    out, err = capsys.readouterr()
    assert "low" in out and "256" in out and picture.stat().st_size > 5000 and "sizes.png" in err
    assert main.run(["tokens", "-m", "dates", "3 mai 2004 ☃", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["tokens"][-1]["kind"] == "unknown" and len(made["tokens"]) == 12


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "there is no text"),
        (["-m", "dates"], "there is no text"),
        (["a", "-o", "x.gif"], ".png or .svg"),
        (["a", "--data", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_what_is_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["tokens", *words]) != 0
    assert told in capsys.readouterr().err
