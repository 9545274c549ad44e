"""Score hindsight replay beside Stable-Baselines3's, with equal settings, in one sitting.

    .venv-bench/bin/python benchmarks/goals.py                       # flip, control and reach: five seeds of both sides
    .venv-bench/bin/python benchmarks/goals.py reach --side ours --seeds 0,1
    .venv-bench/bin/python benchmarks/goals.py push --seeds 0,1,2    # long: 300,000 steps

Run it in the virtual environment of `make bench-setup`, with `pip install -e ".[robotics]"` for reach and push. The
score is the share of 100 deterministic episodes that end with success, episode i reset with seed 10000 + i. Floor and
bar: flip .8 and .95, control below .1, reach .9 and .98, push .5 and .8. The table is in docs/masks-and-goals.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED, SCORE_EPISODES
from rl_training.envs.task_probes import BitFlipProbe

SHARE = 0.8  # four of five sampled transitions get another goal, as n_sampled_goal=4 says it


@dataclass(frozen=True)
class Row:
    """A task and the settings of both sides. `common` has the same name on both."""

    algorithm: str
    env: Callable[[], gym.Env[Any, Any]]
    steps: int
    hidden_sizes: tuple[int, ...]
    common: dict[str, Any]
    ours: dict[str, Any]
    peers: dict[str, Any] = field(default_factory=dict)
    hindsight: bool = True


def robot(name: str) -> Callable[[], gym.Env[Any, Any]]:
    def make() -> gym.Env[Any, Any]:
        import gymnasium_robotics

        gym.register_envs(gymnasium_robotics)
        return gym.make(name)

    return make


def flip(hindsight: bool) -> Row:
    return Row(
        "DQN",
        lambda: BitFlipProbe(15),
        60_000,
        (256,),
        {"gamma": 0.98, "learning_starts": 1000, "batch_size": 128, "tau": 0.02, "buffer_size": 60_000},
        {"learning_rate": 1e-3, "train_frequency": 2, "exploration": 0.1},
        {
            "learning_rate": 1e-3,
            "train_freq": 2,
            "exploration_initial_eps": 0.1,
            "exploration_final_eps": 0.1,
            "target_update_interval": 2,
        },
        hindsight,
    )


REACH = {"gamma": 0.95, "learning_starts": 1000, "batch_size": 128, "tau": 0.05, "buffer_size": 20_000}
PUSH = {"gamma": 0.95, "learning_starts": 1000, "batch_size": 256, "tau": 0.05, "buffer_size": 300_000}
RATES = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
ROWS = {
    "flip": flip(hindsight=True),
    "control": flip(hindsight=False),
    "reach": Row("SAC", robot("FetchReach-v4"), 20_000, (64, 64), REACH, RATES, {"learning_rate": 1e-3}),
    "push": Row(
        "TQC",
        robot("FetchPush-v4"),
        300_000,
        (256, 256),
        PUSH,
        RATES | {"train_frequency": 4, "num_envs": 4},
        {"learning_rate": 1e-3, "train_freq": 4},
    ),
}


def ours(row: Row, seed: int, steps: int) -> float:
    import rl_training

    with tempfile.TemporaryDirectory() as folder:
        agent = getattr(rl_training, row.algorithm)(
            row.env,
            seed=seed,
            output_dir=folder,
            total_timesteps=steps,
            hidden_sizes=row.hidden_sizes,
            activation="relu",
            normalize_observations=row.algorithm != "DQN",
            hindsight=SHARE if row.hindsight else 0.0,
            **row.common,
            **row.ours,
        )
        agent.learn(steps, show=False)
        return float(agent.evaluate(episodes=SCORE_EPISODES).info_means["info_is_success"])


def peers(row: Row, seed: int, steps: int) -> float:
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.her import HerReplayBuffer

    replay: dict[str, Any] = {}
    if row.hindsight:
        replay = {"replay_buffer_class": HerReplayBuffer}
        replay["replay_buffer_kwargs"] = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
    algorithm = getattr(stable_baselines3, row.algorithm, None) or getattr(sb3_contrib, row.algorithm)
    model = algorithm(
        "MultiInputPolicy",
        row.env(),
        seed=seed,
        device="cpu",
        policy_kwargs={"net_arch": list(row.hidden_sizes)},
        **row.common,
        **row.peers,
        **replay,
    )
    model.learn(steps)
    env, successes = row.env(), 0.0
    for episode in range(SCORE_EPISODES):
        observation, _ = env.reset(seed=FIRST_EVAL_SEED + episode)
        done, info = False, {}
        while not done:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, terminated, truncated, info = env.step(action)
            done = terminated or truncated
        successes += float(info["is_success"])
    return successes / SCORE_EPISODES


SIDES = {"ours": ours, "peer": peers}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", default=["flip", "control", "reach"], metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--side", choices=SIDES, help="default: both")
    parser.add_argument("--steps", type=int, help="default: the budget of the row")
    arguments = parser.parse_args()
    for name in arguments.rows:
        row = ROWS[name]
        steps = arguments.steps or row.steps
        for side in [arguments.side] if arguments.side else SIDES:
            for seed in arguments.seeds.split(","):
                started = time.process_time()
                score = SIDES[side](row, int(seed), steps)
                cost = f"{time.process_time() - started:.0f} s of processor time"
                print(f"{name}, {side}, seed {seed}: success {score:.2f} after {steps:,} steps; {cost}", flush=True)


if __name__ == "__main__":
    main()
