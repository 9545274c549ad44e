"""A tiny benchmark for tests: an env that an agent learns in a second, presets and a manifest."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rl_training.analysis.curves import Curve
from rl_training.config.loading import save_config
from rl_training.zoo.manifest import Entry, Manifest, Row, load_manifest
from rl_training.zoo.runs import Job

ENV_MODULE = """
import os
import gymnasium as gym
from rl_training.envs.probes import Probe

class Vote(Probe):
    '''One step: five signs are shown, and every second one lies. Reward 1 for what the most say, else -1.'''

    def __init__(self):
        super().__init__(observation_size=5)

    def start(self):
        self.shown = self.np_random.choice([-1.0, 1.0], 5)
        return self.shown

    def advance(self, action):
        right = int((self.shown * [1, -1, 1, -1, 1]).sum() > 0)
        return self.shown, 1.0 if int(action) == right else -1.0, True, False

class Deadly(Vote):
    def advance(self, action):
        os._exit(13)

gym.register("Vote-v0", Vote)
gym.register("Deadly-v0", Deadly)
"""
STEPS = 2_048


def preset(**changes: Any) -> dict[str, Any]:
    """PPO that learns the right answer within a few hundred steps: returns rise to 1."""
    return {
        "algo": "ppo",
        "env_id": "zoo_test_env:Vote-v0",
        "num_envs": 8,
        "total_timesteps": STEPS,
        "log_every": 256,
        "eval_every": 256,
        "eval_episodes": 20,
        "checkpoint_every": 512,
        "model": {"hidden_sizes": [16]},
        "algo_kwargs": {"num_steps": 16, "minibatch_size": 128, "update_epochs": 1, "learning_rate": 0.02},
        **changes,
    }


def row(config: str, **changes: Any) -> dict[str, Any]:
    return {
        "config": config,
        "budget": 100_000,
        "floor": 0.8,
        "bar": 0.9,
        "reference": 1.0,
        "source": "its definition",
        "protocol": "exact",
        **changes,
    }


def write_manifest(
    folder: Path, presets: dict[str, dict[str, Any]], rows: list[Any] | None = None, **keys: Any
) -> Path:
    """JSON is YAML too."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, settings in presets.items():
        (folder / f"{name}.yaml").write_text(json.dumps(settings))
    rows = rows if rows is not None else [row(f"{name}.yaml") for name in presets]
    path = folder / "tiny.yaml"
    path.write_text(json.dumps({"title": "Tiny", "protocols": {"exact": "known exactly"}, "rows": rows} | keys))
    return path


CURVE = {
    "source": "peer",
    "protocol": "exact",
    "seeds": 4,
    "uncounted_steps": 10_000,
    "points": [[0, 0.0, 0.0], [10_000, 100.0, 20.0], [50_000, 300.0, 40.0], [90_000, 500.0, 0.0]],
}


def manifest_with_curve(folder: Path, **changes: Any) -> Manifest:
    """CartPole with a published curve; `changes` can make it invalid."""
    rows = [row("configs/ppo/cartpole.yaml", floor=475, bar=495, curve="peer-cartpole")]
    return load_manifest(write_manifest(folder, {}, rows, curves={"peer-cartpole": CURVE | changes}))


def install_env(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importable here and in processes started from here."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "zoo_test_env.py").write_text(ENV_MODULE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))


def entry_of(name: str = "ppo/cartpole", **changes: Any) -> Entry:
    """A row of a packaged preset, without a manifest."""
    from rl_training.config.loading import load_config

    facts = row(f"configs/{name}.yaml", floor=475, bar=495, reference=500) | changes
    return Entry(Row.model_validate(facts), name, load_config(name))


def curve(steps: list[float], returns: list[float]) -> Curve:
    import numpy as np

    return Curve(np.array(steps, float), np.array(returns, float), np.array(steps, float) / 1000)


def store_run(
    entry: Entry, seed: int, folder: Path, evaluations: dict[int, float], status: str = "interrupted", **changes: Any
) -> Job:
    """The files of a run without its checkpoints."""
    job = Job(entry, seed, str(folder))
    job.run_dir.mkdir(parents=True)
    save_config(job.config.model_copy(update=changes), job.run_dir / "config.yaml")
    (job.run_dir / "run.json").write_text(json.dumps({"status": status, "env_steps": max(evaluations)}))
    lines = [
        {"kind": "eval", "env_steps": step, "eval_mean_return": value, "eval_seed": 1}
        for step, value in evaluations.items()
    ]
    (job.run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "ev')
    return job
