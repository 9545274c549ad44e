"""Full updates of Stable-Baselines3's PPO and A2C on one small rollout: weights before, data, weights after.

Used by record_oracles.py. A minibatch is the whole rollout, so the order of minibatches does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper

NUM_ENVS, NUM_STEPS = 2, 8


class Noise(gym.Env):
    """Random observations, rewards and episode ends: all cases of an update, but nothing to learn."""

    def __init__(self, action_space: gym.Space, seed: int) -> None:
        self.observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
        self.action_space = action_space
        self.rng = np.random.default_rng(seed)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return self.rng.normal(size=2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        end = self.rng.random()
        obs = self.rng.normal(size=2).astype(np.float32)
        return obs, float(self.rng.normal() * 2), end < 0.15, 0.15 <= end < 0.35, {}


class Recorder(VecEnvWrapper):
    """Records the raw rewards and episode ends: the buffer adds bootstrap values to its rewards."""

    def reset(self) -> Any:
        self.rewards: list[np.ndarray] = []
        self.terminated: list[list[bool]] = []
        self.truncated: list[list[bool]] = []
        self.final: list[tuple[int, int, np.ndarray]] = []
        return self.venv.reset()

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        truncated = [bool(info["TimeLimit.truncated"]) for info in infos]
        for env in np.flatnonzero(truncated):
            self.final.append((len(self.rewards), int(env), infos[env]["terminal_observation"]))
        self.rewards.append(rewards.copy())
        self.truncated.append(truncated)
        self.terminated.append([bool(d) and not t for d, t in zip(dones, truncated, strict=True)])
        return obs, rewards, dones, infos


def networks(policy: Any) -> dict[str, Any]:
    """Weights and biases under this project's parameter names."""
    extractor = policy.mlp_extractor
    layers = {"actor.0": extractor.policy_net[0], "actor.2": policy.action_net}
    layers |= {"critic.0": extractor.value_net[0], "critic.2": policy.value_net}
    parameters = {} if not hasattr(policy, "log_std") else {"log_std": policy.log_std.detach().clone()}
    for name, layer in layers.items():
        parameters |= {f"{name}.weight": layer.weight.detach().clone(), f"{name}.bias": layer.bias.detach().clone()}
    return parameters


def updates() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    kinds = {"discrete": gym.spaces.Discrete(3), "box": gym.spaces.Box(-1, 1, (2,), np.float32)}
    # Stable-Baselines3 does not halve the squared error, so its vf_coef is half of our value_coef.
    shared = {"gamma": 0.9, "ent_coef": 0.02, "vf_coef": 0.25, "gae_lambda": 0.8}
    shared |= {"n_steps": NUM_STEPS, "device": "cpu", "seed": 5}
    for kind, action_space in kinds.items():
        for algorithm in (PPO, A2C):
            envs = Recorder(DummyVecEnv([lambda i=i, a=action_space: Noise(a, 3 + i) for i in range(NUM_ENVS)]))
            policy: dict[str, Any] = {"net_arch": [3]}
            if algorithm is PPO:
                own = {"learning_rate": 0.05, "n_epochs": 6, "batch_size": NUM_ENVS * NUM_STEPS}
            else:
                # Not the default, torch's RMSprop, whose second moment starts at zero.
                own = {"learning_rate": 0.2}
                policy |= {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5}}
            model = algorithm("MlpPolicy", envs, policy_kwargs=policy, **shared, **own)
            with torch.no_grad():
                # The initial policy head is nearly zero; scale it so that the comparison covers larger logits.
                model.policy.action_net.weight *= 50
            before = networks(model.policy)
            model._setup_learn(NUM_ENVS * NUM_STEPS)
            model.collect_rollouts(envs, _no_callback(model), model.rollout_buffer, NUM_STEPS)
            model._current_progress_remaining = 1.0
            buffer = model.rollout_buffer
            data = {
                "obs": buffer.observations.copy(),
                "actions": buffer.actions.copy(),
                "log_probs": buffer.log_probs.copy(),
                "rewards": np.array(envs.rewards),
                "terminated": np.array(envs.terminated),
                "truncated": np.array(envs.truncated),
                "last_obs": model._last_obs.copy(),
                "final": [(step, env, obs.tolist()) for step, env, obs in envs.final],
            }
            advantages = buffer.advantages.copy()
            model.train()
            inputs = {"algo": algorithm.__name__.lower(), "action_kind": kind, "parameters": before} | data
            inputs |= {"learning_rate": own["learning_rate"], "update_epochs": own.get("n_epochs", 1)}
            inputs |= {name: shared[name] for name in ("gamma", "gae_lambda")}
            inputs |= {"entropy_coef": shared["ent_coef"], "value_coef": 2 * shared["vf_coef"]}
            outputs = {"advantages": advantages, "parameters": networks(model.policy)}
            logged = model.logger.name_to_value
            if algorithm is PPO:
                outputs["clip_fraction"] = float(logged["train/clip_fraction"])
            yield f"stable_baselines3 {algorithm.__name__}", inputs, outputs


def _no_callback(model: Any) -> Any:
    from stable_baselines3.common.callbacks import BaseCallback

    class Nothing(BaseCallback):
        def _on_step(self) -> bool:
            return True

    callback = Nothing()
    callback.init_callback(model)
    return callback
