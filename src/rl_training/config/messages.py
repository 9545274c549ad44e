"""Settings in words: the values that a field accepts, and validation errors as one line."""

from __future__ import annotations

import difflib
import types
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rl_training.config import names_elsewhere
from rl_training.config.algorithm_table import ALGORITHMS, get_config_class
from rl_training.config.base import AlgorithmConfig, Schedule, Within
from rl_training.config.model_config import CriticConfig
from rl_training.errors import ConfigError
from rl_training.text import clean_text, text_of

LONGEST_VALUE = 60
# Errors whose own message says more than the type of the field.
EXPLAINED = ("info_name", "callback_name", "wrapper_name", "sink", "encoder_name")
LONGEST_DESCRIPTION = 90
MEMORY_WORDS = ("lstm", "gru", "recurrent", "memory")
NOUNS = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null"}


_PATTERNS = {
    r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$": "of 1 to 64 letters, digits, '.', '_' or '-', not starting with '.' or '-'",
    r"^(cpu|cuda|cuda:\d{1,3}|mps|auto)$": "that is cpu, cuda, cuda:N, mps or auto",
}


class ConfigRow(NamedTuple):
    key: str
    type: str
    default: str
    description: str


def printable(value: Any, quoted: bool = True) -> str:
    """A value of the user in YAML form, shortened and without control characters."""
    text = clean_text(_word(value), LONGEST_VALUE)
    return repr(text) if quoted and isinstance(value, str) else text


def describe_field(field: FieldInfo) -> str:
    """The values that a field accepts, such as `auto or integer >= 1`."""
    return _describe(field.annotation, tuple(field.metadata))


def _describe(annotation: Any, metadata: tuple[Any, ...]) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [part.metadata if isinstance(part, FieldInfo) else [part] for part in arguments[1:]]
        return _describe(arguments[0], (*metadata, *(item for group in inner for item in group)))
    if origin in (Union, types.UnionType):
        # A bound on the union applies to its numbers, not to null.
        return " or ".join(_describe(part, metadata if part is not type(None) else ()) for part in arguments)
    if origin is Literal:
        words = [str(value) for value in arguments]
        return words[0] if len(words) == 1 else "one of " + ", ".join(words)
    if origin is tuple:
        longest = [f"at most {item.max_length} " for item in metadata if getattr(item, "max_length", None)]
        return f"list of {''.join(longest)}{_plural(_describe(arguments[0], ()))}"
    if origin is list:
        return _bounded("list", metadata)
    if origin is dict:
        return "mapping of names to plain values"
    if annotation is Schedule:
        return f"number{_bounds(metadata)} or {{start, end, over}}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return _bounded(NOUNS.get(annotation, str(annotation)), metadata)


def _plural(words: str) -> str:
    noun, *rest = words.split(" ", 1)
    return " ".join([f"{noun}s", *rest])


def _bounded(noun: str, metadata: tuple[Any, ...]) -> str:
    lengths = [item.min_length for item in metadata if getattr(item, "min_length", None)]
    if lengths:
        noun = f"non-empty {noun}" if lengths == [1] else f"{noun} with at least {lengths[0]} items"
    longest = [f" of at most {item.max_length} characters" for item in metadata if getattr(item, "max_length", None)]
    return noun + "".join(longest) + _bounds(metadata)


def _bounds(metadata: tuple[Any, ...]) -> str:
    words = []
    for item in metadata:
        if isinstance(item, Within):
            words.append(f">= {item.low:g}" + (f" and <= {item.high:g}" if item.high is not None else ""))
        for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
            if getattr(item, name, None) is not None:
                words.append(f"{sign} {getattr(item, name)}")
        if getattr(item, "pattern", None):
            words.append(_PATTERNS[item.pattern])
    return " " + " and ".join(words) if words else ""


def sections(root: type[BaseModel], algo: Any) -> dict[str, type[BaseModel]]:
    """The model behind each prefix of dotted keys; an unknown algorithm has only the settings that all share."""
    algorithm: type[BaseModel] = AlgorithmConfig
    if isinstance(algo, str):
        with suppress(ConfigError):
            algorithm = get_config_class(algo)
    model, runtime = (root.model_fields[name].annotation for name in ("model", "runtime"))
    assert isinstance(model, type) and isinstance(runtime, type)
    return {"": root, "runtime": runtime, "model": model, "model.critic": CriticConfig, "algo_kwargs": algorithm}


def config_rows(root: type[BaseModel], algo: str) -> list[ConfigRow]:
    """One row for each setting of a run with the algorithm `algo`."""
    rows = []
    for prefix, model in sections(root, algo).items():
        for name, field in model.model_fields.items():
            if _dotted(prefix, name) in sections(root, algo):
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
    """A value in YAML's flow style."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_word(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_word(item) for item in value) + "]"
    return text_of(value)


def as_config_error(error: ValidationError, root: type[BaseModel], algo: Any) -> ConfigError:
    """The first problem as one line, with the number of other keys that have problems."""
    # A file may have thousands of unknown keys: only the first problem is put into words.
    line, keys = "", dict[str, None]()
    places = sections(root, algo)
    for item in error.errors(include_url=False, include_context=False):
        if item["type"] == "no_algo":
            continue
        key, field, unknown = _locate(item["loc"], places)
        if not keys:
            line = _problem(key, field, unknown, item, root, algo)
        keys[key] = None
    others = len(keys) - 1
    more = f" (and {others} more error{'s' * (others > 1)})" if others else ""
    return ConfigError(line + more, key=next(iter(keys)))


def _problem(
    key: str, field: FieldInfo | None, unknown: bool, item: ErrorDetails, root: type[BaseModel], algo: Any
) -> str:
    if item["type"] in ("extra_forbidden", "invalid_key") and unknown:
        return f"{key}: unknown key{_nearest(key, item['input'], root, algo)}"
    if field is None:
        return f"config: {printable(item['input'])} is not a mapping of settings"
    shown = printable(item["input"])
    if item["type"] in EXPLAINED:
        return f"{key}: {shown} is not valid, {item['msg']}{_memory_elsewhere(item['input'], algo)}"
    texts = {"missing": "missing", "number_too_large": f"{shown} is too large"}
    problem = texts.get(item["type"], f"{shown} is not valid")
    expected = f"expected {describe_field(field)}{_explained(field)}"
    return f"{key}: {problem}, {expected}{_memory_elsewhere(item['input'], algo)}"


def _locate(location: tuple[int | str, ...], places: dict[str, type[BaseModel]]) -> tuple[str, FieldInfo | None, bool]:
    """The dotted key of an error, the innermost field of that key, and whether its last name is unknown."""
    model: type[BaseModel] | None = places[""]
    key, field = "", None
    for part in location:
        if model is None:
            if not isinstance(part, int):
                # After a plain field pydantic adds words such as the member of the union that it tried.
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
    # Outside these sections, an unknown key can only be inside a schedule.
    here = known_sections.setdefault(prefix, Schedule)
    places: dict[str, list[str]] = {}
    for section, model in known_sections.items():
        for known in model.model_fields:
            places.setdefault(known, []).append(_dotted(section, known))

    def suggestion(settings: list[str]) -> str:
        # If two sections have the name, suggest the one in the section that the user wrote in.
        best = (min(places[each], key=lambda place: place.rpartition(".")[0] != prefix) for each in settings)
        return f", did you mean {' and '.join(best)}?"

    # A name in the wrong section comes first: `learning_rate` at the top level is ours.
    elsewhere = None if name in places else names_elsewhere.answer(name, places)
    if elsewhere is not None:
        ours, remark = elsewhere
        if ours:
            return suggestion(ours) + f" ({remark})" * bool(remark)
        return _memory_elsewhere(value, algo) or f": {remark}"
    if (owners := _owners(name, algo)) is not None:
        return owners
    if close := difflib.get_close_matches(name.lower(), places, n=1):
        return suggestion(close)
    return _memory_elsewhere(value, algo) or f", {prefix or 'the top level'} accepts {', '.join(here.model_fields)}"


def _owners(name: str, algo: Any) -> str | None:
    """A hint to the algorithms that have the setting; memory settings point to the recurrent algorithm."""
    if not isinstance(algo, str) or algo not in ALGORITHMS:
        return None
    configs = {other: get_config_class(other) for other in ALGORITHMS}
    owners = [other for other, config in configs.items() if name in config.model_fields and name not in config.refused]
    has_memory = "memory_size" in get_config_class(algo).model_fields
    if not owners and not has_memory and any(word in name.lower() for word in MEMORY_WORDS):
        owners = ["recurrent_ppo"]
    return f", algo {' or '.join(owners)} has it" if owners and algo not in owners else None


def _memory_elsewhere(value: Any, algo: Any) -> str:
    """A hint to the recurrent algorithm if the value asks for a memory, such as `policy: lstm`."""
    wants_memory = isinstance(value, str) and any(word in value.lower() for word in MEMORY_WORDS)
    return ", algo recurrent_ppo has a memory" if wants_memory and algo != "recurrent_ppo" else ""


def _explained(field: FieldInfo) -> str:
    description = (field.description or "").rstrip(".")
    return f" ({description})" if 0 < len(description) <= LONGEST_DESCRIPTION else ""


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
