"""A worker of `rl-training zoo clock`: Stable-Baselines3, sb3-contrib or SBX, in the environment of `make bench-setup`.

    .venv-bench/bin/python benchmarks/clock_sb3.py --probe      # print the versions

Its settings in a board: `class`, `steps`, `envs`, `kwargs` of the class, `net` of the policy, `noise` of the actions,
`normalize` (VecNormalize) and `atari`. A number such as lin_0.001 decays linearly to zero.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from rl_training.zoo.clock.stopwatch import Stopwatch, play_episodes

MODULES = {"sb3": ("stable_baselines3", "sb3_contrib"), "sbx": ("sbx",)}
SHOWN = ("stable_baselines3", "sb3_contrib", "sbx_rl", "torch", "jax", "gymnasium")


def main() -> None:
    if "--probe" in sys.argv:
        for module in ("stable_baselines3", "sb3_contrib", "sbx"):
            importlib.import_module(module)
        print(json.dumps({name: version(name) for name in SHOWN}))
        return
    watch = Stopwatch.open()
    settings = watch.request["settings"]
    algorithm = find_class(watch.request["library"], settings["class"])

    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    if watch.request["threads"] is not None:
        torch.set_num_threads(watch.request["threads"])

    class Clock(BaseCallback):
        """Both loops of these libraries start a rollout right after they have learned."""

        keep_going = True

        def _on_rollout_start(self) -> None:
            if self.num_timesteps:
                self.keep_going = watch.look(self.num_timesteps)

        def _on_step(self) -> bool:
            return self.keep_going

    envs = make_envs(watch.request["env"], settings, watch.request["seed"])
    model = algorithm(
        "CnnPolicy" if settings.get("atari") else "MlpPolicy", envs, seed=watch.request["seed"],
        policy_kwargs={"net_arch": settings["net"]} if "net" in settings else {}, **arguments(settings, envs),
    )  # fmt: skip
    watch.plays_with(player(model, watch.request["env"], settings))
    model.learn(settings["steps"], callback=Clock())
    watch.finish(model.num_timesteps)


def find_class(library: str, name: str) -> Any:
    for module in MODULES[library]:
        found = getattr(importlib.import_module(module), name, None)
        if found is not None:
            return found
    raise SystemExit(f"{library} has no class {name}")


def make_envs(env: str, settings: dict[str, Any], seed: int) -> Any:
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    count = settings.get("envs", 1)
    if settings.get("atari"):
        register_atari()
        return VecFrameStack(make_atari_env(env, n_envs=count, seed=seed), 4)
    envs = make_vec_env(env, n_envs=count, seed=seed)
    return VecNormalize(envs, gamma=settings["kwargs"].get("gamma", 0.99)) if settings.get("normalize") else envs


def arguments(settings: dict[str, Any], envs: Any) -> dict[str, Any]:
    """The keyword arguments of the class."""
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    found = {name: schedule(value) for name, value in settings.get("kwargs", {}).items()}
    if "noise" in settings:
        size = envs.action_space.shape[0]
        found["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, settings["noise"]))
    return found


def schedule(value: Any) -> Any:
    """`lin_0.001` as rl-baselines3-zoo writes it."""
    if isinstance(value, str) and value.startswith("lin_"):
        start = float(value.removeprefix("lin_"))
        return lambda remaining: remaining * start
    return value


def register_atari() -> None:
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)


def player(model: Any, env: str, settings: dict[str, Any]) -> Callable[[Sequence[int]], list[float]]:
    """Plays without exploration on single environments, with the raw rewards of the environment."""
    import gymnasium
    import numpy as np

    atari, normalizer = settings.get("atari"), model.get_vec_normalize_env()

    def make() -> Any:
        if not atari:
            return gymnasium.make(env)
        from stable_baselines3.common.atari_wrappers import AtariWrapper

        plain = AtariWrapper(gymnasium.make(env), terminal_on_life_loss=False, clip_reward=False)
        return gymnasium.wrappers.FrameStackObservation(plain, 4, padding_type="zero")

    def act(observations: list[Any]) -> Any:
        batch = np.stack([np.asarray(each) for each in observations])
        if atari:
            batch = batch[..., 0]  # [N, 4, 84, 84, 1]: frames are the channels, which come first
        if normalizer is not None:
            batch = normalizer.normalize_obs(batch)
        return model.predict(batch, deterministic=True)[0]

    return lambda seeds: play_episodes(make, act, seeds)


if __name__ == "__main__":
    main()
