"""Where an episode ends, for every algorithm, in both autoreset modes: what is learned from, and towards what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from probe_suite import BOTH_MODES, GAMMA, action_kinds, build_loop, record_targets, subject
from rl_training.config.base import RolloutConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.probes import AutoresetCanaryProbe, probe_vector_env
from rl_training.experiment.registry import algorithm_names, get_config_class
from rl_training.runtime.collection.steps import Episode
from rl_training.runtime.loops import Loop, ReplayLoop

LENGTH = 3
STEPS = 64
EVERY_ALGORITHM = pytest.mark.parametrize("algo", algorithm_names())
BOTH_ENDS = pytest.mark.parametrize("truncate", [False, True], ids=["terminated", "truncated"])
Transition = tuple[float, float, float | None, bool, bool]  # obs, reward, next obs, terminated, truncated


def lambda_of(algo: str) -> str:
    """The setting that says how far returns reach before they bootstrap."""
    names = ("gae_lambda", "q_lambda", "retrace_lambda")
    return next(name for name in names if name in get_config_class(algo).model_fields)


def canary_loop(algo: str, mode: AutoresetMode, truncate: bool, **settings: Any) -> Loop:
    continuous = action_kinds(algo)[-1]
    envs = probe_vector_env(
        AutoresetCanaryProbe, 2, autoreset_mode=mode, length=LENGTH, truncate=truncate, continuous=continuous
    )
    family: dict[str, Any] = {"learning_starts": 10, "batch_size": 16}
    if issubclass(get_config_class(algo), RolloutConfig):
        # Rollouts of 7 steps cut episodes of 3 at ever other places. Lambda 0 makes every target one step long.
        family = {"num_steps": 7, lambda_of(algo): 0.0}
        if "num_minibatches" in get_config_class(algo).model_fields:
            # One gradient step: after it the policy has moved, and V-trace rightly has other targets.
            family["num_minibatches"] = 1
        if "update_epochs" in get_config_class(algo).model_fields:
            family["update_epochs"] = 1
        if "minibatch_size" in get_config_class(algo).model_fields:
            family |= {"minibatch_size": 7, "update_epochs": 1}
    return build_loop(algo, envs, steps=STEPS, **{**family, **settings})


def transitions_of(rollout: Rollout) -> list[Transition]:
    """The rollout's transitions; after a termination the next observation is nobody's business and left out."""
    finals = {
        (t, env): float(obs[0])
        for t, env, obs in zip(rollout.final_steps, rollout.final_envs, rollout.final_obs, strict=True)
    }
    following = np.concatenate([rollout.obs[1:], rollout.last_obs[None]])
    found: list[Transition] = []
    for t, env in np.argwhere(rollout.valid):
        terminated, truncated = bool(rollout.terminated[t, env]), bool(rollout.truncated[t, env])
        after = None if terminated else finals.get((t, env), float(following[t, env, 0]))
        found.append((float(rollout.obs[t, env, 0]), float(rollout.rewards[t, env]), after, terminated, truncated))
    return found


def learned_from(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Transition], list[Episode]]:
    """Run the loop; every transition that reached the learner or its buffer, and the episodes reported."""
    found: list[Transition] = []
    if loop.buffer is not None:
        episodes = [episode for progress in loop for episode in progress.episodes]
        rows = loop.buffer.export_rows(loop.buffer.oldest_row, loop.buffer.rows_written)
        for row in np.argwhere(rows["valid"]):
            obs, reward, after, terminated, truncated = (
                rows[name][tuple(row)].item() for name in ("obs", "rewards", "next_obs", "terminated", "truncated")
            )
            if terminated and not isinstance(loop, ReplayLoop):
                after = None
            found.append((obs, reward, after, terminated, truncated))
        return found, episodes
    update = loop.learner.update

    def watched(rollout: Rollout) -> Any:
        found.extend(transitions_of(rollout))
        return update(rollout)

    monkeypatch.setattr(loop.learner, "update", watched)
    return found, [episode for progress in loop for episode in progress.episodes]


@BOTH_MODES
@BOTH_ENDS
@EVERY_ALGORITHM
def test_only_true_transitions_are_learned_from_and_counted(
    algo: str, mode: AutoresetMode, truncate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = canary_loop(algo, mode, truncate)
    found, episodes = learned_from(loop, monkeypatch)
    assert loop.env_steps == len(found) > STEPS / 2
    assert {obs for obs, *_ in found} == {1.0, 2.0, 3.0}
    for obs, reward, after, terminated, truncated in found:
        last = obs == LENGTH
        assert reward == obs
        assert (terminated, truncated) == (last and not truncate, last and truncate)
        assert after == (-1.0 if last else obs + 1) or (terminated and after is None)
    assert len(episodes) == sum(obs == LENGTH for obs, *_ in found) > 0
    assert set(episodes) == {Episode(6.0, LENGTH)}


@BOTH_MODES
@BOTH_ENDS
@EVERY_ALGORITHM
def test_truncation_bootstraps_from_the_final_observation_and_termination_does_not(
    algo: str, mode: AutoresetMode, truncate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = canary_loop(algo, mode, truncate)
    # Steep and different everywhere: a bootstrap from the wrong observation is off by ten at least.
    subject(algo).reader.assume_values(loop.learner, lambda obs: 10.0 * obs[:, 0])
    seen = record_targets(algo, loop.learner, monkeypatch)
    for _ in loop:
        pass
    expected = {1.0: 1.0 + GAMMA * 20.0, 2.0: 2.0 + GAMMA * 30.0, 3.0: 3.0 + (GAMMA * -10.0 if truncate else 0.0)}
    checked = 0
    for observations, targets in seen:
        wanted = [expected[obs] for obs in observations[:, 0].tolist()]
        # SAC's entropy term stays within this, at the temperature of the probes.
        np.testing.assert_allclose(targets.detach().numpy(), wanted, atol=0.02)
        checked += len(wanted)
    assert checked > STEPS / 2


def assert_targets_of_cut_episodes(seen: list[tuple[Any, Any]], third: float) -> None:
    """Sums over up to three steps, to the episode's end or to where a rollout, buffer or barrier cut it."""
    second = 2.0 + GAMMA * third
    allowed = {
        1.0: [1.0 + GAMMA * second, 1.0 + GAMMA * 20.0, 1.0 + GAMMA * (2.0 + GAMMA * 30.0)],
        2.0: [second, 2.0 + GAMMA * 30.0],
        3.0: [third],
    }
    whole = 0
    for observations, targets in seen:
        for obs, target in zip(observations[:, 0].tolist(), targets.tolist(), strict=True):
            errors = np.abs(np.array(allowed[obs]) - target)
            assert errors.min() < 0.02, f"{target} for {obs}"
            whole += int(obs == 1.0 and errors[0] < 0.02)
    assert whole > 5


@BOTH_MODES
@BOTH_ENDS
@EVERY_ALGORITHM
def test_returns_over_several_steps_stop_at_the_end_of_their_episode(
    algo: str, mode: AutoresetMode, truncate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_policy = issubclass(get_config_class(algo), RolloutConfig)
    loop = canary_loop(algo, mode, truncate, **({lambda_of(algo): 1.0} if on_policy else {"n_step": 3}))
    subject(algo).reader.assume_values(loop.learner, lambda obs: 10.0 * obs[:, 0])
    seen = record_targets(algo, loop.learner, monkeypatch)
    for _ in loop:
        pass
    assert_targets_of_cut_episodes(seen, third=3.0 + (GAMMA * -10.0 if truncate else 0.0))


@BOTH_MODES
@EVERY_ALGORITHM
def test_the_barrier_cuts_running_episodes_without_ending_them(
    algo: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_policy = issubclass(get_config_class(algo), RolloutConfig)
    loop = canary_loop(algo, mode, truncate=False, **({lambda_of(algo): 1.0} if on_policy else {"n_step": 3}))
    subject(algo).reader.assume_values(loop.learner, lambda obs: 10.0 * obs[:, 0])
    seen = record_targets(algo, loop.learner, monkeypatch)
    for number, _ in enumerate(loop):
        # In the middle of an episode; a round of the replay loop is a single step.
        if on_policy or number % 5 == 4:
            loop.barrier()
            loop.restart_envs()
            np.testing.assert_array_equal(loop.collector.obs, [[1.0], [1.0]])
    assert_targets_of_cut_episodes(seen, third=3.0)


@BOTH_MODES
@EVERY_ALGORITHM
def test_observation_statistics_are_of_the_observations_acted_upon(
    algo: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = canary_loop(algo, mode, truncate=False, model={"normalize_observations": True})
    found, _ = learned_from(loop, monkeypatch)
    shown = [obs for obs, *_ in found]
    normalizer: Any = loop.learner.model.normalizer  # type: ignore[attr-defined]
    assert int(normalizer.count) == len(shown) == loop.env_steps
    np.testing.assert_allclose(normalizer.mean.item(), np.mean(shown))
    np.testing.assert_allclose(normalizer.variance.item(), np.var(shown))
