"""What the on-policy and model tests share: small spaces and learners, random rollouts, slow formulas, oracles."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.algorithms.common.streams import Streams
from rl_training.config.train_config import ModelConfig, TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.experiment.registry import get_spec

ORACLES = Path(__file__).resolve().parent.parent / "fixtures" / "oracles"
OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
SPACES = {
    "discrete": Spaces(OBSERVATIONS, gym.spaces.Discrete(4)),
    "multi_discrete": Spaces(OBSERVATIONS, gym.spaces.MultiDiscrete([3, 2, 4])),
    "multi_binary": Spaces(OBSERVATIONS, gym.spaces.MultiBinary(3)),
    # Unequal bounds off zero: nothing on the policy's scale may depend on them.
    "box": Spaces(OBSERVATIONS, gym.spaces.Box(np.float32([0.0, -2.0]), np.float32([3.0, 2.0]))),
}


def oracle_cases(name: str, source: str = "") -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(inputs, outputs) that scripts/record_oracles.py recorded, with lists of numbers as arrays."""

    def arrays(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: arrays(part) for key, part in value.items()}
        return np.array(value) if isinstance(value, list) and key_is_numeric(value) else value

    def key_is_numeric(value: list[Any]) -> bool:
        try:
            return np.array(value).dtype.kind in "bif"
        except ValueError:
            return False

    cases = json.loads((ORACLES / f"{name}.json").read_text())["cases"]
    found = [(arrays(c["inputs"]), arrays(c["outputs"])) for c in cases if source in c["source"]]
    assert found, f"no case of {name} comes from {source}"
    return found


def model_config(**settings: Any) -> ModelConfig:
    return ModelConfig(**{"hidden_sizes": (8, 8), **settings})


def make_learner(
    algo: str,
    spaces: Spaces | str = "discrete",
    *,
    num_envs: int = 2,
    total_timesteps: int = 1000,
    seed: int = 0,
    model: dict[str, Any] | None = None,
    **algo_kwargs: Any,
) -> Any:
    config = TrainConfig.model_validate(
        {
            "algo": algo,
            "env_id": "Probe-v0",
            "num_envs": num_envs,
            "total_timesteps": total_timesteps,
            "seed": seed,
            "model": {"hidden_sizes": (8, 8)} | (model or {}),
            "algo_kwargs": algo_kwargs,
        }
    )
    spaces = SPACES[spaces] if isinstance(spaces, str) else spaces
    return get_spec(algo).learner(spaces, config, Streams(seed))


def make_rollout(learner: Any, num_steps: int, seed: int, *, next_step_resets: bool = False) -> Rollout:
    """Random observations, rewards and ends, with the learner's own actions.

    With `next_step_resets` the row after an end is no transition, as next-step autoreset has it.
    """
    rng = np.random.default_rng(seed)
    shape = (num_steps, learner.num_envs)
    width = learner.spaces.observation_shape[0]
    ends = rng.random(shape) < 0.3
    valid = np.ones(shape, bool)
    if next_step_resets:
        for t in range(1, num_steps):
            valid[t] = ~ends[t - 1]
            ends[t] &= valid[t]
    truncated = ends & (rng.random(shape) < 0.5)
    starts = np.zeros(shape, bool)
    starts[0] = True
    starts[1:] = ~valid[:-1] if next_step_resets else ends[:-1]
    obs = rng.standard_normal((*shape, width)).astype(np.float32) * 2 + 1
    chosen: list[Any] = []
    for row, start in zip(obs, starts, strict=True):
        memory = chosen[-1].memory if chosen else None
        chosen.append(learner.act(row, explore=True, episode_starts=start, memory=memory))
    final_steps, final_envs = np.nonzero(truncated)
    return Rollout(
        obs=obs,
        actions=np.stack([action.actions for action in chosen]),
        rewards=np.where(valid, rng.standard_normal(shape) * 2, 0).astype(np.float32),
        terminated=ends & ~truncated,
        truncated=truncated,
        valid=valid,
        episode_starts=starts,
        last_obs=rng.standard_normal((learner.num_envs, width)).astype(np.float32),
        final_steps=final_steps,
        final_envs=final_envs,
        final_obs=rng.standard_normal((len(final_steps), width)).astype(np.float32),
        extras={name: np.stack([action.extras[name] for action in chosen]) for name in chosen[0].extras},
    )


def shaped(learner: Any, rollout: Rollout) -> Rollout:
    """The rollout as the loop passes it to `update`: rewards scaled, clipped, and normalized if the config says so."""
    rewards = learner.shape_rewards(rollout.rewards)
    if learner.return_normalizer is not None:
        rewards = learner.return_normalizer(rewards, rollout.episode_starts, rollout.valid)
    return replace(rollout, rewards=rewards)


def learn_from(learner: Any, rollout: Rollout) -> Any:
    """What the on-policy loop does with a rollout; test_loops.py compares the two."""
    result = learner.update(shaped(learner, rollout))
    learner.observe(rollout.obs, rollout.valid)
    return result


def slow_advantages(rollout: Rollout, rewards: np.ndarray, value: Any, gamma: float, trace: float) -> np.ndarray:
    """GAE as the paper defines it, a sum of discounted TD errors along each episode, row by row in float64."""
    num_steps, num_envs = rewards.shape
    final = {(s, e): i for i, (s, e) in enumerate(zip(rollout.final_steps, rollout.final_envs, strict=True))}

    def td_error(t: int, env: int) -> float:
        if rollout.terminated[t, env]:
            following = 0.0
        elif (t, env) in final:
            following = value(rollout.final_obs[final[t, env]])
        else:
            following = value(rollout.last_obs[env] if t == num_steps - 1 else rollout.obs[t + 1, env])
        return float(rewards[t, env]) + gamma * following - value(rollout.obs[t, env])

    advantages = np.zeros((num_steps, num_envs))
    for env in range(num_envs):
        for t in range(num_steps):
            for k in range(t, num_steps):
                advantages[t, env] += (gamma * trace) ** (k - t) * td_error(k, env)
                if rollout.terminated[k, env] or rollout.truncated[k, env]:
                    break
    return advantages


def value_of(model: Any) -> Any:
    """V(s) of one observation, as a plain function."""

    def value(obs: np.ndarray) -> float:
        with torch.no_grad():
            return float(model.value(torch.from_numpy(obs[None]))[0])

    return value


def parameters_of(module: torch.nn.Module) -> torch.Tensor:
    """All parameters as one vector, copied."""
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).clone()


def batch_from(**columns: Any) -> Any:
    """A PolicyBatch of float64 columns; those not given are zero."""
    from rl_training.algorithms.common.on_policy import PolicyBatch

    size = len(next(iter(columns.values())))
    names = ("obs", "actions", "log_probs", "values", "advantages", "returns")
    return PolicyBatch(
        **{name: torch.as_tensor(columns.get(name, np.zeros(size)), dtype=torch.float64) for name in names}
    )


def learner_of_case(inputs: dict[str, Any], **settings: Any) -> Any:
    """A learner with the settings and weights of a recorded whole update."""
    actions = gym.spaces.Discrete(3) if inputs["action_kind"] == "discrete" else gym.spaces.Box(-1, 1, (2,), np.float32)
    spaces = Spaces(gym.spaces.Box(-10, 10, (2,), np.float32), actions)
    names = ("learning_rate", "gamma", "gae_lambda", "entropy_coef", "value_coef")
    settings |= {name: inputs[name] for name in names}
    learner = make_learner(inputs["algo"], spaces, model={"hidden_sizes": (3,)}, **settings)
    weights = {name: torch.from_numpy(value.astype(np.float32)) for name, value in inputs["parameters"].items()}
    learner.model.load_state_dict(weights)
    return learner


def rollout_of_case(inputs: dict[str, Any]) -> Rollout:
    final = inputs["final"]
    actions = inputs["actions"].squeeze(-1) if inputs["action_kind"] == "discrete" else inputs["actions"]
    starts = np.roll(inputs["terminated"] | inputs["truncated"], 1, 0)
    starts[0] = True
    return Rollout(
        obs=inputs["obs"].astype(np.float32),
        actions=actions.astype(np.int64 if inputs["action_kind"] == "discrete" else np.float32),
        rewards=inputs["rewards"].astype(np.float32),
        terminated=inputs["terminated"],
        truncated=inputs["truncated"],
        valid=np.ones_like(inputs["terminated"]),
        episode_starts=starts,
        last_obs=inputs["last_obs"].astype(np.float32),
        final_steps=np.array([row[0] for row in final]),
        final_envs=np.array([row[1] for row in final]),
        final_obs=np.array([row[2] for row in final], np.float32),
        extras={"log_probs": inputs["log_probs"].astype(np.float32)},
    )
