"""examples/plugin_package: an algorithm of another package is found by its entry point, listed, trained and resumed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "examples" / "plugin_package"

# One worker installs once.
pytestmark = pytest.mark.xdist_group("plugin")

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a folder of its own, installed by pip from a copy, without a network."""
    copy = tmp_path_factory.mktemp("plugin") / "package"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    target = copy.parent / "installed"
    pip_install(copy, target)
    return target


def pip_install(source: Path, target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", target, source], check=True)


@pytest.fixture
def command(installed: Path, tmp_path: Path) -> Command:
    def run(*words: object, plugin: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(installed) if plugin else ""}
        command = [sys.executable, "-m", "rl_training", *map(str, words)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def test_the_file_of_the_docs_is_installed_and_trained_by_its_name(tmp_path: Path, command: Command) -> None:
    page = (ROOT / "docs" / "own-algorithm.md").read_text(encoding="utf-8")
    (program, *_), (project,) = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "toml"))
    source = tmp_path / "source"
    source.mkdir()
    (source / "my_algorithm.py").write_text(program, encoding="utf-8")
    (source / "pyproject.toml").write_text(project, encoding="utf-8")
    (source / "runs").mkdir()  # of earlier training: it is no package
    pip_install(source, tmp_path / "installed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path / "installed")}
    words = ["train", "repeat", "--env", "CartPole-v1", "--total-timesteps", "512", "--quiet", "--json"]
    trained = subprocess.run(
        [sys.executable, "-m", "rl_training", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["env_steps"] == 512
    refused = command(*words, plugin=False)
    assert refused.returncode == 2
    assert "an algorithm of your own must be installed or registered (docs/own-algorithm.md)" in refused.stderr


def test_an_installed_algorithm_is_listed_with_its_settings(command: Command) -> None:
    listed = json.loads(command("list", "algorithms", "--json").stdout)
    (row,) = (row for row in listed if row["name"] == "reinforce")
    assert "REINFORCE" in json.dumps(row)
    assert "reinforce" not in command("list", "algorithms", plugin=False).stdout
    settings = command("list", "settings", "reinforce")
    assert settings.returncode == 0 and "gae_lambda" in settings.stdout


def test_an_installed_algorithm_learns_and_resumes(command: Command) -> None:
    config = PACKAGE / "cartpole.yaml"
    trained = command("train", config, "--total-timesteps", 30_000, "--quiet", "--json")
    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)
    assert result["eval"]["mean_return"] > 60, "an untrained agent has 9 to 25"
    longer = command("resume", result["run_dir"], "--total-timesteps", 30_500, "--quiet", "--json")
    assert json.loads(longer.stdout)["env_steps"] > result["env_steps"]


def test_the_program_of_its_page_runs(installed: Path, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(installed)}
    small = program.replace("50_000", "512") + "print(type(agent).__name__, agent.env_steps)\n"
    command = [sys.executable, "-c", small]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "REINFORCE 512"


def test_without_its_package_the_name_is_refused_in_one_line(command: Command) -> None:
    refused = command("train", PACKAGE / "cartpole.yaml", plugin=False)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "algo: unknown algorithm 'reinforce'" in line
    assert line.endswith("an algorithm of your own must be installed or registered (docs/own-algorithm.md)")


def test_a_package_that_cannot_be_imported_is_refused_in_one_line(command: Command, installed: Path) -> None:
    module = installed / "reinforce_plugin" / "reinforce.py"
    text = module.read_text(encoding="utf-8")
    module.write_text("import a_module_that_is_missing\n", encoding="utf-8")
    try:
        refused = command("train", PACKAGE / "cartpole.yaml")
    finally:
        module.write_text(text, encoding="utf-8")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "algo: reinforce_plugin.reinforce:ReinforceConfig cannot be imported (ModuleNotFoundError" in line


def test_a_broken_package_does_not_hide_the_algorithms_of_others(command: Command, installed: Path) -> None:
    broken = installed / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n", encoding="utf-8")
    (broken / "entry_points.txt").write_text("[rl_training.algorithms]\nexits = broken:ROW\n", encoding="utf-8")
    (installed / "broken.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    try:
        listed = command("list", "algorithms", "--json")
        refused = command("train", "exits", "--env", "CartPole-v1")
    finally:
        shutil.rmtree(broken)
    assert listed.returncode == 0 and len(json.loads(listed.stdout)) >= 16
    assert "warning: algo: exits of broken:ROW cannot be imported (SystemExit: 0)" in listed.stderr
    assert refused.returncode == 2 and "SystemExit: 0" in refused.stderr


def test_an_installed_sink_is_used_by_its_name(command: Command, tmp_path: Path) -> None:
    options = ["--total-timesteps", 512, "--set", "sinks=[{sink: scores, digits: 3}]", "--quiet", "--json"]
    trained = command("train", "ppo/cartpole", *options)
    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)
    step, score = (tmp_path / result["run_dir"] / "scores.txt").read_text().splitlines()[-1].split()
    assert step == "512" and float(score) == pytest.approx(result["eval"]["mean_return"], abs=1e-3) and score[-4] == "."
    found = command("inspect", result["run_dir"], "--json", plugin=False)
    assert found.returncode == 0, "a stored run can be read without the package of its sink"
    refused = command("train", "ppo/cartpole", *options, plugin=False)
    assert refused.returncode == 2 and "scores: there is no such sink" in refused.stderr
