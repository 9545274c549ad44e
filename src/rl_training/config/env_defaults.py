"""Defaults by algorithm and kind of environment: what a run uses for settings that nobody gave, with `defaults: env`.

`rl-training train ppo --env ID` and `PPO("ID")` use them. docs/configuration.md lists them, and
docs/benchmarks/defaults.md measures them. The fields of the config classes have their own defaults, so presets, YAML
files and stored runs do not depend on these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from rl_training.config.algorithm_table import DISCRETE, get_algorithm
from rl_training.config.pixels import PIXEL_KEYS

Observations = Literal["table", "vector", "image", "small image"]
Actions = Literal["discrete", "continuous"]
Settings = dict[str, Any]

SMALLEST_FOR_CNN = 36  # pixels of a side: the convolutions of `nature` leave nothing of a smaller image
LARGEST_IMAGE = 96  # pixels of a side: a larger image costs more time than it tells
RESIZED = 84


class EnvKind(NamedTuple):
    """What the defaults depend on.

    `table` is one Discrete observation. `small image` has a side below 36 pixels. Everything that is not an image is a
    `vector`: a Box, and any Dict, Tuple or MultiDiscrete, which become one vector.
    """

    observations: Observations
    actions: Actions


def env_defaults(algo: str, kind: EnvKind) -> Settings:
    """The defaults of a run, nested like a config. What is not here has the default of its field."""
    row = get_algorithm(algo)
    family = "q-learning" if row.actions == DISCRETE else "actor-critic"
    if row.loop.startswith("on-policy"):
        family = "on-policy"
    layers = _OF_FAMILY[family]
    return _merged(layers["every"], layers.get(kind.observations, {}), *_own(algo, kind))


def image_options(shape: tuple[int, ...], env_kwargs: Mapping[str, Any], *, is_atari: bool) -> Settings:
    """The preprocessing of images of this shape, as a key of `env_kwargs`; nothing if they have one already."""
    if any(key in env_kwargs for key in PIXEL_KEYS):
        return {}
    if is_atari:
        return {"atari": True}
    too_large = max(_sides(shape)) > LARGEST_IMAGE
    if not _channels_last(shape) and not too_large:
        return {}
    return {"image": {"resize": RESIZED} if too_large else True}


def given_over_defaults(given: Settings, defaults: Settings) -> Settings:
    """The settings of a run: what is given wins. A default that does not fit what is given gives way."""
    merged = _merged(defaults, given)
    own = given.get("algo_kwargs", {})
    settings = merged.get("algo_kwargs", {})
    if "minibatch_size" in settings and "minibatch_size" not in own and "num_steps" in settings:
        settings["minibatch_size"] = min(settings["minibatch_size"], settings["num_steps"] * merged["num_envs"])
    if "buffer_size" in own and "batch_size" in settings and "batch_size" not in own:
        settings["batch_size"] = min(settings["batch_size"], own["buffer_size"])
    return merged


def image_side(shape: tuple[int, ...]) -> int:
    """The shorter side of an image, whichever end its channels are at."""
    return min(_sides(shape))


def _channels_last(shape: tuple[int, ...]) -> bool:
    return shape[-1] < shape[0]


def _sides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:2] if _channels_last(shape) else shape[1:]


def _own(algo: str, kind: EnvKind) -> list[Settings]:
    keys = ("every", kind.observations, kind.actions)
    sections = {"algo_kwargs": _OF_ALGORITHM.get(algo, {}), "model": _NETWORK_OF_ALGORITHM.get(algo, {})}
    return [{name: tables[key]} for name, tables in sections.items() for key in keys if key in tables]


def _merged(*layers: Mapping[str, Any]) -> Settings:
    """Later layers win. Sections are merged; any other value, schedules included, is replaced completely."""
    merged: Settings = {}
    for layer in layers:
        for name, value in layer.items():
            if name in ("model", "algo_kwargs", "env_kwargs"):
                value = {**merged.get(name, {}), **value}
            merged[name] = value
    return merged


# Tables: for every kind of environment, then for a kind of observations. What comes later wins.
_RELU: Settings = {"activation": "relu", "initialization": "torch"}
_NO_HIDDEN: Settings = {"model": {"hidden_sizes": ()}}
_OF_FAMILY: dict[str, dict[str, Settings]] = {
    "on-policy": {
        "every": {"num_envs": 8, "model": {"hidden_sizes": (64, 64)}},
        # Without a hidden layer, the network is a table with a row per state: no state disturbs another one.
        "table": _NO_HIDDEN,
        "vector": {"model": {"normalize_observations": True}},
        "image": {"model": {"hidden_sizes": (), "activation": "relu"}},
        "small image": {"model": {"encoder": "mlp"}},
    },
    "q-learning": {
        "every": {"num_envs": 1, "model": {"hidden_sizes": (128, 128), **_RELU}},
        # One hidden layer: what is learned about an action in one state carries over to states not seen yet.
        "table": {"model": {"hidden_sizes": (128,)}},
        "image": _NO_HIDDEN,
        "small image": {"model": {"encoder": "mlp"}},
    },
    "actor-critic": {
        "every": {"num_envs": 1, "model": {"hidden_sizes": (256, 256), **_RELU}},
        "image": {"algo_kwargs": {"buffer_size": 50_000}},
        "small image": {"model": {"encoder": "mlp"}},
    },
}
# `model` and `algo_kwargs` of each algorithm: also for a kind of actions, at the end.
_NETWORK_OF_ALGORITHM: dict[str, dict[str, Settings]] = {
    # A standard deviation of 1 would clip a third of all actions at the bounds of the environment.
    "ppo": {"continuous": {"initial_log_std": -0.5}},
    # Layer norm is what PQN has instead of a target network.
    "pqn": {"every": {**_RELU, "layer_norm": True}},
}
_ACTOR_CRITIC: Settings = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
# A policy without a spread of its own soon takes the largest action everywhere if its critic has seen too little.
_DETERMINISTIC: Settings = {**_ACTOR_CRITIC, "learning_starts": 1_000}
_Q_LEARNING: dict[str, Settings] = {
    "every": {
        "double": True,
        "learning_rate": 5e-4,
        "batch_size": 64,
        "train_frequency": 2,
        "buffer_size": 100_000,
        "target_update_every": 500,
        "exploration": {"start": 1.0, "end": 0.05, "over": 0.2},
    },
    # Large steps fill a table fast, and small ones at the end average over chance.
    "table": {"learning_rate": {"start": 2e-3, "end": 0.0}, "train_frequency": 1, "tau": 0.01},
    "image": {"learning_rate": 1e-4, "train_frequency": 4, "target_update_every": 1_000, "buffer_size": 50_000},
}
_ROLLOUTS: Settings = {"normalize_rewards": True}
_SURPRISES: Settings = {"entropy_coef": 0.01}  # with discrete actions a policy may stop exploring too early
_OF_ALGORITHM: dict[str, dict[str, Settings]] = {
    "ppo": {
        "every": {**_ROLLOUTS, "num_steps": 64, "minibatch_size": 64, "update_epochs": 10, "learning_rate": 3e-4},
        "table": {"learning_rate": 0.03, "num_steps": 16},
        "discrete": _SURPRISES,
        # Continuous actions are noisier: an update needs more of them.
        "continuous": {"num_steps": 256},
    },
    "a2c": {"every": _ROLLOUTS, "table": {"learning_rate": 0.03}, "discrete": _SURPRISES},
    "a3c": {"every": _ROLLOUTS, "table": {"learning_rate": 0.03}, "discrete": _SURPRISES},
    "impala": {"every": _ROLLOUTS, "table": {"learning_rate": 0.03}, "discrete": _SURPRISES},
    "appo": {"every": _ROLLOUTS, "table": {"learning_rate": 0.03}, "discrete": _SURPRISES},
    "acer": {"every": {**_ROLLOUTS, "optimizer": "adam", "learning_rate": 1e-3}, "table": {"learning_rate": 0.01}},
    "acktr": {"every": {**_ROLLOUTS, "max_kl": 0.01}, "discrete": _SURPRISES},
    "trpo": {"every": {**_ROLLOUTS, "num_steps": 128, "minibatch_size": 128}},
    "ppg": {
        "every": {**_ROLLOUTS, "num_steps": 128, "minibatch_size": 128, "update_epochs": 4},
        "table": {"learning_rate": 0.03},
        "discrete": _SURPRISES,
    },
    "recurrent_ppo": {"every": _ROLLOUTS, "discrete": _SURPRISES},
    "pqn": {
        "every": {**_ROLLOUTS, "num_steps": 32, "minibatch_size": 64, "update_epochs": 4, "learning_rate": 1e-3}
        | {"q_lambda": 0.9, "exploration": _Q_LEARNING["every"]["exploration"]},
        "image": {"learning_rate": 2.5e-4, "update_epochs": 2, "q_lambda": 0.65},
    },
    "dqn": _Q_LEARNING,
    "apex_dqn": _Q_LEARNING,
    "c51": _Q_LEARNING,
    "qr_dqn": {**_Q_LEARNING, "every": {**_Q_LEARNING["every"], "num_quantiles": 50}},
    "iqn": {**_Q_LEARNING, "every": {**_Q_LEARNING["every"], "num_taus": 16, "num_target_taus": 16}},
    "r2d2": {
        **_Q_LEARNING,
        "every": {name: value for name, value in _Q_LEARNING["every"].items() if name != "double"}
        | {"batch_size": 32, "train_frequency": 8, "target_update_every": 2_000}
        | {"sequence_length": 32, "burn_in": 8, "n_step": 3},
    },
    # Its noise explores, instead of random actions.
    "rainbow": {
        kind: {name: value for name, value in settings.items() if name != "exploration"}
        for kind, settings in _Q_LEARNING.items()
    },
    "ddpg": {"every": _DETERMINISTIC},
    "d4pg": {"every": _DETERMINISTIC},
    "apex_d4pg": {"every": _DETERMINISTIC},
    "td3": {"every": _DETERMINISTIC},
    "apex_td3": {"every": _DETERMINISTIC},
    "sac": {"every": {**_ACTOR_CRITIC, "temperature_learning_rate": 1e-3}},
    "naf": {"every": {"learning_rate": 1e-3}},
    "mpo": {"every": {"actor_learning_rate": 3e-4, "critic_learning_rate": 1e-3}},
}
