"""Wrong usage: at most three plain lines that name the option and the way out, with exit code 2."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from cli_helpers import Trainer, call, make_trainer
from rl_training.command_line.app import COMMANDS, GROUPS, app

HELP = "--help` shows the options)"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return make_trainer(tmp_path_factory)


WRONG = {
    "fly": "'fly': unknown command (`rl-training --help` shows the options)",
    "tran": "'tran': unknown command, did you mean train?",
    "list config": "'config': unknown command, did you mean configs?",
    "--bogus": "--bogus: unknown option (`rl-training --help`",
    "eval": "TARGET: missing, pass a value (`rl-training eval --help`",
    "eval latest --epsodes 3": "--epsodes: unknown option, did you mean --episodes?",
    "eval latest --episodes 0": "--episodes: '0' is not valid, expected an integer >= 1 and <= 1,000,000",
    "eval latest --episodes 1000000000000": "--episodes: '1000000000000' is not valid, expected an integer >= 1",
    "eval latest --episodes=x": "--episodes: 'x' is not valid, expected an integer",
    "eval latest --seed -1": "--seed: '-1' is not valid, expected an integer >= 0",
    "eval latest --checkpoint worst": "--checkpoint: 'worst' is not valid, expected latest or best",
    "eval latest --episodes": "--episodes: needs a value (`rl-training eval --help`",
    "eval latest more words": "unexpected argument 'more words' (`rl-training",
    "compare A B C": "unexpected argument 'C'; compare takes two groups, use plot for more (`rl-training",
    "inspect latest --json=3": "--json: is a flag and takes no value (`rl-training inspect --help`",
    "play latest --fps x": "--fps: 'x' is not valid, expected a number",
    "train ppo/cartpole --seed x": "--seed: 'x' is not valid, expected an integer",
    "zoo run classic --seeds 0": "--seeds: '0' is not valid, expected an integer >= 1",
    "zoo run classic --jobs": "--jobs: needs a value (`rl-training zoo run --help`",
    "check ppo/cartpole --seed 1.5": "--seed: '1.5' is not valid, expected an integer >= 0",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage(words: str) -> None:
    outcome = call(*words.split())
    first, *more = outcome.err.splitlines()
    assert outcome.code == 2 and outcome.out == "" and len(more) <= 1
    assert first.startswith(f"error: {WRONG[words]}") and first.endswith(HELP)
    assert all(line.startswith("Usage: rl-training ") for line in more)
    for leaked in ("Input should", "Value error", "Invalid value", "No such", "Got unexpected", "\u2500", "{"):
        assert leaked not in outcome.err


def test_a_long_value_is_shortened() -> None:
    outcome = call("eval", "latest", "--episodes", "9" * 5000)
    assert outcome.code == 2 and len(outcome.err) < 400


def test_an_algorithm_without_an_env_names_its_presets() -> None:
    outcome = call("train", "ppo")
    assert outcome.code == 2 and len(outcome.err.splitlines()) == 1
    assert "ppo: is an algorithm, pass its environment (`--env LunarLander-v3`), one of its presets (ppo/acrobot, " in (
        outcome.err
    )


@pytest.mark.parametrize(
    ("preset", "algo", "advice"),
    [
        ("ppo/cartpole", "dqn", "use `rl-training train dqn/cartpole`"),
        ("ppo/cartpole", "sac", "use `rl-training train PRESET` with one of its presets: `sac/"),
    ],
)
def test_another_algorithm_for_a_preset_names_the_command(preset: str, algo: str, advice: str) -> None:
    outcome = call("train", preset, "--set", f"algo={algo}")
    assert outcome.code == 2 and len(outcome.err.splitlines()) == 1 and advice in outcome.err
    # A mistake of the user in another setting is the better message.
    assert "gamma: 5 is not valid" in call("train", preset, "--set", f"algo={algo}", "--set", "gamma=5").err


LONG = "x" * 300
ODD_VALUES = (
    ["", " ", "-1", "0", "1e12", "9" * 30, "nan", "inf", "-inf", "x", "\u202eevil", "\x1b[31m", "\u65e5\u672c"]
    + ["\udcff", "../..", "/", "/dev/null", "a\nb", LONG, LONG * 20, "--", "[]", "{}", "null", "1,2", "=", "%s", "~"]
)  # fmt: skip
ENDED = {0, 1, 2, 3, 4, 5}


def odd_command_lines() -> list[list[str]]:
    """Every command with odd arguments, and every option of it with odd values. Nothing here trains for long."""
    import typer

    lines = []
    root = typer.main.get_command(app)
    for path in [[name] for name in COMMANDS] + [[g, name] for g in GROUPS for name in root.commands[g].commands]:
        command = root
        for name in path:
            command = command.commands[name]
        arguments = [p for p in command.params if not any(option.startswith("-") for option in p.opts)]
        options = [p.opts[0] for p in command.params if p.opts[0].startswith("--") and not p.is_flag]
        for value in ODD_VALUES:
            lines.append([*path, value])
            lines += [[*path, *(["no-such-thing"] * len(arguments)), option, value] for option in options]
    return lines


def test_odd_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback, an exit code of ours, at most three lines, nothing that a terminal would obey."""
    monkeypatch.chdir(tmp_path)
    lines = odd_command_lines()
    assert len(lines) > 1000
    for words in random.Random(0).sample(lines, 120):
        outcome = call(*words)
        assert outcome.code in ENDED, (words, outcome)
        assert "Traceback" not in outcome.err and len(outcome.err.splitlines()) <= 3, (words, outcome)
        assert outcome.code == 0 or outcome.err, words
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", outcome.out + outcome.err), words
    assert os.listdir(tmp_path) in ([], ["runs"])


ODD_SETTINGS = [
    f"run_name={LONG}", "run_name=../x", "env_id=", f"env_id={LONG}", "env_id=\x1b[31mX-v0", "num_envs=1e12",
    "threads=0", "env_kwargs=3", "model.hidden_sizes=[0]", "gamma=nan", "gamma=.inf", "seed=1e30", "seed=" + "9" * 30,
    "total_timesteps=1e30", "eval_episodes=0", "checkpoint_every=-1", "a.b.c=1", "=1",
    "model=3", "algo_kwargs=3", "algo=3", "algo=", "log_every=0", "device=cuda:99", "device=\x1b", LONG,
]  # fmt: skip


@pytest.mark.parametrize("setting", ODD_SETTINGS, ids=range(len(ODD_SETTINGS)))
def test_odd_settings(setting: str, tmp_path: Path) -> None:
    outcome = call("train", "ppo/cartpole", "--output-dir", tmp_path / "runs", "--set", setting)
    assert outcome.code in (2, 3), outcome
    assert len(outcome.err.splitlines()) == 1 and outcome.err.startswith("error: ") and "\x1b" not in outcome.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", ["eval", "inspect", "resume", "play", "predict --obs [0]"])
def test_names_that_are_too_long_for_the_file_system(words: str, trained: Trainer) -> None:
    runs, _ = trained("ppo")
    for target, folder in [(LONG, runs), ("latest", Path(LONG)), (f"{LONG}/best", runs)]:
        outcome = call(*words.split(), target, "--output-dir", folder)
        assert outcome.code == 5 and len(outcome.err.splitlines()) == 1, outcome
    for words_of_others in (["list", "runs", "--output-dir", LONG], ["reproduce", LONG], ["zoo", "list", LONG]):
        outcome = call(*words_of_others)
        expected = 5 if words_of_others[0] == "list" else 2  # runs that cannot be read cannot be loaded either
        assert outcome.code == expected and len(outcome.err.splitlines()) == 1, outcome
