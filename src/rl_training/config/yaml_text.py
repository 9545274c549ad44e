"""Read and write YAML as plain data, so that untrusted files are safe to open.

Numbers may be written as `1e-4`, `2E6` or `1_000_000`; `true` and `false` are the only booleans. Tags, anchors,
aliases and repeated keys are refused, because they can hide what a config contains.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rl_training.errors import ConfigError
from rl_training.text import one_line

LARGEST_FILE = 64 * 1024  # bytes; the YAML parser takes more than 10 microseconds for each
LONGEST_NUMBER = 400  # characters; enough for every float without an exponent
DEEPEST_NESTING = 20
LONGEST_PROBLEM = 100

INTEGER = "tag:yaml.org,2002:int"
FLOAT = "tag:yaml.org,2002:float"
BOOLEAN = "tag:yaml.org,2002:bool"
NULL = "tag:yaml.org,2002:null"
# Tried in this order. The last entry lists the characters that such a scalar can start with. Each pattern takes time in
# proportion to the text: two neighboring parts never match the same characters.
SCALARS = [
    (BOOLEAN, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF"),
    (NULL, re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    (INTEGER, re.compile(r"^[-+]?[0-9](?:_?[0-9])*$"), "-+0123456789"),
    (
        FLOAT,
        re.compile(r"^[-+]?(?:[0-9](?:_?[0-9])*(?:\.(?:[0-9](?:_?[0-9])*)?)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"),
        "-+.0123456789",
    ),
]


class Document(NamedTuple):
    """Plain data, and the line of each dotted key."""

    data: Any
    lines: dict[str, int]


class _Problem(yaml.MarkedYAMLError):
    def __init__(self, problem: str, mark: yaml.Mark | None) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """Refuses bad input while composing, before an alias expands or a deep file exhausts the stack."""

    # Replaces the inherited table, which reads 1e-4 as text, 010 as 8, 1:30 as 90 and `no` as false.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        peek_event: Any = self.peek_event  # PyYAML does not declare its types
        event = peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Problem("anchors and aliases (& and *) are not allowed", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _Problem("tags (!) are not allowed", event.start_mark)
        if self.depth > DEEPEST_NESTING:
            raise _Problem(f"nested deeper than {DEEPEST_NESTING} levels", event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes every text that our loader or another YAML reader would not read as text."""

    yaml_implicit_resolvers = dict(yaml.SafeDumper.yaml_implicit_resolvers)

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern, _first in SCALARS:
    _Loader.add_implicit_resolver(_tag, _pattern, list(_first))
    _Dumper.add_implicit_resolver(_tag, _pattern, list(_first))


def read_file(path: Path, name: str) -> Document:
    """Read the mapping in a YAML file; error messages call the file `name`."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError(f"{name}: larger than {LARGEST_FILE // 1024} KB, not a config file")
        text = content.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{name}, line {line}: not UTF-8 text") from error
    document = parse(text, name)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{name}, line 1: the top level must be a mapping of `key: value` lines")
    return document


def parse(text: str, name: str, show_line: bool = True) -> Document:
    """Read plain data from YAML text; error messages call it `name`."""
    if len(text) > LARGEST_FILE:
        raise ConfigError(f"{name}: longer than {LARGEST_FILE // 1024} KB")
    lines: dict[str, int] = {}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return Document(None if node is None else _build(node, "", lines), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark is not None and show_line else ""
        problem = error.problem or error.context or "not valid YAML"
        if problem.startswith("but "):
            problem = f"{error.context}, {problem}"
        raise ConfigError(f"{name}{where}: {one_line(problem, LONGEST_PROBLEM)}") from error
    except yaml.reader.ReaderError as error:
        line = text[: int(error.position)].count("\n") + 1
        where = f", line {line}" if show_line else ""
        raise ConfigError(f"{name}{where}: contains a character that is not allowed in YAML") from error


def dump(data: Any) -> str:
    """Plain data as YAML text, with keys in their given order."""
    # Escape non-ASCII characters: PyYAML writes some Unicode line breaks in a form that it reads back as spaces.
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=100)


def _build(node: Node, key: str, lines: dict[str, int]) -> Any:
    if isinstance(node, ScalarNode):
        return _scalar(node)
    if isinstance(node, SequenceNode):
        return [_build(item, f"{key}[{index}]", lines) for index, item in enumerate(node.value)]
    assert isinstance(node, MappingNode)
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        name = _scalar(key_node) if isinstance(key_node, ScalarNode) else None
        if not isinstance(name, str):
            raise _Problem("keys must be text; quote the key", key_node.start_mark)
        if name in result:
            raise _Problem(f"key {one_line(name, LONGEST_PROBLEM)!r} appears twice", key_node.start_mark)
        dotted = f"{key}.{name}" if key else name
        lines[dotted] = key_node.start_mark.line + 1
        result[name] = _build(value_node, dotted, lines)
    return result


def _scalar(node: ScalarNode) -> Any:
    text = node.value
    if node.tag == NULL:
        return None
    if node.tag == BOOLEAN:
        return text.lower() == "true"
    if node.tag in (INTEGER, FLOAT) and len(text) > LONGEST_NUMBER:
        raise _Problem("the number is too long", node.start_mark)
    if node.tag == INTEGER and len(text) <= 30:
        return int(text)
    if node.tag in (INTEGER, FLOAT):
        number = float(text)
        if math.isinf(number) or node.tag == INTEGER:
            raise _Problem("the number is too large", node.start_mark)
        return number
    return text
