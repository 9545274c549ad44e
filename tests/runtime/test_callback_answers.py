"""What a callback may answer, and which numbers `learn` takes: anything else is one line, and no work is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.errors import ConfigError
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import latest_checkpoint
from run_cases import CASES
from tiny_runs import managed

A2C = CASES["a2c, one env"]


@pytest.mark.parametrize(
    "answer", [False, np.False_, np.bool_(0), np.array(False), torch.tensor(False), np.float64(1) > 2], ids=repr
)
def test_every_false_stops(answer: Any, tmp_path: Path) -> None:
    result = train(A2C.config(tmp_path), callback=lambda progress: answer, show=False)
    assert (result.interrupted, result.env_steps) == (True, 5)


@pytest.mark.parametrize("answer", [None, True, np.True_, np.array(True), torch.tensor(True)], ids=repr)
def test_none_and_every_true_continue(answer: Any, tmp_path: Path) -> None:
    result = train(A2C.config(tmp_path), callback=lambda progress: answer, show=False)
    assert (result.interrupted, result.env_steps) == (False, 160)


@pytest.mark.parametrize("answer", [0, 1, "", "stop", [], np.int64(0), np.array([False]), 0.0], ids=repr)
def test_any_other_answer_is_an_error_that_loses_nothing(answer: Any, tmp_path: Path) -> None:
    def callback(progress: Any) -> Any:
        return answer if progress.env_steps == 25 else None

    with pytest.raises(
        ConfigError, match=r"^callback: returned .*False to stop; the run is saved at step 25 "
    ) as caught:
        train(A2C.config(tmp_path), callback=callback, show=False)
    assert str(caught.value).isprintable()
    assert latest_checkpoint(tmp_path / "run").env_steps == 25
    assert resume(tmp_path / "run", show=False).env_steps == 160


NOT_STEPS = [
    True,
    np.True_,
    False,
    0,
    -5,
    0.5,
    "100",
    float("inf"),
    float("nan"),
    [64],
    pytest.param(10**5000, id="huge"),
]


@pytest.mark.parametrize("steps", NOT_STEPS)
def test_learn_refuses_what_is_not_a_number_of_steps(steps: Any, tmp_path: Path) -> None:
    agent = managed("ppo", tmp_path)
    with pytest.raises(ConfigError, match=r"^total_timesteps: .*expected integer >= 1$"):
        agent.learn(steps, show=False)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("steps", [64.0, np.int64(64), np.float32(64)], ids=repr)
def test_learn_takes_every_whole_number(steps: Any, tmp_path: Path) -> None:
    assert managed("ppo", tmp_path).learn(steps, show=False).env_steps == 64
