"""An env that calls sys.exit has failed, wherever it does so; and whatever its close() raises is only a note."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from cli_helpers import Outcome, call, tiny_config, write_config
from rl_training.api import PPO
from rl_training.envs import env_closer
from rl_training.envs.factory import make_vector_env
from rl_training.envs.failures import EnvFailed

MODULE = """
import os
import sys
import gymnasium as gym
import numpy as np

class Leaving(gym.Env):
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, where="", render_mode=None):
        self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.where, self.render_mode = where, render_mode
        self.leave("constructor")

    def leave(self, place):
        if place in (self.where, os.environ.get("LEAVE_AT")):
            sys.exit(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.elapsed = 0
        self.leave("reset")
        if seed is not None and 10_000 <= seed < 20_000:  # the seeds of evaluations
            self.leave("evaluation")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.elapsed += 1
        self.leave("step")
        return np.zeros(2, np.float32), 1.0, self.elapsed == 5, False, {}

    def render(self):
        self.leave("render")
        return np.full((8, 8, 3), self.elapsed, np.uint8)

    def close(self):
        self.leave("close")
        if self.where == "close raises":
            raise OSError("the window is gone")

gym.register("Leaving-v0", entry_point=Leaving)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Has two modules, one of which exits when it is imported."""
    (tmp_path / "leaving_env.py").write_text(MODULE)
    (tmp_path / "leaving_module.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    env_closer.note_failed_close.cache_clear()
    yield tmp_path
    gym.registry.pop("Leaving-v0", None)
    for name in ("leaving_env", "leaving_module"):
        sys.modules.pop(name, None)


def run(folder: Path, where: str, backend: str, **changes: Any) -> Outcome:
    settings = {"env_id": "leaving_env:Leaving-v0", "env_kwargs": {"where": where}, "vector_backend": backend}
    config = write_config(folder / "run.yaml", tiny_config("ppo", **settings, **changes))
    return call("train", config, "--output-dir", folder / "runs", "--quiet")


def assert_one_line(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 3, outcome
    (line,) = outcome.err.strip().splitlines()
    # A run that was trained to its end is finished, so a failed last evaluation is a warning.
    assert line.startswith(("error: ", "warning: the run is trained and saved")) and "SystemExit: 0" in line
    for word in words:
        assert word in line


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("constructor", ("env 'leaving_env:Leaving-v0' cannot be made",)),
        ("reset", ("env 0 failed in reset", "leaving_env.py:")),
        ("step", ("failed in step", "leaving_env.py:")),
        ("evaluation", ("the env failed in reset of an evaluation", "leaving_env.py:")),
    ],
)
def test_an_env_that_calls_sys_exit_ends_the_run_with_exit_code_3(
    where: str, words: tuple[str, ...], backend: str, folder: Path
) -> None:
    assert_one_line(run(folder, where, backend), *words)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_module_that_calls_sys_exit_is_named(backend: str, folder: Path) -> None:
    settings = tiny_config("ppo", env_id="leaving_module:Any-v0", vector_backend=backend)
    outcome = call("train", write_config(folder / "run.yaml", settings), "--output-dir", folder / "runs", "--quiet")
    assert_one_line(outcome, "env 'leaving_module:Any-v0': importing 'leaving_module' failed")


def test_a_trained_agent_whose_env_exits_in_eval_or_play_ends_with_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(folder, "", "sync").code == 0
    (trained,) = (folder / "runs").iterdir()
    play = ("play", trained, "--gif", folder / "episode.gif")
    for place, command in (("reset", ("eval", trained)), ("step", ("eval", trained)), ("render", play)):
        monkeypatch.setenv("LEAVE_AT", place)
        assert_one_line(call(*command), f"failed in {place}", "leaving_env.py:")


def test_a_vector_env_of_the_user_that_calls_sys_exit_has_failed(tmp_path: Path) -> None:
    class Leaving(gym.vector.SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            sys.exit(0)

    envs = Leaving([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    agent = PPO(envs, num_envs=2, output_dir=str(tmp_path), hidden_sizes=(8,), num_steps=8, minibatch_size=8)
    with pytest.raises(EnvFailed, match=r"the env failed in step .*SystemExit: 0"):
        agent.learn(64, show=False)


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize(("where", "what"), [("close raises", "OSError: the window"), ("close", "SystemExit: 0")])
def test_a_close_that_raises_is_a_note_and_does_not_change_the_result(
    where: str, what: str, backend: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = run(folder, where, backend, num_envs=2)
    assert outcome.code == 0, outcome
    (path,) = (folder / "runs").iterdir()
    assert json.loads((path / "run.json").read_text())["status"] == "finished"
    # Two envs to train on and two to evaluate on fail in the same way: one line says it.
    (note,) = [record.getMessage() for record in caplog.records]
    assert note.startswith("note: close() of an env failed: leaving_env.py:") and what in note and "\n" not in note


def test_every_env_is_closed_although_one_of_them_raises() -> None:
    closed = []

    class Closing(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def close(self) -> None:
            closed.append(self)
            raise RuntimeError(f"number {len(closed)}")

    make_vector_env(Closing, 3, backend="sync").close()
    assert len(closed) == 3
