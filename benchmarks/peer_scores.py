"""Score Stable-Baselines3 and sb3-contrib with the settings of rl-baselines3-zoo, by the rule of our benchmark.

    .venv-bench/bin/python benchmarks/peer_scores.py a2c-lunarlander --seeds 5

Published scores are for older envs; this measures the peer on current ones: the last model of each seed, 100
deterministic episodes, episode i reset with seed 10000 + i. Run it in the virtual environment of `make bench-setup`.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED, SCORE_EPISODES


def linear(rate: float) -> Any:
    """Linear decay to zero over the run, like `lin_` in rl-baselines3-zoo."""
    return lambda remaining: remaining * rate


@dataclass(frozen=True)
class Peer:
    """Settings from hyperparams/*.yml of rl-baselines3-zoo, for LunarLander-v3."""

    algorithm: str
    num_envs: int
    steps: int
    settings: dict[str, Any]
    continuous: bool = False
    normalized: bool = False


LONG_HORIZON = {"gae_lambda": 0.98, "gamma": 0.999}
RUNS = {
    "a2c-lunarlander": Peer(
        "A2C", 8, 200_000, {"gamma": 0.995, "learning_rate": linear(8.3e-4), "n_steps": 5, "ent_coef": 1e-5}
    ),
    "trpo-lunarlander": Peer(
        "TRPO", 2, 200_000, {"n_steps": 512, "cg_damping": 0.01, "gae_lambda": 0.98, "n_critic_updates": 15}
    ),
    "trpo-lunarlander_continuous": Peer(
        "TRPO", 2, 200_000, {"n_steps": 1024, "n_critic_updates": 20}, continuous=True, normalized=True
    ),
    "ppo-lunarlander_continuous": Peer(
        "PPO",
        16,
        1_000_000,
        LONG_HORIZON | {"n_steps": 1024, "batch_size": 64, "n_epochs": 4, "ent_coef": 0.01},
        continuous=True,
    ),
}


def score(name: str, seed: int) -> float:
    peer = RUNS[name]
    env_kwargs = {"continuous": peer.continuous}
    envs: Any = make_vec_env("LunarLander-v3", n_envs=peer.num_envs, seed=seed, env_kwargs=env_kwargs)
    if peer.normalized:
        envs = VecNormalize(envs)
    algorithm = getattr(stable_baselines3, peer.algorithm, None) or getattr(sb3_contrib, peer.algorithm)
    model = algorithm("MlpPolicy", envs, seed=seed, device="cpu", **peer.settings)
    model.learn(peer.steps)
    env, returns = gym.make("LunarLander-v3", **env_kwargs), []
    for episode in range(SCORE_EPISODES):
        observation, _ = env.reset(seed=FIRST_EVAL_SEED + episode)
        total, done = 0.0, False
        while not done:
            policy_input = envs.normalize_obs(observation) if peer.normalized else observation
            action, _ = model.predict(policy_input, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    return statistics.mean(returns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RUNS)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    scores = []
    for seed in range(arguments.seeds):
        scores.append(score(arguments.name, seed))
        print(f"{arguments.name} seed {seed}: {scores[-1]:.1f}", flush=True)
    print(f"{arguments.name}: median {statistics.median(scores):.1f}, {min(scores):.1f} .. {max(scores):.1f}")


if __name__ == "__main__":
    main()
