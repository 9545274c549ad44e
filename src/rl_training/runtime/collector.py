"""The collector: the only code that steps training envs, and the one place where boundaries are put right.

Whatever the autoreset mode, what leaves here has the TRUE successor observation, `terminated` and `truncated`
apart, and no row that is not a transition. No loss ever repairs a boundary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_training.algorithms.common.exploration import random_actions
from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.streams import Streams
from rl_training.data.rollout import Rollout
from rl_training.envs.factory import autoreset_mode
from rl_training.envs.failures import RESTARTED, EnvFailed, EnvFailure, reason_of, trace_of
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError, NumericalError, RLTrainingError

ROLLOUT_FIELDS = ("obs", "actions", "rewards", "terminated", "truncated", "valid", "episode_starts")


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished episode with its raw return."""

    total_reward: float
    length: int


@dataclass(slots=True)
class Step:
    """One vector step [N, ...]. Rows with `valid` False are no transitions: resets of next-step autoreset, and steps in
    which an env broke (`broken`), whose episode ends with the row before, truncated at `obs`."""

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    episode_starts: np.ndarray
    extras: dict[str, np.ndarray]
    memory: Any  # before the step
    episodes: list[Episode] = field(default_factory=list)
    broken: np.ndarray | None = None  # None: no env broke


class RolloutDropped(Exception):
    """A stop was asked for and the rollout would have taken too long; nothing has been learned from it."""


class Collector:
    """Steps N envs with a learner's actions and remembers where each of them is."""

    def __init__(self, envs: VectorEnv, spaces: Spaces, learner: Learner, streams: Streams):
        self.envs, self.spaces, self.learner, self.streams = envs, spaces, learner, streams
        self.num_envs: int = envs.num_envs
        self.mode = autoreset_mode(envs)
        self._float_observations = spaces.observation_dtype != np.uint8
        self._box_actions = spaces.action_kind == "box"
        self._every_env = np.ones(self.num_envs, bool)
        self._every_env.flags.writeable = False  # most steps hand out the same
        self.overdue: Callable[[], bool] = lambda: False  # whether somebody waits for the end of a rollout
        self.seconds_env = self.seconds_acting = 0.0
        self._rollout_arrays: dict[str, np.ndarray] = {}
        self.reset(0)

    def reset(self, at_env_step: int) -> None:
        """Start every env anew with seeds that follow from the run's seed and `at_env_step` alone."""
        self._seed = self.streams.seed_for("envs", at_env_step)
        self.reset_at, self._vector_steps, self._no_transitions = at_env_step, 0, 0
        try:
            raw, _ = self.envs.reset(seed=self._seed)
        except RLTrainingError as error:
            self._locate(error)
            raise
        except Exception as error:
            raise self._problem(error, "reset") from error
        self.obs = self._encode(raw)
        self._check_finite("an observation", self.obs)
        self.episode_starts = np.ones(self.num_envs, bool)
        self._awaits_reset = np.zeros(self.num_envs, bool)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._held_steps, self._held_actions = 0, np.zeros(0)
        self.memory: Any = None

    def step(self, *, random: bool = False, repeat: int = 1) -> Step:
        """Act once in every env; with `random` by uniform actions, each held for `repeat` steps."""
        started = time.perf_counter()
        obs, starts, memory_before = self.obs, self.episode_starts, self.memory
        extras: dict[str, np.ndarray] = {}
        if random:
            if self._held_steps % repeat == 0:
                self._held_actions = random_actions(self.spaces, self.num_envs, self.streams["warm_up"])
            self._held_steps += 1
            actions = self._held_actions
        else:
            action = self.learner.act(obs, explore=True, episode_starts=starts, memory=self.memory)
            actions, extras, self.memory = action.actions, action.extras, action.memory
        if self._box_actions and not math.isfinite(np.vdot(actions, actions)):
            self._check_finite("an action", actions)
        env_actions = self.spaces.to_env_actions(actions)
        acted = time.perf_counter()
        try:
            raw, rewards, terminated, truncated, infos = self.envs.step(env_actions)
        except RLTrainingError as error:
            self._locate(error)
            raise
        except Exception as error:
            raise self._problem(error, "step", env_actions) from error
        self.seconds_acting += acted - started
        self.seconds_env += time.perf_counter() - acted
        self._vector_steps += 1

        self.obs = self._encode(raw)
        rewards = np.asarray(rewards, np.float32)
        # A sum of squares is finite only if every entry is: on a small env, the quickest question there is.
        squares = np.vdot(rewards, rewards)
        if self._float_observations:
            squares = squares + np.vdot(self.obs, self.obs)
        if not math.isfinite(squares):
            evidence = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": self.obs}
            self._check_finite("a reward", rewards, evidence)
            self._check_finite("an observation", self.obs, evidence)
        done = terminated | truncated
        valid = self._every_env
        next_obs = self.obs
        any_done = np.count_nonzero(done)  # of all ways to ask, the quickest
        if self.mode is AutoresetMode.NEXT_STEP:
            # The step after an end ignores its action and returns the reset observation: it is no transition.
            valid = ~self._awaits_reset
            self.episode_starts = self._awaits_reset
            self._awaits_reset = done
            self._no_transitions += int(any_done)
        else:
            self.episode_starts = done
            if any_done:
                next_obs = self._with_final_observations(done, infos)
        broken = infos.get(RESTARTED)
        if broken is not None:
            valid = valid & ~broken
            self._no_transitions += int(np.count_nonzero(broken))
            self.episode_starts = self.episode_starts | broken
        step = Step(obs, actions, rewards, next_obs, terminated, truncated, valid, starts, extras, memory_before)
        self._returns += rewards if valid is self._every_env else rewards * valid
        self._lengths += valid
        if any_done:
            # A lost life ends the episode that is learned from, but not the game whose score is told.
            self._finish_episodes(step, done & ~infos.get("life_lost", np.False_))
        if broken is not None:
            step.broken = broken
            self._returns[broken] = 0.0
            self._lengths[broken] = 0
        return step

    def collect(self, num_steps: int) -> tuple[Rollout, list[Episode]]:
        """`num_steps` steps of every env."""
        episodes: list[Episode] = []
        final_rows: list[tuple[int, int]] = []
        final_obs: list[np.ndarray] = []
        initial_memory = self.memory
        arrays: dict[str, np.ndarray] = {}
        columns: list[tuple[str, np.ndarray]] = []
        for t in range(num_steps):
            if self.overdue():
                raise RolloutDropped
            step = self.step()
            if t == 0:
                arrays = self._arrays_like(step, num_steps)
                columns = [(name, arrays[name]) for name in ROLLOUT_FIELDS]
            for name, column in columns:
                column[t] = getattr(step, name)
            for name, value in step.extras.items():
                arrays["extras." + name][t] = value
            if step.episodes:
                for env in np.flatnonzero(step.truncated & step.valid):
                    final_rows.append((t, int(env)))
                    final_obs.append(step.next_obs[env])
                episodes += step.episodes
            if step.broken is not None and t > 0:
                ended = arrays["terminated"][t - 1] | arrays["truncated"][t - 1]
                for env in np.flatnonzero(step.broken & arrays["valid"][t - 1] & ~ended):
                    arrays["truncated"][t - 1, env] = True
                    final_rows.append((t - 1, int(env)))
                    final_obs.append(step.obs[env])
        steps, envs = zip(*final_rows, strict=True) if final_rows else ((), ())
        rollout = Rollout(
            **{name: array for name, array in arrays.items() if not name.startswith("extras.")},
            last_obs=self.obs,
            final_steps=np.array(steps, np.int64),
            final_envs=np.array(envs, np.int64),
            final_obs=np.array(final_obs, self.obs.dtype).reshape(-1, *self.obs.shape[1:]),
            extras={name[7:]: array for name, array in arrays.items() if name.startswith("extras.")},
            initial_memory=initial_memory,
        )
        return rollout, episodes

    @property
    def env_step(self) -> int:
        """Env steps of the run up to now, counted as they are made."""
        return self.reset_at + self._vector_steps * self.num_envs - self._no_transitions

    @property
    def failures(self) -> list[EnvFailure]:
        """Failures that the environments have survived so far; the list grows with them."""
        failures: list[EnvFailure] = getattr(self.envs.unwrapped, "failures", [])
        return failures

    def _locate(self, error: RLTrainingError) -> None:
        if isinstance(error, EnvFailed):
            error.locate(self.env_step)

    def _problem(self, error: Exception, call: str, actions: Any = None) -> EnvFailed:
        """An exception of the env's own becomes one line with its place; the traceback stays attached as the cause."""
        action = None if actions is None else np.asarray(actions).tolist()
        seed, trace = self._seed, trace_of(error)
        return EnvFailed(EnvFailure(reason_of(error), call, None, seed, self.env_step, last_action=action, trace=trace))

    def _encode(self, raw: Any) -> np.ndarray:
        # A copy: envs may hand out the array they write the next observation into.
        return self.spaces.encode(raw).copy()

    def _with_final_observations(self, done: np.ndarray, infos: dict[str, Any]) -> np.ndarray:
        if "final_obs" not in infos:
            raise EnvError(
                f"vector env {type(self.envs.unwrapped).__name__} ended an episode without infos['final_obs']: "
                "autoreset in the same step has to hand the last observation over there"
            )
        final = infos["final_obs"]
        next_obs = self.obs.copy()
        if isinstance(final, np.ndarray) and final.dtype != object:
            next_obs[done] = self.spaces.encode(final)[done]
        else:
            for env in np.flatnonzero(done):
                next_obs[env] = self.spaces.encode_one(final[env])
        self._check_finite("a final observation", next_obs)
        return next_obs

    def _finish_episodes(self, step: Step, done: np.ndarray) -> None:
        for env in np.flatnonzero(done & step.valid):
            step.episodes.append(Episode(float(self._returns[env]), int(self._lengths[env])))
        self._returns[done] = 0.0
        self._lengths[done] = 0

    def _check_finite(self, name: str, values: np.ndarray, evidence: dict[str, np.ndarray] | None = None) -> None:
        broken = np.flatnonzero(~np.isfinite(values.reshape(self.num_envs, -1)).all(1))
        if not len(broken):
            return
        env = int(broken[0])
        policy = name == "an action"
        verb, cure = ("was given", "lower the learning rate") if policy else ("returned", "mend the env")
        raise NumericalError(
            f"env {env} {verb} {name} that is not finite, after env step {self.env_step}: {cure}, then resume from the "
            f"last checkpoint",
            field=name.split(" ", 1)[1],
            env_index=env,
            env_step=self.env_step,
            evidence=evidence or {"obs": self.obs, "values": values},
        )

    def _arrays_like(self, step: Step, num_steps: int) -> dict[str, np.ndarray]:
        """Rollout storage, kept from one rollout to the next."""
        if not self._rollout_arrays or len(self._rollout_arrays["obs"]) < num_steps:
            examples = {name: getattr(step, name) for name in ROLLOUT_FIELDS}
            examples |= {"extras." + name: value for name, value in step.extras.items()}
            self._rollout_arrays = {
                name: np.empty((num_steps, *value.shape), value.dtype) for name, value in examples.items()
            }
        return {name: array[:num_steps] for name, array in self._rollout_arrays.items()}
