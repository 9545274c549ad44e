"""Test the version ranges of pyproject.toml: build an environment with the oldest versions and one with the newest.

    python scripts/check_floors.py                      both environments, the tests of CHECKED
    python scripts/check_floors.py oldest               one of them
    python scripts/check_floors.py newest -- -m slow    arguments after -- go to pytest instead of CHECKED
    python scripts/check_floors.py --pin torch==2.13.0  this version instead of the oldest or the newest (repeatable)
    python scripts/check_floors.py --dry-run            print what would be installed

The oldest environment pins every dependency and extra of the package to the lower bound of its range. The newest one
takes what pip finds. Both install the package itself as users do, not editable, and run the tests of this checkout.
On Linux, PyPI's torch brings several gigabytes of CUDA libraries: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
avoids them. The exit code is 0 only if all tests pass in every environment.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest depends on tomli there
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("oldest", "newest")
# The extras that tests import. The others are for services and for work on the package.
EXTRAS = ("atari", "box2d", "mujoco", "tensorboard", "video", "plots", "dashboard", "ray")
# Gymnasium 1.1 builds Box2D from source. The oldest environment takes the wheel of it that newer releases ask for.
BOX2D = "box2d==2.3.10"
TOOLS = ("pytest>=8,<9.2", "pytest-xdist>=3.5", "hypothesis>=6.100", "build>=1.2", "setuptools>=77", "wheel")
# Everything that touches a dependency. The rest reads the checkout or repeats the same calls.
CHECKED = (
    "tests/algorithms", "tests/models", "tests/data", "tests/envs", "tests/runtime", "tests/storage",
    "tests/telemetry", "tests/config", "tests/command_line", "tests/playback", "tests/analysis", "tests/dashboard",
    "tests/experiment", "tests/test_public_api.py", "tests/test_atari_envs.py", "tests/test_ppo_update.py",
    "tests/test_dqn_update.py",
    "tests/test_sac_update.py", "tests/test_recurrent_models.py", "tests/test_examples.py",
)  # fmt: skip
WORKERS = ("-n", "2", "--dist", "loadgroup")
SHOWN = ("torch", "numpy", "gymnasium", "pydantic", "typer", "rich", "safetensors", "PyYAML", "threadpoolctl")
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+(?:\[[\w,-]+\])?)(?P<range>.*)")


def requirements(project: dict[str, Any]) -> list[str]:
    """The dependencies of the package and of the extras that are tested."""
    found = list(project["dependencies"])
    for extra in EXTRAS:
        found += project["optional-dependencies"][extra]
    return found


def oldest(requirement: str) -> str:
    """The requirement at its lower bound; as it is if it has none.

    >>> oldest("gymnasium>=1.1,<2")
    'gymnasium==1.1'
    >>> oldest("gymnasium[box2d]")
    'gymnasium[box2d]'
    """
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise SystemExit(f"pyproject.toml: cannot read the requirement {requirement!r}")
    floor = re.search(r">=\s*([\w.]+)", match["range"])
    return f"{match['name']}=={floor[1]}" if floor else requirement


def all_oldest(found: list[str]) -> list[str]:
    """Every requirement at its lower bound. An extra that needs more than the package itself is left out.

    >>> all_oldest(["gymnasium>=1.1,<2", "gymnasium[box2d]>=1.2.3", "gymnasium[mujoco]"])
    ['gymnasium==1.1', 'gymnasium[mujoco]']
    """
    kept: dict[str, str] = {}  # name without extras -> version
    pinned = []
    for requirement in map(oldest, found):
        name, _, version = requirement.partition("==")
        name = name.partition("[")[0]
        if not version or kept.setdefault(name, version) == version:
            pinned.append(requirement)
    return pinned


def name_of(requirement: str) -> str:
    """
    >>> name_of("gymnasium[box2d]>=1.2.3")
    'gymnasium'
    """
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def wanted(kind: str, pins: Sequence[str] = ()) -> list[str]:
    """What pip installs in one environment, besides the package. `pins` replace the requirements of the same name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = requirements(project)
    chosen = [*all_oldest(found), BOX2D] if kind == "oldest" else found
    pinned = {name_of(pin) for pin in pins}
    return [*(each for each in chosen if name_of(each) not in pinned), *pins, *TOOLS]


def make_environment(kind: str, folder: Path, pins: Sequence[str] = ()) -> Path:
    """Build or update an environment; returns its interpreter."""
    python = folder / kind / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(folder / kind, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    newest = ["--upgrade", "--upgrade-strategy", "eager"] if kind == "newest" else []
    subprocess.run([*pip, *newest, *wanted(kind, pins)], check=True)
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # setuptools would pack what an earlier build left there
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--force-reinstall", str(ROOT)], check=True)
    return python


def versions(python: Path) -> str:
    program = "import sys; from importlib import metadata; print(*map(metadata.version, sys.argv[1:]))"
    found = subprocess.run([python, "-c", program, *SHOWN], check=True, capture_output=True, text=True).stdout.split()
    return ", ".join(f"{name} {version}" for name, version in zip(SHOWN, found, strict=True))


def run_tests(python: Path, arguments: list[str]) -> int:
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or (*WORKERS, *CHECKED))]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **threads}, check=False).returncode


def main(words: list[str]) -> int:
    split = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="oldest|newest", help="which environments; default: both")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "floors", help="where the environments are")
    parser.add_argument("--pin", action="append", default=[], metavar="NAME==VERSION", help="this version instead")
    parser.add_argument("--dry-run", action="store_true", help="print what would be installed")
    arguments = parser.parse_args(words[:split])
    unknown = set(arguments.kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown environment {sorted(unknown)[0]!r}: expected oldest or newest")
    failed = []
    for kind in arguments.kinds or KINDS:
        if arguments.dry_run:
            print(f"{kind}: {' '.join(wanted(kind, arguments.pin))}")
            continue
        python = make_environment(kind, arguments.folder, arguments.pin)
        print(f"{kind}: {versions(python)}", flush=True)
        if run_tests(python, words[split + 1 :]) != 0:
            failed.append(kind)
    if failed:
        print(f"tests failed with the {' and the '.join(failed)} versions", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
