"""Make the pictures of the dashboard in docs/images from real runs: python scripts/dashboard_pictures.py

It trains a dozen short runs (some minutes), serves them, and takes the pictures with a real browser. Needs the extra
`browser`, and Chromium or Chrome (`BROWSER=/path/to/it`).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "browser"))

from conftest import FLAGS, find_browser  # noqa: E402

RATES = ("0.0001", "0.0025")
SHORT = ("--total-timesteps", "12000", "--set", "eval_every=1000", "--quiet")
SHARP = 1.0  # pixels of the picture for each pixel of the page
WAIT_MILLISECONDS = 120_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--runs", type=Path, help="keep the runs here, and use those that are there")
    options = parser.parse_args()
    out = options.out.absolute()
    with tempfile.TemporaryDirectory() as folder:
        home = options.runs.absolute() if options.runs else Path(folder)
        if not (home / "runs").is_dir():
            home.mkdir(parents=True, exist_ok=True)
            train_all(home)
        with serving(home) as address:
            take_all(address, run_with_finding(home), out)


def train_all(home: Path) -> None:
    for rate in RATES:
        train(home, "ppo/cartpole", *SHORT, "--seeds", "0,1,2", "--set", f"learning_rate={rate}")
    train(home, "a2c/cartpole", *SHORT)
    train(home, "dqn/cartpole", *SHORT)
    # The newest run, which the page of all runs opens with. Its learning rate is large, so its curve has a story.
    steps = ("--total-timesteps", "40000", "--set", "eval_every=2000", "--quiet")
    train(home, "ppo/cartpole", *steps, "--set", "learning_rate=0.02", "--set", "run_name=ppo-CartPole-v1-lr-0.02")


def train(home: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "rl_training", "train", *words], cwd=home, check=True)


def run_with_finding(home: Path) -> str:
    """The longest run that has found something wrong with itself."""
    runs = [path.parent for path in (home / "runs").glob("*/findings.jsonl")]
    if not runs:
        raise SystemExit("no run has a finding: train with a larger learning rate")
    return max(runs, key=lambda run: (run / "metrics.jsonl").stat().st_size).name


@contextmanager
def serving(home: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "rl_training", "dashboard", "--port", "0"]
    process = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert match is not None
        yield match[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def take_all(address: str, name: str, out: Path) -> None:
    from playwright.sync_api import sync_playwright

    run = f"{address}/run/{name}"
    names = [f"ppo-CartPole-v1-seed{seed}{again}" for again in ("", "-2") for seed in range(3)]
    compare = f"{address}/compare?" + "&".join(f"run={name}" for name in names)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), headless=True, args=list(FLAGS))
        take(browser, address, out / "dashboard-runs.png", (1180, 860))
        take(browser, run, out / "dashboard-run.png", (1180, 1010))
        take(browser, compare, out / "dashboard-compare.png", (1180, 760))
        take(browser, run, out / "dashboard-phone.png", (390, 844), theme="dark")
        browser.close()


def take(browser: Any, address: str, path: Path, size: tuple[int, int], theme: str = "light") -> None:
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=SHARP
    )
    page = context.new_page()
    page.set_default_timeout(WAIT_MILLISECONDS)
    page.goto(address)
    page.wait_for_selector(".plot[data-drawn]")
    page.wait_for_timeout(
        3000
    )  # the small curves of the table and the verdict of a comparison come after the first chart
    page.screenshot(path=path)
    context.close()
    print(f"wrote {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
