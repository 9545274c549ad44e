"""The wheel and the sdist hold the real files, and the installed package works far from the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

# One worker builds once; spread over workers the same build would be repeated.
pytestmark = pytest.mark.xdist_group("package")

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "rl_training"
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv*", "runs", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", "wandb"
)


def test_tests_of_a_group_share_a_worker(request: pytest.FixtureRequest) -> None:
    """With some versions of pytest, pytest-xdist sees no groups and says nothing."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@package")


class Built(NamedTuple):
    wheel: Path
    sdist: Path


class Installed(NamedTuple):
    python: Path
    command: Path
    elsewhere: Path


def clean_environment() -> dict[str, str]:
    """Without variables that could put the checkout, or this interpreter's venv, back on the path."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}
    return {key: value for key, value in os.environ.items() if key not in hidden}


def run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, f"{command} failed:\n{result.stdout}\n{result.stderr}"
    return result.stdout


def expected_version() -> str:
    match = re.search(r'__version__ = "([^"]+)"', (SOURCE / "_version.py").read_text())
    assert match, "_version.py has no __version__ line"
    return match.group(1)


def packaged_files(suffix: str) -> set[str]:
    return {"rl_training/" + path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob(f"*{suffix}")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Builds from a copy, so that a build never leaves anything in the checkout."""
    checkout = tmp_path_factory.mktemp("checkout") / "rl_training"
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=NOT_COPIED)
    # The wheel is made from the sdist, which proves that the sdist is complete.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", checkout / "dist", ".", cwd=checkout)
    (wheel,) = (checkout / "dist").glob("*.whl")
    (sdist,) = (checkout / "dist").glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An empty environment with the wheel in it; dependencies are borrowed, so that no network is used."""
    base = tmp_path_factory.mktemp("installed")
    builder = venv.EnvBuilder(with_pip=False, symlinks=True)
    builder.create(base / "env")
    context = builder.ensure_directories(base / "env")
    python = Path(context.env_exe)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=base).strip())
    # A directory named in a .pth file is added without reading the .pth files inside it: an editable
    # install of the checkout next to the borrowed dependencies stays invisible.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index",
        "--no-cache-dir", built.wheel, cwd=base,
    )  # fmt: skip
    elsewhere = base / "elsewhere"
    elsewhere.mkdir()
    return Installed(python, python.parent / "rl-training", elsewhere)


def test_wheel_holds_every_module_preset_and_the_typing_marker(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
        sizes = {item.filename: item.file_size for item in archive.infolist()}
    presets = packaged_files(".yaml") | packaged_files(".json") | packaged_files(".md")
    assert "rl_training/assets/zoo/README.md" in presets and "rl_training/assets/configs/ppo/cartpole.yaml" in presets
    assert presets | packaged_files(".py") | {"rl_training/py.typed"} <= names
    for preset in presets:
        assert sizes[preset] == (SOURCE.parent / preset).stat().st_size
    assert not [name for name in names if name.startswith(("tests/", "configs/", "zoo/", "examples/"))]


def test_sdist_holds_the_real_presets_and_no_link(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = archive.getmembers()
    top = members[0].name.split("/")[0]
    links = [member.name for member in members if member.issym() or member.islnk()]
    assert links == []
    files = {member.name for member in members if member.isfile()}
    suffixes = (".yaml", ".json", ".md", ".py")
    for name in set().union(*map(packaged_files, suffixes)) | {"rl_training/py.typed"}:
        assert f"{top}/src/{name}" in files
    assert f"{top}/LICENSE" in files
    assert f"{top}/pyproject.toml" in files


@pytest.mark.parametrize("name", ["configs", "zoo"])
def test_root_folder_is_a_view_of_the_packaged_one(name: str) -> None:
    assert (ROOT / name).resolve() == (SOURCE / "assets" / name).resolve()


def test_installed_package_validates_every_preset_outside_the_checkout(installed: Installed) -> None:
    program = f"""
import sys
from importlib.resources import files
from pathlib import Path
import rl_training
from rl_training.config.loading import load_config

checkout = Path({str(ROOT)!r})
assert checkout not in Path(rl_training.__file__).resolve().parents, rl_training.__file__
assert not [p for p in sys.path if p and Path(p).resolve() in (checkout, checkout / "src")], sys.path
presets = files("rl_training") / "assets" / "configs"
for algorithm in sorted(presets.iterdir(), key=lambda item: item.name):
    for preset in sorted(algorithm.iterdir(), key=lambda item: item.name) if algorithm.is_dir() else ():
        if preset.name.endswith(".yaml"):
            name = algorithm.name + "/" + preset.name.removesuffix(".yaml")
            print(name, load_config(name).algo)
"""
    lines = run(installed.python, "-c", program, cwd=installed.elsewhere).splitlines()
    resolved = dict(line.split() for line in lines)
    in_source = {
        path.relative_to(SOURCE / "assets" / "configs").with_suffix("").as_posix()
        for path in (SOURCE / "assets" / "configs").glob("*/*.yaml")
    }
    assert set(resolved) == in_source
    assert in_source
    for name, algorithm in resolved.items():
        assert name.split("/")[0] == algorithm


def test_installed_program_answers_as_module_and_as_command(installed: Installed) -> None:
    as_module = run(installed.python, "-m", "rl_training", "--version", cwd=installed.elsewhere)
    as_command = run(installed.command, "--version", cwd=installed.elsewhere)
    assert expected_version() in as_module
    assert as_module == as_command


def test_installed_zoo_lists_its_manifests_and_bands_far_from_the_checkout(installed: Installed) -> None:
    listed = run(installed.command, "zoo", "list", "--json", cwd=installed.elsewhere)
    assert {line["name"] for line in json.loads(listed)} == {"atari", "box2d", "classic", "mujoco"}
    words = ("zoo", "run", "classic", "--only", "ppo/cartpole", "--dry-run")
    planned = run(installed.command, *words, cwd=installed.elsewhere)
    assert "5 of 5 runs left" in planned
    program = "from rl_training.zoo.band import band_path; print(band_path('ppo/cartpole').is_file())"
    assert run(installed.python, "-c", program, cwd=installed.elsewhere).strip() == "True"


def test_installed_program_trains_far_from_the_checkout(installed: Installed) -> None:
    words = ("train", "ppo/cartpole", "--total-timesteps", "512", "--quiet", "--json")
    report = json.loads(run(installed.command, *words, cwd=installed.elsewhere))
    assert report["env_steps"] == 512 and (installed.elsewhere / report["checkpoint"] / "manifest.json").is_file()


def test_version_is_written_in_one_place(installed: Installed) -> None:
    version = expected_version()
    program = (
        "import importlib.metadata, rl_training\n"
        "print(importlib.metadata.version('rl_training'), rl_training.__version__)"
    )
    assert run(installed.python, "-c", program, cwd=installed.elsewhere).split() == [version, version]
    quoted = re.compile(rf"""["']{re.escape(version)}["']""")
    holders = [path.name for path in SOURCE.rglob("*.py") if quoted.search(path.read_text())]
    assert holders == ["_version.py"]
    assert not quoted.search((ROOT / "pyproject.toml").read_text())
