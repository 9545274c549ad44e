"""The rooms of the package and their rules, checked on the syntax tree: nothing here trains anything."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from house import LAYERS, MODULES, PACKAGE, ROOT, imported_modules, longest_prefix, tree
from rl_training.config.algorithm_table import ALGORITHMS, get_config_class
from rl_training.config.train_config import ModelConfig, TrainConfig
from waiting import DEADLINE_SECONDS

MAX_LINES = 400


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of attributes, or an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def place(module: str, node: ast.AST) -> str:
    return f"{MODULES[module].relative_to(ROOT)}:{getattr(node, 'lineno', '?')}"


def test_imports_point_downward() -> None:
    wrong = []
    for module in MODULES:
        own_layer = LAYERS[longest_prefix(module, LAYERS)]
        for target, node in imported_modules(module):
            if LAYERS[longest_prefix(target, LAYERS)] > own_layer:
                wrong.append(f"{place(module, node)}: {module} may not import {target}")
    assert not wrong, "\n".join(wrong)


def test_rooms_have_no_cycle() -> None:
    rooms = set(LAYERS) - {"rl_training"}  # the package hands out the names of api/, which is above most rooms
    reaches: dict[str, set[str]] = {room: set() for room in rooms}
    for module in MODULES:
        room = longest_prefix(module, LAYERS)
        if room in rooms:
            targets = {target for target, _ in imported_modules(module)}
            reaches[room] |= {longest_prefix(t, LAYERS) for t in targets} - {room}
    for _ in rooms:
        for room in rooms:
            reaches[room] |= {far for near in reaches[room] & rooms for far in reaches[near]}
    assert [room for room in sorted(rooms) if room in reaches[room]] == []


def test_drills_can_be_collected() -> None:
    """They run rarely, so a renamed module would go unnoticed."""
    command = [sys.executable, "-m", "pytest", "drills", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.returncode == 0, done.stdout[-2000:]


def test_every_module_is_inside_a_package() -> None:
    folders = {path.parent for path in MODULES.values()}
    assert [str(f.relative_to(ROOT)) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


def test_light_modules_import_neither_torch_nor_gymnasium() -> None:
    light = [
        "rl_training",
        "rl_training.api",
        "rl_training.algorithms",
        "rl_training.cli",
        "rl_training.config.loading",
        "rl_training.experiment.registry",
    ]
    program = (
        "import importlib, sys\n"
        f"for name in {light!r}:\n"
        "    importlib.import_module(name)\n"
        "    heavy = {'torch', 'gymnasium'} & set(sys.modules)\n"
        "    assert not heavy, f'{name} imports {heavy}'\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert result.returncode == 0, result.stderr


def top_level_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs at import, the bodies of classes, `if`, `for` and `try` included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If) and "__name__" not in ast.unparse(statement.test):
            yield from top_level_statements(statement.body + statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from top_level_statements(statement.body + statement.orelse + statement.finalbody)
            for handler in statement.handlers:
                yield from top_level_statements(handler.body)
        elif isinstance(statement, (ast.ClassDef, ast.For)):
            yield from top_level_statements(statement.body)


def test_importing_does_no_work() -> None:
    # Filling the tables of the package's own classes and command line; nothing outside is changed by them.
    declarations = {"add_typer", "command", "callback", "register", "add_implicit_resolver"}
    wrong = []
    for module in MODULES:
        for statement in top_level_statements(tree(module).body):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                call = statement.value.func
                if isinstance(call, ast.Attribute) and call.attr in declarations:
                    continue
                wrong.append(f"{place(module, statement)}: {ast.unparse(statement)}")
            elif isinstance(statement, (ast.While, ast.With)):
                wrong.append(f"{place(module, statement)}: {type(statement).__name__} at the top level")
            elif isinstance(statement, ast.Assign) and "os.environ" in ast.unparse(statement):
                wrong.append(f"{place(module, statement)}: the environment is read or written at import")
    assert not wrong, "\n".join(wrong)


def test_trainers_hold_no_loop() -> None:
    trainers = [m for m in MODULES if m.startswith("rl_training.runtime.") and m.endswith("_trainer")]
    assert trainers, "no trainer files found"
    loops = (ast.For, ast.While, ast.AsyncFor)
    assert [place(m, node) for m in trainers for node in ast.walk(tree(m)) if isinstance(node, loops)] == []


def test_nothing_can_execute_code_from_a_file() -> None:
    modules = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
    calls = {"eval", "exec", "torch.load", "torch.save", "yaml.unsafe_load", "yaml.full_load"}
    wrong = []
    for module in MODULES:
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Import):
                found = bool({alias.name.split(".")[0] for alias in node.names} & modules)
            elif isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found = (node.module or "").split(".")[0] in modules or bool(names & calls)
                found = found and names != {"pickle.PickleBuffer"}  # a view of memory, which loads nothing
            elif isinstance(node, ast.Call):
                options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                found = dotted(node.func) in calls or options.get("allow_pickle", "False") != "False"
            else:
                found = False
            if found:
                wrong.append(f"{place(module, node)}: {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


def test_bounds_of_actions_and_exploration_noise_are_in_one_place_each() -> None:
    """Algorithms act on [-1, 1]: `Spaces` alone knows the env's bounds, and noise on actions is `exploration`'s."""
    wrong = []
    for module in MODULES:
        if not module.startswith(("rl_training.algorithms.", "rl_training.contrib.", "rl_training.models.")):
            continue
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Attribute) and node.attr in ("low", "high", "action_space", "to_env_actions"):
                wrong.append(f"{place(module, node)}: {ast.unparse(node)}")
            elif isinstance(node, ast.ClassDef) and "noise" in node.name.lower() and "exploration" not in module:
                wrong.append(f"{place(module, node)}: class {node.name}")
    assert not wrong, "\n".join(wrong)


def test_files_fit_on_a_few_screens() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES.values()}
    assert {name: count for name, count in lengths.items() if count >= MAX_LINES} == {}


def uses_of_global_randomness(node: ast.AST, forked: bool = False) -> Iterator[ast.AST]:
    seeding = {"manual_seed", "seed", "set_rng_state", "manual_seed_all"}
    drawing = {"rand", "randn", "randint", "randperm", "normal", "multinomial", "bernoulli"}
    drawing |= {"rand_like", "randn_like", "randint_like"}
    own_generators = {"default_rng", "Generator", "SeedSequence", "BitGenerator", "PCG64", "Philox"}
    if isinstance(node, ast.With):
        forked = forked or any("fork_rng" in ast.unparse(item.context_expr) for item in node.items)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        origin = node.module if isinstance(node, ast.ImportFrom) else None
        if origin == "random" or (origin is None and any(alias.name == "random" for alias in node.names)):
            yield node
    elif isinstance(node, ast.Call):
        name = dotted(node.func)
        room, _, function = name.rpartition(".")
        if room in ("np.random", "numpy.random"):
            if function not in own_generators:
                yield node
        elif room.split(".")[0] == "torch" and not forked:
            generator = any(keyword.arg == "generator" for keyword in node.keywords)
            if function in seeding or (room == "torch" and function in drawing and not generator):
                yield node
    for child in ast.iter_child_nodes(node):
        yield from uses_of_global_randomness(child, forked)


def test_global_random_state_is_never_touched() -> None:
    found = [(m, node) for m in MODULES for node in uses_of_global_randomness(tree(m))]
    wrong = [f"{place(m, node)}: {ast.unparse(node)}" for m, node in found]
    assert not wrong, "\n".join(wrong)


def attributes_read(module: str) -> set[str]:
    """Names read as attributes of something other than a bare `self`: an object's own copy proves nothing."""
    return {
        node.attr
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }


def read_outside_config(but_not: set[str]) -> set[str]:
    own = {f"rl_training.{room}.{name}" for name in but_not for room in ("algorithms", "contrib")}
    own |= {f"rl_training.runtime.{name}_trainer" for name in but_not}
    modules = [m for m in MODULES if not m.startswith("rl_training.config") and m not in own]
    return set().union(*(attributes_read(module) for module in modules))


@pytest.mark.parametrize("config", [TrainConfig, ModelConfig])
def test_every_run_field_is_read(config: type[TrainConfig] | type[ModelConfig]) -> None:
    unread = set(config.model_fields) - read_outside_config(but_not=set())
    assert not unread, f"{config.__name__}: nothing reads {', '.join(sorted(unread))}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_field_is_read(algorithm: str) -> None:
    """A read in another algorithm's own file does not count: this one would still ignore the field.

    Except for one in contrib, which may be a core algorithm with another model, and for one that has the settings of
    another, such as A3C those of A2C. Functions that it imports from another file, such as a loss, are its own, and so
    are properties of its config that are read.
    """
    home = learner_module(algorithm)
    lent = {target.rpartition(".")[2] for target, _ in imported_modules(home)}
    if ".contrib." not in home:
        config = get_config_class(algorithm)
        lent = {name for name in lent & set(ALGORITHMS) if issubclass(config, own_settings(name))}
    read = read_outside_config(but_not=set(ALGORITHMS) - {algorithm, ALGORITHMS[algorithm].file} - lent)
    read |= read_by_imported_functions(home)
    read |= read_by_properties(get_config_class(algorithm), read)
    unread = set(get_config_class(algorithm).model_fields) - read
    assert not unread, f"{algorithm}: nothing reads {', '.join(sorted(unread))}"


def read_by_imported_functions(module: str) -> set[str]:
    """What is read in functions that `module` imports by name."""
    read: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = {alias.name for alias in node.names}
            read |= {
                part.attr
                for function in tree(node.module).body
                if isinstance(function, ast.FunctionDef) and function.name in names
                for part in ast.walk(function)
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load)
            }
    return read


def read_by_properties(config: type[Any], read: set[str]) -> set[str]:
    """The fields behind those properties of a config that are read."""
    properties = [vars(part)[name] for part in config.__mro__ for name in read & set(vars(part))]
    sources = [textwrap.dedent(inspect.getsource(each.fget)) for each in properties if isinstance(each, property)]
    return {node.attr for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}


def own_settings(algorithm: str) -> tuple[type[Any], ...]:
    """The config classes of an algorithm's own file: with its options, and without those that others lack."""
    config = get_config_class(algorithm)
    return tuple(part for part in config.__mro__ if part.__module__ == config.__module__)


def learner_module(algorithm: str) -> str:
    row = ALGORITHMS[algorithm]
    return f"rl_training.{row.room}.{row.file or row.name}"


def defined_names(path: Path) -> set[str]:
    if not path.exists():
        return set()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    named = {n.name for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    assigned = {dotted(t) for n in body if isinstance(n, ast.Assign) for t in n.targets}
    return named | assigned | {dotted(n.target) for n in body if isinstance(n, ast.AnnAssign)}


# Other documents and users name these files; an algorithm outside of this list has no need for them.
NAMED_FILES = [
    "ppo",
    "a2c",
    "trpo",
    "dqn",
    "c51",
    "ddpg",
    "td3",
    "sac",
    "impala",
    "appo",
    "ppg",
    "naf",
    "d4pg",
    "recurrent_ppo",
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithm_has_its_files(algorithm: str) -> None:
    """What CONTRIBUTING.md asks for: config, algorithm, preset, a test of the update, a row of a manifest."""
    row, home, missing = ALGORITHMS[algorithm], learner_module(algorithm), []
    required = {
        PACKAGE / "config" / "algorithms" / f"{row.file or algorithm}.py": {f"{row.class_name}Config"},
        PACKAGE / row.room / f"{row.file or algorithm}.py": {f"{algorithm}_loss", row.class_name},
    }
    if algorithm in NAMED_FILES:
        required[PACKAGE / "runtime" / f"{algorithm}_trainer.py"] = {f"train_{algorithm}"}
        required[PACKAGE / "api" / "algorithms.py"] = {row.class_name}
    for path, names in required.items():
        missing += [f"{name} in {path.relative_to(ROOT)}" for name in sorted(names - defined_names(path))]

    targets = [target for target, _ in imported_modules(home)] if home in MODULES else []
    if not any(target.startswith("rl_training.models") for target in targets):
        missing.append("a model from rl_training/models")

    presets = sorted((ROOT / "configs" / algorithm).glob("*.yaml"))
    if not presets:
        missing.append(f"configs/{algorithm}/<env>.yaml")
    named = {path: yaml.safe_load(path.read_text())["algo"] for path in presets}
    missing += [f"algo: {algorithm} in {path.name}" for path in presets if named[path] != algorithm]
    manifests = "".join(path.read_text() for path in (ROOT / "zoo").glob("*/benchmark.yaml"))
    if not re.search(rf"\b{algorithm}/\w+", manifests):
        missing.append("a row in zoo/<family>/benchmark.yaml")
    if algorithm in NAMED_FILES and not sorted((ROOT / "examples").glob(f"{algorithm}_*_reference.py")):
        missing.append(f"examples/{algorithm}_<env>_reference.py")

    # The shared files have one row per algorithm; an algorithm may have a file of its own instead.
    tests: dict[str, list[str]] = {f"test_{algorithm}_update.py": []}
    if algorithm in NAMED_FILES:
        tests[f"test_{algorithm}_trainer_smoke.py"] = [f"test_{algorithm}_trainer.py", "test_trainer_smoke.py"]
        tests[f"test_{algorithm}_reference_script.py"] = ["test_reference_script.py"]
    for name, instead in tests.items():
        if not any((ROOT / "tests" / choice).exists() for choice in [name, *instead]):
            missing.append(f"tests/{name}")
    assert not missing, f"{algorithm} lacks: {'; '.join(missing)}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithm_is_exported(algorithm: str) -> None:
    class_name = ALGORITHMS[algorithm].class_name
    package, api, algorithms = (
        importlib.import_module(name) for name in ("rl_training", "rl_training.api", "rl_training.algorithms")
    )
    assert getattr(package, class_name) is getattr(api, class_name)
    assert getattr(algorithms, class_name).__module__ == learner_module(algorithm)
    assert callable(getattr(algorithms, class_name).update)
    for method in ("learn", "predict", "evaluate", "save", "load"):
        assert callable(getattr(getattr(package, class_name), method)), f"{class_name}.{method}"
