"""The examples in the docstrings of the public entry points run and give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import rl_training

# The public name, and the docstring that explains it.
ENTRY_POINTS = {
    "PPO": "rl_training.api.managed:ManagedAlgorithm",
    "load": "rl_training.api.managed:ManagedAlgorithm.load",
    "load_config": "rl_training.config.loading:load_config",
    "train": "rl_training.runtime.workflows:train",
    "evaluate_checkpoint": "rl_training.runtime.workflows:evaluate_checkpoint",
    "ExperimentManager": "rl_training.experiment.manager:ExperimentManager",
    "Schedule": "rl_training.config.base:Schedule",
    "make_env": "rl_training.envs.factory:make_env",
}


def find(address: str) -> tuple[Any, str]:
    """The module of an address, and the docstring of its object."""
    module_name, _, path = address.partition(":")
    module: Any = import_module(module_name)
    documented = module
    for name in path.split("."):
        documented = getattr(documented, name)
    return module, documented.__doc__ or ""


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_the_examples_of_an_entry_point_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    module, text = find(ENTRY_POINTS[name])
    test = doctest.DocTestParser().get_doctest(text, vars(module), name, module.__file__, 0)
    assert test.examples, f"the docstring of {ENTRY_POINTS[name]} has no example"
    assert any(name in example.source for example in test.examples), f"no example uses {name}"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out


def test_a_wrong_example_would_fail() -> None:
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    report: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=report.append).failed == 1 and report


def test_the_public_ones_are_exported() -> None:
    internal = {"Schedule", "make_env"}
    assert set(ENTRY_POINTS) - internal <= set(rl_training.__all__)
