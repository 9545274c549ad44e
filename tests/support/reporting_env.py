"""An env that reports numbers in its last info, vector envs of every kind made of it, and callbacks for tests."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rl_training.runtime.callbacks.callback import Callback, RunContext

LENGTH = 4


class Reporting(gym.Env[Any, Any]):
    """Episodes of LENGTH steps. Every other one is a success; `score` counts episodes; the random walk is seeded.

    Only the last info of an episode is right: all earlier infos, and that of the reset, have numbers that are wrong.
    The env keeps one dict and fills it anew.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode: str | None = None, **report: Any) -> None:
        self.observation_space = gym.spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.render_mode, self.report = render_mode, report
        self.episode = 0
        self.info: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.episode = 0
        self.steps, self.place = 0, 0.0
        self.episode += 1
        self.info.update(is_success=-1000, score=-1000.0)
        return self._look(), self.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.place += self.np_random.normal()
        over = self.steps == LENGTH
        if over:
            # A number that is whole now and then: an array of integers would cut the others.
            score = self.episode if self.episode % 2 else self.episode + 0.5
            self.info.update(is_success=self.episode % 2 == 0, score=score, place=self.place, **self.report)
        else:
            self.info.update(is_success=-7, score=-7.0)
        return self._look(), float(action), over, False, self.info

    def render(self) -> np.ndarray:
        picture = np.zeros((32, 32, 3), np.uint8)
        picture[:, 4 * self.steps : 4 * self.steps + 4] = 255
        return picture

    def _look(self) -> np.ndarray:
        return np.array([self.place, self.steps], np.float32)


class FreshInfos(Reporting):
    """A new dict in every step, as gymnasium's own worker processes need it."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *outcome, info = super().step(action)
        return (*outcome, dict(info))  # type: ignore[return-value]


gym.register("Reporting-v0", entry_point=Reporting)


class DictsOfInfos(gym.vector.VectorWrapper):
    """`final_info` as an array of dicts, as vector envs before Gymnasium 1.0 have it."""

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        final = infos.pop("final_info", None)
        if final is not None:
            rows = np.full(self.num_envs, None, object)
            for env in np.flatnonzero(infos.pop("_final_info")):
                rows[env] = {name: final[name][env] for name in final if not name.startswith("_")}
            infos["final_info"] = rows
        return obs, rewards, terminated, truncated, infos


def user_vector(kind: str, num_envs: int = 2) -> VectorEnv[Any, Any, Any]:
    """A vector env that is not ours: `same-step`, `next-step`, `processes` or `dicts`."""
    mode = AutoresetMode.NEXT_STEP if kind == "next-step" else AutoresetMode.SAME_STEP
    if kind == "processes":
        return AsyncVectorEnv([FreshInfos] * num_envs, autoreset_mode=mode)
    envs = SyncVectorEnv([Reporting] * num_envs, autoreset_mode=mode)
    return DictsOfInfos(envs) if kind == "dicts" else envs


class Counting(Callback):
    """Uses every hook, logs, and has a state: a sum that depends on all that it has seen."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor, self.total, self.calls = factor, 0.0, []  # type: ignore[var-annotated]

    def on_start(self, context: RunContext) -> None:
        self.calls.append("start")

    def on_round(self, context: RunContext) -> None:
        self.calls.append("round")
        assert context.progress is not None and context.progress.env_steps == context.env_steps
        score = 0.0 if context.evaluation is None else context.evaluation.mean_return
        self.total += self.factor * (context.env_steps % 7) + score
        context.log("total", self.total)

    def on_episode(self, context: RunContext) -> None:
        self.calls.append("episode")
        assert context.episode is not None
        context.log("longest", context.episode.length)

    def on_evaluation(self, context: RunContext) -> None:
        self.calls.append("evaluation")
        context.log("total", np.float32(self.total))

    def on_checkpoint(self, context: RunContext) -> None:
        self.calls.append("checkpoint")
        assert context.checkpoint is not None and context.checkpoint.is_dir()

    def on_end(self, context: RunContext) -> None:
        self.calls.append(context.status)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "array": np.array([self.total])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = float(state["total"])
        assert state["array"][0] == self.total
