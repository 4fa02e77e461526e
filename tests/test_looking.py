"""`regard look` at texts: every form of every role, and the weights of a written text against those of its steps."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from regard.attention import record
from regard.bundle import Bundle, BundleConfig
from regard.cli import main
from regard.decode.config import DecodeConfig
from regard.errors import UsageError
from regard.inspect.looking import AskedView, look_at
from regard.inspect.walk import walk
from regard.look import AttentionMap, SentenceAttention, map_of, sentence_of
from regard.look.layers import MixingMatrices
from regard.look.sentence import AllHeads
from regard.look.words import RowTexts, WeighedText
from regard.models.config import GPT2Config
from regard.models.table import build
from regard.tasks.caption.predictor import chosen_heads
from regard.tasks.generate.predictor import Generator
from regard.tasks.run import RunResult
from regard.tasks.translate.predictor import Translator
from regard.tokens import TokenizerPair, TokensConfig, train_tokenizer

TEXT, DATE = "3 May 1999", "1999-05-03"
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def translator(tiny_run: RunResult) -> Translator:
    return tiny_run.load()


@pytest.fixture(scope="module")
def generator() -> Generator:
    torch.manual_seed(4)
    tokenizer = train_tokenizer(["ab c"], TokensConfig(kind="character"))
    config = GPT2Config(layers=2, width=12, heads=3, feed_forward=20, max_length=11)
    model = build("generate", config, (tokenizer.size,))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.6)
    bundle = BundleConfig(
        task="generate",
        tokens=TokensConfig(kind="character"),
        vocabulary=(tokenizer.size,),
        model=config,
        decode=DecodeConfig(),
    )
    return Generator(Bundle(bundle, model.eval(), TokenizerPair(tokenizer, tokenizer), {}))


def typed(capsys: Captured, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main.run(list(words))
    return code, *capsys.readouterr()


# what a sentence holds


def test_a_translation_holds_all_three_attentions(translator: Translator) -> None:
    seen = translator.translate(TEXT, attention=True).attention
    assert seen is not None and seen.role == "cross" and set(seen.roles) == {"cross", "self", "causal"}
    inside, past = seen.of("self"), seen.of("causal")
    assert inside.source == inside.target == seen.source
    assert past.source == past.target == ("<s>", *seen.target[:-1])
    assert seen.source[-1] == seen.target[-1] == "</s>"
    for each in (seen, inside, past):
        assert len(each.layers) == 2 and each.check() < 1e-5
        for weights in each.layers.values():
            assert weights.shape == (3, len(each.target), len(each.source))
            assert np.nansum(weights, axis=-1) == pytest.approx(1.0, abs=1e-5)
    ahead = np.triu(np.ones((len(past.target),) * 2, dtype=bool), 1)
    assert all((np.isnan(weights) == ahead).all() for weights in past.layers.values())
    with pytest.raises(
        UsageError, match="there is no attention pooling here; choose a role that there is: cross, self"
    ):
        seen.of("pool").map()


def test_titles_say_what_is_shown(translator: Translator) -> None:
    seen = translator.translate(TEXT, attention=True).attention
    assert seen is not None
    assert seen.map().title == "cross-attention, mean of 2 layers x 3 heads"
    assert seen.map(1).title == "cross-attention, layer 1, mean of 3 heads (of 2 layers x 3 heads, counted from 0)"
    causal = seen.of("causal").map(0, 2)
    assert causal.title == "causal self-attention, layer 0, head 2 (of 2 layers x 3 heads, counted from 0)"
    np.testing.assert_array_equal(causal.weights, next(iter(seen.of("causal").layers.values()))[2])


def test_the_attention_of_a_written_text_is_that_of_its_steps(generator: Generator) -> None:
    """Each row must be what the model looked at when that token was the last it had read."""
    [found, other] = generator.generate(["ab", "c"], attention=True, sample=False, min_length=5, max_length=5)
    assert other.attention is not None and found.attention is not None
    tokens = found.attention.source
    assert tokens[:3] == ("<s>", "a", "b") and "".join(tokens[1:]).startswith(str(found)) and len(tokens) == 8
    ids = [generator.tokenizer.specials.begin, *generator.tokenizer.encode("".join(tokens[1:]))]
    for place in range(len(ids)):
        with torch.inference_mode(), record(generator.model) as seen:
            generator.model.read(torch.tensor([ids[: place + 1]]))
        for call, weights in zip(seen.calls, found.attention.layers.values(), strict=True):
            expected = call.weights()[0, :, -1].numpy()  # (H, S)
            np.testing.assert_allclose(weights[:, place, : place + 1], expected, atol=1e-5)
    assert generator.generate("ab", sample=False, max_length=2).attention is None


def test_what_does_not_fit_the_context_is_told(generator: Generator) -> None:
    found = generator.generate("ab", attention=True, sample=False, min_length=20, max_length=20).attention
    assert found is not None and len(found.source) == 11
    assert found.map().notes[0] == "the first 11 tokens; 12 more do not fit the context"


# recordings of anyone's models


def test_a_map_of_a_foreign_module_has_labels_and_masked_cells() -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    x = torch.randn(2, 5, 12)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    labels = {"text": [list("abcde"), ["v", "w", "x", "-", "-"]]}
    with torch.inference_mode(), record(attention, labels=labels) as seen:
        attention(x, x, x, key_padding_mask=padding, need_weights=False)
    map = map_of(seen, seen.calls[0], text=1)
    assert map.rows == map.columns == ("v", "w", "x", "-", "-") and map.heads == 3
    with torch.inference_mode():
        expected = attention(x, x, x, key_padding_mask=padding, average_attn_weights=False)[1][1].numpy()
    np.testing.assert_allclose(map.weights[..., :3], expected[..., :3], atol=1e-6)
    assert np.isnan(map.weights[..., 3:]).all()
    whole = sentence_of(seen, text=0)
    assert whole.map().columns == tuple("abcde") and not np.isnan(whole.map().weights).any()
    assert isinstance(whole.grid(), AllHeads)


def test_pieces_of_a_foreign_tokenizer_are_read_in_its_maps() -> None:
    attention = nn.MultiheadAttention(4, 1, batch_first=True).eval()
    with torch.inference_mode(), record(attention, labels={"text": [["A", "Ġman", "Ã¤"]]}) as seen:
        attention(*[torch.randn(1, 3, 4)] * 3, need_weights=False)
    assert map_of(seen, seen.calls[0]).columns == sentence_of(seen).map().rows == ("A", " man", "ä")


def test_layers_and_heads_are_counted_from_zero_in_every_view(
    translator: Translator, tmp_path: Path, capsys: Captured, tiny_run: RunResult
) -> None:
    """`--layer 1 --head 2` is called layer 1, head 2 wherever it is shown, and so is what `--remove cross:1:2` removes."""
    shown = look_at(translator, TEXT, DATE, AskedView("map", layer=1, head=2))
    grid = look_at(translator, TEXT, DATE, AskedView("grid"))
    words = [shown.title, shown.text(), json.loads(shown.json())["title"], shown.html()]
    assert all("layer 1, head 2" in " ".join(each.split()) for each in words)
    drawn = {text.get_text() for axes in grid.figure().axes for text in axes.texts}
    assert {"layer 0", "layer 1", "head 0", "head 1", "head 2"} <= drawn and not {"layer 2", "head 3"} & drawn
    assert "1.2" in grid.text() or "layer 1, head 2" in grid.text()
    rows = list(csv.reader(io.StringIO(grid.csv())))[1:]
    assert {(row[0], row[1]) for row in rows} == {(str(a), str(b)) for a in range(2) for b in range(3)}
    layers = [np.full((3, 2, 4), 0.25)] * 2
    assert chosen_heads(layers, 1, 2)[1] == "layer 1, head 2 (of 2 layers x 3 heads, counted from 0)"
    assert chosen_heads(layers, 0, None)[1].startswith("layer 0, mean of 3 heads")
    mixing = MixingMatrices((np.eye(4), np.eye(4)), (2, 2))
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(mixing)
    assert "layer 0:" in (said := console.export_text()) and "layer 1:" in said and "layer 2:" not in said
    for option in (("--layer", "99"), ("--layer", "0", "--head", "99")):
        code, _, error = typed(capsys, "look", TEXT, "-m", str(tiny_run.folder), "--as", "map", *option)
        assert code == 2 and "other roles: causal 2 layers x 3 heads, self 2 layers x 3 heads" in error
    for choice in ((99, None), (0, 99), (None, 1)):
        with pytest.raises(UsageError, match="other roles: self 2 layers x 3 heads, causal 2 layers x 3 heads"):
            translator.attentions(TEXT, DATE).map(*choice)
    walked = walk(translator, TEXT, layer=1, head=2)
    assert "layer 1 of 2, head 2 of 3, both counted from 0" in walked.summary


def test_several_passes_are_not_mixed_up() -> None:
    attention = nn.MultiheadAttention(4, 1, batch_first=True).eval()
    with torch.inference_mode(), record(attention) as seen:
        for size in (3, 5):
            attention(*[torch.randn(1, size, 4)] * 3, need_weights=False)
    with pytest.raises(UsageError, match="recorded over several lengths; record one pass"):
        sentence_of(seen)


# forms


def test_words_are_the_default_for_pieces_and_letters_stay(translator: Translator, generator: Generator) -> None:
    pieces = look_at(translator, TEXT, view=AskedView(pieces=True))
    words = look_at(translator, TEXT)
    np.testing.assert_array_equal(words.weights, pieces.words().weights)
    assert words.columns == ("3", "May", "1999", "</s>") and len(pieces.columns) > 4
    assert look_at(generator, "ab c").columns == ("<s>", "a", "b", " ", "c")


def test_every_form_of_every_role(translator: Translator) -> None:
    whole = translator.attention(TEXT, translator.tokenizers.target.encode(DATE))
    assert isinstance(whole, SentenceAttention)
    for role in ("cross", "self", "causal"):
        one = whole.of(role)
        grid = look_at(translator, TEXT, DATE, AskedView("grid", role, pieces=True))
        assert isinstance(grid, AllHeads) and list(grid.layers) == list(one.layers)
        flow = look_at(translator, TEXT, DATE, AskedView("rollout", role))
        np.testing.assert_array_equal(flow.weights, one.rollout().words().weights)
        rows = look_at(translator, TEXT, DATE, AskedView("words", role))
        assert isinstance(rows, RowTexts)
        first = look_at(translator, TEXT, DATE, AskedView("words", role, word="0"))
        expected = one.map().words().weights[0]
        assert isinstance(first, WeighedText) and np.nansum(first.weights) == pytest.approx(np.nansum(expected))
    hidden = look_at(translator, TEXT, DATE, AskedView(specials=False))
    assert "</s>" not in (*hidden.rows, *hidden.columns) and "without </s>" in hidden.notes[-1]


def test_a_given_translation_is_looked_at(translator: Translator) -> None:
    map = look_at(translator, TEXT, DATE, AskedView(pieces=True))
    assert "".join(map.rows[:-1]).strip() == DATE and isinstance(map, AttentionMap)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"form": "gird"}, "nothing is shown as gird; did you mean grid?"),
        ({"role": "crss"}, "no role crss; did you mean cross?"),
        ({"word": "3"}, "add form='words'"),
        ({"form": "grid", "layer": 1}, "form='grid' is of all layers and heads; leave out layer="),
        ({"form": "words", "word": "zebra"}, "no row zebra"),
        ({"layer": 9}, "no layer 9; there are 2, numbered from 0 to 1"),
    ],
)
def test_wrong_views_are_told(translator: Translator, view: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        look_at(translator, TEXT, view=AskedView(**view))
    assert message in str(error.value)


# the command line


def test_look_writes_every_form(tiny_run: RunResult, capsys: Captured, tmp_path: Path) -> None:
    look = ("look", TEXT, "--second", DATE, "-m", str(tiny_run.best))
    for name, words in {
        "map.csv": (),
        "map.html": ("--role", "self", "--layer", "0", "--head", "1"),
        "grid.json": ("--as", "grid", "--hide-special"),
        "grid.csv": ("--as", "grid"),
        "roll.json": ("--as", "rollout"),
        "words.json": ("--as", "words"),
        "one.html": ("--as", "words", "--word", "0"),
    }.items():
        code, out, err = typed(capsys, *look, *words, "-o", str(tmp_path / name))
        assert (code, out) == (0, "") and f"wrote {tmp_path / name}" in err
    assert "without </s>" in " ".join(json.loads((tmp_path / "grid.json").read_text())["notes"])
    assert "mean of" in json.loads((tmp_path / "words.json").read_text())["caption"]
    assert json.loads((tmp_path / "roll.json").read_text())["columns"] == ["3", "May", "1999", "</s>"]
    code, out, _ = typed(capsys, *look, "--as", "words")
    assert code == 0 and out.count("3 May 1999") >= 2 and out.endswith("\n")
    code, out, _ = typed(capsys, *look, "--as", "grid")
    assert code == 0 and "cross-attention, 2 layers x 3 heads" in out


def test_look_says_what_to_type(tiny_run: RunResult, capsys: Captured) -> None:
    look = ("look", TEXT, "-m", str(tiny_run.best))
    for words, message in [
        (("--as", "cake"), "nothing is shown as cake; there is beam, features, graph, grid, lines, map, outputs, pixels, "
         "positions, roll, rollout, routing, states, words"),
        (("--role", "pool"), "choose a role that there is"),
        (("--exact", "--as", "grid"), "--exact has a form of its own; leave out --as"),
        (("--as", "grid", "-o", "a.gif"), "use .png, .svg, .html, .json, .csv"),
        (("what?",), "a question is for models that answer"),
        (("--smooth",), "--smooth is for models that see pictures"),
    ]:  # fmt: skip
        code, out, err = typed(capsys, *look, *words)
        assert (code, out) == (2, "") and message in err


def test_a_model_that_wrote_nothing_is_still_shown(translator: Translator) -> None:
    assert look_at(translator, TEXT, "").rows == ("</s>",)
    with pytest.raises(UsageError, match="leave out hide_special="):
        look_at(translator, TEXT, "", AskedView(specials=False))
