"""End-to-end memory networks against the paper's equations in plain loops; and the task around them, from data to answers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.attention import record
from regard.cli.main import run as run_verb
from regard.data.batch import StoryBatch
from regard.data.stories import Story
from regard.data.story_batches import EncodedStory, StoryBatches, story_batch
from regard.models.config import BertConfig, LSTMConfig, MemoryNetworkConfig
from regard.models.memory_network import (
    MemoryNetwork,
    StoryLSTM,
    StoryTransformer,
    place_weights,
    places_of_units,
    with_gaps,
)
from regard.tasks.ask.evaluate import Needing, by_need, support_of
from regard.tasks.ask.predictor import StoryAnswer, StoryReader

VOCABULARY, LABELS, PAD = 30, 4, 0
Numbers = list[list[float]]


def drawn(seed: int, sizes: tuple[int, ...] = (3, 5, 1)) -> list[EncodedStory]:
    dice = np.random.default_rng(seed)
    words = [[dice.integers(5, VOCABULARY, dice.integers(1, 6)) for _ in range(size)] for size in sizes]
    return [EncodedStory(tuple(each), dice.integers(5, VOCABULARY, 3)) for each in words]


def by_hand(model: MemoryNetwork, story: EncodedStory) -> list[float]:
    """Section 2 of the paper, one number after the other."""
    config, d = model.config, model.config.width

    def vector(words: np.ndarray, table: int) -> list[float]:
        weights, total = model.tables[table].weight.tolist(), [0.0] * d
        count = len(words)
        for j, word in enumerate(words.tolist(), start=1):
            for k in range(1, d + 1):
                place = (1 - j / count) - (k / d) * (1 - 2 * j / count) if config.words == "position" else 1.0
                total[k - 1] += place * weights[word][k - 1]
        return total

    def memory(table: int) -> Numbers:
        found = [vector(words, table) for words in story.sentences]
        if config.temporal:
            for place, each in enumerate(found):
                ago = model.ago[table].weight[min(len(found) - 1 - place, config.memory - 1)].tolist()
                found[place] = [a + b for a, b in zip(each, ago, strict=True)]
        return found

    u = vector(story.question, {"adjacent": 0, "layer-wise": 2, "none": 2 * config.hops}[config.tying])
    for hop in range(config.hops):
        first, second = {"adjacent": (hop, hop + 1), "layer-wise": (0, 1), "none": (2 * hop, 2 * hop + 1)}[config.tying]
        m, c = memory(first), memory(second)
        scores = [sum(a * b for a, b in zip(u, each, strict=True)) for each in m]
        top = max(scores)
        p = [math.exp(score - top) for score in scores]
        p = [each / sum(p) for each in p]
        o = [sum(share * each[k] for share, each in zip(p, c, strict=True)) for k in range(d)]
        if model.step is not None:
            u = [sum(w * x for w, x in zip(row, u, strict=True)) for row in model.step.weight.tolist()]
        u = [a + b for a, b in zip(u, o, strict=True)]
        if config.relu:
            u = [max(0.0, x) if k < d // 2 else x for k, x in enumerate(u)]
    assert isinstance(model.head, torch.nn.Linear)
    return [sum(w * x for w, x in zip(row, u, strict=True)) for row in model.head.weight.tolist()]


@pytest.mark.parametrize(
    "over",
    [
        {},
        {"tying": "adjacent"},
        {"tying": "layer-wise"},
        {"relu": False, "hops": 3},
        {"words": "bag", "temporal": False},
        {"hops": 1},
        {"tying": "adjacent", "memory": 2},
    ],
    ids=["no tying", "adjacent", "layer-wise", "not cut", "bag", "one hop", "short memory"],
)
def test_hops_are_the_equations_of_the_paper(over: dict[str, object]) -> None:
    torch.manual_seed(1)
    config = MemoryNetworkConfig(width=6, **over)  # type: ignore[arg-type]
    model = MemoryNetwork(config, VOCABULARY, LABELS).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)  # so that the softmax is far from even
    stories = drawn(2)
    found = model.logits(story_batch(stories, [0] * len(stories), PAD))
    for row, story in zip(found.tolist(), stories, strict=True):
        assert row == pytest.approx(by_hand(model, story), abs=1e-9)


def test_position_encoding_is_the_formula_of_the_paper() -> None:
    """l_kj = (1 - j/J) - (k/d)(1 - 2j/J), and nothing where there is no word."""
    real = torch.tensor([[True, True, True, False]])
    near, far = (part[0].tolist() for part in place_weights(real, torch.float64))
    units = places_of_units(2, torch.zeros(1)).tolist()
    for j in (1, 2, 3):
        found = [near[j - 1] - unit * far[j - 1] for unit in units]
        assert found == pytest.approx([(1 - j / 3) - (k / 2) * (1 - 2 * j / 3) for k in (1, 2)])
    assert near[3] == far[3] == 0


def test_the_softmax_is_left_out_at_first_only_in_training() -> None:
    from regard.noise import noise

    torch.manual_seed(1)
    config = MemoryNetworkConfig(width=6, hops=3, tying="adjacent", relu=False, linear_start=10)
    model = MemoryNetwork(config, VOCABULARY, LABELS).double()
    batch = story_batch(drawn(3), [0, 1, 2], PAD)
    plain = model.eval().logits(batch)
    model.train()
    with noise(1, 20, 0):
        assert torch.equal(model.logits(batch), plain)
    with noise(1, 3, 0):
        linear = model.logits(batch)
    u = model.summed(batch.question[:, None], PAD, 0, 1).flatten(1)
    for hop in range(3):
        m, c = model.memories(batch)[hop]
        scores = torch.einsum("bd,bsd->bs", u, m)
        scores = torch.where(torch.arange(m.size(1)) < batch.sentences[:, None], scores, 0.0)
        scores = scores / batch.sentences[:, None].double().sqrt()
        u = u + torch.einsum("bs,bsd->bd", scores, c)
    assert torch.allclose(linear, model.head(u)) and not torch.allclose(linear, plain)


def test_empty_memories_stand_between_the_sentences_and_change_nothing_else() -> None:
    batch = story_batch(drawn(4, (10, 4, 1)), [0, 1, 2], PAD)
    torch.manual_seed(3)
    seen = 0
    for _ in range(50):
        found = with_gaps(batch, 0.1)
        for row in range(3):
            rows = [sentence for sentence in found.story[row].tolist() if any(sentence)]
            assert rows == [sentence for sentence in batch.story[row].tolist() if any(sentence)]
            count = int(found.sentences[row])
            assert any(found.story[row, count - 1].tolist()) and not found.story[row, count:].any()
        seen += int(found.sentences[0]) - 10
    assert 15 < seen < 85  # of 50 times one place in eleven, less those at the end


def test_a_batch_reads_as_one_text_does() -> None:
    stories = drawn(5)
    flat = story_batch(stories, [0, 1, 2], PAD).flat(7)
    for row, story in enumerate(stories):
        wanted = [7, *(int(word) for sentence in story.sentences for word in sentence), *story.question.tolist()]
        assert flat.ids[row, : int(flat.lengths[row])].tolist() == wanted and not flat.ids[row, len(wanted) :].any()


@pytest.mark.parametrize("mixed", [False, True])
def test_batches_are_all_stories_once_an_epoch_within_their_budget(mixed: bool) -> None:
    stories = drawn(6, tuple(range(1, 30)))
    batches = StoryBatches(stories, np.arange(29), PAD, 300, seed=2, mixed=mixed)
    for epoch in (0, 1):
        rows = [int(row) for index in range(batches.count(epoch)) for row in batches.get(epoch, index).labels]
        assert sorted(rows) == list(range(29))
    assert batches.plan(0)[0].tolist() != batches.plan(1)[0].tolist()
    assert all(batches.get(0, index).padded_tokens <= 320 for index in range(batches.count(0)))


@pytest.mark.parametrize("kind", ["memory-network", "lstm", "bert"])
def test_padding_and_company_change_no_answer(kind: str) -> None:
    torch.manual_seed(1)
    models = {
        "memory-network": lambda: MemoryNetwork(MemoryNetworkConfig(width=8), VOCABULARY, LABELS),
        "lstm": lambda: StoryLSTM(LSTMConfig(width=8, hidden=8), VOCABULARY, LABELS),
        "bert": lambda: StoryTransformer(BertConfig(width=8, heads=2, layers=1, feed_forward=8), VOCABULARY, LABELS),
    }
    model, stories = models[kind]().double().eval(), drawn(7)
    together = model.logits(story_batch(stories, [0, 1, 2], PAD))
    for row, story in enumerate(stories):
        assert torch.allclose(model.logits(story_batch([story], [0], PAD))[0], together[row], atol=1e-10)


def test_supporting_sentences_are_counted_among_what_hops_read_most() -> None:
    told = ("a", "b", "c", "d")
    answer = StoryAnswer(told, "?", "x", 1.0, {"x": 1.0}, ((0.1, 0.7, 0.1, 0.1), (0.6, 0.2, 0.1, 0.1)))
    found = support_of([answer], [Story(("before", *told), "?", "x", (0, 2, 4))])
    assert found is not None and found.questions == 1
    assert found.found == pytest.approx(50.0)  # of b and d, the first; what was cut off does not count
    assert found.chance == pytest.approx(100 * (1 - (3 / 4) ** 2))
    assert support_of([answer], [Story(told, "?", "x")]) is None


def test_answers_are_counted_by_the_sentences_that_they_follow_from() -> None:
    stories = [Story(("a", "b", "c"), "?", "x", support) for support in ((0,), (0, 2), (1,), (0, 1, 2), (1, 2))]
    found = by_need(stories, np.array([True, False, False, True, True]))
    assert found == (Needing(1, 2, 1), Needing(2, 2, 1), Needing(3, 1, 1))
    assert by_need([*stories, Story(("a",), "?", "x")], np.ones(6, dtype=bool)) == ()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ask") / "run"
    options = ["data.builtin_size=600", "train.steps=60", "model.width=24", "train.batch_tokens=2048"]
    assert not run_verb(["train", "ask", *(word for each in options for word in ("--set", each)), "-o", str(folder)])
    return folder


def test_a_story_is_asked_from_the_command_line(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = tmp_path / "story.txt"
    story.write_text("Mary went to the park.\nMary dropped the ring there.\n")
    assert not run_verb(["ask", "-m", str(trained), str(story), "Where is Mary?", "Where is the ring?", "--hops"])
    out = capsys.readouterr().out
    assert out.count("hop 1") == 2 and out.count("Mary went to the park.") == 2 and out.count("*") >= 2
    assert not run_verb(["ask", "-m", str(trained), story.read_text(), "Where is Mary?", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["story"] == ["Mary went to the park.", "Mary dropped the ring there."] and len(found["hops"]) == 4
    assert all(sum(hop) == pytest.approx(1.0, abs=1e-5) for hop in found["hops"])
    for name in ("hops.png", "hops.html"):
        assert not run_verb(["ask", "-m", str(trained), str(story), "Where is Mary?", "-o", str(tmp_path / name)])
        assert (tmp_path / name).stat().st_size > 1000
    assert (
        run_verb(["ask", "-m", str(trained), str(story), " "]) and "no word in the question" in capsys.readouterr().err
    )
    assert not run_verb(["eval", str(trained), "--on", "builtin/stories/test"])
    out = capsys.readouterr().out
    assert "1,000 questions of builtin/stories/test" in out and "supporting sentences" in out
    assert "2 sentences" in out and "the answer follows from" in out


def test_hops_pass_the_recorder_and_rebuild_what_was_read(trained: Path) -> None:
    reader = StoryReader.load(trained)
    (found,) = reader.ask(["Mary went to the park.", "John slept."], ["Where is Mary?"], hops=True)
    batch = StoryBatch(torch.tensor([[[9, 8], [7, 0]]]), torch.tensor([2]), torch.tensor([[9]]), torch.tensor([0]))
    with record(reader.model) as seen, torch.inference_mode():
        reader.model.logits(batch)
    assert [call.role for call in seen.calls] == ["cross"] * 4 and max(call.check() for call in seen.calls) < 1e-5
    assert found.attention.weights.shape == (2, 4) and np.allclose(found.attention.weights.sum(axis=0), 1)
