"""Positions, routing, beams and output distributions against plain loops, and `regard look --as` for all of them."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from test_recorder import EYES, make_translator, transformer
from test_verify import BLOCKS, LLAMA, make
from test_verify_pictures import make as make_seeing

import regard
from regard.attention.relative import bucket_of
from regard.bundle import Bundle, save_bundle
from regard.cli.main import run
from regard.errors import RegardError, UsageError
from regard.inspect.writing import GOES_ON
from regard.look.panels import Chart, Facts, Gallery, HeatMap, Panels, Photo, liveliest
from regard.look.written import BeamTree, Node
from regard.tasks.generate.predictor import Generator
from regard.tasks.trained import load
from regard.tasks.translate.predictor import Translator
from regard.tasks.views import VIEWS, view_of, views_of

TEXT = "two dogs sleep"
Captured = pytest.CaptureFixture[str]


# --- Positions


def test_sinusoids_by_the_formula() -> None:
    found = regard.positions_of("sinusoidal", length=11, width=8, heads=1)
    for place, dimension in ((0, 0), (3, 2), (7, 5), (10, 7)):
        angle = place / 10000 ** (2 * (dimension // 2) / 8)
        assert found.table[place, dimension] == pytest.approx(
            math.sin(angle) if dimension % 2 == 0 else math.cos(angle)
        )
    assert found.pairs[2, 9] == pytest.approx(sum(found.table[2] * found.table[9]))
    for distance, value in zip(found.distances, found.by_distance["mean"], strict=True):
        assert value == pytest.approx(sum(math.cos(distance / 10000 ** (2 * pair / 8)) for pair in range(4)))
    assert list(found.by_distance) == ["mean"]  # a pure function of the distance


def test_learned_positions_by_distance() -> None:
    found = regard.positions_of("learned", length=7, width=8, heads=1)
    products = {}
    for t in range(7):
        for s in range(7):
            products.setdefault(s - t, []).append(float(found.table[t] @ found.table[s]))
    for number, distance in enumerate(found.distances):
        values = products[int(distance)]
        assert found.by_distance["mean"][number] == pytest.approx(sum(values) / len(values))
        assert found.by_distance["least"][number] == pytest.approx(min(values))
        assert found.by_distance["greatest"][number] == pytest.approx(max(values))
    assert "fresh tables" in found.notes[0]


def test_rotary_positions_are_the_product_of_turned_ones() -> None:
    found = regard.positions_of("rotary", length=9, width=24, heads=4)  # heads of 6
    vector = np.ones(6)
    for t, s in ((0, 5), (8, 1), (3, 3)):
        turned = []
        for place in (t, s):
            out = np.zeros(6)
            for pair in range(3):
                angle = place * 10000.0 ** (-2 * pair / 6)
                a, b = vector[pair], vector[pair + 3]
                out[pair], out[pair + 3] = (
                    a * math.cos(angle) - b * math.sin(angle),
                    b * math.cos(angle) + a * math.sin(angle),
                )
            turned.append(out)
        assert found.pairs[t, s] == pytest.approx(float(turned[0] @ turned[1]) / 6)
    assert found.by_distance["mean over pairs"][8] == pytest.approx(1.0)


def test_biases_by_head_and_distance() -> None:
    alibi = regard.positions_of("alibi", length=6, heads=4)
    for head in range(4):
        slope = 2.0 ** (-8 * (head + 1) / 4)
        assert alibi.by_distance[f"head {head}"] == pytest.approx([-slope * abs(d) for d in range(-5, 6)])
    t5 = regard.positions_of("t5", length=6, heads=4)
    near = {d: t5.by_distance["head 2"][d + 5] for d in range(-5, 6)}
    assert len({bucket_of(d, causal=False) for d in near}) == 11 == len(set(near.values()))
    assert t5.pairs[1, 4] == pytest.approx(t5.by_distance["head 0"][3 + 5])


def test_shaws_vectors_and_a_model_without_positions() -> None:
    shaw = regard.positions_of("shaw", length=20, width=16, heads=2)
    assert shaw.distances.tolist() == list(range(-8, 9)) and shaw.table.shape == (17, 8)
    assert shaw.by_distance["length of a"][3] == pytest.approx(math.sqrt(sum(shaw.table[3] ** 2)))
    assert shaw.pairs[0, 19] == pytest.approx(float(shaw.table[16] @ shaw.table[8]))  # as distance 8
    none = regard.positions_of("none", length=5)
    assert not none.table.any() and not none.pairs.any() and "no position is told" in none.notes[0]


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rotary", "shaw", "t5", "alibi", "none"])
def test_positions_of_a_model_are_its_own(kind: str) -> None:
    model = Generator(make("generate", "gpt2", **{**BLOCKS, "positions": kind}))
    found = regard.positions_of(model, TEXT)
    assert found.kind == kind
    tokens = len(model.read(TEXT).ids["text"])
    assert len(found.pairs) == tokens
    parts = dict(model.model.named_parameters())
    if kind == "learned":
        assert found.table == pytest.approx(parts["tokens.positions.table"][:tokens].detach().double().numpy())
    if kind == "t5":
        table = next(value for name, value in parts.items() if name.endswith("relative.table"))
        assert found.by_distance["head 0"][0] == pytest.approx(table[bucket_of(1 - tokens, causal=True), 0].item())


def test_positions_of_a_translator_and_of_a_vit() -> None:
    translator = Translator(transformer(positions="sinusoidal"))
    assert len(regard.positions_of(translator, TEXT).pairs) == len(translator.read(TEXT, "a").ids["source"])
    vit = view_of(_loaded(make_seeing("classify-pictures", "vit", {"layers": 1, "width": 8, "heads": 2, "feed_forward": 8})),
                  "positions", "photo.png")  # fmt: skip
    assert vit.kind == "learned"  # type: ignore[attr-defined]


def _loaded(bundle: Bundle) -> Any:
    from regard.tasks.classify_pictures.predictor import PictureLabeller

    return PictureLabeller(bundle)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"what": "rotatory"}, "no positions rotatory; did you mean rotary?"),
        (
            {"what": "rotary", "width": 9, "heads": 3},
            "a width of 9 is not 3 heads of even width; choose a multiple of 6",
        ),
        ({"what": "alibi", "length": 500}, "500 places cannot be shown; choose from 1 to 128"),
    ],
)
def test_positions_that_there_are_not(what: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        regard.positions_of(**what)
    assert str(error.value) == message


# --- Experts


@pytest.mark.parametrize("used", [1, 2])
def test_where_each_token_goes(used: int) -> None:
    """Against the router's own scores, token by token, and the output of a block that only asks those experts."""
    model = Generator(make("generate", "llama", **LLAMA, experts=5, experts_used=used))
    found = regard.routing_of(model, TEXT)
    own: Any = model.model
    reading = model.read(TEXT)
    assert found.labels == reading.labels["text"] and len(found.layers) == len(own.blocks)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    hooks = [
        block.feed_forward.register_forward_hook(lambda m, x, out: seen.append((x[0], out))) for block in own.blocks
    ]
    with torch.no_grad():
        reading.run()
        for hook in hooks:
            hook.remove()
        for layer, block, (x, out) in zip(found.layers, own.blocks, seen, strict=True):
            loads = np.zeros(5)
            for token, vector in enumerate(x[0]):
                scores = (block.feed_forward.router.weight @ vector).double().numpy()
                shares = np.exp(scores) / np.exp(scores).sum()
                best = np.argsort(-scores)[:used]
                weights = shares[best] if used == 1 else np.exp(scores[best]) / np.exp(scores[best]).sum()
                expected = np.zeros(5)
                expected[best] = weights
                loads[best] += 1
                assert layer.weights[token] == pytest.approx(expected, abs=1e-5)
                assert layer.probabilities[token] == pytest.approx(shares, abs=1e-5)
                mixed = sum(
                    float(w) * block.feed_forward.experts[int(e)](vector) for e, w in zip(best, weights, strict=True)
                )
                assert torch.allclose(mixed, out[0, token], atol=1e-4)
            assert layer.load == pytest.approx(loads / loads.sum())


def test_a_model_without_experts() -> None:
    with pytest.raises(UsageError, match=r"this gpt2 has no experts to choose from; train one with model\.experts=4"):
        regard.routing_of(Generator(make("generate", "gpt2", **BLOCKS)), TEXT)


# --- Outputs


def test_the_distribution_of_each_written_token() -> None:
    model = Translator(transformer())
    found = regard.outputs_of(model, TEXT, "a b", count=3)
    reading = model.read(TEXT, "a b")
    with torch.no_grad():
        logits = (reading.run()[0] @ model.model.output.weight.T).double().numpy()
    assert len(found.steps) == len(reading.predicted)
    for step, row, token in zip(found.steps, logits, reading.predicted, strict=False):
        shares = [math.exp(value - max(row)) for value in row]
        shares = [share / sum(shares) for share in shares]
        assert step.entropy == pytest.approx(-sum(share * math.log2(share) for share in shares), abs=1e-6)
        assert step.token.probability == pytest.approx(shares[token], abs=1e-6)
        best = sorted(range(len(shares)), key=lambda each: -shares[each])[:3]
        assert [each.id for each in step.likeliest] == best


def test_a_language_model_goes_on_by_itself_or_with_what_is_given() -> None:
    model = Generator(make("generate", "gpt2", **BLOCKS))
    own = regard.outputs_of(model, TEXT)
    greedy = model.generate(TEXT, sample=False, max_length=GOES_ON)
    assert tuple(step.token.id for step in own.steps) == greedy.ids
    never = model.tokenizer.specials.all - model.tokenizer.specials.ends  # may be likely, and are not written
    for step in own.steps:
        assert step.token.id == next(each.id for each in step.likeliest if each.id not in never)
    given = regard.outputs_of(model, TEXT, " two")
    assert [step.token.id for step in given.steps] == model.tokenizer.encode(" two")
    with pytest.raises(UsageError, match="nothing was written behind this text"):
        regard.outputs_of(model, TEXT, "")


# --- Beams


def searched(model: Translator, beam: int) -> BeamTree:
    return regard.beam_of(model, TEXT, beam=beam, max_length=6)


@pytest.mark.parametrize("kind", ["translate", "generate"])
def test_a_beam_as_a_tree_has_the_hypotheses_of_the_search(kind: str) -> None:
    if kind == "translate":
        model: Any = Translator(transformer())
        best = model.search_one(TEXT, model.options({"beam": 3, "n_best": 3, "max_length": 6}))
    else:
        model = Generator(make("generate", "gpt2", **BLOCKS))
        best = model.search_one(TEXT, model.options({"beam": 3, "n_best": 3, "sample": False, "max_length": 6}))
    tree = searched(model, 3)
    winner = tree.winner
    assert winner is not None
    end = model.tokenizer_of("target").specials.end
    ids = [tree.steps[depth][number].id for depth, number in tree.path(winner)]
    assert tuple(ids) == (*best[0].ids, end)  # also of what was cut off, which is ranked with its end
    scores = sorted((node.score for _, node in tree.nodes() if node.score is not None), reverse=True)
    assert scores == pytest.approx([each.score for each in best])
    for (depth, _), node in tree.nodes():
        if node.parent is not None:
            before = tree.steps[depth - 1][node.parent]
            assert before.state == "alive"
            assert node.total == pytest.approx(before.total + node.log_probability, abs=1e-5)
    for step in tree.steps:
        assert 1 <= sum(node.score is None for node in step) + sum(node.score is not None for node in step) <= 6


def hand_made() -> BeamTree:
    def node(parent: int | None, label: str, total: float, state: Any = "alive", score: float | None = None) -> Node:
        return Node(parent, ord(label[0]), label, -0.5, total, score, state)

    return BeamTree((
        (node(None, "two", -0.5), node(None, "a", -1.0)),
        (node(0, "dogs", -1.0), node(0, "cats", -1.5, "dropped"), node(1, "dog", -2.0)),
        (node(0, "</s>", -1.5, "ended", -0.5), node(2, "</s>", -2.5, "ended", -0.8)),
    ), "two Hunde")  # fmt: skip


def test_rows_of_a_tree_and_its_winner() -> None:
    tree = hand_made()
    assert tree.winner == (2, 0)
    assert tree.path((2, 0)) == [(0, 0), (1, 0), (2, 0)]
    rows = tree.rows()
    assert (rows[2, 0], rows[1, 0], rows[1, 1], rows[0, 0]) == (0, 0, 1, 0.5)
    assert rows[0, 1] == rows[1, 2] == rows[2, 1] == 2
    text = tree.text(60)
    assert text.splitlines()[2:6] == [
        "├─ two  (-0.50)",
        "│  ├─ dogs </s>  ★ -0.500",
        "│  └─ cats  ✗ (-1.50)",
        "└─ a dog </s>  ■ -0.800",
    ]


def test_a_tree_in_every_medium(tmp_path: Path) -> None:
    tree = hand_made()
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".json", b"{")):
        assert tree.save(tmp_path / f"tree{suffix}").read_bytes().startswith(start)
    page = ET.fromstring(tree.save(tmp_path / "tree.html").read_text().removeprefix("<!DOCTYPE html>\n"))
    svg = "{http://www.w3.org/2000/svg}"
    shown = [each.text for each in page.iter(f"{svg}text") if each.get("class") is None]
    assert shown == ["two", "a", "dogs", "cats", "dog", "</s>", "</s>"]
    assert len(list(page.iter(f"{svg}polyline"))) == 5


def test_an_empty_search_is_a_tree_too() -> None:
    assert BeamTree(()).winner is None and BeamTree(()).rows() == {}


# --- Panels


class Made(Panels):
    """One of each."""

    def panels(self) -> list[Any]:
        signed = np.array([[-1.0, 0.5], [0.25, np.nan], [0.0, 1.0]])
        return [
            HeatMap("signed", signed, ("a", "b", "c"), ("x < y", "$z_1$"), "number"),
            HeatMap("words", np.array([[0.5, 1.0]]), ("best",), ("one", "two"), texts=(("<s> 50%", "& 100%"),)),
            Gallery("plain", (HeatMap("one", np.arange(12.0).reshape(3, 4)), HeatMap("two", -np.ones((3, 4))))),
            Chart("lines", np.arange(3), {"one": np.array([1.0, 0.1, np.nan]), "two": np.ones(3)}, logarithmic=True),
            Photo("box", np.zeros((8, 8, 3), dtype=np.uint8), {"by formula": (1, 2, 5, 6)}),
            Facts("facts", ("layer", "size"), (("0", "3 x 3"),)),
        ]

    def data(self) -> dict[str, Any]:
        return {}


def test_panels_in_every_medium(tmp_path: Path) -> None:
    made = Made("all <kinds>", ("a note & more",))
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        assert made.save(tmp_path / f"made{suffix}").read_bytes().startswith(start)
    page = made.save(tmp_path / "made.html").read_text()
    ET.fromstring(page.removeprefix("<!DOCTYPE html>\n"))  # well-formed, every text escaped
    assert "http://" not in page.replace("http://www.w3.org", "")
    text = made.text(60)
    assert " a ==++" in text.replace("  a", " a") or "a ==++" in text
    assert "rows 2 to 5, columns 1 to 4 of 8 x 8" in text
    assert made._repr_html_().startswith("<img")


def test_scales_of_heat_maps() -> None:
    signed = HeatMap("s", np.array([[-1.7, 0.4]]), ("r",), ("a", "b"))
    assert signed.ends == (-2.0, 2.0)
    assert signed.shares() == pytest.approx(np.array([[0.075, 0.6]]))
    assert HeatMap("p", np.array([[0.0, 0.3]])).ends == (0.0, 0.3)
    part = HeatMap("p", np.array([[0.0, 9.0, 1.0]]), ("r",), ("a", "b", "c")).part(slice(2, 3))
    assert part.columns == ("c",) and part.ends == (0.0, 10.0)
    with pytest.raises(RegardError, match="labels for"):
        HeatMap("p", np.zeros((2, 2)), ("a",), ("b", "c"))
    assert liveliest(np.array([[0.0, 5.0, 1.0], [0.0, -5.0, 3.0]]), 2).tolist() == [1, 2]


# --- On the command line


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views")
    made: dict[str, Callable[[], Bundle]] = {
        "translator": transformer,
        "soft": lambda: make_translator("bahdanau", width=12, hidden=14),
        "lstm": lambda: make("generate", "lstm", width=12, hidden=14),
        "experts": lambda: make("generate", "llama", **LLAMA, experts=3),
        "bytenet": lambda: make_translator("bytenet"),
        "convnet": lambda: make_seeing("classify-pictures", "convnet", {k: v for k, v in EYES.items() if k != "kind"}),
    }
    for name, bundle in made.items():
        save_bundle(folder / name, bundle())
    rng = np.random.default_rng(3)
    Image.fromarray(rng.integers(0, 255, (24, 24, 3)).astype(np.uint8)).save(folder / "photo.png")
    lines = [" ".join(rng.choice(["two", "dogs", "sleep", "a", "man"], 6)) for _ in range(300)]
    (folder / "texts.txt").write_text("\n".join(lines))
    return folder


def typed(capsys: Captured, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["two dogs", "-m", "lstm", "--as", "states"], "layer 0: forget gate f"),
        (["two dogs", "-m", "soft", "--as", "states", "--second", "zwei"], "encoder, layer 0, backwards"),
        (["photo.png", "-m", "convnet", "--as", "features", "--place", "1,2"], "what place (1, 2) of"),
        (["rotary", "--as", "positions"], "mean cos((s − t) θ), by distance"),
        (["two dogs", "-m", "translator", "--as", "positions"], "p · p′"),
        (["two dogs", "-m", "experts", "--as", "routing"], "expert 2"),
        (["two dogs", "-m", "translator", "--as", "beam", "--beam", "2"], "★"),
        (["two dogs", "-m", "lstm", "--as", "beam"], "beam search with 4 hypotheses: two dogs"),
        (["two dogs", "-m", "soft", "--as", "outputs"], "entropy"),
    ],
)
def test_each_view_in_the_terminal_and_as_a_page(
    words: list[str], expected: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(here)
    code, out, err = typed(capsys, "look", *words)
    assert code == 0, err
    assert expected in out
    code, _, err = typed(capsys, "look", *words, "-o", "view.html")
    assert code == 0 and "wrote view.html" in err
    ET.fromstring((here / "view.html").read_text().removeprefix("<!DOCTYPE html>\n"))


def test_texts_of_a_file_are_probed(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(here)
    code, _, err = typed(
        capsys, "look", "two dogs", "-m", "lstm", "--as", "states", "--on", "texts.txt", "-o", "states.json"
    )
    assert code == 0, err
    data = json.loads((here / "states.json").read_text())
    assert data["knowledge"]["lengths"][:3] == [1, 2, 4]
    assert data["knowledge"]["trained"][0] > 0.9 > data["knowledge"]["majority"][0]
    assert {each["measure"]: each["texts"] for each in data["gradients"]} == {
        "last state": 12,
        "loss of the last token": 12,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["two", "-m", "bytenet", "--as", "states"],
            "a bytenet to translate has no states to see; it has beam, outputs",
        ),
        (
            ["two", "-m", "lstm", "--as", "routing"],
            "a lstm to generate has no routing to see; it has states, beam, outputs",
        ),
        (
            ["photo.png", "-m", "convnet", "--as", "beam"],
            "a convnet to classify-pictures has no beam to see; it has features",
        ),
        (
            ["photo.png", "-m", "lstm", "--as", "states"],
            "photo.png is a picture, and lstm is a model to generate texts",
        ),
        (["two", "-m", "lstm", "--as", "stats"], "nothing is shown as stats; did you mean states?"),
        (
            ["two", "-m", "lstm", "--as", "beam", "--head", "1"],
            "--head is about attention, and --as beam shows something else",
        ),
        (["two", "-m", "lstm", "--as", "beam", "--on", "texts.txt"], "--on says nothing of --as beam; leave it out"),
        (["two", "-m", "translator", "--beam", "3"], "--beam is for --as beam"),
        (["photo.png", "-m", "convnet", "--as", "features", "--place", "x"], "--place takes a row and a column"),
        (
            ["two", "-m", "lstm", "--as", "states", "-o", "states.csv"],
            "cannot tell how to write states.csv; use .png, .svg",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    words: list[str], message: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(here)
    code, _, err = typed(capsys, "look", *words)
    assert code == 2
    assert message in err


def test_every_view_has_a_public_function_and_some_model() -> None:
    assert {f"{name}_of" for name in VIEWS} <= set(regard.__all__)


def test_views_of_models(here: Path) -> None:
    assert views_of(load(here / "translator")) == ("states", "positions", "beam", "outputs")
    assert views_of(load(here / "experts")) == ("states", "positions", "routing", "beam", "outputs")
