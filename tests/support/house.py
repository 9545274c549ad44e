"""The rooms of the package, their layers, and who imports whom: one table for the architecture test and its picture."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rl_training"

# A name that other packages use, not a module.
ENTRY_POINT_GROUP = "rl_training.algorithms"


@dataclass(frozen=True)
class Room:
    """A package or module with one subject. Its imports go to a lower layer, or stay within its own."""

    prefix: str
    layer: int
    holds: str


# The longest matching prefix decides which room a module is in.
ROOMS = (
    Room("rl_training.cli", 10, "the command rl-training"),
    Room("rl_training.__main__", 10, "python -m rl_training"),
    Room("rl_training.command_line", 9, "one module per command: options in, one library call, text or JSON out"),
    Room("rl_training.command_line.common", 9, "what commands share: options, tables, usage errors, interrupts"),
    Room("rl_training", 8, "the public names, imported on demand"),
    Room("rl_training.api", 8, "the managed API: PPO, DQN, ... with learn, evaluate, save and load"),
    Room("rl_training.contrib", 8, "public names of contributed algorithms"),
    Room("rl_training.dashboard", 8, "runs in a browser: rows, curves, facts, comparisons, pages, one-file export"),
    Room("rl_training.zoo", 8, "benchmarks: manifests, many runs, tables, plots, bands"),
    Room("rl_training.analysis", 7, "what runs say: scores, curves, statistics, plots, comparisons"),
    Room("rl_training.checkup", 7, "checks before a run: the machine, an environment, a planned run"),
    Room("rl_training.experiment", 7, "the experiment manager and the registry"),
    Room("rl_training.playback", 7, "play an agent, record video, replay a crash"),
    Room("rl_training.runtime", 6, "what runs: loops, train and resume, callbacks, evaluation, saving, stop signals"),
    Room("rl_training.runtime.collection", 6, "steps of training environments: collector, ends of episodes"),
    Room("rl_training.algorithms", 5, "one file per algorithm: paper, losses, learner"),
    Room("rl_training.algorithms.common", 5, "shared parts: learner base, returns, critics, exploration, compile"),
    Room("rl_training.contrib.recurrent_ppo", 5, "the learner of recurrent PPO"),
    Room("rl_training.models", 4, "networks of the algorithms, distributions"),
    Room("rl_training.models.cnn", 4, "encoders of images"),
    Room("rl_training.models.encoders", 4, "from observations to features: statistics, views, encoders"),
    Room("rl_training.models.layers", 4, "layers and their NumPy forms, first weights, precision"),
    Room("rl_training.diagnosis", 3, "rules over the metric stream that say what is wrong with a run"),
    Room("rl_training.data", 3, "rollouts, replay buffers, priorities"),
    Room("rl_training.envs", 3, "environments: factory, vector backends, spaces, wrappers, supervision"),
    Room("rl_training.config.algorithms", 2, "the settings of each algorithm, one file each"),
    Room("rl_training.config.algorithms.common", 2, "settings that algorithms share: families and options"),
    Room("rl_training.config", 2, "settings of runs and models, the algorithm table, YAML; no torch"),
    Room("rl_training.storage", 1, "what is on disk: checkpoints, replay segments, run directories"),
    Room("rl_training.telemetry", 1, "what is reported: metric lines, sinks, console"),
    Room("rl_training.errors", 0, "errors and exit codes"),
    Room("rl_training.program", 0, "how the user can call this program again"),
    Room("rl_training.text", 0, "text on one line"),
    Room("rl_training.terminal", 0, "stdout and stderr: clean text, lost streams"),
    Room("rl_training._version", 0, "the version"),
    Room("rl_training.assets", 0, "presets, manifests and bands (data, no code)"),
)
LAYERS = {room.prefix: room.layer for room in ROOMS}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"), str(MODULES[module]))


def longest_prefix(name: str, prefixes: Mapping[str, int]) -> str:
    return max((p for p in prefixes if name == p or name.startswith(p + ".")), key=len)


def imported_modules(module: str) -> Iterator[tuple[str, ast.AST]]:
    """Modules of the package that `module` imports: at the top, in functions, for typing, or by string."""
    is_package = MODULES[module].name == "__init__.py"
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "rl_training":
                    yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + (1 if is_package else 0)]
                source = ".".join([*parents, source]).rstrip(".")
            if source.split(".")[0] == "rl_training":
                for alias in node.names:
                    whole = f"{source}.{alias.name}"
                    yield (whole if whole in MODULES else source), node
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value != ENTRY_POINT_GROUP
            and re.fullmatch(r"rl_training(\.\w+)+(:\w+)?", node.value)
        ):
            target = node.value.split(":")[0]
            if target in MODULES:
                yield target, node
