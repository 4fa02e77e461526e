"""Check the built site in a browser: links lead somewhere, nothing comes from another host, search finds what is there.

    python tools/site_check.py                     the site that make docs has built
    python tools/site_check.py --shots DIR         and pictures of some pages: light, dark, and as narrow as a telephone

It needs playwright and a Chromium (CHROMIUM=/path/to/it), as the tests of the studio do. The exit code is 1 if something
is wrong.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Browser, Page, Request, TimeoutError, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run")  # fmt: skip
WORD = "Bahdanau"  # which search must find
SHOWN = ("index", "syllabus", "walk", "results", "experiments", "reference/settings", "reference/verbs", "reference/python",
         "changelog", "data", "course/index", "course/05-scores", "course/07-matrices-and-masks",
         "course/16-long-sequences", "course/18-memory")  # fmt: skip
LOADS = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
}  # what a browser fetches by itself


# --- Files


class Links(HTMLParser):
    """The links of a page, what it loads, and the anchors that others may link to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in LOADS and found.get(LOADS[tag]) and found.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(found[LOADS[tag]])


def wrong_links(site: Path) -> list[str]:
    """Links and files of the pages that lead nowhere, and files that would come from elsewhere."""
    pages = {page: Links(page.read_text(encoding="utf-8")) for page in sorted(site.rglob("*.html"))}
    wrong = []
    for page, found in pages.items():
        if page.name == "404.html":
            continue  # its links are from the root, wherever that will be
        name = page.relative_to(site)
        wrong += [f"{name}: {link} comes from elsewhere" for link in found.loaded if urlsplit(link).netloc]
        for link in [*found.links, *found.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                wrong.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{name}: {link} has no such place")
    return wrong


# --- In a browser


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a line for each request."""

    def log_message(self, format: str, *values: object) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of the site, on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def watched(page: Page, address: str, wrong: list[str]) -> Page:
    """A tab that notes what it asks of others, and what goes wrong in it."""

    def asked(request: Request) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            wrong.append(f"{page.url} asks for {request.url}")

    page.on("request", asked)
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
    page.on("console", lambda line: wrong.append(f"{page.url}: {line.text}") if line.type == "error" else None)
    return page


def browse(browser: Browser, address: str, site: Path) -> list[str]:
    """Open every page once; return what went wrong."""
    wrong: list[str] = []
    page = watched(browser.new_page(), address, wrong)
    for file in sorted(site.rglob("*.html")):
        page.goto(f"{address}/{file.relative_to(site)}", wait_until="networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 1:
            wrong.append(f"{file.relative_to(site)} is {wide} pixels wider than the window")
    page.close()
    return wrong


def search(browser: Browser, address: str, word: str = WORD) -> list[str]:
    """What the search of the site finds, as a reader sees it."""
    page = browser.new_page()
    page.goto(f"{address}/index.html", wait_until="networkidle")
    page.keyboard.press("/")
    page.keyboard.type(word, delay=30)
    results = page.locator("a:has(mark), a:has(em)")
    try:
        results.first.wait_for(timeout=10_000)
        return [each for each in results.all_inner_texts() if word.lower() in each.lower()]
    except TimeoutError:
        return []
    finally:
        page.close()


def shoot(browser: Browser, address: str, folder: Path) -> list[str]:
    """Draw some pages in light, dark and 360 pixels wide; return which are wider than the window."""
    folder.mkdir(parents=True, exist_ok=True)
    wrong = []
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 360), ("dark", 360)):
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
        page = context.new_page()
        for name in SHOWN:
            page.goto(f"{address}/{name}.html", wait_until="networkidle")
            page.screenshot(path=folder / f"{name.replace('/', '-')}-{scheme}-{width}.png")
            if page.evaluate("document.documentElement.scrollWidth") > width + 1:
                wrong.append(f"{name} is wider than {width} pixels")
        context.close()
    return wrong


def check(site: Path, chromium: str, shots: Path | None = None) -> list[str]:
    """Everything that is wrong with a built site."""
    wrong = wrong_links(site)
    with served(site) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=list(FLAGS))
        wrong += browse(browser, address, site)
        if not search(browser, address):
            wrong.append(f"the search does not find {WORD}")
        if shots is not None:
            wrong += shoot(browser, address, shots)
        browser.close()
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the built documentation site.")
    parser.add_argument("site", type=Path, nargs="?", default=ROOT / "site")
    parser.add_argument("--shots", type=Path, metavar="DIR", help="draw some pages into this folder")
    asked = parser.parse_args(arguments)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None or not (asked.site / "index.html").exists():
        print("there is no site; build it with: make docs" if chromium else "there is no Chromium", file=sys.stderr)
        return 2
    wrong = check(asked.site.resolve(), chromium, asked.shots)
    for each in wrong:
        print(each, file=sys.stderr)
    print(f"{len(list(asked.site.rglob('*.html')))} pages, {len(wrong)} things wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
