"""A worker that trains with Stable-Baselines3, sb3-contrib or SBX, in the virtual environment of `make bench-setup`."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecFrameStack
from windows import Windows


class Measure(BaseCallback):
    """`_on_rollout_start` follows learning in both of the peer's loops."""

    def __init__(self, warm_up: float, learning_starts: int):
        super().__init__()
        self.warm_up, self.learning_starts, self.keep_going = warm_up, learning_starts, True
        self.windows: Windows | None = None

    def _on_rollout_start(self) -> None:
        if self.num_timesteps <= self.learning_starts:
            return
        if self.windows is None:
            self.windows = Windows(self.warm_up)
        self.keep_going = self.windows.between_rounds(self.num_timesteps)

    def _on_step(self) -> bool:
        return self.keep_going


def main() -> None:
    work, warm_up, threads = json.loads(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    kwargs: dict[str, Any] = dict(work["kwargs"])
    policy: dict[str, Any] = {"net_arch": work["net"], "activation_fn": getattr(torch.nn, work["activation"])}
    if "lstm_hidden_size" in work:
        policy["lstm_hidden_size"] = work["lstm_hidden_size"]
    if work.get("policy") == "CnnPolicy":
        gym.register_envs(importlib.import_module("ale_py"))
        policy = {}  # the default is its NatureCNN
        envs = VecFrameStack(make_atari_env(work["env"], n_envs=work["envs"], seed=0), 4)
    else:
        envs = make_vec_env(work["env"], n_envs=work["envs"], seed=0)
    if (noise := kwargs.pop("noise", None)) is not None:
        size = envs.action_space.shape[0]
        kwargs["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, noise))
    name = work["class"]
    if "package" in work:
        algorithm = getattr(importlib.import_module(work["package"]), name)
        del policy["activation_fn"]  # a torch class; JAX has the same default
    else:
        algorithm = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
    model = algorithm(
        work.get("policy", "MlpPolicy"), envs, policy_kwargs=policy, seed=0, device="cpu", verbose=0, **kwargs
    )
    model.learn(10**9, callback=Measure(warm_up, kwargs.get("learning_starts", 0)))


if __name__ == "__main__":
    main()
