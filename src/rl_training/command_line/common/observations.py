"""Observations as JSON, for `rl-training predict`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rl_training.errors import ConfigError, EnvError
from rl_training.text import one_line, reason

if TYPE_CHECKING:
    import gymnasium as gym

    from rl_training.envs.spaces import Spaces


LONGEST_INPUT = 64 * 2**20  # bytes; thousands of observations


def read_stdin() -> str:
    """All of stdin as text."""
    stream = getattr(sys.stdin, "buffer", sys.stdin)
    try:
        data = stream.read(LONGEST_INPUT + 1)
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("stdin: not UTF-8, pass an observation as JSON such as [0.1, 0, 0, 0]") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"stdin: cannot be read ({reason(error)}), pass the observation with --obs") from None
    if len(data) > LONGEST_INPUT:
        raise ConfigError(f"stdin: more than {LONGEST_INPUT // 2**20} MB, pass fewer observations at once")
    return text


def parse_json(text: str, name: str) -> Any:
    """Parse strict JSON: NaN and Infinity, which Python accepts, are rejected."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not valid JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise ConfigError(
            f"{name}: not JSON ({one_line(error, 100)}), expected a list such as [0.1, 0, 0, 0]"
        ) from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply") from None


def to_observation(value: Any, spaces: Spaces, name: str) -> Any:
    """Convert JSON to one observation, or to a list of observations.

    JSON has no tuples, so a list for a Tuple space is one observation if it fits, and a batch otherwise.
    """
    single = _as_sample(value, spaces.observation_space)
    problem = _problem_of([single], spaces)
    if problem is None:
        return single
    if isinstance(value, list) and value:
        samples = [_as_sample(item, spaces.observation_space) for item in value]
        if _problem_of(samples, spaces) is None:
            return samples
    expected = _expected(spaces.observation_space)
    if spaces.observation_space.shape is not None:
        problem = _given(value)
    raise ConfigError(f"{name}: {problem}, expected one observation ({expected}) or a list of them")


def _given(value: Any) -> str:
    """What is wrong with a value that should be an array of numbers: its kind, or its shape."""
    if isinstance(value, (dict, str)) or value is None:
        return "it is not a list of numbers"
    import numpy as np

    try:
        array = np.asarray(value)
    except ValueError:
        return "the lists in it differ in length"
    if array.dtype.kind not in "biuf":
        return "it contains values that are not numbers"
    return f"it has shape {array.shape}"


def _expected(space: gym.Space[Any]) -> str:
    from gymnasium import spaces as kinds

    if isinstance(space, kinds.Dict):
        return "an object with the keys " + one_line(", ".join(map(str, space.spaces)), 200)
    if isinstance(space, kinds.Tuple):
        return f"a list of {len(space.spaces)} parts"
    if isinstance(space, kinds.Discrete):
        return f"an integer from {space.start} to {space.start + space.n - 1}"
    return f"shape {space.shape}" if space.shape else one_line(space, 200)


def _problem_of(samples: list[Any], spaces: Spaces) -> str | None:
    try:
        spaces.encode(samples)
    except EnvError as error:
        return one_line(error, 200)
    except KeyError as error:
        return f"the key {error} is missing"
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        return one_line(error, 200)
    return None


def _as_sample(value: Any, space: gym.Space[Any]) -> Any:
    from gymnasium import spaces as kinds

    if isinstance(space, kinds.Dict) and isinstance(value, dict):
        return {key: _as_sample(item, space[key]) if key in space.spaces else item for key, item in value.items()}
    if isinstance(space, kinds.Tuple) and isinstance(value, list) and len(value) == len(space.spaces):
        return tuple(_as_sample(item, inner) for item, inner in zip(value, space.spaces, strict=True))
    return value
