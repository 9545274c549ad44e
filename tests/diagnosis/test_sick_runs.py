"""Runs that are sick on purpose fire their rule and no other, and healthy presets fire none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.diagnosis.rule_book import RULES, diagnose
from sick_runs import SICK, STREAMS, recorded

HEALTHY = STREAMS.with_name("healthy_streams")


@pytest.mark.parametrize("name", SICK)
def test_a_recorded_sick_run_fires_its_rule_and_no_other(name: str) -> None:
    config, lines = recorded(STREAMS / f"{name}.jsonl")
    assert [finding.rule for finding in diagnose(lines, config).findings] == [SICK[name].rule]


@pytest.mark.slow
@pytest.mark.parametrize("name", SICK)
def test_a_sick_run_fires_its_rule_and_no_other(name: str, tmp_path: Path) -> None:
    result = SICK[name].train(tmp_path, name)
    assert [finding.rule for finding in result.findings if finding.exact] == [SICK[name].rule]


@pytest.mark.parametrize("path", sorted(HEALTHY.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_recorded_healthy_run_fires_nothing(path: Path) -> None:
    config, lines = recorded(path)
    assert len(lines) > 10 and diagnose(lines, config).findings == []


def test_there_are_healthy_runs_of_both_loops() -> None:
    algorithms = {path.stem.partition("-")[0] for path in HEALTHY.glob("*.jsonl")}
    assert {"ppo", "a2c", "dqn", "td3"} <= algorithms


def test_every_rule_over_the_experiment_has_a_sick_run() -> None:
    assert {run.rule for run in SICK.values()} == {rule.name for rule in RULES} - {"env_is_the_limit"}
