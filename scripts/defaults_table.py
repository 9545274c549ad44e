"""Write the tables of defaults by kind of environment into docs/configuration.md, from config/env_defaults.py.

python scripts/defaults_table.py           write them
python scripts/defaults_table.py --check   exit with code 1 if the page has other tables
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.env_defaults import EnvKind, Observations, env_defaults
from rl_training.config.loading import describe_config

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
BEGIN, END = "<!-- defaults: written by scripts/defaults_table.py -->\n", "<!-- end of defaults -->\n"


def word(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {word(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(word, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value)


def flat(settings: dict[str, Any]) -> dict[str, str]:
    """The settings by the name that `--set` takes."""
    merged = {name: value for name, value in settings.items() if name not in ("model", "algo_kwargs")}
    merged |= settings.get("model", {}) | settings.get("algo_kwargs", {})
    return {name: word(value) for name, value in merged.items()}


def sentence(settings: dict[str, str]) -> str:
    return ", ".join(f"`{name}: {value}`" for name, value in settings.items()) or "the same"


def tables() -> str:
    """Per algorithm the defaults on vectors, and what the other kinds of observations change."""
    lines = ["| algorithm | vectors | one Discrete observation | images |", "| --- | --- | --- | --- |"]
    for name, row in ALGORITHMS.items():
        actions = "continuous" if "discrete" not in row.actions else "discrete"
        of_kind = {kind: flat(env_defaults(name, EnvKind(kind, actions))) for kind in get_args(Observations)}
        usual = of_kind["vector"]
        cells = [sentence(usual)]
        for kind in ("table", "image"):
            # What this kind leaves at the listed default counts as a difference, too.
            listed = {each.key.rpartition(".")[2]: each.default for each in describe_config(name)}
            settings = {**{key: listed[key] for key in usual}, **of_kind[kind]}
            cells.append(sentence({key: value for key, value in settings.items() if usual.get(key) != value}))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n" + continuous()


def continuous() -> str:
    """What algorithms for both kinds of actions change for continuous ones, on vectors."""
    by_change: dict[str, list[str]] = {}
    for name, row in ALGORITHMS.items():
        if not {"discrete", "box"} <= set(row.actions):
            continue
        listed = {each.key.rpartition(".")[2]: each.default for each in describe_config(name)}
        usual, other = (flat(env_defaults(name, EnvKind("vector", kind))) for kind in ("discrete", "continuous"))
        settings = {key: other.get(key, listed[key]) for key in {**usual, **other}}
        change = sentence({key: value for key, value in settings.items() if usual.get(key) != value})
        by_change.setdefault(change, []).append(f"`{name}`")
    lines = [f"- {', '.join(names)}: {change}" for change, names in by_change.items() if change != "the same"]
    return "With continuous actions:\n\n" + "\n".join(lines) + "\n"


def with_tables(text: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE.name}: the lines {BEGIN.strip()} and {END.strip()} are missing")
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        sys.exit(text != with_tables(text))
    PAGE.write_text(with_tables(text), encoding="utf-8")


if __name__ == "__main__":
    main()
