"""Stories: bAbI's files, JSON Lines, the worlds that are made, and what is wrong with them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from regard.data.builtin import worlds
from regard.data.builtin.worlds import RING, told_stories
from regard.data.config import StoriesConfig
from regard.data.stories import Story, load_stories, read_stories, split_story
from regard.errors import RegardError, UsageError

BABI = """1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Daniel went back to the hallway.
5 Where is Daniel? \thallway\t4
1 Mary got the milk there.
2 John moved to the bedroom.
3 Where is the milk? \tnowhere,else\t1 2
"""


def test_babi_files_are_read_as_they_come(tmp_path: Path) -> None:
    """A question knows the sentences before it, not those behind; numbers count questions, too."""
    (tmp_path / "qa1_some_train.txt").write_text(BABI)
    first, second, third = read_stories([str(tmp_path / "qa1_some_train.txt")])
    assert first == Story(
        ("Mary moved to the bathroom.", "John went to the hallway."), "Where is Mary?", "bathroom", (0,)
    )
    assert second.sentences == (*first.sentences, "Daniel went back to the hallway.") and second.support == (2,)
    assert third.sentences == ("Mary got the milk there.", "John moved to the bedroom.")
    assert (third.answer, third.support) == ("nowhere,else", (0, 1))
    assert read_stories([str(tmp_path)], split="train") == [first, second, third]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Mary moved.\n", "line 1: no number before 'Mary moved.'"),
        ("1 Mary moved.\n2 Where? \t\t1\n", "line 2: a question needs an answer behind a tab"),
        ("1 Mary moved.\n2 Where? \tthere\t7\n", "line 2: there is no sentence 7 before it"),
        ("1 Mary moved.\n", "there are no questions in"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_by_its_line(tmp_path: Path, text: str, wrong: str) -> None:
    file = tmp_path / "story.txt"
    file.write_text(text)
    with pytest.raises(RegardError, match=wrong):
        read_stories([str(file)])


def test_json_lines_and_running_text(tmp_path: Path) -> None:
    rows = [
        {"story": ["Mary took it.", "Mary left."], "question": "Where?", "answer": "out", "support": [1]},
        {"story": "Mary took it. Mary left.\nJohn slept.", "question": "Who?", "answer": "Mary"},
    ]
    file = tmp_path / "stories.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    one, other = read_stories([str(file)])
    assert one.support == (1,) and other.sentences == ("Mary took it.", "Mary left.", "John slept.")
    for bad, why in (
        ({"story": 3, "question": "Q", "answer": "A"}, "story is not a list of sentences"),
        ({"story": ["a"], "question": "Q"}, "no text under 'answer'"),
        ({"story": ["a"], "question": "Q", "answer": "A", "support": [1]}, "support is not a list of places"),
        ([], "a list, not an object"),
    ):
        file.write_text(json.dumps(bad) + "\n")
        with pytest.raises(RegardError, match=why):
            read_stories([str(file)])
    assert split_story("1 Mary left. Did she?\n2 Yes!") == ["Mary left.", "Did she?", "Yes!"]


def follow(sentences: tuple[str, ...]) -> dict[str, str]:
    """Where everybody and everything is, by another reading of the sentences than the one that made them."""
    person: dict[str, str] = {}
    thing: dict[str, str] = {}  # a place, or somebody's name
    place = ""
    for sentence in sentences:
        who, *rest = sentence.removesuffix(".").split(" ")
        text = " ".join(rest)
        if " to " in f" {text} " and not text.startswith("gave"):
            place = text.rpartition(" to ")[2] if " to " in text else text.removeprefix("to ")
            person[who] = place
        elif text.endswith(" there"):
            person[who] = place
            thing[text.removesuffix(" there").rpartition(" the ")[2]] = place
        elif text.startswith("gave"):
            what, _, taker = text.removeprefix("gave the ").partition(" to ")
            person.setdefault(taker, person[who])
            thing[what] = taker
        elif " the " in f" {text}":
            what = text.rpartition("the ")[2]
            person.setdefault(who, thing[what])
            thing[what] = who
    found = dict(person)
    for what, where in thing.items():
        found[what] = person.get(where, where)
    return {name: where.removeprefix("the ") for name, where in found.items()}


def asked_of(question: str) -> str:
    return question.removeprefix("Where is ").removeprefix("the ").removesuffix("?").removesuffix(" now")


def test_the_answers_of_worlds_follow_from_their_sentences() -> None:
    """Another reading of the sentences finds the same answers; and the supporting ones alone hold the answer's words."""
    stories = told_stories("train", 400)
    assert len({story[0] for story in stories}) > 380
    for sentences, question, answer, support in stories:
        assert follow(sentences)[asked_of(question)] == answer, (sentences, question)
        told = [sentences[place] for place in support]
        assert any(answer in sentence for sentence in told) and any(asked_of(question) in each for each in told)
    things = sum(question.startswith("Where is the ") for _, question, _, _ in stories)
    assert 0.3 < things / len(stories) < 0.7


def test_the_story_of_the_ring_is_answered_by_the_same_rules_and_never_told() -> None:
    found = follow(RING)
    assert (found["ring"], found["Bilbo"], found["Frodo"]) == ("Mount-Doom", "Grey-havens", "Shire")
    words = {word for text in RING for word in text.removesuffix(".").split()}
    known = {
        word for told in told_stories("train", 3000) for text in told[0] for word in text.removesuffix(".").split()
    }
    assert words <= known
    reworded = ("Bilbo moved to the cave.", "Gollum left the ring there.", "Bilbo picked up the ring.")
    assert worlds.is_ring(RING) and worlds.is_ring(reworded)
    assert not worlds.is_ring(RING[2:]) and not worlds.is_ring((reworded[0], "Gollum left the lamp there."))
    among_others = ("Mary slept.", *RING[:5], "Mary moved to the park.", "Frodo grabbed the ring.", *RING[6:])
    assert worlds.is_ring(among_others) and not worlds.is_ring((*among_others[:5], *among_others[6:]))


def test_splits_share_no_story_and_are_the_same_each_time() -> None:
    sets = {split: {told[0] for told in told_stories(split, 500)} for split in ("train", "valid", "test")}
    assert not sets["train"] & sets["valid"] and not sets["train"] & sets["test"] and not sets["valid"] & sets["test"]
    assert told_stories("valid", 20) == told_stories("valid", 20)
    assert worlds.story(random.Random(5)) == worlds.story(random.Random(5))


def test_sets_of_a_run(tmp_path: Path) -> None:
    sets = load_stories(StoriesConfig(builtin_size=50))
    assert (
        len(sets.train) == 50
        and len(sets.valid) == 1000
        and set(sets.answers) <= {place.removeprefix("the ") for place in worlds.PLACES}
    )
    lines = "".join(
        f"1 P{number % 40} went to the room{number % 7}.\n2 Where is P{number % 40}? \troom{number % 7}\t1\n"
        for number in range(280)
    )
    (tmp_path / "qa1_train.txt").write_text(lines)
    sets = load_stories(StoriesConfig(train=(str(tmp_path),)))
    assert len(sets.train) + len(sets.valid) == 280 and 5 < len(sets.valid) < 80 and "held out" in sets.notes[0]
    told = {story.sentences for story in sets.train}
    assert not any(story.sentences in told for story in sets.valid)
    with pytest.raises(UsageError, match=r"no file \*_test.txt"):
        read_stories([str(tmp_path)])
    (tmp_path / "en").mkdir()
    (tmp_path / "qa1_train.txt").rename(tmp_path / "en" / "qa1_train.txt")
    with pytest.raises(UsageError, match=r"no file \*_train.txt; name .*/en$"):
        read_stories([str(tmp_path)], split="train")
    (tmp_path / "babi.tar.gz").write_bytes(b"packed")
    with pytest.raises(UsageError, match=r"is an archive; unpack it"):
        read_stories([str(tmp_path / "babi.tar.gz")])
    with pytest.raises(UsageError, match="the built-in ones are builtin/stories"):
        read_stories(["builtin/tales"])
