"""A tiny board for tests, with a worker that only pretends to train."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from zoo_helpers import preset

ROOT = Path(__file__).resolve().parents[2]

# Its policy has a return of 1 for each env step, so a threshold is reached at that many env steps.
WORKER = """
import json, sys, time
from rl_training.zoo.clock.stopwatch import Stopwatch

if "--probe" in sys.argv:
    print(json.dumps({"fake": "1.0"}))
    raise SystemExit
watch = Stopwatch.open()
settings, steps = watch.request["settings"], 0
if settings.get("dies"):
    sys.exit("out of memory")
if "compiles" in settings:
    import os, pathlib
    cache = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    settings["best"] = 1000 if cache.exists() else settings["best"]
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "code").write_text("compiled")
watch.plays_with(lambda seeds: [float(min(steps, settings["best"]))] * len(seeds))
while steps < settings["steps"]:
    steps += 10
    time.sleep(settings.get("round", 0.0))
    if not watch.look(steps):
        raise SystemExit
watch.finish(steps)
"""


def checkout(folder: Path) -> Path:
    """A checkout with the fake worker and its environment."""
    place = folder / "checkout"
    (place / "benchmarks").mkdir(parents=True)
    (place / "benchmarks" / "fake.py").write_text(WORKER)
    python = place / ".venv-fake" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (place / "src").symlink_to(ROOT / "src")
    return place


def board(**changes: Any) -> dict[str, Any]:
    return {
        "title": "Tiny",
        "seeds": 2,
        "episodes": 4,
        "first_episodes": 2,
        "workers": {"fake": {"title": "Fake", "script": "fake.py", "python": ".venv-fake", "setup": "make fake"}},
        "tasks": {"count": task()},
        **changes,
    }


def task(**changes: Any) -> dict[str, Any]:
    sides = {"fast": side(best=1000), "never": side(best=30)}
    return {
        "env": "Count-v0",
        "own_env": "zoo_test_env:Vote-v0",
        "threshold": 50,
        "every": 20,
        "budget": 60,
        "sides": sides,
        **changes,
    }


def side(**settings: Any) -> dict[str, Any]:
    return {"title": "Fake one", "worker": "fake", "settings": {"steps": 200, **settings}}


def own_side(**changes: Any) -> dict[str, Any]:
    """Ours: PPO on the env of `zoo_helpers`, in a file next to the board."""
    return {"title": "rl_training PPO", "config": "ppo.yaml", **changes}


def write_board(folder: Path, content: dict[str, Any], name: str = "tiny") -> Path:
    """JSON is YAML too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ppo.yaml").write_text(json.dumps(preset()))
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(content))
    return path
