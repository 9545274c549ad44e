"""Probes that only a memory can pass: recurrent PPO does, and plain PPO, trained alike, does no better than a coin."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from bare_agent import bare_agent
from probe_suite import BOTH_MODES, GAMMA, train_on_probe, values_of
from rl_training.envs.probes import CueMemoryProbe, CueRingProbe
from rl_training.runtime.evaluation import evaluate

STEPS = 6000
FEWER_UPDATES = {"gamma": 0.95, "num_steps": 32, "minibatch_size": 64}


@pytest.mark.parametrize(("algo", "low", "high"), [("recurrent_ppo", 0.95, 1.0), ("ppo", 0.4, 0.6)])
def test_a_cue_is_remembered_over_blank_steps(algo: str, low: float, high: float) -> None:
    learner = train_on_probe(algo, CueMemoryProbe, steps=STEPS, settings=FEWER_UPDATES)
    result = evaluate(bare_agent(learner, learner.spaces), CueMemoryProbe, episodes=200)
    assert result is not None and low <= result.mean_return <= high


def test_a_shared_gru_remembers_too() -> None:
    settings = {**FEWER_UPDATES, "cell": "gru", "shared_memory": True}
    learner = train_on_probe("recurrent_ppo", CueMemoryProbe, steps=STEPS, settings=settings)
    result = evaluate(bare_agent(learner, learner.spaces), CueMemoryProbe, episodes=100)
    assert result is not None and result.mean_return >= 0.95


def test_a_cue_longer_ago_than_a_sequence_is_remembered_by_the_state_it_starts_with() -> None:
    """Sequences of 2 steps: gradients never see cue and choice together, but the memory carries the cue across."""
    settings = {**FEWER_UPDATES, "sequence_length": 2}
    learner = train_on_probe("recurrent_ppo", CueMemoryProbe, steps=STEPS, delay=2, settings=settings)
    result = evaluate(bare_agent(learner, learner.spaces), lambda: CueMemoryProbe(2), episodes=100)
    assert result is not None and result.mean_return >= 0.95


@BOTH_MODES
def test_the_value_behind_a_time_limit_is_that_of_what_is_remembered(mode: AutoresetMode) -> None:
    settings = {**FEWER_UPDATES, "gamma": GAMMA}
    learner = train_on_probe("recurrent_ppo", CueRingProbe, steps=STEPS, mode=mode, settings=settings)
    for cue in (-1.0, 1.0):
        episode = [[cue], [0.0], [0.0], [0.0]]
        values = values_of("recurrent_ppo", learner, episode, episode=True)
        np.testing.assert_allclose(values, np.full(4, cue / (1 - GAMMA)), atol=0.4)


Q_SETTINGS = {"gamma": 0.95, "learning_rate": 5e-3, "tau": 0.05, "exploration": 0.3, "learning_starts": 200}
Q_SETTINGS |= {"n_step": 3, "train_frequency": 4, "batch_size": 32, "buffer_size": 6000, "max_grad_norm": 10.0}
WINDOWS = {"sequence_length": 14, "burn_in": 2, "double": True, "prioritized": True}


@BOTH_MODES
def test_r2d2_bootstraps_behind_a_time_limit_from_what_is_remembered(mode: AutoresetMode) -> None:
    """Every window ends with a time limit or is cut; with a limit that counts as the end, values would be lower."""
    settings = {**Q_SETTINGS, **WINDOWS, "gamma": GAMMA, "rescaling": None}
    learner = train_on_probe("r2d2", CueRingProbe, steps=4000, mode=mode, settings=settings)
    for cue in (-1.0, 1.0):
        values = values_of("r2d2", learner, [[cue], [0.0], [0.0], [0.0]], episode=True)
        np.testing.assert_allclose(values, np.full(4, cue / (1 - GAMMA)), atol=0.4)


@pytest.mark.parametrize(("algo", "low", "high"), [("r2d2", 0.95, 1.0), ("dqn", 0.3, 0.7)])
def test_q_learning_remembers_a_cue_only_with_memory(algo: str, low: float, high: float) -> None:
    settings = {**Q_SETTINGS, **(WINDOWS if algo == "r2d2" else {})}
    learner = train_on_probe(algo, CueMemoryProbe, steps=2500, settings=settings)
    result = evaluate(bare_agent(learner, learner.spaces), CueMemoryProbe, episodes=100)
    assert result is not None and low <= result.mean_return <= high


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("algo", "low", "high"), [("r2d2", 0.95, 1.0), ("dqn", 0.0, 0.55)])
def test_a_cue_ten_steps_ago_is_remembered_by_r2d2(algo: str, low: float, high: float, seed: int) -> None:
    assert low <= score_of_a_cue_ten_steps_ago(algo, seed) <= high


def score_of_a_cue_ten_steps_ago(algo: str, seed: int) -> float:
    """The share of 1,000 cues that are repeated after 50,000 steps of training. A coin gets 0.5 +- 0.016."""
    settings = {**Q_SETTINGS, "n_step": 5, **(WINDOWS if algo == "r2d2" else {})}
    learner = train_on_probe(algo, CueMemoryProbe, steps=50_000, delay=10, settings=settings, seed=seed)
    result = evaluate(bare_agent(learner, learner.spaces), lambda: CueMemoryProbe(10), episodes=1000)
    assert result is not None
    return result.mean_return
