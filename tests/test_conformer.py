"""The Conformer: relative attention and convolution against plain loops, padding, causality, CTC against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.attention import Causal, Lengths, MultiHead, record
from regard.attention.relative import TransformerXL, shifted
from regard.blocks.conformer import ConformerBlock, ConvolutionModule
from regard.bundle import Bundle, BundleConfig
from regard.data.sound.batch import SoundBatch, SpeechBatch
from regard.data.sound.batches import speech_batch
from regard.data.sound.config import SoundFormat
from regard.decode.ctc import align, collapse, greedy, log_probability, prefix_beam, spans
from regard.evaluate.words import edits_between, score_words
from regard.models.configs.hearing import ConformerConfig, ConformerTransformerConfig
from regard.models.conformer import (
    BLANK,
    Conformer,
    ConformerCTC,
    ConformerTransformer,
    SoundClassifier,
    Subsampling,
    ctc_sum,
)
from regard.models.table import build
from regard.tasks.transcribe.predictor import Transcriber
from regard.tokens import PAD, TokenizerPair, TokensConfig, train_tokenizer
from regard.verify import verify

SIZES = {"layers": 1, "width": 12, "heads": 3, "feed_forward": 7, "kernel": 5, "channels": 3, "dropout": 0.0}
SOUND = SoundFormat(rate=8000, mels=11)
WORDS = ("one two three four five six seven",)


@pytest.fixture(autouse=True)
def doubles() -> None:
    torch.manual_seed(3)


def test_relative_attention_is_that_of_a_plain_loop() -> None:
    width, heads, places, head_width = 12, 3, 7, 4
    layer = MultiHead(width, heads, role="self", relative=TransformerXL(heads, head_width)).double()
    relative = layer.relative
    assert isinstance(relative, TransformerXL)
    nn.init.normal_(relative.offset)
    nn.init.normal_(layer.query.bias)
    x = torch.randn(2, places, width, dtype=torch.float64)
    found = layer(x, x, Lengths(torch.tensor([7, 5])))
    q = (x @ layer.query.weight.T).unflatten(-1, (heads, head_width))  # without u, which is the layer's bias
    k, v = layer.key_value(x).unflatten(-1, (2, heads, head_width)).unbind(2)
    u = layer.query.bias.unflatten(0, (heads, head_width))
    seen = torch.zeros(2, places, heads, head_width, dtype=torch.float64)
    for b, t, h in itertools.product(range(2), range(places), range(heads)):
        keys = range((7, 5)[b])
        scores = []
        for s in keys:
            r = sinusoid_by_hand(t - s, width)
            projected = (relative.project.weight @ r).unflatten(0, (heads, head_width))[h]
            content = (q[b, t, h] + u[h]) @ k[b, s, h]
            place = (q[b, t, h] + u[h] + relative.offset[h, 0]) @ projected  # v = u + offset
            scores.append((content + place) / math.sqrt(head_width))
        weights = torch.stack(scores).softmax(dim=0)
        seen[b, t, h] = sum(weights[s] * v[b, s, h] for s in keys)
    torch.testing.assert_close(found, layer.out(seen.flatten(2)), atol=1e-12, rtol=1e-9)


def sinusoid_by_hand(distance: int, width: int) -> Tensor:
    angles = [distance / 10_000 ** (2 * i / width) for i in range(width // 2)]
    return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)


def test_shifting_moves_each_row_by_its_own_way() -> None:
    x = torch.randn(2, 3, 5, 11)
    found = shifted(x)[..., :7]
    for t, s in itertools.product(range(5), range(7)):
        torch.testing.assert_close(found[:, :, t, s], x[:, :, t, 5 - 1 - t + s])


def test_recorded_weights_of_relative_attention_rebuild_its_output() -> None:
    model = Conformer(ConformerConfig(**SIZES), SOUND).double().eval()
    with record(model) as seen:
        model(torch.randn(2, 29, 11, dtype=torch.float64), torch.tensor([29, 17]))
    assert len(seen.calls) == 1
    for call in seen.calls:
        torch.testing.assert_close(call.rebuilt(), call.out)


@pytest.mark.parametrize("causal", [False, True])
def test_the_convolution_module_is_that_of_a_plain_loop(causal: bool) -> None:
    width, kernel, places = 5, 4, 9
    module = ConvolutionModule(width, kernel, causal=causal).double()
    x = torch.randn(1, places, width, dtype=torch.float64)
    both = x[0] @ module.expand.weight.T + module.expand.bias
    gated = both[:, :width] * both[:, width:].sigmoid()
    first = kernel - 1 if causal else (kernel - 1) // 2
    out = torch.zeros(places, width, dtype=torch.float64)
    for t, tap in itertools.product(range(places), range(kernel)):
        if 0 <= t - first + tap < places:
            out[t] += module.depthwise.weight[:, 0, tap] * gated[t - first + tap]
    y = module.norm(out + module.depthwise.bias)
    torch.testing.assert_close(module(x)[0], (y * y.sigmoid()) @ module.project.weight.T + module.project.bias)


def test_the_block_is_its_equations() -> None:
    width = 12
    attention = MultiHead(width, 3, role="self", relative=TransformerXL(3, 4))
    block = ConformerBlock(attention, ConvolutionModule(width, 5), width, 7, 0.0).double().eval()
    x = torch.randn(2, 11, width, dtype=torch.float64)
    y = x + 0.5 * block.first.layer(block.around_first.norm(x))
    z = block.around_attention.norm(y)
    y = y + attention(z, z, None)
    y = y + block.convolution(block.around_convolution.norm(y))
    y = y + 0.5 * block.second.layer(block.around_second.norm(y))
    torch.testing.assert_close(block(x, None, None), block.norm(y))


@pytest.mark.parametrize("subsampling", [1, 2, 4, 8])
def test_a_causal_conformer_sees_nothing_later(subsampling: int) -> None:
    model = Conformer(ConformerConfig(**SIZES, subsampling=subsampling, causal=True), SOUND).double().eval()
    frames, lengths = torch.randn(1, 43, 11, dtype=torch.float64), torch.tensor([43])
    before = model(frames, lengths).vectors
    frames[:, 24:] += 1.0
    after = model(frames, lengths).vectors
    cut = -(-24 // subsampling)  # frame i of the blocks sees frames of sound up to i · subsampling
    torch.testing.assert_close(after[:, :cut], before[:, :cut])
    assert not torch.allclose(after[:, cut:], before[:, cut:])
    plain = Conformer(ConformerConfig(**SIZES, subsampling=subsampling), SOUND).double().eval()
    assert not torch.allclose(plain(frames, lengths).vectors[:, 0], plain(frames * 1.1, lengths).vectors[:, 0])


@pytest.mark.parametrize("causal", [False, True])
def test_subsampling_halves_lengths_and_hides_what_is_behind(causal: bool) -> None:
    layer = Subsampling(11, 3, 7, 2, causal=causal).double()
    frames = torch.randn(3, 29, 11, dtype=torch.float64)
    lengths = torch.tensor([29, 18, 5])
    found, halved = layer(frames, lengths)
    assert found.shape == (3, 8, 7) and halved.tolist() == [8, 5, 2]
    for row, (length, new) in enumerate(zip(lengths.tolist(), halved.tolist(), strict=True)):
        alone, _ = layer(frames[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(found[row, :new], alone[0])


def paths(frames: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of every text, by adding up every path."""
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(frames.shape[1]), repeat=len(frames)):
        text = collapse(np.array(path), BLANK)
        found[text] = found.get(text, 0.0) + math.exp(sum(frames[t, symbol] for t, symbol in enumerate(path)))
    return found


def random_frames(seed: int, places: int = 5, symbols: int = 3) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(size=(places, symbols)) * 1.5
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("seed", range(4))
def test_prefix_beam_search_is_exhaustive_on_a_small_alphabet(seed: int) -> None:
    frames = random_frames(seed)
    every = paths(frames)
    found = prefix_beam(frames, 1000, BLANK)
    assert {told.ids for told in found} == set(every)
    for told in found:
        assert told.log_probability == pytest.approx(math.log(every[told.ids]))
    best = max(every, key=lambda text: every[text])
    assert prefix_beam(frames, 8, BLANK)[0].ids == best == found[0].ids
    for text in list(every)[:9]:
        assert log_probability(frames, text, BLANK) == pytest.approx(math.log(every[text]))


def test_greedy_takes_the_likeliest_path_which_need_not_be_the_likeliest_text() -> None:
    frames = np.log(np.array([[0.6, 0.4], [0.6, 0.4]]))  # "" by one path of 0.36, "a" by three of 0.64
    assert greedy(frames, BLANK).ids == () and prefix_beam(frames, 4, BLANK)[0].ids == (1,)
    assert collapse(np.array([1, 1, 0, 1, 2, 2, 0]), BLANK) == (1, 1, 2)


@pytest.mark.parametrize("text", [(1, 2), (1, 1), (2,), (1, 2, 1)])
def test_alignment_is_the_likeliest_of_all_paths(text: tuple[int, ...]) -> None:
    frames = random_frames(7)
    every = [p for p in itertools.product(range(3), repeat=5) if collapse(np.array(p), BLANK) == text]
    best = max(every, key=lambda path: sum(frames[t, symbol] for t, symbol in enumerate(path)))
    found = align(frames, text, BLANK)
    assert tuple(text[place] if place >= 0 else BLANK for place in found) == best
    assert all(first < end for first, end in spans(found, len(text)))
    assert len(align(frames[:1], text, BLANK)) == (1 if len(text) == 1 else 0)


def speech(rows: int = 3) -> SpeechBatch:
    dice = torch.Generator().manual_seed(1)
    frames = torch.randn(rows, 31, 11, generator=dice, dtype=torch.float64)
    texts = [np.array([1, *row, 2]) for row in ([4, 5, 5], [6], [5, 4])]
    return speech_batch(frames, torch.tensor([31, 23, 29]), texts[:rows], PAD)


def forward_backward(logits: Tensor, text: list[int]) -> tuple[float, Tensor]:
    """-log p(text) and its gradient in the logits, by sums over states from both ends (Graves et al. 2006, eq. 14 to 16)."""
    shares = logits.softmax(dim=-1)
    symbols = [BLANK]
    for token in text:
        symbols += [token, BLANK]
    places, states = len(shares), len(symbols)

    def may(before: int, after: int) -> bool:
        skip = after - before == 2 and symbols[after] != BLANK and symbols[after] != symbols[before]
        return after - before in (0, 1) or skip

    ahead, behind = torch.zeros(places, states), torch.zeros(places, states)
    ahead, behind = ahead.double(), behind.double()
    for s in range(min(2, states)):
        ahead[0, s] = shares[0, symbols[s]]
        behind[-1, states - 1 - s] = 1.0
    for t in range(1, places):
        for s in range(states):
            ahead[t, s] = shares[t, symbols[s]] * sum(ahead[t - 1, p] for p in range(states) if may(p, s))
    for t in range(places - 2, -1, -1):
        for s in range(states):
            behind[t, s] = sum(behind[t + 1, n] * shares[t + 1, symbols[n]] for n in range(states) if may(s, n))
    total = float(ahead[-1, -2:].sum())
    gradient = shares.clone()
    for t, s in itertools.product(range(places), range(states)):
        gradient[t, symbols[s]] -= ahead[t, s] * behind[t, s] / total
    return -math.log(total), gradient


def test_the_ctc_loss_and_its_gradient_are_those_of_the_forward_backward_sums() -> None:
    model = ConformerCTC(ConformerConfig(**SIZES), SOUND, 7).double()
    batch = speech()
    logits = model.logits(batch).detach().requires_grad_()
    lengths = model.encoder.lengths(batch.lengths)
    loss = ctc_sum(logits, lengths, batch)
    loss.backward()
    total = 0.0
    assert logits.grad is not None
    for row, text in enumerate(([4, 5, 5], [6], [5, 4])):
        value, gradient = forward_backward(logits[row, : lengths[row]].detach(), text)
        total += value
        torch.testing.assert_close(logits.grad[row, : lengths[row]], gradient, atol=1e-9, rtol=1e-6)
        assert float(logits.grad[row, lengths[row] :].abs().sum()) == 0.0
    assert float(loss.detach()) == pytest.approx(total)
    assert float(model(batch).parts["nll"].sum) == pytest.approx(total)


def test_a_joint_loss_is_the_weighted_sum_of_both() -> None:
    model = ConformerTransformer(ConformerTransformerConfig(**SIZES, ctc_weight=0.3), SOUND, 7).double().eval()
    batch, parts = speech(), model(speech()).parts
    logits = model.logits(batch).detach().log_softmax(dim=-1)
    rows = zip(logits, batch.target[:, 1:], batch.target_lengths.tolist(), strict=True)
    nll = -sum(float(row[:size].gather(1, ids[:size, None]).sum()) for row, ids, size in rows)
    assert float(parts["nll"].sum) == pytest.approx(nll)
    assert float(parts["loss"].sum) == pytest.approx(0.7 * nll + 0.3 * float(parts["ctc"].sum))
    alone = ConformerTransformer(ConformerTransformerConfig(**SIZES, ctc_weight=0), SOUND, 7)
    assert (
        alone.ctc is None
        and "ctc" not in alone(speech().__class__(**{**vars(batch), "frames": batch.frames.float()})).parts
    )


def made(task: str, config: ConformerConfig | ConformerTransformerConfig) -> Bundle:
    tokens = TokensConfig(kind="word", min_count=1)
    labels = ("a", "b", "c") if task == "classify-sounds" else ()
    tokenizer = train_tokenizer(WORDS * 3, tokens)
    words = () if labels else (tokenizer.size,)
    model = build(task, config, words, labels=len(labels), sounds=SOUND)
    about = BundleConfig(
        task=task, labels=labels, sounds=SOUND, tokens=None if labels else tokens, vocabulary=words, model=config
    )
    return Bundle(about, model, None if labels else TokenizerPair(tokenizer, tokenizer), {})


CASES = {
    "ctc": ("transcribe", ConformerConfig(**SIZES)),
    "ctc causal": ("transcribe", ConformerConfig(**SIZES, causal=True, subsampling=2)),
    "both": ("transcribe", ConformerTransformerConfig(**SIZES, decoder_layers=1)),
    "attention": ("transcribe", ConformerTransformerConfig(**SIZES, decoder_layers=1, ctc_weight=0)),
    "labels": ("classify-sounds", ConformerConfig(**SIZES, subsampling=1)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_kind_that_hears_keeps_the_invariants(case: str) -> None:
    checks = verify(made(*CASES[case]))
    assert [check for check in checks if check.passed is False] == []
    passed = {check.name for check in checks if check.passed}
    assert {"batched = single", "padded = unpadded", "accumulated = large batch", "recorded weights = output"} <= passed
    assert ("cached = uncached" in passed) == (case in ("both", "attention"))


def test_hypotheses_of_both_searches_are_ranked_by_both() -> None:
    bundle = made("transcribe", ConformerTransformerConfig(**SIZES, decoder_layers=1))
    transcriber = Transcriber(bundle)
    torch.nn.init.normal_(bundle.model.get_submodule("ctc").weight)  # type: ignore[arg-type]
    with torch.no_grad():
        bundle.model.get_parameter("ctc.bias")[1:4] = -1e4  # begin, end and unknown, which a search never takes
    frames, lengths = torch.randn(2, 41, 11), torch.tensor([41, 30])
    options = transcriber.options({"beam": 3, "length_penalty": "none"})
    by = {share: transcriber.search(frames, lengths, options, share) for share in (0.0, 0.4, 1.0)}
    model: ConformerTransformer = bundle.model  # type: ignore[assignment]
    for row in range(2):
        assert {each.ids for each in by[0.4][row]} == {each.ids for share in (0.0, 1.0) for each in by[share][row]}
        for each in by[0.4][row]:
            count = int(lengths[row])
            batch = speech_batch(
                frames[row : row + 1, :count], lengths[row : row + 1], [np.array([1, *each.ids, 2])], PAD
            )
            with torch.no_grad():
                parts = model.eval()(batch).parts
            wanted = -0.6 * float(parts["nll"].sum) - 0.4 * float(parts["ctc"].sum)
            if float(parts["ctc"].sum):  # else the text has no room in the frames
                assert each.log_probability == pytest.approx(wanted, abs=1e-3)
        assert [each.log_probability for each in by[0.4][row]] == sorted(
            (e.log_probability for e in by[0.4][row]), reverse=True
        )


def test_a_classifier_takes_the_mean_of_real_frames() -> None:
    model = SoundClassifier(ConformerConfig(**SIZES, subsampling=1), SOUND, 5).double().eval()
    frames, lengths = torch.randn(2, 13, 11, dtype=torch.float64), torch.tensor([13, 8])
    vectors = model.encoder(frames, lengths).vectors
    expected = torch.stack([model.head(vectors[row, :length].mean(dim=0)) for row, length in enumerate((13, 8))])
    torch.testing.assert_close(model.logits(SoundBatch(frames, lengths, torch.zeros(2).long())), expected)
    assert all(name.startswith("encoder.") for name in model.hidden_matrices())


def distance_by_recursion(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(
        distance_by_recursion(a[1:], b[1:]) + (a[0] != b[0]),
        distance_by_recursion(a[1:], b) + 1,
        distance_by_recursion(a, b[1:]) + 1,
    )


@pytest.mark.parametrize(
    ("wanted", "found"), [("abcd", "xbd"), ("", "ab"), ("abc", ""), ("kitten", "sittin"), ("ab", "ba")]
)
def test_edits_are_the_fewest(wanted: str, found: str) -> None:
    edits = edits_between(wanted, found)
    assert edits.total == distance_by_recursion(wanted, found)
    assert len(wanted) - edits.deletions + edits.insertions == len(found)


def test_error_rates_are_sums_over_sums() -> None:
    scores = score_words(["one two", "three", "six seven eight"], ["one two", "tree four", "six seven"])
    assert scores.wer.value == pytest.approx(100 * (0 + 2 + 1) / 6) and scores.words == 6
    letters = distance_by_recursion("tree four", "three") + len(" eight")
    assert scores.cer.value == pytest.approx(100 * letters / (7 + 9 + 9))
    assert scores.exact == pytest.approx(100 / 3) and scores.wer.low <= scores.wer.value <= scores.wer.high
    assert (scores.edits.substitutions, scores.edits.deletions, scores.edits.insertions) == (1, 1, 1)


def test_masks_join_causality_and_length() -> None:
    both = Lengths(torch.tensor([2])) & Causal()
    assert both.dense(3, 3)[0, 0].tolist() == [[True, False, False], [True, True, False], [True, True, False]]
