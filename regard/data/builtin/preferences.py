"""Small talk whose right answer is known by a rule: something nice (a lexicon), the way (politeness), sums in words.

Answers to learn from are of mixed quality, and of a pair of them the rule says which is better, now and then wrongly: so the
truth about a model that learned from them can be measured. No prompt of one split stands in another, and no sum.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache
from itertools import product

from regard.data.held_out import hash_of

CHATS, PREFERENCES = "builtin/chats", "builtin/preferences"
SORTS = ("praise", "directions", "sums")
SEEDS = {"train": 1, "valid": 2, "test": 3}
NOISE = 0.1  # of the pairs are labelled wrongly
LONGEST = 20  # words of an answer, beyond which each costs
RAMBLING = 0.1
OFF = 0.02  # share of answers that are about something else
NO_WAY = 0.1  # share of directions that tell none
RIGHT = 0.5  # of the sums in answers of mixed quality

THINGS = (
    "garden", "film", "soup", "house", "train", "book", "song", "lake", "hotel", "bread", "museum", "coat", "chair", "park",
    "bridge", "play", "cake", "river", "shop", "lamp", "market", "tea", "tower", "story", "beach", "boat", "school", "table",
    "café", "forest", "picture", "room", "street", "view", "village", "window", "castle", "church", "concert", "dress",
    "farm", "field", "fountain", "gallery", "game", "harbour", "hill", "island", "kitchen", "letter", "library", "meal",
    "painting", "palace", "path", "piano", "pool", "ring", "theatre", "valley",
)  # fmt: skip
PLACES = (
    "station", "bank", "baker", "post office", "library", "market", "school", "museum", "park", "harbour", "theatre", "hotel",
    "church", "hospital", "airport", "castle", "cinema", "town hall", "bridge", "pool", "stadium", "bookshop", "fountain",
    "gallery", "tower", "garden", "zoo", "bus stop", "café", "pharmacy", "butcher", "dentist", "university", "prison",
    "palace", "beach", "lighthouse", "factory", "mill", "farm", "chapel", "square", "mosque", "temple", "embassy", "arena",
    "barber", "florist", "jeweller", "tailor", "bakery", "brewery", "court", "depot", "garage", "inn", "kiosk", "monument",
    "office", "tunnel",
)  # fmt: skip
GOOD = (
    "lovely", "charming", "bright", "wonderful", "delightful", "splendid", "pleasant", "superb", "excellent", "beautiful",
    "cheerful", "fine",
)  # fmt: skip
PLAIN = ("big", "old", "new", "small", "round", "red", "quiet", "plain")
BAD = (
    "awful", "ugly", "dull", "dreadful", "boring", "horrid", "dirty", "gloomy", "terrible", "nasty", "poor", "shabby"
)  # fmt: skip
POLITE = ("good morning", "of course", "with pleasure", "thank you", "you are welcome", "have a nice day")
RUDE = ("go away", "find it yourself", "what a silly question", "oh no", "do not ask me", "use your eyes")
WHERE = (
    "behind the park", "next to the river", "on the left", "on the right", "over the bridge", "near the school",
    "at the corner", "in the old town",
)  # fmt: skip
ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
OPENINGS = ("", "Hello. ", "Excuse me. ", "A question. ")
ASKED = {
    "praise": (
        "Say something nice about the {}.", "What is good about the {}?", "Tell me something nice about the {}.",
        "Praise the {}.", "Why do people like the {}?",
    ),
    "directions": (
        "Where is the {}?", "Where do I find the {}?", "How do I get to the {}?", "Which way is the {}?",
        "Can you tell me where the {} is?",
    ),
    "sums": ("What is {}?", "How much is {}?", "Tell me what {} is.", "Add up {}.", "Can you work out {}?"),
}  # fmt: skip


# --- Prompts


def prompts(split: str) -> dict[str, list[str]]:
    """Every prompt of a split, by its sort."""
    return {
        sort: [
            opening + asked.format(thing)
            for opening, asked, thing in product(OPENINGS, ASKED[sort], _things(sort))
            if _split_of(thing if sort == "sums" else opening + asked + thing) == split
        ]
        for sort in SORTS
    }


@lru_cache(maxsize=len(SORTS))
def _things(sort: str) -> tuple[str, ...]:
    """What prompts are about; sums never carry from the ones to the tens."""
    if sort != "sums":
        return THINGS if sort == "praise" else PLACES
    numbers = product(TENS, range(1, 9), range(1, 9))
    return tuple(f"{tens} {ONES[a]} plus {ONES[b]}" for tens, a, b in numbers if a + b <= 9)


def _split_of(text: str) -> str:
    """A tenth of all is for validation, a tenth for the test."""
    return {0: "test", 1: "valid"}.get(hash_of(text) % 10, "train")


def sort_of(prompt: str) -> str | None:
    """The sort of a built-in prompt; None of any other."""
    return _sorts().get(prompt)


@lru_cache(maxsize=1)
def _sorts() -> dict[str, str]:
    return {prompt: sort for split in SEEDS for sort, every in prompts(split).items() for prompt in every}


# --- Answers of mixed quality


def drawn_answer(dice: random.Random, prompt: str) -> str:
    """An answer that is good, bad or in between; now and then one to something else that was not asked."""
    sort, off = sort_of(prompt), dice.random() < OFF
    if sort == "sums":
        return _sum(dice, dice.choice(_sums_like(prompt)) if off else prompt)
    assert sort is not None
    thing = dice.choice(_things(sort)) if off else _named(sort, prompt)
    return _praise(dice, thing) if sort == "praise" else _directions(dice, thing)


@lru_cache(maxsize=len(SEEDS) * 1000)
def _sums_like(prompt: str) -> tuple[str, ...]:
    """The sums of the split of a prompt."""
    first, _, _, b = _terms(prompt)
    split = _split_of(f"{first} plus {ONES[b]}")
    return tuple(each for each in _things("sums") if _split_of(each) == split)


def _named(sort: str, prompt: str) -> str:
    """The thing or the place that a prompt is about: "post office", and not "office"."""
    return next(each for each in sorted(_things(sort), key=len, reverse=True) if f"the {each}" in prompt)


def _praise(dice: random.Random, thing: str) -> str:
    kindness, count = dice.random(), dice.choice((1, 2, 2, 3, 3))
    kinds = [GOOD if dice.random() < kindness else dice.choice((PLAIN, BAD)) for _ in range(count)]
    words = [dice.choice(kind) for kind in kinds]  # now and then one comes twice
    first = dice.choice((f"The {thing} is", f"I find the {thing}", f"They say the {thing} is"))
    return f"{first} {words[0]}." if len(words) == 1 else f"{first} {', '.join(words[:-1])} and {words[-1]}."


def _directions(dice: random.Random, place: str) -> str:
    manners, count = dice.random(), dice.choice((0, 1, 1, 2, 2, 3))
    said = [dice.choice(POLITE if dice.random() < manners else RUDE) for _ in range(count)]
    way = f"the {place} is {dice.choice(WHERE)}"
    parts = said if said and dice.random() < NO_WAY else [way, *said]
    dice.shuffle(parts)
    return _sentence(", ".join(parts))


def _sum(dice: random.Random, prompt: str) -> str:
    first, tens, a, b = _terms(prompt)
    right = dice.random() < RIGHT
    ones = a + b if right else dice.choice([each for each in range(1, 10) if each != a + b])
    kept = tens if right or dice.random() < 0.5 else dice.choice(list(TENS))
    found = f"{kept} {ONES[ones]}"
    return _sentence(f"{first} plus {ONES[b]} is {found}" if dice.random() < 0.4 else found)


def _terms(prompt: str) -> tuple[str, str, int, int]:
    """The first number of a sum, its tens, its ones, and the second number."""
    found = re.search(r"(\w+) (\w+) plus (\w+)", prompt)
    assert found is not None
    return f"{found[1]} {found[2]}", found[1], ONES.index(found[2]), ONES.index(found[3])


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


# --- The rule


def rule_reward(prompt: str, answer: str) -> float | None:
    """How good an answer is by the rule of its prompt's sort: 1 at best, -1 or less at worst; None where no rule is known.

    Praise and directions count what is kind or polite, once each, against what is not; a third each, three are enough. What
    is not about the thing is bad; so is a wrong number. Each word beyond `LONGEST` costs `RAMBLING`.
    """
    sort = sort_of(prompt)
    if sort is None:
        return None
    text = answer.lower()
    reward = _reward_of_sum(prompt, text) if sort == "sums" else _reward_of_words(sort, prompt, text)
    return reward - RAMBLING * max(0, len(text.split()) - LONGEST)


def _reward_of_words(sort: str, prompt: str, text: str) -> float:
    kind, unkind = (GOOD, BAD) if sort == "praise" else (POLITE, RUDE)
    good, bad = (sum(re.search(rf"\b{each}\b", text) is not None for each in words) for words in (kind, unkind))
    if f"the {_named(sort, prompt)}" not in text or (sort == "directions" and not any(each in text for each in WHERE)):
        return -1.0
    return max(-1.0, (min(3, good) - bad) / 3)


def _reward_of_sum(prompt: str, text: str) -> float:
    first, tens, a, b = _terms(prompt)
    right, question = f"{tens} {ONES[a + b]}", f"{first} plus {ONES[b]}"
    bare = re.sub(r"[^a-z ]", "", text).strip()
    if bare == f"{question} is {right}":
        return 1.0
    return 0.5 if bare == right else -1.0


# --- Sets


def made_chats(split: str, count: int) -> list[tuple[str, str]]:
    """Prompts with an answer of mixed quality each, every sort as often."""
    dice, every = random.Random(SEEDS[split]), prompts(split)
    asked = [dice.choice(every[SORTS[number % len(SORTS)]]) for number in range(count)]
    return [(prompt, drawn_answer(dice, prompt)) for prompt in asked]


def made_preferences(split: str, count: int, noise: float = NOISE) -> list[tuple[str, str, str]]:
    """Prompts with two answers, the better one first as the rule says; a share `noise` of training is the wrong way round."""
    dice, every, found = random.Random(10 + SEEDS[split]), prompts(split), list[tuple[str, str, str]]()
    while len(found) < count:
        prompt = dice.choice(every[SORTS[len(found) % len(SORTS)]])
        pair = sorted((drawn_answer(dice, prompt) for _ in range(2)), key=lambda each: -_known(prompt, each))
        if _known(prompt, pair[0]) > _known(prompt, pair[1]):
            wrong = split == "train" and dice.random() < noise
            found.append((prompt, pair[wrong], pair[not wrong]))
    return found


def _known(prompt: str, answer: str) -> float:
    reward = rule_reward(prompt, answer)
    assert reward is not None
    return reward
