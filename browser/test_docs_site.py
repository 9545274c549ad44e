"""The documentation site in a real browser: every page fits a phone, and can be used without a mouse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contrast import LOW_CONTRAST, WCAG_AA

ROOT = Path(__file__).resolve().parents[1]
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1400, "height": 900}
FOCUSED = """() => { const node = document.activeElement, box = node.getBoundingClientRect();
    const seen = { __navigation: '.nav-overlay-icon', __toc: '.toc-header-icon' }[node.id];
    const style = getComputedStyle(seen ? document.querySelector(seen) : node);
    return { words: (node.getAttribute('aria-label') || node.textContent || node.placeholder || '').trim(), id: node.id,
        tag: node.tagName,
        ring: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth) || 1,
        inside: box.right > 0 && box.left < innerWidth }; }"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, ROOT / "scripts" / "build_docs.py", "--output", target], check=True)
    return target / "html"


def test_no_page_scrolls_sideways_on_a_phone(page: Any, site: Path) -> None:
    page.set_viewport_size(PHONE)
    wide = {}
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            wide[path.relative_to(site).as_posix()] = width
    assert wide == {}


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_focus_is_always_seen(page: Any, site: Path, size: dict[str, int]) -> None:
    page.set_viewport_size(size)
    page.goto((site / "docs" / "start.html").as_uri())
    stops = []
    for _ in range(25):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused["tag"] == "BODY":  # past the last link
            break
        assert focused["inside"] and focused["ring"] > 0, f"no visible focus on {focused}"
        stops.append(focused["words"])
    assert "Skip to content" in stops[:3] and len(stops) > 10
    assert ("Questions" in stops) == (size == DESKTOP), "a closed drawer has no stops"


def test_the_drawers_of_a_phone_open_with_the_keyboard(page: Any, site: Path) -> None:
    page.set_viewport_size(PHONE)
    page.goto((site / "docs" / "start.html").as_uri())
    link = page.locator(".sidebar-tree a:has-text('Questions')").first
    assert not link.is_visible()
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED)["id"] == "__navigation"
    page.keyboard.press("Space")
    link.wait_for(state="visible")
    link.press("Enter")
    page.wait_for_selector("h1:has-text('Questions')")


def test_a_search_works_from_a_disk(page: Any, site: Path) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.resource_type))
    page.goto((site / "search.html").as_uri() + "?q=checkpoint")
    page.wait_for_selector("#search-results li a:has-text('Run directory')")
    page.wait_for_selector("text=/found [0-9]+ pages/")
    assert "fetch" not in asked and "xhr" not in asked


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(browser: Any, site: Path, scheme: str) -> None:
    """One page of each kind: prose, tables, code in several languages, equations, a notebook, signatures."""
    context = browser.new_context(viewport={"width": 1280, "height": 2000}, color_scheme=scheme)
    page = context.new_page()
    for name in (
        "index", "docs/own-algorithm", "docs/trackers", "docs/benchmarks/classic", "reference/algorithms/ppo",
        "reference/settings", "reference/api", "examples/notebooks/quickstart", "pyproject.toml",
    ):  # fmt: skip
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate(LOW_CONTRAST, WCAG_AA) == {}, f"{name} in {scheme}"
    context.close()
