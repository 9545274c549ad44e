"""`check_env`: whether an environment can be trained on, and what to change if it cannot."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check
from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.exploration import random_actions
from rl_training.checkup.env_trial import (
    PATIENCE_SECONDS,
    STEPS,
    Broken,
    Env,
    check_goals,
    check_seeds,
    check_walk,
    random_walk,
    time_limit_of,
)
from rl_training.checkup.finding import Finding, Report, fail, ok, warn
from rl_training.config.algorithm_table import algorithm_names
from rl_training.envs.env_closer import close_all
from rl_training.envs.env_request import name_of
from rl_training.envs.env_types import EnvMaker
from rl_training.envs.factory import make_env, make_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError, EnvError, RLTrainingError, raise_interrupts
from rl_training.runtime.spec import get_spec
from rl_training.text import describe_error, one_line

STEPS_SIDE_BY_SIDE = 50
COLOR = re.compile(r"\x1b\[[0-9;]*m")
# Observations are not scaled by their bounds here, and actions always are: these warnings ask for nothing.
NOT_OUR_CONCERN = ("infinity", "symmetric and normalized")
Source = str | EnvMaker | Env


def check_env(
    env: Source,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    action_bound: float | None = None,
    steps: int = STEPS,
    patience: float = PATIENCE_SECONDS,
) -> Report:
    """Try an environment: its spaces, seeds, rewards, infos and episode ends, and which algorithms fit.

    `env` is an env id, `module:EnvId`, a callable that makes the env, or an env object, which stays open. A slow env is
    stepped for `patience` seconds instead of `steps` steps.

    >>> report = check_env("CartPole-v1", steps=100)
    >>> report.usable
    True
    """
    return Report(tuple(env_findings(env, env_kwargs, action_bound=action_bound, steps=steps, patience=patience)))


def env_findings(
    env: Source,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    action_bound: float | None = None,
    steps: int = STEPS,
    patience: float = PATIENCE_SECONDS,
    side_by_side: bool = True,
) -> Iterator[Finding]:
    """The findings of `check_env`, each as soon as it is known."""
    name = one_line(_name_of(env), 200)
    try:
        first = _open(env, env_kwargs)
    except (EnvError, ConfigError) as error:
        yield fail("env", str(error))
        return
    try:
        yield ok("env", f"{name} can be made")
        try:
            spaces = Spaces(first.observation_space, first.action_space, action_bound=action_bound)
            spaces.to_json()
        except BaseException as error:
            raise_interrupts(error)
            yield fail("spaces", str(error) if isinstance(error, RLTrainingError) else describe_error(error))
            return
        yield from check_spaces(spaces)
        yield check_by_gymnasium(first, masked=spaces.mask_size > 0)
        try:
            walk = random_walk(first, spaces, steps, patience)
        except Broken as broken:
            yield fail("steps", str(broken), broken.fix)
            return
        yield _check_seeds(first, env, env_kwargs, spaces)
        yield from check_walk(walk, time_limit_of(first))
        yield from check_goals(first, spaces)
    finally:
        if first is not env:  # an env object belongs to the caller
            close_all(first.close)
    if side_by_side and not isinstance(env, gym.Env):
        yield check_side_by_side(env, env_kwargs, spaces)
    yield check_algorithms(spaces, name)


def _name_of(env: Source) -> str:
    if isinstance(env, str):
        return env
    return type(env.unwrapped).__name__ if isinstance(env, gym.Env) else name_of(env)


def _open(env: Source, env_kwargs: Mapping[str, Any] | None) -> Env:
    if isinstance(env, VectorEnv):
        raise EnvError("a VectorEnv is many envs at once: pass a function that makes one of them")
    return env if isinstance(env, gym.Env) else make_env(env, env_kwargs)


def _check_seeds(first: Env, env: Source, env_kwargs: Mapping[str, Any] | None, spaces: Spaces) -> Finding:
    """Compare two envs, because one may carry something over to its next episode; or one that is all there is."""
    try:
        second = _open(env, env_kwargs)
    except EnvError as error:
        return fail("env", f"a second one cannot be made beside the first: {error}")
    try:
        return check_seeds(first, second, spaces)
    finally:
        if second is not env:
            close_all(second.close)


def check_spaces(spaces: Spaces) -> Iterator[Finding]:
    observation, action = spaces.observation_space, spaces.action_space
    shape = spaces.observation_shape
    if len(shape) == 3:
        yield ok("spaces", f"observations are uint8 images {shape}; actions are {one_line(action, 200)}")
    elif spaces.images:
        images = ", ".join(f"{image.name} {image.shape}" for image in spaces.images)
        seen = f"images ({images}) and {spaces.vector_size:,} numbers ({type(observation).__name__})"
        yield ok("spaces", f"observations are {one_line(seen, 300)}; actions are {one_line(action, 200)}")
    else:
        seen = f"a vector of {shape[0]:,} numbers ({type(observation).__name__})"
        yield ok("spaces", f"observations are {seen}; actions are {one_line(action, 200)}")
    for picture in spaces.flat_pictures():
        detail, _, fix = picture.partition("; ")
        yield warn("spaces", detail, fix)
    if spaces.unbounded_actions:
        more = f" and {len(spaces.unbounded_actions) - 1} more" if len(spaces.unbounded_actions) > 1 else ""
        detail = (
            f"{spaces.unbounded_actions[0]}{more} has no bounds: replay algorithms refuse it, others do not scale it"
        )
        yield warn("actions", detail, "give the Box two bounds, or set action_bound")


def check_by_gymnasium(env: Env, masked: bool = False) -> Finding:
    """What Gymnasium's own checker says about the env below all wrappers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            gymnasium_check(env.unwrapped, skip_render_check=True, skip_close_check=True)
        except BaseException as error:
            raise_interrupts(error)
            if masked and _is_from_step(error, env.unwrapped):
                reason = f"its checker ignores action masks, and a step raised {describe_error(error)}"
                return ok("gymnasium", f"skipped: {reason}")
            return warn("gymnasium", f"its checker refuses the env: {describe_error(error)}", "correct the env")
    texts = [COLOR.sub("", str(each.message)) for each in caught]
    own = [text.removeprefix("WARN: ") for text in texts if text.startswith("WARN: ")]
    notable = list(dict.fromkeys(text for text in own if not any(words in text for words in NOT_OUR_CONCERN)))
    if not notable:
        return ok("gymnasium", "its checker finds no fault")
    more = f" (and {len(notable) - 1} more)" if len(notable) > 1 else ""
    return warn("gymnasium", f"its checker warns: {one_line(notable[0])}{more}", "correct the env")


def _is_from_step(error: BaseException, env: Env) -> bool:
    """Whether the env itself raised this in a step."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code.co_name == "step" and frame.f_locals.get("self") is env for frame in frames)


def check_side_by_side(env: str | EnvMaker, env_kwargs: Mapping[str, Any] | None, spaces: Spaces) -> Finding:
    """Whether two envs can be stepped as one, with the infos of both joined."""
    try:
        envs = make_vector_env(env, 2, env_kwargs=env_kwargs)
    except (EnvError, ConfigError) as error:
        return fail("vector", str(error))
    rng = np.random.default_rng(0)
    try:
        observations = envs.reset(seed=0)[0]
        for _ in range(STEPS_SIDE_BY_SIDE):
            masks = spaces.action_masks(spaces.encode(observations)) if spaces.mask_size else None
            observations = envs.step(spaces.to_env_actions(random_actions(spaces, 2, rng, masks)))[0]
    except BaseException as error:
        raise_interrupts(error)
        problem = f"two envs side by side fail: {describe_error(error)}"
        return fail("vector", problem, "keep shapes, and the types of the values in info, the same in every step")
    finally:
        close_all(envs.close)
    return ok("vector", "two envs work side by side; async makes them in their own processes, without pickle")


def fitting_algorithms(spaces: Spaces, name: str) -> tuple[list[str], dict[str, str]]:
    """The algorithms that take these spaces, and why the others do not."""
    fitting, refusals = [], {}
    for algorithm in algorithm_names():
        try:
            get_spec(algorithm).check_spaces(spaces, name)
            fitting.append(algorithm)
        except RLTrainingError as error:  # another package may also register an algorithm that cannot be imported
            refusals[algorithm] = str(error)
    return fitting, refusals


def check_algorithms(spaces: Spaces, name: str) -> Finding:
    fitting, refusals = fitting_algorithms(spaces, name)
    if not fitting:
        return fail("algorithms", f"none fits: {next(iter(refusals.values()))}")
    return ok("algorithms", f"these fit: {', '.join(fitting)}")
