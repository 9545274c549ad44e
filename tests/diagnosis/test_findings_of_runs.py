"""Findings during training, in the run directory, after a resume, and from the command line: always the same ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import rl_training
from cli_helpers import call
from rl_training.diagnosis.findings_file import FINDINGS_FILE, FindingsSink
from rl_training.diagnosis.run_finding import Finding
from rl_training.diagnosis.stored_diagnosis import diagnose_run
from rl_training.runtime import session as session_module
from rl_training.telemetry.metric_lines import WALL_CLOCK_FIELDS, read_metrics
from run_cases import stop_at

SHORT = {"total_timesteps": 6144, "eval_every": 0, "checkpoint_every": 2048, "eval_episodes": 1, "threads": 1}


def config(folder: Path, **settings: Any) -> Any:
    changes = {f"algo_kwargs.{name}": value for name, value in settings.items()}
    place = {"output_dir": str(folder), "run_name": "run", "compile": "off", "seed": 1}
    return rl_training.load_config("ppo/cartpole", SHORT | changes | place)


def kept(run_dir: Path) -> list[dict[str, Any]]:
    path = run_dir / FINDINGS_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_learning_rate_of_one_is_named_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = rl_training.train(config(tmp_path, learning_rate=1.0))
    (finding,) = result.findings
    assert finding.rule == "steps_too_large" and "learning_rate" in finding.text
    assert capsys.readouterr().err.count(finding.text) == 1
    assert kept(result.run_dir) == [finding.to_json()] == result.summary()["findings"]
    assert diagnose_run(result.run_dir).findings == result.findings
    outcome = call("diagnose", result.run_dir)
    assert outcome.code == 0 and outcome.out.splitlines() == ["run: 1 finding in 6,144 steps", f"  {finding}"]
    document = call("diagnose", "run", "--output-dir", tmp_path, "--json").json
    assert document["runs"][0]["findings"] == [finding.to_json()]


def test_the_end_panel_of_train_shows_the_findings(tmp_path: Path) -> None:
    words = ["train", "ppo/cartpole", "--quiet", "--set", "learning_rate=1", "--output-dir", tmp_path]
    words += ["--total-timesteps", "2048", "--set", "eval_episodes=1", "--set", "eval_every=0"]
    outcome = call(*words)
    assert outcome.code == 0 and "finding" in outcome.out and "KL divergence" in outcome.out


def test_a_healthy_run_has_none_and_no_file(tmp_path: Path) -> None:
    result = rl_training.train(config(tmp_path), show=False)
    assert result.findings == () and not (result.run_dir / FINDINGS_FILE).exists()
    assert "findings" not in result.summary()
    assert call("diagnose", result.run_dir).out == "run: no findings in 6,144 steps\n"


@pytest.mark.parametrize("stop", [2048, 4096, 5120])
def test_findings_are_the_same_after_a_resume(stop: int, tmp_path: Path) -> None:
    sick = {"reward_scale": 1000.0}  # found at step 5,120
    whole = rl_training.train(config(tmp_path / "whole", **sick), show=False)
    assert [finding.rule for finding in whole.findings] == ["gradients_too_long"]
    parts = rl_training.train(config(tmp_path / "parts", **sick), callback=stop_at(stop), show=False)
    assert parts.interrupted
    checkpoint = parts.run_dir / "checkpoints" / f"step-{stop // 2048 * 2048:012d}"
    resumed = rl_training.resume(checkpoint, show=False)
    assert resumed.findings == whole.findings
    assert kept(resumed.run_dir) == kept(whole.run_dir) != []


def test_a_resume_from_before_a_finding_forgets_it_until_it_is_found_again(tmp_path: Path) -> None:
    run_dir = rl_training.train(config(tmp_path, reward_scale=1000.0), show=False).run_dir
    assert kept(run_dir)
    seen: list[list[dict[str, Any]]] = []

    def watch(progress: Any) -> bool:
        seen.append(kept(run_dir))
        return True

    rl_training.resume(run_dir / "checkpoints" / "step-000000004096", callback=watch, show=False)
    assert seen[0] == [] and kept(run_dir)


def test_a_resume_tells_nothing_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = rl_training.train(config(tmp_path, learning_rate=1.0), callback=stop_at(4096), show=False).run_dir
    capsys.readouterr()
    result = rl_training.resume(run_dir)
    assert len(result.findings) == 1 and "finding" not in capsys.readouterr().err


def test_a_run_from_before_these_metrics_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rl_training.runtime.loops import Loop, OnPolicyLoop

    monkeypatch.setattr(OnPolicyLoop, "state_dict", lambda self: {"env_steps": self.env_steps})
    run_dir = rl_training.train(config(tmp_path), callback=stop_at(4096), show=False).run_dir
    monkeypatch.undo()
    assert rl_training.resume(run_dir, show=False).env_steps == 6144
    assert hasattr(Loop, "state_dict")
    last = read_metrics(run_dir)[-2]
    assert last["reward_max"] == 1.0 and last["longest_episode"] > 0


def test_a_slow_env_is_told_but_not_kept(tmp_path: Path) -> None:
    told: list[Finding] = []
    sink = FindingsSink(tmp_path, config(tmp_path), told.append)
    for number in range(10):
        sink.write({"kind": "train", "env_steps": number, "updates": 1, "episodes": 1, "time_env": 0.95})
    assert [finding.rule for finding in told] == ["env_is_the_limit"] and sink.findings == tuple(told)
    assert not (tmp_path / FINDINGS_FILE).exists()
    assert "time_env" in WALL_CLOCK_FIELDS


def test_a_full_disk_costs_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FindingsSink(tmp_path, config(tmp_path), lambda finding: None)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rl_training.diagnosis.findings_file.atomic_write_text", full)
        sink.write({"kind": "train", "env_steps": 1, "updates": 1, "episodes": 1, "approx_kl": 50.0})
        assert kept(tmp_path) == []
    sink.flush()
    assert [finding["rule"] for finding in kept(tmp_path)] == ["steps_too_large"]


def test_a_rule_that_fails_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a rule is wrong")

    monkeypatch.setattr("rl_training.diagnosis.rule_book.Diagnosis.look", broken)
    result = rl_training.train(config(tmp_path), show=False)
    assert not result.interrupted and "findings logging is off" in capsys.readouterr().err


def test_trackers_get_each_finding_as_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("steps_too_large", 7, "a", "b", "c")
    notes: list[Any] = []

    class Both:
        def note(self, *words: Any) -> None:
            notes.append(words)

    session_module._tell(finding, Both(), Both())  # type: ignore[arg-type]
    assert notes == [(f"finding at {finding}",), (str(finding), 7)]


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run: Path = rl_training.train(config(tmp_path_factory.mktemp("stored")), show=False).run_dir
    return run


def copy_of(run: Path, folder: Path) -> Path:
    import shutil

    return Path(shutil.copytree(run, folder / "run"))


def test_diagnosing_changes_nothing(stored: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in stored.rglob("*")}
    diagnose_run(stored)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in stored.rglob("*")} == before


def refused(*words: object) -> str:
    outcome = call("diagnose", *words)
    assert outcome.code != 0 and outcome.out == "" and len(outcome.err.splitlines()) == 1, outcome
    return outcome.err


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "no such run" in refused("nothing-here", "--output-dir", tmp_path)
    (tmp_path / "run.json").write_text("{}")
    assert "config.yaml" in refused(tmp_path)


def test_a_run_without_metric_lines_is_refused(stored: Path, tmp_path: Path) -> None:
    run = copy_of(stored, tmp_path)
    (run / "metrics.jsonl").unlink()
    assert "no metric lines yet" in refused(run)
    (run / "metrics.jsonl").write_text("[1]\n" * 3)
    assert "line 1 is not a JSON object" in refused(run)


def test_a_pipe_in_place_of_the_metrics_is_refused(stored: Path, tmp_path: Path) -> None:
    run = copy_of(stored, tmp_path)
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    assert "not a regular file" in refused(run)


def test_hostile_numbers_are_read_without_harm(stored: Path, tmp_path: Path) -> None:
    run = copy_of(stored, tmp_path)
    hostile = ["1" * 4000, "-1e400", "NaN", '"\\u001b[31m"', "[" * 50 + "]" * 50, "true"]
    lines = [f'{{"kind": "train", "env_steps": 5, "approx_kl": {value}, "updates": {value}}}' for value in hostile]
    (run / "metrics.jsonl").write_text("\n".join(lines * 10) + "\n")
    outcome = call("diagnose", run)
    assert (outcome.code, outcome.err) == (0, "") and outcome.out == "run: no findings in 5 steps\n"
