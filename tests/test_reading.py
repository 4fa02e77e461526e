"""One pass over a text, plain or recorded: its numbers are those of the verbs, its labels fit what is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from test_recorder import EYES, SMALL, make_translator, transformer
from test_verify import BLOCKS, LLAMA, RUNG, make
from test_verify_pictures import make as make_seeing

from regard.attention import Pin, Remove, Seen, Temperature, intervene
from regard.bundle import Bundle
from regard.decode.config import DecodeConfig
from regard.errors import UsageError
from regard.inspect.looking import effective_attention
from regard.predictor import Reading
from regard.tasks.caption.predictor import Captioner
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.predictor import Generator
from regard.tasks.translate.predictor import Translator
from regard.tokens import BEGIN, END

SOURCE, TARGET = "two dogs sleep under a bike", "ekib a rednu"


def exact(bundle: Bundle) -> Bundle:
    bundle.model.double()
    return bundle


def labels_fit(reading: Reading, seen: Seen) -> bool:
    """Every map has a label for each row and each column, and they are those of the reading."""
    for call in seen.calls:
        rows, columns = seen.labelled(call)
        assert (len(rows), len(columns)) == tuple(call.weights().shape[-2:])
        assert columns == reading.labels[seen.axes(call)[1]]
        assert call.role == "pool" or rows == reading.labels[seen.axes(call)[0]]
    return len(seen.calls) > 0 and seen.check() < 1e-10


# --- Translation


@pytest.mark.parametrize("kind", ["transformer", "seq2seq", "bahdanau", "luong", "bytenet"])
def test_a_given_translation_has_the_score_of_the_verb(kind: str) -> None:
    sizes = SMALL if kind in ("seq2seq", "bahdanau", "luong") else {}
    user = Translator(exact(transformer() if kind == "transformer" else make_translator(kind, **sizes)))
    reading = user.read(SOURCE, TARGET)
    found, (score,) = reading.log_probabilities(), user.score([(SOURCE, TARGET)])
    assert found.shape == (score.tokens,)
    assert found.sum() == pytest.approx(score.log_probability, rel=0, abs=1e-10)
    seen = reading.look()
    assert labels_fit(reading, seen) is (kind in ("transformer", "bahdanau", "luong"))
    assert reading.role == "cross"
    assert all(call.role in ("self", "causal", "cross") for call in seen.calls)


def test_ids_and_labels_of_a_pair_begin_and_end_where_the_model_reads_them() -> None:
    user = Translator(exact(transformer()))
    reading = user.read(SOURCE, TARGET)
    source, target = user.tokenizers.source.encode(SOURCE), user.tokenizers.target.encode(TARGET)
    assert reading.ids == {"source": (*source, END), "target": (*target, END), "prefix": (BEGIN, *target)}
    assert reading.predicted == reading.ids["target"]
    for axis, tokenizer in (("source", user.tokenizers.source), ("target", user.tokenizers.target)):
        assert reading.labels[axis] == tuple(tokenizer.labels(reading.ids[axis]))
    same = user.read_ids(source, target)
    assert (same.ids, same.labels) == (reading.ids, reading.labels)
    assert np.array_equal(same.log_probabilities(), reading.log_probabilities())


@pytest.mark.parametrize("softness", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("kind", ["transformer", "bahdanau"])
def test_the_models_own_translation_is_read_as_the_steps_wrote_it(kind: str, softness: float) -> None:
    """Also where its own settings make each look at the source softer, or hard."""
    bundle = exact(transformer() if kind == "transformer" else make_translator(kind, **SMALL))
    decode = DecodeConfig(beam=3, softness=softness, max_length=9, min_length=4)
    user = Translator(replace(bundle, config=bundle.config.model_copy(update={"decode": decode})))
    written, reading = user.translate(SOURCE), user.read(SOURCE)
    assert reading.ids["target"] == (*written.ids, END)
    found = reading.log_probabilities()
    assert np.allclose(found, written.token_log_probabilities, rtol=0, atol=1e-9)
    seen = reading.look(only="cross")
    assert labels_fit(reading, seen)
    if softness == 0.0:
        assert all(bool(((call.weights() == 0) | (call.weights() == 1)).all()) for call in seen.calls)


def test_bounds_are_passed_on() -> None:
    reading = Translator(exact(transformer())).read(SOURCE, TARGET)
    whole, part = reading.look(), reading.look(only="cross", layers=1, rows=2)
    (call,) = part.calls
    expected = whole.only("cross", 1)[0].weights()[0, :, 2]
    assert torch.allclose(call.weights()[0, :, 0], expected, rtol=0, atol=1e-14)
    assert part.labelled(call) == ((reading.labels["target"][2],), reading.labels["source"])


def test_what_a_reading_saw_under_a_change_still_rebuilds_the_outputs() -> None:
    """Its tensors are of inference mode, and the check runs outside."""
    user = Translator(exact(transformer()))
    reading = user.read(SOURCE, TARGET)
    with intervene(user.model, Remove("cross", head=1), Pin("self", row=0), Temperature("causal", value=0.5)):
        seen = reading.look()
        changed = reading.log_probabilities()
    assert seen.check() < 1e-10
    assert [call.removed for call in seen.only("cross")] == [(1,), (1,)]
    assert np.abs(changed - reading.log_probabilities()).max() > 1e-6


# --- One text


@pytest.mark.parametrize(("kind", "model"), [("gpt2", BLOCKS), ("llama", LLAMA | {"groups": 2}), ("lstm", SMALL)])
def test_a_text_has_the_score_of_a_language_model(kind: str, model: dict[str, Any]) -> None:
    user = Generator(exact(make("generate", kind, **model)))
    reading = user.read(SOURCE)
    found, (score,) = reading.log_probabilities(), user.score([SOURCE])
    assert found.shape == (score.tokens,)
    assert found.sum() == pytest.approx(score.log_probability, rel=0, abs=1e-10)
    ids = user.tokenizer.encode(SOURCE)
    assert reading.ids == {"text": (user.tokenizer.specials.begin, *ids)} == user.read_ids(ids).ids
    assert labels_fit(reading, reading.look()) is (kind != "lstm")
    assert reading.role == "causal"


def test_a_long_text_is_read_as_far_as_a_model_reads() -> None:
    user = Generator(exact(make("generate", "gpt2", **BLOCKS, max_length=11)))
    reading = user.read(SOURCE * 3)
    assert len(reading.ids["text"]) == 11 and len(reading.log_probabilities()) == 10
    assert labels_fit(reading, reading.look())
    filler = Filler(exact(make("fill", "bert", **BLOCKS, max_length=11)))
    filled = filler.read(SOURCE * 3)
    assert len(filled.ids["text"]) == 11 and filled.ids["text"][-1] == filler.tokenizer.specials.end
    assert labels_fit(filled, filled.look())


def test_gaps_are_read_as_filling_reads_them() -> None:
    user = Filler(exact(make("fill", "bert", **BLOCKS)))
    text = "a man [MASK] a red bike"
    reading = user.read(text)
    mask = user.tokenizer.specials.mask
    (gap,) = [place for place, token in enumerate(reading.ids["text"]) if token == mask]
    with torch.no_grad():
        scores = user.model.gaps(reading.run()[0, [gap]])[0, : user.tokenizer.size]
    scores[sorted(user.tokenizer.specials.all)] = -torch.inf
    best = user.fill(text).gaps[0][0]
    assert float(scores.softmax(dim=-1).max()) == pytest.approx(best.probability, abs=1e-12)
    assert tuple(user.tokenizer.labels([int(scores.argmax())])) == (best.token,)
    assert labels_fit(reading, reading.look()) and reading.role == "self"


@pytest.mark.parametrize(
    ("kind", "model", "role"),
    [
        ("bert", BLOCKS, "self"), ("gpt2", BLOCKS, "causal"), ("llama", LLAMA, "causal"), ("tfidf", {}, "self"),
        ("self-attention", RUNG | {"heads": 3}, "self"), ("additive", RUNG | {"hidden": 14}, "self"),
    ],
)  # fmt: skip
def test_a_classifier_says_of_a_reading_what_it_says_of_the_text(kind: str, model: dict[str, Any], role: str) -> None:
    user = TextClassifier(exact(make("classify", kind, **model)))
    for second in (None, TARGET) if kind == "bert" else (None,):
        reading = user.read(SOURCE, second)
        with torch.inference_mode():
            shares = reading.run()[0].softmax(dim=-1).numpy()
        assert np.allclose(shares, user.probabilities([SOURCE], [second])[0], rtol=0, atol=1e-12)
        assert labels_fit(reading, reading.look())
        assert reading.role == role


# --- What is refused


def test_what_cannot_be_read_is_told_in_words() -> None:
    caption = make_seeing("caption", "show-and-tell", {"width": 8, "hidden": 10, "encoder": EYES})
    with pytest.raises(UsageError, match="this looks at models of text; the model is one to caption"):
        Captioner(caption).read(SOURCE)
    filler = Filler(make("fill", "bert", **BLOCKS))
    with pytest.raises(UsageError, match="a model to fill reads texts, not ids"):
        filler.read_ids([5, 6])
    classifier = TextClassifier(make("classify", "bert", **BLOCKS))
    for user in (filler, classifier):
        with pytest.raises(UsageError, match="predicts no tokens of a whole text"):
            user.read(SOURCE).log_probabilities()
    generator = Generator(make("generate", "gpt2", **BLOCKS))
    with pytest.raises(UsageError, match="the text is empty: there is no token to predict"):
        generator.read("").log_probabilities()
    assert generator.read("").look().check() < 1e-5  # its beginning alone can be looked at


def test_a_family_without_attention_has_no_exact_map_to_compare() -> None:
    """It used to end in a KeyError."""
    with pytest.raises(UsageError, match="attention"):
        effective_attention(Translator(make_translator("seq2seq", **SMALL)), SOURCE, TARGET)


def test_the_exact_map_of_a_recurrent_decoder_is_its_own() -> None:
    """It has a score of its own: products of states and annotations say nothing about it."""
    user = Translator(exact(make_translator("bahdanau", **SMALL)))
    found = effective_attention(user, SOURCE, TARGET)
    assert found.layers[0].same and found.layers[0].difference == 0.0
    assert np.array_equal(found.layers[0].map, found.layers[0].exact)  # type: ignore[arg-type]
    assert (found.rows, found.columns) == tuple(user.read(SOURCE, TARGET).labels[axis] for axis in ("target", "source"))
