"""The dashboard as a person meets it: pages, charts and the exported file, in a real browser."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rl_training.analysis.curves import read_series
from rl_training.dashboard.export_file import export_dashboard
from served import serving
from stored_runs import store

HOSTILE = "<img src=x onerror=window.hacked=1>&lt;b&gt;"
LAST_POINTS = """() => Object.fromEntries([...document.querySelectorAll('figure[data-metric]')]
    .filter((figure) => figure.querySelector('.js-plotly-plot'))
    .map((figure) => { const trace = figure.querySelector('.js-plotly-plot').data[0];
        return [figure.dataset.metric, [trace.x.at(-1), trace.y.at(-1)]]; }))"""
ENDS_AT = """(step) => document.querySelector('.js-plotly-plot').data.some((trace) => trace.x.at(-1) === step)"""
WITHOUT_WORDS = "(every) => every.filter((each) => !(each.alt || each.getAttribute('aria-label'))).length"
MODES = """() => [...document.querySelectorAll('.js-plotly-plot')].flatMap((plot) => plot.data)
    .filter((trace) => trace.line.width > 0).map((trace) => trace.mode)"""
CUT_OFF = """(texts) => texts.filter((text) => text.getBoundingClientRect().left
    < text.closest('svg').getBoundingClientRect().left).map((text) => text.textContent)"""
RETURN_TRACES = """() => Object.fromEntries(document.querySelector('.js-plotly-plot').data
    .filter((trace) => trace.name).map((trace) => [trace.name, [trace.x.at(-1), trace.y.at(-1), trace.x.length]]))"""


def append(run: Path, line: dict[str, Any]) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def lines(run: Path, count: int, **more: float) -> None:
    for number in range(1, count + 1):
        step = number * 10
        numbers = {"mean_return": number / 7, "loss": 1 / number, "entropy": 0.5, "time_env": 0.25, "time_learn": 0.75}
        append(run, {"kind": "train", "env_steps": step, **numbers, **more})
        if number % 10 == 0:
            evaluation = {"eval_mean_return": number / 3, "eval_std_return": 1.0, "eval_episodes": 10}
            append(run, {"kind": "eval", "env_steps": step, **evaluation})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "a-project-with-a-long-name-and-no-space-in-it" / "runs"  # the page names it
    for seed in range(3):
        lines(store(folder, {}, seed=seed), 60)
    return folder


def drawn(page: Any) -> None:
    page.wait_for_selector(".plot[data-drawn]")


def see_everything(page: Any) -> None:
    """Charts are drawn when they are seen."""
    for figure in page.query_selector_all("figure[data-metric]"):
        figure.scroll_into_view_if_needed()
        page.wait_for_function("(figure) => figure.querySelector('.js-plotly-plot')", arg=figure)


def test_the_last_point_of_every_curve_is_that_of_the_file(page: Any, runs: Path) -> None:
    run = runs / "ppo-seed1"
    with serving(runs) as (address, _):
        page.goto(f"{address}/run/ppo-seed1")
        drawn(page)
        see_everything(page)
        found = page.evaluate(LAST_POINTS)
        metrics = ["loss", "entropy", "mean_return", "eval_mean_return"]
        curves, _ = read_series(run, metrics)
        ends = {metric: [curve.steps[-1], curve.returns[-1]] for metric, curve in curves.items()}
        assert found == {"loss": ends["loss"], "entropy": ends["entropy"]}
        traces = page.evaluate(RETURN_TRACES)
        assert traces["training"] == [*ends["mean_return"], 60]
        assert traces["evaluation"] == [*ends["eval_mean_return"], 6]
        label = page.get_attribute(".plot", "aria-label")
        assert "training return 8.6 at step 600" in label and "evaluation 20.0 at step 600" in label


def test_a_line_appended_while_the_page_is_open_appears(page: Any, runs: Path) -> None:
    run = runs / "ppo-seed2"
    with serving(runs) as (address, _):
        page.goto(f"{address}/run/ppo-seed2")
        drawn(page)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        seconds = []
        for step in (700, 800, 900):
            append(run, {"kind": "train", "env_steps": step, "mean_return": step / 2, "loss": 7.0})
            started = time.monotonic()
            condition = (
                f"() => document.querySelector('.js-plotly-plot').data.some((trace) => trace.x.at(-1) === {step})"
            )
            page.wait_for_function(condition)
            seconds.append(time.monotonic() - started)
        print(f"\na new line was drawn after {', '.join(f'{each:.2f}' for each in seconds)} s")
        asked = [url for url in requests if "/metrics?from=" in url]
        assert asked and all("from=&" not in url and not url.endswith("from=") for url in asked), (
            "nothing is fetched twice"
        )
        assert page.evaluate(RETURN_TRACES)["training"] == [900, 450, 63], "older points stay"


def test_a_click_opens_a_run_and_the_keyboard_does_too(page: Any, runs: Path) -> None:
    with serving(runs) as (address, _):
        page.goto(address)
        drawn(page)
        assert page.inner_text(".newest h2") == "ppo-seed2"
        page.click("table.runs >> text=ppo-seed0")
        page.wait_for_selector("h1:has-text('ppo-seed0')")
        assert page.url == f"{address}/run/ppo-seed0" and page.title().startswith("ppo-seed0")
        page.go_back()
        page.wait_for_selector("table.runs >> text=ppo-seed0")
        page.focus("table.runs a:has-text('ppo-seed1')")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('ppo-seed1')")


def test_a_run_of_one_line_is_seen(page: Any, runs: Path) -> None:
    """One point makes no line: it is drawn as a dot."""
    young = store(runs, {}, seed=9, status="interrupted")
    lines(young, 1)
    with serving(runs) as (address, _):
        page.goto(f"{address}/run/ppo-seed9")
        drawn(page)
        see_everything(page)
        modes = page.evaluate(MODES)
        assert len(modes) == 5 and set(modes) == {"lines+markers"}
        page.goto(f"{address}/run/ppo-seed1")
        drawn(page)
        assert "lines" in page.evaluate(MODES)


def test_numbers_at_the_axes_are_whole(page: Any, runs: Path) -> None:
    run = store(runs, {}, seed=9)
    for step in range(1, 20):
        numbers = {"entropy": 0.69314 - 1e-6 * step, "explained_variance": -0.0008 - 1e-5 * step, "q_mean": -9e6 * step}
        append(run, {"kind": "train", "env_steps": step, **numbers})
    with serving(runs) as (address, _):
        page.goto(f"{address}/run/ppo-seed9")
        page.wait_for_selector("figure[data-metric]")
        see_everything(page)
        cut = page.eval_on_selector_all(".ytick text", CUT_OFF)
        assert page.locator(".ytick text").count() > 8 and cut == []


def test_commands_and_names_of_settings_can_be_read(page: Any, runs: Path) -> None:
    store(runs, {100: 1.0}, seed=9, status="interrupted", model={"encoder": "my_nets:Eye"})
    with serving(runs) as (address, _):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{address}/run/ppo-seed9")
        page.wait_for_selector("text=/resume .*ppo-seed9 --trust my_nets$/")
        assert page.locator(".settings dt:has-text('algo_kwargs.normalize_advantages') wbr").count() == 3


def test_runs_are_ticked_sorted_filtered_and_compared(page: Any, runs: Path) -> None:
    lines(store(runs, {}, seed=7, gamma=0.5, name="short"), 60, loss=3.0)
    with serving(runs) as (address, _):
        page.goto(address)
        page.wait_for_selector("table.runs tbody tr:nth-child(4)")
        page.click("th button:has-text('Run')")
        names = page.eval_on_selector_all("table.runs .name a", "(links) => links.map((link) => link.textContent)")
        assert names == ["ppo-seed0", "ppo-seed1", "ppo-seed2", "short"]
        page.fill("input[type=search]", "seed cartpole")
        assert page.locator("table.runs tbody tr").count() == 3
        page.fill("input[type=search]", "")
        for name in names:
            page.check(f"input[aria-label='Compare {name}']")
        page.click("text=Compare 4 runs")
        drawn(page)
        labels = page.eval_on_selector_all(".legend li", "(items) => items.map((item) => item.textContent)")
        assert labels == ["gamma 0.99: 20.0", "gamma 0.5: 20.0"]
        assert "algo_kwargs.gamma" in page.inner_text("main")
        page.select_option("select", "loss")
        page.wait_for_function("() => document.querySelector('.legend').textContent.includes('3.0')")


def test_hostile_names_and_texts_stay_text(page: Any, runs: Path) -> None:
    run = store(runs, {100: 1.0}, seed=9)
    name = HOSTILE.replace("/", "_")
    append(run, {"kind": "train", "env_steps": 150, HOSTILE: 1.0, "mean_return": 2.0})
    (run / "crash").mkdir()
    (run / "crash" / "a.json").write_text(json.dumps({"reason": HOSTILE}))
    run.rename(runs / name)
    with serving(runs) as (address, _):
        page.goto(address)
        page.click(f"table.runs a >> text={name}")
        page.wait_for_selector("h1")
        see_everything(page)
        page.click("header a:has-text('Compare')")
        page.wait_for_selector(".choice label")
        assert name in page.inner_text(".choice")
        assert page.evaluate("window.hacked") is None and page.locator("main img").count() == 0


def test_the_exported_file_opens_with_the_network_cut(page: Any, runs: Path, tmp_path: Path) -> None:
    (runs / "ppo-seed0").rename(runs / HOSTILE)
    written = export_dashboard([], tmp_path / "report.html", output_dir=runs)
    page.context.set_offline(True)
    page.context.route("http*://**", lambda route: route.abort())
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(written.path.as_uri())
    drawn(page)
    page.click("table.runs >> text=ppo-seed1")
    page.wait_for_selector("h1:has-text('ppo-seed1')")
    drawn(page)
    see_everything(page)
    curves, _ = read_series(runs / "ppo-seed1", ["loss", "mean_return", "eval_mean_return"])
    assert page.evaluate(LAST_POINTS)["loss"] == [curves["loss"].steps[-1], curves["loss"].returns[-1]]
    traces = page.evaluate(RETURN_TRACES)
    assert traces["training"][:2] == [curves["mean_return"].steps[-1], curves["mean_return"].returns[-1]]
    page.click("nav a:has-text('Compare')")
    drawn(page)
    page.click("nav a:has-text('Runs')")
    page.click(f"table.runs a >> text={HOSTILE}")
    page.wait_for_selector("h1")
    assert page.evaluate("window.hacked") is None
    assert [url for url in requests if url != requests[0] and not url.startswith(requests[0] + "#")] == []
    print(f"\nthe file has {written.path.stat().st_size / 1e6:.1f} MB; requests beside itself: 0")


@pytest.mark.parametrize("width", [390, 820, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_width_and_follow_the_theme(browser: Any, runs: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    with serving(runs) as (address, _):
        for path in ("/", "/run/ppo-seed0", "/compare?run=ppo-seed0&run=ppo-seed1"):
            page.goto(address + path)
            drawn(page)
            inside, whole = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
            assert whole <= inside, f"{path} scrolls sideways"
            red, *_ = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
            assert (red < 60) == (scheme == "dark")
            alone = page.eval_on_selector_all("img, .plot, .spark", WITHOUT_WORDS)
            assert alone == 0, "a picture without words"
            assert page.locator("h1").count() == 1
    context.close()
