"""Load a checked `TrainConfig` from a preset, a file or a mapping, with overrides."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rl_training.config import yaml_text
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.base import Schedule
from rl_training.config.messages import ConfigRow, config_rows, printable, sections
from rl_training.config.model_config import with_new_names
from rl_training.config.train_config import TrainConfig
from rl_training.config.yaml_text import Document
from rl_training.errors import ConfigError
from rl_training.program import call, program
from rl_training.storage.durable_files import atomic_write_text
from rl_training.text import clean_text

SUFFIXES = (".yaml", ".yml")
# An override adds keys to these mappings. It replaces any other value completely, schedules included.
SECTIONS = ("runtime", "model", "algo_kwargs", "env_kwargs", "eval_env_kwargs")
LONGEST_PATH = 200


def load_config(
    source: str | Path | Mapping[str, Any] | TrainConfig,
    *overrides: Mapping[str, Any] | Sequence[str],
) -> TrainConfig:
    """Load a config: `overrides` replace values of `source`, which replaces the defaults. It is validated once.

    `source` is a packaged preset (`ppo/cartpole`), the path of a YAML file, a mapping or a `TrainConfig`.
    Overrides apply in order. Each is a mapping with dotted or nested keys, or a sequence of `key=value` texts with
    YAML values. Settings of the algorithm and of the model need no prefix: `gamma` means `algo_kwargs.gamma`.

    >>> config = load_config("ppo/cartpole", {"gamma": 0.97, "num_envs": 16})
    >>> config.env_id, config.algo_kwargs.gamma, config.num_envs
    ('CartPole-v1', 0.97, 16)
    >>> load_config("ppo/cartpole", ["gama=0.97"])
    Traceback (most recent call last):
        ...
    rl_training.errors.ConfigError: gama: ...gamma...
    """
    name, document = _read(source)
    data = _plain(document.data)
    if "model" in data:
        data["model"] = with_new_names(data["model"])
    touched = _apply(data, [pair for each in overrides for pair in _as_pairs(each)])
    _unpin_backend(document.data, data, touched)
    try:
        return TrainConfig.model_validate(data)
    except ConfigError as error:
        if name is None or error.key is None or _is_touched(error.key, touched):
            raise
        _refuse_another_algorithm(document.data, data.get("algo"), name)
        line = document.lines.get(error.key)
        where = name if line is None else f"{name}, line {line}"
        raise ConfigError(f"{where}: {error}", key=error.key) from None


def list_presets() -> list[str]:
    """The sorted names of the packaged presets."""
    return sorted(_presets())


def save_config(config: TrainConfig, path: str | Path) -> None:
    """Write every resolved value in field order, durably: the file is replaced completely or not at all."""
    try:
        atomic_write_text(path, yaml_text.dump(config.model_dump(mode="json")))
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror}); free some space or choose another output_dir"
        ) from None


def describe_config(algo: str) -> list[ConfigRow]:
    """One row (key, type, default, description) for each setting of a run with this algorithm."""
    return config_rows(TrainConfig, algo)


def _read(source: str | Path | Mapping[str, Any] | TrainConfig) -> tuple[str | None, Document]:
    """The name of the source in error messages, and its content."""
    if isinstance(source, (Mapping, TrainConfig)):
        return None, Document(source, {})
    text = str(source)
    shown = shown_path(text)
    is_file = os.path.isfile(text)
    preset = _presets().get(preset_name(text))
    # `ppo/cartpole.yaml` is the file if it exists; `ppo/cartpole` is the preset even if such a file exists.
    if is_file and (preset is None or text.endswith(SUFFIXES)):
        return shown, yaml_text.read_file(Path(text), shown)
    if preset is not None:
        return shown, yaml_text.read_file(preset, shown)
    if own := _presets_of(preset_name(text)):
        raise ConfigError(
            f"{shown}: is an algorithm, pass its environment (`--env LunarLander-v3`), one of its presets ({own}) "
            "or a YAML file"
        )
    problem = "no such file" if text.endswith(SUFFIXES) else "no such preset or file"
    hint = _instead_of(preset_name(text))
    raise ConfigError(f"{shown}: {problem}{hint} (`{call('list', 'configs')}` shows the presets)")


def shown_path(text: str) -> str:
    """A path for error messages. A long one loses its beginning, because its end identifies the file."""
    text = clean_text(text, limit=None)
    return text if len(text) <= LONGEST_PATH else "..." + text[-LONGEST_PATH:]


def _preset_root() -> Path:
    return Path(str(files("rl_training") / "assets" / "configs"))


def _presets() -> dict[str, Path]:
    root = _preset_root()
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in root.rglob("*.yaml")}


def _instead_of(name: str) -> str:
    """What was probably meant by the name of a preset that does not exist; empty if nothing is near."""
    algo = name.partition("/")[0]
    own = _presets_of(algo)
    among = [preset for preset in _presets() if not own or preset.startswith(f"{algo}/")]
    if nearest := difflib.get_close_matches(name, among, n=1, cutoff=0.8 if own else 0.6):
        return f", did you mean {nearest[0]}?"
    # `sac/cartpole` is near `a3c/cartpole`, but whoever wrote it wants SAC.
    other = call("train", algo, "--env", "ID")
    return f", the presets of {algo} are {own}; for another environment: `{other}`" if own else ""


def _presets_of(algo: str, most: int = 4) -> str:
    """Some presets of an algorithm, in words; empty if the name is not an algorithm or has none."""
    names = [name for name in list_presets() if name.startswith(f"{algo}/")]
    return ", ".join([*names[:most], f"... ({len(names)} in all)"] if len(names) > most else names)


def _refuse_another_algorithm(source: Mapping[str, Any], new: Any, name: str) -> None:
    """An override of `algo` cannot work if the other settings belong to the old one: say what to run instead."""
    old = source.get("algo")
    if old == new or not all(isinstance(algo, str) and algo in ALGORITHMS for algo in (old, new)):
        return
    same_env = f"{new}/{preset_name(name).rpartition('/')[2]}"
    advice = same_env if same_env in _presets() else f"PRESET` with one of its presets: `{_presets_of(new)}"
    raise ConfigError(
        f"algo: {name} has settings of {old} that {new} does not have; use `{program()} train {advice}`", key="algo"
    )


def preset_name(text: str) -> str:
    """The preset of a path in the repository: `configs/ppo/cartpole.yaml` means `ppo/cartpole` everywhere."""
    return text.replace("\\", "/").removeprefix("./").removeprefix("configs/").removesuffix(".yaml")


def _plain(value: Any) -> Any:
    """A deep copy with models as mappings, so that overrides never change the caller's data."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _as_pairs(overrides: Mapping[str, Any] | Sequence[str]) -> list[tuple[str, Any]]:
    if isinstance(overrides, Mapping):
        return [(str(key), _plain(value)) for key, value in overrides.items()]
    if isinstance(overrides, str):
        overrides = [overrides]
    pairs = []
    for text in overrides:
        key, equals, value = str(text).partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"override {printable(text)}: expected key=value, such as seed=1")
        try:
            pairs.append((key, yaml_text.parse(value, printable(key, quoted=False), show_line=False).data))
        except ConfigError as error:
            message = f"{error}, in {printable(value)}; quote special characters"
            raise ConfigError(message, key=key) from error
    return pairs


def _apply(data: dict[str, Any], changes: list[tuple[str, Any]]) -> set[str]:
    """Apply the changes to `data` and return the dotted keys that they set."""
    # Set the algorithm first: it decides what a name without prefix means.
    for key, value in changes:
        if key == "algo":
            data["algo"] = value
    places = sections(TrainConfig, data.get("algo"))
    single: list[tuple[str, Any]] = []
    for key, value in changes:
        key = _full_key(key, places)
        if key == "model.orthogonal_init" and isinstance(value, bool):
            key, value = "model.initialization", with_new_names({"orthogonal_init": value})["initialization"]
        if key == "model":
            value = with_new_names(value)
        if key in SECTIONS and isinstance(value, dict):
            single += [(f"{key}.{name}", item) for name, item in value.items()]
        else:
            single.append((key, value))
    for key, value in single:
        _refuse_part_of_unknown(data, key, places["algo_kwargs"])
        _set(data, key, value, places["algo_kwargs"])
    return {key for key, _ in single}


def _unpin_backend(source: Mapping[str, Any] | TrainConfig, data: dict[str, Any], touched: set[str]) -> None:
    """Let another environment than that of the source choose its own vector backend, unless an override names one."""
    if "env_id" in touched and "vector_backend" not in touched and "vector_backend" in data:
        old = source.env_id if isinstance(source, TrainConfig) else source.get("env_id")
        if old is not None and old != data["env_id"]:
            data["vector_backend"] = backend_for_another_env(data["vector_backend"])


def backend_for_another_env(backend: Any) -> Any:
    """The vector backend of a config whose environment is replaced: another one may not have the same vector class."""
    return "auto" if backend in ("native", "batched", "envpool") else backend


def _full_key(key: str, places: Mapping[str, type[BaseModel]]) -> str:
    head = key.partition(".")[0]
    if head in TrainConfig.model_fields:
        return key
    if head == "orthogonal_init":  # its name in older versions, which `initialization` replaces
        return f"model.{key}"
    homes = [section for section in ("algo_kwargs", "model") if head in places[section].model_fields]
    return f"{homes[0]}.{key}" if len(homes) == 1 else key


def _set(data: dict[str, Any], key: str, value: Any, algorithm: type[BaseModel]) -> None:
    *parents, last = key.split(".")
    for depth, name in enumerate(parents):
        inner = data.get(name, {})
        if inner is None and parents[: depth + 1] == ["model", "critic"]:
            inner = {}
        if depth == 1 and parents[0] == "algo_kwargs":
            inner = _editable(inner, name, algorithm)
        if not isinstance(inner, dict):
            place = ".".join(parents[: depth + 1])
            shown = [printable(name, quoted=False) for name in (key, place)]
            message = f"{shown[0]}: {shown[1]} is {printable(inner)}, which has no keys to set"
            raise ConfigError(message, key=key)
        data[name] = inner
        data = inner
    data[last] = value


def _refuse_part_of_unknown(data: Mapping[str, Any], key: str, algorithm: type[BaseModel]) -> None:
    """A part of a schedule cannot be set if the other parts depend on the environment."""
    section, _, rest = key.partition(".")
    name, dot, _ = rest.partition(".")
    field = algorithm.model_fields.get(name)
    if data.get("defaults") != "env" or section != "algo_kwargs" or not dot:
        return
    given = data.get("algo_kwargs")
    if field is not None and field.annotation is Schedule and not (isinstance(given, dict) and name in given):
        raise ConfigError(
            f"{printable(key, quoted=False)}: the rest of {name} depends on the environment; give all of it, such as "
            f"{name}={{start: 1e-3, end: 0}}",
            key=key,
        )


def _editable(current: Any, name: str, algorithm: type[BaseModel]) -> Any:
    """Turn a plain number or a missing value into a full schedule, so that one part of it can be set."""
    field = algorithm.model_fields.get(name)
    if field is None or field.annotation is not Schedule:
        return current
    if isinstance(current, (int, float)):
        return {"start": current, "end": current}
    if current == {} and isinstance(field.default, Schedule):
        return dict(field.default)
    return current


def _is_touched(key: str, touched: set[str]) -> bool:
    """Whether an error at `key` comes from an override of that key, of a section around it or of a part of it."""
    return any(
        key == other or key.startswith((f"{other}.", f"{other}[")) or other.startswith(f"{key}.") for other in touched
    )
