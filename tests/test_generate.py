"""Going on with a text: what is streamed, where it ends, samples and beams, beyond the context, and what a text scores."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.decode.config import DecodeConfig
from regard.errors import RegardError, UsageError
from regard.models.config import GPT2Config, LlamaConfig, LSTMConfig
from regard.models.table import build
from regard.tasks.generate.predictor import Generator
from regard.tokens import END, SPECIAL, TextTokenizer, TokenizerPair, TokensConfig, train_tokenizer

TEXTS = [
    "The baker sang in the morning. The cat never saw the moon, and the moon never saw the cat.",
    "人生 若只如初見，何事秋風悲畫扇。 👩‍👩‍👧 🇫🇮 smile 😀!",
    "one two STOP three STO four",
]
KINDS = ("byte", "bpe", "character", "word", "space", "wordpiece")
GREEDY = {"sample": False, "beam": 1}
SAMPLE = {"sample": True, "temperature": 1.0, "top_p": 1.0}


class Script(nn.Module):
    """Says the same ids, one after the other, whatever it reads, and then the end."""

    longest = None

    def __init__(self, ids: Sequence[int], vocabulary: int) -> None:
        super().__init__()
        self.ids, self.vocabulary, self.steps = [*ids, END], vocabulary, 0
        self.nothing = nn.Parameter(torch.zeros(1))

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, int]:
        return self._say(0, prefix.size(0), 1), 1

    def step(self, ids: Tensor, state: int) -> tuple[Tensor, int]:
        self.steps += 1
        return self._say(state, *ids.shape), state + 1

    def reorder(self, state: int, parents: Tensor) -> int:
        return state

    def keep(self, state: int, rows: Tensor) -> int:
        return state

    def _say(self, place: int, rows: int, width: int) -> Tensor:
        logits = torch.zeros(rows, width, self.vocabulary)
        logits[..., self.ids[min(place, len(self.ids) - 1)]] = 99.0
        return logits


class Markov(nn.Module):
    """What comes next depends on the last token alone: a table that brute force can read."""

    longest = None

    def __init__(self, vocabulary: int, seed: int = 5) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(2 * torch.randn(vocabulary, vocabulary, generator=draw))

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, None]:
        return self.table.detach()[prefix[:, -1:]], None

    def step(self, ids: Tensor, state: None) -> tuple[Tensor, None]:
        return self.table.detach()[ids], None

    def reorder(self, state: None, parents: Tensor) -> None:
        return None

    def keep(self, state: None, rows: Tensor) -> None:
        return None


def tokenizer_of(kind: str, texts: Sequence[str] = TEXTS) -> TextTokenizer:
    return train_tokenizer(texts, TokensConfig(kind=kind, size=340, min_count=1))  # type: ignore[arg-type]


TOKENIZERS = {kind: tokenizer_of(kind) for kind in KINDS}
LETTERS = tokenizer_of("character", ["abc"])


def generator_of(model: nn.Module, tokenizer: TextTokenizer, config: Any = None, **decode: Any) -> Generator:
    bundle = BundleConfig(
        task="generate",
        tokens=TokensConfig(),
        vocabulary=(tokenizer.size,),
        model=config or LlamaConfig(max_length=7, positions="alibi"),  # of any length
        decode=DecodeConfig(**decode),
    )
    return Generator(Bundle(bundle, model.eval(), TokenizerPair(tokenizer, tokenizer), {}))


def scripted(kind: str, ids: Sequence[int]) -> Generator:
    return generator_of(Script(ids, TOKENIZERS[kind].size), TOKENIZERS[kind])


def streamed(generator: Generator, prompt: str, **options: Any) -> tuple[str, list[str]]:
    """The text, and the pieces in which it came."""
    pieces: list[str] = []
    found = generator.generate(prompt, stream=pieces.append, **{**GREEDY, "max_length": 90, **options})
    return found.text, pieces


# --- text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_the_text_is_what_decoding_adds_and_is_streamed_to_the_letter(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    for cut in (0, 4, len(ids) // 2):
        prompt = tokenizer.decode(ids[:cut])
        if tokenizer.encode(prompt) != ids[:cut]:
            continue  # inside of a letter or a word
        found, pieces = streamed(scripted(kind, ids[cut:]), prompt)
        assert prompt + found == tokenizer.decode(ids)
        assert "".join(pieces) == found and "\ufffd" not in found
        if kind in ("byte", "bpe"):
            assert prompt + found == text


@pytest.mark.parametrize("seed", range(6))
def test_bytes_that_are_no_letters_are_neither_in_the_text_nor_streamed(seed: int) -> None:
    """The bug: the text was without them but they had been streamed, so that a terminal showed another text."""
    tokenizer, draw = TOKENIZERS["byte"], random.Random(seed)
    some = [b"a", b"\xe6", b"\x97", "日".encode(), b"\xf0\x9f", "😀".encode(), b"b"]
    data = b"".join(draw.choices(some, k=23))
    known = "a b 日 😀"
    ids_of = dict(zip(known.encode(), tokenizer.encode(known), strict=True))
    found, pieces = streamed(scripted("byte", [ids_of[number] for number in data]), "x")
    assert found == "".join(pieces) == data.decode("utf-8", errors="ignore")


def test_several_prompts_equal_single_calls() -> None:
    generator = generator_of(Markov(LETTERS.size), LETTERS)
    prompts = ["a", "abc", "", "c", "cc", "b", "abca"]
    for options in (GREEDY, {"beam": 3}, {"beam": 3, "n_best": 2}):
        both = generator.generate(prompts, max_length=6, **options)
        assert both == [generator.generate(prompt, max_length=6, **options) for prompt in prompts]
    assert generator.generate([], max_length=6, **GREEDY) == []


def test_samples_follow_from_the_seed_and_not_from_the_batch() -> None:
    generator = generator_of(Markov(LETTERS.size), LETTERS)
    prompts = ["a", "bc", "b", "", "a", "cab"]
    options = {**SAMPLE, "max_length": 9, "n_best": 3, "seed": 11}
    once = generator.generate(prompts, **options)
    for size in (1, 2, 3):
        assert generator.generate(prompts, batch_sentences=size, **options) == once
    assert generator.generate(prompts, **{**options, "seed": 12}) != once
    assert once[0].text != once[4].text or once[0].alternatives != once[4].alternatives  # one prompt, two places


def test_a_log_probability_is_the_sum_of_the_models_own() -> None:
    generator = generator_of(Markov(LETTERS.size), LETTERS)
    table = generator.model.table.detach().double().log_softmax(dim=-1)
    for found in generator.generate(["a", "cb"], max_length=7, temperature=0.7, sample=True, top_k=3, n_best=4):
        for each in (found, *found.alternatives):
            ids = [LETTERS.encode(each.prompt)[-1], *LETTERS.encode(each.text), END]
            hand = [float(table[before, after]) for before, after in itertools.pairwise(ids)]
            assert each.token_log_probabilities == pytest.approx(hand, abs=1e-5)
            assert each.log_probability == pytest.approx(math.fsum(hand), abs=1e-4)


# --- stop strings


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (["STOP"], "one two "),
        (["three", "STOP"], "one two "),
        (["three", "two STOP th"], "one "),
        (["nowhere", "four"], "one two STOP three STO "),
        (["one"], ""),
    ],
)
def test_a_text_ends_before_the_first_stop_string(kind: str, stop: list[str], text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(TEXTS[2])
    generator = scripted(kind, ids)
    found, pieces = streamed(generator, "", stop=stop)
    assert found == "".join(pieces) == text
    needed = next(n for n in range(1, len(ids) + 1) if any(each in tokenizer.decode(ids[:n]) for each in stop))
    assert generator.model.steps == needed - 1  # not one token more than it takes
    assert generator.generate("", stop=stop, max_length=90, **GREEDY).finished


def test_a_stop_string_that_begins_with_the_first_token() -> None:
    """The bug: a space before the first new word was not seen, and the text was written to its limit to be cut to ""."""
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer.encode("one two three")
    before = len(tokenizer.encode("one"))
    generator = scripted("bpe", ids[before:])
    assert streamed(generator, "one", stop=[" two"])[0] == ""
    assert generator.model.steps < len(ids) - before


def test_a_stop_string_in_the_prompt_ends_nothing() -> None:
    ids = TOKENIZERS["byte"].encode("b c")
    assert streamed(scripted("byte", ids), "STOP a STO", stop=["STOP"])[0] == "b c"


def test_a_stop_string_of_several_bytes_and_far_away() -> None:
    text = "秋風" * 30
    ids = TOKENIZERS["byte"].encode(text + "悲畫扇")
    found, pieces = streamed(scripted("byte", ids), "初", stop=["悲畫"], max_length=300)
    assert found == "".join(pieces) == text


def test_what_may_begin_a_stop_string_is_held_back_until_it_is_known() -> None:
    generator = scripted("byte", TOKENIZERS["byte"].encode("a STO b ST"))
    found, pieces = streamed(generator, "", stop=["STOP"])
    assert found == "a STO b ST" == "".join(pieces)
    upto = ["".join(pieces[:n]) for n in range(len(pieces))]
    assert not any(each.endswith(("S", "ST")) for each in upto)


def test_wrong_use_is_told() -> None:
    generator = scripted("byte", [9])
    with pytest.raises(UsageError, match="an empty stop string ends every text before it begins"):
        generator.generate("a", stop=["x", ""])
    for prompt, options in ((["a", "b"], GREEDY), ("a", {"beam": 2}), ("a", {"sample": True, "n_best": 2})):
        with pytest.raises(UsageError, match="stream is for one prompt and one sequence"):
            generator.generate(prompt, stream=print, **options)  # type: ignore[call-overload]
    with pytest.raises(RegardError, match="no key heat"):
        generator.generate("a", heat=3)


def test_a_stream_needs_no_word_about_a_beam_that_nobody_gave() -> None:
    """The bug: the options of an imported bundle are those of a beam search, and streaming said to leave it out."""
    generator = scripted("byte", [*b"hello", END])
    generator.config = generator.config.model_copy(update={"decode": DecodeConfig()})
    assert generator.config.decode.beam > 1 and not generator.config.decode.sample
    pieces: list[str] = []
    found = generator.generate("a", stream=pieces.append)
    assert "".join(pieces) == found.text == generator.generate("a", sample=False, beam=1).text


def every_text(table: Tensor, limit: int, stop: str, first: int) -> list[tuple[float, str, bool]]:
    """All ways to go on, the likeliest first: log-probability, text before the stop string, whether it ended itself."""
    found: list[tuple[float, str, bool]] = []

    def go_on(ids: list[int], total: float, last: int) -> None:
        text = LETTERS.decode(ids)
        if stop in text:
            found.append((total, text[: text.index(stop)], True))
            return
        willing = len(ids) < limit
        found.append((total + float(table[last, END]), text, willing))
        for token in range(len(SPECIAL), LETTERS.size) if willing else ():
            go_on([*ids, token], total + float(table[last, token]), token)

    go_on([], 0.0, first)
    return sorted(found, key=lambda each: -each[0])


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_a_wide_beam_is_exhaustive_also_with_a_stop_string(seed: int) -> None:
    generator = generator_of(Markov(LETTERS.size, seed), LETTERS)
    table = generator.model.table.detach().double().log_softmax(dim=-1)
    every = every_text(table, 4, "ab", LETTERS.encode("c")[0])
    found = generator.generate("c", stop=["ab"], beam=200, n_best=9, max_length=4, length_penalty="none")
    texts = [found, *found.alternatives]
    assert [each.log_probability for each in texts] == pytest.approx([total for total, _, _ in every[:9]], abs=1e-5)
    assert [each.text for each in texts] == [text for _, text, _ in every[:9]]


def test_samples_end_each_at_its_own_stop_string() -> None:
    generator = generator_of(Markov(LETTERS.size), LETTERS)
    options = {**SAMPLE, "max_length": 30, "n_best": 25, "seed": 3}
    free = generator.generate("a", **options)
    stopped = generator.generate("a", stop=["bc", "ca"], **options)
    texts = sorted(each.text for each in (free, *free.alternatives))
    cut = []
    for text in texts:
        places = [text.index(each) for each in ("bc", "ca") if each in text]
        cut.append(text[: min(places)] if places else text)
    assert sorted(each.text for each in (stopped, *stopped.alternatives)) == sorted(cut)
    assert len(set(texts)) > 10


# --- length, and beyond the context


def small(kind: str) -> Generator:
    """A model with random weights, large enough that every token that it read counts."""
    shape = {"layers": 2, "width": 12, "heads": 3, "feed_forward": 20, "max_length": 11}
    configs: dict[str, Any] = {
        "gpt2": GPT2Config(**shape),
        "llama": LlamaConfig(**shape),
        "alibi": LlamaConfig(**shape, positions="alibi"),
        "lstm": LSTMConfig(width=12, hidden=17),
    }
    torch.manual_seed(4)
    model = build("generate", configs[kind], (LETTERS.size,))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.6)
    return generator_of(model, LETTERS, configs[kind])


def by_hand(generator: Generator, prompt: str, count: int, longest: int | None) -> str:
    """Greedy: read everything again for each token; a full context is cut to its last half."""
    seen, said = [generator.tokenizer.specials.begin, *LETTERS.encode(prompt)], []
    for _ in range(count):
        if longest is not None and len(seen) > longest:
            seen = seen[-(longest // 2) :]
        with torch.no_grad():
            logits = generator.model.output(generator.model.read(torch.tensor([seen])))[0, -1]
        logits[: len(SPECIAL)] = -math.inf
        said.append(int(logits.argmax()))
        seen.append(said[-1])
    return LETTERS.decode(said)


@pytest.mark.parametrize(("kind", "longest"), [("gpt2", 11), ("llama", 11), ("alibi", None), ("lstm", None)])
@pytest.mark.parametrize("prompt", ["", "abcacb", "abc" * 3 + "a", "abc" * 4, "cab" * 11])
def test_beyond_the_context_it_reads_the_last_half_again(kind: str, longest: int | None, prompt: str) -> None:
    generator = small(kind)
    found = generator.generate(prompt, max_length=31, min_length=31, **GREEDY)
    assert found.text == by_hand(generator, prompt, 31, longest)
    assert len(found.tokens) == 31


def test_samples_and_beams_slide_too() -> None:
    generator = small("gpt2")
    for options in ({**SAMPLE, "n_best": 3, "seed": 2}, {"beam": 3, "n_best": 3}):
        found = generator.generate(["ab", "ca"], max_length=29, min_length=29, **options)
        for each in (*found, *(other for one in found for other in one.alternatives)):
            seen = [generator.tokenizer.specials.begin, *LETTERS.encode(each.prompt)]
            hand = []
            for token in [*LETTERS.encode(each.text), END]:
                seen = seen[-5:] if len(seen) > 11 else seen
                with torch.no_grad():
                    logits = generator.model.output(generator.model.read(torch.tensor([seen])))[0, -1]
                hand.append(float(logits.double().log_softmax(dim=-1)[token]))
                seen.append(token)
            assert each.token_log_probabilities == pytest.approx(hand, abs=1e-4)


def test_limits_hold() -> None:
    generator = scripted("byte", TOKENIZERS["byte"].encode("abcde"))
    for length in (0, 1, 4, 5, 9):
        found = generator.generate("x", max_length=length, **GREEDY)
        assert (found.text, found.finished) == ("abcde"[:length], length >= 5)
    with pytest.raises(RegardError, match="min_length 6 is more than max_length 5"):
        generator.generate("ab", max_length=5, min_length=6)


def test_diverged_weights_are_told() -> None:
    generator = small("llama")
    with torch.no_grad():
        next(generator.model.parameters()).fill_(math.nan)
    with pytest.raises(RegardError, match="the model gave NaN"):
        generator.generate("ab", **GREEDY)


# --- scores


@pytest.mark.parametrize("overlap", [0, 1, 5, 10, None])
@pytest.mark.parametrize("size", [1, 10, 11, 12, 40])
def test_a_score_counts_every_token_once_with_the_context_it_has(overlap: int | None, size: int) -> None:
    generator = small("gpt2")
    context, text = 11, ("abcacbbac" * 5)[:size]
    shared = context // 2 if overlap is None else overlap
    ids = [generator.tokenizer.specials.begin, *LETTERS.encode(text)]
    total = 0.0
    for place in range(1, len(ids)):
        start = next(s for s in range(0, len(ids), context - shared) if place <= s + context)
        with torch.no_grad():
            logits = generator.model.output(generator.model.read(torch.tensor([ids[start:place]])))[0, -1]
        total += float(logits.double().log_softmax(dim=-1)[ids[place]])
    [found] = generator.score([text], overlap=overlap)
    assert (found.tokens, found.text) == (size, text)
    assert found.log_probability == pytest.approx(total, abs=1e-3)
    assert found.perplexity == pytest.approx(math.exp(-total / size), rel=1e-4)
    assert found.bits_per_byte == pytest.approx(-total / math.log(2) / size, rel=1e-4)


def test_bits_are_of_bytes_and_not_of_letters() -> None:
    tokenizer = TOKENIZERS["byte"]
    torch.manual_seed(0)
    config = GPT2Config(layers=1, width=8, heads=2, feed_forward=9, max_length=64)
    generator = generator_of(build("generate", config, (tokenizer.size,)), tokenizer, config)
    [found, empty] = generator.score(["日本", ""])
    assert found.tokens == 6
    assert found.bits_per_byte == pytest.approx(math.log2(found.perplexity), rel=1e-6)  # a token is a byte
    assert (empty.tokens, empty.log_probability, empty.perplexity, empty.bits_per_byte) == (0, 0.0, 1.0, 0.0)


def test_where_each_token_looks() -> None:
    seen = small("gpt2").attention("abcab")
    assert seen.map().rows == ("<s>", "a", "b", "c", "a", "b")
    weights = seen.map().weights  # (T, S)
    assert np.nansum(weights, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert np.array_equal(np.isnan(weights), np.triu(np.ones((6, 6), dtype=bool), 1))  # nobody looks ahead
