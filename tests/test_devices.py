"""Devices: names that a config takes, float32 on the way to them, and a run on a GPU where there is one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from on_policy_helpers import make_learner, make_rollout
from replay_helpers import BOX, make_batch
from rl_training.algorithms.common.learner import device_is_here, resolve_device
from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.models.encoders.normalizer import ObservationNormalizer
from tiny_runs import EVERY_ALGORITHM, managed, train_tiny

BOOKKEEPING = 2  # numbers: learning rate, steps and powers of the optimizer, which stay on the CPU


# Their line search, and the look whether factors are finite, need values on the way.
READING = {"trpo", "acktr"}


class Watch(TorchDispatchMode):
    """Notes every float64 tensor of more than a few numbers that an operation makes, and values that Python reads.

    To read a value, Python waits until the device has computed it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.reads, self.active = 0, True

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads += self.active and function is torch.ops.aten._local_scalar_dense.default
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if (
                isinstance(leaf, torch.Tensor)
                and leaf.dtype == torch.float64
                and leaf.numel() > BOOKKEEPING
                and self.active
            ):
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
def test_acting_and_learning_make_no_float64_tensor_and_do_not_wait_for_values(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moments of observations are float64, and stay on the CPU between updates."""
    agent = managed(algorithm, tmp_path, normalize_observations=True)
    learner, watch, updates = type(agent.agent.learner), Watch(), 0

    def watched(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal updates
            watch.active, updates = True, updates + (method is update)
            result = method(*args, **kwargs)
            watch.active = False
            return result

        return call

    update = learner.update
    monkeypatch.setattr(learner, "update", watched(update))
    monkeypatch.setattr(learner, "act", watched(learner.act))
    watch.active = False
    with watch:
        agent.learn(64, show=False)
    assert updates > 1 and not watch.found, sorted(set(watch.found))
    assert algorithm in READING or not watch.reads


def test_the_watch_sees_a_float64_tensor_and_a_value_that_is_read() -> None:
    with Watch() as watch:
        assert float((torch.zeros(3) + torch.zeros(3, dtype=torch.float64)).sum()) == 0.0
    assert watch.found and watch.reads == 1


class Moves:
    """Counts the calls that may move a tensor to another device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("to", "cpu", "cuda"):
            monkeypatch.setattr(torch.Tensor, name, self._counting(getattr(torch.Tensor, name)))

    def _counting(self, move: Any) -> Any:
        def moved(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return move(*args, **kwargs)

        return moved


@pytest.mark.parametrize("algorithm", ["ppo", "ppg", "trpo", "pqn"])
def test_a_rollout_moves_once_however_many_minibatches_it_has(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for size in (4, 16):
        learner = make_learner(algorithm, "discrete", num_steps=16, minibatch_size=size, update_epochs=2)
        rollout = make_rollout(learner, 16, seed=0)
        with monkeypatch.context() as patch:
            moves = Moves(patch)
            learner.update(rollout)
        counts.append(moves.count)
    assert counts[0] == counts[1] > 0


def test_a_batch_of_replay_moves_whole() -> None:
    """`meta` stands for a device: every tensor of the batch is there after one call."""
    moved = make_batch(BOX, 8, 0, weights=True).to("meta")
    tensors = [part for field in fields(moved) if isinstance(part := getattr(moved, field.name), torch.Tensor)]
    assert len(tensors) == 6 and all(part.device.type == "meta" for part in tensors)


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
