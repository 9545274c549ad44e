"""Item 7: what the search for NaN and infinity costs. The test suite proves for every algorithm that it finds them."""

from __future__ import annotations

import math
import time
import timeit
from typing import Any

import numpy as np
import pytest

from figures import record_figure
from rl_training.config.loading import load_config
from rl_training.envs.spaces import Spaces
from rl_training.runtime.divergence import check_update
from rl_training.runtime.setup.loop_setup import build_loop
from rl_training.runtime.setup.run_envs import training_envs

SECONDS = 4.0
ROLLOUT = {"num_steps": 128, "minibatch_size": 256, "update_epochs": 4}
REPLAY = {"learning_starts": 200, "buffer_size": 20_000, "batch_size": 64}
# Small networks and fast envs, where the search costs most.
WORKS: dict[str, dict[str, Any]] = {
    "PPO on CartPole, 8 envs": {"algo": "ppo", "env_id": "CartPole-v1", "num_envs": 8, "algo_kwargs": ROLLOUT},
    "PPO on Pendulum, 8 envs": {"algo": "ppo", "env_id": "Pendulum-v1", "num_envs": 8, "algo_kwargs": ROLLOUT},
    "DQN on CartPole": {"algo": "dqn", "env_id": "CartPole-v1", "algo_kwargs": REPLAY},
    "SAC on Pendulum": {"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": REPLAY},
}


def cost_of(call: Any) -> float:
    """CPU seconds of one call: the minimum of several, because other work on the machine only adds time."""
    return min(timeit.repeat(call, number=2000, repeat=7, timer=time.process_time)) / 2000


@pytest.mark.parametrize("name", WORKS)
def test_looking_takes_less_than_a_percent(name: str) -> None:
    config = load_config(WORKS[name] | {"total_timesteps": 10**8, "compile": "off"})
    with training_envs(config, None) as envs:
        loop = build_loop(config, envs, Spaces(envs.single_observation_space, envs.single_action_space))
        while not (first := loop.round()).results:  # type: ignore[union-attr]
            pass
        result, collector = first.results[0], loop.collector  # type: ignore[union-attr]
        step = collector.step()
        steps, updates, started = loop.env_steps, loop.learner.updates, time.process_time()
        while time.process_time() - started < SECONDS:
            loop.round()
        spent = time.process_time() - started
        vector_steps = (loop.env_steps - steps) / collector.num_envs
        rewards, obs, actions = step.rewards, step.next_obs, step.actions

        def look() -> None:
            if collector._box_actions:
                math.isfinite(np.vdot(actions, actions))
            math.isfinite(np.vdot(rewards, rewards) + np.vdot(obs, obs))

        looking = vector_steps * cost_of(look)
        looking += (loop.learner.updates - updates) * cost_of(lambda: check_update(result, None, loop.learner))
    record_figure(7, f"{name}: share of time spent on NaN and infinity checks", 100 * looking / spent, "<= 1 %")
