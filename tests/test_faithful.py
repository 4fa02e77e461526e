"""How faithful a map is: models whose true dependence is known, falls against models asked one by one, and refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.attention.record import attend_seen
from regard.bundle import Bundle, BundleConfig
from regard.data.batch import PairBatch
from regard.errors import RegardError, UsageError
from regard.evaluate.faithful import Case, score_maps
from regard.inspect.faithfulness import COUNTED, MEAN, ONLY, THROUGH, faithfulness, merged
from regard.models.table import build
from regard.predictor import Predictor
from regard.tasks.config import run_config
from regard.tasks.table import PREDICTORS
from regard.tasks.translate.predictor import Translator
from regard.tokens import TokenizerPair, train_tokenizer
from regard.tokens.config import TokensConfig

WORDS = ["red", "old", "king", "saw", "sea", "moon", "cat", "and", "grey", "hill", "rain"]
TOKENIZER = train_tokenizer([" ".join(WORDS)], TokensConfig(kind="word", min_count=1))


def sentences(count: int, seed: int = 3) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.permutation(WORDS)[: draw.integers(3, 9)]) for _ in range(count)]


class Copies(nn.Module):
    """Writes what it reads, last word first: token t depends on one source word and on no other.

    Its attention is made by hand and decides nothing: head 0 looks at that word, 1 evenly, 2 everywhere but there.
    """

    longest = None  # it reads any number of tokens

    def __init__(self, vocabulary: int, heads: tuple[str, ...] = ("right", "even", "wrong")) -> None:
        super().__init__()
        self.output = nn.Linear(vocabulary, vocabulary, bias=False)
        self.heads = heads
        nn.init.eye_(self.output.weight)

    def hidden(self, batch: PairBatch) -> Tensor:
        length, steps = batch.source.size(1), batch.target.size(1) - 1
        place = batch.source_lengths[:, None] - 2 - torch.arange(steps)[None]  # (B, T): of the word to write
        known = batch.source.gather(1, place.clamp(min=0)).masked_fill(place < 0, 2)
        self._look(place, batch.source_lengths, length)
        return 4.0 * nn.functional.one_hot(known, self.output.in_features).float()

    def _look(self, place: Tensor, lengths: Tensor, length: int) -> None:
        columns = torch.arange(length)
        real = columns[None, None] < lengths[:, None, None] - 1  # (B, 1, S): the end is no word
        right = columns[None, None] == place.clamp(min=0)[..., None]  # (B, T, S)
        score = {"right": right * 9.0, "even": right * 0.0, "wrong": right * -9.0}
        bias = torch.stack([score[head] for head in self.heads], dim=1).masked_fill(~real[:, None], -99.0)
        q = torch.zeros(*bias.shape[:3], 1)
        k = torch.zeros(len(place), len(self.heads), length, 1)
        attend_seen(self, "cross", q, k, k, bias=bias, scale=1.0)


class Copier(Translator):
    """What translates with `Copies`."""

    def translate(self, texts: Any, **_: Any) -> Any:
        return [SimpleNamespace(source=text, ids=tuple(TOKENIZER.encode(text)[::-1])) for text in texts]


def copier(**options: Any) -> Any:
    model = Copies(TOKENIZER.size, **options)
    config: Any = SimpleNamespace(task="translate", model=SimpleNamespace(kind="copies"))
    return Copier(Bundle(config, model, TokenizerPair(TOKENIZER, TOKENIZER), {}))


def reversed_pairs(count: int) -> list[tuple[str, str]]:
    return [(text, " ".join(text.split()[::-1])) for text in sentences(count)]


@pytest.mark.parametrize("reference", [False, True])
def test_the_right_map_has_one_the_even_zero_and_what_avoids_it_less(reference: bool) -> None:
    """Removing a word also shifts what is written behind it, but no other word makes its own prediction fall more."""
    found = faithfulness(copier(heads=("right", "even", "wrong")), reversed_pairs(40), reference=reference)
    scores = {each.name: each for each in found.maps}
    assert set(scores) == {MEAN, "head 0.0", "head 0.1", "head 0.2"}
    assert scores["head 0.1"].score.value == pytest.approx(0.0, abs=1e-9)
    assert scores["head 0.0"].score.value == pytest.approx(1.0) and scores["head 0.0"].hits == 1.0
    assert scores["head 0.2"].score.value < -0.1
    assert found.texts == 40 and ("reference" in found.what) == reference


def test_falls_by_hand_of_one_pair() -> None:
    """Source a b c, target c b a. Without c: b a end; without b: c a end; without a: c b end."""
    found = faithfulness(copier(heads=("right",)), [("red old king", "king old red")], reference=True)
    four = float(torch.tensor([4.0] + [0.0] * (TOKENIZER.size - 1)).log_softmax(dim=0)[0]) - float(
        torch.tensor([4.0] + [0.0] * (TOKENIZER.size - 1)).log_softmax(dim=0)[1]
    )  # a token predicted wrongly in place of rightly
    assert four == pytest.approx(4.0)
    falls = four * np.array([[0, 0, 1], [0, 1, 1], [1, 1, 1]])  # without red, old, king; of king, old, red
    assert (found.random, found.best) == pytest.approx((falls.mean(axis=0).mean(), falls.max(axis=0).mean()))
    attended = falls[[2, 1, 0], [0, 1, 2]]
    assert found.of(ONLY).drop == pytest.approx(attended.mean())
    wanted = (attended - falls.mean(axis=0)).sum() / (falls.max(axis=0) - falls.mean(axis=0)).sum()
    assert found.of(ONLY).score.value == pytest.approx(wanted) and wanted == pytest.approx(1.0)
    assert found.of(ONLY).hits == 1.0 and found.words == 3.0 and found.predictions == 3


def case(falls: list[list[float]], **maps: list[list[float]]) -> Case:
    return Case(np.array(falls), {name: np.array(map) for name, map in maps.items()})


def test_scores_of_made_maps() -> None:
    """Three words, two predictions: the first hangs on word 1, the second on word 2."""
    falls = [[0.0, 0.3], [3.0, 0.0], [0.0, 1.2]]
    made = case(
        falls,
        right=[[0.1, 0.8, 0.1], [0.2, 0.3, 0.5]],
        even=[[0.3, 0.3, 0.3], [0.2, 0.2, 0.2]],
        wrong=[[0.6, 0.0, 0.4], [0.5, 0.5, 0.0]],
    )
    scores, random, best = score_maps([made, made])
    assert (random, best) == pytest.approx(((1.0 + 0.5) / 2, (3.0 + 1.2) / 2))
    assert (scores["right"].score.value, scores["right"].hits) == (pytest.approx(1.0), 1.0)
    assert scores["even"].score.value == pytest.approx(0.0) and scores["even"].hits == pytest.approx(1 / 3)
    assert scores["wrong"].score.value == pytest.approx((0.0 - 1.0 + 0.15 - 0.5) / (2.0 + 0.7))
    assert scores["wrong"].drop == pytest.approx(0.15 / 2) and scores["right"].score.error == 0.0


def test_random_maps_are_near_zero_and_the_interval_holds_it() -> None:
    draw = np.random.default_rng(5)
    cases = [Case(draw.exponential(1.0, (7, 11)), {"random": draw.random((11, 7))}) for _ in range(60)]
    found = score_maps(cases)[0]["random"]
    assert abs(found.score.value) < 0.12 and found.score.low < 0 < found.score.high
    assert found.hits == pytest.approx(1 / 7, abs=0.06)


def test_pieces_of_a_word_add_up() -> None:
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    assert merged(weights, [(0, 1), (3,)]) == pytest.approx(np.array([[0.3, 0.4], [0.7, 0.1]]))


def real(task: str, model: dict[str, Any]) -> Any:
    """A real model with random weights."""
    config = run_config(task, {"model": model, "tokens": {"kind": "word", "min_count": 1}})
    torch.manual_seed(2)
    vocabulary = (TOKENIZER.size,) * (2 if task == "translate" else 1)
    labels = {"labels": 2} if task == "classify" else {}
    built = build(task, config.model, vocabulary, smoothing=0.0, **labels).eval()  # type: ignore[arg-type]
    more: dict[str, Any] = {"labels": ("good", "bad"), "longest": 24} if task == "classify" else {}
    bundle = BundleConfig(task=task, tokens=config.tokens, vocabulary=vocabulary, model=config.model, **more)
    return PREDICTORS[task](Bundle(bundle, built, TokenizerPair(TOKENIZER, TOKENIZER), {}))


TRANSFORMER = {
    "kind": "transformer", "encoder_layers": 2, "decoder_layers": 2, "width": 12, "heads": 3, "feed_forward": 17,
}  # fmt: skip


def test_a_real_model_against_sentences_scored_one_by_one() -> None:
    user, pairs = real("translate", TRANSFORMER), reversed_pairs(5)
    found = faithfulness(user, pairs, reference=True)
    random, best, attended, count = 0.0, 0.0, 0.0, 0
    for source, target in pairs:
        words = source.split()
        ids = user.tokenizers.target.encode(target)
        whole = token_scores(user, source, ids)
        falls = np.array([
            whole - token_scores(user, " ".join(words[:n] + words[n + 1 :]), ids) for n in range(len(words))
        ])  # fmt: skip
        weights = user.attention(source, ids).map().weights[: len(ids), : len(words)]
        random += falls.mean(axis=0).sum()
        best += falls.max(axis=0).sum()
        attended += falls[weights.argmax(axis=1), np.arange(len(ids))].sum()
        count += len(ids)
    assert (found.random, found.best) == pytest.approx((random / count, best / count), abs=1e-5)
    assert found.of(MEAN).score.value == pytest.approx((attended - random) / (best - random), abs=1e-4)
    assert len(found.maps) == 2 + 2 + 6 and found.of(THROUGH).score.value != found.of(MEAN).score.value


def token_scores(user: Any, source: str, ids: list[int]) -> np.ndarray:
    """The log-probability of each token but the end."""
    read, written = torch.tensor([[*TOKENIZER.encode(source), 2]]), torch.tensor([[1, *ids, 2]])
    with torch.no_grad():
        memory = user.model.encode(read, torch.tensor([read.size(1)]))
        shares = user.model.output(user.model.decode(written[:, :-1], memory))[0].double().log_softmax(dim=-1)
    return np.array([float(shares[place, number]) for place, number in enumerate(ids)])


def test_a_classifier_that_reads_one_word() -> None:
    """A text's vector is a weighted mean of words, of which only one has anything to say."""
    user = real("classify", {"kind": "token-weights", "width": 8})
    with torch.no_grad():
        user.model.head.weight.zero_()
        user.model.head.weight[0, 0], user.model.head.weight[1, 0] = 1.0, -1.0
        table = next(module for module in user.model.modules() if isinstance(module, nn.Embedding)).weight
        table.zero_()
        moon = TOKENIZER.encode("moon")[0]
        table[moon, 0] = 9.0
        user.model.token_scores.zero_()
        user.model.token_scores[moon] = 3.0
    texts = [(f"{text} moon" if "moon" not in text else text, "good") for text in sentences(20)]
    found = faithfulness(user, texts)
    assert found.of(COUNTED).score.value == pytest.approx(1.0) and found.of(COUNTED).hits == 1.0
    assert found.predictions == 20 and "label" in found.what
    with torch.no_grad():
        user.model.token_scores[moon] = -3.0  # it decides as before, but looks elsewhere
        table[moon, 0] = 9000.0
    assert faithfulness(user, texts).of(COUNTED).score.value < 0


def test_labels_of_the_model_or_of_the_data() -> None:
    user = real("classify", {"kind": "self-attention", "width": 12, "heads": 2})
    texts = [(text, "bad") for text in sentences(6)]
    own, given = faithfulness(user, texts), faithfulness(user, texts, reference=True)
    predicted = [each.label for each in user.classify([text for text, _ in texts])]
    assert (own.random == pytest.approx(given.random)) == (set(predicted) == {"bad"})
    assert {"head 0.0", "head 0.1", COUNTED} <= {each.name for each in own.maps}


@pytest.mark.parametrize("task", ["generate", "fill"])
def test_other_tasks_are_refused_in_words(task: str) -> None:
    config: Any = SimpleNamespace(task=task)
    user = Predictor(Bundle(config, nn.Identity(), None, {}))
    with pytest.raises(UsageError, match=f"a model to {task} has none: take one that translates or classifies"):
        faithfulness(user, ["a text"])


def test_models_without_attention_and_texts_without_words_are_refused() -> None:
    user = real("translate", {"kind": "seq2seq", "width": 8, "hidden": 8})
    with pytest.raises(UsageError, match="does not look at its source"):
        faithfulness(user, reversed_pairs(3), reference=True)
    with pytest.raises(RegardError, match="no text has two words or more"):
        faithfulness(copier(heads=("right",)), [("red", "red")], reference=True)
