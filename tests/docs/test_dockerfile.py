"""The Dockerfile names files, extras and commands that exist, and runs the demo. It is not built here."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import sys
from pathlib import Path

import typer

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest depends on tomli there
    import tomli as tomllib

from rl_training.command_line.app import app

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {"FROM", "RUN", "WORKDIR", "ARG", "COPY", "ENV", "USER", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """Each instruction with its arguments, on one line."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(word, " ".join(rest.split())) for word, rest in lines]


def arguments(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a path of the checkout into the build; the last matching line decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!").removeprefix("**/")
        if any(fnmatch.fnmatch(part, pattern) for part in (path, *path.split("/"))) or path.startswith(f"{pattern}/"):
            sent = line.startswith("!")
    return sent


def test_instructions_are_known_and_start_with_an_image_of_a_supported_python() -> None:
    assert {word for word, _ in instructions()} <= KNOWN
    word, image = instructions()[0]
    python = re.fullmatch(r"python:(3\.\d+)-slim", image)
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert word == "FROM" and python and f"Programming Language :: Python :: {python[1]}" in classifiers


def test_copied_files_exist_and_are_sent() -> None:
    sources = [source for rest in arguments("COPY") for source in rest.split()[:-1]]
    assert {"src", "pyproject.toml", "constraints.txt"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists() and is_sent(source), source
    assert is_sent("src/rl_training/assets/configs/ppo/cartpole.yaml")
    for path in (".git", ".venv/bin/python", "runs/a/run.json", "src/rl_training/__pycache__/errors.pyc", "demo.gif"):
        assert not is_sent(path), path


def test_the_steps_install_the_pinned_cpu_build_and_extras_that_exist() -> None:
    steps = " && ".join(arguments("RUN"))
    (install,) = re.findall(r"pip install [^&]*--constraint[^&]*", steps)
    assert "--constraint constraints.txt" in install and '--extra-index-url "$TORCH_INDEX"' in install
    assert arguments("ARG") == ["TORCH_INDEX=https://download.pytorch.org/whl/cpu"]
    extras = re.search(r'"\.\[([a-z0-9,]+)\]"', install)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras and set(extras[1].split(",")) <= set(project["optional-dependencies"])
    # What the first installation reads must be in its layer.
    version = project["dynamic"] == ["version"] and "src/rl_training/_version.py"
    assert version in " ".join(arguments("COPY")[:2]) and project["readme"] in arguments("COPY")[0]


def test_the_container_runs_the_demo_of_the_makefile_as_an_ordinary_user() -> None:
    shell, flag, line = json.loads(arguments("CMD")[0])
    commands = line.split(" && ")
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo: ")[2].partition("\n\n")[0].splitlines()[1:]
    assert (shell, flag) == ("sh", "-c")
    assert commands == [step.strip().removeprefix("$(BIN)/") for step in recipe]
    for command in commands:
        words = shlex.split(command)[1:]
        typer.main.get_command(app).commands[words[0]].make_context(command, words[1:])  # type: ignore[attr-defined]
    names = [word for word, _ in instructions()]
    assert names.index("USER") > max(number for number, word in enumerate(names) if word == "RUN")
    assert arguments("USER") == ["trainer"] and arguments("WORKDIR")[-1] == "/out"
