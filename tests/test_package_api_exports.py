"""What can be imported from where, and that importing costs nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest

import rl_training
import rl_training.algorithms
import rl_training.api
import rl_training.models
from rl_training.experiment.registry import get_learner
from tiny_runs import EVERY_ALGORITHM, class_name

PACKAGES = ["rl_training", "rl_training.api", "rl_training.algorithms", "rl_training.models", "rl_training.envs"]
PACKAGES += ["rl_training.contrib"]


@EVERY_ALGORITHM
def test_managed_class_is_the_same_from_every_address(algorithm: str) -> None:
    name = class_name(algorithm)
    managed = getattr(rl_training, name)
    assert managed is getattr(rl_training.api, name)
    assert managed is getattr(import_module("rl_training.api.algorithms"), name)
    assert issubclass(managed, rl_training.api.ManagedAlgorithm)
    assert managed.algorithm == algorithm
    assert managed.__doc__


@EVERY_ALGORITHM
def test_learner_is_exported_and_is_not_the_managed_class(algorithm: str) -> None:
    learner = getattr(rl_training.algorithms, class_name(algorithm))
    assert learner is get_learner(algorithm)
    assert issubclass(learner, rl_training.algorithms.Learner)
    assert learner is not getattr(rl_training, class_name(algorithm))


@EVERY_ALGORITHM
def test_algorithm_is_listed_in_every_all(algorithm: str) -> None:
    for package in (rl_training, rl_training.api, rl_training.algorithms):
        assert class_name(algorithm) in package.__all__


@pytest.mark.parametrize("package", PACKAGES)
def test_every_promised_name_exists(package: str) -> None:
    module = import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None
    if package != "rl_training.envs":
        assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_unknown_name_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"{package}.*no attribute 'PPPO'"):
        import_module(package).PPPO


def test_version_is_that_of_the_distribution() -> None:
    assert rl_training.__version__ == version("rl_training")


def test_imports_are_light_until_a_class_is_asked_for() -> None:
    program = (
        "import sys\n"
        f"for name in {PACKAGES}: __import__(name); dir(sys.modules[name])\n"
        "import rl_training\n"
        "rl_training.TrainConfig, rl_training.load_config, rl_training.RLTrainingError\n"
        "heavy = {'torch', 'gymnasium'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from rl_training import *\n"
        "assert PPO is rl_training.PPO and 'torch' in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
