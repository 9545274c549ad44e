"""The one declaration of each algorithm: a row that says its name, title, paper, loop and actions.

Everything else follows from the row: the address of the config class and of the learner, the exports of `rl_training`,
`rl_training.api` and `rl_training.algorithms`, `trainer(name)`, `rl-training list algorithms` and the table in the
README. This module imports neither torch nor gymnasium; a part is imported when it is first used.

Another package adds an algorithm with an entry point in the group `rl_training.algorithms` whose object is an
`Algorithm`. A script adds one with `register`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

from rl_training.errors import ConfigError, raise_interrupts
from rl_training.text import clean_text, describe_error

if TYPE_CHECKING:
    from rl_training.config.base import AlgorithmConfig

ENTRY_POINT_GROUP = "rl_training.algorithms"
OF_YOUR_OWN = "an algorithm of your own must be installed or registered (docs/own-algorithm.md)"

LoopKind = Literal["on-policy", "replay", "on-policy, replay"]
ActionKind = Literal["discrete", "multi_discrete", "multi_binary", "box"]
Mode = Literal["lockstep", "pipelined", "async"]

SPACE_NAMES: dict[ActionKind, str] = {
    "discrete": "Discrete",
    "multi_discrete": "MultiDiscrete",
    "multi_binary": "MultiBinary",
    "box": "Box",
}
DISCRETE: tuple[ActionKind, ...] = ("discrete",)
CONTINUOUS: tuple[ActionKind, ...] = ("box",)
EVERY_ACTION: tuple[ActionKind, ...] = tuple(SPACE_NAMES)
# How actors may take turns with the learner. More than lockstep have algorithms that correct for stale rollouts, that
# learn from gradients of actors, or from replay that each actor fills at its own pace.
LOCKSTEP: tuple[Mode, ...] = ("lockstep",)
EVERY_MODE: tuple[Mode, ...] = ("lockstep", "pipelined", "async")
NOT_PIPELINED: tuple[Mode, ...] = ("lockstep", "async")


@dataclass(frozen=True)
class Algorithm:
    """One row of the table.

    `config` and `learner` are addresses, `module:attribute`, or classes. Without them the algorithm `x` has its config,
    `XConfig`, in `rl_training/config/algorithms/x.py`, and its learner, `X`, in `rl_training/algorithms/x.py`. If it
    shares these files with another algorithm, `file` is their name.
    """

    name: str
    title: str
    paper: str
    loop: LoopKind
    actions: tuple[ActionKind, ...]
    class_name: str = ""
    room: str = "algorithms"
    file: str = ""
    config: str | type[Any] = ""
    learner: str | type[Any] = ""
    modes: tuple[Mode, ...] = LOCKSTEP

    def __post_init__(self) -> None:
        file, class_name = self.file or self.name, self.class_name or self.name.upper()
        derived = {
            "class_name": class_name,
            "config": f"rl_training.config.algorithms.{file}:{class_name}Config",
            "learner": f"rl_training.{self.room}.{file}:{class_name}",
        }
        for field, value in derived.items():
            if not getattr(self, field):
                object.__setattr__(self, field, value)

    @property
    def action_names(self) -> list[str]:
        """The action spaces it takes, as Gymnasium calls them."""
        return [SPACE_NAMES[kind] for kind in self.actions]


# fmt: off
_ROWS = (
    Algorithm("ppo", "Proximal policy optimization", "arXiv:1707.06347", "on-policy", EVERY_ACTION),
    Algorithm("a2c", "Advantage actor-critic", "arXiv:1602.01783", "on-policy", EVERY_ACTION),
    Algorithm("a3c", "Asynchronous advantage actor-critic", "arXiv:1602.01783", "on-policy", EVERY_ACTION,
              modes=NOT_PIPELINED),
    Algorithm("impala", "Importance-weighted actor-learner (V-trace)", "arXiv:1802.01561", "on-policy", EVERY_ACTION,
              modes=EVERY_MODE),
    Algorithm("appo", "Asynchronous proximal policy optimization (V-trace)", "arXiv:2006.11751", "on-policy",
              EVERY_ACTION, modes=EVERY_MODE),
    Algorithm("trpo", "Trust region policy optimization", "arXiv:1502.05477", "on-policy", EVERY_ACTION),
    Algorithm("acktr", "Actor-critic with Kronecker-factored trust region", "arXiv:1708.05144", "on-policy",
              EVERY_ACTION),
    Algorithm("acer", "Actor-critic with experience replay", "arXiv:1611.01224", "on-policy, replay", DISCRETE),
    Algorithm("ppg", "Phasic policy gradient", "arXiv:2009.04416", "on-policy", EVERY_ACTION),
    Algorithm("recurrent_ppo", "Proximal policy optimization with memory", "arXiv:1707.06347", "on-policy",
              EVERY_ACTION, class_name="RecurrentPPO", room="contrib"),
    Algorithm("pqn", "Parallelized Q-learning without replay", "arXiv:2407.04811", "on-policy", DISCRETE),
    Algorithm("dqn", "Deep Q-learning", "Nature 518 (2015)", "replay", DISCRETE),
    Algorithm("apex_dqn", "Ape-X: distributed prioritized replay, with DQN", "arXiv:1803.00933", "replay", DISCRETE,
              class_name="ApexDQN", modes=NOT_PIPELINED),
    Algorithm("c51", "Distributional Q-learning (C51)", "arXiv:1707.06887", "replay", DISCRETE),
    Algorithm("qr_dqn", "Quantile regression Q-learning", "arXiv:1710.10044", "replay", DISCRETE, class_name="QRDQN"),
    Algorithm("iqn", "Implicit quantile Q-learning", "arXiv:1806.06923", "replay", DISCRETE),
    Algorithm("rainbow", "Rainbow: six improvements of deep Q-learning", "arXiv:1710.02298", "replay", DISCRETE,
              class_name="Rainbow"),
    Algorithm("r2d2", "Recurrent replay distributed Q-learning", "OpenReview r1lyTjAqYX",
              "replay", DISCRETE),
    Algorithm("ddpg", "Deep deterministic policy gradient", "arXiv:1509.02971", "replay", CONTINUOUS),
    Algorithm("d4pg", "Distributional deterministic policy gradient", "arXiv:1804.08617", "replay", CONTINUOUS),
    Algorithm("apex_d4pg", "Ape-X: distributed prioritized replay, with D4PG", "arXiv:1804.08617", "replay",
              CONTINUOUS, class_name="ApexD4PG", modes=NOT_PIPELINED),
    Algorithm("td3", "Twin delayed DDPG", "arXiv:1802.09477", "replay", CONTINUOUS),
    Algorithm("apex_td3", "Ape-X: distributed prioritized replay, with TD3", "arXiv:1803.00933", "replay", CONTINUOUS,
              class_name="ApexTD3", modes=NOT_PIPELINED),
    Algorithm("sac", "Soft actor-critic", "arXiv:1801.01290", "replay", CONTINUOUS),
    Algorithm("naf", "Normalized advantage functions", "arXiv:1603.00748", "replay", CONTINUOUS),
    Algorithm("mpo", "Maximum a posteriori policy optimization", "arXiv:1806.06920", "replay", CONTINUOUS),
    Algorithm("tqc", "Truncated quantile critics", "arXiv:2005.04269", "replay", CONTINUOUS),
    Algorithm("td7", "TD3 with learned embeddings, LAP replay and a kept best policy", "arXiv:2306.02451", "replay",
              CONTINUOUS),
    Algorithm("crossq", "SAC with batch norm and without target networks", "arXiv:1902.05605", "replay", CONTINUOUS,
              class_name="CrossQ"),
    Algorithm("redq", "Randomized ensembled double Q-learning", "arXiv:2101.05982", "replay", CONTINUOUS),
    Algorithm("droq", "REDQ with dropout", "arXiv:2110.02034", "replay", CONTINUOUS, class_name="DroQ",
              file="redq"),
)
# fmt: on

ALGORITHMS: dict[str, Algorithm] = {row.name: row for row in _ROWS}


def register(algorithm: Algorithm) -> None:
    """Add an algorithm for this process, so that configs, `train` and the managed API know its name."""
    for taken, name in ((algorithm_names(), algorithm.name), (class_names(), algorithm.class_name)):
        if name in taken:
            raise ConfigError(f"algo: {name} is already registered, choose another name", key="algo")
    ALGORITHMS[algorithm.name] = algorithm


def algorithm_names() -> list[str]:
    """The algorithms of the table in its order, then those of other packages by name."""
    others = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return [*ALGORITHMS, *sorted(others - ALGORITHMS.keys())]


def get_algorithm(name: str) -> Algorithm:
    """The row of an algorithm; an unknown name is a ConfigError that lists the known ones."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            algorithm = point.load()
        except BaseException as error:
            raise_interrupts(error)
            raise ConfigError(
                f"algo: {name} of {point.value} cannot be imported ({describe_error(error, 200)}); fix or uninstall it",
                key="algo",
            ) from error
        if not isinstance(algorithm, Algorithm):
            raise ConfigError(f"algo: {name} of {point.value} is not an {__name__}.Algorithm", key="algo")
        return algorithm
    names = algorithm_names()
    nearest = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise ConfigError(
        f"algo: unknown algorithm {clean_text(name, 60)!r}, expected one of {', '.join(names)}; {OF_YOUR_OWN}{hint}",
        key="algo",
    )


def usable_algorithms() -> tuple[list[Algorithm], list[ConfigError]]:
    """The rows of all algorithms, and why those of other packages that cannot be imported are not among them."""
    rows: list[Algorithm] = []
    problems: list[ConfigError] = []
    for name in algorithm_names():
        try:
            rows.append(get_algorithm(name))
        except ConfigError as error:
            problems.append(error)
    return rows, problems


def class_names() -> dict[str, str]:
    """Class name -> name of every algorithm in the table: what the packages export."""
    return {row.class_name: row.name for row in ALGORITHMS.values()}


def get_config_class(name: str) -> type[AlgorithmConfig]:
    """The config class of an algorithm, without importing torch."""
    config_class: type[AlgorithmConfig] = resolve(get_algorithm(name).config)
    return config_class


def resolve(address: str | type[Any]) -> Any:
    """What `module:attribute` names; a class is its own address."""
    if not isinstance(address, str):
        return address
    module, _, attribute = address.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except BaseException as error:
        raise_interrupts(error)
        if module.partition(".")[0] == __name__.partition(".")[0]:
            raise
        problem = describe_error(error, 200)
        raise ConfigError(f"algo: {address} cannot be imported ({problem}); fix or uninstall it", key="algo") from error
