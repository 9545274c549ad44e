"""Observations as JSON, for `rl-training predict`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rl_training.errors import ConfigError, EnvError

if TYPE_CHECKING:
    import gymnasium as gym

    from rl_training.envs.spaces import Spaces


def parse_json(text: str, name: str) -> Any:
    """Parse strict JSON: NaN and Infinity, which Python accepts, are rejected."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not valid JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise ConfigError(f"{name}: not JSON ({error}), expected a list such as [0.1, 0, 0, 0]") from None
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
    space = " ".join(str(spaces.observation_space).split())
    raise ConfigError(f"{name}: {problem}; pass one observation of {space}, or a list of them")


def _problem_of(samples: list[Any], spaces: Spaces) -> str | None:
    try:
        spaces.encode(samples)
    except EnvError as error:
        return str(error)
    except KeyError as error:
        return f"the key {error} is missing"
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        return " ".join(str(error).split())
    return None


def _as_sample(value: Any, space: gym.Space[Any]) -> Any:
    from gymnasium import spaces as kinds

    if isinstance(space, kinds.Dict) and isinstance(value, dict):
        return {key: _as_sample(item, space[key]) if key in space.spaces else item for key, item in value.items()}
    if isinstance(space, kinds.Tuple) and isinstance(value, list) and len(value) == len(space.spaces):
        return tuple(_as_sample(item, inner) for item, inner in zip(value, space.spaces, strict=True))
    return value
