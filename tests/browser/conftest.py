"""A real headless Chromium, and pages for it to open."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from stabsweep.report import render_page
from tests.report.conftest import STATES, make_trace
from tests.report.reader import PNG

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATH = "STABSWEEP_CHROMIUM"
"""The variable that names the browser where it is not on the path."""

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need playwright: pip install playwright"
    )
    path = os.environ.get(PATH) or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium on this machine; {PATH}=/path/to/chromium names one elsewhere")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A page in the browser, with all that it asked for and complained of."""

    def __init__(self, browser, path, address="", **context):
        # Nothing can be fetched, whatever the page would like.
        self.context = browser.new_context(offline=True, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(f"{path.as_uri()}{address}")

    def ready(self):
        """The page once its script has done its work."""
        self.page.locator("body[data-ready=true]").wait_for()
        return self.page


@pytest.fixture
def open_page(chromium):
    """Opens a file, and asserts at the end that it asked for nothing else and did not complain."""
    opened = []

    def opens(path, address="", **context):
        opened.append((Opened(chromium, path, address, **context), path))
        return opened[-1][0]

    yield opens
    for one, path in opened:
        asked = [url for url in one.requests if not url.startswith(("data:", "blob:"))]
        one.context.close()
        assert {url.split("#")[0] for url in asked} == {path.as_uri()}
        assert one.complaints == []


def write_page(path: Path, region, pick, load_trace=make_trace, **more) -> Path:
    page = render_page(
        region, pick, PNG, "adamw on transformer", 192, {"Command": "stabsweep model=mlp"}, 42.0,
        load_trace=load_trace, replay=("stabsweep replay results/x trial=", ""), **more,
    )  # fmt: skip
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Name -> (path, region, pick) of a page in every state that a report must survive."""
    folder = tmp_path_factory.mktemp("pages")
    found = {name: build() for name, build in STATES.items()}
    return {
        name: (write_page(folder / f"{name}.html", *sweep), *sweep) for name, sweep in found.items()
    }


@pytest.fixture(scope="session")
def whole(pages):
    """Path, region and pick of a whole, healthy sweep."""
    return pages["whole"]
