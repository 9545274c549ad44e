"""Runs that are sick on purpose, and the one rule that each of them must fire.

python tests/support/sick_runs.py FOLDER [NAME ...]     train them and print what they fire
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

STREAMS = Path(__file__).resolve().parent.parent / "fixtures" / "sick_streams"


class ChangingEnv(gym.Env[Any, Any]):
    """Pays for the action that equals the sign of the observation; after `changes_at` steps, for the other one."""

    def __init__(self, changes_at: int | None = None) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.changes_at, self.steps, self.length = changes_at, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = 0
        return self._observe(), {}

    def _observe(self) -> Any:
        self.state = float(self.np_random.choice([-1.0, 1.0]))
        return np.array([self.state], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.length += 1
        right = (self.state > 0) == bool(action)
        changed = self.changes_at is not None and self.steps > self.changes_at
        return self._observe(), float(right != changed), self.length == 10, False, {}


@dataclass(frozen=True)
class SickRun:
    """A preset with settings, or envs of its own, that make it sick."""

    rule: str
    preset: str
    settings: dict[str, Any] = field(default_factory=dict)
    env: Any = None
    eval_env: Any = None

    def train(self, folder: Path | str, name: str, **more: Any) -> Any:
        import rl_training

        place = {"output_dir": str(folder), "run_name": name, "threads": 1, "compile": "off"}
        config = rl_training.load_config(self.preset, self.settings | more | place)
        envs = {key: make for key, make in (("env", self.env), ("eval_env", self.eval_env)) if make is not None}
        return rl_training.train(config, show=False, **envs)


def _settings(**settings: Any) -> dict[str, Any]:
    return {f"algo_kwargs.{name}": value for name, value in settings.items()}


def _endless() -> Any:
    from endless_env import EndlessEnv

    return EndlessEnv()


PPO = {"total_timesteps": 20_000, "eval_every": 0, "eval_episodes": 5, "checkpoint_every": 0}
DQN = PPO | {"total_timesteps": 4_000, "log_every": 200}
ONE_ENV = {"num_envs": 1, "model.hidden_sizes": [32, 32]}

SICK: dict[str, SickRun] = {
    "ppo_rate_1": SickRun("steps_too_large", "ppo/cartpole", PPO | _settings(learning_rate=1.0)),
    "ppo_rate_0.05": SickRun("steps_too_large", "ppo/cartpole", PPO | _settings(learning_rate=0.05)),
    "ppo_rate_1e-7": SickRun("policy_stands_still", "ppo/cartpole", PPO | _settings(learning_rate=1e-7)),
    "a2c_rate_0.1": SickRun("entropy_gone", "a2c/cartpole", PPO | _settings(optimizer="adam", learning_rate=0.1)),
    "ppo_no_critic": SickRun("value_learns_nothing", "ppo/cartpole", PPO | _settings(value_coef=0)),
    "ppo_rewards_1000": SickRun("gradients_too_long", "ppo/cartpole", PPO | _settings(reward_scale=1000)),
    "dqn_no_target": SickRun(
        "q_beyond_reach",
        "dqn/cartpole",
        DQN
        | _settings(target_update_every=1, gamma=1.0, reward_scale=1, double=False)
        | _settings(gradient_steps=4, learning_rate=0.01),
    ),
    "dqn_rate_1": SickRun("dead_units", "dqn/cartpole", DQN | _settings(learning_rate=1.0)),
    "dqn_small_store": SickRun("replay_starved", "dqn/cartpole", DQN | _settings(buffer_size=128, batch_size=64)),
    "dqn_many_updates": SickRun(
        "replay_starved",
        "dqn/cartpole",
        DQN
        | {"total_timesteps": 200, "log_every": 10}
        | _settings(learning_starts=100, train_frequency=1, gradient_steps=12),
    ),
    "ppo_endless": SickRun(
        "episodes_never_end",
        "ppo/cartpole",
        PPO | ONE_ENV | {"total_timesteps": 24_000, "eval_max_steps": 100} | _settings(num_steps=256),
        env=_endless,
    ),
    "c51_narrow": SickRun("support_too_narrow", "c51/cartpole", DQN | _settings(support_high=5)),
    "ppo_clipped": SickRun("rewards_clipped", "ppo/pendulum", PPO | _settings(reward_clip=0.1)),
    "ppo_changing": SickRun(
        "fell_from_peak",
        "ppo/cartpole",
        PPO
        | ONE_ENV
        | {"total_timesteps": 12_000, "eval_every": 1_000, "eval_episodes": 10}
        | _settings(num_steps=256, entropy_coef=0.1, learning_rate=3e-4),
        env=lambda: ChangingEnv(5_000),
        eval_env=lambda: ChangingEnv(),
    ),
}


def record(run_dir: Path, target: Path) -> None:
    """Keep the config and the stream of a run as a fixture, without wall-clock values."""
    from rl_training.config.loading import load_config
    from rl_training.diagnosis.stream_summary import WATCHED
    from rl_training.telemetry.metric_lines import WALL_CLOCK_FIELDS, read_metrics

    kept = {*WATCHED, "kind", "env_steps", "updates", "episodes", "eval_mean_return", "eval_std_return"}
    config = load_config(run_dir / "config.yaml").model_dump(mode="json")
    lines = [
        {name: value for name, value in line.items() if name in kept - WALL_CLOCK_FIELDS}
        for line in read_metrics(run_dir)
    ]
    rows = [json.dumps(config | {"output_dir": "runs"}), *map(json.dumps, lines)]
    target.write_text("\n".join(rows) + "\n", encoding="utf-8")


def recorded(path: Path) -> tuple[Any, list[dict[str, Any]]]:
    """The config and the lines of a fixture."""
    from rl_training.config.train_config import TrainConfig

    first, *rest = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return TrainConfig.model_validate(first), rest


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(SICK)
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True)
        result = SICK[name].train(folder, name)
        found = [finding.rule for finding in result.findings if finding.exact]
        record(folder / name, STREAMS / f"{name}.jsonl")
        print(f"{name}: expected {SICK[name].rule}, found {found}, {result.wall_seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
