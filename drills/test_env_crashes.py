"""Item 6: envs that fail in every way are replaced in time, leave nothing behind, and fail again on demand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from faulty_envs import WAYS, FaultyEnv
from figures import record_figure
from own_clock import OwnClock
from rl_training.config.loading import load_config
from rl_training.envs.factory import make_vector_env
from rl_training.envs.processes import async_vector
from rl_training.envs.spaces import Spaces
from rl_training.runtime.setup.loop_setup import build_loop
from rl_training.runtime.setup.run_envs import training_envs
from rl_training.runtime.workflows import train

TESTS = Path(__file__).resolve().parent.parent / "tests" / "support"
TIMEOUT, CONSTRUCTOR = 1.0, 0.4
MODULE = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import gymnasium
from faulty_envs import FaultyEnv
gymnasium.register("Faulty-v0", entry_point=FaultyEnv)
"""


def test_every_way_to_fail_is_survived_in_time(tmp_path: Path) -> None:
    slowest, survived = 0.0, 0
    for how in WAYS:
        for fail_at in (3, 0):
            if fail_at == 0 and how in ("shape", "dtype"):
                continue  # this env only breaks what a step returns
            (tmp_path / "times").write_bytes(b"x")
            kwargs = {"how": how, "fail_at": fail_at, "times": str(tmp_path / "times"), "slow": CONSTRUCTOR}
            envs = make_vector_env(FaultyEnv, 4, env_kwargs=kwargs, backend="async", timeout=TIMEOUT)
            with OwnClock(os.getpid()) as clock:
                marks = [clock.seconds]
                envs.reset(seed=20)
                marks.append(clock.seconds)
                for _ in range(6):
                    envs.step(np.zeros(4, np.int64))
                    marks.append(clock.seconds)
            taken = np.diff(marks)
            (failure,) = envs.failures
            survived += 1
            slowest = max(slowest, max(taken) - CONSTRUCTOR - (TIMEOUT if failure.timed_out else 0.0))
            envs.close()
    record_figure(6, "ways to fail (8 in a step, 6 in a reset), each survived", survived, ">= 14")
    record_figure(
        6, "seconds to replace an env, beyond its constructor and the timeout: the slowest", slowest, "<= 2 s"
    )


class Hazardous(gym.Env[Any, Any]):
    """Counts its steps, and raises in about one of twenty."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.elapsed, self.mark = 0, float(self.np_random.integers(10**6))
        return self._look(), {}

    def step(self, action: Any) -> Any:
        if self.np_random.random() < 0.05:
            raise RuntimeError("hazard")
        self.elapsed += 1
        return self._look(), float(self.elapsed), self.elapsed == 30, self.np_random.random() < 0.02, {}

    def _look(self) -> np.ndarray:
        return np.array([self.elapsed, self.mark], np.float32)


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_no_transition_crosses_a_break(algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards count the steps of an episode and observations carry its mark, so that a row across a break shows."""
    monkeypatch.setattr(async_vector, "RESTARTS_PER_ENV", 10**6)
    monkeypatch.setattr(async_vector, "RESTARTS_PER_RUN", 10**6)
    settings: dict[str, Any] = {"num_steps": 50, "minibatch_size": 50}
    if algo == "dqn":
        settings = {"learning_starts": 2000, "buffer_size": 20_000, "n_step": 3, "gamma": 0.5}
    base = {"algo": algo, "env_id": "callable:Hazardous", "num_envs": 4, "total_timesteps": 2400}
    base |= {"vector_backend": "async", "output_dir": str(tmp_path), "algo_kwargs": settings}
    config = load_config(base, {"hidden_sizes": [8]})
    crossings = checked = 0
    with training_envs(config, Hazardous) as envs:
        loop = build_loop(config, envs, Spaces(envs.single_observation_space, envs.single_action_space))
        if algo == "ppo":
            for _ in range(12):
                rollout, _ = loop.collector.collect(50)
                last = {
                    (int(t), int(e)): obs
                    for t, e, obs in zip(rollout.final_steps, rollout.final_envs, rollout.final_obs, strict=True)
                }
                for t, env in np.argwhere(rollout.valid):
                    following = rollout.obs[t + 1, env] if t + 1 < 50 else rollout.last_obs[env]
                    following = last.get((int(t), int(env)), following)
                    continues = not rollout.terminated[t, env]
                    checked += 1
                    crossings += bool(
                        continues
                        and (following[1] != rollout.obs[t, env, 1] or following[0] != rollout.obs[t, env, 0] + 1)
                    )
        else:
            while loop.round() is not None:
                pass
            buffer = loop.buffer  # type: ignore[attr-defined]
            batch = buffer.sample(20_000, np.random.default_rng(0))
            for k in range(len(batch)):
                first = float(batch.obs[k, 0]) + 1
                steps = int(batch.next_obs[k, 0] - batch.obs[k, 0])
                expected = sum(0.5**n * (first + n) for n in range(steps))
                checked += 1
                crossings += bool(batch.next_obs[k, 1] != batch.obs[k, 1] or float(batch.rewards[k]) != expected)
        breaks = len(envs.unwrapped.failures)  # type: ignore[attr-defined]
    assert breaks > 80 and checked > 2000
    record_figure(
        6, f"{algo}: transitions across a break, of 2,000 and more around 80 and more breaks", crossings, "= 0"
    )


# How a single process ends when its env fails in this way: the exit code, or None if it hangs.
ENDS = {"raise": 3, "exit": 7, "leave": 3, "segfault": -signal.SIGSEGV, "shape": 3, "dtype": 3, "sleep": None}


def test_crash_files_fail_again_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faulty_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    reproduced = 0
    for how, expected in ENDS.items():
        (tmp_path / "times").write_bytes(b"x")
        # One env only: two could fail at the same moment, before either has counted the failure.
        base = {"algo": "ppo", "env_id": "faulty_module:Faulty-v0", "num_envs": 1, "total_timesteps": 40}
        base |= {"vector_backend": "async", "env_timeout": TIMEOUT, "output_dir": str(tmp_path), "run_name": how}
        base |= {"env_kwargs": {"how": how, "which": -1, "times": str(tmp_path / "times")}, "eval_episodes": 1}
        result = train(load_config(base, {"num_steps": 20, "minibatch_size": 20, "hidden_sizes": [8]}), show=False)
        (file,) = (result.run_dir / "crash").glob("*.json")
        document = json.loads(file.read_text())
        file.write_text(json.dumps(document | {"env_kwargs": {"how": how, "which": -1}}))
        command = [sys.executable, "-m", "rl_training", "reproduce", str(file)]
        try:
            # Only the env that hangs is not waited for.
            patience = 15 if expected is None else 600
            done = subprocess.run(command, env=environment, capture_output=True, timeout=patience)
            reproduced += done.returncode == expected
        except subprocess.TimeoutExpired:
            reproduced += expected is None
    record_figure(6, f"crash files that fail again in one process, of {len(ENDS)} ways", reproduced, f"= {len(ENDS)}")
