"""Each page as it is used, its numbers against the server's JSON; files that it gives out and takes in; calls that it shows."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shlex
import shutil
import zipfile
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect
from served import Client, picture

import regard
from regard.cli.main import run
from regard.files import alone_in
from studio.browsing import TEXT, Tab, saved

# --- Each page, as it is used


def test_translate_tells_where_it_looked_and_follows_a_person(tab: Tab, studio: Client) -> None:
    page = tab.open(f"translate?model=translate&text={TEXT}", ".heat td[data-place]")
    plain = studio.json("/api/translate", {"model": "translate", "text": TEXT, "beam": 5, "n_best": 5})
    expect(page.locator(".written .text")).to_have_text(plain["text"])
    assert page.locator(".n-best li").count() == 5
    page.locator("td[data-place='0 1']").hover()
    told = page.locator(".told-line").first.inner_text()
    assert re.fullmatch(r"writing .+ read .+ (<0\.01|\d\.\d\d)", told)
    page.locator(".written .token").first.click()  # another word instead, and on from there
    second = page.locator(".instead .bars button").nth(1)
    label = second.locator(".name").inner_text()
    second.click()
    page.wait_for_selector(".written .marked")
    expect(page.locator(".written .token").first).to_contain_text(label)
    page.go_back()
    expect(page.locator(".written .text")).to_have_text(plain["text"])


def test_a_pinned_word_looks_where_it_must(tab: Tab) -> None:
    page = tab.open(f"translate?model=translate&text={TEXT}", ".heat td[data-place]")
    page.locator("td[data-place='0 0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector(".pins .chip")
    assert tab.state["pins"] == "1-1"
    expect(page.locator("td[data-place='1 1']")).to_have_text("1.00")
    expect(page.locator("td[data-place='1 0']")).to_have_text(".00")
    page.locator(".pins .chip").click()
    page.wait_for_selector(".pins .chip", state="detached")
    assert "pins" not in tab.state


def test_the_beam_opens_step_by_step(tab: Tab, studio: Client) -> None:
    page = tab.open(f"translate?model=translate&text={TEXT}&beam=3&step=0", ".tree svg")
    steps = studio.json("/api/beam", {"model": "translate", "text": TEXT, "beam": 3})["steps"]
    expect(page.locator(".tree g")).to_have_count(len(steps[0]))
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tree g")).to_have_count(len(steps[0]) + len(steps[1]))
    assert tab.state["step"] == "1"


STREAMED = """window.streamed = [];
new MutationObserver(() => {
  if (document.querySelector("button.main")?.textContent !== "Stop") return;
  const tokens = [...document.querySelectorAll(".tokens .token")];
  if (tokens.length) window.streamed.push(tokens.map(each => each.getAttribute("aria-label")));
}).observe(document, { childList: true, subtree: true })"""  # what is on the page while a text is being written


def test_generate_streams_branches_and_shows_what_is_cut(fresh: Tab) -> None:
    tab = fresh
    tab.page.add_init_script(STREAMED)
    page = tab.open(f"generate?model=generate&prompt={TEXT}&length=5&sample=1&top=0.5", ".bars.cut li")
    page.wait_for_selector(".heat td[data-place]")
    tokens = page.locator(".tokens").first.locator(".token")
    assert 1 <= tokens.count() <= 5
    streamed = [label for labels in page.evaluate("() => window.streamed") for label in labels]
    assert streamed and all(re.search(r", probability (<|>)?[01]\.\d\d$", label) for label in streamed)
    kept, gone = page.locator(".bars.cut li:not(.gone)"), page.locator(".bars.cut li.gone")
    assert kept.count() + gone.count() == 12
    page.get_by_label("draw at random").uncheck()
    expect(page.locator(".bars.cut li:not(.gone)")).to_have_count(1)
    page.get_by_label("Temperature").focus()
    page.keyboard.press("ArrowRight")  # who turns at how tokens are drawn wants them drawn
    page.wait_for_url(re.compile("temperature=1.05&sample=1|sample=1.*temperature=1.05|temperature=1.05.*sample=1"))
    expect(page.get_by_label("draw at random")).to_be_checked()
    page.wait_for_selector(".bars.cut li:not(.gone) >> nth=1")
    other = page.locator(".bars.cut button").nth(1)
    name = other.locator(".name").inner_text()
    other.click()
    page.wait_for_selector(".branch")
    assert tab.state["branch"].strip() == name.replace("␣", " ").strip()
    page.go_back()
    page.wait_for_selector(".branch", state="detached")


def test_reading_colours_words_and_fills_gaps(tab: Tab, studio: Client) -> None:
    page = tab.open(f"read?model=classify&text={TEXT}", ".word")
    found = studio.json("/api/classify", {"model": "classify", "text": TEXT, "words": True})
    expect(page.locator(".said-class, .text").first).to_have_text(found["label"])
    words = [word for word in found["words"] if word["weight"] is not None]
    assert page.locator(".word").all_inner_texts() == [word["text"].strip() or word["text"] for word in words]
    page.get_by_label("Model").select_option("pairs")
    page.get_by_label("Text", exact=True).fill("two dogs")
    page.get_by_label("Second text").fill("a man")
    page.wait_for_url(re.compile("second=a"))
    pair = studio.json("/api/classify", {"model": "pairs", "text": "two dogs", "second": "a man"})
    expect(page.locator(".bars .value").first).to_have_text(f"{pair['probability']:.0%}")
    expect(page.locator("table.map tbody th").nth(4)).to_have_text("a")
    page.get_by_label("Model").select_option("fill")
    page.get_by_label("Text", exact=True).fill("two [MASK] sleep")
    page.wait_for_selector(".bars button")
    page.locator(".bars button").first.click()
    assert "[MASK]" not in tab.state["text"]


DROP = """(place, [bytes, name, type]) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([new Uint8Array(bytes)], name, { type }));
  place.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}"""  # as a browser does when a file is let go there


def test_a_picture_is_dropped_in_and_each_word_lights_its_place(tab: Tab, studio: Client) -> None:
    page = tab.open("see?model=caption", ".sheet-of button")
    with page.expect_response("**/api/caption") as asked:
        page.locator(".drop").evaluate(DROP, [list(picture()), "photo.png", "image/png"])
    attention = asked.value.json()["attention"]
    page.wait_for_url(re.compile("example=own"))
    page.locator(".tokens .token").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".tokens [aria-pressed=true]")
    panel = attention["panels"][0]
    weights, boxes = np.array(panel["weights"]), np.array(attention["boxes"])
    middles = (boxes[..., :2] + boxes[..., 2:]) / 2
    alpha = page.locator(".view canvas").evaluate(
        "(canvas, places) => places.map(([x, y]) => canvas.getContext('2d').getImageData(x, y, 1, 1).data[3])",
        [[int(x), int(y)] for x, y in middles.reshape(-1, 2)],
    )
    shade = 255 * 0.86 * (1 - weights.ravel() / weights.max())  # the less it was looked at, the darker
    best = int(weights.argmax())
    assert np.abs(np.delete(np.array(alpha), best) - np.delete(shade, best)).max() <= 2


def test_a_picture_is_looked_at_head_by_head(tab: Tab, studio: Client) -> None:
    page = tab.open("see?model=answer", ".sheet-of button")
    with page.expect_response("**/api/answer") as asked:
        page.get_by_label("Head", exact=True).select_option("1.2")
    assert asked.value.request.post_data_json["layer"] == 1 and asked.value.request.post_data_json["head"] == 2
    expect(page.locator("main section .note").first).to_have_text(asked.value.json()["attention"]["title"])
    assert tab.state["layer"] == "1" and tab.state["head"] == "2"
    page.get_by_label("Head", exact=True).select_option("")
    page.wait_for_url(re.compile(r"see\?model=answer$"))


def test_a_walk_goes_on_by_arrow_keys(tab: Tab, studio: Client) -> None:
    page = tab.open(f"walk?view=model&model=translate&text={TEXT}", ".steps button")
    walk = studio.json("/api/walk", {"model": "translate", "text": TEXT})
    for step in (1, 2):
        page.keyboard.press("ArrowRight")
        expect(page.locator("main section h2")).to_have_text(f"{step} · {walk['steps'][step]['title']}")
    page.keyboard.press("ArrowLeft")
    assert tab.state["step"] == "1"
    page.go_back()
    expect(page.locator("main section h2")).to_have_text(f"2 · {walk['steps'][2]['title']}")
    page.get_by_label("Who looks").select_option("0")
    page.wait_for_url(re.compile("query=0"))


def test_a_head_is_taken_away(tab: Tab, studio: Client) -> None:
    page = tab.open(f"heads?model=translate-1&text={TEXT}", "button.head")
    page.get_by_role("button", name="cross, layer 0, head 1").click()
    page.wait_for_selector(".side-map td[data-place]")
    change = {"kind": "remove", "role": "cross", "layer": 0, "head": 1}
    after = studio.json("/api/translate", {"model": "translate-1", "text": TEXT, "changes": [change]})
    expect(page.locator(".side-map .text").nth(1)).to_have_text(after["text"] or "∅")
    plain = studio.json("/api/translate", {"model": "translate-1", "text": TEXT})
    asked = {"model": "translate-1", "text": TEXT, "written": plain["ids"]}
    before, without = (studio.json("/api/score", {**asked, **more})["loss"] for more in ({}, {"changes": [change]}))
    assert before == pytest.approx(-np.mean(plain["token_log_probabilities"]), abs=1e-4) and before != without
    expect(page.locator(".losses")).to_have_text(
        f"The loss of its own translation goes from {before:.3f} to {without:.3f} nats a token."
    )


def test_without_a_head_a_language_model_says_something_else(fresh: Tab, studio: Client) -> None:
    models = studio.json("/api/models")
    for model in models["models"]:
        model["abilities"] += (
            ["heads"] if model["name"] == "generate" else []
        )  # a bundle has no texts to measure heads on
    fresh.page.route("**/api/models", lambda route: route.fulfill(json=models))
    page = fresh.open(f"heads?model=generate&text={TEXT}&out=causal.0.1", ".side-map td[data-place]")
    change = {"kind": "remove", "role": "causal", "layer": 0, "head": 1}
    body = {"model": "generate", "prompt": TEXT, "max_length": 24, "sample": False, "beam": 1}
    for place, more in enumerate(({}, {"changes": [change]})):
        wanted = studio.json("/api/generate", {**body, **more})["text"]
        assert page.locator(".side-map .text").nth(place).text_content() == (wanted or "∅")


def test_heads_are_named_by_a_job(fresh: Tab) -> None:
    page = fresh.open("heads?model=translate-1", "button.head")
    page.route(
        "**/api/heads", lambda route: route.continue_(post_data={"model": "translate-1", "texts": 5})
    )  # for time
    page.get_by_role("button", name="Name what each head does").click()
    page.wait_for_selector(".head .rule", timeout=60_000)
    assert page.locator(".head .loss").count() == page.locator("button.head").count()


def test_a_run_shows_its_curves_and_how_its_attention_formed(tab: Tab, studio: Client) -> None:
    page = tab.open("train", ".heat td[data-place]")
    run = studio.json("/api/runs/translate-1")
    checks = [row for row in run["rows"] if row["kind"] == "valid"]
    name = page.get_by_role("img", name=re.compile("^Loss")).get_attribute("aria-label") or ""
    assert f"held out {checks[-1]['loss']:.3f} at step {checks[-1]['step']}" in name
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    first = run["steps_probed"][0]
    page.wait_for_url(re.compile(f"at={first}"))
    exact = studio.json(f"/api/runs/translate-1/probes/0/{first}/mean/mean?role=cross&row=0")["weights"]
    page.wait_for_timeout(200)
    page.locator("td[data-place='0 0']").hover()
    expect(page.locator(".told-line b").last).to_have_text(f"{exact[0]:.2f}" if exact[0] >= 0.005 else "<0.01")


def test_runs_side_by_side_and_one_that_goes_on(tab: Tab, studio: Client) -> None:
    """A second run with other losses, which is still going: its new rows appear by themselves."""
    first = studio.server.guard.config.runs / "translate" / "1"
    second = shutil.copytree(first, first.with_name("2"))
    try:
        rows = [json.loads(line) for line in (first / "log.jsonl").read_text().splitlines()]
        changed = [{**row, "loss": row["loss"] + 1} if "loss" in row else row for row in rows]
        (second / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
        with alone_in(second):
            page = tab.open("train?runs=translate-1~translate-2", ".samples-of tbody td")
            chart = page.get_by_role("img", name=re.compile("^Loss"))
            last = [row for row in rows if row["kind"] == "valid"][-1]
            for name, more in (("translate-1", 0), ("translate-2", 1)):
                told = f"{name}, held out {last['loss'] + more:.3f} at step {last['step']}"
                expect(chart).to_have_attribute("aria-label", re.compile(re.escape(told)))
            expect(page.locator(".state.running")).to_have_count(1)
            examples = next(each for each in studio.json("/api/models")["models"] if each["name"] == "translate-1")
            row = page.locator(".samples-of tbody tr").first.locator("td")
            expect(row).to_have_count(3)
            cells = row.all_inner_texts()
            said = studio.json("/api/translate", {"model": "translate-1", "text": examples["examples"][0]})["text"]
            assert cells == [examples["examples"][0], said, said]
            with (second / "log.jsonl").open("a") as log:
                log.write(json.dumps({"kind": "train", "step": 7, "loss": 1.25}) + "\n")
            expect(chart).to_have_attribute("aria-label", re.compile(r"translate-2, training 1\.250 at step 7"))
        page.get_by_label("Show translate-2").press("Space")
        page.wait_for_url(re.compile(r"runs=translate-1($|&)"))
        expect(chart).not_to_have_attribute("aria-label", re.compile("translate-2"))
    finally:
        shutil.rmtree(second)


def test_layers_and_scores_of_a_model(tab: Tab, studio: Client) -> None:
    page = tab.open("models?model=translate", ".model-card")
    expect(page.locator(".model.chosen .scores")).to_contain_text("bleu1.50")
    page.get_by_text("Every layer").click()
    found = studio.json("/api/models/translate/layers")["layers"]
    rows = page.get_by_role("group", name="Layers").locator("tbody tr")
    assert rows.count() == len(found["layers"])
    expect(page.get_by_text(f"{len(found['layers'])} parts, {found['parameters']:,} parameters.")).to_be_visible()


def test_a_model_goes_out_and_comes_in_again(tab: Tab, studio: Client, tmp_path: Path) -> None:
    """Saved as a file, dropped on the page under another name, and used; a file that is none is refused in words."""
    folder, text = studio.server.guard.config.imported, "dogs and dogs"
    try:
        page = tab.open("models?model=fill", ".saving")
        archive = saved(page, "the bundle", "ZIP")
        page.locator(".drop").evaluate(DROP, [list(archive), "My model (1).zip", "application/zip"])
        expect(page.get_by_label("Name", exact=True)).to_have_value("My-model-1-")
        page.get_by_label("Name", exact=True).fill("from-elsewhere")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("model=from-elsewhere"))
        expect(page.locator(".model.chosen h2")).to_have_text("from-elsewhere")
        one, two = (studio.json("/api/tokens", {"model": name, "text": text}) for name in ("fill", "from-elsewhere"))
        assert one == two and (folder / "from-elsewhere" / "model.safetensors").exists()
        page.get_by_role("button", name="Take it in").click()  # once more: the name is taken
        expect(page.get_by_role("alert")).to_contain_text("there is a model from-elsewhere already")
        (tmp_path / "bad.zip").write_bytes(b"no archive")
        page.set_input_files("input[type=file]", tmp_path / "bad.zip")
        page.get_by_role("button", name="Take it in").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("bad.zip is not a ZIP file")
        tab.wrong = [each for each in tab.wrong if not re.search("409|422", each)]  # the browser tells of these itself
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- The calls that are shown


CALLS = {
    "translate": f"translate?model=translate&text={TEXT}&beam=2",
    "translate, pinned": f"translate?model=translate&text={TEXT}&beam=2&pins=1-1-0-2_2-0",
    "generate": f"generate?model=generate&prompt={TEXT}&length=5",
    "generate, drawn": f"generate?model=generate&prompt={TEXT}&length=5&sample=1&top=0.5&temperature=0.8&seed=3",
    "classify": f"read?model=classify&text={TEXT}",
    "fill": "read?model=fill&text=two [MASK] sleep",
    "caption": "see?model=caption",
    "answer": "see?model=answer&layer=1&head=2",
    "classify-pictures": "see?model=classify-pictures",
    "walk": f"walk?view=model&model=translate&text={TEXT}",
    "heads": f"heads?model=translate-1&text={TEXT}",
    "heads, one removed": f"heads?model=translate-1&text={TEXT}&out=cross.0.1",
    "train": "train",
    "models": "models?model=translate",
}
SHOWN_CALL = """boxes => Object.fromEntries(Array.from(boxes[0].querySelectorAll(".told-call"),
  each => [each.querySelector("h3").textContent, each.querySelector("pre").textContent]))"""


LATER = {"heads, one removed": ".side-map .text >> nth=1", "models": ".model-card"}  # what comes after the first call
ONLY_IN_PYTHON = ("translate, pinned", "heads, one removed")  # what no option of a command says


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_that_are_shown_give_what_is_on_the_page(
    tab: Tab,
    studio: Client,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The request is sent, the lines of Python are run and the command is typed; each says what the page says."""
    monkeypatch.chdir(tmp_path)
    page = tab.open(CALLS[name], LATER.get(name, "main .call"))
    calls = page.locator("main .call").evaluate_all(SHOWN_CALL)
    assert calls.keys() == {"Request", "Python"} | (set() if name in ONLY_IN_PYTHON else {"Command"})
    words = shlex.split(calls["Request"].replace("\\\n", " "))
    body = json.loads(words[-1]) if "-d" in words else None
    if body and "picture" in body:
        models = {each["name"]: each for each in studio.json("/api/models")["models"]}
        (tmp_path / "picture.png").write_bytes(studio.ask(models[body["model"]]["examples"][0]["picture"]).body)
        body["picture"] = base64.b64encode((tmp_path / "picture.png").read_bytes()).decode()
    found = studio.json(words[1].removeprefix(studio.address), body)
    if name == "heads":  # on two texts and without removal, for time
        studio.ask(f"/api/jobs/{found['job']}", method="DELETE")
        monkeypatch.setattr(regard, "heads_of", partial(regard.heads_of, texts=2, removal=False))
        calls["Command"] += " --texts 2 --no-removal"
    variables: dict[str, Any] = {}
    exec(calls["Python"], variables)
    shown = page.locator("main .text").nth(1 if "removed" in name else 0)
    if "out" in variables:
        assert said(variables["out"].data()) == said(found)
        assert name.startswith("generate") or shown.text_content() == (said(found) or "∅")
    if "Command" in calls:
        capsys.readouterr()
        assert run(shlex.split(calls["Command"])[1:]) == 0
        assert "out" not in variables or said(found).strip() in capsys.readouterr().out


def said(found: dict[str, Any]) -> str:
    """What a result says, whatever its task."""
    return str(found.get("label", found.get("text")))


def test_a_tokenizer_is_played_with(tab: Tab, studio: Client) -> None:
    page = tab.open("models?model=translate", ".tokens .token")
    page.get_by_label("Text").fill("dogs and dogs")
    wanted = studio.json("/api/tokens", {"model": "translate", "text": "dogs and dogs"})["tokens"]
    expect(page.locator(".tokens .token")).to_have_count(len(wanted))
    page.locator(".tokens .token").nth(1).hover()
    expect(page.locator(".told-line")).to_contain_text(f"id {wanted[1]['id']}")
    page.get_by_text("Show the call").first.click()
    expect(page.locator(".told-call pre").first).to_contain_text(f"curl {studio.address}/api/models/translate")


# --- Files


def test_a_map_is_saved_as_picture_drawing_and_numbers(tab: Tab, studio: Client) -> None:
    page = tab.open(f"translate?model=translate&text={TEXT}&layer=1&head=2", ".heat td[data-place]")
    page.get_by_label("Save the map as PNG").wait_for()
    labels = page.locator("table.map tbody th").all_inner_texts()
    picture = Image.open(io.BytesIO(saved(page, "the map", "PNG")))
    assert picture.format == "PNG" and min(picture.size) > 100
    drawing = ElementTree.fromstring(saved(page, "the map", "SVG"))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    found = json.loads(saved(page, "the map", "JSON"))
    assert [label.strip() for label in found["rows"]] == labels
    address = page.get_by_label("Save the map as JSON").get_attribute("href") or ""
    rows = [studio.json(f"/{address.replace('form=json', f'row={row}')}")["weights"] for row in range(len(labels))]
    assert [[None if each is None else pytest.approx(each) for each in row] for row in rows] == found["weights"]
    table = list(csv.reader(io.StringIO(saved(page, "the map", "CSV").decode())))
    assert len(table) > len(labels)


def test_texts_cards_and_models_are_saved(tab: Tab, studio: Client, tmp_path: Path) -> None:
    page = tab.open(f"translate?model=translate&text={TEXT}&beam=2", ".saving")
    body = {"model": "translate", "text": TEXT, "beam": 2, "n_best": 2}
    wanted = studio.json("/api/translate", body)
    assert saved(page, "the translation", "text").decode() == wanted["text"] + "\n"
    found = json.loads(saved(page, "the translation", "JSON"))
    assert found["ids"] == wanted["ids"] and found["score"] == pytest.approx(wanted["score"], abs=1e-5)
    page = tab.open(f"generate?model=generate&prompt={TEXT}&length=5", ".saving")
    text = json.loads(saved(page, "the text", "JSON"))["text"]
    assert text.startswith(TEXT) and saved(page, "the text", "text").decode() == text + "\n"
    page = tab.open(f"read?model=classify&text={TEXT}", ".saving")
    found = json.loads(saved(page, "the result", "JSON"))
    assert saved(page, "the result", "text").decode() == found["label"] + "\n"
    assert found["label"] == studio.json("/api/classify", {"model": "classify", "text": TEXT})["label"]
    page = tab.open("models?model=translate", ".saving")
    card = studio.json("/api/models/translate")
    assert saved(page, "the card", "Markdown").decode() == card["card"]
    assert json.loads(saved(page, "the card", "JSON"))["parameters"] == card["parameters"]
    with zipfile.ZipFile(io.BytesIO(saved(page, "the bundle", "ZIP"))) as archive:
        archive.extractall(tmp_path)
    assert regard.load(tmp_path / "translate").translate(TEXT, beam=2).text == wanted["text"]
