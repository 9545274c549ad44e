"""Words for settings: what a field takes, for help and documentation, and errors in one line."""

from __future__ import annotations

import difflib
import types
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from rl_training.config.base import AlgorithmConfig, Schedule, Within
from rl_training.errors import ConfigError
from rl_training.experiment.registry import ALGORITHMS, get_config_class
from rl_training.text import clean_text

LONGEST_VALUE = 60
LONGEST_DESCRIPTION = 90
MEMORY_WORDS = ("lstm", "gru", "recurrent", "memory")
# What other libraries call a setting whose name here nobody would guess by its letters.
NAMES_ELSEWHERE = {
    "hidden_size": "memory_size",
    "lstm_hidden_size": "memory_size",
    "n_lstm_layers": "memory_layers",
    "num_layers": "memory_layers",
    "v_min": "support_low",
    "vmin": "support_low",
    "v_max": "support_high",
    "vmax": "support_high",
}
NOUNS = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null"}


class ConfigRow(NamedTuple):
    key: str
    type: str
    default: str
    description: str


def printable(value: Any, quoted: bool = True) -> str:
    """A value from outside, as YAML would have it and safe to print: no control characters, shortened."""
    text = clean_text(_word(value), LONGEST_VALUE)
    return repr(text) if quoted and isinstance(value, str) else text


def describe_field(field: FieldInfo) -> str:
    """What a field takes, such as `"auto" or integer >= 1`."""
    return _describe(field.annotation, tuple(field.metadata))


def _describe(annotation: Any, metadata: tuple[Any, ...]) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [part.metadata if isinstance(part, FieldInfo) else [part] for part in arguments[1:]]
        return _describe(arguments[0], (*metadata, *(item for group in inner for item in group)))
    if origin in (Union, types.UnionType):
        # A bound on the whole union is meant for its numbers; null takes none.
        return " or ".join(_describe(part, metadata if part is not type(None) else ()) for part in arguments)
    if origin is Literal:
        words = [str(value) for value in arguments]
        return words[0] if len(words) == 1 else "one of " + ", ".join(words)
    if origin is tuple:
        return f"list of {_describe(arguments[0], ())}".replace("integer", "integers")
    if origin is list:
        return "list" + _bounds(metadata)
    if origin is dict:
        return "mapping of names to plain values"
    if annotation is Schedule:
        return f"number{_bounds(metadata)} or {{start, end, over}}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return NOUNS.get(annotation, str(annotation)) + _bounds(metadata)


def _bounds(metadata: tuple[Any, ...]) -> str:
    words = []
    for item in metadata:
        if isinstance(item, Within):
            words.append(f">= {item.low:g}" + (f" and <= {item.high:g}" if item.high is not None else ""))
        for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
            if getattr(item, name, None) is not None:
                words.append(f"{sign} {getattr(item, name)}")
        if getattr(item, "min_length", None):
            words.append("not empty")
        if getattr(item, "pattern", None):
            words.append("of 1 to 64 letters, digits, '.', '_' or '-', first no '.' or '-'")
    return " " + " and ".join(words) if words else ""


def sections(root: type[BaseModel], algo: Any) -> dict[str, type[BaseModel]]:
    """Prefix of dotted keys -> model; the algorithm's section is empty while the algorithm is unknown."""
    algorithm: type[BaseModel] = AlgorithmConfig
    if isinstance(algo, str):
        with suppress(ConfigError):
            algorithm = get_config_class(algo)
    model = root.model_fields["model"].annotation
    assert isinstance(model, type)
    return {"": root, "model": model, "algo_kwargs": algorithm}


def config_rows(root: type[BaseModel], algo: str) -> list[ConfigRow]:
    rows = []
    for prefix, model in sections(root, algo).items():
        for name, field in model.model_fields.items():
            if not prefix and name in ("model", "algo_kwargs"):
                continue
            default = "required" if field.is_required() else _default_text(field)
            key, description = _dotted(prefix, name), field.description or ""
            rows.append(ConfigRow(key, describe_field(field), default, description))
    return rows


def _default_text(field: FieldInfo) -> str:
    factory: Any = field.default_factory
    default = field.default if factory is None else factory()
    return _word(default.model_dump() if isinstance(default, BaseModel) else default)


def _word(value: Any) -> str:
    """A value in the flow style of YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_word(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_word(item) for item in value) + "]"
    return str(value)


def as_config_error(error: ValidationError, root: type[BaseModel], algo: Any) -> ConfigError:
    """The first problem in one line, and how many other keys have one."""
    problems: dict[str, str] = {}
    for item in error.errors(include_url=False, include_context=False):
        if item["type"] == "no_algo":
            continue
        key, field, unknown = _locate(item["loc"], sections(root, algo))
        if key in problems:
            continue
        if item["type"] in ("extra_forbidden", "invalid_key") and unknown:
            problems[key] = f"{key}: unknown key{_nearest(key, item['input'], root, algo)}"
        elif field is None:
            problems[key] = f"config: {printable(item['input'])} is not a mapping of settings"
        else:
            shown = printable(item["input"])
            wrong = {"missing": "missing", "number_too_large": f"{shown} is too large"}
            problem = wrong.get(item["type"], f"{shown} is not valid")
            expected = f"expected {describe_field(field)}{_explained(field)}"
            problems[key] = f"{key}: {problem}, {expected}{_memory_elsewhere(item['input'], algo)}"
    key, line = next(iter(problems.items()))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return ConfigError(line + more, key=key)


def _locate(location: tuple[int | str, ...], places: dict[str, type[BaseModel]]) -> tuple[str, FieldInfo | None, bool]:
    """Dotted key of an error, the innermost field on the way, and whether the key ends in an unknown name."""
    model: type[BaseModel] | None = places[""]
    key, field = "", None
    for part in location:
        if model is None:
            if not isinstance(part, int):
                # Past a plain field pydantic adds its own words, such as the member of a union it tried.
                break
            key += f"[{part}]"
            continue
        if not isinstance(part, str) or part not in model.model_fields:
            return _dotted(key, printable(part, quoted=False)), field, True
        field = model.model_fields[part]
        key = _dotted(key, part)
        inner = places.get(key, field.annotation)
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    return key, field, False


def _nearest(key: str, value: Any, root: type[BaseModel], algo: Any) -> str:
    prefix, _, name = key.rpartition(".")
    known_sections = sections(root, algo)
    # The only other place where a key can be unknown is inside a schedule.
    here = known_sections.setdefault(prefix, Schedule)
    places: dict[str, list[str]] = {}
    for section, model in known_sections.items():
        for known in model.model_fields:
            places.setdefault(known, []).append(_dotted(section, known))
    if (owners := _owners(name, algo)) is not None:
        return owners
    meant = NAMES_ELSEWHERE.get(name.lower(), "")
    close = [meant] if meant in places else difflib.get_close_matches(name.lower(), places, n=1)
    if close:
        # The same name may stand in two places: the one in the section the user wrote in is meant.
        best = min(places[close[0]], key=lambda place: place.rpartition(".")[0] != prefix)
        return f", did you mean {best}?"
    return _memory_elsewhere(value, algo) or f", {prefix or 'the top level'} takes {', '.join(here.model_fields)}"


def _owners(name: str, algo: Any) -> str | None:
    """What to say about a setting that other algorithms have; a memory is never a mode of one without."""
    if not isinstance(algo, str) or algo not in ALGORITHMS:
        return None
    owners = [other for other in ALGORITHMS if name in get_config_class(other).model_fields]
    if not owners and any(word in name.lower() for word in MEMORY_WORDS):
        owners = ["recurrent_ppo"]
    return f", algo {' or '.join(owners)} has it" if owners and algo not in owners else None


def _memory_elsewhere(value: Any, algo: Any) -> str:
    """What to say when a setting's value asks for a memory, such as `policy: lstm`."""
    asked = isinstance(value, str) and any(word in value.lower() for word in MEMORY_WORDS)
    return ", algo recurrent_ppo has a memory" if asked and algo != "recurrent_ppo" else ""


def _explained(field: FieldInfo) -> str:
    description = (field.description or "").rstrip(".")
    return f" ({description})" if 0 < len(description) <= LONGEST_DESCRIPTION else ""


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
