"""A tab of a real browser that remembers what went wrong in it, and how what is on a page is read."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page
from served import Client

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run")  # fmt: skip
TEXT = "two dogs sleep"
PAGES = {
    "translate": f"translate?model=translate&text={TEXT}&word=0&beam=2",
    "generate": f"generate?model=generate&prompt={TEXT}&length=5&sample=1&top=0.5",
    "classify": f"read?model=classify&text={TEXT}",
    "fill": "read?model=fill&text=two [MASK] sleep",
    "caption": "see?model=caption&panel=0",
    "answer": "see?model=answer",
    "toy": "walk",
    "positions": "walk?view=positions",
    "walk": f"walk?view=model&model=translate&text={TEXT}&step=3",
    "heads": f"heads?model=translate-1&text={TEXT}&out=cross.1.0",
    "train": "train",
    "models": "models?model=translate",
}
SHOWN = {  # what is there when a page has drawn everything
    "translate": ".tree svg",
    "generate": ".bars.cut li",
    "classify": ".bars li",
    "fill": ".bars li",
    "caption": ".sheet-of button",
    "answer": ".bars li",
    "toy": ".matrix td",
    "positions": ".wave path",
    "walk": ".matrix td",
    "heads": ".side-map td",
    "train": ".heat td[data-place]",
    "models": ".model-card",
}


def chromium() -> str:
    """Where the browser is. Without one these tests are left out; where a change is judged, that is a failure."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("there is no Chromium; .ci/run installs it")
    if found is None:
        pytest.skip("there is no Chromium here; CHROMIUM=/path/to/it, or: apt-get install chromium")
    return found


def new_context(browser: Browser, scheme: str = "light", width: int = 1280) -> BrowserContext:
    """A browser that was never here."""
    viewport = {"width": width, "height": 900}
    return browser.new_context(color_scheme=scheme, viewport=viewport, reduced_motion="reduce")  # type: ignore[arg-type]


class Tab:
    """One tab, which remembers errors of the page, and whom it asked beside this machine."""

    def __init__(self, page: Page, studio: Client) -> None:
        self.page, self.address, self.wrong = page, studio.address, list[str]()
        self.page.set_default_timeout(15_000)
        self.heard = {"console": self._hear_console, "pageerror": self._hear_error, "request": self._check_host}
        for name, listen in self.heard.items():
            page.on(name, listen)  # type: ignore[call-overload]

    def leave(self) -> None:
        """Leave the page to another test."""
        for name, listen in self.heard.items():
            self.page.remove_listener(name, listen)

    def _hear_console(self, said: Any) -> None:
        if said.type == "error":
            self.wrong.append(said.text)

    def _hear_error(self, error: Any) -> None:
        self.wrong.append(str(error))

    def _check_host(self, request: Any) -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("data", "blob") and where.hostname != "127.0.0.1":
            self.wrong.append(f"asked {request.url}")

    def open(self, state: str, shown: str = "") -> Page:
        """Go to a state, by way of a page that has nothing on it: what is waited for cannot be what was there before."""
        if self.page.url.startswith(f"{self.address}/#/"):
            self.page.goto(f"{self.address}/#/nowhere")
            self.page.wait_for_selector("h1:has-text('There is no such page')")
        self.page.goto(f"{self.address}/#/{state}")
        self.page.wait_for_selector("body[data-ready]")
        if shown:
            self.page.wait_for_selector(shown, state="attached")
        return self.page

    @property
    def state(self) -> dict[str, str]:
        """The parameters of the URL."""
        query = urlsplit(self.page.url).fragment.partition("?")[2]
        return {name: values[0] for name, values in parse_qs(query).items()}


# --- What is on a page


READ = """table => Array.from(table.querySelectorAll("tbody tr"), row => Array.from(row.querySelectorAll("td"),
  cell => cell.textContent || cell.querySelector("input").value))"""


def numbers(table: Locator) -> list[list[float]]:
    """The cells of a matrix as they are written."""
    texts = table.evaluate(READ)
    return [[float(text.replace("−", "-").replace("∞", "inf")) for text in row] for row in texts]


def matrix(page: Page, name: str) -> Locator:
    return page.get_by_role("table", name=re.compile(f"^{re.escape(name)}"))


SUFFIX = {"text": "txt", "Markdown": "md"}


def saved(page: Page, what: str, form: str) -> bytes:
    """What the browser saves, under a name that ends as it should."""
    with page.expect_download() as found:
        page.get_by_label(f"Save {what} as {form}").click()
    assert found.value.suggested_filename.rpartition(".")[2] == SUFFIX.get(form, form.lower())
    return found.value.path().read_bytes()


def tab_to(page: Page, wanted: str, most: int = 120) -> None:
    """Press Tab until something is reached, as a person without a mouse does."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
            return
    raise AssertionError(f"{most} times Tab never reach {wanted}")
