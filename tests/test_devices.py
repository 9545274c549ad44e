"""Devices: names that a config takes, float32 on the way to them, and a run on a GPU where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rl_training.algorithms.common.learner import device_is_here, resolve_device
from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.models.normalizer import ObservationNormalizer
from tiny_runs import EVERY_ALGORITHM, managed, train_tiny

BOOKKEEPING = 2  # numbers: learning rate, steps and powers of the optimizer, which stay on the CPU


class LargeDoubles(TorchDispatchMode):
    """Notes every float64 tensor of more than a few numbers that an operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64 and leaf.numel() > BOOKKEEPING:
                self.found.append(str(function))
        return result


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:0", "cuda:1", "mps", "auto"])
def test_names_of_devices(name: str) -> None:
    assert load_config({"algo": "ppo", "env_id": "CartPole-v1", "device": name}).device == name


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:1000", "mps:0", ""])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"device: .* expected text that is cpu, cuda, cuda:N, mps or auto"):
        load_config({"algo": "ppo", "env_id": "CartPole-v1", "device": name})


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps"])
def test_a_device_that_is_not_here_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"^device: {name} is not available here .*, use device=auto or device=cpu$"):
        resolve_device(name)


def test_the_number_of_a_device_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_is_here("cuda") and device_is_here("cuda:1") and resolve_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match=r"cuda:2 is not available here \(there are 2 CUDA devices\)"):
        resolve_device("cuda:2")


@EVERY_ALGORITHM
def test_no_float64_tensor_is_made_between_env_and_update(algorithm: str, tmp_path: Path) -> None:
    agent = managed(algorithm, tmp_path)
    with LargeDoubles() as watch:
        agent.learn(64, show=False)
    assert not watch.found, sorted(set(watch.found))


def test_the_watch_sees_a_float64_tensor() -> None:
    with LargeDoubles() as watch:
        torch.zeros(3) + torch.zeros(3, dtype=torch.float64)
    assert watch.found


def test_moments_of_observations_stay_on_the_cpu_in_float64() -> None:
    """`meta` stands for a device: it can be asked for anywhere."""
    normalizer = ObservationNormalizer((3,), 10.0).to("meta")
    assert normalizer.shift.device.type == normalizer.scale.device.type == "meta"
    assert normalizer.mean.device.type == "cpu" and normalizer.mean.dtype == torch.float64


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("algorithm", ["ppo", "sac", "dqn"])
def test_a_run_on_the_gpu_learns_what_one_on_the_cpu_learns(algorithm: str, tmp_path: Path) -> None:
    cpu, gpu = (train_tiny(algorithm, tmp_path / name, device=name).agent.learner.model for name in ("cpu", "cuda:0"))
    for one, two in zip(cpu.parameters(), gpu.parameters(), strict=True):
        assert two.device.type == "cuda"
        np.testing.assert_allclose(one.detach(), two.detach().cpu(), rtol=1e-2, atol=1e-3)
