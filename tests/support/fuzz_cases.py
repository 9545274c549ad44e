"""Cases of the fuzzer: each is a function of one integer. `python tests/support/fuzz.py SEED` runs one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_callbacks import ODD as ODD_CALLBACKS
from fuzz_choices import GOALS, MASKS
from fuzz_commands import command_line, commands
from fuzz_envs import ODD as ODD_ENVS
from fuzz_mutations import (
    KEEPING_THE_FILE,
    SPECIAL,
    STRUCTURED,
    AddKeys,
    Become,
    ChangeBytes,
    DropValue,
    FillTensor,
    FillTensors,
    Mutation,
    Rename,
    RenameKey,
    RepeatKey,
    SetContent,
    SetValue,
    Sign,
    read_document,
)
from fuzz_parts import ENCODERS, SINKS, WRAPPERS
from fuzz_tree import BAND, CONFIG, CRASH_FILE, DQN, MANIFEST, NEWER, OWN, PPO, PRESET, REPLAY_CONFIG, RESULTS, ZOO_RUNS
from fuzz_values import ESCAPES, IN_FILES, LONG_NAME, SETTINGS_OF_HOOKS, TEXTS, shortened

Dice = random.Random
KINDS = ("run directories", "checkpoints", "crash files", "zoo files", "command lines", "configs")


@dataclass(frozen=True)
class Case:
    """Mutations of the tree, then one command.

    `must_fail`: exit code 0 is a violation. `code`: any other exit code is one. `says`: what stderr must contain.
    `keeps`: files and folders that the command must not change although it may change others beside them.
    """

    name: str
    arguments: list[str]
    mutations: tuple[Mutation, ...] = ()
    stdin: bytes = b""
    stdout: str = "file"  # or "closed", "full", "pipe nobody reads"
    must_fail: bool = False
    code: int | None = None
    says: str = ""
    keeps: tuple[str, ...] = ()

    def describe(self) -> str:
        command = " ".join(word if word.isalnum() else shortened(word) for word in self.arguments)
        streams = f"  with stdin {shortened(self.stdin)}, stdout {self.stdout}"
        mutations = [f"  after {each!r}" for each in self.mutations]
        return "\n".join([f"{self.name}: rl-training {command}", *mutations, streams])


def seeds_of(kind: str, first: int, count: int) -> range:
    """The first `count` seeds from `first` on whose cases are of one kind."""
    first += (KINDS.index(kind) - first) % len(KINDS)
    return range(first, first + count * len(KINDS), len(KINDS))


def kind_of(seed: int) -> str:
    return KINDS[seed % len(KINDS)]


def case_of(seed: int, tree: Path) -> Case:
    """The case of a seed; `tree` is the working directory of an unchanged tree."""
    kind = kind_of(seed)
    dice = Dice(seed)
    mutations, arguments = GENERATORS[kind](dice, tree)
    stdin = dice.choice([b"[0, 0, 0, 0]"] * 12 + list(TEXTS[:6]))
    stdout = dice.choice(["file"] * 27 + ["closed", "full", "pipe nobody reads"])
    return Case(str(seed), arguments, tuple(mutations), stdin, stdout)


Made = tuple[list[Mutation], list[str]]


def _run_directory(dice: Dice, tree: Path) -> Made:
    run = dice.choice([PPO, DQN, OWN, dice.choice(NEWER)])
    name = dice.choice([*READ_BY, "resume", "resume"])
    names = READ_BY[name]
    mutations: list[Mutation] = []
    for _ in range(dice.choice([1, 1, 2])):
        word = dice.choice(names)
        file = f"{run}/{word}".rstrip("/")
        if word in ("checkpoints", "replay", "videos") and dice.random() < 0.5:
            inside = sorted(path.relative_to(tree).as_posix() for path in (tree / file).glob("*"))
            file = dice.choice(inside or [file])
        mutations.append(_mutation(dice, tree, file))
    if name == "list runs" and dice.random() < 0.3:
        mutations.insert(0, SetValue(f"{run}/run.json", ("status",), "running"))  # then the lock is read
    target = dict.fromkeys(("TARGET", "RUN", "RUN...", "[RUN]...", "GROUP"), run)
    return mutations, [*command_line(dice, name, 0.05, **target, **_trust(dice, name, run)), *_more_steps(dice, name)]


def _trust(dice: Dice, name: str, run: str) -> dict[str, str]:
    """The option that lets a run with an encoder of the user's own be used, most of the time."""
    needed = run == OWN and name in ("eval", "play", "predict", "resume")
    return {"--trust": "fuzz_parts"} if needed and dice.random() < 0.8 else {}


# The files of a run that a command reads or writes.
READ_BY = {
    "list runs": ["run.json", "run.json", "lock", ""],
    "inspect": ["checkpoints", "replay", ""],
    "diagnose": ["metrics.jsonl", "metrics.jsonl", "config.yaml", "findings.jsonl", ""],
    "eval": ["checkpoints", "run.json", ""],
    "predict": ["checkpoints", "config.yaml", ""],
    **{name: ["metrics.jsonl", "run.json", "config.yaml", ""] for name in ("plot", "compare", "diff")},
    "dashboard": ["metrics.jsonl", "run.json", "config.yaml", "checkpoints", "crash", "videos", "findings.jsonl", ""],
    "watch": ["metrics.jsonl", "run.json", "lock", ""],
    "tensorboard": ["metrics.jsonl", "metrics.jsonl", ""],
    "play": ["play.gif", ".play.partial.gif", "checkpoints", ""],
    "resume": [
        "run.json",
        "config.yaml",
        "metrics.jsonl",
        "lock",
        "metrics.csv",
        "metrics.csv.tmp",
        "findings.jsonl",
        "videos",
        "replay",
        "crash",
        "",
    ],
}


def _more_steps(dice: Dice, name: str) -> list[str]:
    return ["--total-timesteps", "96"] if name == "resume" and dice.random() < 0.8 else []


def _checkpoint(dice: Dice, tree: Path) -> Made:
    run = dice.choice([PPO, DQN, OWN, dice.choice(NEWER), dice.choice(NEWER)])
    folder = sorted((tree / run / "checkpoints").iterdir())[-1].relative_to(tree).as_posix()
    files = [f"{folder}/{name}" for name in ("manifest.json", "config.json", "tensors.safetensors")]
    files += [f"{folder}/state.json"] * 2
    name = dice.choice(["inspect", "inspect", "predict", "eval", "resume", "play"])
    if name in ("inspect", "resume"):
        files += sorted(path.relative_to(tree).as_posix() for path in (tree / run / "replay").glob("*"))[:1]
    mutations = [_mutation(dice, tree, dice.choice(files), 0.8) for _ in range(dice.choice([1, 1, 2]))]
    if dice.random() < 0.05:
        mutations.append(FillTensors(f"{folder}/tensors.safetensors", float("nan")))
    if dice.random() < 0.2:
        mutations = [_filled_tensor(dice, tree, dice.choice([f for f in files if f.endswith(".safetensors")]))]
    if dice.random() < 0.9:
        mutations.append(Sign(folder))
    target = dice.choice([folder, folder, run])
    given = _trust(dice, name, run) | ({"--obs": "[0.1, 0, 0, 0]"} if name == "predict" else {})
    return mutations, [*command_line(dice, name, 0.0, TARGET=target, **given), *_more_steps(dice, name)]


def _filled_tensor(dice: Dice, tree: Path, file: str) -> FillTensor:
    names = sorted(name for name in read_document(tree / file) if name != "__metadata__")
    return FillTensor(file, dice.choice(names), dice.choice([float("nan"), float("inf"), 1e38, -1e6, 2.0**62, 0.0]))


def _crash_file(dice: Dice, tree: Path) -> Made:
    mutations = [_mutation(dice, tree, CRASH_FILE, 0.8) for _ in range(dice.choice([1, 1, 2]))]
    return mutations, command_line(dice, "reproduce", FILE=CRASH_FILE)


def _zoo_file(dice: Dice, tree: Path) -> Made:
    if dice.random() < 0.2:
        mutations = [_mutation(dice, tree, BAND, 0.8) for _ in range(dice.choice([1, 1, 2]))]
        return mutations, command_line(dice, "check", 0.05, PRESET=PRESET, **{"--band": BAND})
    name = dice.choice(["zoo list", "zoo table", "zoo table", "zoo table", "zoo run", "zoo bands"])
    run, given = f"{ZOO_RUNS}/calm-seed{dice.randrange(3)}", {"MANIFEST": MANIFEST}
    mutations = []
    files = [MANIFEST, PRESET]
    if name != "zoo list":
        files += [f"{run}/{file}" for file in ("score.json", "run.json", "metrics.jsonl", "config.yaml", "")]
        files += [f"{run}.failure.json"]
        if dice.random() < 0.5:
            mutations.append(Become(f"{run}/score.json", "missing"))  # then the other files matter
    if name in ("zoo table", "zoo bands") and dice.random() < 0.3:
        files, given = [f"{RESULTS}/calm.json"], given | {"--results": RESULTS}
        mutations.append(Become(run, "missing"))
    if name == "zoo bands" or (name == "zoo table" and dice.random() < 0.1):
        files, given = [*files, "written", "written/results/calm.json"], given | {"--write": "written"}
    mutations += [_mutation(dice, tree, dice.choice(files).rstrip("/"), 0.75) for _ in range(dice.choice([1, 1, 2]))]
    return mutations, command_line(dice, name, 0.05, **given)


def _command_line(dice: Dice, tree: Path) -> Made:
    return [], command_line(dice, dice.choice(list(commands())), dice.choice([0.1, 0.4, 0.8]))


# Classes of the user's own, for the settings that name them.
ODD_CLASSES: dict[str, Callable[[Dice], Any]] = {
    "callbacks": lambda dice: [f"fuzz_callbacks:{dice.choice(ODD_CALLBACKS)}"],
    "wrappers": lambda dice: [f"fuzz_parts:{dice.choice(WRAPPERS)}"],
    "sinks": lambda dice: [f"fuzz_parts:{dice.choice(SINKS)}"],
    "model": lambda dice: {"hidden_sizes": [8], "encoder": f"fuzz_parts:{dice.choice(ENCODERS)}"},
}


def _odd_env(dice: Dice) -> str:
    return dice.choice([f"fuzz_envs:{dice.choice(ODD_ENVS)}-v0"] * 2 + [f"fuzz_choices:{dice.choice(MASKS)}-v0"])


def _config(dice: Dice, tree: Path) -> Made:
    """A config with odd settings, envs and classes, for the commands that act on it."""
    name = dice.choice(["train"] * 6 + ["doctor", "check-env"])
    if name == "check-env":
        return [], command_line(dice, name, 0.0, ENV=_odd_env(dice))
    if name == "train" and dice.random() < 0.15:
        words = ["--env", _odd_env(dice), "--total-timesteps", "64", "--quiet"]
        return [], ["train", dice.choice(["ppo", "dqn", "sac"]), *words]
    config = dice.choice([CONFIG, CONFIG, REPLAY_CONFIG])
    mutations: list[Mutation] = []
    if config == REPLAY_CONFIG and dice.random() < 0.5:
        mutations.append(SetValue(config, ("env_id",), f"fuzz_choices:{dice.choice(GOALS)}-v0"))
        mutations.append(SetValue(config, ("algo_kwargs", "hindsight"), dice.choice([0.8, 4, -1, True, "x", 1e308])))
    for _ in range(dice.choice([1, 2, 3])):
        setting = dice.choice([*SETTINGS_OF_HOOKS, "env_id", "any"])
        if setting == "any":
            mutations.append(_edit(dice, tree / config, config))
            continue
        if setting == "env_id":
            value: Any = _odd_env(dice)
        elif setting in ODD_CLASSES and dice.random() < 0.7:
            value = ODD_CLASSES[setting](dice)
        else:
            value = dice.choice(SETTINGS_OF_HOOKS[setting])
        mutations.append(SetValue(config, (setting,), value))
    return mutations, ["train", config, "--quiet"] if name == "train" else ["doctor", config, "--seconds", "0.05"]


GENERATORS: dict[str, Callable[[Dice, Path], Made]] = {
    "run directories": _run_directory,
    "checkpoints": _checkpoint,
    "crash files": _crash_file,
    "zoo files": _zoo_file,
    "command lines": _command_line,
    "configs": _config,
}


def _mutation(dice: Dice, tree: Path, file: str, structured: float = 0.5) -> Mutation:
    """A random mutation of one file or directory, which need not exist."""
    path = tree / file
    if path.suffix in STRUCTURED and path.is_file() and dice.random() < structured:
        return _edit(dice, path, file)
    choice = dice.random()
    if path.is_file() and choice < 0.35:
        if dice.random() < 0.4:
            return SetContent(file, dice.choice(TEXTS))
        flips = tuple(dice.random() for _ in range(dice.choice([0, 1, 1, 5])))
        return ChangeBytes(
            file, flips, dice.choice([1.0, dice.random()]), dice.choice([b"", b"", b"\0", b"\n{}", b"}"])
        )
    if path.exists() and choice < 0.45:
        return Rename(file, dice.choice([*ESCAPES[:3], "n" * 255, LONG_NAME, "..", "other", "\udcff"]))
    kinds = [*SPECIAL, *(KEEPING_THE_FILE if path.exists() else ())]
    return Become(file, dice.choice(kinds))


def _edit(dice: Dice, path: Path, file: str) -> Mutation:
    """A random walk from the root of a document: most checks are about shallow values, and most values are deep."""
    document, place = read_document(path), ()
    value = document
    while isinstance(value, (dict, list)) and value and (not place or dice.random() < 0.6):
        key = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
        place, value = (*place, key), value[key]
    choice = dice.random()
    if isinstance(value, dict) and choice < 0.15:
        return AddKeys(file, place, dice.choice([1, 1_000, 60_000]), dice.choice([0, "x", {}, []]))
    if choice < 0.75:
        alike = [each for each in IN_FILES if type(each) is type(value)]
        return SetValue(file, place, dice.choice(alike if alike and dice.random() < 0.5 else IN_FILES))
    if choice < 0.85 or isinstance(place[-1], int):
        return DropValue(file, place)
    if choice < 0.92:
        return RepeatKey(file, place)
    return RenameKey(file, place, dice.choice([*ESCAPES, "", "other", LONG_NAME, "$tensor", "../x"]))
