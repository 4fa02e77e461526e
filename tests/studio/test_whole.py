"""The page as a whole: how soon it can be used, by keyboard alone, for everyone, at every width, and when things go wrong."""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect
from served import Client, serving, small

import regard.studio
from studio.browsing import PAGES, SHOWN, TEXT, Tab, chromium, matrix, new_context, numbers, saved, tab_to

# --- The first page


USABLE = """new MutationObserver((_, self) => {
  if (!document.querySelector("main textarea")) return;
  window.usable = performance.now();
  self.disconnect();
}).observe(document, { childList: true, subtree: true })"""  # milliseconds since the address was entered


def usable(tab: Tab) -> float:
    tab.page.wait_for_function("() => window.usable")
    tab.page.wait_for_load_state("networkidle")
    return float(tab.page.evaluate("window.usable"))


def test_the_first_page_can_be_used_within_half_a_second(browser: Browser, studio: Client) -> None:
    """Cold is a browser that was never here, warm one that was. One of eighty must be in time, as other programs run."""
    cold, warm = [1000.0], [1000.0]
    while len(cold) < 81 and (min(cold) > 500 or min(warm) > 500):
        tab = Tab(new_context(browser).new_page(), studio)
        tab.page.add_init_script(USABLE)
        tab.page.goto(studio.address)
        cold.append(usable(tab))
        begun = len(studio.log)
        tab.page.reload()
        warm.append(usable(tab))
        asked = [str(line["path"]) for line in studio.log[begun:]]
        assert asked.count("/api/models") == 1 and not any(path.endswith(".js") for path in asked)
        assert tab.wrong == []
        tab.page.context.close()
    print(f"first page, ms: cold {min(cold):.0f}, warm {min(warm):.0f}")
    assert min(cold) < 500 and min(warm) < 500, (cold, warm)


def test_what_the_first_page_needs_is_asked_for_at_once(studio: Client) -> None:
    """The modules behind app.js and the first page, found by following imports, are all named in the HTML."""
    html = studio.ask("/").body.decode()
    at = re.findall(r'src="(static/at-[0-9a-f]+/)app.js"', html)[0]
    found, left = set[str](), ["app.js", "pages/translate.js"]
    while left:
        module = left.pop()
        found.add(module)
        answer = studio.ask(f"/{at}{module}")
        assert "immutable" in answer.headers["cache-control"]
        for name in re.findall(r'^import .* from "(.*)";', answer.body.decode(), flags=re.MULTILINE):
            path = os.path.normpath(os.path.join(os.path.dirname(module), name))
            left += [path] if path not in found else []
    assert set(re.findall(f'modulepreload" href="{at}(.*?)"', html)) == found - {"app.js"}
    plain = studio.ask("/static/app.js")
    assert plain.headers["cache-control"] == "no-cache"
    assert studio.ask("/static/app.js", If_None_Match=plain.headers["etag"]).status == 304


# --- All pages


SERIOUS = {
    "light": {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]},
    "dark": {"runOnly": {"type": "rule", "values": ["color-contrast"]}, "resultTypes": ["violations"]},  # else the same
}
UNSEEN = """() => Array.from(document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex='0']"))
  .filter(each => each.checkVisibility() && !each.disabled && each.type !== "file")
  .filter(each => { each.focus(); return getComputedStyle(each).outlineStyle === "none"; }).map(each => each.outerHTML)"""


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_every_page_is_accessible_and_stays_in_its_width(
    browser: Browser, studio: Client, scheme: str, width: int
) -> None:
    """axe-core finds nothing serious by day and by night; on a telephone nothing sticks out; every stop of Tab can be seen."""
    tab, axe, found = Tab(new_context(browser, scheme, width).new_page(), studio), Axe(), []
    for name, state in {**PAGES, "docs": ""}.items():
        page = tab.open(state, SHOWN[name]) if state else tab.page
        if not state:
            page.goto(f"{studio.address}/docs")
        for each in axe.run(page, options=SERIOUS[scheme]).response["violations"]:
            if each["impact"] in ("serious", "critical"):
                found.append((name, each["id"], each["nodes"][0]["html"][:200]))
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        assert page.locator("h1").count() == 1
        page.keyboard.press("Tab")
        assert page.evaluate(UNSEEN) == [], name
    assert found == []
    assert tab.wrong == []
    tab.page.context.close()


def test_pages_are_reached_by_keyboard_alone(fresh: Tab) -> None:
    page = fresh.open("walk", ".matrix td")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    for _ in range(8):  # the name of the studio, then its pages
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Train"
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Train')")
    assert page.evaluate("document.activeElement.id") == "page"
    page.go_back()
    page.wait_for_selector("h1:has-text('Walk')")


BY_KEYBOARD = {  # a page, what Tab leads to and which keys are pressed there, one after the other, and what the URL then says
    f"translate?model=translate&text={TEXT}": (
        {".written .token": "ArrowRight Enter", ".instead .bars button": "Enter"},
        r"prefix=\d+\.\d+",
    ),
    f"generate?model=generate&prompt={TEXT}&length=5": (
        {"textarea": "End x Control+Enter", ".tokens .token": "End Enter"},
        r"prompt=two.dogs.sleepx.*word=\d",
    ),
    f"read?model=classify&text={TEXT}": ({"textarea": "Control+a a"}, "text=a$"),
    "see?model=caption": (
        {".samples button + button": "Space", ".tokens .token": "Enter"},
        "example=1.*panel=0",
    ),
    "walk": ({".segments button:nth-child(2)": "Enter", ".pixels": "ArrowDown"}, "view=positions"),
    f"heads?model=translate-1&text={TEXT}": ({"[data-head='cross.0.1']": "Enter"}, "out=cross.0.1"),
    "train": ({"input[type=range]": "Home"}, r"at=\d"),
    "models?model=translate": (
        {"[aria-label='Look into fill']": "Enter", "input[type=text]": "Control+a b"},
        "model=fill.*text=b",
    ),
}


@pytest.mark.parametrize("state", BY_KEYBOARD)
def test_every_page_is_used_by_keyboard_alone(tab: Tab, state: str) -> None:
    steps, wanted = BY_KEYBOARD[state]
    page = tab.open(state, "h1")
    for place, keys in steps.items():
        page.wait_for_selector(place, state="attached")
        tab_to(page, place)
        for key in keys.split():
            page.keyboard.press(key)
    page.wait_for_url(re.compile(wanted))


def test_a_url_shows_the_same_to_whoever_opens_it(browser: Browser, studio: Client) -> None:
    state = f"translate?model=translate&text={TEXT}&beam=3&role=self&layer=0&head=1&pick=1"
    seen = []
    for _ in range(2):
        tab = Tab(new_context(browser).new_page(), studio)
        page = tab.open(state, ".tree svg")
        page.wait_for_selector(".panels [aria-pressed=true]")
        page.wait_for_load_state("networkidle")
        seen.append(page.locator("main").inner_text())
        assert page.get_by_label("Head", exact=True).input_value() == "0.1"
        tab.page.context.close()
    assert seen[0] == seen[1]


def test_without_models_every_page_says_what_to_do(browser: Browser, tmp_path: Path) -> None:
    with serving(small(tmp_path, (), page=True)) as empty:
        names = [model["name"] for model in empty.json("/api/models")["models"]]
        tab = Tab(new_context(browser).new_page(), empty)
        for page_name, verb in (
            ("translate", "translate"),
            ("generate", "generate"),
            ("see", "caption"),
            ("heads", "translate"),
        ):
            page = tab.open(page_name, "h1")
            page.wait_for_selector("main .card")
            if not names:  # nothing comes with Regard
                expect(page.locator("main pre")).to_contain_text(f"regard train {verb}")
        assert numbers(matrix(tab.open("walk", ".matrix td"), "output"))[0] == [1.937, 6.683, 1.595]
        expect(tab.open("train", "main .card").locator("main pre")).to_contain_text("regard train")
        assert tab.wrong == []
        tab.page.context.close()


def test_a_service_with_a_token_asks_for_it(browser: Browser, studio: Client, tmp_path: Path) -> None:
    token = "a token that nobody guesses"
    models = tuple(each for each in studio.server.guard.config.models if each.name in ("translate", "caption"))
    with serving(small(tmp_path, models, page=True, token=token)) as guarded:
        tab = Tab(new_context(browser).new_page(), guarded)
        page = tab.open(f"translate?model=translate&text={TEXT}", "form.guarded")
        for tried in ("something else entirely", token):
            page.get_by_label("Token").fill(tried)
            page.keyboard.press("Enter")
            page.wait_for_selector(".problem" if tried != token else ".heat td[data-place]")
        assert len(json.loads(saved(page, "the map", "JSON"))["rows"]) > 1
        page = tab.open("see?model=caption", ".sheet-of button")
        assert (
            page.locator(".view img").evaluate("async image => { await image.decode(); return image.naturalWidth; }")
            > 0
        )
        assert all("401" in each for each in tab.wrong)  # the browser tells of what was refused before the token
        tab.page.context.close()


def test_errors_are_told_in_words(fresh: Tab) -> None:
    tab = fresh
    page = tab.open("nowhere", "h1")
    expect(page.locator("h1")).to_have_text("There is no such page")
    refusal = {"error": {"message": "the queue is full", "hint": "try again soon"}}
    page.route("**/api/translate", lambda route: route.fulfill(status=503, json=refusal))
    page = tab.open(f"translate?model=translate&text={TEXT}", ".problem")
    expect(page.get_by_role("alert").first).to_contain_text("the queue is full")
    page.route("**/api/tokens", lambda route: route.abort())
    page = tab.open("models?model=translate", ".problem")
    expect(page.get_by_role("alert")).to_contain_text("regard studio")
    tab.wrong = [
        each for each in tab.wrong if not re.search("503|ERR_FAILED", each)
    ]  # the browser tells of these itself


def test_markup_in_data_stays_text(tab: Tab) -> None:
    evil = "<img src=x onerror=alert(1)>"
    for state in (
        f"translate?model=translate&text={evil}",
        f"read?model=classify&text={evil}",
        f"models?model=translate&text={evil}",
    ):
        page = tab.open(state, ".token")
        page.wait_for_load_state("networkidle")
        assert page.locator("img[src=x]").count() == 0


def test_where_a_change_is_judged_a_missing_browser_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    for judged, ends in (("true", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", judged)
        with pytest.raises(ends, match="there is no Chromium"):
            chromium()


def test_modules_are_chapters() -> None:
    """Each file can be read at a sitting, and none touches HTML or evaluates text."""
    static = Path(regard.studio.__file__).parent / "static"
    for file in itertools.chain(static.rglob("*.js"), static.rglob("*.css")):
        text = file.read_text()
        assert len(text.splitlines()) <= 300, file
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|https?://(?!www\.w3\.org)", text
        ), file
    page = (static / "index.html").read_text()
    assert not re.search(r"<style|style=|onload=|https?://(?!www\.w3\.org)", page)
    assert re.findall(r"<script[^>]*>([^<]*)", page) == [""]
