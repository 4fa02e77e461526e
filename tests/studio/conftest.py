"""One server, one browser and one tab for all tests of the page: a page that is loaded once goes from state to state."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from served import Client, save_bundles, serving
from test_verify import BLOCKS, make

from regard.bundle import save_bundle
from regard.studio.config import ServeConfig
from regard.tasks.run import RunResult
from studio.browsing import FLAGS, Tab, chromium, new_context

LARGE = {"layers": 4, "heads": 8, "width": 128, "feed_forward": 256, "max_length": 1100}  # reads 1,024 tokens and more


@pytest.fixture(scope="package")
def studio(tmp_path_factory: pytest.TempPathFactory, tiny_run: RunResult) -> Iterator[Client]:
    """The real server, with a model of random weights for each task and one run."""
    folder = tmp_path_factory.mktemp("studio")
    bundles = save_bundles(folder / "bundles")
    save_bundle(folder / "bundles" / "large", make("generate", "gpt2", {"kind": "byte"}, **LARGE))
    pairs = make("classify", "bert", {"kind": "wordpiece"}, **BLOCKS)
    of_pairs = replace(pairs, config=pairs.config.model_copy(update={"pairs": True}))
    save_bundle(folder / "bundles" / "pairs", of_pairs)
    bundles |= {name: folder / "bundles" / name for name in ("large", "pairs")}
    shutil.copytree(tiny_run.folder, folder / "runs" / "translate" / "1")
    places = {"runs": folder / "runs", "imported": folder / "models"}
    with serving(ServeConfig(models=tuple(bundles.values()), **places, shipped=False, page=True)) as found:
        yield found


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=path, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(scope="package")
def known(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that keeps the page's files, as one does that was here before."""
    found = new_context(browser)
    yield found
    found.close()


@pytest.fixture(scope="package")
def loaded(known: BrowserContext) -> Page:
    return known.new_page()


@pytest.fixture
def tab(loaded: Page, studio: Client) -> Iterator[Tab]:
    """The one tab that all share; what it showed before is gone."""
    found = Tab(loaded, studio)
    yield found
    found.leave()
    assert found.wrong == []


@pytest.fixture
def fresh(known: BrowserContext, studio: Client) -> Iterator[Tab]:
    """A tab of its own, for tests that change what it loads or asks."""
    found = Tab(known.new_page(), studio)
    yield found
    found.page.close()
    assert found.wrong == []
