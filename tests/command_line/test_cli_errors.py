"""Bad input on the command line: one clear line on stderr, the right exit code, and nothing written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli_helpers import Outcome, Trainer, call, make_trainer, tiny_config, write_config
from rl_training.runtime import workflows


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return make_trainer(tmp_path_factory)


def one_error_line(outcome: Outcome) -> str:
    lines = outcome.err.splitlines()
    assert outcome.out == "", "errors leave stdout empty"
    assert len(lines) == 1 and lines[0].startswith("error: "), outcome.err
    return lines[0]


BAD_CONFIGS = {
    "no config": ([], "CONFIG: missing, pass a preset such as ppo/cartpole"),
    "two configs": (["ppo/cartpole", "--config", "ppo/cartpole"], "CONFIG: given twice"),
    "unknown preset": (["ppo/cartpol"], "ppo/cartpol: no such preset or file, did you mean ppo/cartpole?"),
    "unknown algorithm of a preset": (
        ["pp/cartpole"],
        "pp/cartpole: no such preset or file, did you mean ppo/cartpole?",
    ),
    "no preset of this algorithm": (
        ["sac/cartpole"],
        "sac/cartpole: no such preset or file, the presets of sac are sac/",
    ),
    "missing file": (["nowhere.yaml"], "nowhere.yaml: no such file"),
    "unknown key": (["ppo/cartpole", "--set", "gama=0.9"], "gama: unknown key, did you mean algo_kwargs.gamma?"),
    "out of range": (["ppo/cartpole", "--set", "gamma=1.5"], "algo_kwargs.gamma: 1.5 is not valid"),
    "wrong type": (["ppo/cartpole", "--set", "num_envs=many"], "num_envs: 'many' is not valid"),
    "no value": (["ppo/cartpole", "--set", "gamma"], "expected key=value"),
    "unknown algorithm": (["ppo/cartpole", "--set", "algo=pppo"], "did you mean ppo?"),
    "negative seed": (["ppo/cartpole", "--seed", "-1"], "seed: -1 is not valid"),
    "no budget": (["ppo/cartpole", "--total-timesteps", "0"], "total_timesteps: 0 is not valid"),
    "seeds not numbers": (["ppo/cartpole", "--seeds", "1,x"], "seeds: '1,x' is not valid"),
    "seeds twice the same": (["ppo/cartpole", "--seeds", "1,1"], "seeds: '1,1' is not valid"),
    "seed and seeds": (["ppo/cartpole", "--seed", "1", "--seeds", "1,2"], "pass either --seed or --seeds, not both"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_bad_config_is_one_line_and_exit_code_2(case: str, tmp_path: Path) -> None:
    arguments, text = BAD_CONFIGS[case]
    outcome = call("train", *arguments, "--output-dir", tmp_path / "runs", "--json")
    assert text in one_error_line(outcome)
    assert outcome.code == 2
    assert not (tmp_path / "runs").exists()


BAD_ENVS = {
    "unknown env": ({"env_id": "CartPol-v1"}, "did you mean 'CartPole-v1'?"),
    "wrong action space": ({"env_id": "Pendulum-v1"}, "dqn takes Discrete actions, but Pendulum-v1 has Box: use ppo"),
    "no such module": ({"env_id": "no_such_module:Thing-v0"}, "no_such_module"),
    "wrong keyword": ({"env_kwargs": {"gravitas": 3}}, "gravitas"),
    "wrong keyword of evaluation": ({"eval_env_kwargs": {"gravitas": 3}}, "eval_env_kwargs: "),
}


@pytest.mark.parametrize("case", BAD_ENVS)
def test_bad_env_is_one_line_and_exit_code_3(case: str, tmp_path: Path) -> None:
    changes, text = BAD_ENVS[case]
    config = write_config(tmp_path / "tiny.yaml", tiny_config("dqn", **changes))
    outcome = call("train", config, "--output-dir", tmp_path / "runs", "--json", "--quiet")
    assert text in one_error_line(outcome)
    assert outcome.code == 3
    assert not (tmp_path / "runs").exists()


def test_missing_extras_are_named(trained: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, _ = trained("ppo")
    for module in ("ale_py", "imageio_ffmpeg", "tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    config = write_config(tmp_path / "tiny.yaml", tiny_config("dqn"))
    train = ["train", config, "--output-dir", tmp_path / "runs", "--quiet", "--set"]
    cases = [
        ([*train, "env_id=ALE/Pong-v5"], 3, "install the extra `atari`"),
        ([*train, "tensorboard=true"], 2, "install the extra `tensorboard`"),
        (["play", "latest", "--output-dir", runs, "--mp4", tmp_path / "a.mp4"], 2, "install the extra `video`"),
    ]
    for arguments, code, extra in cases:
        outcome = call(*arguments)
        assert extra in one_error_line(outcome) and outcome.code == code
    assert not (tmp_path / "a.mp4").exists()


@pytest.mark.parametrize("command", ["eval", "resume", "predict", "play", "inspect"])
def test_a_target_that_is_not_a_checkpoint_is_exit_code_5(command: str, trained: Trainer, tmp_path: Path) -> None:
    runs, outcome = trained("ppo")
    name = Path(outcome.json["run_dir"]).name
    foreign_directory, foreign_file = tmp_path / "foreign", tmp_path / "model.zip"
    foreign_directory.mkdir()
    (foreign_directory / "manifest.json").write_text('{"format": "something else", "schema": 1}')
    foreign_file.write_bytes(b"PK\x03\x04")
    extra = ["--obs", "[0,0,0,0]"] if command == "predict" else []
    cases = [
        (name[:-1], f"did you mean '{name}'?"),
        (foreign_directory, "not the manifest of an rl_training checkpoint"),
        (foreign_file, "not an rl_training checkpoint"),
    ]
    for target, text in cases:
        outcome = call(command, target, "--output-dir", runs, *extra)
        assert text in one_error_line(outcome)
        assert outcome.code == 5
    outcome = call(command, "latest", "--output-dir", tmp_path, *extra)
    assert "train one first" in one_error_line(outcome) and outcome.code == 5


def test_damaged_checkpoint_is_refused_and_inspect_says_what_is_wrong(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo"))
    checkpoint = Path(call("train", config, "--output-dir", tmp_path, "--json", "--quiet").json["checkpoint"])
    tensors = checkpoint / "tensors.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)

    assert "tensors.safetensors" in one_error_line(call("eval", checkpoint))
    outcome = call("inspect", checkpoint, "--json")
    assert outcome.code == 5 and outcome.json["verified"] is False
    assert "tensors.safetensors" in outcome.json["problems"][0] and "tensors.safetensors" in outcome.err


BAD_OBSERVATIONS = {
    "not JSON": ("[0, 0", "not JSON"),
    "not a number": ("[0, 0, NaN, 0]", "not JSON"),
    "too short": ("[0, 0, 0]", "stdin: it has shape (3,), expected one observation (shape (4,)) or a list of them"),
    "too deep": ("[[[0, 0, 0, 0]]]", "stdin: it has shape (1, 1, 4), expected one observation (shape (4,))"),
    "ragged": ("[[0, 0, 0, 0], [0]]", "stdin: the lists in it differ in length, expected"),
    "an object": ('{"a": 1}', "stdin: it is not a list of numbers, expected"),
    "text": ('["a", "b", "c", "d"]', "stdin: it contains values that are not numbers, expected"),
    "nothing": ("", "not JSON"),
}


@pytest.mark.parametrize("case", BAD_OBSERVATIONS)
def test_bad_observation_is_exit_code_2(case: str, trained: Trainer) -> None:
    runs, _ = trained("ppo")
    text, problem = BAD_OBSERVATIONS[case]
    outcome = call("predict", "latest", "--output-dir", runs, stdin=text)
    assert outcome.code == 2 and problem in one_error_line(outcome)


@pytest.mark.parametrize(
    "options", [["--gif", "a.mp4"], ["--mp4", "a.gif"], ["--gif", "a.gif", "--mp4", "a.mp4"], ["--fps", "0"]]
)
def test_bad_play_options_are_exit_code_2(options: list[str], trained: Trainer) -> None:
    runs, _ = trained("ppo")
    outcome = call("play", "latest", "--output-dir", runs, *options)
    assert outcome.code == 2 and one_error_line(outcome)


@pytest.mark.parametrize("words", ["train ppo/cartpole --bogus", "fly", "eval", "eval latest --episodes 0"])
def test_wrong_usage_is_exit_code_2_with_a_hint(words: str) -> None:
    outcome = call(*words.split())
    assert outcome.code == 2 and outcome.out == ""
    assert "Usage: rl-training" in outcome.err and "Traceback" not in outcome.err


def test_interrupt_outside_training_is_130_without_traceback(trained: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(workflows, "evaluate_checkpoint", interrupted)
    outcome = call("eval", "latest", "--output-dir", trained("ppo")[0])
    assert outcome.code == 130 and "Traceback" not in outcome.err


@pytest.mark.parametrize("code", [0, 2, None, "gone"])
def test_a_library_that_calls_sys_exit_is_exit_code_1(
    code: object, trained: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "evaluate_checkpoint", lambda *args, **kwargs: sys.exit(code))  # type: ignore[arg-type]
    outcome = call("eval", "latest", "--output-dir", trained("ppo")[0])
    assert outcome.code == 1 and f"sys.exit({code!r})" in one_error_line(outcome)


def test_a_bug_keeps_its_traceback(trained: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(workflows, "evaluate_checkpoint", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        call("eval", "latest", "--output-dir", trained("ppo")[0])
