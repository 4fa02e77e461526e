"""The page of a walk in a real Chromium: one step at a time by buttons, keys and links; all of them without a script."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from regard.look.walk.examples import example_walk

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run")  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no Chromium; .ci/run installs it")
        pytest.skip("there is no Chromium here; CHROMIUM=/path/to/it, or: apt-get install chromium")
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = example_walk("look-ahead").save(tmp_path_factory.mktemp("walk") / "walk.html")
    return path.as_uri()


def opened(context: BrowserContext, address: str) -> tuple[Page, list[str]]:
    """The page, and whatever it asked for or went wrong with."""
    page, wrong, own = context.new_page(), list[str](), (address.partition("#")[0], "data:")
    page.on("request", lambda request: None if request.url.startswith(own) else wrong.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(address)
    return page, wrong


def shown(page: Page) -> list[str]:
    return [each.get_attribute("id") or "" for each in page.locator("section").all() if each.is_visible()]


def test_steps_forward_and_back(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport={"width": 900, "height": 800})
    page, wrong = opened(context, address)
    back, following = page.get_by_role("button", name="back"), page.get_by_role("button", name="next")
    assert shown(page) == ["step-0"] and back.is_disabled() and page.locator(".place").inner_text() == "1 of 5"
    following.click()
    assert shown(page) == ["step-1"]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert shown(page) == ["step-3"]
    page.keyboard.press("ArrowLeft")
    assert shown(page) == ["step-2"] and page.url.endswith("#step-2")
    page.get_by_role("link", name="4 ·").click()
    assert shown(page) == ["step-4"] and following.is_disabled()
    back.click()
    assert shown(page) == ["step-3"]
    page.get_by_role("button", name="all steps").click()
    assert len(shown(page)) == 5
    page.get_by_role("button", name="one at a time").click()
    assert shown(page) == ["step-3"] and not wrong
    page.emulate_media(media="print")
    assert len(shown(page)) == 5 and not page.locator(".stepper").is_visible()
    context.close()


def test_a_link_opens_its_step_and_no_script_shows_all(browser: Browser, address: str) -> None:
    context = browser.new_context()
    page, wrong = opened(context, f"{address}#step-2")
    assert shown(page) == ["step-2"] and not wrong
    context.close()
    plain = browser.new_context(java_script_enabled=False)
    page, wrong = opened(plain, address)
    assert len(shown(page)) == 5 and not page.locator(".stepper").is_visible() and not wrong
    plain.close()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 360), ("light", 1280)])
def test_the_page_fits_and_can_be_read(browser: Browser, address: str, scheme: str, width: int) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})  # type: ignore[arg-type]
    page, _ = opened(context, address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page)
    assert [each["id"] for each in found.response["violations"]] == []
    context.close()
