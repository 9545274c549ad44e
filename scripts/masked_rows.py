"""Score every algorithm with discrete actions on ForbiddenActionsProbe, and count the forbidden actions it takes.

    python scripts/masked_rows.py                       # five seeds of each row, 5,000 steps
    python scripts/masked_rows.py ppo dqn --seeds 0,1   # some of them
    python scripts/masked_rows.py --count 100000        # forbidden actions in so many steps of training, seed 0

The table is in docs/masks-and-goals.md. The floor is 85 of 100 and the bar 90. PPO without the mask must stay below 45.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import rl_training
from rl_training.envs.task_probes import ForbiddenActionsProbe

STEPS, EPISODES = 5000, 20
ROLLOUT = {"gamma": 0.4, "num_envs": 4, "num_steps": 64}
EPOCHS = {**ROLLOUT, "minibatch_size": 64, "update_epochs": 10, "learning_rate": 2e-3}
SHORT = {**ROLLOUT, "num_steps": 8, "optimizer": "adam", "learning_rate": 5e-3}
# An observation comes 71 times in 5,000 steps, and 1 of 15 allowed actions pays. If epsilon fell to 0 early, an eighth
# of all observations would never show theirs: 14/15 to the power of the random visits.
EXPLORATION = {"start": 1.0, "end": 0.5}
REPLAY = {"gamma": 0.01, "num_envs": 4, "learning_starts": 200, "batch_size": 128, "train_frequency": 4}
REPLAY |= {"gradient_steps": 8, "exploration": EXPLORATION, "tau": 0.05, "learning_rate": 5e-3, "prioritized": True}
WINDOWS = {"n_step": 1, "sequence_length": 4, "burn_in": 0, "rescaling": None, "learning_rate": 1e-3}
SUPPORT = {"support_low": 0.0, "support_high": 1.0, "num_atoms": 5}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("PPO", EPOCHS),
    "a2c": ("A2C", SHORT),
    "trpo": ("TRPO", {**ROLLOUT, "max_kl": 0.05}),
    "ppg": ("PPG", {**EPOCHS, "policy_phases": 4}),
    "impala": ("IMPALA", SHORT),
    "appo": ("APPO", {**ROLLOUT, "num_steps": 16, "learning_rate": 3e-3, "update_epochs": 8}),
    "dqn": ("DQN", REPLAY),
    "c51": ("C51", {**REPLAY, **SUPPORT}),
    "qr_dqn": ("QRDQN", {**REPLAY, "num_quantiles": 11}),
    "iqn": ("IQN", {**REPLAY, "num_taus": 8, "num_target_taus": 8, "num_acting_taus": 8, "num_cosines": 8}),
    "rainbow": ("Rainbow", {**REPLAY, **SUPPORT, "n_step": 1, "exploration": 0.0}),
    "apex_dqn": ("ApexDQN", {**REPLAY, "n_step": 1, "runtime": {"actors": 2, "backend": "inline"}}),
    "r2d2": ("R2D2", {**REPLAY, **WINDOWS}),
    "pqn": ("PQN", {**EPOCHS, "exploration": EXPLORATION, "q_lambda": 0.0}),
    "acer": ("ACER", {**ROLLOUT, "num_steps": 4, "optimizer": "adam", "learning_rate": 2e-3, "entropy_coef": 0.0}),
    "acktr": ("ACKTR", {**ROLLOUT, "num_steps": 64, "max_kl": 0.03}),
    "a3c": ("A3C", {**SHORT, "runtime": {"actors": 2, "backend": "inline"}}),
    "recurrent_ppo": ("RecurrentPPO", EPOCHS),
    "ppo without the mask": ("PPO", {**EPOCHS, "env_kwargs": {"action_masks": "off"}}),
}
# For counting: many envs and few updates, so that acting takes most of the time.
MANY_ROLLOUTS = {"num_envs": 50, "num_steps": 40}
MANY_STEPS = {"num_envs": 50, "train_frequency": 500, "gradient_steps": 1}
MADE: list[ForbiddenActionsProbe] = []


def make(**options: Any) -> ForbiddenActionsProbe:
    MADE.append(ForbiddenActionsProbe(**options))
    return MADE[-1]


@contextmanager
def counted() -> Iterator[list[int]]:
    """The forbidden actions that all envs of a run took, those of evaluation too."""
    MADE.clear()
    count: list[int] = []
    yield count
    count.append(sum(env.invalid_actions for env in MADE))


def run(name: str, seed: int, steps: int, episodes: int, changes: Mapping[str, Any] | None = None) -> tuple[float, int]:
    class_name, settings = ROWS[name]
    with tempfile.TemporaryDirectory() as folder, counted() as count:
        options = {
            **settings,
            **(changes or {}),
            "vector_backend": "sync",
            "output_dir": folder,
            "total_timesteps": steps,
        }
        agent = getattr(rl_training, class_name)(make, seed=seed, **options)
        agent.learn(steps)
        score = agent.evaluate(episodes=episodes).mean_return
    return score, count[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW", help="default: all")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--count", type=int, help="steps of training in which to count forbidden actions")
    arguments = parser.parse_args()
    for name in arguments.rows:
        started = time.process_time()
        if arguments.count:
            many = MANY_STEPS if "train_frequency" in ROWS[name][1] else MANY_ROLLOUTS
            _, forbidden = run(name, 0, arguments.count, 1, many)
            print(f"{name}: {forbidden} forbidden actions in {arguments.count:,} steps", flush=True)
            continue
        results = [run(name, int(seed), STEPS, EPISODES) for seed in arguments.seeds.split(",")]
        listed = ", ".join(f"{score:.1f}" for score, _ in results)
        total = sum(forbidden for _, forbidden in results)
        cost = f"{(time.process_time() - started) / len(results):.0f} s of processor time each"
        print(f"{name}: {listed}; {total} forbidden actions; {cost}", flush=True)


if __name__ == "__main__":
    main()
