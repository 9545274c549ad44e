"""A grammar of command lines, derived from the CLI's own definition: a new command or option is covered by itself."""

from __future__ import annotations

import random
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer.main

from fuzz_tree import (
    BAND,
    CONFIG,
    CRASH_FILE,
    CRASHED,
    DQN,
    MANIFEST,
    OWN,
    PPO,
    PRESET,
    REPLAY_CONFIG,
    RESULTS,
    ZOO_RUNS,
)
from fuzz_values import BY_TYPE, OBSERVATIONS, WORDS
from rl_training.command_line.app import app
from rl_training.config.algorithm_table import ALGORITHMS, get_config_class
from rl_training.config.train_config import TrainConfig

READING = ("inspect", "predict", "diagnose", "list", "zoo list", "zoo table", "zoo bands", "zoo run")  # they run no env
TRAINING = ("train", "resume", "check")

TARGETS = (PPO, DQN, OWN, CRASHED, "ppo", "latest", "best", f"{PPO}/checkpoints/step-000000000064", "runs/none")
SOUND: dict[str, tuple[str, ...]] = {
    "TARGET": TARGETS,
    **dict.fromkeys(("RUN", "RUN...", "[RUN]...", "GROUP"), (*TARGETS[:6], "runs")),
    "CONFIG": (CONFIG, REPLAY_CONFIG, "ppo/cartpole", "dqn/cartpole"),
    "PRESET": (PRESET,),
    "MANIFEST": (MANIFEST, "classic"),
    "FILE": (CRASH_FILE,),
    "ENV": ("CartPole-v1", "fuzz_envs:Calm-v0", "fuzz_envs:RaisesInStep-v0"),
    "ALGORITHM": tuple(ALGORITHMS),
    "--band": (BAND,),
    "--budget-fraction": ("1", "0.5"),
    "--checkpoint": ("best", "latest"),
    "--config": (CONFIG,),
    "--episodes": ("1", "2"),
    "--fps": ("10", "60"),
    "--gif": ("new.gif", f"{PPO}/play.gif"),
    "--by": ("seed", "gamma"),
    "--jobs": ("1",),
    "--logdir": ("written",),
    "--metric": ("mean_return", "loss", "eval_mean_return"),
    "--mp4": ("new.mp4",),
    "--obs": OBSERVATIONS[:2],
    "--only": ("calm", "ppo"),
    "--output": ("new.png", "new.html", "new.svg"),
    "--results": (RESULTS,),
    "--seed": ("0", "7"),
    "--seconds": ("0.05", "0.1"),
    "--seeds": ("1", "3"),
    "--total-timesteps": ("64", "96"),
    "--actors": ("1", "2"),
    "--trust": ("fuzz_parts", "fuzz_exits"),
    "--write": ("written",),
}
# Needed in every call of a command: they keep its work small, or keep it from starting processes.
ALWAYS = {
    "train": ["--output-dir", "runs", "--total-timesteps", "64", "--quiet"],
    "resume": ["--quiet"],
    "check": ["--output-dir", "runs", "--quiet"],
    "zoo run": ["--dry-run", "--output-dir", ZOO_RUNS],
    "zoo table": ["--output-dir", ZOO_RUNS, "--seeds", "3"],
    "zoo bands": ["--output-dir", ZOO_RUNS, "--seeds", "3", "--write", "written"],
    "eval": ["--episodes", "1"],
    "doctor": ["--seconds", "0.05"],
    "tensorboard": ["--logdir", "written", "--no-serve"],
    "dashboard": ["--export", "new.html"],
    "plot": ["--output", "new.png"],
}
# A large number here is a request for honest work, and one call in a case is enough.
SMALL_ONLY = (
    "--seeds",
    "--seconds",
    "--episodes",
    "--total-timesteps",
    "--jobs",
    "--gif",
    "--mp4",
    "--output-dir",
    "--write",
)
SECTIONED = ("model.hidden_sizes", "model.encoder", "runtime.actors", "runtime.mode", "env_kwargs.action_masks")
SETTINGS = sorted({*TrainConfig.model_fields, *get_config_class("ppo").model_fields, *SECTIONED, "nonsense"})


@cache
def commands() -> dict[str, Any]:
    """Every command by its full name, such as `zoo table`."""
    found = {}
    waiting = [("", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        if hasattr(command, "commands"):
            waiting += [(f"{name} {word}".strip(), child) for word, child in command.commands.items()]
        else:
            found[name] = command
    return dict(sorted(found.items()))


def type_of(command: Any, parameter: Any) -> str:
    """integer, float, path, choice or text, from the annotation of the function behind the command."""
    hint = get_type_hints(command.callback)[parameter.name]
    kinds = {kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)}
    names = {int: "integer", float: "float", Path: "path"}
    return next((names.get(kind, "choice") for kind in kinds if kind in names or issubclass(kind, Enum)), "text")


def name_of(arguments: list[str]) -> str:
    """The command that an argument list calls; an empty string if it calls none."""
    for count in (2, 1):
        if (name := " ".join(arguments[:count])) in commands():
            return name
    return ""


def command_line(dice: random.Random, name: str, hostility: float = 0.0, **given: str) -> list[str]:
    """A call of a command. `given` fixes arguments by metavar; a share `hostility` of the other values is hostile."""
    positional, options = [], []
    command = commands()[name]
    always = list(ALWAYS.get(name, []))
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            metavar = parameter.metavar or parameter.name.upper()
            if metavar in given:
                positional.append(given[metavar])
            elif parameter.required or dice.random() < 0.7:
                positional.append(_value(dice, type_of(command, parameter), metavar, hostility))
        elif "--help" not in parameter.opts:
            options += _option(dice, command, parameter, hostility, given, always)
    arguments = [*name.split(), *positional, *options, *always]
    if dice.random() < hostility / 4:
        arguments.insert(dice.randrange(len(arguments) + 1), dice.choice(WORDS))
    return arguments


def _option(
    dice: random.Random, command: Any, parameter: Any, hostility: float, given: dict[str, str], always: list[str]
) -> list[str]:
    name = parameter.opts[0]
    if name in given:
        return [name, given[name]]
    if name in always:
        if name not in SMALL_ONLY or dice.random() > hostility / 3:
            return []
        place = always.index(name)
        del always[place : place + 2]
    elif not parameter.required and dice.random() > 0.15 + hostility / 2:
        return []
    if parameter.is_flag:
        return [dice.choice([*parameter.opts, *parameter.secondary_opts])]
    if name == "--output-dir" and dice.random() >= hostility:
        return [name, str(parameter.default or "runs")]
    return [name, _value(dice, type_of(command, parameter), name, hostility)]


def _value(dice: random.Random, kind: str, name: str, hostility: float) -> str:
    sound = SOUND.get(name, ("1",) if kind in ("integer", "float") else ())
    if name == "--set":
        key = dice.choice(SETTINGS)
        hostile = dice.random() < hostility
        return f"{key}={dice.choice((*WORDS, *BY_TYPE['float'], '[8000, 8000]') if hostile else ('1', '0.5', 'null'))}"
    if sound and dice.random() >= hostility:
        return dice.choice(sound)
    if name == "--obs":
        return dice.choice(OBSERVATIONS)
    pool = BY_TYPE.get(kind, WORDS)
    if name in SMALL_ONLY:
        pool = tuple(word for word in pool if not word.strip().isdigit() or int(word[:20]) < 100)
    return dice.choice(pool)
