"""How attention formed: the numbers against plain loops, which steps are shown, figures, films, pages, and the command."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from regard.cli import main
from regard.errors import RegardError, UsageError
from regard.files import write_json
from regard.inspect.formation import formation_of
from regard.look.colors import INK, color
from regard.look.figures.formation import LAST, durations
from regard.look.figures.sheet import render
from regard.look.formation import Formation, alike, sharpness, spread
from regard.tasks.run import RunResult
from regard.tensors import write_tensors

N, K, T, S = 7, 3, 5, 4
STEPS = (0, 10, 20, 30, 40, 50, 60)
Captured = pytest.CaptureFixture[str]


def soft(*shape: int, seed: int = 0) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(size=shape) * 2
    powers = np.exp(scores)
    found: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return found


def some(**more: Any) -> Formation:
    """A formation with a masked column in the first row, from near uniform to sharp."""
    heads = soft(N, K, T, S)
    growing = np.linspace(0, 1, N)[:, None, None, None]
    heads = (1 - growing) / S + growing * heads
    heads[:, :, 0, 3] = np.nan
    heads[:, :, 0, :3] /= heads[:, :, 0, :3].sum(-1, keepdims=True)
    metrics = ({}, *({"loss": 5.0 - n, "bleu": 3.0 * n} for n in range(1, N)))
    names = tuple(f"layer 0, head {k}" for k in range(K))
    values = {"title": "cross-attention, mean of 3 heads", "metrics": metrics, "score": "bleu", **more}
    return Formation(STEPS, heads, names, (0, 1, 2), tuple("wxyz"), tuple("abcde"), **values)


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_likeness_is_one_minus_the_total_variation_of_plain_loops() -> None:
    a, b = soft(3, T, S, seed=1), soft(T, S, seed=2)
    for number in range(3):
        total = 0.0
        for t in range(T):
            total += sum(abs(a[number, t, s] - b[t, s]) for s in range(S)) / 2
        assert alike(a, b)[number] == pytest.approx(1 - total / T, abs=1e-12)
    assert alike(b, b) == pytest.approx(1.0)
    assert alike(np.eye(S)[:2], np.eye(S)[2:]) == 0.0  # nothing in common


def test_queries_that_look_nowhere_and_masked_keys_do_not_count() -> None:
    a, b = soft(T, S, seed=1), soft(T, S, seed=2)
    with_blank_a, with_blank_b = (np.vstack([each, np.full((1, S), np.nan)]) for each in (a, b))
    assert alike(with_blank_a, with_blank_b) == pytest.approx(float(alike(a, b)))
    assert sharpness(with_blank_a) == pytest.approx(float(a.max(-1).mean()))
    wider = [np.hstack([each, np.full((T, 1), np.nan)]) for each in (a, b)]
    assert alike(*wider) == pytest.approx(float(alike(a, b)))


def test_likeness_stays_between_nothing_and_all_where_rows_do_not_sum_to_one() -> None:
    a, b = 7.0 * soft(T, S, seed=1), soft(T, S, seed=2) - 0.4
    assert 0.0 <= float(alike(a, b)) <= 1.0 and alike(a, a) == pytest.approx(1.0)
    assert alike(np.zeros((T, S)), np.zeros((T, S))) == pytest.approx(1.0)


def test_the_map_shown_is_the_mean_of_its_heads() -> None:
    formation = Formation(STEPS, some().heads, some().names, (0, 2), tuple("wxyz"), tuple("abcde"))
    for n in range(N):
        for t in range(T):
            for s in range(S):
                both = [formation.heads[n, k, t, s] for k in (0, 2)]
                assert formation.maps[n, t, s] == pytest.approx(sum(both) / 2, nan_ok=True)
    assert formation.alike[-1] == pytest.approx(1.0) and formation.heads_alike.shape == (N, K)


def test_half_of_the_way_is_the_first_step_beyond_it() -> None:
    ends = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    shares = (0.0, 0.3, 0.45, 0.6, 0.4, 0.9, 1.0)  # of the way: alike is just that, from 0 to 1
    heads = np.stack([(1 - share) * ends[0] + share * ends[1] for share in shares])[:, None]
    formation = Formation(STEPS, heads, ("layer 0, head 0",), (0,), ("x", "y"), ("a",))
    assert formation.alike == pytest.approx(shares) and formation.halfway == 30
    assert "half of the way from the first map to the last at step 30" in formation.sentence
    assert "from 1.00 to 1.00" in formation.sentence


def test_steps_are_shown_where_the_map_changes() -> None:
    """The map jumps at 10, 11 and 12; the slow drift of the other steps adds up to nearly as much, and does not count."""
    still, moved = np.eye(S)[[0, 0, 0]], np.eye(S)[[1, 1, 1]]
    way = [0.008 * n + 0.12 * sum(n > jump for jump in (9, 10, 11)) for n in range(40)]
    maps = np.stack([(1 - share) * still + share * moved for share in way])
    assert spread(maps, 6)[:4] == [0, 10, 11, 12] and spread(maps, 6)[-1] == 39
    assert len(set(spread(maps, 6))) == 6 and spread(maps, 6) == sorted(spread(maps, 6))
    assert spread(maps[:4], 6) == [0, 1, 2, 3]
    same = np.stack([still] * 9)
    assert len(set(spread(same, 6))) == 6 and spread(same, 6)[0] == 0 and spread(same, 6)[-1] == 8


def test_steps_that_are_asked_for_are_shown() -> None:
    assert some(wanted=(60, 0, 30, 30)).frames() == [0, 3, 6]
    with pytest.raises(UsageError, match="no step 15; probes were kept at 0, 10, 20, 30, 40, 50, 60"):
        some(wanted=(15,))


# -- figures, films and pages ------------------------------------------------------------------------------------------


def test_the_figure_has_a_map_for_each_chosen_step_on_one_scale() -> None:
    figure = some().figure()
    captions = [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel().startswith("step ")]
    assert len(captions) == 6 and captions[0] == "step 0" and captions[-1] == "step 60 · loss -1.00 · BLEU 18.0"
    scales = {each.norm.vmax for axes in figure.axes[:6] for each in axes.collections}
    assert len(scales) == 1
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert titles == ["alike to the last map", "greatest weight of a row", "validation loss"]
    height, width = figure.get_size_inches()[1], figure.get_size_inches()[0]
    canvas = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    for axes in figure.axes:
        ink = axes.get_tightbbox(canvas)
        assert ink is not None
        box = ink.transformed(figure.dpi_scale_trans.inverted())
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width + 1e-6 and box.y1 <= height + 1e-6  # nothing is cut off


def test_a_formation_without_validations_or_with_one_step_is_drawn() -> None:
    bare = some(metrics=(), score="")
    assert [axes.get_title(loc="left") for axes in bare.figure().axes if axes.get_title(loc="left")] == [
        "alike to the last map", "greatest weight of a row",
    ]  # fmt: skip
    one = Formation((5,), some().heads[:1], some().names, (0,), tuple("wxyz"), tuple("abcde"), "t")
    assert one.frames() == [0] and "step 5 alone" in one.sentence and one.figure().axes


def test_pictures_are_the_same_each_time() -> None:
    assert render(some().figure(), "svg").count(b"<svg") == 1
    Xml.fromstring(render(some().figure(), "svg"))
    assert some()._repr_html_() == some()._repr_html_() and 'alt="cross-attention' in some()._repr_html_()


def test_the_film_has_a_frame_for_each_step_and_holds_the_last(tmp_path: Path) -> None:
    formation = some()
    film: Any = Image.open(formation.save(tmp_path / "f.gif"))
    assert film.n_frames == N and film.info["loop"] == 0 and film.size[0] <= 1280
    times, first, last = [], None, None
    for number in range(N):
        film.seek(number)
        times.append(film.info["duration"])
        last = np.asarray(film.convert("RGB"))
        first = last if first is None else first
    assert times == durations(N) and times[-1] == LAST and times[1] < times[0]
    assert first is not None and last is not None and (first != last).any()
    assert (last[2, 2] == 255).all()  # the page stays white
    greatest = np.array(color(INK, float(np.nanmax(formation.maps[-1]))))  # the scale goes to 1
    assert np.abs(last.astype(int) - greatest).sum(-1).min() <= 6  # its colour is there, as good as exactly


def page_of(formation: Formation, tmp_path: Path) -> tuple[str, Xml.Element, dict[str, Any]]:
    text = formation.save(tmp_path / "f.html").read_text(encoding="utf-8")
    root = Xml.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    data = next(each for each in root.iter("script") if each.get("id") == "data")
    return text, root, json.loads(data.text or "")


def test_the_page_holds_the_numbers_in_the_order_of_its_cells(tmp_path: Path) -> None:
    formation = some()
    _, root, data = page_of(formation, tmp_path)
    table = next(each for each in root.iter("table") if each.get("class") == "map")
    assert len(list(table.iter("td"))) == T * S  # what the script repaints: no corner among them
    assert [view["name"] for view in data["views"]] == ["", *formation.names]
    maps = [formation.maps, *(formation.heads[:, k] for k in range(K))]
    for view, expected in zip(data["views"], maps, strict=True):
        assert len(view["maps"]) == N
        for n in range(N):
            for place, value in enumerate(view["maps"][n]):
                weight = expected[n, place // S, place % S]
                assert (value is None) == np.isnan(weight) and (value is None or abs(value / 1000 - weight) <= 5.1e-4)
    assert data["captions"][1] == "step 10 · loss 4.00 · BLEU 3.0" and data["top"] == 1.0
    places = [each.get("d") for each in root.iter("{http://www.w3.org/2000/svg}path") if each.get("class") == "shown"]
    assert places == [data["views"][0]["alike_path"], data["views"][0]["sharp_path"]]


def test_the_page_needs_nothing_else_and_obeys_no_label(tmp_path: Path) -> None:
    nasty = ("</script><script>alert(1)</script>", "<b>", "&amp;", 'quo"te', "\x1b[2J")
    formation = some()
    formation = Formation(STEPS, formation.heads, formation.names, (1,), tuple("wxyz"), nasty, "a < b & c")
    text, root, data = page_of(formation, tmp_path)
    assert not re.search(r"(src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    assert len(list(root.iter("script"))) == 2 and text.count("<script>alert") == 0
    assert data["rows"][0] == nasty[0] and "\x1b" not in text
    assert [each.get("aria-label") for each in root.iter("input")] == ["step of training"]


def test_a_page_of_very_many_numbers_has_only_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.look.pages.formation.MOST_NUMBERS", 10)
    _, root, data = page_of(some(), tmp_path)
    assert len(data["views"]) == 1 and not list(root.iter("select"))


def test_a_page_of_some_steps_shows_the_last_of_them(tmp_path: Path) -> None:
    """Without a script the last map of all stood under the caption of another step."""
    formation = some(wanted=(0, 30))
    _, root, data = page_of(formation, tmp_path)
    cells = [each.get("title") for each in root.iter("td") if each.get("title")]
    expected = [f"{weight:.3f}" for weight in formation.maps[3].ravel() if not np.isnan(weight)]
    assert cells == expected and [len(view["maps"]) for view in data["views"]] == [2] * (1 + K)
    state = next(each for each in root.iter("p") if each.get("id") == "state")
    assert state.text == data["captions"][-1] == formation.caption(3)


def test_json_has_every_head(tmp_path: Path) -> None:
    formation = some()
    data = json.loads(formation.save(tmp_path / "f.json").read_text())
    kept = np.array([head["maps"] for head in data["heads"]], dtype=float)  # null is NaN
    assert np.allclose(kept.transpose(1, 0, 2, 3), formation.heads, equal_nan=True)
    assert data["steps"][1] == {
        "step": 10, "loss": 4.0, "bleu": 3.0, "sharpness": formation.sharpness[1], "alike": formation.alike[1],
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"f\.bmp; use \.png, \.svg, \.gif, \.html, \.json"):
        formation.save(tmp_path / "f.bmp")


# -- from the folder of a run ------------------------------------------------------------------------------------------


def run_folder(folder: Path, kind: str = "bpe", **roles: int) -> Path:
    """A run as its files say it: two steps of one pair, in pieces; `roles` is how many layers each has."""
    labels = {"source": [" ei", "ne", " katze", "</s>"], "target": [" a", " c", "at"], "prefix": ["<s>", " a", " c"]}
    sizes = {"cross": (3, 4), "causal": (3, 3), "self": (4, 4)}
    write_json(folder / "probes" / "texts.json", [labels])
    for step in (0, 20):
        maps = {}
        for role, layers in (roles or {"cross": 2}).items():
            for layer in range(layers):
                one = soft(2, *sizes[role], seed=step + layer) ** (1 + step + layer)  # later and higher is sharper
                maps[f"0/{role}/blocks.{layer}"] = torch.from_numpy(one / one.sum(-1, keepdims=True)).float()
        write_tensors(folder / "probes" / f"step-{step}.safetensors", maps)
    config = {"task": "translate", "tokens": {"kind": kind}, "train": {"steps": 20, "select": "bleu"}}
    write_json(folder / "run.json", {"config": config})
    row = {"kind": "valid", "step": 20, "loss": 1.25, "perplexity": 3.5, "bleu": 30.0, "best": True}
    (folder / "log.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def test_pieces_become_words_and_steps_get_what_their_validation_found(tmp_path: Path) -> None:
    formation = formation_of(run_folder(tmp_path))
    assert formation.columns == ("eine", "katze", "</s>") and formation.rows == ("a", "cat")
    assert formation.title == "cross-attention, mean of 2 layers x 2 heads" and formation.notes
    pieces = formation_of(tmp_path, pieces=True)
    assert pieces.columns == (" ei", "ne", " katze", "</s>") and not pieces.notes
    whole = pieces.heads[1, 3]  # step 20, layer 1, head 1: (3, 4)
    for s, members in enumerate(((0, 1), (2,), (3,))):
        cat = sum(whole[t, m] for t in (1, 2) for m in members) / 2
        assert formation.heads[1, 3, 1, s] == pytest.approx(cat, abs=1e-12)
    assert [formation.caption(n) for n in (0, 1)] == ["step 0", "step 20 · loss 1.25 · BLEU 30.0"]


def test_characters_stay_as_they_are(tmp_path: Path) -> None:
    assert formation_of(run_folder(tmp_path, kind="character")).columns == (" ei", "ne", " katze", "</s>")


def test_what_is_shown_is_said(tmp_path: Path) -> None:
    run_folder(tmp_path, cross=2, causal=1, self=2)
    for given, title, shown in (
        ({}, "cross-attention, mean of 2 layers x 2 heads", (0, 1, 2, 3)),
        ({"layer": 1}, "cross-attention, layer 1, mean of 2 heads", (2, 3)),
        ({"layer": 1, "head": 0}, "cross-attention, layer 1, head 0", (2,)),
        ({"role": "causal", "head": 1}, "causal self-attention, layer 0, head 1", (1,)),
    ):
        found = formation_of(tmp_path, **given)
        assert (found.title, found.shown) == (title, shown)
    found = formation_of(tmp_path, role="self", pieces=True)
    greatest = [np.mean([found.heads[-1, k, t].max() for t in range(4)]) for k in range(4)]
    best = int(np.argmax(greatest))
    assert found.shown == (best,) and found.rows == found.columns == (" ei", "ne", " katze", "</s>")
    assert found.title == f"self-attention, layer {best // 2}, head {best % 2}, the sharpest of 4"
    assert formation_of(tmp_path, role="causal", pieces=True).columns == ("<s>", " a", " c")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"role": "pool"}, "no attention of role pool; there is cross, self"),
        ({"role": "crss"}, "no attention of role crss; did you mean cross"),
        ({"layer": 2}, "no layer 2; there are 2, numbered from 0 to 1"),
        ({"layer": -1}, "no layer -1"),
        ({"layer": 0, "head": 2}, "no head 2; layer 0 has 2, numbered from 0 to 1"),
        ({"head": 1}, "head 1 of which layer?"),
        ({"text": 3}, "no text 3; 1 were probed"),
        ({"steps": (0, 5)}, "no step 5; probes were kept at 0, 20"),
    ],
)
def test_what_is_not_there_is_told(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        formation_of(run_folder(tmp_path, cross=2, self=1), **given)


def test_a_step_of_another_model_is_told(tmp_path: Path) -> None:
    run_folder(tmp_path)
    write_tensors(tmp_path / "probes" / "step-10.safetensors", {"0/cross/other": torch.ones(1, 3, 4)})
    with pytest.raises(
        RegardError, match=r"step-10\.safetensors is of another model or text than the last step; delete"
    ):
        formation_of(tmp_path)


def test_the_command(tiny_run: RunResult, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        code = main.run(["formation", *words])
        return code, *capsys.readouterr()

    folder = str(tiny_run.folder)
    code, out, _ = run(folder)
    lines = out.splitlines()
    assert code == 0 and lines[0].split() == ["step", "loss", "BLEU", "sharpness", "alike"]
    assert [line.split()[0] for line in lines[1:4]] == ["0", "2", "4"] and lines[3].endswith("1.000")
    assert "cross-attention, mean of 2 layers x 3 heads" in out and "half of the way" in out
    code, out, err = run(folder, "--json", "--text", "1", "-o", str(tmp_path / "f.png"))
    data = json.loads(out)
    assert code == 0 and [each["step"] for each in data["steps"]] == [0, 2, 4] and "maps" not in data["heads"][0]
    assert (
        f"wrote {tmp_path / 'f.png'}" in err and Image.open(io.BytesIO((tmp_path / "f.png").read_bytes())).size[0] > 500
    )
    assert run(folder, "--steps", "0,x")[2].startswith("regard: --steps takes numbers with commas between them")
    assert run(folder, "--text", "9")[0] == 2
    monkeypatch.chdir(tmp_path)
    assert run()[2].startswith("regard: there is no run with probes here; make one with: regard train translate")
    run_folder(tmp_path / "runs" / "translate" / "1")
    code, out, err = run()
    assert code == 0 and "run: runs/translate/1 (the newest with probes here" in err and "cat" in out
