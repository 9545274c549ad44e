"""Run directories with given settings and scores, written without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.config.loading import load_config, save_config
from rl_training.storage.run_directory import create_run_directory

STARTED = "2026-01-01T00:00:00+00:00"
SESSION: dict[str, Any] = {
    "started": STARTED,
    "from_step": 0,
    "command": "rl-training train x.yaml",
    "git": {"commit": "a" * 40, "dirty": False},
    "host": "one",
    "processor": "a processor",
    "cores": 2,
    "system": "Linux 6",
    "versions": {"python": "3.11.7", "torch": "2.9.0", "numpy": "2.3.0"},
}


def store(
    folder: Path,
    scores: Mapping[int, float] | Sequence[tuple[int, float]] = (),
    *,
    seed: int = 0,
    name: str | None = None,
    std: float = 1.0,
    episodes: int = 10,
    status: str = "finished",
    losses: Mapping[int, float] | None = None,
    sessions: Sequence[Mapping[str, Any]] = (SESSION,),
    **settings: Any,
) -> Path:
    """A run of PPO on CartPole, evaluated at the steps of `scores` and with the metric `loss`."""
    base = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 1000}
    config = load_config(base, {"seed": seed, "output_dir": str(folder), **settings})
    run = create_run_directory(
        folder,
        name or f"{config.algo}-seed{seed}",
        algorithm=config.algo,
        env=config.env_id,
        seed=seed,
        total_timesteps=config.total_timesteps,
    )
    save_config(config, run.path / "config.yaml")
    pairs = list(scores.items()) if isinstance(scores, Mapping) else list(scores)
    last = max((step for step, _ in pairs), default=0)
    run.update(status=status, env_steps=last, wall_seconds=1.0, sessions=[dict(each) for each in sessions])
    lines: list[tuple[int, dict[str, Any]]] = [
        (
            step,
            {
                "kind": "eval",
                "env_steps": step,
                "eval_mean_return": score,
                "eval_std_return": std,
                "eval_episodes": episodes,
            },
        )
        for step, score in pairs
    ]
    lines += [(step, {"kind": "train", "env_steps": step, "loss": loss}) for step, loss in (losses or {}).items()]
    lines.sort(key=lambda pair: pair[0])
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for _, line in lines))
    return run.path
