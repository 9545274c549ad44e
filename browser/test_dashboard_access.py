"""The dashboard without a mouse, and its colors for weak eyes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contrast import LOW_CONTRAST, WCAG_AA
from rl_training.dashboard.export_file import export_dashboard
from served import serving
from stored_runs import store

FOCUSED = """() => { const node = document.activeElement; const style = getComputedStyle(node);
    return { words: node.getAttribute('aria-label') || node.textContent.trim() || node.placeholder, tag: node.tagName,
        ring: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth),
        left: node.getBoundingClientRect().left }; }"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for seed, status in enumerate(["finished", "interrupted", "failed", "running"]):
        store(folder, {100: 1.0, 200: 2.0}, seed=seed, status=status)
    return folder


def press_until(page: Any, words: str, most: int = 60) -> list[str]:
    """Press Tab until the focus is on `words`; every stop on the way shows a ring."""
    stops = []
    for _ in range(most):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        assert focused["ring"] >= 2, f"no visible focus on {focused}"
        stops.append(focused["words"])
        if focused["words"] == words:
            return stops
    raise AssertionError(f"no way to {words!r} by Tab: {stops}")


def test_a_run_is_found_and_opened_with_the_keyboard_alone(page: Any, runs: Path) -> None:
    with serving(runs) as (address, _):
        page.goto(address)
        page.wait_for_selector("table.runs tbody tr:nth-child(4)")
        page.keyboard.press("Tab")
        first = page.evaluate(FOCUSED)
        assert first["words"] == "Skip to the content" and first["left"] >= 0, "it is visible when it has the focus"
        stops = press_until(page, "ppo-seed1")
        assert stops[:4] == ["rl-training", "Runs", "Compare", "Theme: auto. Change it"], "the order of the page"
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('ppo-seed1')")
        assert page.evaluate("document.activeElement.id") == "main", "the next Tab goes on inside the new page"


def test_tables_are_sorted_and_runs_ticked_with_the_keyboard(page: Any, runs: Path) -> None:
    with serving(runs) as (address, _):
        page.goto(address)
        page.wait_for_selector("table.runs tbody tr:nth-child(4)")
        press_until(page, "Run")
        page.keyboard.press("Enter")
        assert page.get_attribute("th[data-key=name]", "aria-sort") == "ascending"
        press_until(page, "Compare ppo-seed0")
        page.keyboard.press("Space")
        page.wait_for_selector("text=Compare 1 run")


@pytest.mark.parametrize("place", ["server", "file"])
def test_the_skip_link_stays_on_the_page(page: Any, runs: Path, tmp_path: Path, place: str) -> None:
    with serving(runs) as (address, _):
        written = export_dashboard([], tmp_path / "report.html", output_dir=runs)
        page.goto(f"{address}/run/ppo-seed1" if place == "server" else f"{written.path.as_uri()}#/run/ppo-seed1")
        page.wait_for_selector("h1:has-text('ppo-seed1')")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        assert page.inner_text("h1") == "ppo-seed1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(browser: Any, runs: Path, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 4000}, color_scheme=scheme)
    page = context.new_page()
    with serving(runs) as (address, _):
        for path in ("/", "/run/ppo-seed0", "/compare?run=ppo-seed0&run=ppo-seed1"):
            page.goto(address + path)
            page.wait_for_selector(".plot[data-drawn]")
            page.wait_for_timeout(500)
            assert page.evaluate(LOW_CONTRAST, WCAG_AA) == {}, f"{path} in {scheme}"
    context.close()
