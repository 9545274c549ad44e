"""How a user can call this program again, and add packages to it: by name if the shell finds it, or else by its path.

After `make demo` the environment is not active, so a hint that says `rl-training eval` would name no command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "rl-training"


def program() -> str:
    """The words that start this program in the user's shell, quoted where it needs quotes."""
    started, beside = Path(sys.argv[0] if sys.argv else ""), _beside_interpreter()
    if started.stem == NAME and started.is_file():
        return _shown(started, NAME)
    if beside is not None and _is_found(beside, NAME):
        return NAME
    as_module = started.name == "__main__.py" and started.absolute().parent == Path(__file__).parent
    if beside is not None and not as_module:
        return _shown(beside, NAME)
    return f"{_shown(Path(sys.executable), 'python')} -m rl_training" if sys.executable else NAME


def call(*words: object) -> str:
    """A command of this program, to copy: `rl-training eval runs/a`.

    >>> call("list", "runs").endswith("list runs")
    True
    """
    return " ".join([program(), *(shlex.quote(str(word)) for word in words)])


def pip() -> str:
    """The pip of this interpreter: a plain `pip` may install into another environment."""
    if not sys.executable or _is_found(Path(sys.executable).with_name("pip"), "pip"):
        return "pip"
    return f"{_shown(Path(sys.executable), 'python')} -m pip"


def pip_install(extra: str) -> str:
    """The command that installs an extra where this program is installed, from the same source."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "pyproject.toml").is_file() or not (checkout / "src").is_dir():
        return f'{pip()} install "rl_training[{extra}]"'
    place = "." if Path.cwd() == checkout else checkout
    return f'{pip()} install -e "{place}[{extra}]"'


def _beside_interpreter() -> Path | None:
    """The script that pip installed for this interpreter."""
    if not sys.executable:
        return None
    script = Path(sys.executable).with_name(f"{NAME}.exe" if os.name == "nt" else NAME)
    return script if script.is_file() else None


def _shown(file: Path, name: str) -> str:
    """`name` if the shell finds this file by it, or else its path, relative if it is in the working directory."""
    if _is_found(file, name):
        return name
    try:
        inside = file.absolute().relative_to(Path.cwd())
    except (OSError, ValueError):
        return shlex.quote(str(file.absolute()))
    return shlex.quote(os.path.join("" if len(inside.parts) > 1 else os.curdir, inside))


def _is_found(file: Path, name: str) -> bool:
    """Whether the shell runs `file` when the user types `name`."""
    found = shutil.which(name)
    if found is None:
        return False
    if name != NAME:  # the interpreters of all environments may be links to the same file
        return os.path.abspath(found) == os.path.abspath(file)
    try:
        return os.path.samefile(found, file)
    except OSError:
        return False
