"""`rl-training train ALGO --env ID`: what it accepts, and one line for what it does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli_helpers import call

REFUSED = {
    "no env": (["ppo"], 2, "ppo: is an algorithm, pass its environment (`--env LunarLander-v3`)"),
    "nothing": ([], 2, "or an algorithm and --env for any environment"),
    "no algorithm": (["--env", "CartPole-v1"], 2, "CONFIG: missing, pass an algorithm such as ppo"),
    "a preset": (["ppo/cartpole", "--env", "X-v0"], 2, "or `--set env_id=X-v0` to keep those of ppo/cartpole"),
    "a file": (["mine.yaml", "--env", "X-v0"], 2, "--env: mine.yaml has its own environment"),
    "unknown algorithm": (["pppo", "--env", "CartPole-v1"], 2, "CONFIG: 'pppo' is not an algorithm; pass one of ppo, "),
    "unknown env": (["ppo", "--env", "CartPol-v1"], 3, "did you mean 'CartPole-v1'?"),
    "unknown module": (["ppo", "--env", "no_such_module:Thing-v0"], 3, "no_such_module"),
    "empty env": (["ppo", "--env", ""], 2, "env_id: '' is not valid"),
    "actions": (["dqn", "--env", "Pendulum-v1"], 3, "dqn takes Discrete actions, but Pendulum-v1 has Box: use ppo"),
    "unknown key": (["ppo", "--env", "CartPole-v1", "--set", "gama=1"], 2, "did you mean algo_kwargs.gamma?"),
    "too large": (["ppo", "--env", "CartPole-v1", "--set", "minibatch_size=9999"], 2, "minibatch_size: 9999 exceeds"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_use_is_one_line(case: str, tmp_path: Path) -> None:
    arguments, code, text = REFUSED[case]
    outcome = call("train", *arguments, "--output-dir", tmp_path / "runs", "--json")
    assert outcome.code == code and outcome.out == ""
    assert text in outcome.err and len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_an_env_whose_extra_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    outcome = call("train", "ppo", "--env", "LunarLander-v3", "--output-dir", tmp_path)
    assert outcome.code == 3 and len(outcome.err.splitlines()) == 1
    assert "box2d" in outcome.err and "install" in outcome.err


def test_an_env_of_a_module_trains_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_one_line_envs.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gym.register('MyCartPole-v0', entry_point=CartPoleEnv, max_episode_steps=50)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    line = ["ppo", "--env", "my_one_line_envs:MyCartPole-v0", "--total-timesteps", 64, "--set", "num_envs=2"]
    outcome = call("train", *line, "--output-dir", tmp_path / "runs", "--json")
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert result["env_steps"] == 64
    text = (Path(result["run_dir"]) / "config.yaml").read_text(encoding="utf-8")
    assert "num_envs: 2" in text and "normalize_observations: true" in text and "defaults" not in text


def test_several_seeds_side_by_side_use_the_defaults(tmp_path: Path) -> None:
    line = ["dqn", "--env", "FrozenLake-v1", "--total-timesteps", 150, "--seeds", "0,1", "--jobs", 2]
    outcome = call("train", *line, "--output-dir", tmp_path, "--json")
    assert outcome.code == 0, outcome.err
    for result in map(json.loads, outcome.out.splitlines()):
        assert "tau: 0.01" in (Path(result["run_dir"]) / "config.yaml").read_text(encoding="utf-8")
