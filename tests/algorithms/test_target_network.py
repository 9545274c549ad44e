"""Target networks: soft moves, full copies and their count, alone and in runs of every algorithm that copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.experiment.registry import algorithm_names, get_config_class
from tiny_runs import managed

COPYING = [name for name in algorithm_names() if "target_update_every" in get_config_class(name).model_fields]


def pair() -> tuple[nn.Linear, TargetNetwork[nn.Linear]]:
    online = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        online.weight.copy_(torch.tensor([[1.0, 2.0]]))
    return online, TargetNetwork(online, copied=True)


def weights(target: TargetNetwork[nn.Linear]) -> list[float]:
    values: list[float] = target.module.weight[0].tolist()
    return values


def test_a_soft_move_goes_a_share_of_the_way() -> None:
    online, target = pair()
    with torch.no_grad():
        online.weight.copy_(torch.tensor([[3.0, 2.0]]))
    target.follow(0.25)
    assert weights(target) == [1.5, 2.0]
    target.follow()
    assert weights(target) == [3.0, 2.0]


def test_copies_are_made_once_in_each_period_and_again_after_a_new_start() -> None:
    online, target = pair()
    copied = []
    for env_steps in (0, 9, 10, 11, 25, 29, 30, 0, 4, 10):
        with torch.no_grad():
            online.weight += 1.0
        target.copy_every(env_steps, 10)
        copied.append(torch.equal(target.module.weight, online.weight))
    assert copied == [False, False, True, False, True, False, True, True, False, True]
    assert target.copies.value == 1


def test_there_are_algorithms_that_copy() -> None:
    assert {"dqn", "c51", "appo"} <= set(COPYING)


def parameters(agent: Any) -> Tensor:
    return torch.cat([value.reshape(-1).clone() for value in agent.agent.learner.target.module.parameters()])


@pytest.mark.parametrize("algo", COPYING)
def test_a_run_from_a_saved_agent_moves_its_target_though_the_old_run_was_longer(algo: str, tmp_path: Path) -> None:
    """The new run counts its steps from 0: its periods are earlier ones than that of the last copy."""
    old = managed(algo, tmp_path, target_update_every=50).learn(600, show=False)
    assert old.agent.learner.target.copies.value > 300 // 50
    new = type(old).load(old.save(tmp_path / "agent"))
    before = parameters(new)
    new.learn(300, show=False)
    assert not torch.equal(before, parameters(new))
    assert new.agent.learner.target.copies.value <= 300 // 50


@pytest.mark.parametrize("algo", COPYING)
def test_the_count_of_copies_is_stored_as_a_part_of_the_learner(algo: str, tmp_path: Path) -> None:
    learner = managed(algo, tmp_path, target_update_every=16).learn(64, show=False).agent.learner
    assert learner.state_dict()["parts"]["target_copies"] == {"value": learner.target.copies.value}
    assert learner.target.copies.value > 0
