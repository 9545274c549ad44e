"""Run presets for a short budget. `same_numbers.py` starts this file as a child process, once per checkout and job.

    PYTHONPATH=CHECKOUT/src python scripts/same_numbers_runs.py CHECKOUT COMPILE

The child reads one request per line on its standard input, `PRESET<tab>FOLDER`, trains the preset in FOLDER/run and
answers with one line of JSON. Two versions of the library run this file, so it uses only `load_config`, `train`,
`resume` and `RLTrainingError` of `rl_training`, and settings that every version has.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import sys
import traceback
from pathlib import Path
from typing import Any

RUN = "run"
ROLLOUT, IMAGE_ROLLOUT = 512, 128  # most transitions of one rollout
CLASSIC = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
SHORT_EPISODE, IMAGE_EPISODE = 60, 30  # environment steps, where the time limit can be set
LONGEST_TRAINED = 200  # vector steps in which the batched Pendulum and MountainCar reach their own time limit

# These presets train for their budget, stop, and are resumed to twice the budget: one per algorithm or more. The ones
# with running statistics, correlated noise, priorities and frame storage have the most state to restore.
RESUMED = frozenset(
    [f"{algo}/acrobot" for algo in ("a2c", "appo", "impala", "ppg", "ppo", "recurrent_ppo", "trpo")]
    + [f"{algo}/mountaincar_continuous" for algo in ("d4pg", "ddpg", "mpo", "naf", "sac", "td3")]
    + [f"{algo}/cartpole" for algo in ("a3c", "acer", "acktr", "apex_dqn", "iqn", "pqn", "qr_dqn", "rainbow")]
    + [f"{algo}/pendulum" for algo in ("apex_d4pg", "apex_td3", "crossq", "droq", "redq", "td7", "tqc")]
    + ["c51/mountaincar", "dqn/cartpole_rainbow_parts", "dqn/pong_atari", "r2d2/cartpole_masked"]
)


def budget(config: Any, compiled: str = "off") -> dict[str, Any]:
    """The settings that make a short run of a preset. Networks, losses and `num_envs` stay those of the preset.

    Each run evaluates in the middle, saves a checkpoint in the middle, and then learns more.
    """
    on_policy = hasattr(config.algo_kwargs, "num_steps")
    changes = _on_policy(config) if on_policy else _replay(config)
    return changes | _episodes(config) | {"eval_episodes": 2, "threads": 1, "compile": compiled, "seed": 7}


def _on_policy(config: Any) -> dict[str, Any]:
    """Small rollouts, as many as an episode needs to reach its time limit, then 3.5 more.

    The half rollout at the end covers the rollout that shrinks to fit the budget.
    """
    settings = config.algo_kwargs
    most = IMAGE_ROLLOUT if _is_atari(config) else ROLLOUT
    num_steps = min(settings.num_steps, max(16, most // config.num_envs))
    rollout = num_steps * config.num_envs
    changes: dict[str, Any] = {"algo_kwargs.num_steps": num_steps}
    if hasattr(settings, "minibatch_size") and settings.minibatch_size < settings.num_steps * config.num_envs:
        changes["algo_kwargs.minibatch_size"] = min(settings.minibatch_size, rollout // 2)
    if hasattr(settings, "sequence_length"):
        whole = settings.sequence_length == settings.num_steps
        changes["algo_kwargs.sequence_length"] = num_steps if whole else min(settings.sequence_length, num_steps // 2)
    if hasattr(settings, "policy_phases"):
        changes["algo_kwargs.policy_phases"] = 2
        changes["algo_kwargs.auxiliary_minibatch_size"] = min(settings.auxiliary_minibatch_size, rollout)
    limit = LONGEST_TRAINED if config.env_id in CLASSIC else _short_episode(config)
    # An odd number of rollouts: the checkpoint of PPG then holds a rollout that waits for its auxiliary phase.
    before = max(3, math.ceil((limit + 8) / num_steps)) | 1
    return changes | {
        "total_timesteps": (before + 3) * rollout + rollout // 2,
        "log_every": rollout,
        "eval_every": (before - 1) * rollout,
        "checkpoint_every": before * rollout,
    }


def _replay(config: Any) -> dict[str, Any]:
    """A buffer that is overwritten before the end, targets that are copied several times, schedules that finish."""
    settings = config.algo_kwargs
    total = max(480, 2 * _short_episode(config) * config.num_envs, settings.batch_size * 5 // 4)
    changes: dict[str, Any] = {
        "total_timesteps": total,
        "log_every": total // 12,
        "eval_every": total // 2,
        "checkpoint_every": total * 5 // 8,
        "algo_kwargs.learning_starts": min(200, total // 4),
        "algo_kwargs.buffer_size": max(settings.batch_size, total // 2),
    }
    if hasattr(settings, "target_update_every"):
        changes["algo_kwargs.target_update_every"] = min(settings.target_update_every, total // 8)
    if getattr(getattr(settings, "exploration", None), "over", None) is not None:
        changes["algo_kwargs.exploration.over"] = total // 2
    return changes


def _episodes(config: Any) -> dict[str, Any]:
    """Short episodes, where the kind of vector environment does not depend on the setting."""
    length = _short_episode(config)
    if _is_atari(config):
        return {"env_kwargs.atari.max_frames": 4 * length}
    if config.env_id in CLASSIC and config.num_envs > 1:
        return {}  # the batched form has no such setting
    changes = {"env_kwargs.max_episode_steps": length}
    if "max_episode_steps" in config.eval_env_kwargs:
        changes["eval_env_kwargs.max_episode_steps"] = 2 * length
    return changes


def _is_atari(config: Any) -> bool:
    return "atari" in config.env_kwargs


def _short_episode(config: Any) -> int:
    return IMAGE_EPISODE if _is_atari(config) else SHORT_EPISODE


def run_preset(preset: str, folder: Path, compiled: str) -> None:
    """Train `preset` in `folder`/run, and resume it where `RESUMED` says so."""
    import rl_training

    try:
        result = _train(preset, folder, compiled)
    except rl_training.RLTrainingError as error:
        if compiled == "off" or getattr(error, "key", None) != "compile":
            raise
        result = _train(preset, folder, "off")  # an algorithm without a compiled step
    if preset in RESUMED and not result.interrupted:
        _seed_globals()
        result = rl_training.resume(result.run_dir, total_timesteps=2 * result.env_steps, show=False)
    if result.interrupted:
        raise RuntimeError("the run was interrupted")


def _train(preset: str, folder: Path, compiled: str) -> Any:
    import rl_training

    _seed_globals()
    changes = budget(rl_training.load_config(preset), compiled)
    config = rl_training.load_config(preset, changes | {"output_dir": str(folder), "run_name": RUN})
    return rl_training.train(config, show=False)


def _seed_globals() -> None:
    """A run must not depend on the runs before it in the same process, even if it uses a global generator."""
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


def main() -> None:
    checkout, compiled = Path(sys.argv[1]).resolve(), sys.argv[2]
    import rl_training

    found = Path(rl_training.__file__).resolve()
    if not found.is_relative_to(checkout):
        raise SystemExit(f"rl_training was imported from {found}, not from {checkout}")
    answers = sys.stdout
    for request in sys.stdin:
        preset, folder = request.rstrip("\n").split("\t")
        error = None
        with contextlib.redirect_stdout(sys.stderr):
            try:
                run_preset(preset, Path(folder), compiled)
            except Exception:
                error = traceback.format_exc()
        answers.write(json.dumps({"error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
