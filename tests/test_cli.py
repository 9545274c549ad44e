"""The command line as users and scripts see it: output on stdout and stderr, and exit codes."""

from __future__ import annotations

import io
import json
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from cli_helpers import Outcome, Trainer, call, make_trainer, start_process, tiny_config, write_config
from rl_training import __version__
from rl_training.cli import main
from rl_training.command_line.common.observations import to_observation
from rl_training.config.loading import list_presets
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.registry import algorithm_names
from waiting import DEADLINE_SECONDS

SUMMARY_KEYS = {"run_dir", "checkpoint", "env_steps", "wall_seconds", "steps_per_second", "eval"}
EVAL_KEYS = {"mean_return", "std_return", "episodes"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return make_trainer(tmp_path_factory)


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_train_eval_predict_and_resume(algorithm: str, tmp_path: Path) -> None:
    settings = tiny_config(algorithm)
    config = write_config(tmp_path / "tiny.yaml", settings)
    runs = tmp_path / "elsewhere"

    outcome = call("train", "--config", config, "--output-dir", runs, "--json", "--quiet")
    assert outcome.code == 0, outcome.err
    summary = outcome.json
    assert set(summary) == SUMMARY_KEYS and set(summary["eval"]) == EVAL_KEYS
    assert Path(summary["run_dir"]).parent == runs and Path(summary["checkpoint"]).is_dir()
    assert 0 < summary["env_steps"] <= 96 and summary["eval"]["episodes"] == 2

    # The same agent on the same seeds: `eval` prints what `train` printed.
    outcome = call("eval", "latest", "--episodes", 2, "--output-dir", runs, "--json")
    assert outcome.code == 0
    assert outcome.json == summary["eval"] | {"checkpoint": summary["checkpoint"], "skipped": []}
    # Other seeds give other scores; an agent that always pushes one way may score the same on one of them by chance.
    others = [
        call("eval", "latest", "--episodes", 2, "--seed", seed, "--output-dir", runs, "--json").json
        for seed in (77, 99)
    ]
    scores = [{key: other[key] for key in EVAL_KEYS} for other in others]
    assert any(score != summary["eval"] for score in scores)

    env = gym.make(settings["env_id"])
    observation = json.dumps(env.observation_space.sample().tolist())
    outcome = call("predict", "latest", "--obs", observation, "--output-dir", runs, "--json")
    assert outcome.code == 0, outcome.err
    action = np.asarray(outcome.json["action"], env.action_space.dtype)
    assert env.action_space.contains(action)

    outcome = call("resume", "latest", "--total-timesteps", 192, "--output-dir", runs, "--json", "--quiet")
    assert outcome.code == 0, outcome.err
    assert outcome.json["run_dir"] == summary["run_dir"]
    assert summary["env_steps"] < outcome.json["env_steps"] <= 192


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_play_inspect_and_list_runs(algorithm: str, trained: Trainer, tmp_path: Path) -> None:
    runs, outcome = trained(algorithm)
    summary = outcome.json
    gif = tmp_path / "agent.gif"
    outcome = call("play", "latest", "--gif", gif, "--output-dir", runs, "--json")
    assert outcome.code == 0, outcome.err
    played = outcome.json
    assert played["file"] == str(gif) and played["episodes"] == 1
    with Image.open(gif) as image:
        assert image.n_frames == played["pictures"] > 1
    # Episode 0 of play has the seed of episode 0 of eval.
    evaluated = call("eval", "latest", "--episodes", 1, "--output-dir", runs, "--json").json
    assert played["returns"] == [pytest.approx(evaluated["mean_return"])]

    report = call("inspect", "latest", "--output-dir", runs, "--json").json
    assert report["path"] == summary["checkpoint"] and report["verified"] and report["problems"] == []
    assert report["algorithm"] == algorithm and report["env_steps"] == summary["env_steps"]
    assert report["config"]["algo"] == algorithm and set(report["spaces"]) == {"observation", "action"}
    assert any(tensor["shape"][:1] == [8] for tensor in report["tensors"].values()), "the hidden layer has width 8"
    assert (report["replay"]["rows"] > 0) == (algorithm != "ppo")
    shown = call("inspect", "latest", "--output-dir", runs)
    assert shown.code == 0 and "model.hidden_sizes" in shown.out

    rows = call("list", "runs", "--output-dir", runs, "--json").json
    assert [(row["path"], row["status"], row["algo"]) for row in rows] == [(summary["run_dir"], "finished", algorithm)]
    assert Path(summary["run_dir"]).name in call("list", "runs", "--output-dir", runs).out


def test_play_without_a_display_writes_a_gif_into_the_run(trained: Trainer) -> None:
    runs, outcome = trained("ppo")
    run = Path(outcome.json["run_dir"])
    outcome = call("play", run.name, "--output-dir", runs)
    assert outcome.code == 0, outcome.err
    assert (run / "play.gif").stat().st_size > 0
    assert f"wrote {run / 'play.gif'}" in outcome.out


def test_play_writes_an_mp4(trained: Trainer, tmp_path: Path) -> None:
    runs, _ = trained("ppo")
    outcome = call("play", "best", "--mp4", tmp_path / "new" / "a.mp4", "--output-dir", runs, "--json")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "new" / "a.mp4").stat().st_size > 0
    assert outcome.json["pictures"] == outcome.json["lengths"][0] + 1, "the first frame is before the first step"


def test_predict_reads_stdin_and_batches(trained: Trainer) -> None:
    runs, _ = trained("ppo")
    one, other = [0.0, 0.1, 0.02, 0.3], [0.0, -0.1, -0.02, -0.3]
    single = [call("predict", "latest", "--output-dir", runs, stdin=json.dumps(obs)).json for obs in (one, other)]
    both = call("predict", "latest", "--obs", json.dumps([one, other]), "--output-dir", runs, "--json")
    assert both.json == {"action": single}


def test_json_lists_become_the_tuples_of_a_space() -> None:
    pair = gym.spaces.Tuple([gym.spaces.Box(-9, 9, (2,)), gym.spaces.Discrete(3)])
    spaces = Spaces(gym.spaces.Dict({"pair": pair, "x": gym.spaces.Box(-9, 9, (1,))}), gym.spaces.Discrete(2))
    one, other = {"pair": [[1, 2], 0], "x": [3]}, {"pair": [[4, 5], 2], "x": [6]}
    encoded = spaces.encode_one(to_observation(one, spaces, "--obs"))
    assert encoded.tolist() == [1, 2, 1, 0, 0, 3]
    batch = to_observation([one, other], spaces, "--obs")
    assert spaces.is_batched(batch) and spaces.encode(batch)[1].tolist() == [4, 5, 0, 0, 1, 6]
    with pytest.raises(ConfigError, match="--obs: the key 'x' is missing"):
        to_observation({"pair": [[1, 2], 0]}, spaces, "--obs")


def test_several_seeds_are_several_runs(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo"))
    outcome = call("train", config, "--seeds", "3,5", "--output-dir", tmp_path / "runs", "--json", "--quiet")
    assert outcome.code == 0, outcome.err
    summaries = [json.loads(line) for line in outcome.out.splitlines()]
    seeds = [call("inspect", summary["checkpoint"], "--json").json["config"]["seed"] for summary in summaries]
    assert seeds == [3, 5] and len({summary["run_dir"] for summary in summaries}) == 2

    people = call("train", config, "--seeds", "3,5", "--output-dir", tmp_path / "more", "--quiet")
    table = people.out.splitlines()[-6:]
    assert any("seed" in line and "mean return" in line for line in table), people.out
    assert sum("seed3" in line or "seed5" in line for line in table) == 2


def test_the_commands_that_train_suggests_work(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo"))
    # YAML would read this directory name as a mapping, and a shell as two words.
    outcome = call("train", config, "--output-dir", tmp_path / "a: b", "--quiet")
    assert outcome.code == 0 and "mean return" in outcome.out
    commands = [line[line.index("rl-training") :] for line in outcome.out.splitlines() if "rl-training" in line]
    assert [shlex.split(command)[1] for command in commands] == ["eval", "play", "resume"]
    for command in commands:
        assert call(*shlex.split(command)[1:]).code == 0, command


def test_options_win_over_set_and_set_over_the_file(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", seed=1))
    options = ("--set", "seed=2", "--set", "gamma=0.5", "--seed", 3, "--total-timesteps", 32)
    outcome = call("train", config, *options, "--output-dir", tmp_path / "runs", "--json", "--quiet")
    stored = call("inspect", outcome.json["checkpoint"], "--json").json["config"]
    assert (stored["seed"], stored["total_timesteps"], stored["algo_kwargs"]["gamma"]) == (3, 32, 0.5)


def test_resume_of_a_finished_run_says_how_to_extend_it(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("dqn"))
    first = call("train", config, "--output-dir", tmp_path, "--json", "--quiet").json
    outcome = call("resume", "latest", "--output-dir", tmp_path, "--json", "--quiet")
    assert outcome.code == 0 and "--total-timesteps" in outcome.err
    assert outcome.json["env_steps"] == first["env_steps"] and outcome.json["eval"] == first["eval"]


def test_list_algorithms_and_configs_and_settings() -> None:
    rows = call("list", "algorithms", "--json").json
    assert [row["name"] for row in rows] == algorithm_names()
    assert [row["name"] for row in call("list", "configs", "--json").json] == list_presets()
    settings = {row["key"]: row for row in call("list", "settings", "ppo", "--json").json}
    assert settings["algo_kwargs.clip_range"]["default"] == "0.2" and settings["seed"]["description"]
    for words in (["algorithms"], ["configs"], ["settings", "ppo"]):
        outcome = call("list", *words)
        assert outcome.code == 0 and "ppo" in outcome.out


def test_output_works_on_an_ascii_only_terminal(trained: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    assert main(["eval", "latest", "--output-dir", str(trained("ppo")[0])]) == 0
    stream.seek(0)
    assert "mean return" in stream.read()


def child_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("command", [[], ["train"], ["zoo"], ["zoo", "table"], ["list", "runs"]], ids=" ".join)
def test_help_shows_flags_without_a_type(command: list[str]) -> None:
    helped = call(*command, "--help")
    assert helped.code == 0 and "Show this message" in helped.out
    assert "bool" not in helped.out.lower()


def test_help_and_version_are_fast() -> None:
    before = child_cpu_seconds()
    process = start_process("--help")
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, err
    # Processor time, and ten times of what is usual: on a busy machine it doubles.
    assert child_cpu_seconds() - before < 2.0
    for word in ("train", "eval", "resume", "predict", "play", "inspect", "list"):
        assert word in out
    assert call("--version").out.strip() == f"rl_training {__version__}"


def test_wrong_names_are_reported_before_torch_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from rl_training.cli import main\n"
        "for words in (['train', 'ppo/cartpole', '--set', 'gama=1'], ['train', 'nothing'], ['eval', 'nothing'],\n"
        "              ['resume', 'latest'], ['list', 'configs'], ['list', 'runs']):\n"
        "    main(words)\n"
        "    assert not {'torch', 'gymnasium'} & set(sys.modules), words\n"
    )
    before = child_cpu_seconds()
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("error: ") == 4
    assert child_cpu_seconds() - before < 5.0, "six commands"


NOISY_ENV = """
import os
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Noisy(CartPoleEnv):
    def step(self, action):
        print("a careless print")
        os.write(1, b"a library written in C\\n")
        return super().step(action)

gym.register("Noisy-v0", Noisy, max_episode_steps=20)
"""


def test_json_is_alone_on_stdout_even_if_the_env_prints(tmp_path: Path) -> None:
    (tmp_path / "noisy_env.py").write_text(NOISY_ENV)
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", env_id="noisy_env:Noisy-v0"))
    process = start_process("train", config, "--json", cwd=tmp_path)  # `-m` finds modules in the working directory
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, err
    assert set(Outcome(0, out, err).json) == SUMMARY_KEYS
    assert "a careless print" in err and "a library written in C" in err
