"""NaN and infinity: found in the step or update in which they appear, named, and left to look at."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from collector_helpers import Scripted, collector_of
from loop_batches import batches_of
from rl_training.algorithms.common.learner import UpdateResult
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.api import DQN, PPO, SAC
from rl_training.config.loading import load_config
from rl_training.errors import NumericalError
from rl_training.experiment.registry import get_spec
from rl_training.runtime.divergence import WATCHED, check_metrics, check_update
from rl_training.runtime.loops import Progress
from rl_training.runtime.output.metric_window import MetricWindow
from rl_training.runtime.workflows import resume
from rl_training.storage.checkpoints import latest_checkpoint, list_checkpoints
from rl_training.storage.tensor_files import read_arrays
from tiny_runs import EVERY_ALGORITHM, tiny_config

NAN, INFINITE = float("nan"), float("inf")
TINY: dict[str, Any] = {"hidden_sizes": (8,), "eval_episodes": 1}


class Tainted(gym.Env[Any, Any]):
    """Returns `value` as its `field` at step `at` of the env that was seeded fourth; actions are a box."""

    made = 0

    def __init__(self, field: str, value: float, at: int = 5) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.field, self.value, self.at, self.steps = field, value, at, 0
        self.number = Tainted.made
        Tainted.made += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        tainted = self.number == 3 and self.steps == self.at
        observation = np.full(2, self.value if tainted and self.field == "observation" else 0.5, np.float32)
        return observation, self.value if tainted and self.field == "reward" else 1.0, False, self.steps % 20 == 0, {}


@pytest.mark.parametrize("field", ["observation", "reward"])
@pytest.mark.parametrize("value", [NAN, INFINITE, -INFINITE])
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_what_an_env_returns_stops_the_run_in_that_step_and_leaves_a_bundle(
    field: str, value: float, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tainted, "made", 0 if backend == "sync" else 3)
    # In processes each env counts for itself: all of them are the fourth, and the first one is found.
    env = 3 if backend == "sync" else 0
    settings = {"num_steps": 4, "minibatch_size": 8, "num_envs": 8, "vector_backend": backend, "checkpoint_every": 32}
    agent = PPO(lambda: Tainted(field, value), output_dir=str(tmp_path), **settings, **TINY)
    monkeypatch.setattr(Tainted, "made", 0 if backend == "sync" else 3)
    with pytest.raises(NumericalError) as caught:
        agent.learn(320, show=False)
    error = caught.value
    article = "an" if field == "observation" else "a"
    # Four steps of eight envs, then the fifth: found in it, not at the end of the rollout.
    assert str(error).startswith(
        f"env {env} returned {article} {field} that is not finite, after env step 40: fix the env"
    )
    assert (error.field, error.env_index, error.env_step, error.exit_code) == (field, env, 40, 4)
    folder = Path(str(error).split("the evidence is in ")[1])
    arrays = read_arrays(folder / "batch.safetensors")
    found = arrays["next_obs" if field == "observation" else "rewards"]
    assert not np.isfinite(found[env]).any() and set(arrays) == {"obs", "actions", "rewards", "next_obs"}
    report = json.loads((folder / "report.json").read_text())
    assert report["field"] == field and report["env_index"] == env and report["parameters"]["nan"] == 0
    assert load_config(folder / "config.yaml").algo == "ppo"
    run = folder.parent.parent
    assert latest_checkpoint(run).env_steps == 32 and json.loads((run / "run.json").read_text())["status"] == "failed"


def test_an_action_that_is_not_finite_never_reaches_the_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = SAC("Pendulum-v1", output_dir=str(tmp_path), learning_starts=0, batch_size=4, buffer_size=100, **TINY)
    learner = agent.agent.learner
    plain = type(learner).act

    def act(self: Any, obs: np.ndarray, **rest: Any) -> Any:
        action = plain(self, obs, **rest)
        if self.env_steps == 7:
            action.actions[0] = NAN
        return action

    monkeypatch.setattr(type(learner), "act", act)
    with pytest.raises(
        NumericalError, match=r"env 0 was given an action that is not finite, after env step 7: lower the"
    ) as caught:
        agent.learn(50, show=False)
    assert caught.value.field == "action"


@EVERY_ALGORITHM
def test_a_loss_that_is_not_finite_is_found_in_its_update_for_every_algorithm(algorithm: str, tmp_path: Path) -> None:
    batches, learner = batches_of(tiny_config(algorithm, tmp_path), 1)
    with torch.no_grad():
        # Every network: whatever the algorithm learns from, it is spoiled.
        for parameter in learner.model.parameters():
            parameter.fill_(NAN)
    with pytest.raises(NumericalError) as caught:
        check_update(learner.update(batches[0]), batches[0], learner)
    assert caught.value.field in ("loss", "gradient")


@EVERY_ALGORITHM
def test_every_algorithm_reports_a_number_that_is_watched(algorithm: str, tmp_path: Path) -> None:
    batches, learner = batches_of(tiny_config(algorithm, tmp_path), 1)
    watched = {name for name in learner.update(batches[0]) if name in WATCHED}
    assert any(name.endswith("grad_norm") for name in watched) and watched & {"loss", "critic_loss"}


@pytest.mark.parametrize(
    ("what", "pattern"),
    [("loss", r"loss is nan at env step \d+, update 3: "), ("gradient", r"grad_norm is inf at .* update 3: ")],
)
def test_a_run_stops_in_the_update_that_broke_and_resumes_from_before(
    what: str, pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "learning_starts": 40,
        "batch_size": 8,
        "buffer_size": 500,
        "checkpoint_every": 20,
        "train_frequency": 1,
    }
    agent = DQN("CartPole-v1", output_dir=str(tmp_path), **settings, **TINY)
    calls = []

    def spoiled(self: Optimizer, loss: torch.Tensor) -> torch.Tensor:
        calls.append(loss)
        if len(calls) == 3 and what == "gradient":
            return torch.tensor(INFINITE)
        return torch.tensor(1.0)

    def update(self: Any, batch: Any) -> UpdateResult:
        result = plain(self, batch)
        if len(calls) == 3 and what == "loss":
            result.metrics["loss"] = torch.tensor(NAN)
        return result

    learner_class = get_spec("dqn").learner
    plain = learner_class.update
    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "step", spoiled)
        patch.setattr(learner_class, "update", update)
        with pytest.raises(NumericalError, match=pattern) as caught:
            agent.learn(100, show=False)
    assert len(calls) == 3 and caught.value.field == what
    folder = Path(str(caught.value).split("the evidence is in ")[1])
    assert read_arrays(folder / "batch.safetensors")["obs"].shape == (8, 4)
    assert json.loads((folder / "report.json").read_text())["updates"] == 3
    run = folder.parent.parent
    assert [int(re.findall(r"\d+", path.name)[0]) for path in list_checkpoints(run, "resume")] == [40, 20]
    assert resume(run, show=False).env_steps == 100


@pytest.mark.parametrize(("name", "field"), [("loss", "loss"), ("grad_norm", "gradient"), ("entropy", "metric")])
def test_an_update_and_a_metric_line_have_one_verdict_and_one_message(name: str, field: str) -> None:
    result = UpdateResult({"explained_variance": torch.tensor(NAN), name: torch.tensor(INFINITE)})
    window = MetricWindow()
    window.add(Progress(40, 7, [result], []))
    with pytest.raises(NumericalError) as of_line:
        window.line()
    if name in WATCHED:
        with pytest.raises(NumericalError) as of_update:
            check_update(result, None, SimpleNamespace(env_steps=40, updates=7))  # type: ignore[arg-type]
        assert str(of_update.value) == str(of_line.value)
    assert str(of_line.value).startswith(f"{name} is inf at env step 40, update 7: training has diverged")
    assert (of_line.value.field, of_line.value.env_step, of_line.value.metrics[name]) == (field, 40, INFINITE)


def test_explained_variance_may_be_undefined() -> None:
    check_metrics({"explained_variance": NAN, "loss": 1.0}, 40, 7)


def test_numbers_too_large_to_square_are_no_false_alarm() -> None:
    envs = Scripted()
    collector, _ = collector_of(envs)
    going = [False, False]
    envs.outcomes = [([[3e38], [-3e38]], [3e38, 3e38], going, going, {})]
    assert collector.step().rewards.tolist() == pytest.approx([3e38, 3e38])
