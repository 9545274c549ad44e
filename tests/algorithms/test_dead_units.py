"""The share of dead units: what counts as dead, and that looking changes nothing."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rl_training
from replay_helpers import BOX, DISCRETE, make_batch, make_learner
from rl_training.algorithms.common.dead_units import MOST_ROWS, dead_units, some_rows
from rl_training.algorithms.common.learner import Learner
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import EVERY_ALGORITHM, train_tiny


def two_layers(activation: nn.Module) -> nn.Sequential:
    """Four hidden units with the inputs x, -x, -5 and 5."""
    network = nn.Sequential(nn.Linear(1, 4), activation, nn.Linear(4, 1), nn.Tanh())
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [-1.0], [0.0], [0.0]]))
        network[0].bias.copy_(torch.tensor([0.0, 0.0, -5.0, 5.0]))
        network[2].weight.fill_(0.0)
        network[2].bias.fill_(9.0)  # an output beyond 0.99 is not a hidden unit
    return network


@pytest.mark.parametrize(
    ("activation", "rows", "expected"),
    [
        (nn.ReLU(), [1.0, 2.0], 0.5),  # -x and -5 are 0 in every row
        (nn.ReLU(), [-1.0, 2.0], 0.25),
        (nn.Tanh(), [0.1, 3.0], 0.5),
        (nn.Tanh(), [3.0, -3.0], 1.0),  # at either end
        (nn.Tanh(), [3.0, 2.0], 0.5),
    ],
)
def test_a_unit_is_dead_if_it_is_so_in_every_row(activation: nn.Module, rows: list[float], expected: float) -> None:
    network, inputs = two_layers(activation), torch.tensor(rows)[:, None]
    assert float(dead_units(network, lambda: network(inputs)) or 0.0) == expected


def test_a_channel_of_an_image_is_one_unit() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Flatten())
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([1.0, -1.0]).view(2, 1, 1, 1))
        network[0].bias.zero_()
    images = torch.ones(3, 1, 2, 2)
    assert dead_units(network, lambda: network(images)) == 0.5
    images[1, 0, 1, 1] = -1.0
    assert dead_units(network, lambda: network(images)) == 0.0


def test_without_hidden_layers_there_is_no_share() -> None:
    network = nn.Sequential(nn.Linear(2, 1))
    assert dead_units(network, lambda: network(torch.ones(3, 2))) is None


def test_rows_are_spread_over_the_batch() -> None:
    rows = some_rows(torch.arange(1000))
    assert MOST_ROWS <= len(rows) <= 2 * MOST_ROWS and int(rows[-1]) > 900
    assert len(some_rows(torch.arange(10))) == 10


def test_no_hook_stays_behind_even_after_an_error() -> None:
    network = two_layers(nn.ReLU())
    with pytest.raises(ZeroDivisionError):
        dead_units(network, lambda: 1 / 0)
    assert not any(layer._forward_hooks for layer in network)


@pytest.mark.parametrize(("algo", "spaces"), [("dqn", DISCRETE), ("c51", DISCRETE), ("sac", BOX), ("naf", BOX)])
def test_looking_changes_neither_networks_nor_random_streams(
    algo: str, spaces: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(every: int) -> tuple[dict[str, Any], dict[str, Any]]:
        monkeypatch.setattr(Learner, "probe_every", every)
        learner = make_learner(algo, spaces)
        results = [learner.update(make_batch(spaces, 8, seed)) for seed in range(4)]
        return copy.deepcopy(learner.state_dict()), dict(results[-1])

    (seldom, plain), (always, probed) = states(100), states(1)
    assert "dead_units" in probed and "dead_units" not in plain
    assert {name: value for name, value in probed.items() if name != "dead_units"} == plain
    flat = [str(state) for state in (seldom, always)]
    assert flat[0] == flat[1]


@EVERY_ALGORITHM
def test_every_algorithm_reports_its_dead_units(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_training.experiment.registry import get_spec

    monkeypatch.setattr(get_spec(algorithm).learner, "probe_every", 1)
    lines = read_metrics(train_tiny(algorithm, tmp_path).run_dir)
    shares = [line["dead_units"] for line in lines if "dead_units" in line]
    assert shares and all(0.0 <= share <= 1.0 for share in shares)


def test_a_run_has_the_figures_that_rules_need(tmp_path: Path) -> None:
    changes = {"total_timesteps": 1024, "eval_episodes": 1, "eval_every": 0, "output_dir": str(tmp_path)}
    run = rl_training.train(rl_training.load_config("ppo/cartpole", changes), show=False)
    line = read_metrics(run.run_dir)[0]
    assert line["reward_max"] == 1.0 and line["longest_episode"] >= line["mean_length"]
    assert 0.5 < line["entropy_share"] <= 1.0
    assert np.isclose(line["entropy_share"], line["entropy"] / np.log(2))
    assert line["target_std"] > 0 and "reward_clipped" not in line
