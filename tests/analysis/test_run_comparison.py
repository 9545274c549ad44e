"""`rl-training compare`: groups, statistics against slow formulas, and when a winner is named."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from cli_helpers import call
from rl_training import ExperimentManager, compare_runs
from rl_training.analysis.run_group import group_runs, select_runs, setting_text
from rl_training.analysis.statistics import (
    bootstrap_interval,
    improvement_interval,
    interquartile_mean,
    probability_of_improvement,
)
from rl_training.errors import ConfigError
from stored_runs import store


def store_group(folder: Path, gamma: float, scores: list[float], **settings: object) -> None:
    for seed, score in enumerate(scores):
        store(folder, {500: 0.0, 1000: score}, seed=seed, gamma=gamma, **settings)  # type: ignore[arg-type]


# --- statistics ---


def slow_probability(first: list[list[float]], second: list[list[float]]) -> float:
    """The formula of the paper, pair by pair: mean over tasks of the mean of S(y, x)."""
    tasks = []
    for xs, ys in zip(first, second, strict=True):
        wins = [1.0 if y > x else 0.5 if y == x else 0.0 for x in xs for y in ys]
        tasks.append(sum(wins) / len(wins))
    return sum(tasks) / len(tasks)


def slow_interval(first: list[list[float]], second: list[list[float]]) -> tuple[float, float]:
    """Every possible resample of small groups, each equally likely: the bootstrap without its randomness."""
    choices = [[list(drawn) for drawn in itertools.product(scores, repeat=len(scores))] for scores in (*first, *second)]
    half = len(first)
    values = [slow_probability(list(drawn[:half]), list(drawn[half:])) for drawn in itertools.product(*choices)]
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([[1.0, 2.0, 3.0]], [[2.5, 3.5, 0.0]]),
        ([[1.0, 1.0]], [[1.0, 1.0, 1.0]]),
        ([[1.0, 5.0], [3.0, 4.0, 9.0]], [[2.0, 4.0], [3.0, 8.0]]),
        ([[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0]]),
    ],
)
def test_probability_of_improvement_is_that_of_the_slow_formula(
    first: list[list[float]], second: list[list[float]]
) -> None:
    assert probability_of_improvement(first, second) == pytest.approx(slow_probability(first, second), rel=1e-12)
    low, high = slow_interval(first, second)
    ours = improvement_interval(first, second)
    assert ours.low == pytest.approx(low, abs=0.02) and ours.high == pytest.approx(high, abs=0.02)


def test_improvement_is_symmetric_and_seeded() -> None:
    first, second = [[1.0, 2.0, 5.0, 3.0]], [[2.0, 4.0, 6.0]]
    forward, backward = probability_of_improvement(first, second), probability_of_improvement(second, first)
    assert forward + backward == pytest.approx(1.0)
    assert improvement_interval(first, second) == improvement_interval(first, second)


def test_strata_are_resampled_apart() -> None:
    """Without spread within a task there is none in the result, however far apart the tasks are."""
    first, second = [[0.0] * 4, [100.0] * 4], [[1.0] * 4, [50.0] * 4]
    assert probability_of_improvement(first, second) == 0.5
    assert improvement_interval(first, second) == (0.5, 0.5)


# --- groups ---


def test_groups_are_names_patterns_lists_and_settings(tmp_path: Path) -> None:
    store_group(tmp_path, 0.9, [1.0, 2.0])
    store_group(tmp_path, 0.99, [3.0])
    every = ["ppo-seed0", "ppo-seed1", "ppo-seed0-2"]
    names = {
        "ppo-seed0": every[:1],
        "ppo-seed?": every[:2],
        "ppo-seed1,ppo-seed0-2": every[1:],
        "gamma=0.9": every[:2],
        "algo_kwargs.gamma=0.99": every[2:],
        "gamma=0.9,seed=1": every[1:2],
        "env_id=CartPole-v1": every,
        "latest": every[2:],
        str(tmp_path / "ppo-seed1"): every[1:2],
        str(tmp_path): every,
    }
    for text, expected in names.items():
        assert [run.name for run in select_runs(text, tmp_path)] == expected, text


def test_a_number_that_equals_true_is_not_true() -> None:
    assert [setting_text(value) for value in (1, 0, True, False, None, 1.0, 3e-4)] == [
        "1", "0", "true", "false", "null", "1", "0.0003",
    ]  # fmt: skip


def test_labels_compare_settings_within_an_algorithm(tmp_path: Path) -> None:
    store(tmp_path, {1: 1.0}, gamma=0.9)
    store(tmp_path, {1: 1.0}, gamma=0.99)
    store(tmp_path, {1: 1.0}, algo="dqn", num_envs=3)
    labels = [group.label for group in group_runs(select_runs("*", tmp_path))]
    assert labels == ["ppo, gamma 0.9", "ppo, gamma 0.99", "dqn"]


# --- comparison ---


def test_scores_intervals_and_a_winner(tmp_path: Path) -> None:
    store_group(tmp_path, 0.9, [1.0, 2.0, 3.0])
    store_group(tmp_path, 0.99, [11.0, 12.0, 13.0, 99.0])
    comparison = compare_runs("gamma=0.9", "gamma=0.99", output_dir=tmp_path)
    first, second = comparison.scores
    assert first.scores == (1.0, 2.0, 3.0) and second.seeds == 4
    assert second.iqm == interquartile_mean([11.0, 12.0, 13.0, 99.0]) == 12.5
    assert second.interval == bootstrap_interval([11.0, 12.0, 13.0, 99.0])
    assert comparison.probability == 1.0 and comparison.interval == (1.0, 1.0)
    assert comparison.winner == "gamma=0.99" and comparison.verdict == "gamma=0.99 scores higher"
    backward = compare_runs("gamma=0.99", "gamma=0.9", output_dir=tmp_path)
    assert backward.probability == 0.0 and backward.winner == "gamma=0.99"


def test_below_three_seeds_no_winner_is_named(tmp_path: Path) -> None:
    store_group(tmp_path, 0.9, [1.0, 2.0, 3.0])
    store_group(tmp_path, 0.99, [11.0, 12.0])
    outcome = call("compare", "gamma=0.9", "gamma=0.99", "--output-dir", tmp_path)
    assert outcome.code == 0
    last = outcome.out.splitlines()[-1]
    assert last == "no winner: that takes at least 3 seeds in each group, and gamma=0.9 has 3 and gamma=0.99 has 2"
    summary = call("compare", "gamma=0.9", "gamma=0.99", "--output-dir", tmp_path, "--json").json
    assert summary["winner"] is None and summary["probability_of_improvement"] == 1.0


def test_equal_groups_are_not_asked_for_more_seeds(tmp_path: Path) -> None:
    store_group(tmp_path, 0.9, [500.0, 500.0, 500.0])
    store_group(tmp_path, 0.99, [500.0, 500.0, 500.0])
    comparison = compare_runs("gamma=0.9", "gamma=0.99", output_dir=tmp_path)
    assert (comparison.probability, comparison.interval) == (0.5, (0.5, 0.5)) and comparison.winner is None
    assert comparison.verdict == "no winner: all runs of both groups have the same score"


def test_groups_that_overlap_have_no_winner_for_want_of_seeds(tmp_path: Path) -> None:
    store_group(tmp_path, 0.9, [1.0, 2.0, 3.0])
    store_group(tmp_path, 0.99, [1.0, 2.0, 3.0])
    comparison = compare_runs("gamma=0.9", "gamma=0.99", output_dir=tmp_path)
    assert comparison.winner is None and comparison.interval.low < 0.5 < comparison.interval.high
    assert "cannot be told apart" in comparison.verdict and "more seeds" in comparison.verdict


def test_a_single_run_has_no_interval(tmp_path: Path) -> None:
    store_group(tmp_path, 0.9, [1.0])
    store_group(tmp_path, 0.99, [11.0, 12.0])
    assert compare_runs("gamma=0.9", "gamma=0.99", output_dir=tmp_path).scores[0].interval is None
    assert "none, 1 run" in call("compare", "gamma=0.9", "gamma=0.99", "--output-dir", tmp_path).out


def test_groups_that_overlap_in_score_have_no_winner(tmp_path: Path) -> None:
    store_group(tmp_path, 0.9, [1.0, 5.0, 3.0])
    store_group(tmp_path, 0.99, [2.0, 4.0, 6.0])
    comparison = compare_runs("gamma=0.9", "gamma=0.99", output_dir=tmp_path)
    assert comparison.winner is None and "contains 50 %" in comparison.verdict


def test_a_repeated_seed_is_not_a_new_seed(tmp_path: Path) -> None:
    store_group(tmp_path, 0.9, [1.0, 2.0, 3.0])
    store_group(tmp_path, 0.99, [11.0, 12.0])
    store(tmp_path, {1000: 30.0}, seed=1, gamma=0.99, name="again")
    comparison = compare_runs("gamma=0.9", "gamma=0.99", output_dir=tmp_path)
    assert comparison.seeds == (3, 2) and comparison.winner is None
    assert comparison.scores[1].scores == (11.0, 30.0)
    assert any("again repeats" in note for note in comparison.notes)


def test_the_last_evaluation_or_another_metric_is_the_score(tmp_path: Path) -> None:
    store(tmp_path, [(500, 9.0), (1000, 1.0), (1000, 2.0)], gamma=0.9, losses={500: 1.0, 1000: 7.0})
    store(tmp_path, {500: 3.0}, gamma=0.99, losses={500: 5.0}, status="interrupted")
    comparison = compare_runs("gamma=0.9", "gamma=0.99", output_dir=tmp_path)
    assert [each.scores for each in comparison.scores] == [(2.0,), (3.0,)]  # the result of the run, not its best
    assert comparison.score == "mean return of the last evaluation"
    assert any("is interrupted: its last score counts" in note for note in comparison.notes)
    by_loss = compare_runs("gamma=0.9", "gamma=0.99", metric="loss", output_dir=tmp_path)
    assert [each.scores for each in by_loss.scores] == [(7.0,), (5.0,)]


def test_envs_are_compared_apart(tmp_path: Path) -> None:
    for env in ("CartPole-v1", "Acrobot-v1"):
        offset = 100.0 * (env == "Acrobot-v1")
        store_group(tmp_path, 0.9, [offset, offset + 1, offset + 2], env_id=env)
        store_group(tmp_path, 0.99, [offset + 5, offset + 6, offset + 7], env_id=env)
    comparison = compare_runs("gamma=0.9", "gamma=0.99", output_dir=tmp_path)
    assert [(each.env, each.iqm) for each in comparison.scores] == [
        ("Acrobot-v1", 101.0), ("Acrobot-v1", 106.0), ("CartPole-v1", 1.0), ("CartPole-v1", 6.0),
    ]  # fmt: skip
    assert comparison.winner == "gamma=0.99"


def test_a_mixed_group_is_named(tmp_path: Path) -> None:
    store_group(tmp_path, 0.9, [1.0])
    store(tmp_path, {1: 1.0}, gamma=0.95, name="other-1")
    store(tmp_path, {1: 1.0}, gamma=0.97, name="other-2")
    notes = compare_runs("gamma=0.9", "other-*", output_dir=tmp_path).notes
    assert "other-* mixes settings: gamma 0.95; gamma 0.97" in notes


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["gamma=0.9", "gamma=0.9"], 2, "with itself"),
        (["gamma=0.9", "*"], 2, "both groups contain"),
        (["gamma=0.9", "env_id=Acrobot-v1"], 2, "different envs"),
        (["gamma=0.9", "nothing-*"], 5, "no such run"),
        (["gamma=0.9", "gamma=0.99", "--metric", "los"], 2, "did you mean loss?"),
        (["gamma=0.9", "gamma=0.95"], 2, "none of its runs has an evaluation"),
    ],
)
def test_bad_groups_are_refused_in_one_line(words: list[str], code: int, text: str, tmp_path: Path) -> None:
    for gamma in (0.9, 0.99):
        store(tmp_path, {1000: 1.0}, gamma=gamma, losses={1: 1.0})
    store(tmp_path, {}, gamma=0.95)
    store(tmp_path, {1: 1.0}, env_id="Acrobot-v1", gamma=0.5)
    outcome = call("compare", *words, "--output-dir", tmp_path)
    assert outcome.code == code and text in outcome.err.splitlines()[-1] and "Traceback" not in outcome.err


def test_an_empty_list_is_not_a_group(tmp_path: Path) -> None:
    store(tmp_path, {1: 1.0})
    with pytest.raises(ConfigError, match="empty"):
        compare_runs([], ["ppo-seed0"], output_dir=tmp_path)


def test_the_manager_draws_and_compares_its_own_runs(tmp_path: Path) -> None:
    store_group(tmp_path / "runs", 0.9, [1.0, 2.0, 3.0])
    store_group(tmp_path / "runs", 0.99, [4.0, 5.0, 6.0])
    manager = ExperimentManager(tmp_path / "runs")
    assert manager.compare("gamma=0.9", "gamma=0.99").winner == "gamma=0.99"
    assert [each.name for each in manager.diff("ppo-seed0", "ppo-seed0-2").settings] == ["algo_kwargs.gamma"]
    plot = manager.plot(["gamma=0.9"], tmp_path / "x.png", metrics=["eval_std_return"])
    assert plot.path.exists() and plot.groups[0].seeds == 3
