"""200 runs of 5,000 lines each: the first paint, the first chart, and a tick."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from served import serving
from stored_runs import store

RUNS, LINES = 200, 5000
WAIT_MILLISECONDS = 600_000  # on a busy machine
ENDS_AT = "(step) => document.querySelector('.newest .js-plotly-plot').data.some((each) => each.x.at(-1) === step)"
FIRST_PAINT_SECONDS, TICK_SECONDS = 2.0, 0.05


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Lines as long as those of PPO. Each run has a file of its own: links would be read from memory only once."""
    folder = tmp_path_factory.mktemp("many") / "runs"
    text = []
    for number in range(1, LINES + 1):
        if number % 50 == 0:
            evaluation = {"eval_mean_return": number / 3, "eval_std_return": 1.0, "eval_episodes": 10}
            text.append(json.dumps({"kind": "eval", "env_steps": number * 100, **evaluation}))
        metrics = {f"metric_{place}": number * 0.123456789 + place for place in range(18)}
        times = {"steps_per_second": 1000.0, "time_env": 0.5, "time_act": 0.1, "time_learn": 0.3, "time_other": 0.1}
        line = {"kind": "train", "env_steps": number * 100, "mean_return": number / 7, **metrics, **times}
        text.append(json.dumps(line))
    content = "\n".join(text[:LINES]) + "\n"
    for seed in range(RUNS):
        run = store(folder, {}, seed=seed, name=f"run-{seed:03d}")
        (run / "metrics.jsonl").write_text(content)
    yield folder
    shutil.rmtree(folder)


def processor_seconds(process: int) -> float:
    """Of a process and its threads, from Linux."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def page_seconds(session: Any) -> float:
    """Processor time of the page's main thread: scripts, layout and drawing."""
    found = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def test_first_paint_and_ticks_of_many_long_runs(page: Any, many_runs: Path) -> None:
    megabytes = sum(path.stat().st_size for path in many_runs.rglob("metrics.jsonl")) / 1e6
    with serving(many_runs) as (address, process):
        started = time.monotonic()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("table.runs tbody tr:nth-child(200)")
        rows = time.monotonic() - started
        page.wait_for_selector(".plot[data-drawn]")
        chart = time.monotonic() - started
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        page.wait_for_function("() => document.querySelectorAll('.spark').length === 200", timeout=WAIT_MILLISECONDS)
        filled = time.monotonic() - started
        server = processor_seconds(process)

        # Ticks, while one run grows as a living one does.
        run = many_runs / f"run-{RUNS - 1:03d}"
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})  # not the clock of a busy machine
        before, ticks = processor_seconds(process), []
        page_before, count_before = page_seconds(session), page.evaluate("window.dashboard.ticks")
        for step in range(1_000_000, 1_000_010):
            with (run / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"kind": "train", "env_steps": step, "mean_return": 1.0}) + "\n")
            page.wait_for_function(ENDS_AT, arg=step, polling=250)  # not in every frame, which would be measured too
            ticks.append(page.evaluate("window.dashboard.lastTick") / 1000)
        each = (processor_seconds(process) - before) / len(ticks)
        count = page.evaluate("window.dashboard.ticks") - count_before
        drawn = (page_seconds(session) - page_before) / count
        print(
            f"\n{RUNS} runs x {LINES} lines ({megabytes:.0f} MB): first paint {paint:.2f} s, all rows {rows:.2f} s,"
            f" newest curve {chart:.2f} s, all evaluations {filled:.2f} s;"
            f" server {server:.2f} s of processor time until then, {1000 * each:.0f} ms per tick;"
            f" page {1000 * drawn:.0f} ms of processor time per tick ({count} ticks),"
            f" {1000 * sorted(ticks)[5]:.0f} ms wall time with its requests"
        )
        assert server < 30 and each < TICK_SECONDS and drawn < TICK_SECONDS
        assert paint < FIRST_PAINT_SECONDS
