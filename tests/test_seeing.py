"""Models that see, from files to answers: trained for a few updates, kept, used, looked into, scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from regard.bundle import load_bundle
from regard.data.builtin.scenes import scenes
from regard.data.pictures.load import held_out, load_captions, load_pictures, load_questions
from regard.data.pictures.store import ArrayStore
from regard.errors import RegardError, UsageError
from regard.models.pictures.convolutional import EfficientNetLite0
from regard.tasks.caption.features import features_of
from regard.tasks.classify_pictures.config import ClassifyPicturesConfig
from regard.tasks.configure import run_config
from regard.tasks.evaluate_pictures import evaluate_answers, evaluate_captions, evaluate_pictures
from regard.tasks.run import RunResult, resume_run, start_run
from regard.tasks.see import see
from regard.tensors import weights_of, write_tensors

TINY: dict[str, dict[str, Any]] = {
    "vit": {"kind": "vit", "layers": 2, "width": 16, "heads": 2, "feed_forward": 24, "dropout": 0.1},
    "convnet": {"kind": "convnet", "channels": (4, 8), "layers": 1, "attention": "cbam"},
    "resnet": {"kind": "resnet", "channels": (4, 8), "blocks": 1, "attention": "se"},
    "mixer": {"kind": "mixer", "layers": 2, "width": 16, "places": 8, "feed_forward": 24},
    "convmixer": {"kind": "convmixer", "patch": 4, "layers": 2, "width": 8, "kernel": 3},
}
ENCODER = {"kind": "convnet", "channels": (4, 8), "layers": 1}
WRITERS: dict[str, dict[str, Any]] = {
    "show-attend-tell": {"kind": "show-attend-tell", "width": 16, "hidden": 16, "encoder": ENCODER},
    "caption-transformer": {
        "kind": "caption-transformer", "width": 16, "heads": 2, "layers": 1, "feed_forward": 24, "encoder": ENCODER,
    },
    "show-and-tell": {"kind": "show-and-tell", "width": 16, "hidden": 16, "encoder": ENCODER},
}  # fmt: skip
TRAIN = {"steps": 4, "validate_every": 2, "batch_pictures": 8, "warmup": 1, "precision": "float32"}
DATA = {"builtin_size": 60, "hold_out": 20}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept outside of the test."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))


def train_classifier(folder: Path, kind: str = "vit", **changes: Any) -> RunResult:
    over = {"model": TINY[kind], "data": {**DATA, "augment": {"crop": 2, "erase": 0.3}}, "train": {**TRAIN, **changes}}
    return start_run(run_config("classify", over), folder=folder)


def train_captioner(folder: Path, kind: str = "show-attend-tell") -> RunResult:
    over = {"model": WRITERS[kind], "data": DATA, "train": TRAIN, "validate": {"pictures": 4}}
    return start_run(run_config("caption", over), folder=folder)


def train_answerer(folder: Path) -> RunResult:
    model = {"kind": "answerer", "width": 16, "heads": 2, "layers": 1, "feed_forward": 24, "encoder": ENCODER}
    return start_run(run_config("answer", {"model": model, "data": DATA, "train": TRAIN}), folder=folder)


def photo(path: Path, size: tuple[int, int] = (90, 60)) -> Path:
    """A picture that is no square: left half red, right half blue."""
    pixels = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    pixels[:, : size[0] // 2, 0] = 200
    pixels[:, size[0] // 2 :, 2] = 200
    Image.fromarray(pixels).save(path)
    return path


# -- configurations --


def test_to_classify_is_one_word_for_texts_and_pictures(tmp_path: Path) -> None:
    assert run_config("classify").task == "classify"
    assert isinstance(run_config("classify", {"model": {"kind": "vit"}}), ClassifyPicturesConfig)
    assert run_config("classify", {"data": {"train": "builtin/glyphs"}}).task == "classify-pictures"
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        photo(tmp_path / name / "1.jpg")
    assert run_config("classify", {"data": {"train": str(tmp_path)}}).task == "classify-pictures"
    with pytest.raises(UsageError, match="vit does not caption"):
        run_config("caption", {"model": {"kind": "vit"}})


# -- data --


def test_held_out_pictures_are_those_of_a_hash_and_equal_ones_stay_together() -> None:
    pictures = np.random.default_rng(1).integers(0, 256, (200, 4, 4, 1)).astype(np.uint8)
    twice = ArrayStore(np.concatenate([pictures, pictures[::-1]]))
    inside = held_out(twice, np.arange(400), 1000)
    assert 0.03 < inside.mean() < 0.2
    assert (inside[:200] == inside[200:][::-1]).all()
    with pytest.raises(RegardError, match="too few"):
        held_out(ArrayStore(pictures[:1]), np.arange(1), 1)


def test_labels_follow_pictures_when_broken_ones_are_left_out(tmp_path: Path) -> None:
    """Each class has its own grey; a broken file in the middle must not shift labels."""
    for number, name in enumerate(("a", "b", "c")):
        (tmp_path / name).mkdir()
        for row in range(20):
            grey = np.full((8, 8, 3), 60 * number + row, dtype=np.uint8)
            Image.fromarray(grey).save(tmp_path / name / f"{row:02}.png")
    (tmp_path / "a" / "05.png").write_bytes(b"no picture")
    (tmp_path / "b" / "00.png").write_bytes((tmp_path / "b" / "01.png").read_bytes()[:40])
    config = run_config("classify", {"data": {"train": str(tmp_path), "hold_out": 20}})
    assert isinstance(config, ClassifyPicturesConfig)
    found = load_pictures(config.data)
    assert found.names == ("a", "b", "c") and len(found.train.rows) + len(found.valid.rows) == 58
    assert any("2 of 60" in note for note in found.notes)
    for part in (found.train, found.valid):
        greys = part.store.take(part.rows)[:, 0, 0, 0]
        assert (greys // 60 == part.labels).all()
    assert not set(found.train.rows) & set(found.valid.rows)
    assert found.format.size == 8 and found.format.channels == 3
    pixels = found.train.store.take(found.train.rows).reshape(-1, 3) / 255
    assert np.allclose(found.format.mean, pixels.mean(axis=0), atol=1e-3)
    assert np.allclose(found.format.deviation, pixels.std(axis=0), atol=1e-3)


def test_captions_and_questions_follow_their_pictures(tmp_path: Path) -> None:
    rows, asked = [], []
    for number in range(30):
        Image.fromarray(np.full((8, 8, 3), number * 8, dtype=np.uint8)).save(tmp_path / f"{number}.png")
        rows.append({"picture": f"{number}.png", "captions": [f"grey {number}", f"shade {number}"]})
        asked += [{"picture": f"{number}.png", "question": f"q{k} {number}", "answer": str(number % 3)} for k in (1, 2)]
    (tmp_path / "7.png").write_bytes(b"")
    for name, lines in (("c.jsonl", rows), ("q.jsonl", asked)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    captions = run_config("caption", {"data": {"train": str(tmp_path / "c.jsonl")}}).data
    train, valid, _, notes = load_captions(captions)  # type: ignore[arg-type]
    assert any("1 of 30" in note for note in notes)
    for part in (train, valid):
        for row, texts in zip(part.rows, part.captions, strict=True):
            number = int(part.store.take(np.array([row]))[0, 0, 0, 0]) // 8
            assert texts == (f"grey {number}", f"shade {number}")
    assert len(train.rows) + len(valid.rows) == 29
    questions = run_config("answer", {"data": {"train": str(tmp_path / "q.jsonl")}}).data
    first, second, _, _ = load_questions(questions)  # type: ignore[arg-type]
    for half in (first, second):
        for row, question, answer in zip(half.rows, half.questions, half.answers, strict=True):
            number = int(half.store.take(np.array([row]))[0, 0, 0, 0]) // 8
            assert question.split()[1] == str(number) and answer == str(number % 3)
    assert not {q.split()[1] for q in first.questions} & {q.split()[1] for q in second.questions}


# -- from training to use --


@pytest.mark.parametrize("kind", TINY)
def test_a_classifier_of_pictures_learns_is_kept_and_used(kind: str, tmp_path: Path) -> None:
    result = train_classifier(tmp_path / "run", kind)
    user = result.load()
    again = load_bundle(result.best)
    assert all(torch.equal(a, weights_of(again.model)[name]) for name, a in weights_of(user.model).items())
    found = user.classify([photo(tmp_path / "a.png"), photo(tmp_path / "b.png", (30, 80))])
    for each in found:
        assert each.label in user.labels and sum(each.probabilities.values()) == pytest.approx(1)
        assert each.probability == max(each.probabilities.values())
    assert user.classify(tmp_path / "b.png").label == found[1].label
    scores = evaluate_pictures(user, ["builtin/glyphs/valid"])
    wanted = [user.classify(picture).label for picture in _glyphs(5)]
    assert [user.labels[place] for place in scores.predicted[:5]] == wanted


def _glyphs(count: int) -> list[np.ndarray]:
    from regard.data.builtin.glyphs import glyphs

    return list(glyphs(1000, 2)[0][:count])


def test_looking_at_channels_and_at_mixing(tmp_path: Path) -> None:
    path = photo(tmp_path / "a.png", (28, 28))
    user = train_classifier(tmp_path / "se", "resnet").load()
    found = user.look(path)
    assert all(values.shape == (channels,) for values, channels in zip(found.layers.values(), (4, 8), strict=True))
    assert all((values > 0).all() and (values < 1).all() for values in found.layers.values())
    assert found.save(tmp_path / "bars.png").stat().st_size > 1000
    assert json.loads(found.save(tmp_path / "bars.json").read_text())["layers"].keys() == found.layers.keys()
    mixer = train_classifier(tmp_path / "mixer", "mixer").load()
    mixing = mixer.look(path)
    assert [matrix.shape for matrix in mixing.matrices] == [(49, 49)] * 2
    assert mixing.save(tmp_path / "mixing.png").stat().st_size > 1000
    with pytest.raises(UsageError, match="no attention over channels"):
        mixer.channels(path)
    spatial = train_classifier(tmp_path / "cbam", "convnet").load().look(path, layer=0)
    assert spatial.grid == (28, 28) and len(spatial.panels) == 1
    plain = {"model": {"kind": "convnet", "channels": (4, 8), "layers": 1}, "data": DATA, "train": TRAIN}
    with pytest.raises(UsageError, match="no attention over places"):
        start_run(run_config("classify", plain), folder=tmp_path / "plain").load().look(path)


def test_running_statistics_are_kept_in_bundle_and_average(tmp_path: Path) -> None:
    result = train_classifier(tmp_path / "run", "convnet", ema=0.5)
    kept = weights_of(load_bundle(result.best).model)
    statistics = [name for name in kept if name.endswith(("mean", "variance"))]
    assert statistics and any(
        float(kept[name].abs().sum()) not in (0.0, float(kept[name].numel())) for name in statistics
    )


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    """Augmentation, dropout and running statistics included."""
    for kind in ("convnet", "vit"):
        whole = train_classifier(tmp_path / f"{kind} whole", kind, schedule="constant")
        first = train_classifier(tmp_path / f"{kind} broken", kind, schedule="constant", steps=2)
        second = resume_run(first.folder, steps=4)
        a, b = (weights_of(load_bundle(each.folder / "last").model) for each in (whole, second))
        assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_captioner_learns_is_kept_and_used(kind: str, tmp_path: Path) -> None:
    result = train_captioner(tmp_path / "run", kind)
    user = result.load()
    path = photo(tmp_path / "a.png")
    one = user.caption(path, beam=3, n_best=2, max_length=6)
    assert one.text and len(one.alternatives) == 1 and one.log_probability >= one.alternatives[0].log_probability - 50
    found = evaluate_captions(user, ["builtin/shapes/valid"], beam=1, max_length=6)
    assert found.exact is not None and len(found.outputs) == 1000
    drawn = scenes(1000, 2).pictures[3]
    assert user.caption(drawn, beam=1, max_length=6).text == found.outputs[3]
    if kind == "show-and-tell":
        with pytest.raises(UsageError, match="no attention"):
            user.look(path)
        return
    shown = user.look(path, max_length=6)
    caption = user.caption(path, max_length=6)
    assert [panel.title for panel in shown.panels] == list(caption.tokens)
    assert all(panel.weights.sum() == pytest.approx(1, abs=1e-5) for panel in shown.panels)
    assert shown.picture.shape == (60, 90, 3)
    left, top, right, bottom = shown.seen
    assert (left, top, right, bottom) == pytest.approx((15, 0, 75, 60))  # the middle square of a landscape
    assert shown.save(tmp_path / "words.png").stat().st_size > 1000
    with pytest.raises(UsageError, match="no layer 7"):
        user.look(path, layer=7)


def test_word_tokens_are_written_as_people_write(tmp_path: Path) -> None:
    user = train_captioner(tmp_path / "run").load()
    wanted = next(text for text in scenes(60, 1).captions if "," in text)
    assert user.text(user.tokenizer.encode(wanted)) == wanted


def test_an_answerer_learns_is_kept_and_used(tmp_path: Path) -> None:
    user = train_answerer(tmp_path / "run").load()
    path = photo(tmp_path / "a.png")
    found = user.answer(path, ["how many shapes are there?", "what colour is the circle?"])
    assert [each.answer in user.labels for each in found] == [True, True]
    assert user.answer(path, "what colour is the circle?").probabilities == pytest.approx(
        found[1].probabilities, abs=1e-6
    )
    shown = user.look(path, "what colour is the circle?")
    assert [panel.title for panel in shown.panels][:3] == ["what", "colour", "is"]
    assert all(panel.weights.sum() == pytest.approx(1, abs=1e-5) for panel in shown.panels)
    scores = evaluate_answers(user, ["builtin/shapes/valid"])
    drawn = scenes(1000, 2)
    asked = [(picture, q) for picture, qs in zip(drawn.pictures, drawn.questions, strict=True) for q, _ in qs]
    for place in (0, 5, 11):
        assert user.labels[scores.predicted[place]] == user.answer(*asked[place]).answer


def test_features_are_computed_once_and_are_the_encoders(tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = run_config("caption", {"model": {"encoder": {"kind": "efficientnet-lite0", "depth": "block-5"}}}).model
    from regard.data.pictures.config import PictureFormat

    format = PictureFormat(size=32)
    encoder = EfficientNetLite0(config.encoder, format).eval()  # type: ignore[union-attr]
    store = ArrayStore(np.random.default_rng(1).integers(0, 256, (40, 32, 32, 3)).astype(np.uint8))
    found = features_of(encoder, store, format)
    from regard.data.pictures.augment import normalise

    with torch.no_grad():
        pixels = normalise(torch.from_numpy(store.take(np.array([33]))).permute(0, 3, 1, 2), format)
        expected = encoder(pixels).places[0].numpy()
    assert np.allclose(found.take(np.array([33]))[0], expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())
    calls: list[int] = []
    encoder.register_forward_hook(lambda *_: calls.append(1))
    features_of(encoder, store, format)
    assert not calls
    with torch.no_grad():
        encoder.stem.weight.mul_(1.1)  # type: ignore[operator]
    features_of(encoder, store, format)
    assert calls


def test_a_captioner_on_features_captions_a_picture_it_never_saw(tmp_path: Path) -> None:
    """The bundle holds the encoder's weights: the file they came from is not needed any more."""
    from regard.data.pictures.config import PictureFormat
    from regard.models.configs.pictures import EfficientNetConfig

    torch.manual_seed(2)
    weights = tmp_path / "encoder.safetensors"
    encoder = EfficientNetLite0(EfficientNetConfig(depth="block-5"), PictureFormat(size=48))
    write_tensors(weights, weights_of(encoder))
    model = {**WRITERS["show-attend-tell"]}
    model["encoder"] = {"kind": "efficientnet-lite0", "weights": str(weights), "depth": "block-5"}
    over = {"model": model, "data": DATA, "train": TRAIN, "validate": {"pictures": 2}}
    result = start_run(run_config("caption", over), folder=tmp_path / "run")
    weights.unlink()
    user = result.load()
    assert torch.equal(user.model.encoder.stem.weight, encoder.stem.weight)
    assert user.caption(photo(tmp_path / "a.png"), max_length=5).text


def test_a_grey_model_sees_colours_as_pillow_turns_them_grey(tmp_path: Path) -> None:
    from regard.data.pictures.config import PictureFormat

    path = photo(tmp_path / "a.png", (28, 28))
    shown = see(path, PictureFormat(size=28, channels=1)).shown
    expected = np.asarray(Image.open(path).convert("L"))
    assert np.abs(shown[..., 0].astype(int) - expected).max() <= 1
