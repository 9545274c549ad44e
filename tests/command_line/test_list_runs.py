"""`rl-training list runs`: scores, and a table that fits the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli_helpers import call, tiny_config, write_config
from rl_training.command_line.common.run_table import _short
from rl_training.storage.run_directory import create_run_directory


def make_run(folder: Path, name: str, scores: list[tuple[int, float]], steps: int = 5000, total: int = 10000) -> Path:
    run = create_run_directory(
        folder, name, algorithm="recurrent_ppo", env="LunarLanderContinuous-v3", seed=12, total_timesteps=total
    )
    run.update(status="finished", env_steps=steps, wall_seconds=3.0)
    lines = [
        {"kind": "eval", "env_steps": step, "eval_mean_return": score, "eval_std_return": 1.0, "eval_episodes": 10}
        for step, score in scores
    ]
    train = {"kind": "train", "env_steps": 100, "note": "eval_mean_return", "loss": 1.0}
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [train, *lines]))
    return run.path


def shown(folder: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, for Rich
    monkeypatch.setenv("COLUMNS", str(columns))
    listed = call("list", "runs", "--output-dir", folder)
    assert listed.code == 0, listed.err
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in listed.out.splitlines()]


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("name", ["a", "recurrent_ppo-LunarLanderCont-v3-seed12", "n" * 64])
def test_the_list_fits_the_terminal_and_never_cuts_a_name(
    name: str, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, name, [(2500, -1234.5), (5000, -88.25)], 1_500_000, 100_000_000)
    make_run(tmp_path, "short", [])
    lines = shown(tmp_path, columns, monkeypatch)
    assert any(name in line for line in lines)
    assert max(len(line) for line in lines if line != name) <= columns
    text = " ".join(lines)
    assert "finished" in text and "-88.2" in text


def test_80_columns_show_status_steps_last_and_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path, "ppo-CartPole-v1-seed0", [(2500, 300.0), (5000, 120.5), (5000, 118.0)])
    lines = shown(tmp_path, 80, monkeypatch)
    assert lines[0].split() == ["run", "status", "steps", "last", "best", "created"] or "last" in lines[1]
    row = next(line for line in lines if "CartPole" in line)
    # `last` is the result of the run; the evaluation for the result does not compete for `best`.
    assert "finished" in row and "5,000 / 10,000" in row and "118.0" in row and "300.0" in row


def test_a_run_that_failed_before_its_first_checkpoint_shows_how_far_it_got(tmp_path: Path) -> None:
    path = make_run(tmp_path, "run", [(1500, 1.0)], steps=0)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "env_steps": 1600}\nnot a line\n{"kind": "train", "env_ste')
    (row,) = call("list", "runs", "--output-dir", tmp_path, "--json").json
    assert row["env_steps"] == 1600
    (path / "metrics.jsonl").unlink()
    (row,) = call("list", "runs", "--output-dir", tmp_path, "--json").json
    assert row["env_steps"] == 0


def test_the_result_does_not_compete_for_the_best(tmp_path: Path) -> None:
    make_run(tmp_path, "run", [(10, 1.0), (20, 2.0), (20, 9.0)])
    (row,) = call("list", "runs", "--output-dir", tmp_path, "--json").json
    assert (row["last_score"], row["best_score"], row["score_steps"]) == (9.0, 2.0, 20)


def test_a_run_without_evaluations_has_no_score(tmp_path: Path) -> None:
    make_run(tmp_path, "run", [])
    (row,) = call("list", "runs", "--output-dir", tmp_path, "--json").json
    assert row["last_score"] is None and row["best_score"] is None
    assert "?" not in call("list", "runs", "--output-dir", tmp_path).out


def test_a_trained_run_shows_its_evaluation(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo"))
    result = call("train", config, "--output-dir", tmp_path / "runs", "--quiet", "--json").json
    (row,) = call("list", "runs", "--output-dir", tmp_path / "runs", "--json").json
    assert row["last_score"] == row["best_score"] == result["eval"]["mean_return"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff\n{}\n",
        b'{"kind": "eval", "env_steps": "x", "eval_mean_return": 1}\n',
        b'{"kind": "eval", "env_steps": 1, "eval_mean_return": 1e400}\n',
        b'{"kind": "eval", "env_steps": 1, "eval_mean_return": true}\n',
        b'{"kind": "eval", "env_steps": 1, "eval_mean_return": "\x1b[2J"}\n',
        b'["eval_mean_return"]\n',
    ],
)
def test_damaged_metrics_do_not_break_the_list(content: bytes, tmp_path: Path) -> None:
    path = make_run(tmp_path, "run", [])
    (path / "metrics.jsonl").write_bytes(content)
    (row,) = call("list", "runs", "--output-dir", tmp_path, "--json").json
    assert row["last_score"] is None
    path.joinpath("metrics.jsonl").unlink()
    path.joinpath("metrics.jsonl").mkdir()
    assert call("list", "runs", "--output-dir", tmp_path).code == 0


@pytest.mark.parametrize(
    ("steps", "text"),
    [(0, "0"), (9999, "10k"), (9990, "9990"), (123_456, "123k"), (999_999, "1M"), (2_500_000, "2.5M"), (10**12, "1T")],
)
def test_short_counts(steps: int, text: str) -> None:
    assert _short(steps) == text
