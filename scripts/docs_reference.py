"""The pages of the documentation site that are made from the code: algorithms, settings, commands, errors, API.

Every text on them comes from a docstring, a field's description or a help text; there is no second text to keep true.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from types import FunctionType, ModuleType
from typing import Any

import typer
from docs_curves import benchmark_rows, curves_of
from docs_equations import html_of, parts_of

import rl_training
from rl_training import errors
from rl_training.command_line.app import app
from rl_training.config.algorithm_table import ALGORITHMS, Algorithm
from rl_training.config.loading import describe_config, list_presets
from rl_training.zoo.results import load_results

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "docs" / "benchmarks"
CURVES = REPORTS / "curves"  # newer runs of rows whose five older ones were not kept
# How the table of algorithms names papers, and where those are.
PAPERS = {
    "arXiv:": "https://arxiv.org/abs/",
    "OpenReview ": "https://openreview.net/forum?id=",
    "Nature 518 (2015)": "https://doi.org/10.1038/nature14236",
}
ABOUT_SETTINGS = (
    "These go under `algo_kwargs`. A setting that takes `{start, end, over}` can be a "
    "[schedule](../../docs/configuration.md#schedules). [All runs](../settings.md) have more settings."
)
_SPANS = re.compile(r"(`[^`]+`)")
_SHAPE = re.compile(r"\[(?:[A-Z]'?|\d+|[a-z]+|\.\.\.)(?:, (?:[A-Z]'?|\d+|[a-z]+|\.\.\.))*\]")


def reference_pages() -> Iterator[tuple[str, str]]:
    """Name and Markdown of each page."""
    yield "reference/algorithms.md", _algorithm_list()
    for row in ALGORITHMS.values():
        yield f"reference/algorithms/{row.name}.md", _algorithm_page(row)
    yield "reference/settings.md", _run_settings()
    yield "reference/commands.md", _commands()
    yield "reference/errors.md", _errors()
    yield "reference/api.md", _api()


def _algorithm_list() -> str:
    rows = [(f"[{row.title}](algorithms/{row.name}.md)", f"`{row.name}`", row.loop) for row in ALGORITHMS.values()]
    pages = "\n".join(f"algorithms/{name}" for name in ALGORITHMS)
    toctree = f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n"
    return f"# Algorithms\n\n{table(['algorithm', 'name', 'loop'], rows)}\n\n{toctree}"


def _algorithm_page(row: Algorithm) -> str:
    module = import_module(str(row.learner).partition(":")[0])
    head, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n")
    parts = [f"# {row.class_name}", escaped(head), shown(rest)]
    parts += [f"Actions: {', '.join(row.action_names)}. Loop: {row.loop}. {_paper(row.paper)} {_source(module)}"]
    parts += ["## Losses", *(_function(each, level=3) for each in own_functions(module))]
    if shared := shared_mathematics(module):
        parts += ["## Shared mathematics", *(_function(each, level=3) for each in shared)]
    own = [setting for setting in describe_config(row.name) if setting.key.startswith("algo_kwargs.")]
    parts += ["## Settings", ABOUT_SETTINGS, _settings(own)]
    presets = [name for name in list_presets() if name.split("/")[0] == row.name]
    parts += ["## Presets", "\n".join(f"- `rl-training train {name}`" for name in presets)]
    parts += list(_results(row.name))
    return "\n\n".join(part for part in parts if part) + "\n"


def _paper(paper: str) -> str:
    start = next((start for start in PAPERS if paper.startswith(start)), None)
    return f"Paper: {paper if start is None else f'[{paper}]({PAPERS[start]}{paper.removeprefix(start)})'}."


def _source(module: Any) -> str:
    path = Path(inspect.getsourcefile(module) or "").resolve().relative_to(ROOT).as_posix()
    return f"Source: [{path}](../../{path})."


def own_functions(module: ModuleType) -> list[FunctionType]:
    """The losses of an algorithm's file: its public functions, but for those that work on a learner."""
    return [
        thing
        for name, thing in vars(module).items()
        if inspect.isfunction(thing) and thing.__module__ == module.__name__ and not name.startswith("_")
        if "learner" not in inspect.signature(thing).parameters
    ]


def shared_mathematics(module: ModuleType) -> list[FunctionType]:
    """Functions with an equation that the algorithm calls, itself or through what it imports."""
    found: dict[str, FunctionType] = {}
    seen: set[Any] = set()
    places = [(module, _names(module))]
    for home, names in places:
        for name in [name for name in vars(home) if name in names]:
            thing = vars(home)[name]
            for each in own_functions(thing) if inspect.ismodule(thing) else [thing]:
                origin = getattr(each, "__module__", None) or ""
                if not origin.startswith("rl_training.algorithms.") or each.__name__ not in names | {name}:
                    continue
                is_function = inspect.isfunction(each)
                if is_function and origin != module.__name__ and _has_equation(each):
                    found.setdefault(each.__name__, each)
                if each not in seen and origin != module.__name__ and (is_function or home is module):
                    seen.add(each)
                    places += [(import_module(part.__module__), _names(part)) for part in _ancestry(each)]
    return [each for name, each in found.items() if not name.startswith("_")]


def _names(thing: Any) -> set[str]:
    """The names that a module, a function or a class mentions."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    nodes = list(ast.walk(tree))
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


def _ancestry(thing: Any) -> list[Any]:
    """A function, or a class with those that it extends."""
    parts = inspect.getmro(thing) if inspect.isclass(thing) else (thing,) if inspect.isfunction(thing) else ()
    return [each for each in parts if each.__module__.startswith("rl_training.algorithms.")]


def _has_equation(function: FunctionType) -> bool:
    return any(part.is_equation for part in parts_of(inspect.cleandoc(function.__doc__ or "")))


def _function(function: FunctionType, level: int) -> str:
    return f"{'#' * level} {escaped(function.__name__)}\n\n{shown(inspect.cleandoc(function.__doc__ or ''))}"


def shown(docstring: str) -> str:
    """A docstring as Markdown, with its equations drawn."""
    parts = [html_of(part) if part.is_equation else _prose(part.text) for part in parts_of(docstring)]
    return "\n\n".join(parts)


def _prose(text: str) -> str:
    """Markdown of a docstring's text; shapes of tensors, such as [B, A], are code."""
    text = "".join(
        part if number % 2 else _SHAPE.sub(r"`\g<0>`", part) for number, part in enumerate(_SPANS.split(text))
    )
    return escaped(f"Shape {text}." if re.fullmatch(r"`\[[^`]*`", text) else text)


def _results(algorithm: str) -> Iterator[str]:
    """The rows of the kept benchmark tables, and the curves of the runs that are kept."""
    rows: list[tuple[str, ...]] = []
    tables = [(report, json.loads(report.read_text(encoding="utf-8"))) for report in sorted(REPORTS.glob("*.json"))]
    for report, lines in [*tables, *_kept_results(algorithm, REPORTS), *_kept_results(algorithm, CURVES)]:
        for line in lines:
            name = f"`{line['name']}`"
            if line["algorithm"] != algorithm or line.get("median") is None or name in [row[0] for row in rows]:
                continue  # an earlier report has more seeds of it
            steps, bar = f"{line['env_steps']:,}", "" if line["bar"] is None else f"{line['bar']:g}"
            link = f"[{report.stem}](../../{report.relative_to(ROOT).with_suffix('.md').as_posix()})"
            rows.append((name, f"{line['median']:.1f}", bar, str(len(line["scores"])), steps, link))
    yield "## Results"
    if not rows:
        yield "No whole run of these presets is kept yet. [Benchmarks](../../docs/benchmarks.md) say what there is."
    else:
        yield "Medians over seeds of the last checkpoint. The bar is the score that the preset must reach."
        yield table(["preset", "median", "bar", "seeds", "steps", "benchmark"], rows)
    if drawn := curves_of(algorithm, [REPORTS / "results", CURVES / "results"]):
        yield "## Learning curves"
        yield (
            "Mean return of evaluations over env steps: the median of the seeds, with a band over their middle half. "
            "The dotted line is the bar, or the limit of a control that must fail. "
            "[Benchmarks](../../docs/benchmarks.md) show other algorithms beside it."
        )
        yield drawn


def _kept_results(algorithm: str, folder: Path) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Rows whose finished seeds are kept although no table has them yet, by the page that will."""
    for family, entry in benchmark_rows():
        kept = load_results(entry, folder / "results") if entry.algorithm == algorithm else {}
        scores = [result.score["mean_return"] for result in kept.values() if result.score is not None]
        if scores:
            numbers = {"median": median(scores), "scores": scores, "bar": entry.row.bar}
            steps = max(result.env_steps for result in kept.values())
            names = {"name": entry.name, "algorithm": algorithm, "env_steps": steps}
            yield folder / f"{family}.json", [names | numbers]


def _run_settings() -> str:
    rows = [row for row in describe_config("ppo") if not row.key.startswith("algo_kwargs.")]
    links = ", ".join(f"[{name}](algorithms/{name}.md)" for name in ALGORITHMS)
    return (
        "# Settings\n\nThe settings that every run has. Write them in a YAML file, pass them with `--set key=value`, "
        f"or as keyword arguments in Python.\n\n{_settings(rows)}\n\nEach algorithm adds its own: {links}.\n"
    )


def _settings(rows: list[Any]) -> str:
    cells = [
        (f"`{row.key.removeprefix('algo_kwargs.')}`", row.type, f"`{row.default}`", row.description) for row in rows
    ]
    return boxed("settings", table(["setting", "type", "default", "description"], cells))


def _commands() -> str:
    group: Any = typer.main.get_command(app)
    parts = ["# Commands", "Every command also has `--help`. [Command line](../docs/command-line.md) explains them."]
    for name, command in sorted(_leaves(group, "rl-training")):
        parts += [f"## {name}", escaped(inspect.cleandoc(command.help or ""))]
        rows = []
        for parameter in command.params:
            if parameter.name == "help":
                continue
            words = ", ".join(parameter.opts) if parameter.opts[0].startswith("-") else parameter.make_metavar_name()
            rows.append((f"`{words}`", getattr(parameter, "help", "") or ""))
        if rows:
            parts.append(boxed("arguments", table(["argument", "meaning"], rows)))
    return "\n\n".join(parts) + "\n"


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        for parameter in command.params:
            parameter.make_metavar_name = lambda parameter=parameter: parameter.metavar or parameter.name.upper()
        yield name, command
        return
    for child_name, child in children.items():
        yield from _leaves(child, f"{name} {child_name}")


def _errors() -> str:
    rows = [
        (str(thing.exit_code), f"`{name}`", inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0])
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and issubclass(thing, errors.RLTrainingError)
    ]
    rows += [
        (str(errors.EXIT_RESUMABLE), "", "Stopped by a signal and saved: `rl-training resume` continues the run."),
        (str(errors.EXIT_INTERRUPTED), "", "Ctrl-C outside training, or a second signal during it."),
    ]
    return (
        "# Errors and exit codes\n\nAn expected error is one line that names the setting, file or environment and says "
        "how to fix it. In Python it is a subclass of `rl_training.RLTrainingError`.\n\n"
        f"{table(['exit code', 'class', 'meaning'], rows)}\n"
    )


def _api() -> str:
    """Autodoc of the public names. The classes of the algorithms have the same methods, so one of them is shown."""
    parts = ["# Public API", "All names can be imported from `rl_training`."]
    algorithms = {row.class_name for row in ALGORITHMS.values()}
    for name in sorted(set(rl_training.__all__) - algorithms - {"__version__"}, key=str.lower):
        thing = getattr(rl_training, name)
        home = f"{thing.__module__}.{thing.__qualname__}"
        kind = "autoclass" if inspect.isclass(thing) else "autofunction"
        members = "\n   :members:" if kind == "autoclass" and name != "TrainConfig" else ""
        parts.append(f"## {name}\n\n```{{eval-rst}}\n.. {kind}:: {home}{members}\n   :no-index:\n```")
    others = ", ".join(f"[{row.class_name}](algorithms/{row.name}.md)" for row in ALGORITHMS.values())
    shown = (
        f"## Algorithms\n\nOne class per algorithm, with the same methods: {others}.\n\n"
        "```{eval-rst}\n.. autoclass:: rl_training.api.managed.ManagedAlgorithm\n   :members:\n   :no-index:\n```"
    )
    return "\n\n".join([*parts[:2], shown, *parts[2:]]) + "\n"


def table(header: list[str], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table. Bars inside cells are escaped."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def boxed(kind: str, content: str) -> str:
    """Content in a box that the style sheet knows by its kind."""
    return f":::{{container}} {kind}\n{content}\n:::"


def escaped(text: str) -> str:
    """Plain text with `code` as Markdown that shows the same characters."""
    parts = _SPANS.split(text)
    return "".join(
        part if number % 2 else re.sub(r"([*_\\\[\]<>{}$^~|])", r"\\\1", part) for number, part in enumerate(parts)
    )
