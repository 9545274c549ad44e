"""The collector: the only code that steps training envs, and the place where episode boundaries are resolved.

Whatever the autoreset mode, a step that leaves here has the TRUE successor observation, separate `terminated` and
`truncated` flags, and a mask of the rows that are transitions. No loss ever repairs a boundary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.exploration import allowed_rows, random_actions
from rl_training.algorithms.common.learner import Action, Learner
from rl_training.algorithms.common.streams import Streams, derived_seed
from rl_training.data.rollout import Rollout
from rl_training.envs.action_mask import unused_masks
from rl_training.envs.batched_classic import BatchedVector
from rl_training.envs.factory import autoreset_mode
from rl_training.envs.failures import RESTARTED, EnvFailed, EnvFailure, reason_of, trace_of
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError, NumericalError, RLTrainingError, raise_interrupts
from rl_training.runtime.collection.boundaries import boundaries_for
from rl_training.runtime.collection.compiled_rollout import CompiledRollouts, why_not_compiled
from rl_training.runtime.collection.info_numbers import InfoNumbers
from rl_training.runtime.collection.rollout_writer import RolloutWriter
from rl_training.runtime.collection.steps import Episode, EpisodeStatistics, Step
from rl_training.text import describe_error

STEP_BY_STEP = "step by step"
COMPILING_ROLLOUTS = "compiling the rollouts (up to 20 seconds the first time)"


class RolloutDropped(Exception):
    """The run was asked to stop and the rollout would take too long. Nothing has been learned from it."""


@dataclass(frozen=True)
class Share:
    """The envs of a run that one collector steps: all of them, or those of one of its actors."""

    first_env: int = 0  # the number in the run of the collector's env 0
    actors: int = 1  # collectors of the same size that the run has
    seed: int | None = None  # of the run; None if the streams of the collector are those of the run


EVERYTHING = Share()


class Collector:
    """Steps N envs with a learner's actions and keeps track of where each env is."""

    def __init__(
        self,
        envs: VectorEnv,
        spaces: Spaces,
        learner: Learner,
        streams: Streams,
        overdue: Callable[[], bool] = lambda: False,
        log_info: Sequence[str] = (),
        share: Share = EVERYTHING,
    ):
        self.envs, self.spaces, self.learner, self.streams = envs, spaces, learner, streams
        self._share = share
        self.num_envs: int = envs.num_envs
        self._boundaries = boundaries_for(autoreset_mode(envs), envs, spaces)
        self._float_observations = spaces.observation_dtype != np.uint8 or bool(spaces.images)
        self._box_actions = spaces.action_kind == "box"
        self._masks_actions = spaces.mask_size > 0
        self.overdue = overdue  # whether a rollout must not be finished, because the run stops
        self.info_numbers = InfoNumbers(log_info)
        self.seconds_env = self.seconds_acting = 0.0
        self._writer = RolloutWriter()
        self._compiled: CompiledRollouts | None = None
        self.rollouts = STEP_BY_STEP  # how they are made, in words
        self.reset(0)

    def reset(self, at_env_step: int, attempt: int = 0) -> None:
        """Start a new episode in every env, with seeds that depend only on the run's seed and `at_env_step`.

        Env i of the run has the same seed whichever collector steps it. A later `attempt` has other seeds.
        """
        run_seed = self.streams.seed if self._share.seed is None else self._share.seed
        path = (at_env_step, attempt) if attempt else (at_env_step,)
        self._seed = derived_seed(run_seed, "envs", *path) + self._share.first_env
        self.reset_at, self._vector_steps, self._broken_rows = at_env_step, 0, 0
        self._boundaries.reset()
        try:
            raw, infos = self.envs.reset(seed=self._seed)
        except BaseException as error:
            raise_interrupts(error)
            self._raise_located(error, "reset")
        self.obs = self._encode(raw)
        self._check_finite("an observation", self.spaces.numbers_of(self.obs))
        if self._masks_actions:
            self._check_masks(self.obs)
        elif not self._box_actions and (problem := unused_masks(self.envs, infos)):
            self.info_numbers.tell(problem)
        self.episode_starts = np.ones(self.num_envs, bool)
        self._statistics = EpisodeStatistics(self._boundaries.every_env)
        self._held_steps, self._held_actions = 0, np.zeros(0)
        self.memory: Any = None

    def step(self, *, random: bool = False, repeat: int = 1) -> Step:
        """Act once in every env. With `random`, actions are uniform and each is held for `repeat` steps."""
        started = time.perf_counter()
        obs, starts, memory = self.obs, self.episode_starts, self.memory
        if random:
            action = self._random_action(repeat)
        else:
            action = self.learner.act(obs, explore=True, episode_starts=starts, memory=memory)
        actions, self.memory = action.actions, action.memory
        if self._box_actions and not math.isfinite(np.vdot(actions, actions)):
            self._check_finite("an action", actions)
        env_actions = self.spaces.to_env_actions(actions)
        acted = time.perf_counter()
        try:
            raw, rewards, terminated, truncated, infos = self.envs.step(env_actions)
        except BaseException as error:
            raise_interrupts(error)
            self._raise_located(error, "step", env_actions)
        self.seconds_acting += acted - started
        self.seconds_env += time.perf_counter() - acted
        self._vector_steps += 1

        self.obs = new_obs = self._encode(raw)
        rewards = np.asarray(rewards, np.float32)
        # A sum of squares is finite only if every entry is: for small arrays this is the fastest test. It is inline,
        # because calls per step add up: three of them cost 1 % of a step of CartPole.
        squares = np.vdot(rewards, rewards)
        if self._float_observations:
            numbers = spaces.numbers_of(new_obs) if (spaces := self.spaces).images else new_obs
            squares = squares + np.vdot(numbers, numbers)
        if not math.isfinite(squares):
            self._check_outcome(obs, actions, rewards)
        done = terminated | truncated
        num_done = np.count_nonzero(done)  # the fastest way to ask whether there is any
        next_obs, valid, self.episode_starts = self._boundaries.resolve(new_obs, done, num_done, infos)
        if next_obs is not new_obs:
            self._check_finite("a final observation", self.spaces.numbers_of(next_obs))
        if self._masks_actions:
            self._check_masks(next_obs, terminated)
            if next_obs is not new_obs:
                self._check_masks(new_obs)
        broken = infos.get(RESTARTED)
        if broken is not None:
            valid = self._drop_broken_rows(broken, valid)
        self._statistics.add(rewards, valid)
        episodes = []
        if num_done:
            # A lost life ends the episode for the learner, but not the game whose score is reported.
            over = done & ~infos.get("life_lost", np.False_)
            episodes = self._statistics.finish(over, valid, partial(self._last_numbers, infos))
        extras = action.extras
        return Step(
            obs, actions, rewards, next_obs, terminated, truncated, valid, starts, extras, memory, episodes, broken
        )

    def compile_rollouts(self, num_steps: int) -> None:
        """Make rollouts of `num_steps` steps with one compiled function, if gradient steps are compiled and it can be.

        `rollouts` then says so, or why not. Rollouts of other lengths are made step by step.
        """
        if not self.learner.compiles:
            return
        reason = why_not_compiled(self.envs, self.learner)
        if reason is not None:
            self.rollouts = f"{STEP_BY_STEP}: {reason}"
            return
        assert isinstance(self.envs, BatchedVector)
        self._compiled = CompiledRollouts(self.envs, self.spaces, self.learner, num_steps)
        self.rollouts = "one compiled function"

    def collect(self, num_steps: int) -> tuple[Rollout, list[Episode]]:
        """A rollout of `num_steps` steps of every env, and the episodes that ended in it."""
        if self._compiled is not None and num_steps == self._compiled.num_steps and self._function_is_made():
            return self._collect_at_once()
        episodes: list[Episode] = []
        self._writer.start(num_steps, self.memory)
        for _ in range(num_steps):
            if self.overdue():
                raise RolloutDropped
            step = self.step()
            self._writer.add(step)
            episodes += step.episodes
        return self._writer.finish(self.obs), episodes

    def _function_is_made(self) -> bool:
        """Compile rollouts before the first one. Where the compiler cannot, they stay what they were."""
        assert self._compiled is not None
        if self._compiled.is_compiled:
            return True
        self.learner.note(COMPILING_ROLLOUTS)
        try:
            self._compiled.compile()
        except (RLTrainingError, MemoryError):
            raise
        except Exception as error:  # another version of torch may not have these loops
            self._compiled = None
            self.rollouts = f"{STEP_BY_STEP}: they cannot be compiled ({describe_error(error)})"
            self.learner.note(f"rollouts are made {self.rollouts}")
        return self._compiled is not None

    def _collect_at_once(self) -> tuple[Rollout, list[Episode]]:
        """`collect` by one call of a compiled function. Acting and envs cannot be told apart: both count as acting."""
        if self.overdue():
            raise RolloutDropped
        assert self._compiled is not None
        started = time.perf_counter()
        made, extras, returns = self._compiled.collect(self._statistics.returns)
        self.seconds_acting += time.perf_counter() - started
        terminated, truncated, next_obs = made["terminated"], made["truncated"], made["next_obs"]
        squares = [np.vdot(numbers, numbers) for numbers in (made["rewards"], made["obs"], next_obs)]
        if self._box_actions:
            squares.append(np.vdot(made["actions"], made["actions"]))
        if not math.isfinite(sum(squares)):
            self._check_each_step(made)
        assert isinstance(self.envs, BatchedVector)
        steps = len(terminated)
        self._vector_steps += steps
        self.obs, starts = self.envs.observe(), self.episode_starts
        done = terminated | truncated
        self.episode_starts = done[-1]
        self._statistics.follow(returns, self.envs.elapsed)
        ends = zip(made["returns"][done].tolist(), made["lengths"][done].tolist(), strict=True)
        episodes = [Episode(total, length, self.info_numbers.read({})) for total, length in ends]
        final_steps, final_envs = np.nonzero(truncated)
        rollout = Rollout(
            obs=made["obs"],
            actions=made["actions"],
            rewards=made["rewards"],
            terminated=terminated,
            truncated=truncated,
            valid=np.ones(done.shape, bool),
            episode_starts=np.concatenate([starts[None], done[:-1]]),
            last_obs=self.obs,
            final_steps=final_steps,
            final_envs=final_envs,
            final_obs=next_obs[final_steps, final_envs],
            extras=extras,
        )
        return rollout, episodes

    def _check_each_step(self, made: dict[str, np.ndarray]) -> None:
        """Find the first step whose numbers are not finite, and raise what the plain path raises there.

        There may be none: the squares of large numbers are not finite before the numbers are.
        """
        assert isinstance(self.envs, BatchedVector)
        before = self._vector_steps
        columns = [made[name] for name in ("obs", "actions", "rewards", "next_obs")]
        following = [*made["obs"][1:], self.envs.observe()]
        for obs, actions, rewards, next_obs, new_obs in zip(*columns, following, strict=True):
            self.obs = obs
            if self._box_actions:
                self._check_finite("an action", actions)
            self._vector_steps, self.obs = self._vector_steps + 1, new_obs
            self._check_outcome(obs, actions, rewards)
            self._check_finite("a final observation", next_obs)
        self._vector_steps = before  # the rollout is good, and whoever asked counts it

    @property
    def env_step(self) -> int:
        """Environment steps of the run so far, counted as they are made."""
        skipped_rows = self._boundaries.skipped_rows + self._broken_rows
        return self.reset_at + (self._vector_steps * self.num_envs - skipped_rows) * self._share.actors

    @property
    def longest_running(self) -> int:
        """The length so far of the longest episode that has not ended."""
        return self._statistics.longest

    @property
    def failures(self) -> list[EnvFailure]:
        """Env failures that the run has survived. The list grows as envs are replaced; only `async` replaces them."""
        failures: list[EnvFailure] = getattr(self.envs.unwrapped, "failures", [])
        return failures

    def located(self, failure: EnvFailure) -> EnvFailure:
        """A failure with the number that its env has in the run, and the env step of the run."""
        env = None if failure.env_index is None else failure.env_index + self._share.first_env
        env_step = self.reset_at + failure.steps_before * self._share.actors
        return replace(failure, env_index=env, env_step=env_step)

    @property
    def notes(self) -> list[str]:
        """What else happened to the processes of the envs, one line each. This list grows too."""
        notes: list[str] = getattr(self.envs.unwrapped, "notes", [])
        return notes

    @property
    def nursery_restarts(self) -> int:
        return len(self.notes)

    def _last_numbers(self, infos: dict[str, Any], env: int) -> Mapping[str, float]:
        """The numbers of the episode that ended in this step in `env`."""
        return self.info_numbers.read(self._boundaries.last_info(infos, env))

    def _random_action(self, repeat: int) -> Action:
        masks = self.spaces.action_masks(self.obs)
        if self._held_steps % repeat == 0:
            self._held_actions = random_actions(self.spaces, self.num_envs, self.streams["warm_up"], masks)
        elif masks is not None:  # an action that was allowed may no longer be
            drawn = random_actions(self.spaces, self.num_envs, self.streams["warm_up"], masks)
            allowed = allowed_rows(self.spaces, masks, self._held_actions)
            self._held_actions = np.where(allowed if drawn.ndim == 1 else allowed[:, None], self._held_actions, drawn)
        self._held_steps += 1
        return Action(self._held_actions, {}, self.learner.remember(self.obs, self.episode_starts, self.memory))

    def _check_masks(self, obs: np.ndarray, terminated: np.ndarray | None = None) -> None:
        """EnvError if a mask allows nothing. Where an episode terminated no action follows: all are allowed there."""
        stuck = self.spaces.rows_without_action(obs)
        if not len(stuck):
            return
        over = np.zeros(len(stuck), bool) if terminated is None else np.asarray(terminated, bool)[stuck]
        if not over.all():
            env = stuck[~over][0] + self._share.first_env
            raise EnvError(
                f"env {env} allows no action (its action mask is all false), after env step {self.env_step}: allow "
                "one, or terminate the episode in that state"
            )
        obs[stuck, -self.spaces.mask_size :] = 1.0  # the value of such a state would be NaN, and 0 * NaN is NaN

    def _drop_broken_rows(self, broken: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Envs that broke in this step were replaced: their rows are not transitions, and new episodes follow."""
        self._broken_rows += int(np.count_nonzero(broken & valid))  # a row that is a reset was not counted
        self.episode_starts = self.episode_starts | broken
        self._statistics.clear(broken)
        kept: np.ndarray = valid & ~broken
        return kept

    def _raise_located(self, error: BaseException, call: str, actions: Any = None) -> NoReturn:
        """Raise `error` with the env step of the run in its message.

        An exception of the env itself becomes one line; its traceback stays attached as the cause.
        """
        if isinstance(error, RLTrainingError):
            if isinstance(error, EnvFailed):
                error.failure = self.located(error.failure)
                error.locate(self.env_step)
            raise error
        last_action = None if actions is None else np.asarray(actions).tolist()
        failure = EnvFailure(
            reason_of(error),
            call,
            seed=self._seed,
            env_step=self.env_step,
            last_action=last_action,
            trace=trace_of(error),
        )
        raise EnvFailed(failure) from error

    def _encode(self, raw: Any) -> np.ndarray:
        # A copy: an env may return the array that it writes the next observation into.
        return self.spaces.encode(raw).copy()

    def _check_outcome(self, obs: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> None:
        evidence = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": self.obs}
        self._check_finite("a reward", rewards, evidence)
        self._check_finite("an observation", self.spaces.numbers_of(self.obs), evidence)

    def _check_finite(self, name: str, values: np.ndarray, evidence: dict[str, np.ndarray] | None = None) -> None:
        bad_envs = np.flatnonzero(~np.isfinite(values.reshape(self.num_envs, -1)).all(1))
        if not len(bad_envs):
            return
        env = int(bad_envs[0]) + self._share.first_env
        from_policy = name == "an action"
        verb, remedy = ("was given", "lower the learning rate") if from_policy else ("returned", "fix the env")
        raise NumericalError(
            f"env {env} {verb} {name} that is not finite, after env step {self.env_step}: {remedy}, then resume from "
            f"the last checkpoint",
            field=name.split(" ", 1)[1],
            env_index=env,
            env_step=self.env_step,
            evidence=evidence or {"obs": self.obs, "values": values},
        )
