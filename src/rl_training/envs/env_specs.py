"""Finding the registered spec of an env id."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from types import ModuleType

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rl_training.errors import EnvError, install_hint, raise_interrupts
from rl_training.text import describe_error, one_line

LONGEST_SHOWN_ID = 100
# Packages whose envs have names that begin so, and that register them only when they are imported.
PACKAGES_OF_ENVS = {
    "Fetch": "gymnasium_robotics",
    "Hand": "gymnasium_robotics",
    "Adroit": "gymnasium_robotics",
    "PointMaze": "gymnasium_robotics",
    "AntMaze": "gymnasium_robotics",
    "FrankaKitchen": "gymnasium_robotics",
    "MiniGrid": "minigrid",
    "BabyAI": "minigrid",
    "highway": "highway_env",
}
MOST_SHOWN_IDS = 5


def find_spec(env_id: str) -> EnvSpec:
    """The spec of `EnvId` or `module:EnvId`.

    It is looked up here because Gymnasium's own lookup prints warnings about old versions.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        _import_for(env_id, module)
    elif name.startswith("ALE/") or "NoFrameskip-v" in name:
        _register_atari(env_id)
    if name in gym.registry:
        return gym.registry[name]
    own = _registered_by(module) if module else []
    nearest = _nearest(name, own or list(gym.registry.values()))
    if nearest is not None and nearest.rpartition("-v")[0] == name:
        return gym.registry[nearest]
    raise EnvError(f"env {shown_id(env_id)} is not registered: {_hint(module, name, nearest, own)}")


def _hint(module: str, name: str, nearest: str | None, own: list[EnvSpec]) -> str:
    """What to write instead. An env of a module keeps its prefix: without it, the module would not be imported."""
    prefix = f"{module}:" if module else ""
    if nearest:
        return f"did you mean {shown_id(prefix + nearest)}?"
    if own:
        return f"{shown_id(module)} registers {', '.join(shown_id(prefix + spec.id) for spec in own[:MOST_SHOWN_IDS])}"
    if module:
        return f"{shown_id(module)} does not register it; call gymnasium.register('NAME-v0', entry_point=...) there"
    package = next((package for start, package in PACKAGES_OF_ENVS.items() if name.startswith(start)), None)
    if package is not None:
        return f"did you mean {shown_id(f'{package}:{name}')}?"
    return "use 'module:EnvId' for an env that your module registers"


def _registered_by(module: str) -> list[EnvSpec]:
    """The specs whose envs are made by code of the package that the module is in."""
    package = module.partition(".")[0]
    found = []
    for spec in gym.registry.values():
        maker = spec.entry_point or spec.vector_entry_point
        place = maker.partition(":")[0] if isinstance(maker, str) else getattr(maker, "__module__", None)
        if isinstance(place, str) and place.partition(".")[0] == package:
            found.append(spec)
    return found


def shown_id(env_id: str) -> str:
    """An env id for messages, in quotes and not too long."""
    return repr(one_line(env_id, LONGEST_SHOWN_ID))


def import_user_module(name: str) -> ModuleType:
    """Import a module that the user named. The working directory comes last, so it hides no installed module."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        here, package = os.getcwd(), name.partition(".")[0]
        is_here = os.path.isfile(os.path.join(here, f"{package}.py")) or os.path.isdir(os.path.join(here, package))
        if error.name != package or not is_here or "" in sys.path or here in sys.path:
            raise
        sys.path.append(here)
        importlib.invalidate_caches()
        return importlib.import_module(name)


def _import_for(env_id: str, module: str) -> None:
    try:
        import_user_module(module)
    except BaseException as error:
        raise_interrupts(error)
        if module == "gymnasium_robotics" and isinstance(error, ImportError):
            raise EnvError(f"env {shown_id(env_id)} is not there: {install_hint('robotics')}") from error
        raise EnvError(
            f"env {shown_id(env_id)}: importing {shown_id(module)} failed with {describe_error(error, 500)}: "
            "fix it, install it, or add its directory to PYTHONPATH"
        ) from error


def _register_atari(env_id: str) -> None:
    try:
        gym.register_envs(importlib.import_module("ale_py"))
    except ImportError as error:
        raise EnvError(f"env {shown_id(env_id)} needs Atari: {install_hint('atari')}") from error


def _nearest(name: str, specs: list[EnvSpec]) -> str | None:
    """The id that is most similar, in its newest version."""
    newest: dict[str, EnvSpec] = {}
    for spec in specs:
        family = spec.id.rpartition("-v")[0] if spec.version is not None else spec.id
        if family not in newest or (spec.version or 0) > (newest[family].version or 0):
            newest[family] = spec
    head, _, version = name.rpartition("-v")
    wanted = head if version.isdigit() else name
    if wanted in newest:
        return newest[wanted].id
    lower = {family.lower(): spec.id for family, spec in newest.items()}
    close = difflib.get_close_matches(wanted.lower(), lower, n=1)
    return lower[close[0]] if close else None
