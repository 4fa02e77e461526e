"""Pictures as data of language models, from files of pixels to sheets, completions and films, by the commands as typed."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.cli.main import run
from regard.data.builtin.figures import figures
from regard.data.documents import read_documents
from regard.data.form import Form, in_sets, is_packed
from regard.data.notation import notation_of, side_of, tokens_for
from regard.data.pixel_texts import SEED, draw_levels, read_packed
from regard.data.stream import TokenStream, Windows, evaluation_batches, sampled_batches, sampled_starts
from regard.errors import RegardError, UsageError
from regard.inspect.pixels import gradients_of, looks_of
from regard.look.pixels import PictureSheet, WritingFilm, as_picture
from regard.models.configs.pixels import PixelCNNConfig
from regard.models.pixelcnn import PixelCNN
from regard.studio import describe
from regard.studio.catalog import Entry
from regard.tasks.choose import chosen
from regard.tasks.configure import run_config
from regard.tasks.generate.paint import Beginning, beginnings, film_of, likeliest_label, sheet_of, written
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.recipe import _kind_notes
from regard.tasks.rules import GENERATE
from regard.tokens.config import SPECIALS, TokensConfig
from regard.tokens.encoder import Encoder
from regard.tokens.pixels import greys_of, read_digits, words_of_pixels, write_digits
from regard.tokens.samples import write_letters
from regard.tokens.tokenizer import train_tokenizer

SIDE = 7
LABELS = ("0", "1", "2")
SHORT = ["train.batch_tokens=150", "train.validate_every=2", "train.precision=float32", "train.warmup=0"]
CONVOLUTIONS = ["model.layers=2", "model.channels=3", "model.inputs=3", "model.width=5", "model.first=3"]
BLOCKS = ["model.layers=1", "model.width=12", "model.heads=2", "model.feed_forward=16", "model.memory=11"]


def typed(*words: object) -> int:
    return run([str(word) for word in words])


def pack(place: Path, name: str, data: np.ndarray) -> None:
    """Write bytes in MNIST's format, gzipped."""
    head = bytes([0, 0, 8, data.ndim]) + b"".join(size.to_bytes(4, "big") for size in data.shape)
    (place / f"{name}-idx{data.ndim}-ubyte.gz").write_bytes(gzip.compress(head + data.astype(np.uint8).tobytes(), 1))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like MNIST's with pictures of 7 x 7: a bright column, left, in the middle, or right, by its label."""
    here, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(5)
    for part, count in (("train", 61), ("t10k", 13)):
        labels = random.integers(len(LABELS), size=count)
        labels[: len(LABELS)] = range(len(LABELS))
        pictures = random.integers(60, size=(count, SIDE, SIDE))
        pictures[np.arange(count), :, 1 + 2 * labels] = random.integers(190, 256, size=(count, SIDE))
        pack(here, f"{part}-images", pictures)
        pack(here, f"{part}-labels", labels)
    return here


def named(place: Path, part: str = "train") -> list[str]:
    return [str(place / f"{part}-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1")]


@pytest.fixture(scope="module")
def labelled(place: Path) -> Path:
    """A PixelCNN of the pictures with their labels."""
    settings = [f"--set={each}" for each in (*SHORT, *CONVOLUTIONS)]
    assert typed("train", "generate", "--data", *named(place), "--steps", 5, *settings, "-o", place / "labelled") == 0
    return place / "labelled"


@pytest.fixture(scope="module")
def plain(place: Path) -> Path:
    """An Image Transformer of the pictures alone, in four levels."""
    settings = [f"--set={each}" for each in (*SHORT, *BLOCKS, "model.kind=image-transformer", "data.levels=4")]
    words = ("train", "generate", "--data", named(place)[0], "--steps", 3, *settings, "-o", place / "plain")
    assert typed(*words) == 0
    return place / "plain"


# --- Pictures as texts


def test_a_pixel_is_drawn_once_by_the_picture() -> None:
    """White with probability grey / 255, by numbers whose key is the seed and the SHA-256 of the bytes."""
    grey = np.random.default_rng(3).integers(256, size=(5, 7, 1)).astype(np.uint8)
    key = int.from_bytes(hashlib.sha256(grey.tobytes()).digest()[:8], "big")
    random = np.random.Generator(np.random.SFC64(np.random.SeedSequence((SEED, key))))
    expected = [int(random.random() * 255 < value) for value in grey.reshape(-1)]
    assert draw_levels(grey, 2).reshape(-1).tolist() == expected and 0 < sum(expected) < 35
    assert draw_levels(np.array([0, 255], np.uint8), 2).tolist() == [0, 1]
    assert draw_levels(np.array([0, 42, 43, 127, 128, 255], np.uint8), 4).tolist() == [0, 0, 1, 1, 2, 3]
    assert greys_of(np.arange(4), 4).tolist() == [0, 85, 170, 255]


def test_digits_tell_levels_and_a_label() -> None:
    levels = np.random.default_rng(1).integers(16, size=(3, 5))
    text = write_digits(levels, "a <b>")
    assert text.startswith("<a b>") and len(text) == 5 + 15
    back, label = read_digits(text)
    assert back.tolist() == levels.reshape(-1).tolist() and label == "a b"
    assert words_of_pixels(3, ["<b>00", "<>01", "<a>", "<b>"]) == ["0", "1", "2", "<>", "<a>", "<b>"]


@pytest.mark.parametrize("kind", ["pixels", "samples"])
def test_letters_are_looked_up_as_the_library_does(kind: Any) -> None:
    texts = [write_digits(np.arange(2), "x"), write_letters(np.array([0.0, 0.5]), "x"), write_digits(np.arange(3), "y")]
    tokenizer = train_tokenizer(texts, TokensConfig(kind=kind, levels=2))
    odd = [*texts, "", "<", "<x", "01<x>1", "<nobody>01", "</s>0", "0é中", "<>0", "a<"]
    ids, lengths = Encoder(tokenizer)(odd)
    assert np.split(ids, np.cumsum(lengths)[:-1])[3].size == 0
    assert [each.tolist() for each in np.split(ids, np.cumsum(lengths)[:-1])] == tokenizer.encode_all(odd)


def test_files_that_belong_together_are_read_together(place: Path) -> None:
    names = ["a-images-idx3-ubyte", "a-labels-idx1-ubyte", "data_batch_1.bin", "data_batch_2.bin", "b.png", "b.json"]
    assert list(in_sets(names)) == [tuple(names[:2]), tuple(names[2:4]), ("b.png",), ("b.json",)]
    assert list(in_sets(["data_batch_1.png", "l.json", "x.png"])) == [("data_batch_1.png", "l.json"), ("x.png",)]
    assert tokens_for(["my_batch_notes.txt"]) is None and is_packed(Path("test_batch.png"))
    with pytest.raises(UsageError, match="labels behind it"):
        read_packed([Path("test_batch.png")])
    assert tokens_for(named(place)) == tokens_for([str(place)]) == tokens_for(["builtin/figures"]) == "pixels"
    found = read_documents(named(place), form=Form(side=SIDE)).texts
    assert found == read_documents([str(place)], form=Form(side=SIDE)).texts and len(found) == 61
    assert found[0].startswith("<0>") and len(found[0]) == 3 + SIDE**2
    alone = read_documents(named(place)[:1], form=Form(side=SIDE)).texts
    assert [text[3:] for text in found] == [text[2:] for text in alone] and alone[0].startswith("<>")
    with pytest.raises(RegardError, match="different ways"):
        tokens_for([named(place)[0], "builtin/canon"])


def test_a_folder_of_pictures_has_a_label_a_folder(tmp_path: Path) -> None:
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((40, 50, 3), 255 * number, np.uint8)).save(tmp_path / name / "a.png")
    (tmp_path / "dog" / "broken.png").write_bytes(b"\x89PNG")
    assert side_of([str(tmp_path)]) == 28
    found = read_documents([str(tmp_path)], form=Form(side=5, levels=3))
    assert found.texts == ["<cat>" + "0" * 25, "<dog>" + "2" * 25]
    assert "broken.png" in " ".join(found.notes) and len(found.left_out) == 1


def test_figures_are_a_function_of_their_number() -> None:
    pictures, labels = figures(7, 1, 11)
    again, more = figures(11, 1, 11)
    assert np.array_equal(again[:7], pictures) and more[:7] == labels and pictures.shape == (7, 11, 11, 1)
    assert pictures.max() == 255 and not pictures[:, 0, 0].any() and len(set(more)) > 2
    texts = list(notation_of("builtin/figures").documents("builtin/figures/test", 20 * 300, Form(side=8)))  # type: ignore[union-attr]
    assert len(texts) == 4 and texts != list(
        notation_of("builtin/figures").documents("builtin/figures", 300, Form(side=8))
    )  # type: ignore[union-attr]


# --- Whole pictures in batches


def test_windows_are_whole_pictures_and_labels_do_not_count() -> None:
    each, count = 2 + 5, 11
    ids = np.arange(each * count) % 13
    stream = TokenStream(ids.astype(np.uint16), 13, whole=each, given=1)
    windows = Windows(stream, 3, 2, seed=1)
    batches = [windows.get(0, number) for number in range(windows.count(0))]
    seen = sorted(row.tolist() for batch in batches for row in batch.ids)
    assert len(seen) == 10 and all(row in ids.reshape(count, each).tolist() for row in seen)
    assert {(batch.tokens, batch.skip) for batch in batches} == {(2 * 5, 1)}
    whole = list(evaluation_batches(stream, 3, 4))
    assert torch.cat([batch.ids for batch in whole]).tolist() == ids.reshape(count, each).tolist()
    assert sum(batch.tokens for batch in whole) == stream.counted == 55
    assert sampled_starts(stream, 3, 4 * each) == [0, 2 * each, 5 * each, 8 * each]
    assert sum(batch.tokens for batch in sampled_batches(stream, 3, 3, 4 * each)) == 4 * 5


def test_settings_follow_from_the_pictures(place: Path) -> None:
    for kind, longest in (("pixelcnn", None), ("llama", 2 + SIDE**2)):
        config: Any = run_config("generate", {"data": {"train": named(place)}, "model": {"kind": kind}})
        assert (config.data.side, config.data.context, config.tokens.side, config.tokens.levels) == (7, 50, 7, 2)
        assert longest is None or config.model.max_length == longest
        assert longest is not None or (config.model.rows, config.model.labels_from) == (SIDE, SPECIALS + 2)
    facts = {"side": 7, "picture": 50, "seconds": 60, "characters": 3000, "characters a second": 50}
    found = {each.setting: each.value for each in chosen(GENERATE, facts, "pixelcnn", frozenset(), "pixels")}
    assert (found["data.context"], found["train.batch_tokens"], found["train.lr"]) == (50, 4112, 8e-3)


# --- From the first command to the last


def test_eval_tells_exact_nats_a_picture(labelled: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ln p of every pixel, by the model's own distribution over what was read before it."""
    assert typed("eval", labelled, "--on", *named(place, "t10k"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    generator: Generator = regard.load(labelled)
    total = 0.0
    for text in read_documents(named(place, "t10k"), form=Form(side=SIDE)).texts:
        ids = torch.tensor([[1, *generator.tokenizer.encode(text)]])
        with torch.no_grad():
            scores = generator.model.output(generator.model.read(ids[:, :-1]))[0].log_softmax(-1)
        total -= float(scores[1:].gather(1, ids[0, 2:, None]).sum())
    pictures = found["pictures"]
    assert (pictures["count"], pictures["dimensions"]) == (13, 49)
    assert pictures["nats"] == pytest.approx(total / 13, rel=1e-5)
    assert pictures["bits_per_dimension"] == pytest.approx(total / 13 / 49 / np.log(2), rel=1e-5)
    assert found["bits_per_byte"] is None and not found["notes"]
    assert typed("eval", labelled, "--on", named(place, "t10k")[0]) == 0
    said = capsys.readouterr()
    assert (
        "bits per dimension" in said.out
        and "of 49 pixels" in said.out
        and "13 of 13 pictures have no label" in said.err
    )


def test_a_sheet_a_picture_and_a_label(labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("-o", tmp_path / "sheet.png", "-o", tmp_path / "sheet.json")
    assert typed("generate", "-m", labelled, "--samples", 7, "--seed", 3, *out) == 0
    sheet = json.loads((tmp_path / "sheet.json").read_text())
    assert [each["label"] for each in sheet["pictures"]] == [*LABELS, *LABELS, LABELS[0]]
    assert {level for each in sheet["pictures"] for row in each["levels"] for level in row} == {0, 1}
    assert "7 pictures in" in capsys.readouterr().err and Image.open(tmp_path / "sheet.png").size[0] > 3 * SIDE
    words = ("--label", 2, "--seed", 3, "-o", tmp_path / "one.png", "--json")
    assert typed("generate", "-m", labelled, *words) == 0
    one = np.array(Image.open(tmp_path / "one.png"))
    assert one.shape == (SIDE, SIDE) and set(np.unique(one)) <= {0, 255}
    told = json.loads(capsys.readouterr().out)
    assert (
        told["prompt"] == "<2>" and read_digits("<2>" + told["text"])[0].tolist() == (one.reshape(-1) // 255).tolist()
    )
    assert typed("generate", "-m", labelled, "--samples", 2) == 0
    assert "pixelcnn: 2 written" in capsys.readouterr().out


def test_together_and_alone_are_the_same_pictures(labelled: Path) -> None:
    generator: Generator = regard.load(labelled)
    begins = beginnings(generator, 5)
    together, heard = written(generator, begins, seed=2), list[tuple[int, int]]()
    alone = generator.generate(
        begins[3].text, seed=2, places=[3], progress=lambda done, total: heard.append((done, total))
    )
    assert str(alone) == str(together[3]) and heard[0] == (1, 49) and heard[-1] == (49, 49)


def test_the_lower_half_is_written_anew(plain: Path, place: Path, tmp_path: Path) -> None:
    words = (
        "--start",
        named(place, "t10k")[0],
        "--samples",
        2,
        "-o",
        tmp_path / "more.json",
        "-o",
        tmp_path / "more.png",
    )
    assert typed("generate", "-m", plain, *words, "--keep", 0.45) == 0
    found = json.loads((tmp_path / "more.json").read_text())
    assert len(found["true"]) == 8 and len(found["pictures"]) == 16
    for number, each in enumerate(found["pictures"]):
        levels, true = np.array(each["levels"]), np.array(found["true"][number // 2])
        assert each["given"] == 3 * SIDE and np.array_equal(levels[:3], true[:3])
        assert levels.min() >= 0 and levels.max() <= 3
    file = tmp_path / "grey.png"
    Image.fromarray(np.arange(0, 245, 5, dtype=np.uint8).reshape(7, 7)).save(file)
    assert (
        typed("generate", "-m", plain, "--start", file, "-o", tmp_path / "film.gif", "-o", tmp_path / "film.html") == 0
    )
    film = Image.open(tmp_path / "film.gif")
    assert film.n_frames == 3 * SIDE + 1  # type: ignore[attr-defined]  # four of seven rows are kept; then the whole
    assert "data:image/gif" in (tmp_path / "film.html").read_text()


def test_a_label_that_nobody_told_is_the_likeliest(labelled: Path) -> None:
    generator: Generator = regard.load(labelled)
    given = np.zeros(21, dtype=np.int64)
    given[3::7] = 1
    scores = {label: generator.score([write_digits(given, label)])[0].log_probability for label in LABELS}
    assert likeliest_label(generator, given) == max(scores, key=lambda label: scores[label])
    assert generator.score([write_digits(given)])[0].tokens == 21


def test_a_run_is_verified(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("verify", plain) == 0
    assert " 0 failed" in capsys.readouterr().out


# --- Where it looked


def test_looks_are_the_attention_that_the_model_reports(plain: Path) -> None:
    """Row of the token before each pixel, over the pixels that were there; begin and label are left out."""
    generator: Generator = regard.load(plain)
    text = write_digits(np.random.default_rng(2).integers(4, size=49))
    weights = generator.attention(text).map(0, 1).weights
    ids = [1, *generator.encoded(text)]
    looks, how = looks_of(generator, generator.read_ids(ids[1:]), ids, (0, 5, 30), 0, 1)
    assert looks.shape == (3, 49) and not looks[0].any() and "layer 0, head 1" in how
    np.testing.assert_allclose(looks[1, :5], weights[6, 2:7], atol=1e-6)
    np.testing.assert_allclose(looks[2, 19:30], weights[31, 21:32], atol=1e-6)
    assert looks[1, :5].sum() > 0 and not looks[1, 5:].any()


def test_gradients_are_differences_of_the_log_probability() -> None:
    """Each channel of the vector of a pixel is moved a little; beyond the receptive field nothing changes."""
    torch.manual_seed(3)
    config = PixelCNNConfig(rows=5, columns=7, layers=2, channels=3, inputs=3, width=5, first=3, labels_from=6)
    model = PixelCNN(config, 7).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    ids = torch.cat([torch.tensor([[1, 6]]), torch.randint(4, 6, (1, 35))], dim=1)
    found = gradients_of(model, ids, [17, 30])
    moved: dict[str, Any] = {"at": 0, "by": torch.zeros(3, dtype=torch.float64)}

    def move(module: object, given: object, out: torch.Tensor) -> torch.Tensor:
        out = out.clone()
        out[0, moved["at"]] += moved["by"]
        return out

    model.pixels.table.register_forward_hook(move)

    def score(place: int) -> float:
        with torch.no_grad():
            return float(model.output(model.read(ids[:, :-1]))[0, 1 + place].log_softmax(-1)[ids[0, 2 + place]])

    for row, place in enumerate((17, 30)):
        for pixel in (2, 9, 10, 16, 17, 29):
            slopes = []
            for channel in range(3):
                ends = []
                for step in (1e-6, -1e-6):
                    moved |= {"at": pixel, "by": step * torch.eye(3, dtype=torch.float64)[channel]}
                    ends.append(score(place))
                slopes.append((ends[0] - ends[1]) / 2e-6)
            assert found[row, pixel] == pytest.approx(float(np.linalg.norm(slopes)), abs=1e-7)
    assert not found[0, 17:].any() and not found[1, 30:].any() and found[1, 2] == 0 and found[0, 10] > 0


def test_a_film_shows_what_was_there(labelled: Path) -> None:
    generator: Generator = regard.load(labelled)
    begin = Beginning("<1>0101")
    (found,) = written(generator, [begin], seed=1)
    film = film_of(generator, begin, found, frames=9)
    assert film.frames[0] == 4 and len(film.frames) == 9 and "gradient" in film.how and film.picture.label == "1"
    assert film.so_far(9).reshape(-1)[:9].tolist() == film.picture.levels.reshape(-1)[:9].tolist()
    assert (film.so_far(9).reshape(-1)[9:] == -1).all() and film.looks.shape == (9, 49)


def test_a_picture_that_is_there_is_looked_at(
    plain: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grey = np.random.default_rng(4).integers(256, size=(7, 7)).astype(np.uint8)
    Image.fromarray(grey).save(tmp_path / "a.png")
    words = ("look", tmp_path / "a.png", "-m", plain, "--as", "pixels")
    out = ("-o", tmp_path / "where.json")
    assert typed(*words, "--layer", 0, "--head", 1, "--word", 30, *out) == 0
    found = json.loads((tmp_path / "where.json").read_text())
    assert found["picture"] == draw_levels(grey, 4).tolist() and [each["pixel"] for each in found["frames"]] == [30]
    assert sum(found["frames"][0]["looks"]) == pytest.approx(1, abs=1e-5)  # a memory of eleven: neither begin nor label
    assert typed(*words, "-o", tmp_path / "strip.png") == 0 and Image.open(tmp_path / "strip.png").size[1] > 500
    assert typed(*words, "--word", 49) == 2 and "from 0 to 48" in capsys.readouterr().err
    assert typed("look", tmp_path / "a.png", "-m", labelled, "--as", "pixels", "--head", 1) == 2
    assert "has no attention" in capsys.readouterr().err
    assert typed("look", tmp_path / "a.png", "-m", labelled, "--as", "pixels") == 0
    assert "the gradient" in capsys.readouterr().out


def test_the_python_of_the_page_runs(labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small run in the place of the reader's, its label and one of its pixels."""
    page = (Path(__file__).resolve().parent.parent / "docs" / "pixels.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    shutil.copytree(labelled, tmp_path / "runs" / "generate" / "1")
    monkeypatch.chdir(tmp_path)
    exec(block.replace('label="7"', 'label="1"').replace('"300"', '"30"'), {})
    assert {"sheet.png", "film.gif", "seven.png", "where.png"} <= {path.name for path in tmp_path.iterdir()}


def test_the_studio_says_that_it_writes_pictures(labelled: Path) -> None:
    folder = labelled / "best"
    entry = Entry("painter", folder, labelled, False, json.loads((folder / "config.json").read_text()), 0.0)
    listed = describe.listed(entry, False)
    assert listed["abilities"] == [] and "writes pictures" in str(listed["title"]) and listed["examples"] == []


def test_sheets_and_films_show_themselves(tmp_path: Path) -> None:
    one = as_picture([1, 0, 1], 2, "x", given=2)
    assert one.levels.tolist() == [[1, 0], [1, -1]] and one.beginning.tolist() == [[1, 0], [-1, -1]]
    sheet = PictureSheet((one, one, one), 2, (np.ones((2, 2), np.int64),), title="three")
    assert sheet.columns() == ("true", "given", "written", "written", "written") and len(sheet.rows()[0]) == 5
    film = WritingFilm(one, 2, (2,), np.array([[0.5, 0.5, 0, 0]]), "by hand", "one")
    for shown, suffix, start in ((sheet, ".png", b"\x89PNG"), (film, ".gif", b"GIF")):
        assert shown.save(tmp_path / f"a{suffix}").read_bytes().startswith(start)
        assert "data:image/" in shown.html() and shown._repr_html_().startswith("<")
    spread = WritingFilm(as_picture([0] * 20 + [1] + [0] * 4, 5), 2, tuple(range(25)), np.zeros((25, 25)), "by hand")
    assert spread.strip() == [1, 5, 9, 13, 17, 20]  # of the last five the bright one, else that in the middle
    assert "█" in sheet.text() or "▀" in sheet.text()
    four = PictureSheet((as_picture([0, 3, 2, 1], 2),), 4)
    assert len(four.text().splitlines()[0].rstrip()) == 4
    with Image.open(four.save(tmp_path / "own.png")) as alone:
        assert np.array(alone).tolist() == [[0, 255], [170, 85]]


def test_pictures_that_went_on_stand_beside_the_true_one(labelled: Path) -> None:
    generator: Generator = regard.load(labelled)
    true = [np.zeros((7, 7), np.int64), np.ones((7, 7), np.int64)]
    begins = [Beginning("<0>" + "0" * 14, true[0])] * 2 + [Beginning("<1>" + "1" * 14, true[1])] * 2
    sheet = sheet_of(generator, begins, written(generator, begins, seed=1))
    rows = sheet.rows()
    assert len(rows) == 2 and [len(row) for row in rows] == [4, 4] and rows[1][0] is true[1]
    assert (rows[1][1][:2] == 1).all() and (rows[1][1][2:] == -1).all()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["hello"], "say how they begin with --label or --start"),
        (["--label", "9"], "knows no label 9; there is 0, 1, 2"),
        (["--keep", "0.3"], "name it: --start picture.png"),
        (["--start", "a.png", "--keep", "1"], "from 0 to below 1"),
        (["--start", "a.wav"], "name a .png file"),
        (["-o", "a.wav"], "this model writes .png, .html, .json, .gif"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: list[str], told: str, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.wav").write_bytes(b"")
    Image.fromarray(np.zeros((7, 7), np.uint8)).save(tmp_path / "a.png")
    assert typed("generate", "-m", labelled, *words) == 2
    assert told in capsys.readouterr().err


def test_a_model_of_pictures_that_learns_from_text_is_told_so() -> None:
    for kind, data, count in (("pixelrnn", "builtin/python", 1), ("pixelrnn", "builtin/figures", 0)):
        config: Any = run_config("generate", {"data": {"train": [data]}, "model": {"kind": kind}})
        assert len(_kind_notes(config)) == count
