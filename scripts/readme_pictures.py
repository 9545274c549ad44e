"""Make the two pictures at the top of the README from real runs: docs/images/cartpole.gif and exact_resume.png.

    python scripts/readme_pictures.py              train, kill, resume, compare, play; about a minute
    python scripts/readme_pictures.py --out DIR    write the pictures somewhere else

One run of ppo/cartpole is left alone. A second one is killed with SIGKILL and resumed. The script fails unless both
metric streams are equal in everything but wall time; only then does it draw them.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

PRESET = "ppo/cartpole"
KILL_AFTER = 50_000  # environment steps
WALL_CLOCK = ("wall_seconds", "steps_per_second", "time_")
BLUE, ORANGE, GRAY = "#0072B2", "#D55E00", "#777777"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "images")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        whole = train(Path(folder) / "whole")
        killed, died_at = train_and_kill(Path(folder) / "killed")
        kept = newest_checkpoint(killed)
        command("resume", str(killed), "--quiet")
        lines = metric_lines(whole)
        if metric_lines(killed) != lines:
            raise SystemExit("the resumed run differs from the uninterrupted one")
        draw(lines, died_at, kept, out / "exact_resume.png")
        command("play", str(whole), "--gif", str(out / "cartpole.gif"))
    print(f"{len(lines)} metric lines are equal; killed at {died_at:,} steps, resumed from {kept:,}")


def command(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rl_training", *words], check=True)


def train(folder: Path) -> Path:
    command("train", PRESET, "--output-dir", str(folder), "--quiet")
    return next(folder.iterdir())


def train_and_kill(folder: Path) -> tuple[Path, int]:
    """A run that dies without warning, and the last environment step that it logged."""
    words = [sys.executable, "-m", "rl_training", "train", PRESET, "--output-dir", str(folder), "--quiet"]
    with subprocess.Popen(words) as process:
        while process.poll() is None:
            time.sleep(0.05)
            runs = list(folder.glob("*/metrics.jsonl"))
            if runs and (step := last_step(runs[0])) >= KILL_AFTER:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return runs[0].parent, max(step, last_step(runs[0]))
    raise SystemExit("the run ended before it could be killed")


def last_step(metrics: Path) -> int:
    whole_lines = metrics.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
    return json.loads(whole_lines[-1])["env_steps"] if whole_lines else 0


def newest_checkpoint(run: Path) -> int:
    return max(int(path.name.partition("-")[2]) for path in (run / "checkpoints").glob("step-*") if path.is_dir())


def metric_lines(run: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [{name: value for name, value in line.items() if not name.startswith(WALL_CLOCK)} for line in lines]


def draw(lines: list[dict[str, Any]], died_at: int, kept: int, path: Path) -> None:
    training = [(line["env_steps"], line["mean_return"]) for line in lines if line["kind"] == "train"]
    steps, returns = zip(*training, strict=True)
    after = [point for point in training if point[0] >= kept]
    figure = Figure(figsize=(4.8, 3.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(steps, returns, color=BLUE, linewidth=2.5, label="never interrupted")
    axes.plot(*zip(*after, strict=True), color=ORANGE, linestyle="none", marker=".", markersize=5, label="resumed")
    axes.axvspan(kept, died_at, color=GRAY, alpha=0.2, linewidth=0)
    axes.annotate(
        f"kill -9 at {died_at / 1000:.0f}k,\nback to {kept / 1000:.0f}k",
        (died_at, 150),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color="#444444",
    )
    axes.set_title("PPO on CartPole: killed and resumed", fontsize=11)
    axes.set_xlabel("environment steps", fontsize=9)
    axes.set_ylabel("mean return, last 100 episodes", fontsize=9)
    axes.set_xticks([0, 25_000, 50_000, 75_000, 100_000], ["0", "25k", "50k", "75k", "100k"])
    axes.set_ylim(0, 520)
    axes.tick_params(labelsize=9)
    axes.grid(color="#DDDDDD", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    main()
