"""What a notebook shows: the live panel is replaced in place, and runs and recordings show themselves."""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from rl_training import PPO, load
from rl_training.runtime.episode_video import Recording
from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.console_view import Snapshot
from rl_training.telemetry.notebook_panel import in_notebook
from rl_training.telemetry.notebook_view import curves_svg, media_html, run_html, snapshot_html
from tiny_runs import train_tiny


class Handle:
    """What `display(..., display_id=True)` returns."""

    def __init__(self, pages: list[str]) -> None:
        self.pages = pages

    def update(self, page: str) -> None:
        self.pages.append(page)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A kernel that keeps what is displayed; `shown` are new outputs, `pages` all states of them."""
    kernel = SimpleNamespace(shown=[], pages=[])

    def display(page: str, display_id: bool = False) -> Handle:
        assert display_id
        kernel.shown.append(page)
        kernel.pages.append(page)
        return Handle(kernel.pages)

    module = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))  # type: ignore[arg-type]
    return kernel


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def draw(total: int, steps: int = 5, **options: Any) -> None:
    """A run whose lines come a second apart."""
    clock = Clock()
    with ConsoleDisplay(total, "ppo on CartPole-v1", clock=clock, **options) as display:
        for step in range(1, steps + 1):
            clock.now += 1
            line = {"kind": "train", "env_steps": step * 100, "mean_return": float(step), "policy_loss": 0.5}
            display.update(step * 100, line)
        display.note("a finding <b>")


def test_the_panel_is_one_output_that_changes_in_place(notebook: SimpleNamespace) -> None:
    draw(500)
    assert len(notebook.shown) == 1
    assert len(notebook.pages) == 7  # at the start, with each line, and at the end
    last = notebook.pages[-1]
    assert "500 of 500 steps (100%)" in last and "took" in last and "policy loss" in last
    assert "a finding &lt;b&gt;" in last and "<b>" not in last


def test_a_stream_or_quiet_mode_is_not_for_the_notebook(notebook: SimpleNamespace) -> None:
    stream = io.StringIO()
    draw(500, stream=stream)
    draw(500, enabled=False)
    assert notebook.shown == [] and "step 500 / 500" in stream.getvalue()


def test_a_display_that_fails_turns_quiet(notebook: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the kernel has gone")

    monkeypatch.setattr(sys.modules["IPython.display"], "display", broken)
    draw(500)


@pytest.mark.parametrize("shell", [None, SimpleNamespace()])
def test_plain_python_and_a_terminal_of_ipython_are_no_notebook(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    assert not in_notebook()


def test_a_long_run_stays_visible_from_its_first_step(notebook: SimpleNamespace) -> None:
    draw(90_000, steps=900)
    (points,) = re.findall(r'<polyline points="([^"]+)"', notebook.pages[-1])
    places = points.split()
    assert 150 < len(places) <= 402
    assert float(places[0].split(",")[0]) < 60  # the left edge


def test_curves_are_drawn_at_their_values_and_named() -> None:
    svg = ElementTree.fromstring(curves_svg([(0, 0.0), (50, 5.0), (100, 10.0)], [(100, 10.0)]))
    line = next(each for each in svg.iter() if each.tag.endswith("polyline"))
    first, middle, last = (tuple(map(float, place.split(","))) for place in str(line.get("points")).split())
    assert first[1] > middle[1] > last[1] and middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.1)
    assert [each.text for each in svg.iter() if each.text in ("training", "evaluation")] == ["training", "evaluation"]
    assert "from 0.0 to 10.0" in str(svg.get("aria-label"))
    assert curves_svg([(0, 1.0)], []) == ""


@pytest.mark.parametrize("best", ["training", "evaluation"])
def test_names_of_curves_that_end_close_together_stand_in_the_order_of_the_curves(best: str) -> None:
    ends = {"training": 9.9, "evaluation": 9.9} | {best: 10.0}
    svg = ElementTree.fromstring(curves_svg(*([(0, 0.0), (100, ends[name])] for name in ("training", "evaluation"))))
    heights = {str(each.text): float(str(each.get("y"))) for each in svg.iter() if each.text in ends}
    assert min(heights, key=heights.__getitem__) == best
    assert abs(heights["training"] - heights["evaluation"]) >= 12


def test_words_of_a_chart_stay_readable_on_a_phone() -> None:
    live = Snapshot("a", 9, curve=[(0, 1.0), (9, 2.0)])
    for page in (run_html("a", {}, [(0, 1.0)], [(9, 2.0)]), snapshot_html(live)):
        (width,) = re.findall(r'<div style="overflow-x:auto"><svg [^>]*min-width:(\d+)px', page)
        (whole,) = re.findall(r'viewBox="0 0 (\d+) ', page)
        sizes = [float(size) for size in re.findall(r'font-size="(\d+)"', page)]
        assert min(sizes) * int(width) / int(whole) > 7


def test_names_of_runs_cannot_add_markup() -> None:
    bad = '<script>alert("x")</script>'
    for page in (run_html(bad, {bad: bad}, notes=[bad]), snapshot_html(Snapshot(bad, 10, infos={bad: 1.0}), [bad])):
        assert "<script" not in page and "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_recording_is_inside_the_notebook(tmp_path: Path) -> None:
    path = tmp_path / "agent.gif"
    path.write_bytes(b"GIF89a")
    shown = Recording(path, (1.0, 2.0), (3, 4), pictures=5, speed=2.0)._repr_html_()
    assert base64.b64encode(b"GIF89a").decode() in shown
    assert 'alt="2 episodes, return 1.0, 2.0, 2 times as fast"' in shown
    path.unlink()
    assert "not there anymore" in media_html(path, "gone")
    assert "return 1.0" in Recording(None, (1.0,), (3,))._repr_html_()


def test_agents_and_results_show_their_run(tmp_path: Path) -> None:
    agent = PPO(
        "CartPole-v1",
        seed=0,
        num_envs=2,
        num_steps=32,
        eval_every=128,
        eval_episodes=1,
        log_every=64,
        output_dir=str(tmp_path),
    )
    assert "ppo on CartPole-v1" in agent._repr_html_() and "<svg" not in agent._repr_html_()
    agent.learn(256, show=False)
    assert agent.result is not None
    shown = agent.result._repr_html_()
    assert agent._repr_html_() == shown and "<svg" in shown and ">evaluation</text>" in shown
    assert "256" in shown and str(agent.run_dir) in shown
    loaded = PPO.load(str(agent.run_dir))
    assert "<svg" in loaded._repr_html_()


@pytest.mark.parametrize("number", ["1e999", "NaN", "1" * 400, "-1e308", '"<script>"', "[]", "true", "null"])
@pytest.mark.parametrize("key", ["env_steps", "mean_return", "eval_mean_return"])
def test_a_run_with_forged_metrics_is_drawn_without_them(key: str, number: str, tmp_path: Path) -> None:
    run = train_tiny("ppo", tmp_path, eval_every=16).run_dir
    metrics = run / "metrics.jsonl"
    forged, count = re.subn(rf'("{key}": ?)[-\d.e]+', lambda match: match[1] + number, metrics.read_text(), count=2)
    assert count == 2
    metrics.write_text(forged)
    page = load(run)._repr_html_()
    places = re.findall(r'points="([^"]*)"', page)
    assert places and not re.search("nan|inf", " ".join(places)) and "<script" not in page
