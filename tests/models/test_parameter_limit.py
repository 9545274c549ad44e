"""The limit on parameters acts before a network is initialized, and only on the networks built inside it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.models import parameter_limit as limits
from rl_training.models.parameter_limit import networks_within_memory, parameter_limit
from rl_training.runtime.workflows import train
from tiny_runs import env_of


def test_values_and_tensors_are_counted_over_all_modules() -> None:
    with parameter_limit(24, 4, ValueError("too large")):
        nn.Linear(3, 3), nn.Linear(3, 3)
    for values, tensors in ((23, 4), (24, 3)):
        with pytest.raises(ValueError, match="too large"), parameter_limit(values, tensors, ValueError("too large")):
            nn.Linear(3, 3), nn.Linear(3, 3)
    nn.Linear(100, 100)


def test_a_network_that_is_too_large_is_not_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    initialized: list[Any] = []
    monkeypatch.setattr(nn.Linear, "reset_parameters", initialized.append)
    with pytest.raises(ValueError, match="too large"), parameter_limit(1000, 100, ValueError("too large")):
        nn.Linear(20_000, 20_000)
    assert initialized == []


def test_another_thread_may_build_what_it_likes() -> None:
    built: list[nn.Module] = []
    with parameter_limit(10, 10, ValueError("too large")):
        thread = threading.Thread(target=lambda: built.append(nn.Linear(100, 100)))
        thread.start()
        thread.join()
    assert len(built) == 1


def test_memory_that_cannot_be_reserved_is_one_line() -> None:
    for size in (2**40, 2**62):
        with pytest.raises(ConfigError, match=r"do not fit into the .* GB"), networks_within_memory():
            torch.empty(size)
    with pytest.raises(RuntimeError, match="something else"), networks_within_memory():
        raise RuntimeError("something else")


@pytest.mark.parametrize(
    "algo", ["td7", "crossq", "tqc", "redq", "droq", "sac", "mpo", "apex_d4pg", "apex_td3", "acer"]
)
def test_a_critic_wider_than_memory_allows_is_refused_before_training(
    algo: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A small actor beside it does not help, and no run directory is left."""
    monkeypatch.setattr(limits, "available_bytes", lambda: 10**9)
    model = {"hidden_sizes": (8,), "critic": {"hidden_sizes": (40_000, 40_000)}}
    base = {"algo": algo, "env_id": env_of(algo), "model": model, "output_dir": str(tmp_path / "runs")}
    with pytest.raises(ConfigError, match=r"^model: .* use smaller layers \(hidden_sizes\)$") as caught:
        train(load_config({**base, "total_timesteps": 2000, "checkpoint_every": 0}), show=False)
    assert "\n" not in str(caught.value) and not (tmp_path / "runs").exists()


def test_training_refuses_networks_beyond_the_memory_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(limits, "available_bytes", lambda: 200_000)
    small = {"output_dir": str(tmp_path / "runs"), "total_timesteps": 64, "num_steps": 32}
    with pytest.raises(ConfigError, match=r"^model: .*smaller layers"):
        train(load_config("ppo/cartpole", small, {"hidden_sizes": [200, 200]}), show=False)
    assert not (tmp_path / "runs").exists()
