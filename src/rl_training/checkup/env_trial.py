"""Stepping an environment with random actions, as training does, and judging what it returns."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.algorithms.common.exploration import random_actions
from rl_training.checkup.finding import Finding, ok, warn
from rl_training.data.goal_replay import CHECKED_STEPS
from rl_training.envs.action_mask import NEAR_KEY, flat_mask, misnamed_mask
from rl_training.envs.env_runner import check_observation
from rl_training.envs.failures import reason_of
from rl_training.envs.goals import ACHIEVED, DESIRED, WITHOUT, GoalColumns, GoalRules
from rl_training.envs.spaces import MASK_KEY, Spaces
from rl_training.errors import EnvError, raise_interrupts
from rl_training.text import describe_error, one_line, text_of

STEPS = 1000
STEPS_OF_SEEDS = 200
SEED = 0
# A slow env is stepped for this long only.
PATIENCE_SECONDS = 20.0

Env = gym.Env[Any, Any]
Clock = Callable[[], float]


class Broken(Exception):
    """What the env returned cannot be trained on; the message is the problem, `fix` the way out."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


class Raised(Broken):
    """A call of the env raised."""


@dataclass
class Walk:
    """What happened in a random walk. `remarks` has the first case of each problem that training survives."""

    steps: int = 0
    episodes: int = 0
    longest: int = 0  # steps of the longest episode so far, ended or not
    asked: int = STEPS
    info_keys: set[str] = field(default_factory=set)
    unused_masks: bool = False  # whether the env reports masks of its actions that training would not use
    misnamed_mask: str | None = None  # what to rename if something looks like a mask and is not read
    last_info: dict[str, Any] = field(default_factory=dict)
    near_info: dict[str, Any] = field(default_factory=dict)  # the last one with a mask under another name
    remarks: dict[str, tuple[str, str]] = field(default_factory=dict)  # kind -> problem and fix

    def remark(self, kind: str, problem: str, fix: str) -> None:
        self.remarks.setdefault(kind, (f"{problem} (step {self.steps})", fix))


def random_walk(
    env: Env, spaces: Spaces, steps: int = STEPS, patience: float = PATIENCE_SECONDS, clock: Clock = time.perf_counter
) -> Walk:
    """Step an env with uniform actions; `Broken` at the first answer that training could not use."""
    rng, walk, started = np.random.default_rng(SEED), Walk(asked=steps), clock()
    length = 0
    observation = _reset(env, spaces, walk, SEED)
    while walk.steps < steps and (walk.steps == 0 or clock() - started < patience):
        walk.steps += 1
        length += 1
        actions = _drawn(spaces, observation, rng)
        try:
            observation, ended = _step(env, spaces, walk, spaces.to_env_actions(actions)[0])
        except Raised as broken:
            broken.fix = _advice_about_masks(env, spaces, walk.last_info, actions) or broken.fix
            raise
        walk.longest = max(walk.longest, length)
        if ended:
            walk.episodes += 1
            length = 0
            observation = _reset(env, spaces, walk, None)
    walk.unused_masks = not spaces.mask_size and MASK_KEY in walk.info_keys
    if not spaces.mask_size and not walk.unused_masks:
        walk.misnamed_mask = misnamed_mask(env, walk.near_info)
    return walk


def _drawn(spaces: Spaces, observation: Any, rng: np.random.Generator) -> np.ndarray:
    """A random action of the agent, in a batch of one."""
    masks = spaces.action_masks(spaces.encode([observation])) if spaces.mask_size else None
    return random_actions(spaces, 1, rng, masks)


def _action(spaces: Spaces, observation: Any, rng: np.random.Generator) -> Any:
    return spaces.to_env_actions(_drawn(spaces, observation, rng))[0]


def _advice_about_masks(env: Env, spaces: Spaces, info: dict[str, Any], actions: np.ndarray) -> str | None:
    """What to do if a step raised because training does not use the masks of the env."""
    if spaces.mask_size or spaces.action_kind == "box":
        return None
    key = MASK_KEY if MASK_KEY in info else NEAR_KEY
    if key not in info:
        hint = misnamed_mask(env, {})  # whether it allowed this action is not known
        return hint and f"correct the env, unless it does not allow this action: {hint.partition(' (')[0]}"
    try:
        mask = flat_mask(info[key], sum(spaces.action_sizes))
    except (EnvError, TypeError, ValueError):
        return None
    if mask[actions.ravel() + spaces.choice_starts].all():
        return None  # the env allowed this action: something else is wrong
    if key == NEAR_KEY:
        return misnamed_mask(env, info)
    action = one_line(np.asarray(spaces.to_env_actions(actions)[0]).tolist(), 100)
    return (
        f"info[{MASK_KEY!r}] forbids the action {action}, which was random: set env_kwargs.action_masks=info to use it"
    )


def _called(name: str, call: Callable[[], Any], count: int, values: str) -> tuple[Any, ...]:
    """What a method of the env returns: a tuple of `count` values."""
    fix = f"return {values}, as Gymnasium's API says"
    try:
        answer = call()
    except BaseException as error:
        raise_interrupts(error)
        # A wrapper around an env for old Gym says so.
        if isinstance(error, ValueError) and "values to unpack" in text_of(error):
            raise Broken(f"{name} does not return {count} values", fix) from error
        raise Raised(f"{name} failed: {reason_of(error)}", "correct the env") from error
    if not isinstance(answer, tuple) or len(answer) != count:
        raise Broken(f"{name} does not return {count} values", fix)
    return answer


def _reset(env: Env, spaces: Spaces, walk: Walk, seed: int | None) -> Any:
    observation, info = _called("reset", lambda: env.reset(seed=seed), 2, "(observation, info)")
    _judge_observation(observation, spaces, walk)
    _judge_mask(observation, spaces, walk)
    _judge_info(info, walk)
    return observation


def _step(env: Env, spaces: Spaces, walk: Walk, action: Any) -> tuple[Any, bool]:
    """Make one step and judge it; the observation, and whether it ended the episode."""
    values = "(observation, reward, terminated, truncated, info)"
    observation, reward, terminated, truncated, info = _called("step", lambda: env.step(action), 5, values)
    _judge_observation(observation, spaces, walk)
    _judge_reward(reward, walk)
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        _judge_flag(name, flag, walk)
    _judge_info(info, walk)
    if not terminated:
        _judge_mask(observation, spaces, walk)
    return observation, bool(terminated) or bool(truncated)


def _judge_mask(observation: Any, spaces: Spaces, walk: Walk) -> None:
    if spaces.mask_size and len(spaces.rows_without_action(spaces.encode([observation]))):
        problem = f"the action mask allows no action (step {walk.steps})"
        raise Broken(problem, "allow an action, or terminate the episode in that state")


def _judge_observation(observation: Any, spaces: Spaces, walk: Walk) -> None:
    space = spaces.observation_space
    try:
        check_observation(observation, space)
        encoded = spaces.encode_one(observation)
    except (EnvError, TypeError, ValueError) as error:
        problem = one_line(error).removesuffix(": correct the env or its space")
        raise Broken(f"{problem} (step {walk.steps})", "correct the env or its observation_space") from error
    if not np.isfinite(spaces.numbers_of(encoded[None])).all():
        raise Broken(f"an observation is not finite (step {walk.steps})", "correct the env: training stops at NaN")
    if not space.contains(observation):
        problem = outside_of(observation, space) or "an observation is not in its space, perhaps by its dtype"
        fix = "correct the bounds of observation_space; training itself does not use them"
        walk.remark("bounds", problem, fix)


def outside_of(value: Any, space: gym.Space[Any], name: str = "observation") -> str | None:
    """The first number outside the bounds of its Box, in words."""
    if isinstance(space, gym.spaces.Dict):
        parts = [outside_of(value[key], inner, f"{name}[{key!r}]") for key, inner in space.spaces.items()]
    elif isinstance(space, gym.spaces.Tuple):
        parts = [outside_of(value[i], inner, f"{name}[{i}]") for i, inner in enumerate(space.spaces)]
    elif isinstance(space, gym.spaces.Box):
        array = np.asarray(value)
        wrong = np.argwhere((array < space.low) | (array > space.high))
        if not len(wrong):
            return None
        place = tuple(int(index) for index in wrong[0])
        low, high = space.low[place], space.high[place]
        label = f"{name}[{', '.join(map(str, place))}]" if place else name
        return f"{label} is {array[place]:g}, outside its space ({low:g} to {high:g})"
    else:
        return None
    return next((part for part in parts if part is not None), None)


def _judge_reward(reward: Any, walk: Walk) -> None:
    try:
        number = float(reward)
    except (TypeError, ValueError, OverflowError) as error:
        raise Broken(
            f"the reward is a {type(reward).__name__} ({one_line(reward, 40)}), not a number (step {walk.steps})",
            "return float(reward)",
        ) from error
    if not math.isfinite(number):
        raise Broken(f"the reward is {number} (step {walk.steps})", "correct the env: training stops at NaN")
    if not isinstance(reward, (numbers.Real, np.number, np.bool_)):
        walk.remark("reward", f"the reward is a {type(reward).__name__}, not a plain number", "return float(reward)")


def _judge_flag(name: str, flag: Any, walk: Walk) -> None:
    if isinstance(flag, (bool, np.bool_)):
        return
    try:
        bool(flag)
    except Exception as error:
        problem = f"{name} is a {type(flag).__name__} without a truth value (step {walk.steps})"
        raise Broken(problem, "return True or False") from error
    walk.remark(name, f"{name} is a {type(flag).__name__}, not a bool", f"return bool({name})")


def _judge_info(info: Any, walk: Walk) -> None:
    if not isinstance(info, dict):
        raise Broken(f"info is a {type(info).__name__}, not a dict (step {walk.steps})", "return a dict, perhaps {}")
    walk.info_keys |= {key for key in info if isinstance(key, str)}
    if any(not isinstance(key, str) for key in info):
        raise Broken(f"info has a key that is not a string (step {walk.steps})", "use strings as keys of info")
    walk.last_info = info
    if NEAR_KEY in info:
        walk.near_info = info


def check_walk(walk: Walk, time_limit: int | None) -> Iterator[Finding]:
    """Findings about a random walk that came to its end."""
    short = f", of {walk.asked:,} asked: the env is slow" if walk.steps < walk.asked else ""
    for problem, fix in walk.remarks.values():
        yield warn("steps", problem, fix)
    if not walk.remarks:
        yield ok("steps", f"{walk.steps:,} random steps{short}: observations, rewards and infos are sound")
    yield _check_ends(walk, time_limit)
    if walk.info_keys:
        keys = sorted(walk.info_keys)
        more = f" and {len(keys) - 8} more" if len(keys) > 8 else ""
        if walk.unused_masks:
            more += f"; to use the {MASK_KEY}, set env_kwargs.action_masks=info"
        yield ok("info", f"keys: {one_line(', '.join(keys[:8]))}{more}")
    if walk.misnamed_mask:
        detail, _, fix = walk.misnamed_mask.partition("; ")
        yield warn("masks", detail, fix)


def _check_ends(walk: Walk, time_limit: int | None) -> Finding:
    if time_limit is not None:
        return ok("episodes", f"they end after {time_limit:,} steps at the latest")
    if walk.episodes:
        detail = (
            f"{walk.episodes} ended in {walk.steps:,} random steps, the longest after {walk.longest:,}; no time limit"
        )
        return ok("episodes", detail)
    detail = f"no episode ended in {walk.steps:,} random steps, and there is no time limit: one may never end"
    fix = "register the env with max_episode_steps, or wrap it in gymnasium.wrappers.TimeLimit; eval_max_steps cuts"
    return warn("episodes", detail, f"{fix} evaluations")


def time_limit_of(env: Env) -> int | None:
    """The steps after which an episode is cut at the latest; None without such a limit."""
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, gym.wrappers.TimeLimit):
            return int(layer._max_episode_steps)
        layer = layer.env
    spec = getattr(env, "spec", None)
    # An Atari game counts frames, of which a step has one or more.
    limits = (getattr(spec, "max_episode_steps", None), getattr(spec, "kwargs", {}).get("max_num_frames_per_episode"))
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)


def check_seeds(
    first: Env, second: Env, spaces: Spaces, steps: int = STEPS_OF_SEEDS, patience: float = 10.0
) -> Finding:
    """Whether the same seed and actions give the same observations and rewards, in two envs or twice in one."""
    try:
        one = _recorded(first, spaces, steps, patience)
        other = _recorded(second, spaces, len(one) - 1, math.inf)
    except BaseException as error:
        raise_interrupts(error)
        return warn("seed", f"cannot be compared ({describe_error(error)})", "correct the env")
    fix = "call super().reset(seed=seed) and draw random numbers from self.np_random only"
    lost = "runs cannot be repeated, and resume is not exact"
    for index, (left, right) in enumerate(zip(one, other, strict=True)):
        if not all(np.array_equal(a, b) for a, b in zip(left, right, strict=True)):
            if index == 0:
                return warn("seed", f"reset(seed={SEED}) gives another observation the second time, so {lost}", fix)
            return warn("seed", f"the same seed and actions give another result at step {index}, so {lost}", fix)
    return ok("seed", f"the same seed gives the same {len(one) - 1} steps")


def check_goals(env: Env, spaces: Spaces, patience: float = 10.0) -> Iterator[Finding]:
    """For an env with goals: whether hindsight could recompute its rewards, checked as the first steps of a run do."""
    space = spaces.observation_space
    if not isinstance(space, gym.spaces.Dict) or not {ACHIEVED, DESIRED} <= set(space.spaces):
        return
    if spaces.images:
        return  # hindsight is not for goals beside images, and nothing else needs compute_reward
    fix = "only hindsight replay needs this: correct it, or leave algo_kwargs.hindsight at 0"
    try:
        columns = GoalColumns.of(spaces)
        rules = GoalRules(env, columns)
        record = _recorded(env, spaces, CHECKED_STEPS, patience)[1:]
        seen = np.stack([step[0] for step in record])
        achieved, desired = seen[:, columns.achieved], seen[:, columns.desired]
        rules.check(achieved, desired)
        rewards, terminated = np.array([step[1] for step in record]), np.array([step[2] for step in record])
        rules.check_outcome(achieved, desired, rules.rewards(achieved, desired), rewards, terminated)
    except BaseException as error:
        raise_interrupts(error)
        text = str(error).removesuffix(WITHOUT).rstrip(" ,") if isinstance(error, EnvError) else describe_error(error)
        yield warn("goals", text, fix)
        return
    yield ok("goals", f"compute_reward agrees with {len(record)} steps, in a batch and alone")


def _recorded(env: Env, spaces: Spaces, steps: int, patience: float) -> list[tuple[Any, ...]]:
    """The first observation, then what each step returns; where an episode ends, the start of the next one as well."""

    def seen(observation: Any) -> np.ndarray:
        return np.array(spaces.encode_one(observation))

    rng, started = np.random.default_rng(SEED), time.perf_counter()
    observation = env.reset(seed=SEED)[0]
    record: list[tuple[Any, ...]] = [(seen(observation),)]
    while len(record) <= steps and (len(record) == 1 or time.perf_counter() - started < patience):
        observation, reward, terminated, truncated, _ = env.step(_action(spaces, observation, rng))
        step = (seen(observation), float(reward), bool(terminated), bool(truncated))
        if ended := terminated or truncated:
            observation = env.reset()[0]
        record.append((*step, seen(observation) if ended else None))
    return record
