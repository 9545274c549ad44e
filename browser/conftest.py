"""A real browser for dashboard and docs: Chromium or Chrome, found by its path, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No sandbox for root in a container, and nothing that talks to anyone: the tests count requests.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions",
)  # fmt: skip
WAIT_MILLISECONDS = 120_000  # deadlines are generous: the machine may be busy


def find_browser() -> str | None:
    named = os.environ.get("BROWSER")
    if named and os.path.isfile(named):
        return named
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None:
        pytest.fail(f"no browser: install Chromium (apt-get install chromium) or set BROWSER; tried {NAMES}")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page with an empty profile. An error of a script fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MILLISECONDS)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    # The server ends before the page does, and a page may ask once more in between.
    assert [problem for problem in problems if "net::ERR_" not in problem] == []
