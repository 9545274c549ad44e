"""Small runs of every algorithm, and how to compare two runs bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.config.algorithm_table import ALGORITHMS, get_algorithm, get_config_class
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import Progress
from rl_training.storage.checkpoints import latest_checkpoint, load_checkpoint, read_segment, replay_directory
from rl_training.storage.state_tree import state_hash
from rl_training.telemetry.recorder import read_metrics, without_wall_clock


class TwoKnobs(gym.Env[Any, Any]):
    """MultiDiscrete actions; observations wander at random, and episodes end both ways."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = gym.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        reward = float(action[0]) - float(action[1]) + self.np_random.random()
        return self._look(), reward, self.np_random.random() < 0.1, self.elapsed == 12, {}

    def _look(self) -> np.ndarray:
        return self.np_random.normal(size=2).astype(np.float32)


@dataclass(frozen=True)
class Case:
    algo: str
    env_id: str = "CartPole-v1"
    steps: int = 160
    num_envs: int = 1
    model: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    env: Callable[[], gym.Env[Any, Any]] | None = None

    def config(self, output_dir: Path, **changes: Any) -> TrainConfig:
        """A run of `steps` env steps with a checkpoint, a barrier, after each quarter."""
        base = {
            "algo": self.algo,
            "env_id": self.env_id,
            "seed": 3,
            "num_envs": self.num_envs,
            "total_timesteps": self.steps,
            "output_dir": str(output_dir),
            "run_name": "run",
            "log_every": self.steps // 8,
            "checkpoint_every": self.steps // 4,
            "keep_checkpoints": 9,
            "eval_episodes": 1,
            "model": {"hidden_sizes": (8,), **self.model},
            "algo_kwargs": self.settings,
        }
        return load_config(base | self.options, changes)


REPLAY = {"learning_starts": 20, "batch_size": 8, "buffer_size": 500}
PRIORITIES = {"prioritized": True, "n_step": 3, "importance_exponent": {"start": 0.4, "end": 1.0}}
ROLLOUT = {"num_steps": 10, "minibatch_size": 8, "update_epochs": 2}
NORMALIZED = {"normalize_observations": True}
NATIVE = {"vector_backend": "native"}

# Eight rollouts in cycles of three: every checkpoint but one is in the middle of a cycle.
PHASES = {"policy_phases": 3, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 16}

# Small images and short games. Sticky actions and idle frames: the emulator's own random numbers must be restored too.
ATARI = {"image_size": 36, "max_frames": 160, "sticky_actions": 0.25, "episodic_life": True}
PIXELS = {"hidden_sizes": (), "encoder_size": 16}
# Sequences are shorter than rollouts, and episodes than both: memory is carried, cut and emptied.
MEMORY = {"sequence_length": 4, "memory_size": 6}

# Windows are shorter than most episodes, and burn-ins differ.
WINDOWS = {"sequence_length": 7, "burn_in": 3, "memory_size": 6, "n_step": 2}

CASES: dict[str, Case] = {
    "ppo, native next-step envs": Case("ppo", num_envs=2, settings=ROLLOUT, options={**NATIVE, "eval_every": 40}),
    "ppo, box, everything normalized and scheduled": Case(
        "ppo",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={
            **ROLLOUT,
            "normalize_rewards": True,
            "learning_rate": {"start": 1e-2, "end": 0.0},
            "entropy_coef": {"start": 0.1, "end": 0.0},
            "clip_range": {"start": 0.3, "end": 0.1},
        },
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "ppo, envs in processes": Case("ppo", num_envs=2, settings=ROLLOUT, options={"vector_backend": "async"}),
    "ppo, several knobs": Case("ppo", "callable:TwoKnobs", num_envs=3, settings=ROLLOUT, env=TwoKnobs),
    "a2c, one env": Case("a2c", settings={"num_steps": 5}, options={"vector_backend": "sync"}),
    "a2c, box, rewards normalized": Case(
        "a2c",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={"normalize_rewards": True, "optimizer": "adam"},
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "a3c, one env": Case("a3c", settings={"num_steps": 5}, options={"vector_backend": "sync"}),
    "a3c, box, rewards normalized": Case(
        "a3c",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={"normalize_rewards": True, "optimizer": "adam"},
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "impala, native next-step envs": Case(
        "impala", num_envs=2, settings={"num_steps": 8}, options={**NATIVE, "eval_every": 40}
    ),
    "impala, box, minibatches of envs": Case(
        "impala",
        "Pendulum-v1",
        num_envs=4,
        model=NORMALIZED,
        settings={"num_steps": 5, "num_minibatches": 2, "normalize_rewards": True, "optimizer": "adam"},
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "appo, minibatches of envs": Case("appo", num_envs=4, settings={"num_steps": 5, "num_minibatches": 2}),
    "appo, box, target policy": Case(
        "appo",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={
            "num_steps": 8,
            "target_update_every": 30,
            "kl_coef": 0.5,
            "update_epochs": 2,
            "normalize_rewards": True,
        },
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "trpo, native next-step envs": Case("trpo", num_envs=2, settings=ROLLOUT, options={**NATIVE, "eval_every": 40}),
    "trpo, box, everything normalized and scheduled": Case(
        "trpo",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={**ROLLOUT, "normalize_rewards": True, "max_kl": {"start": 0.1, "end": 0.0}, "entropy_coef": 0.01},
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "trpo, several knobs": Case("trpo", "callable:TwoKnobs", num_envs=3, settings=ROLLOUT, env=TwoKnobs),
    "ppg, native next-step envs": Case("ppg", num_envs=2, settings={**ROLLOUT, **PHASES}, options=NATIVE),
    "ppg, box, everything normalized and scheduled": Case(
        "ppg",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={
            **ROLLOUT,
            **PHASES,
            "normalize_rewards": True,
            "learning_rate": {"start": 1e-2, "end": 0.0},
            "auxiliary_learning_rate": {"start": 1e-2, "end": 0.0},
        },
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "recurrent_ppo, native next-step envs, velocities masked": Case(
        "recurrent_ppo",
        num_envs=2,
        settings={**ROLLOUT, **MEMORY},
        options={**NATIVE, "eval_every": 40, "env_kwargs": {"mask_velocity": True}},
    ),
    "recurrent_ppo, box, everything normalized and scheduled, shared memory": Case(
        "recurrent_ppo",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={
            **ROLLOUT,
            **MEMORY,
            "cell": "gru",
            "memory_layers": 2,
            "shared_memory": True,
            "normalize_rewards": True,
            "learning_rate": {"start": 1e-2, "end": 0.0},
            "clip_range": {"start": 0.3, "end": 0.1},
        },
        options={"env_kwargs": {"max_episode_steps": 15, "mask_velocity": True}},
    ),
    "recurrent_ppo, several knobs": Case(
        "recurrent_ppo", "callable:TwoKnobs", num_envs=3, settings={**ROLLOUT, **MEMORY}, env=TwoKnobs
    ),
    "dqn, one env, a buffer that overflows": Case(
        "dqn", settings={**REPLAY, "buffer_size": 50, "target_update_every": 30}, options={"eval_every": 40}
    ),
    "dqn, native next-step envs, priorities and three steps": Case(
        "dqn",
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "double": True, "dueling": True, "tau": 0.1, "train_frequency": 3},
        options=NATIVE,
    ),
    "dqn, priorities in a buffer that overflows": Case(
        "dqn", num_envs=3, settings={**REPLAY, **PRIORITIES, "buffer_size": 60}, options={"vector_backend": "sync"}
    ),
    "dqn, envs in processes, priorities and three steps": Case(
        "dqn", num_envs=2, settings={**REPLAY, **PRIORITIES}, options={"vector_backend": "async"}
    ),
    "apex_dqn, a buffer that overflows": Case(
        "apex_dqn", settings={**REPLAY, "buffer_size": 50, "target_update_every": 30}, options={"eval_every": 40}
    ),
    "apex_dqn, native next-step envs, normalized": Case(
        "apex_dqn",
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "ticket_steps": 3, "train_frequency": 3, "target_update_every": 30},
        options=NATIVE,
    ),
    "apex_d4pg, normalized": Case(
        "apex_d4pg",
        "Pendulum-v1",
        steps=100,
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "ticket_steps": 3},
    ),
    "apex_td3, normalized": Case(
        "apex_td3",
        "Pendulum-v1",
        steps=100,
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "ticket_steps": 3, "policy_delay": 3},
    ),
    "c51, a buffer that overflows": Case(
        "c51", settings={**REPLAY, "buffer_size": 50, "target_update_every": 30}, options={"eval_every": 40}
    ),
    "c51, native next-step envs, priorities and three steps": Case(
        "c51",
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "double": True, "dueling": True, "tau": 0.1, "train_frequency": 3},
        options=NATIVE,
    ),
    "pqn, native next-step envs": Case(
        "pqn",
        num_envs=2,
        model={"layer_norm": True},
        settings={"num_steps": 10, "minibatch_size": 8, "update_epochs": 2},
        options={**NATIVE, "eval_every": 40},
    ),
    "pqn, everything normalized and scheduled": Case(
        "pqn",
        num_envs=2,
        model=NORMALIZED,
        settings={"num_steps": 10, "minibatch_size": 8, "normalize_rewards": True}
        | {"learning_rate": {"start": 1e-2, "end": 0.0}},
        options={"env_kwargs": {"max_episode_steps": 15}, "vector_backend": "sync"},
    ),
    "iqn, a buffer that overflows, munchausen": Case(
        "iqn",
        settings={**REPLAY, "buffer_size": 50, "target_update_every": 30, "munchausen": True}
        | {"num_taus": 4, "num_target_taus": 4, "num_acting_taus": 4},
        options={"eval_every": 40},
    ),
    "iqn, native next-step envs, priorities and three steps": Case(
        "iqn",
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "double": True, "dueling": True, "tau": 0.1, "train_frequency": 3}
        | {"num_taus": 4, "num_target_taus": 4, "num_acting_taus": 4},
        options=NATIVE,
    ),
    "rainbow, a buffer that overflows": Case(
        "rainbow", settings={**REPLAY, "buffer_size": 50, "target_update_every": 30}, options={"eval_every": 40}
    ),
    "rainbow, native next-step envs, normalized": Case(
        "rainbow",
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "tau": 0.1, "train_frequency": 3},
        options=NATIVE,
    ),
    # Bases are renewed every third update, so every checkpoint but some is in the middle of a cycle.
    "acktr, native next-step envs": Case(
        "acktr", num_envs=2, settings={"num_steps": 10, "inverse_every": 3}, options={**NATIVE, "eval_every": 40}
    ),
    "acktr, box, everything normalized and scheduled": Case(
        "acktr",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={"num_steps": 10, "inverse_every": 3, "normalize_rewards": True}
        | {"learning_rate": {"start": 0.1, "end": 0.0}, "max_kl": {"start": 0.01, "end": 0.0}},
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "acer, native next-step envs, a buffer that overflows": Case(
        "acer",
        num_envs=2,
        settings={"num_steps": 10, "buffer_size": 50, "replay_starts": 20},
        options={**NATIVE, "eval_every": 40},
    ),
    "acer, everything normalized and scheduled": Case(
        "acer",
        num_envs=2,
        model=NORMALIZED,
        settings={"num_steps": 10, "replay_starts": 20, "normalize_rewards": True, "optimizer": "adam"}
        | {"learning_rate": {"start": 1e-2, "end": 0.0}, "entropy_coef": {"start": 0.1, "end": 0.0}},
        options={"env_kwargs": {"max_episode_steps": 15}, "vector_backend": "sync"},
    ),
    "r2d2, native next-step envs, velocities masked, a buffer that overflows": Case(
        "r2d2",
        num_envs=2,
        settings={**REPLAY, **WINDOWS, "buffer_size": 60, "target_update_every": 30, "train_frequency": 3}
        | {"prioritized": True},
        options={**NATIVE, "eval_every": 40, "env_kwargs": {"mask_velocity": True}},
    ),
    "r2d2, GRU, normalized, uniform": Case(
        "r2d2",
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **WINDOWS, "cell": "gru", "memory_layers": 2, "prioritized": False, "tau": 0.1},
        options={"vector_backend": "sync"},
    ),
    "sac, bfloat16": Case(
        "sac",
        "Pendulum-v1",
        model={"hidden_sizes": (128, 128)},
        settings=REPLAY,
        options={"precision": "bfloat16", "env_kwargs": {"max_episode_steps": 15}},
    ),
    "dqn, munchausen": Case("dqn", num_envs=2, settings={**REPLAY, "munchausen": True, "target_update_every": 30}),
    "qr_dqn, a buffer that overflows": Case(
        "qr_dqn",
        settings={**REPLAY, "num_quantiles": 5, "buffer_size": 50, "target_update_every": 30},
        options={"eval_every": 40},
    ),
    "qr_dqn, native next-step envs, priorities and three steps": Case(
        "qr_dqn",
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "double": True, "dueling": True, "tau": 0.1, "train_frequency": 3},
        options=NATIVE,
    ),
    "ddpg, correlated noise": Case(
        "ddpg",
        "Pendulum-v1",
        num_envs=2,
        settings={**REPLAY, "noise_type": "ou", "train_frequency": 3},
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "ddpg, priorities and three steps": Case(
        "ddpg", "Pendulum-v1", steps=100, model=NORMALIZED, settings={**REPLAY, **PRIORITIES}
    ),
    "d4pg, correlated noise": Case(
        "d4pg",
        "Pendulum-v1",
        num_envs=2,
        settings={**REPLAY, "noise_type": "ou", "train_frequency": 3},
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "d4pg, priorities and three steps": Case(
        "d4pg", "Pendulum-v1", steps=100, model=NORMALIZED, settings={**REPLAY, **PRIORITIES}
    ),
    "td3, priorities and three steps": Case(
        "td3", "Pendulum-v1", model=NORMALIZED, settings={**REPLAY, **PRIORITIES, "policy_delay": 3}
    ),
    "sac, learned temperature": Case(
        "sac", "Pendulum-v1", steps=100, num_envs=2, settings={**REPLAY, "gradient_steps": -1}
    ),
    "sac, fixed temperature, priorities": Case(
        "sac", "Pendulum-v1", steps=100, model=NORMALIZED, settings={**REPLAY, **PRIORITIES, "temperature": 0.2}
    ),
    "sac, residual blocks in the critic, weight decay": Case(
        "sac",
        "Pendulum-v1",
        model={"activation": "elu", "layer_norm": True, "critic": {"blocks": "simba", "layer_norm": False}},
        settings={**REPLAY, "weight_decay": 0.01},
    ),
    "sac, state-dependent noise": Case(
        "sac",
        "Pendulum-v1",
        steps=100,
        num_envs=2,
        settings={**REPLAY, "state_dependent_noise": True, "noise_interval": 7},
    ),
    "ppo, state-dependent noise": Case(
        "ppo",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={**ROLLOUT, "state_dependent_noise": True, "noise_interval": 7},
    ),
    "ppo, novelty": Case("ppo", num_envs=2, settings={**ROLLOUT, "novelty_coef": 1.0}),
    "a2c, novelty, native next-step envs": Case(
        "a2c", num_envs=2, model=NORMALIZED, settings={"num_steps": 10, "novelty_coef": 1.0}, options=NATIVE
    ),
    "tqc, priorities and three steps": Case(
        "tqc",
        "Pendulum-v1",
        steps=100,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "num_critics": 3, "num_quantiles": 4, "dropped_quantiles": 1},
    ),
    "td7, trials of two envs, a buffer that overflows": Case(
        "td7",
        "Pendulum-v1",
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, "prioritized": True, "buffer_size": 60, "embedding_size": 5, "copy_every": 7}
        | {"priority_refresh": 5}
        | {"trial_episodes": 1, "late_trial_episodes": 2, "late_trials_after": 30, "noise_type": "ou"},
        options={"env_kwargs": {"max_episode_steps": 9}, "eval_every": 40},
    ),
    "crossq, renormalized, priorities": Case(
        "crossq",
        "Pendulum-v1",
        steps=100,
        num_envs=2,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "renorm_after": 20},
    ),
    "redq, several updates per step": Case(
        "redq",
        "Pendulum-v1",
        steps=100,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "num_critics": 3, "gradient_steps": 2, "policy_delay": 4},
    ),
    "droq, several updates per step": Case(
        "droq",
        "Pendulum-v1",
        steps=100,
        model=NORMALIZED,
        settings={**REPLAY, **PRIORITIES, "dropout": 0.5, "gradient_steps": 2, "policy_delay": 4},
    ),
    "ppo, atari, whitened": Case(
        "ppo",
        "ALE/Breakout-v5",
        num_envs=2,
        model={**PIXELS, **NORMALIZED},
        settings={**ROLLOUT, "reward_clip": 1.0},
        options={"env_kwargs": {"atari": ATARI}, "eval_every": 80},
    ),
    "dqn, atari": Case(
        "dqn",
        "ALE/Breakout-v5",
        num_envs=2,
        model=PIXELS,
        settings={**REPLAY, "train_frequency": 4, "reward_clip": 1.0},
        options={"env_kwargs": {"atari": ATARI}},
    ),
    "dqn, atari, whitened, priorities and three steps in a buffer that overflows": Case(
        "dqn",
        "ALE/Pong-v5",
        model={**PIXELS, **NORMALIZED},
        settings={**REPLAY, **PRIORITIES, "train_frequency": 4, "buffer_size": 60, "double": True, "dueling": True},
        options={"env_kwargs": {"atari": {**ATARI, "color": True, "stack": 2}}},
    ),
    "naf, correlated noise": Case(
        "naf",
        "Pendulum-v1",
        num_envs=2,
        settings={**REPLAY, "noise_type": "ou", "train_frequency": 3},
        options={"env_kwargs": {"max_episode_steps": 15}},
    ),
    "naf, noise shaped by the precision, priorities and three steps": Case(
        "naf", "Pendulum-v1", steps=100, model=NORMALIZED, settings={**REPLAY, **PRIORITIES, "noise_type": "precision"}
    ),
    "mpo, two envs, pulled back inside": Case(
        "mpo", "Pendulum-v1", steps=100, num_envs=2, settings={**REPLAY, "num_action_samples": 4, "penalty_kl": 1e-3}
    ),
    "mpo, priorities and three steps": Case(
        "mpo", "Pendulum-v1", steps=100, model=NORMALIZED, settings={**REPLAY, **PRIORITIES, "num_action_samples": 4}
    ),
}


def usual_cases(algo: str) -> dict[str, Case]:
    """Cases for an algorithm that has none above: one for each kind of action, with everything it can be given."""
    fields, row = get_config_class(algo).model_fields, get_algorithm(algo)
    offered = {**REPLAY, **PRIORITIES} if row.loop == "replay" else {**ROLLOUT, "normalize_rewards": True}
    settings = {name: value for name, value in offered.items() if name in fields}
    envs = {"discrete": "CartPole-v1", "box": "Pendulum-v1"}
    return {
        f"{algo}, {kind}": Case(algo, envs[kind], steps=100, num_envs=2, model=NORMALIZED, settings=settings)
        for kind in row.actions
        if kind in envs
    }


for _algo in set(ALGORITHMS) - {case.algo for case in CASES.values()}:
    CASES |= usual_cases(_algo)


def stop_at(env_steps: int) -> Callable[[Progress], bool]:
    """A callback that ends the run at the first round that reaches `env_steps`."""
    return lambda progress: progress.env_steps < env_steps


def saved_state(checkpoint: Path) -> dict[str, Any]:
    """All that a checkpoint holds, replay rows included, but for the one entry that wall-clock text can move."""
    loaded = load_checkpoint(checkpoint)
    state = {name: value for name, value in loaded.state.items() if name != "metrics_offset"}
    if loaded.segments:
        buffer = state["loop"]["buffer"]
        for shard in sorted({ref.shard for ref in loaded.segments}):
            mine = [ref for ref in loaded.segments if ref.shard == shard]
            parts = [read_segment(replay_directory(checkpoint), ref) for ref in mine]
            rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            # Where segments begin and end, and rows that are long overwritten, are no part of the state.
            ring = buffer["shards"][str(shard)] if "shards" in buffer else buffer
            held = min(len(rows["rewards"]), ring["capacity"] // ring["num_envs"])
            key = f"rows of shard {shard}" if shard else "rows"
            state[key] = {name: array[-held:] for name, array in rows.items()}
    state["manifest"] = {"env_steps": loaded.env_steps, "number": loaded.number, "exact": loaded.exact}
    return state


def final_hash(run_dir: Path) -> str:
    return state_hash(saved_state(latest_checkpoint(run_dir).path))


def metric_lines(run_dir: Path) -> list[dict[str, Any]]:
    return [without_wall_clock(line) for line in read_metrics(run_dir)]


def different_parts(left: Any, right: Any, place: str = "state") -> Iterator[str]:
    """Where two saved states differ, such as `state/learner/updates`."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted(left.keys() | right.keys(), key=str):
            yield from different_parts(left.get(name), right.get(name), f"{place}/{name}")
    elif state_hash(left) != state_hash(right):
        yield place


def assert_same_run(left: Path, right: Path) -> None:
    """Equal in every bit of the last checkpoint and in every metric that is not a time."""
    for ours, theirs in zip(metric_lines(left), metric_lines(right), strict=True):
        assert ours == theirs
    states = [saved_state(latest_checkpoint(run_dir).path) for run_dir in (left, right)]
    assert state_hash(states[0]) == state_hash(states[1]), list(different_parts(*states))
