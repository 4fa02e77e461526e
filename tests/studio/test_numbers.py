"""Numbers of the page: the toy by hand and by numpy, what is drawn from, and pixels of maps against the server's JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from served import Client

from regard.look.colors import INK, color
from regard.look.walk.examples.given import read_numbers
from regard.look.walk.examples.matrices import walk_of
from regard.look.walk.shades import ABOVE, ABOVE_DARK, BELOW, BELOW_DARK, WEIGHTS_DARK
from studio.browsing import TEXT, Tab, matrix, new_context, numbers, saved

# --- The toy: numbers that a person can check


def test_the_worked_example_gives_the_outputs_of_the_paper(tab: Tab) -> None:
    page = tab.open("walk", ".matrix td")
    wanted = [[1.937, 6.683, 1.595], [2.000, 7.964, 0.054], [2.000, 7.760, 0.358]]
    assert numbers(matrix(page, "output")) == wanted
    assert numbers(matrix(page, "scores")) == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]


def test_a_number_typed_by_keyboard_moves_all_that_follows(tab: Tab) -> None:
    page = tab.open("walk", ".matrix td")
    cell = page.get_by_label("x: one row a token, row 1, column 1")
    cell.focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("3")
    assert numbers(matrix(page, "Q"))[0] == [3, 0, 4]  # 3 · (1, 0, 1) + (0, 0, 1)
    assert tab.state["edits"] == "x.0.0:3"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.cell") == "1 0"
    page.keyboard.press("Alt+ArrowUp")
    assert tab.state["edits"] == "x.0.0:3_x.1.0:1"
    output = numbers(matrix(page, "output"))
    page.reload()  # the state is the URL
    page.wait_for_selector(".matrix td")
    assert numbers(matrix(page, "output")) == output
    page.get_by_role("button", name="Begin anew").click()
    assert numbers(matrix(page, "output"))[0] == [1.937, 6.683, 1.595]


def test_a_masked_cell_gets_no_weight_and_the_others_share_it(tab: Tab) -> None:
    page = tab.open("walk?start=ahead", ".matrix td")
    scores = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]])
    seen = np.tril(np.ones((4, 4), dtype=bool))
    assert np.allclose(numbers(matrix(page, "weights")), softmax(scores, seen), atol=5e-4)
    page.get_by_role("button", name="Mask scaled, and masked: press a cell, row 1, column 3").click()
    seen[0, 2] = True
    assert np.allclose(numbers(matrix(page, "weights")), softmax(scores, seen), atol=5e-4)
    page.go_back()


def softmax(scores: np.ndarray, seen: np.ndarray) -> np.ndarray:
    powers = np.where(seen, np.exp(scores), 0.0)
    return powers / powers.sum(axis=-1, keepdims=True)


def test_sliders_move_the_weights_and_the_numbers_can_be_taken_along(tab: Tab, tmp_path: Path) -> None:
    """By keyboard; what is saved gives the same output by `regard walk --from`."""
    page = tab.open("walk", ".matrix td")
    page.get_by_role("button", name="√3, as the paper does").press("Enter")
    page.get_by_role("slider", name="Temperature").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="Mask what comes later").press("Enter")
    assert tab.state["t"] == "1.5" and float(tab.state["scale"]) == pytest.approx(3**0.5)
    scores = np.array([[2, 4, 4], [4, 16, 12], [4, 12, 10]]) / (3**0.5 * 1.5)
    assert np.allclose(numbers(matrix(page, "weights")), softmax(scores, np.tri(3, dtype=bool)), atol=5e-4)
    (tmp_path / "numbers.json").write_bytes(saved(page, "the numbers", "JSON"))
    walk = walk_of(read_numbers(tmp_path / "numbers.json"), None)
    assert np.allclose(numbers(matrix(page, "output")), walk["Z"], atol=6e-4)
    page = tab.open("walk?start=hello&t=4", ".matrix td")
    (tmp_path / "numbers.json").write_bytes(saved(page, "the numbers", "JSON"))
    walk = walk_of(read_numbers(tmp_path / "numbers.json"), None)
    assert np.allclose(numbers(matrix(page, "weights")), walk["weights"], atol=6e-4)


def test_positions_are_a_picture_of_sines_and_cosines(tab: Tab) -> None:
    page = tab.open("walk?view=positions&many=12&wide=8", ".wave path")
    place = np.arange(12)[:, None] / 10_000 ** (np.arange(0, 8, 2) / 8)
    wanted = np.stack([np.sin(place), np.cos(place)], axis=-1).reshape(12, 8)
    pixels = page.locator(".positions canvas").evaluate(
        "canvas => Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)"
    )
    found = np.array(pixels).reshape(12, 8, 4)[..., :3]
    shades = np.array([[color(ABOVE if each >= 0 else BELOW, abs(each)) for each in row] for row in wanted])
    assert np.abs(found - shades).max() <= 2
    page.locator(".pixels").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")  # from place 1, dimension 0
    expect(page.locator(".told-line")).to_contain_text(f"place 2, dimension 1: {np.cos(2):.3f}".replace("-", "−"))
    page.get_by_role("slider", name="Dimensions").focus()
    page.keyboard.press("ArrowRight")
    assert tab.state["wide"] == "12"


def test_the_mathematics_of_the_toy_are_those_of_numpy(tab: Tab) -> None:
    page, random = tab.open("walk", ".matrix td"), np.random.default_rng(3)
    x, q, k, v = (random.normal(size=size).round(2) for size in ((5, 7), (7, 3), (7, 3), (7, 2)))
    mask = random.random((5, 5)) < 0.3
    mask[4] = True  # a query that may look nowhere
    found = page.evaluate(
        "async toy => (await import('./static/parts/toy.js')).computed(toy)",
        {
            "x": x.tolist(),
            "q": q.tolist(),
            "k": k.tolist(),
            "v": v.tolist(),
            "mask": mask.tolist(),
            "scale": 1.7,
            "temperature": 0.6,
        },
    )
    with np.errstate(invalid="ignore"):
        weights = np.nan_to_num(softmax((x @ q) @ (x @ k).T / (1.7 * 0.6), ~mask))
    assert np.allclose(found["weights"], weights)
    assert np.allclose(found["output"], weights @ (x @ v))
    waves = page.evaluate("async () => (await import('./static/parts/toy.js')).sinusoids(11, 6)")
    place = np.arange(11)[:, None] / 10_000 ** (np.arange(0, 6, 2) / 6)
    assert np.allclose(np.array(waves)[:, 0::2], np.sin(place))
    assert np.allclose(np.array(waves)[:, 1::2], np.cos(place))


def test_sampling_draws_from_what_temperature_and_top_p_leave(tab: Tab) -> None:
    page, random = tab.open("walk", ".matrix td"), np.random.default_rng(5)
    shares = np.sort(random.dirichlet(np.full(13, 0.4)))[::-1]
    tokens = [{"id": i, "label": str(i), "probability": share} for i, share in enumerate(shares.tolist())]
    found = page.evaluate(
        "async tokens => (await import('./static/parts/bars.js')).drawnFrom(tokens, {temperature: 0.7, topP: 0.8})",
        tokens,
    )
    powers = shares ** (1 / 0.7) / (shares ** (1 / 0.7)).sum()
    kept = np.concatenate([[0.0], powers.cumsum()[:-1]]) < 0.8  # nucleus: the fewest that reach it
    assert [row["kept"] for row in found] == kept.tolist()
    assert np.allclose([row["drawn"] for row in found], np.where(kept, powers, 0) / powers[kept].sum())


def test_heads_that_fire_are_told_by_their_pattern(tab: Tab) -> None:
    """Maps made by hand over a text that is said twice: back to what followed, to the token before, to the first, evenly."""
    page, length = tab.open("walk", ".matrix td"), 12
    labels = [str(place % 6) for place in range(length)]
    seen = np.tril(np.ones((length, length)))
    maps = {name: np.zeros((length, length)) for name in ("induction", "previous token", "first token")}
    for row in range(length):
        maps["induction"][row, row - 5 if row > 5 else row] = 1  # behind the same token, six before
        maps["previous token"][row, max(0, row - 1)] = 1
        maps["first token"][row, 0] = 1
    maps["nothing"] = seen / seen.sum(axis=1, keepdims=True)
    for name, weights in maps.items():
        bytes_ = np.where(seen > 0, np.rint(254 * weights), 255).astype(int).ravel().tolist()
        found = page.evaluate(
            """async ([bytes, labels]) => (await import('./static/parts/patterns.js')).firing(
              { bytes, rows: labels.length, columns: labels.length, masked: true, top: 254, peak: 1 }, labels)""",
            [bytes_, labels],
        )
        assert [each["name"] for each in found] == ([] if name == "nothing" else [name])


# --- Maps: pixels against numbers


def test_the_ramps_are_those_of_the_figures(tab: Tab) -> None:
    page = tab.open("walk", ".matrix td")
    ramps = page.evaluate("async () => (await import('./static/parts/colors.js')).RAMPS")
    wanted = {
        "light": {"weight": INK, "above": ABOVE, "below": BELOW},
        "dark": {"weight": WEIGHTS_DARK, "above": ABOVE_DARK, "below": BELOW_DARK},
    }
    assert ramps == json.loads(json.dumps(wanted))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cells_of_a_map_have_the_colours_of_their_weights(browser: Browser, studio: Client, scheme: str) -> None:
    tab = Tab(new_context(browser, scheme).new_page(), studio)
    with tab.page.expect_response(re.compile(r"api/look/.+/1/0")) as asked:  # all heads are shown, small
        page = tab.open(f"translate?model=translate&text={TEXT}", ".heat td[data-place]")
    page.get_by_role("button", name="layer 1, head 0").click()
    address = asked.value.url
    page.wait_for_selector(".panels [aria-pressed=true]")
    rows = page.locator("table.map tbody tr").count()
    exact = np.array(
        [studio.json(f"{address.removeprefix(studio.address)}&row={row}")["weights"] for row in range(rows)]
    )
    seen = page.locator("td[data-place]").evaluate_all(
        "cells => cells.map(cell => getComputedStyle(cell).backgroundColor)"
    )
    ramp, step = (INK if scheme == "light" else WEIGHTS_DARK), 1 / 255
    for found, weight in zip(seen, exact.ravel() / exact.max(), strict=True):
        near = [color(ramp, weight + by) for by in (-step, 0.0, step)]  # a byte a weight: half a step is lost
        rgb = np.array([int(part) for part in re.findall(r"\d+", found)])
        assert any(np.abs(rgb - each).max() <= 3 for each in near), (found, near)
    assert tab.wrong == []
    tab.page.context.close()


OPENED = """async ([selector, value, label]) => {
  performance.clearResourceTimings();
  const find = () => document.querySelector(".cells"), before = find(), control = document.querySelector(selector);
  if (value) {
    control.value = value;
    control.dispatchEvent(new Event("change"));
  } else control.click();
  while (find() === before || !find()?.getAttribute("aria-label").includes(label)) await new Promise(requestAnimationFrame);
  const asked = performance.getEntriesByType("resource").filter(each => each.name.includes("/api/look"));
  return [performance.now() - asked[0].startTime, asked.reduce((sum, each) => sum + each.transferSize, 0)];
}"""  # from the wish for a map to its pixels: milliseconds, and bytes that came for it
HEADS = "select:has(option[value='3.7'])"


def test_a_map_of_1024_tokens_opens_in_less_than_a_second_and_two_megabytes(tab: Tab, studio: Client) -> None:
    """A language model of 32 heads: a new text (a pass over it, then its first head), and then other heads of it.

    Other programs of the machine take their time, too: one of forty must be in time.
    """
    page = tab.open("generate?model=large&length=5&prompt=a", ".heat td[data-place]")  # now the model is loaded
    first, others = [], []
    for start in range(40):
        page.get_by_label("Beginning").fill(
            ("def attend(q, k, v):\n    return softmax(q @ k.T) @ v\n" * 20)[start:][:1023]
        )
        first.append(page.evaluate(OPENED, ["button.main", "", "layer 0, head 0, 102"]))
        if first[-1][0] < 1000:
            break
        page.wait_for_load_state("networkidle")
    for head in ("0.1", "2.2", "3.7"):
        others.append(page.evaluate(OPENED, [HEADS, head, "layer {}, head {}, 102".format(*head.split("."))]))
    print(f"1,024 tokens, ms and bytes: a new text {min(first)}, another head {min(others)}")
    assert min(first)[0] < 1000 and min(others)[0] < 1000, (first, others)
    assert all(1024**2 < size < 2_000_000 for _, size in first + others)
    check_pixels(page, studio)


def check_pixels(page: Page, studio: Client) -> None:
    """The last rows of a large causal map against the bytes of the server; then its cells by keyboard."""
    address = page.evaluate(
        "performance.getEntriesByType('resource').findLast(each => /\\/3\\/7/.test(each.name)).name"
    )
    answer = studio.ask(address.removeprefix(studio.address))
    size = int(answer.headers["x-rows"])
    weights = np.frombuffer(answer.body, np.uint8).reshape(size, size)
    pixels = page.locator(".cells canvas").evaluate(
        "(canvas, size) => Array.from(canvas.getContext('2d').getImageData(0, size - 16, size, 16).data)", size
    )
    top = int(weights[1:][weights[1:] < 255].max())  # the first query sees only itself
    palette = np.array([[*color(INK, byte / top), 255] for byte in range(255)] + [[0, 0, 0, 0]], dtype=np.uint8)
    found = np.array(pixels, dtype=np.uint8).reshape(16, size, 4)
    assert np.abs(found.astype(int) - palette[weights[-16:]].astype(int)).max() <= 1  # the canvas rounds, too
    page.locator(".cells").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    expect(page.locator(".told-line").last).to_contain_text("masked")
