"""PPG: its losses against PPO's and torch's own, whose gradient goes where, and the cycle of phases."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from on_policy_helpers import (
    SPACES,
    batch_from,
    learn_from,
    make_learner,
    make_rollout,
    parameters_of,
    slow_advantages,
    value_of,
)
from rl_training.algorithms import ppg
from rl_training.algorithms.common.on_policy import PolicyBatch
from rl_training.algorithms.ppg import ppg_auxiliary_loss, ppg_loss
from rl_training.algorithms.ppo import ppo_loss
from rl_training.config.algorithms.ppg import PPGConfig
from rl_training.config.algorithms.ppo import PPOConfig
from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.storage.state_tree import flatten_state, to_numpy, unflatten_state

EVERY_KIND = pytest.mark.parametrize("kind", SPACES)
CYCLE = {
    "minibatch_size": 8,
    "update_epochs": 2,
    "policy_phases": 3,
    "auxiliary_epochs": 2,
    "auxiliary_minibatch_size": 12,
    "learning_rate": 0.03,
    "auxiliary_learning_rate": 0.03,
}


def test_policy_phase_loss_is_that_of_ppo() -> None:
    rng = np.random.default_rng(0)
    log_probs, entropy, values = torch.from_numpy(0.2 * rng.standard_normal((3, 9)))
    columns = {name: 0.2 * rng.standard_normal(9) for name in ("log_probs", "values", "advantages", "returns")}
    batch, coefficients = batch_from(**columns), {"clip_range": 0.15, "entropy_coef": 0.03}
    ours = ppg_loss(log_probs, entropy, values, batch, PPGConfig(value_coef=0.7), **coefficients)
    config = PPOConfig(value_coef=0.7, normalize_advantages=False)
    theirs = ppo_loss(log_probs, entropy, values, batch, config, **coefficients)
    assert float(ours[0]) == pytest.approx(float(theirs[0]), abs=1e-12)
    assert {name: float(value) for name, value in ours[1].items()} == pytest.approx(
        {name: float(value) for name, value in theirs[1].items()}, abs=1e-12
    )
    assert 0 < float(ours[1]["clip_fraction"]) < 1


def test_auxiliary_loss_equals_torchs_own_parts() -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = torch.randn(2, 7, 4, generator=generator, dtype=torch.float64)
    values, auxiliary, returns = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    kl = categorical_kl(old, new)
    loss, metrics = ppg_auxiliary_loss(kl, values, auxiliary, returns, clone_coef=0.4)
    mse = torch.nn.functional.mse_loss
    teacher, student = (torch.distributions.Categorical(logits=logits) for logits in (old, new))
    expected = {
        "auxiliary_head_loss": 0.5 * float(mse(auxiliary, returns)),
        "auxiliary_value_loss": 0.5 * float(mse(values, returns)),
        "auxiliary_kl": float(torch.distributions.kl_divergence(teacher, student).mean()),
    }
    expected["auxiliary_loss"] = (
        expected["auxiliary_head_loss"] + 0.4 * expected["auxiliary_kl"] + expected["auxiliary_value_loss"]
    )
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(expected, abs=1e-12)
    assert float(loss) == pytest.approx(expected["auxiliary_loss"], abs=1e-12)


def categorical_kl(old: Tensor, new: Tensor) -> Tensor:
    return make_learner("ppg").model.distribution.kl(old, new)


def gradients(output: Tensor, module: torch.nn.Module) -> list[Tensor | None]:
    return list(torch.autograd.grad(output, list(module.parameters()), allow_unused=True, retain_graph=True))


@EVERY_KIND
def test_value_gradient_stops_at_the_head_in_the_policy_phase_and_goes_on_in_the_auxiliary_one(kind: str) -> None:
    model = make_learner("ppg", kind).model
    obs = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    action = torch.from_numpy(model.act(obs.numpy(), np.random.default_rng(0))[0])
    log_probs, _, values = model.evaluate_actions(obs, action)
    parameters, auxiliary_phase_values, auxiliary_values = model.auxiliary(obs)
    torch.testing.assert_close(values, model.value(obs))
    torch.testing.assert_close(values, auxiliary_phase_values)
    torch.testing.assert_close(parameters, model.policy(obs))
    assert not torch.allclose(values, auxiliary_values)
    for output in (values.sum(), model.value(obs).sum()):
        assert gradients(output, model.trunk) == [None] * 4
        assert gradients(output, model.policy_head) == gradients(output, model.auxiliary_head) == [None] * 2
        assert all(g is not None and g.any() for g in gradients(output, model.value_head))
    assert all(g is not None and g.any() for g in gradients(log_probs.sum(), model.trunk))
    assert gradients(log_probs.sum(), model.value_head) == [None] * 4
    for output in (auxiliary_phase_values.sum(), auxiliary_values.sum()):
        assert all(g is not None and g.any() for g in gradients(output, model.trunk))


def test_value_loss_alone_moves_nothing_that_the_policy_uses() -> None:
    learner = make_learner("ppg", **{**CYCLE, "normalize_advantages": False})
    rollout = make_rollout(learner, 16, 0)
    before = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    original = ppg.ppo_policy_loss
    ppg.ppo_policy_loss = lambda *arguments: 0.0 * original(*arguments)
    try:
        learner.update(rollout)
    finally:
        ppg.ppo_policy_loss = original
    moved = {name.split(".")[0] for name, p in learner.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"value_head"}


def test_only_the_auxiliary_phase_moves_the_auxiliary_head() -> None:
    learner = make_learner("ppg", **CYCLE)
    before = parameters_of(learner.model.auxiliary_head)
    learner.update(make_rollout(learner, 16, 0))
    assert torch.equal(parameters_of(learner.model.auxiliary_head), before)
    trunk = parameters_of(learner.model.trunk)
    learner.auxiliary_update()
    assert not torch.equal(parameters_of(learner.model.auxiliary_head), before)
    assert not torch.equal(parameters_of(learner.model.trunk), trunk)


def test_both_optimizers_work_on_the_same_parameters() -> None:
    learner = make_learner("ppg", "box", **CYCLE)
    everything = parameters_of(learner.model)
    policy, auxiliary = learner.policy_optimizer, learner.auxiliary_optimizer
    assert torch.equal(auxiliary.vector, everything)
    assert torch.equal(policy.vector, everything[: -learner.model.auxiliary_head[0].weight.numel() - 1])
    assert policy.vector.data_ptr() == auxiliary.vector.data_ptr()
    policy.vector += 1
    auxiliary.vector += 1
    changed = parameters_of(learner.model)
    assert torch.equal(changed[: len(policy.vector)], everything[: len(policy.vector)] + 1 + 1)
    assert torch.equal(changed[len(policy.vector) :], everything[len(policy.vector) :] + 1)


def watched_auxiliary_losses(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    calls: list[dict[str, Tensor]] = []
    original = ppg.ppg_auxiliary_loss

    def loss(kl: Tensor, values: Tensor, auxiliary_values: Tensor, returns: Tensor, **options: Any) -> Any:
        calls.append({"kl": kl.detach().clone(), "returns": returns.clone()})
        return original(kl, values, auxiliary_values, returns, **options)

    monkeypatch.setattr(ppg, "ppg_auxiliary_loss", loss)
    return calls


@pytest.mark.parametrize("normalize_observations", [False, True])
@EVERY_KIND
def test_the_teacher_is_the_policy_at_the_start_of_the_phase_for_every_stored_rollout(
    kind: str, normalize_observations: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = watched_auxiliary_losses(monkeypatch)
    # One minibatch holds all that is stored: its KL is zero in every row or the teacher is somebody else.
    learner = make_learner(
        "ppg",
        kind,
        model={"normalize_observations": normalize_observations},
        **{**CYCLE, "auxiliary_minibatch_size": 96},
    )
    behavior = []
    for seed in range(3):
        rollout = make_rollout(learner, 16, seed)
        obs = torch.from_numpy(rollout.obs.reshape(-1, 3))
        behavior.append((obs, learner.model.policy(obs).detach()))
        if seed == 2:
            teacher = copy.deepcopy(learner.model)
        learn_from(learner, rollout)
    assert [len(call["kl"]) for call in calls] == [96, 96]
    assert float(calls[0]["kl"].abs().max()) < 1e-6
    assert float(calls[1]["kl"].mean()) > 1e-4
    with torch.no_grad():
        moved = [float(teacher.distribution.kl(old, teacher.policy(obs)).mean()) for obs, old in behavior]
    assert min(moved[:2]) > 1e-4, "the policies that collected must differ, or the test shows nothing"


def test_cycle_of_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = watched_auxiliary_losses(monkeypatch)
    learner = make_learner("ppg", **CYCLE)
    names = {"auxiliary_loss", "auxiliary_head_loss", "auxiliary_value_loss", "auxiliary_kl", "auxiliary_grad_norm"}
    for number in range(1, 8):
        result = learner.update(make_rollout(learner, 16, number))
        due = number % 3 == 0
        assert learner.updates == number
        assert (names <= result.keys()) == (bool(names & result.keys())) == due
        assert len(learner.cache) == number % 3
        assert learner.auxiliary_phases.value == number // 3
        assert len(calls) == int(learner.auxiliary_optimizer.steps) == (number // 3) * 2 * 8
        assert int(learner.policy_optimizer.steps) == number * 2 * 4


def test_auxiliary_phase_uses_every_stored_target_once_per_epoch_as_it_was_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = watched_auxiliary_losses(monkeypatch)
    learner = make_learner("ppg", gamma=0.9, gae_lambda=0.8, **CYCLE)
    stored = []
    for seed in range(3):
        rollout = make_rollout(learner, 16, seed, next_step_resets=seed == 1)
        value = value_of(learner.model)
        advantages = slow_advantages(rollout, rollout.rewards, value, 0.9, 0.8)
        values = np.array([[value(obs) for obs in row] for row in rollout.obs])
        stored.append((advantages + values)[rollout.valid])
        learner.update(rollout)
        for array in (rollout.obs, rollout.rewards):
            array.fill(np.nan)  # the collector writes the next rollout into the same arrays
    expected = np.sort(np.concatenate(stored))
    pieces = round(len(expected) / 12)
    assert len(calls) == 2 * pieces
    for epoch in range(2):
        used = torch.cat([call["returns"] for call in calls[epoch * pieces : (epoch + 1) * pieces]])
        np.testing.assert_allclose(np.sort(used), expected, atol=1e-5)
    assert not torch.equal(calls[0]["returns"], calls[pieces]["returns"])
    assert all(torch.isfinite(p).all() for p in learner.model.parameters())


@EVERY_KIND
def test_the_divergence_is_of_the_teacher_from_the_policy_that_learns(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner("ppg", kind, **CYCLE)
    learner.update(make_rollout(learner, 16, 0))
    teacher = learner.model.policy(learner.cache.obs[0]).detach()
    kl, seen = learner.model.distribution.kl, []
    monkeypatch.setattr(learner.model.distribution, "kl", lambda old, new: seen.append((old, new)) or kl(old, new))
    learner.auxiliary_update()
    assert seen and all(new.requires_grad and not old.requires_grad for old, new in seen)
    for epoch in (seen[: len(seen) // 2], seen[len(seen) // 2 :]):
        rows = torch.cat([old for old, _ in epoch])
        torch.testing.assert_close(rows.sort(0).values, teacher.sort(0).values)


@EVERY_KIND
def test_the_clone_term_holds_the_policy(kind: str) -> None:
    kl = {}
    for coefficient in (0.0, 100.0):
        learner = make_learner("ppg", kind, clone_coef=coefficient, **{**CYCLE, "auxiliary_epochs": 20})
        learner.update(make_rollout(learner, 16, 0))
        obs = learner.cache.obs[0]
        old = learner.model.policy(obs).detach()
        learner.auxiliary_update()
        kl[coefficient] = float(learner.model.distribution.kl(old, learner.model.policy(obs)).mean().detach())
    assert kl[100.0] < 0.2 * kl[0.0]


def test_auxiliary_phase_lowers_both_value_errors() -> None:
    learner = make_learner("ppg", **{**CYCLE, "auxiliary_epochs": 40})
    learner.update(make_rollout(learner, 16, 0))
    obs, returns = learner.cache.obs[0], learner.cache.returns[0]

    @torch.no_grad()
    def errors() -> list[float]:
        return [float((values - returns).square().mean()) for values in learner.model.auxiliary(obs)[1:]]

    before = errors()
    learner.auxiliary_update()
    assert all(after < 0.7 * earlier for after, earlier in zip(errors(), before, strict=True))


def test_advantages_are_normalized_over_the_rollout_not_over_minibatches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    original = ppg.ppg_loss

    def watched(*arguments: Any, **options: Any) -> Any:
        seen.extend(part.advantages.clone() for part in arguments if isinstance(part, PolicyBatch))
        return original(*arguments, **options)

    monkeypatch.setattr(ppg, "ppg_loss", watched)
    learner = make_learner("ppg", **CYCLE)
    learner.update(make_rollout(learner, 16, 0))
    epoch = torch.cat(seen[:4])
    assert float(epoch.mean()) == pytest.approx(0, abs=1e-6) and float(epoch.std()) == pytest.approx(1, abs=1e-5)
    assert max(abs(float(part.mean())) for part in seen) > 0.05


@EVERY_KIND
def test_acting_follows_both_phases(kind: str) -> None:
    learner = make_learner("ppg", kind, **CYCLE)
    for seed in range(4):
        rollout = make_rollout(learner, 16, seed)
        learner.update(rollout)
        with torch.no_grad():
            expected = learner.model.policy(torch.from_numpy(rollout.obs[0]))
        np.testing.assert_allclose(learner.model.policy_numpy(rollout.obs[0]), expected, atol=1e-5)


@pytest.mark.parametrize("done", [1, 2, 3])
def test_state_is_whole_anywhere_in_the_cycle(done: int) -> None:
    settings: dict[str, Any] = {"model": {"normalize_observations": True}, "normalize_rewards": True, **CYCLE}
    first, second = make_learner("ppg", **settings), make_learner("ppg", **settings)
    for seed in range(done):
        learn_from(first, make_rollout(first, 16, seed))
    for seed in range(2):  # a learner that has done other things since
        learn_from(second, make_rollout(second, 16, 50 + seed))
    tree, tensors = flatten_state(first.state_dict())
    second.load_state_dict(unflatten_state(tree, {name: to_numpy(value).copy() for name, value in tensors.items()}))
    assert len(second.cache) == len(first.cache) == done % 3
    for seed in range(10, 13):
        for learner in (first, second):
            learn_from(learner, make_rollout(learner, 16, seed))
    assert second.auxiliary_phases.value == first.auxiliary_phases.value == (done + 3) // 3
    assert torch.equal(parameters_of(first.model), parameters_of(second.model))
    for name in ("policy_optimizer", "auxiliary_optimizer"):
        assert torch.equal(getattr(first, name).second_moment, getattr(second, name).second_moment)


def test_a_saved_state_is_not_changed_by_what_comes_after() -> None:
    learner = make_learner("ppg", **CYCLE)
    learner.update(make_rollout(learner, 16, 0))
    state = learner.state_dict()["parts"]["cache"]
    learner.auxiliary_update()
    assert len(state["obs"]) == len(state["returns"]) == 1


def test_an_auxiliary_phase_without_rollouts_is_refused() -> None:
    with pytest.raises(ValueError, match="update"):
        make_learner("ppg").auxiliary_update()


def test_schedules_reach_both_phases() -> None:
    settings = {**CYCLE, "policy_phases": 1, "learning_rate": {"start": 0.01, "end": 0.0}}
    learner = make_learner("ppg", **{**settings, "auxiliary_learning_rate": {"start": 0.04, "end": 0.0}})
    learner.clock.env_steps = 250
    result = learner.update(make_rollout(learner, 16, 0))
    assert float(result["learning_rate"]) == pytest.approx(0.0075)
    assert float(learner.policy_optimizer.learning_rate) == pytest.approx(0.0075)
    assert float(learner.auxiliary_optimizer.learning_rate) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"policy_phases": 0}, "algo_kwargs.policy_phases: 0"),
        ({"auxiliary_epochs": 0}, "algo_kwargs.auxiliary_epochs: 0"),
        ({"clone_coef": -1.0}, "algo_kwargs.clone_coef: -1.0"),
        ({"minibatch_size": 33}, "algo_kwargs.minibatch_size: 33"),
        ({"auxiliary_minibatch_size": 65}, "policy_phases * num_steps * num_envs = 64"),
    ],
)
def test_impossible_settings_are_refused_with_their_key(settings: dict[str, Any], words: str) -> None:
    base = {"num_steps": 16, "minibatch_size": 8, "policy_phases": 2, "auxiliary_minibatch_size": 64}
    data = {"algo": "ppg", "env_id": "CartPole-v1", "num_envs": 2}
    load_config({**data, "algo_kwargs": base})
    with pytest.raises(ConfigError) as caught:
        load_config({**data, "algo_kwargs": {**base, **settings}})
    assert words in str(caught.value) and str(caught.value).isprintable()
