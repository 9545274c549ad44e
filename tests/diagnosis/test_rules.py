"""Each rule: a stream that fires it, and near misses that do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from rl_training.config.loading import load_config
from rl_training.diagnosis.rule_book import RULES, Diagnosis, diagnose
from rl_training.diagnosis.run_finding import Finding

Lines = list[dict[str, Any]]
PPO = load_config("ppo/cartpole", {"total_timesteps": 40_000})
DQN = load_config("dqn/cartpole")
C51 = load_config("c51/cartpole")
SAC = load_config("sac/pendulum")
DROQ = load_config("droq/pendulum")


def stream(count: int, **values: Any) -> Lines:
    """`count` lines, 1,000 steps apart. A list gives the value of each line, anything else is the same in all."""
    columns = {name: value if isinstance(value, list) else [value] * count for name, value in values.items()}
    return [
        {"kind": "train", "env_steps": 1000 * (number + 1), "updates": 10 * (number + 1), "episodes": 10 * (number + 1)}
        | {name: column[number] for name, column in columns.items() if column[number] is not None}
        for number in range(count)
    ]


def evaluations(*returns: float, start: int = 1, every: int = 1000, std: float = 0.5) -> Lines:
    return [
        {"kind": "eval", "env_steps": every * (start + number), "eval_mean_return": value, "eval_std_return": std}
        for number, value in enumerate(returns)
    ]


def fired(lines: Iterable[dict[str, Any]], config: Any = PPO) -> list[str]:
    return [finding.rule for finding in diagnose(lines, config).findings]


def only(lines: Iterable[dict[str, Any]], config: Any = PPO) -> Finding:
    (finding,) = diagnose(lines, config).findings
    return finding


def test_a_median_of_large_divergences_or_a_single_huge_one_is_too_much() -> None:
    assert fired(stream(5, approx_kl=0.11)) == ["steps_too_large"]
    assert fired(stream(4, approx_kl=0.11)) == []
    assert fired(stream(21, approx_kl=[0.09, 0.09, 0.5] * 7)) == []  # a third of the lines, and a median below
    assert only(stream(1, approx_kl=43.0)).numbers["approx_kl"] == 43.0
    assert fired(stream(1, approx_kl=0.9)) == []


def test_a_policy_that_does_not_move_is_named_only_while_it_should_move() -> None:
    still = {"approx_kl": 5e-7, "learning_rate": 1e-6}
    assert fired(stream(5, **still)) == ["policy_stands_still"]
    assert fired(stream(5, approx_kl=2e-6, learning_rate=1e-6)) == []
    late = stream(15, approx_kl=[0.01] * 10 + [1e-8] * 5, learning_rate=1e-6)
    assert fired([line | {"env_steps": 2000 * (number + 1)} for number, line in enumerate(late)]) == []
    assert fired(stream(6, approx_kl=[1e-3] + [1e-8] * 5, learning_rate=[1e-3] + [4e-4] * 5)) == []
    assert fired(stream(5, **still), load_config("impala/cartpole")) == []  # one pass: measured before the first step


def test_lost_entropy_matters_before_half_time_and_below_the_best_return() -> None:
    sick = {"entropy_share": 0.1, "mean_return": [20.0, 30.0, 25.0, 20.0, 15.0]}
    assert fired(stream(5, **sick)) == ["entropy_gone"]
    assert fired(stream(5, **(sick | {"entropy_share": 0.16}))) == []
    assert fired(stream(5, **(sick | {"mean_return": [20.0, 30.0, 40.0, 50.0, 60.0]}))) == []  # sure of what is right
    assert fired(stream(5, **(sick | {"mean_return": [20.0, 30.0, 25.0, 25.0, 25.0]}))) == []  # half is kept
    short = PPO.model_copy(update={"total_timesteps": 9_000})
    assert fired(stream(5, **sick), short) == []


def test_a_critic_without_use_is_named_where_returns_differ() -> None:
    sick = {"explained_variance": 0.0, "target_std": 1.0, "value_loss": 5.1}
    assert fired(stream(10, **sick)) == ["value_learns_nothing"]
    assert fired(stream(9, **sick)) == []
    assert "explains 0% of the returns" in only(stream(10, **(sick | {"explained_variance": -0.004}))).text
    assert fired(stream(10, **(sick | {"explained_variance": 0.06}))) == []
    assert fired(stream(10, **(sick | {"value_loss": 4.9}))) == []  # returns that cannot be predicted
    solved = [10.0] + [1.0] * 10
    assert fired(stream(11, explained_variance=-5.0, target_std=solved, value_loss=8.0)) == []  # all returns are equal
    assert fired([line | {"episodes": 0} for line in stream(10, **sick)]) == []
    assert fired(stream(7, **sick)) == []


def test_gradients_are_long_by_the_limit_that_clips_them() -> None:
    assert PPO.algo_kwargs.max_grad_norm == 0.5
    assert fired(stream(5, grad_norm=151.0)) == ["gradients_too_long"]
    assert fired(stream(4, grad_norm=151.0)) == []
    assert fired(stream(20, grad_norm=[151.0, 151.0, 151.0, 149.0] * 5)) == []
    assert fired(stream(5, grad_norm=999.0), SAC) == []  # nothing clips them
    assert "critic_grad_norm" in only(stream(5, critic_grad_norm=1001.0), SAC).text


def test_q_is_measured_by_rewards_and_the_length_of_episodes() -> None:
    reach = {"reward_max": 0.5, "longest_episode": 20}  # 10 at most
    assert fired(stream(3, q_mean=20.1, **reach), DQN) == ["q_beyond_reach"]
    assert fired(stream(3, q_mean=-20.1, **reach), DQN) == ["q_beyond_reach"]
    assert fired(stream(2, q_mean=20.1, **reach), DQN) == []
    assert fired(stream(3, q_mean=19.9, **reach), DQN) == []
    # With gamma 0.99, an endless episode is worth 100 rewards.
    assert fired(stream(3, q_mean=99.0, reward_max=0.5, longest_episode=5000), DQN) == []
    assert fired(stream(3, q_mean=101.0, reward_max=0.5, longest_episode=5000), DQN) == ["q_beyond_reach"]
    assert fired(stream(3, q_mean=5.0, reward_max=0.0, longest_episode=100), DQN) == []  # no reward was ever seen
    assert fired(stream(3, q_mean=20.1), DQN) == []  # a run from before these metrics
    assert fired(stream(3, q_mean=1e9, **reach), C51) == []


def test_the_bonus_for_entropy_is_within_the_reach_of_a_soft_q() -> None:
    soft = {"reward_max": 1.0, "longest_episode": 10, "temperature": 2.0, "entropy": 1.0}
    assert fired(stream(3, q_mean=59.0, **soft), SAC) == []
    assert fired(stream(3, q_mean=61.0, **soft), SAC) == ["q_beyond_reach"]


def test_a_run_falls_from_its_peak_for_good_or_at_its_end() -> None:
    before = stream(1, mean_return=20.0)
    low = [200] * 6
    assert fired(before + evaluations(300, 500, *low)) == ["fell_from_peak"]
    assert fired(before + evaluations(300, 500, *low[1:])) == []
    assert fired(before + evaluations(300, 500, *low[1:], 261, 200)) == []  # more than half of 480 is kept
    end = evaluations(300, 500, 500) + evaluations(116, start=40) + evaluations(120, start=40)
    assert fired(before + end) == ["fell_from_peak"]
    assert fired(before + end[:-1]) == []
    worse = [-490, -495, -490, -490, -492, -490]
    assert fired(evaluations(-480, -301, *worse, std=60.0)) == []  # noise
    assert fired(evaluations(-480, -299, *worse, std=60.0)) == ["fell_from_peak"]
    few = PPO.model_copy(update={"eval_episodes": 9})
    assert fired(before + evaluations(300, 500, *low), few) == []


def test_dead_units_are_more_than_three_quarters_of_all() -> None:
    assert fired(stream(3, dead_units=0.76)) == ["dead_units"]
    assert fired(stream(2, dead_units=0.76)) == []
    assert fired(stream(9, dead_units=0.75)) == []
    assert fired(stream(9, dead_units=[0.9, None, None, 0.1, None, None, 0.4, 0.9, None])) == []


def test_replay_starves_on_few_rows_or_many_updates() -> None:
    def lines(ratio: int) -> Lines:
        return [line | {"updates": ratio * line["env_steps"]} for line in stream(6)]

    assert fired(lines(9), DQN) == ["replay_starved"]
    assert fired(lines(8), DQN) == []
    assert fired(lines(9)[:5], DQN) == []
    assert fired(lines(20), DROQ) == [] and fired(lines(41), DROQ) == ["replay_starved"]  # 20 is what it is made for
    small = DQN.algo_kwargs.model_copy(update={"buffer_size": 639})
    assert fired(lines(1), DQN.model_copy(update={"algo_kwargs": small})) == ["replay_starved"]
    enough = DQN.algo_kwargs.model_copy(update={"buffer_size": 640})
    assert fired(lines(1), DQN.model_copy(update={"algo_kwargs": enough})) == []
    assert fired(lines(9)) == []  # PPO has no replay


def test_episodes_never_end_after_20000_steps_of_each_env() -> None:
    def lines(steps: int) -> Lines:
        return [{"kind": "train", "env_steps": step, "updates": 1, "episodes": 3} for step in (8_000, steps)]

    rare = PPO.model_copy(update={"checkpoint_every": 0})
    assert rare.num_envs == 8
    finding = only(lines(168_000), rare)
    assert finding.rule == "episodes_never_end" and "max_episode_steps" in finding.text
    assert fired(lines(167_999), rare) == []
    often = PPO.model_copy(update={"checkpoint_every": 8_000})
    assert "each checkpoint cuts all episodes, after 1,000 steps" in only(lines(168_000), often).text


def test_a_support_needs_two_lines_in_a_row() -> None:
    assert fired(stream(6, support_clipped=[0.5, 0.0] * 3), C51) == []
    assert fired(stream(2, support_clipped=0.02), C51) == []
    finding = only(stream(9, support_clipped=0.03), C51)
    assert (finding.rule, finding.env_steps) == ("support_too_narrow", 2000) and "[0, 100]" in finding.text


def test_clipped_rewards_are_more_than_a_fifth() -> None:
    assert fired(stream(5, reward_clipped=0.21)) == ["rewards_clipped"]
    assert fired(stream(5, reward_clipped=0.2)) == []
    assert fired(stream(4, reward_clipped=0.9)) == []


def test_a_slow_env_is_a_finding_that_equal_runs_need_not_share() -> None:
    finding = only(stream(10, time_env=0.93))
    assert finding.rule == "env_is_the_limit" and not finding.exact and "vector_backend" in finding.text
    assert fired(stream(10, time_env=0.92)) == []
    assert fired(stream(9, time_env=0.99)) == []
    async_envs = PPO.model_copy(update={"vector_backend": "async"})
    assert "vector_backend" not in only(stream(10, time_env=0.95), async_envs).text


def test_every_finding_is_one_sentence_that_names_a_setting() -> None:
    sick: Sequence[tuple[Lines, Any]] = (
        (stream(5, approx_kl=0.2), PPO),
        (stream(5, approx_kl=1e-8), PPO),
        (stream(5, grad_norm=199.0), PPO),
        (stream(3, dead_units=0.9), PPO),
        (stream(2, support_clipped=0.9), C51),
    )
    for lines, config in sick:
        text = only(lines, config).text
        assert "\n" not in text and not text.endswith(".") and ". " not in text and len(text) < 400
        assert any(word in text for word in ("learning_rate", "reward_scale", "support_low", "normalize_observations"))


def test_a_rule_speaks_once_and_a_cause_silences_what_it_brings_about() -> None:
    lines = stream(12, approx_kl=[5.0] + [0.0] * 11, entropy_share=0.0, mean_return=[20.0] + [9.0] * 11, dead_units=0.9)
    assert fired(lines) == ["steps_too_large"]
    assert fired(lines[1:]) != []  # each of them would speak without the cause


@pytest.mark.parametrize(
    "value", [None, "0.5", True, float("nan"), float("inf"), -1e300, 10**400, [1.0], {"a": 1}], ids=str
)
def test_values_that_are_no_numbers_are_passed_over(value: Any) -> None:
    names = ("approx_kl", "grad_norm", "q_mean", "reward_max", "dead_units", "time_env", "support_clipped", "updates")
    lines = [{"kind": "train", "env_steps": 1000, **dict.fromkeys(names, value)}] * 20
    for config in (PPO, DQN, C51):
        assert fired(lines, config) == []
    odd = [{"kind": value, "env_steps": value, "eval_mean_return": value, "episodes": value}] * 20
    assert fired(odd) == []
    assert fired([{"kind": "eval", "env_steps": 1, "eval_mean_return": value, "eval_std_return": value}] * 20) == []


def test_the_memory_of_a_diagnosis_does_not_grow() -> None:
    diagnosis = Diagnosis(PPO)
    for line in stream(3, approx_kl=0.01, grad_norm=1.0, dead_units=0.1, mean_return=5.0):
        for _ in range(1000):
            diagnosis.look(line)
    sizes = [len(series.recent) for series in diagnosis.stream._series.values()]
    assert diagnosis.stream.lines == 3000 and max(sizes) == 10


def test_every_rule_has_its_paragraph_in_the_documentation() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "diagnoses.md").read_text(encoding="utf-8")
    for rule in RULES:
        assert f"## {rule.name.replace('_', ' ').capitalize()}" in page and f"`{rule.name}`" in page
