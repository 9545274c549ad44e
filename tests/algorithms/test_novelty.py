"""The novelty bonus (RND): its networks, its advantages, and what it must leave alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from masked_envs import masked_spaces
from on_policy_helpers import SPACES, make_learner, make_rollout, model_config, oracle_cases, parameters_of
from rl_training.algorithms.common.novelty import novelty_advantages, novelty_loss
from rl_training.config.algorithm_table import ALGORITHMS, get_config_class
from rl_training.config.loading import load_config
from rl_training.envs.spaces import Spaces
from rl_training.envs.task_probes import DeepSeaProbe
from rl_training.errors import ConfigError
from rl_training.models.novelty_networks import NoveltyNetworks

NOVELTY = {"num_steps": 6, "novelty_coef": 0.5, "novelty_learning_rate": 1e-2}
LEARNERS: dict[str, dict[str, Any]] = {
    "ppo": {**NOVELTY, "minibatch_size": 4},
    "a2c": NOVELTY,
    "trpo": {**NOVELTY, "minibatch_size": 4},
    "ppg": {**NOVELTY, "minibatch_size": 4, "auxiliary_minibatch_size": 4},
    "acktr": NOVELTY,
    "recurrent_ppo": {**NOVELTY, "minibatch_size": 4, "sequence_length": 2, "memory_size": 4},
}


def test_every_algorithm_that_has_the_setting_is_tested_here() -> None:
    assert {name for name in ALGORITHMS if "novelty_coef" in get_config_class(name).model_fields} == set(LEARNERS)


# --- the networks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "outputs"), oracle_cases("novelty"))
def test_errors_loss_and_gradients_equal_those_of_torchrl(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    networks = NoveltyNetworks(SPACES["discrete"], model_config(hidden_sizes=(4,)), size=5)
    with torch.no_grad():
        for name in ("random", "imitation"):
            for parameter, value in zip(getattr(networks, name).parameters(), inputs[name], strict=True):
                parameter.copy_(torch.tensor(value))
    assert networks.normalizer is not None
    networks.normalizer.update(inputs["seen"].astype(np.float32))
    errors = networks.errors(torch.from_numpy(inputs["obs"].astype(np.float32)))
    np.testing.assert_allclose(errors.detach(), outputs["errors"], rtol=1e-3)  # theirs starts with a count of 1e-4
    loss, _ = novelty_loss(errors, torch.zeros(6), torch.zeros(6))
    assert loss.item() == pytest.approx(outputs["loss"], rel=1e-3)
    gradients = torch.autograd.grad(loss, list(networks.imitation.parameters()))
    for gradient, expected in zip(gradients, outputs["gradients"], strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=2e-3, atol=1e-3)
    assert not any(parameter.requires_grad for parameter in networks.random.parameters())


def test_what_was_seen_often_is_less_novel_than_what_was_not() -> None:
    learner = make_learner("a2c", "discrete", num_envs=4, **{**NOVELTY, "novelty_epochs": 20})
    rollout = make_rollout(learner, 6, seed=1)
    before = learner.novelty.networks.measured(rollout.obs.reshape(-1, 3))[0].mean()
    for _ in range(10):
        learner.update(rollout)
    networks = learner.novelty.networks
    assert networks.measured(rollout.obs.reshape(-1, 3))[0].mean() < 0.1 * before
    far = np.float32([[9.0, -9.0, 9.0]])
    assert networks.measured(far)[0].mean() > 10 * networks.measured(rollout.obs.reshape(-1, 3))[0].mean()


@pytest.mark.parametrize(
    "spaces",
    [
        masked_spaces(),
        Spaces(gym.spaces.Box(0, 255, (1, 36, 36), np.uint8), gym.spaces.Discrete(2)),
    ],
    ids=["masked", "images"],
)
def test_masks_are_left_out_and_images_are_encoded(spaces: Spaces) -> None:
    networks = NoveltyNetworks(spaces, model_config(encoder_size=8), size=3)
    rows = np.zeros((2, *spaces.observation_shape), spaces.observation_dtype)
    if spaces.mask_size:
        rows[1, -spaces.mask_size :] = 1  # another mask is nothing new
    errors, values = networks.measured(rows)
    assert errors.shape == values.shape == (2,)
    assert errors[0] == errors[1]


# --- its return ------------------------------------------------------------------------------------------------


def test_novelty_continues_in_the_next_episode_by_hand() -> None:
    rewards, values = np.array([[1.0], [2.0]]), np.array([[0.5], [1.0]])
    found = novelty_advantages(rewards, values, np.array([4.0]), gamma=0.5, gae_lambda=0.5)
    second = 2.0 + 0.5 * 4.0 - 1.0
    np.testing.assert_allclose(found[:, 0], [1.0 + 0.5 * 1.0 - 0.5 + 0.25 * second, second])


@pytest.mark.parametrize("algo", LEARNERS)
def test_an_advantage_is_that_of_reward_plus_that_of_novelty_by_the_slow_formula(
    algo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(algo, "discrete", gamma=0.9, gae_lambda=0.8, novelty_gamma=0.7, **LEARNERS[algo])
    rollout = make_rollout(learner, 6, seed=3, next_step_resets=True)
    assert rollout.terminated.any() and rollout.truncated.any() and not rollout.valid.all()
    seen: list[Any] = []
    add = learner.novelty.add

    def spy(batch: Any, *others: Any) -> Any:
        plain = batch.advantages.clone(), batch.returns.clone(), batch.values.clone()
        result = add(batch, *others)
        seen.append((plain, batch, result[0]))
        return result

    monkeypatch.setattr(learner.novelty, "add", spy)
    networks, scale = learner.novelty.networks, learner.novelty.scale
    result = learner.update(rollout)
    ((plain, batch, targets),) = seen
    assert torch.equal(batch.returns, plain[1]), "the critic of the rewards learns from rewards alone"
    assert torch.equal(batch.values, plain[2])
    # The networks have learned since; those of then, with the statistics of this rollout.
    fresh = make_learner(algo, "discrete", gamma=0.9, gae_lambda=0.8, novelty_gamma=0.7, **LEARNERS[algo])
    then = fresh.novelty.networks
    then.normalizer.update(rollout.obs[rollout.valid])
    measure = lambda obs: [float(part[0]) for part in then.measured(obs[None])]  # noqa: E731
    expected, expected_targets = np.zeros((6, 2)), np.zeros((6, 2))
    finals = {(t, env): k for k, (t, env) in enumerate(zip(rollout.final_steps, rollout.final_envs, strict=True))}
    deviation = np.sqrt(scale.variance + 1e-8)
    for env in range(2):
        stream = [*rollout.obs[:, env], rollout.last_obs[env]]
        for t in range(6):
            for k in range(t, 6):
                after = rollout.final_obs[finals[k, env]] if (k, env) in finals else stream[k + 1]
                reward = np.clip(measure(after)[0] / deviation, -10, 10)
                delta = reward + 0.7 * measure(stream[k + 1])[1] - measure(stream[k])[1]
                expected[t, env] += (0.7 * 0.8) ** (k - t) * delta
            expected_targets[t, env] = expected[t, env] + measure(stream[t])[1]
    rows = np.ones_like(rollout.valid) if algo == "recurrent_ppo" else rollout.valid  # whose batch has every row
    if algo != "ppg":  # its learner then replaces the advantages of the batch by normalized ones
        np.testing.assert_allclose(batch.advantages - plain[0], 0.5 * expected[rows], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(targets, expected_targets[rows], rtol=1e-3, atol=1e-4)
    assert {"novelty", "novelty_loss", "novelty_value_loss"} <= result.metrics.keys()
    assert networks is learner.novelty.networks


def test_the_scale_of_novelty_is_the_deviation_of_its_endless_return() -> None:
    learner = make_learner("a2c", "discrete", novelty_gamma=0.7, **NOVELTY)
    rollout = make_rollout(learner, 6, seed=3)
    then = make_learner("a2c", "discrete", novelty_gamma=0.7, **NOVELTY).novelty.networks
    then.normalizer.update(rollout.obs.reshape(-1, 3))
    learner.update(
        replace(
            rollout,
            final_steps=rollout.final_steps[:0],
            final_envs=rollout.final_envs[:0],
            final_obs=rollout.final_obs[:0],
        )
    )
    returns = []
    for env in range(2):
        total = 0.0
        for after in [*rollout.obs[1:, env], rollout.last_obs[env]]:
            total = 0.7 * total + float(then.measured(after[None])[0][0])
            returns.append(total)
    assert learner.novelty.scale.variance == pytest.approx(np.var(returns), rel=1e-3)


# --- what it must leave alone ----------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", LEARNERS)
def test_statistics_are_its_own_and_its_training_does_not_touch_the_policy(algo: str) -> None:
    settings = {**LEARNERS[algo], "novelty_coef": 1e-30}  # the advantages stay those of the reward
    learner = make_learner(algo, "discrete", model={"normalize_observations": True}, **settings)
    plain = make_learner(
        algo,
        "discrete",
        model={"normalize_observations": True},
        **{**settings, "novelty_coef": 0.0} | {"novelty_learning_rate": 1e-4},
    )
    rollout = make_rollout(learner, 6, seed=3)
    before = learner.model.normalizer.mean.clone()
    learner.update(rollout)
    plain.update(rollout)
    torch.testing.assert_close(parameters_of(learner.model), parameters_of(plain.model), rtol=0, atol=0)
    assert torch.equal(learner.model.normalizer.mean, before)
    assert not torch.equal(learner.novelty.networks.normalizer.mean, before)
    assert plain.novelty is None
    assert "novelty" not in plain.state_dict()["parts"], "checkpoints without the bonus are as they were"


def test_state_restores_networks_optimizer_and_scale() -> None:
    first, second = (make_learner("ppo", "discrete", seed=seed, **LEARNERS["ppo"]) for seed in (0, 1))
    rollout = make_rollout(first, 6, seed=3)
    first.update(rollout)
    second.novelty.load_state_dict(first.novelty.state_dict())
    for left, right in ((first.novelty, second.novelty),):
        torch.testing.assert_close(parameters_of(left.networks), parameters_of(right.networks), rtol=0, atol=0)
        assert left.scale.state_dict()["variance"] == right.scale.state_dict()["variance"]
        assert torch.equal(left.optimizer.first_moment, right.optimizer.first_moment)
        assert torch.equal(left.networks.normalizer.mean, right.networks.normalizer.mean)


@pytest.mark.parametrize("algo", ["impala", "dqn", "sac", "pqn"])
def test_algorithms_without_it_refuse_the_setting_in_one_line(algo: str) -> None:
    env = "Pendulum-v1" if algo == "sac" else "CartPole-v1"
    with pytest.raises(ConfigError, match="novelty_coef") as refusal:
        load_config({"algo": algo, "env_id": env, "algo_kwargs": {"novelty_coef": 1.0}}, {})
    assert "\n" not in str(refusal.value)


# --- deep sea --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 5, 20])
def test_only_diving_to_the_right_pays_in_the_deep_sea(size: int) -> None:
    env = DeepSeaProbe(size)
    for wrong in (None, 0, size - 1):
        obs, _ = env.reset(seed=0)
        total, over = 0.0, False
        for row in range(size):
            assert obs.argmax() == row * size + env.column and obs.sum() == 1
            right = env.right_actions[env.row, env.column]
            obs, reward, over, cut, _ = env.step(1 - right if row == wrong else right)
            total += reward
            assert over == (row == size - 1) and not cut
        assert obs.sum() == 0
        steps_right = size - (wrong is not None)
        assert total == pytest.approx((1.0 if wrong is None else 0.0) - 0.01 * steps_right / size)
    assert not np.array_equal(DeepSeaProbe(20, layout=1).right_actions, DeepSeaProbe(20).right_actions)
