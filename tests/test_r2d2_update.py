"""R2D2's rescaling, targets, loss and update, against slow formulas and rlax."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from config_cases import refused
from masked_envs import masked_spaces
from replay_helpers import DISCRETE, assert_same_parameters, make_config, make_learner, oracle
from rl_training.algorithms.common.exploration import exploration_ladder
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.r2d2 import n_step_returns, r2d2_loss, r2d2_target, rescaled, restored
from rl_training.config.algorithms.r2d2 import R2D2Config
from rl_training.config.loading import load_config
from rl_training.data.trajectory_replay import Windows, window_priorities
from rl_training.models.recurrent.recurrent_q import RecurrentQNetwork
from rl_training.runtime.spec import get_spec
from trajectory_helpers import make_windows

SMALL: dict[str, Any] = {"memory_size": 6, "sequence_length": 7, "burn_in": 3, "learning_rate": 0.01}
CELLS = pytest.mark.parametrize("cell", ["lstm", "gru"])


def learner_of(**settings: Any) -> Any:
    return make_learner("r2d2", DISCRETE, **{**SMALL, **settings})


def windows_of(learner: Any, lengths: list[int], burn_in: list[int], **options: Any) -> Windows:
    return make_windows(DISCRETE, lengths, burn_in, memory_shape=learner.model.memory_shape, **options)


def keep_gradients(learner: Any) -> None:
    """From now on a gradient step leaves the gradients where torch puts them, and changes nothing."""

    def step(loss: Tensor) -> Tensor:
        loss.backward()
        return loss.detach()

    learner.optimizer.step = step


def h(x: float, epsilon: float | None) -> float:
    return x if epsilon is None else math.copysign(math.sqrt(abs(x) + 1) - 1, x) + epsilon * x


def inverse_h(y: float, epsilon: float | None) -> float:
    """By bisection: h rises."""
    low, high = -1e7, 1e7
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle, epsilon) < y else (low, middle)
    return low


def slow_target(batch: Windows, next_values: Tensor, n_step: int, epsilon: float | None) -> np.ndarray:
    """Step by step: add up rewards until n of them, the end of the window or a discount of 0, then bootstrap."""
    targets = np.zeros(batch.rewards.shape)
    for s in range(len(batch)):
        length = int(batch.lengths[s])
        for t in range(length):
            total, factor, last = 0.0, 1.0, min(t + n_step, length) - 1
            for k in range(t, last + 1):
                total += factor * float(batch.rewards[k, s])
                factor *= float(batch.discounts[k, s])
            targets[t, s] = h(total + factor * inverse_h(float(next_values[last, s]), epsilon), epsilon)
    return targets


def test_h_and_its_inverse_are_those_of_the_paper() -> None:
    case = oracle("transformed_n_step")["cases"][-1]
    values, epsilon = torch.tensor(case["inputs"]["values"]), case["inputs"]["epsilon"]
    np.testing.assert_allclose(rescaled(values, epsilon), case["outputs"]["rescaled"], rtol=1e-5)
    np.testing.assert_allclose(restored(values, epsilon), case["outputs"]["restored"], rtol=1e-5, atol=1e-7)
    known = rescaled(torch.tensor([1.0, -1.0, 100.0, 10.0]), 1e-3)
    np.testing.assert_allclose(known, [0.41521356, -0.41521356, 9.14987562, 2.3266248], rtol=1e-6)
    np.testing.assert_allclose(restored(rescaled(values, epsilon), epsilon), values, rtol=1e-5, atol=1e-6)
    assert rescaled(values, None) is values and restored(values, None) is values


@pytest.mark.parametrize("number", range(4))
def test_td_errors_are_those_of_rlax(number: int) -> None:
    case = oracle("transformed_n_step")["cases"][number]
    inputs = {name: torch.from_numpy(np.array(value)) for name, value in case["inputs"].items() if name != "epsilon"}
    config = R2D2Config(n_step=case["inputs"]["n_step"], rescaling=case["inputs"]["epsilon"])
    column = {name: inputs[name][:, None] for name in ("rewards", "discounts")}
    mask = torch.ones_like(column["rewards"], dtype=torch.bool)
    batch: Any = replace(make_windows(DISCRETE, [2]), **column, mask=mask)
    chosen = inputs["next_q_online"].argmax(1, keepdim=True)
    target = r2d2_target(batch, inputs["next_q"].gather(1, chosen), config)[:, 0]
    q = inputs["q"].gather(1, inputs["actions"][:, None])[:, 0]
    np.testing.assert_allclose(target - q, case["outputs"]["errors"], atol=1e-8)


@pytest.mark.parametrize("n_step", [1, 2, 3, 10])
@pytest.mark.parametrize("epsilon", [None, 1e-2])
def test_targets_of_windows_are_those_of_the_slow_formula(n_step: int, epsilon: float | None) -> None:
    batch = make_windows(DISCRETE, [5, 1, 3, 6], seed=n_step)
    next_values = torch.randn(batch.rewards.shape, generator=torch.Generator().manual_seed(0))
    config = R2D2Config(n_step=n_step, rescaling=epsilon)
    target = r2d2_target(batch, next_values, config)
    expected = slow_target(batch, next_values, n_step, epsilon)
    np.testing.assert_allclose(target[batch.mask], expected[batch.mask.numpy()], atol=1e-4)


def test_a_return_stops_at_termination_and_bootstraps_where_a_window_is_cut() -> None:
    rewards = torch.ones(3, 2)
    discounts = torch.tensor([[0.9, 0.9], [0.9, 0.9], [0.0, 0.9]])
    values = torch.full((3, 2), 10.0)
    returns = n_step_returns(rewards, discounts, values, torch.ones(3, 2, dtype=torch.bool), 5)
    assert returns[2].tolist() == [1.0, 10.0]
    np.testing.assert_allclose(returns[0], [1 + 0.9 + 0.81, 1 + 0.9 + 0.81 + 0.729 * 10], rtol=1e-6)


def test_the_loss_is_the_mean_over_real_steps_weighted_by_window() -> None:
    q, target = torch.tensor([[1.0, 2.0], [3.0, 50.0]], requires_grad=True), torch.zeros(2, 2)
    mask = torch.tensor([[True, True], [True, False]])
    loss, metrics = r2d2_loss(q, target, mask, torch.tensor([1.0, 0.5]))
    assert loss.item() == pytest.approx((0.5 + 0.5 * 2.0 + 4.5) / 3) and metrics["q_mean"] == 2.0
    loss.backward()
    assert q.grad is not None and q.grad[1, 1] == 0.0
    assert r2d2_loss(q, target, mask)[0].item() == pytest.approx((0.5 + 2.0 + 4.5) / 3)


@CELLS
@pytest.mark.parametrize("double", [False, True])
def test_an_update_is_that_of_the_formula_step_by_step(cell: str, double: bool) -> None:
    """Windows of different lengths and burn-ins at once, against one network call per step and window."""
    learner = learner_of(cell=cell, double=double, n_step=2, max_grad_norm=None)
    with torch.no_grad():
        for parameter in learner.target.module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    batch = windows_of(learner, [4, 2, 1, 4], [3, 0, 1, 3], weights=True)
    twin = copy.deepcopy(learner.model)
    total, errors = torch.zeros(()), torch.zeros(batch.rewards.shape)
    assert batch.memory is not None and batch.weights is not None
    for s in range(4):
        length, burn = int(batch.lengths[s]), int(batch.burn_in[s])
        q = along(twin, batch, s)
        target_q = along(learner.target.module, batch, s).detach()
        chosen = (q if double else target_q).argmax(1)
        values = torch.stack([target_q[t + 1, chosen[t + 1]] for t in range(length)])
        window = replace(
            batch,
            rewards=batch.rewards[:length, s : s + 1],
            discounts=batch.discounts[:length, s : s + 1],
            mask=batch.mask[:length, s : s + 1],
        )
        target = torch.from_numpy(slow_target(window, values[:, None], 2, 1e-3))[:, 0].float()
        for t in range(length):
            error = q[t, batch.actions[t, s]] - target[t]
            total = total + batch.weights[s] * 0.5 * error**2
            errors[t, s] = error.detach()
        assert burn in (0, 1, 3)
    (total / batch.mask.sum()).backward()
    keep_gradients(learner)
    result = learner.update(batch)
    for mine, theirs in zip(learner.model.parameters(), twin.parameters(), strict=True):
        assert theirs.grad is not None and mine.grad is not None
        np.testing.assert_allclose(mine.grad, theirs.grad, atol=2e-5)
    assert result["loss"].item() == pytest.approx(total.item() / int(batch.mask.sum()), rel=1e-4)
    expected = window_priorities(errors.numpy(), batch.mask.numpy())
    np.testing.assert_allclose(result.priorities, expected, rtol=1e-3)


def along(model: RecurrentQNetwork, batch: Windows, s: int) -> Tensor:
    """Q [length + 1, A] of one window, one observation at a time; nothing is learned from the burn-in."""
    assert batch.memory is not None
    memory, values = batch.memory[s : s + 1], []
    start, length, burn = batch.burn_steps, int(batch.lengths[s]), int(batch.burn_in[s])
    for t in range(start - burn, start):
        memory = model.remembered(batch.obs[t, s][None, None], memory)
    parts: Any = tuple(memory.transpose(0, 1)[i::2].contiguous() for i in range(2))
    if isinstance(model.memory, torch.nn.GRU):
        parts = memory.transpose(0, 1).contiguous()
    for t in range(start, start + length + 1):
        outputs, parts = model.memory(model._features(batch.obs[t, s][None])[None], parts)
        advantage = model.advantage(outputs[0])
        assert model.state_value is not None
        values.append((model.state_value(outputs[0]) + advantage - advantage.mean())[0])
    return torch.stack(values)


def test_the_burn_in_gets_no_gradient_but_the_steps_after_it_do() -> None:
    learner = learner_of()
    batch = windows_of(learner, [4, 4], [3, 3])
    obs = batch.obs.clone().requires_grad_()
    keep_gradients(learner)
    learner._gradient_step(replace(batch, obs=obs))
    assert obs.grad is not None
    assert not obs.grad[:3].any() and obs.grad[3:7].abs().sum((1, 2)).gt(0).all()
    assert not obs.grad[7:].any(), "no gradient into the target"


def test_the_burn_in_decides_what_is_remembered() -> None:
    learner = learner_of()
    batch = windows_of(learner, [4, 4], [3, 3])
    changed = batch.obs.clone()
    changed[0] += 1.0
    losses = [float(copy.deepcopy(learner).update(each)["loss"]) for each in (batch, replace(batch, obs=changed))]
    assert losses[0] != losses[1]
    # Observations before a shorter burn-in are padding.
    short = windows_of(learner, [4, 4], [2, 3])
    other = short.obs.clone()
    other[0, 0] += 1.0
    losses = [float(copy.deepcopy(learner).update(each)["loss"]) for each in (short, replace(short, obs=other))]
    assert losses[0] == losses[1]


@CELLS
def test_a_window_continues_the_memory_of_acting(cell: str) -> None:
    """With unchanged weights, Q of a window equals Q of acting, with stored state and with any burn-in."""
    learner = learner_of(cell=cell, memory_layers=2)
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((9, 1, 3)).astype(np.float32)
    memory, acted, memories = None, [], []
    for row in obs:
        memories.append(learner.model.initial_memory(1) if memory is None else memory)
        values, memory = learner.model.act_values(row, memory)
        acted.append(values)
    for first, burn in ((0, 0), (4, 0), (4, 3), (5, 5)):
        start = torch.from_numpy(memories[first - burn])
        batch = replace(
            windows_of(learner, [8 - first], [burn]),
            obs=torch.from_numpy(obs[first - burn :]),
            memory=start,
        )
        with torch.no_grad():
            q = learner.model.unroll(batch.obs[burn:], learner._start(learner.model, batch))[:, 0]
        mine = (q - q.mean(1, keepdim=True)).numpy()
        theirs = np.concatenate(acted[first:])
        np.testing.assert_allclose(mine, theirs - theirs.mean(1, keepdims=True), atol=1e-5)


def test_acting_and_random_warm_up_carry_the_memory_and_empty_it_where_an_episode_starts() -> None:
    learner = learner_of()
    rows = np.random.default_rng(0).standard_normal((2, 2, 3)).astype(np.float32)
    first = learner.act(rows[0], explore=False)
    starts = np.array([False, True])
    kept = first.memory.copy()
    kept[1] = 0.0
    values, after = learner.model.act_values(rows[1], kept)
    second = learner.act(rows[1], explore=False, episode_starts=starts, memory=first.memory)
    np.testing.assert_array_equal(second.memory, after)
    np.testing.assert_array_equal(second.actions, values.argmax(1))
    np.testing.assert_array_equal(learner.remember(rows[1], starts, first.memory), after)
    assert not np.allclose(after, learner.model.act_values(rows[1], first.memory)[1])
    assert not np.allclose(after, learner.model.act_values(rows[1], np.zeros_like(kept))[1])


def test_exploration_follows_its_schedule_and_evaluation_takes_the_best_action() -> None:
    learner = learner_of(exploration={"start": 0.8, "end": 0.0})
    rows = np.zeros((4000, 3), np.float32)
    best = learner.act(rows[:1], explore=False).actions[0]
    for place, epsilon in ((0.0, 0.8), (0.5, 0.4), (1.0, 0.0)):
        learner.clock.env_steps = int(place * learner.total_timesteps)
        share = float(np.mean(learner.act(rows, explore=True).actions != best))
        assert share == pytest.approx(0.75 * epsilon, abs=0.03)  # a random action may be the best one
        assert (learner.act(rows, explore=False).actions == best).all()


def test_each_of_several_actors_takes_random_actions_at_its_own_rate() -> None:
    def actor(place: int, actors: int = 4, **settings: Any) -> Any:
        base = {"algo": "r2d2", "env_id": "Probe-v0", "num_envs": 4, "runtime": {"actors": actors}}
        config = load_config({**base, "algo_kwargs": settings, "total_timesteps": 1000})
        learner = get_spec("r2d2").learner(DISCRETE, config, Streams(0))
        learner.take_place(place)
        return learner

    obs, starts = np.zeros((4000, 3), np.float32), np.ones(4000, bool)
    for place, epsilon in enumerate(exploration_ladder(4)):
        learner = actor(place)
        assert learner.exploration_rate() == epsilon
        greedy = learner.act(obs[:1], explore=False, episode_starts=starts[:1]).actions[0]
        taken = learner.act(obs, explore=True, episode_starts=starts).actions
        assert abs(np.mean(taken != greedy) - 0.75 * epsilon) < 0.03  # a random action may be the greedy one
    schedule = {"exploration": {"start": 0.5, "end": 0.0}}
    assert actor(2, actors=1, **schedule).exploration_rate() == 0.5
    assert actor(2, exploration_ladder=False, **schedule).exploration_rate() == 0.5


def test_an_empty_start_is_a_setting() -> None:
    learner = learner_of(stored_state=False, burn_in=0)
    batch = windows_of(learner, [4, 4], [0, 0])
    assert batch.memory is not None
    other = replace(batch, memory=batch.memory + 1.0)
    losses = [float(copy.deepcopy(learner).update(each)["loss"]) for each in (batch, other)]
    assert losses[0] == losses[1]
    stored = learner_of(burn_in=0)
    losses = [float(copy.deepcopy(stored).update(each)["loss"]) for each in (batch, other)]
    assert losses[0] != losses[1]


def test_padding_changes_nothing() -> None:
    learner, results = learner_of(), []
    for padding in (0, 5):
        twin = copy.deepcopy(learner)
        result = twin.update(windows_of(twin, [4, 2, 1], [3, 0, 1], padding=padding, weights=True))
        results.append((result, [parameter.grad for parameter in twin.model.parameters()]))
    for name in ("loss", "q_mean", "target_q_mean", "grad_norm"):
        assert float(results[0][0][name]) == pytest.approx(float(results[1][0][name]), rel=1e-5), name
    np.testing.assert_allclose(results[0][0].priorities, results[1][0].priorities, rtol=1e-5)


def test_forbidden_actions_are_neither_taken_nor_bootstrapped_from() -> None:
    learner = make_learner("r2d2", masked_spaces(), **SMALL)
    num_actions = learner.model.num_actions
    rng = np.random.default_rng(0)
    batch = make_windows(learner.spaces, [4, 2], [3, 0], memory_shape=learner.model.memory_shape)
    masks = (rng.random((*batch.obs.shape[:2], num_actions)) < 0.5).astype(np.float32)
    masks[..., 1] = 1.0
    obs = batch.obs.clone()
    obs[..., -num_actions:] = torch.from_numpy(masks)
    batch = replace(batch, obs=obs, actions=torch.ones_like(batch.actions))
    # The target network likes action 0 best by far. Where that is forbidden, it must not be bootstrapped from.
    with torch.no_grad():
        learner.target.module.advantage[-1].bias[0] += 1000.0
        learner.model.advantage[-1].bias[0] += 1000.0
    following = obs[4:, :, -num_actions]
    target_q = learner.target.module.unroll(obs[3:], learner._start(learner.target.module, batch))[1:]
    chosen = target_q.amax(-1)
    assert (chosen[following == 0] < 500).all() and (chosen[following == 1] > 500).all()
    result = learner.update(batch)
    assert np.isfinite(result.priorities).all() and torch.isfinite(result["loss"])
    assert all(torch.isfinite(parameter).all() for parameter in learner.model.parameters())
    rows = obs[0].numpy()
    for _ in range(30):
        actions = learner.act(rows, explore=True).actions
        assert all(rows[i, -num_actions:][action] == 1 for i, action in enumerate(actions))


def test_the_target_is_copied_or_follows() -> None:
    for settings, same in (({"tau": 1.0}, True), ({"target_update_every": 1000}, False)):
        learner = learner_of(**settings)
        learner.update(windows_of(learner, [4, 2], [3, 0]))
        pairs = zip(learner.target.module.parameters(), learner.model.parameters(), strict=True)
        assert all(torch.equal(mine, theirs) for mine, theirs in pairs) == same
    learner = learner_of(target_update_every=10)
    learner.clock.env_steps = 10
    learner.update(windows_of(learner, [4, 2], [3, 0]))
    assert learner.target.copies.value == 1


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"exploration_ladder": True}, "exploration_ladder", "one actor makes no ladder"),
        ({"sequence_length": 20, "burn_in": 20}, "burn_in", "must be below sequence_length (20)"),
        ({"sequence_length": 20, "burn_in": 25}, "burn_in", "must be below sequence_length (20)"),
        ({"sequence_length": 20, "burn_in": -1}, "burn_in", ">= 0"),
        ({"cell": "rnn"}, "cell", "lstm"),
        ({"buffer_size": 100, "sequence_length": 200, "batch_size": 8}, "buffer_size", "sequence_length * num_envs"),
        ({"hindsight": 0.5}, "hindsight", "use dqn"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings: dict[str, Any], key: str, words: str) -> None:
    message = refused({"algo": "r2d2", "env_id": "Env-v0", "algo_kwargs": settings})
    assert message.startswith(f"algo_kwargs.{key}: ") and words in message and "\n" not in message


def test_acting_burn_in_and_learning_see_every_observation_normalized_once() -> None:
    """As a learner without the normalizer that is shown normalized observations."""
    through = learner_of(model={"normalize_observations": True})
    plain = learner_of(model={"normalize_observations": False})
    through.observe(5 + 3 * np.random.default_rng(0).standard_normal((200, 3)))
    normalizer = through.model.normalizer
    for number in range(3):
        batch = windows_of(through, [4, 2, 4], [3, 0, 2], seed=number)
        raw = replace(batch, obs=5 + 3 * batch.obs)
        seen = replace(batch, obs=normalizer(raw.obs.flatten(0, 1)).unflatten(0, raw.obs.shape[:2]))
        assert not torch.allclose(seen.obs, raw.obs, atol=1.0)
        ours, theirs = through.model.act_values(raw.obs[0].numpy()), plain.model.act_values(seen.obs[0].numpy())
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)
        through.update(raw)
        plain.update(seen)
        assert_same_parameters(through.model, plain.model, 1e-4)
        assert_same_parameters(through.target.module, plain.target.module, 1e-4)


def test_drqn_is_a_setting() -> None:
    settings = {"stored_state": False, "burn_in": 0, "prioritized": False, "n_step": 1, "double": False}
    learner = learner_of(**settings, dueling=False, rescaling=None)
    result = learner.update(windows_of(learner, [4, 2], [0, 0]))
    assert result.priorities is None and learner.model.state_value is None
    assert make_config("r2d2", **settings).algo_kwargs.window == (80, 0)
