"""Record reference values of independent public implementations as small JSON files for the tests.

Only this script needs these packages, not the test suite. To run it:

    python -m venv ../oracle-venv
    ../oracle-venv/bin/pip install torch==2.13.0 stable-baselines3==2.9.2 rlax==0.1.9 \
        distrax==0.1.9 torchrl==0.14.1 cpprb==11.0.0 sb3-contrib==2.9.2
    ../oracle-venv/bin/python scripts/record_oracles.py [name ...]

The case of TD7 is made by the authors' own file, which is no package:

    git clone https://github.com/sfujim/TD7 ../TD7 && git -C ../TD7 checkout c1c280d
    PYTHONPATH=../TD7 ../oracle-venv/bin/python scripts/record_oracles.py td7

rliable needs an older pandas than the others, so it has its own virtual environment:

    python -m venv ../rliable-venv && ../rliable-venv/bin/pip install rliable==1.2.0 "pandas<3"
    ../rliable-venv/bin/python scripts/record_oracles.py interquartile_mean

Each function in `ORACLES` returns cases {"source", "inputs", "outputs"}, which are written to
tests/fixtures/oracles/<name>.json. Inputs are seeded, so another run changes a file only if a package has changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "oracles"
Case = dict[str, Any]
FLOAT32_DIGITS = 9


def plain(value: Any) -> Any:
    """Convert arrays, tensors and containers of them to JSON values; float32 with enough digits to restore it."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, (str, bool, int, float)) or value is None:
        return value
    array = np.asarray(value)
    if array.dtype == np.float32:
        rounded = [float(f"{number:.{FLOAT32_DIGITS}g}") for number in array.reshape(-1).tolist()]
        return np.array(rounded).reshape(array.shape).tolist()
    return array.tolist()


def case(source: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> Case:
    return {"source": source, "inputs": plain(inputs), "outputs": plain(outputs)}


def jax_in_float64() -> Any:
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax


def gae() -> Iterable[Case]:
    """rlax has no truncation, so its cases are single trajectories; torchrl cases have both kinds of episode ends."""
    jax_in_float64()
    import rlax
    import torch
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    rng = np.random.default_rng(1)
    for steps, gamma, trace in ((5, 0.9, 0.8), (8, 0.99, 0.95), (6, 1.0, 1.0), (6, 0.97, 0.0)):
        rewards, values = rng.normal(size=steps), rng.normal(size=steps + 1)
        discounts = np.where(rng.random(steps) < 0.2, 0.0, gamma)
        inputs = {"rewards": rewards, "values": values, "discounts": discounts, "gae_lambda": trace}
        answer = rlax.truncated_generalized_advantage_estimation(rewards, discounts, trace, values)
        yield case("rlax.truncated_generalized_advantage_estimation", inputs, {"advantages": answer})
    for gamma, trace in ((0.99, 0.95), (0.9, 0.5)):
        shape = (3, 7)
        rewards, values, next_values = rng.normal(size=(3, *shape))
        terminated = rng.random(shape) < 0.2
        truncated = (rng.random(shape) < 0.2) & ~terminated
        columns = (values, next_values, rewards, terminated | truncated, terminated)
        answer, _ = generalized_advantage_estimate(
            gamma, trace, *(torch.from_numpy(column)[..., None] for column in columns)
        )
        inputs = {"rewards": rewards, "values": values, "next_values": next_values}
        inputs |= {"terminated": terminated, "truncated": truncated, "gamma": gamma, "gae_lambda": trace}
        # Time comes first, as in rollouts.
        inputs = {name: value.T if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
        yield case("torchrl generalized_advantage_estimate", inputs, {"advantages": answer[..., 0].numpy().T})


def vtrace() -> Iterable[Case]:
    """rlax: single trajectories, c_bar 1, any lambda. torchrl: both kinds of episode ends, lambda 1, one cap for both
    rhos."""
    jax_in_float64()
    import rlax
    import torch
    from torchrl.objectives.value.functional import vtrace_advantage_estimate

    rng = np.random.default_rng(11)
    for steps, gamma, trace, caps in ((5, 0.9, 1.0, (1.0, 1.0)), (8, 0.97, 0.8, (1.5, 0.9)), (6, 1.0, 0.0, (0.7, 2.0))):
        rewards, values, log_ratios = rng.normal(size=steps), rng.normal(size=steps + 1), rng.normal(size=steps)
        discounts = np.where(rng.random(steps) < 0.2, 0.0, gamma)
        answer = rlax.vtrace_td_error_and_advantage(
            values[:-1], values[1:], rewards, discounts, np.exp(log_ratios), trace, *caps
        )
        inputs = {"rewards": rewards, "values": values, "discounts": discounts, "log_ratios": log_ratios}
        inputs |= {"trace_lambda": trace, "rho_bar": caps[0], "pg_rho_bar": caps[1]}
        outputs = {"errors": answer.errors, "policy_gradient_advantages": answer.pg_advantage}
        yield case("rlax.vtrace_td_error_and_advantage", inputs, outputs)
    for gamma, rho_bar, c_bar in ((0.99, 1.0, 1.0), (0.9, 1.3, 0.6)):
        shape = (3, 7)
        rewards, values, final_values, log_probs, behavior = rng.normal(size=(5, *shape))
        terminated = rng.random(shape) < 0.2
        truncated = (rng.random(shape) < 0.25) & ~terminated
        # Within an episode, the next value is that of the next row; at its end, that of the final observation.
        shifted = np.concatenate([values[:, 1:], final_values[:, -1:]], 1)
        next_values = np.where(terminated | truncated, final_values, shifted)
        columns = (log_probs, behavior, values, next_values, rewards, terminated | truncated, terminated)
        advantages, targets = vtrace_advantage_estimate(
            gamma, *(torch.from_numpy(c)[..., None] for c in columns), rho_thresh=rho_bar, c_thresh=c_bar
        )
        inputs = {"rewards": rewards, "values": values, "next_values": next_values, "terminated": terminated}
        inputs |= {"truncated": truncated, "log_probs": log_probs, "behavior_log_probs": behavior}
        inputs = {name: value.T for name, value in inputs.items()}
        inputs |= {"gamma": gamma, "rho_bar": rho_bar, "c_bar": c_bar}
        outputs = {"targets": targets[..., 0].numpy().T, "policy_gradient_advantages": advantages[..., 0].numpy().T}
        yield case("torchrl vtrace_advantage_estimate", inputs, outputs)


def ppo_clip() -> Iterable[Case]:
    jax = jax_in_float64()
    import rlax

    rng = np.random.default_rng(2)
    for size, epsilon in ((6, 0.2), (9, 0.1), (1, 0.3)):
        ratios, advantages = np.exp(rng.normal(size=size) * 0.5), rng.normal(size=size)
        loss, slope = jax.value_and_grad(rlax.clipped_surrogate_pg_loss)(ratios, advantages, epsilon)
        inputs = {"ratios": ratios, "advantages": advantages, "clip_range": epsilon}
        yield case("rlax.clipped_surrogate_pg_loss", inputs, {"loss": loss, "gradient_of_ratios": slope})


def policy_gradient() -> Iterable[Case]:
    jax = jax_in_float64()
    import rlax

    rng = np.random.default_rng(3)
    logits, actions, advantages = rng.normal(size=(7, 3)), rng.integers(3, size=7), rng.normal(size=7)
    ones = np.ones(7)
    loss, slope = jax.value_and_grad(rlax.policy_gradient_loss)(logits, actions, advantages, ones)
    entropy, entropy_slope = jax.value_and_grad(rlax.entropy_loss)(logits, ones)
    inputs = {"logits": logits, "actions": actions, "advantages": advantages}
    outputs = {"policy_loss": loss, "policy_gradient": slope}
    outputs |= {"mean_entropy": -entropy, "entropy_gradient": -entropy_slope}
    yield case("rlax.policy_gradient_loss, rlax.entropy_loss", inputs, outputs)


def q_learning() -> Iterable[Case]:
    return _q_learning(double=False)


def double_q() -> Iterable[Case]:
    return _q_learning(double=True)


def _q_learning(double: bool) -> Iterable[Case]:
    """TD error = target - Q(s, a). `next_q` comes from the target network, `next_q_online` from the online network."""
    jax = jax_in_float64()
    import rlax

    rng = np.random.default_rng(4)
    for gamma in (0.9, 0.99):
        q, next_q, next_q_online = rng.normal(size=(3, 6, 4))
        actions, rewards = rng.integers(4, size=6), rng.normal(size=6)
        discounts = np.where(rng.random(6) < 0.3, 0.0, gamma)
        inputs = {"q": q, "actions": actions, "rewards": rewards, "discounts": discounts, "next_q": next_q}
        if double:
            inputs["next_q_online"] = next_q_online
        function = rlax.double_q_learning if double else rlax.q_learning
        td_errors = jax.vmap(function)(*inputs.values())
        huber = rlax.huber_loss(td_errors, 1.0)
        outputs = {"td_errors": td_errors, "huber_losses": huber}
        yield case(f"rlax.{function.__name__}, rlax.huber_loss", inputs, outputs)


def lambda_and_n_step_returns() -> Iterable[Case]:
    jax_in_float64()
    import rlax

    rng = np.random.default_rng(5)
    rewards, values, discounts = rng.normal(size=8), rng.normal(size=8), np.full(8, 0.95)
    discounts[4] = 0.0
    inputs = {"rewards": rewards, "discounts": discounts, "next_values": values}
    for trace in (0.0, 0.7, 1.0):
        answer = rlax.lambda_returns(rewards, discounts, values, trace)
        yield case("rlax.lambda_returns", {**inputs, "lambda": trace}, {"returns": answer})
    for steps in (1, 3, 8):
        answer = rlax.n_step_bootstrapped_returns(rewards, discounts, values, steps)
        yield case("rlax.n_step_bootstrapped_returns", {**inputs, "n_step": steps}, {"returns": answer})


def tanh_gaussian() -> Iterable[Case]:
    """From the sample before tanh, up to values where float64 tanh is exactly 1 (log-probs from distrax only)."""
    jax_in_float64()
    import distrax
    import torch
    from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

    rng = np.random.default_rng(6)
    mean, log_std, noise = rng.normal(size=(3, 5, 2)) * np.array([1.0, 0.7, 1.5])[:, None, None]
    mean[0], log_std[0], noise[0] = (0.3, -1.0), np.log((0.5, 2.0)), (0.8, 2.0)
    for name in ("moderate", "saturated"):
        if name == "saturated":
            mean = np.array([[20.0, -20.0], [-12.0, 9.0], [15.0, 0.0]])
            log_std, noise = np.full((3, 2), -1.0), rng.normal(size=(3, 2)) * 0.5
        pre_tanh = mean + np.exp(log_std) * noise
        base = distrax.MultivariateNormalDiag(mean, np.exp(log_std))
        squash = distrax.Block(distrax.Tanh(), 1)
        log_probs = base.log_prob(pre_tanh) - squash.forward_log_det_jacobian(pre_tanh)
        outputs = {"actions": np.tanh(pre_tanh), "log_probs": log_probs}
        inputs = {"mean": mean, "log_std": log_std, "noise": noise}
        yield case(f"distrax.Tanh, {name}", inputs, outputs)
        if name == "moderate":
            normal = Normal(torch.from_numpy(mean), torch.from_numpy(np.exp(log_std)))
            squashed = Independent(TransformedDistribution(normal, TanhTransform(cache_size=1)), 1)
            actions = torch.tanh(torch.from_numpy(pre_tanh))
            outputs = {"actions": actions, "log_probs": squashed.log_prob(actions)}
            yield case("torch TransformedDistribution(Normal, TanhTransform)", inputs, outputs)


def divergences() -> Iterable[Case]:
    jax_in_float64()
    import distrax
    import rlax

    rng = np.random.default_rng(7)
    old, new = rng.normal(size=(2, 4, 3)) * 2
    outputs = {"kl": rlax.categorical_kl_divergence(old, new), "entropy": distrax.Categorical(old).entropy()}
    yield case("rlax.categorical_kl_divergence", {"old": old, "new": new}, outputs)
    mean, new_mean, log_std, new_log_std = rng.normal(size=(4, 4, 2)) * 0.7
    inputs = {"old": np.hstack([mean, log_std]), "new": np.hstack([new_mean, new_log_std])}
    first = distrax.MultivariateNormalDiag(mean, np.exp(log_std))
    second = distrax.MultivariateNormalDiag(new_mean, np.exp(new_log_std))
    outputs = {"kl": first.kl_divergence(second), "entropy": first.entropy()}
    yield case("distrax.MultivariateNormalDiag", inputs, outputs)


def prioritized_replay() -> Iterable[Case]:
    """Importance weights by row from cpprb, which adds epsilon to priorities and divides by the largest weight.

    Probabilities follow from the weights with exponent 1: w = (1/P) / max(1/P), and P sums to one.
    """
    from cpprb import PrioritizedReplayBuffer

    for alpha, priorities in ((0.6, [1.0, 2.0, 3.0, 4.0]), (1.0, [0.1, 5.0, 0.7, 2.0, 2.0]), (0.0, [1.0, 9.0])):
        buffer = PrioritizedReplayBuffer(len(priorities), {"row": {}}, alpha=alpha, eps=0.0)
        for row, priority in enumerate(priorities):
            buffer.add(row=row, priorities=priority)

        def weights_by_row(beta: float, buffer: Any = buffer, size: int = len(priorities)) -> np.ndarray:
            drawn = buffer.sample(4000, beta=beta)
            weights = dict(zip(drawn["row"].reshape(-1).tolist(), drawn["weights"].tolist(), strict=True))
            return np.array([weights[row] for row in range(size)])

        shares = 1 / weights_by_row(1.0)
        outputs = {"probabilities": (shares / shares.sum()).round(6), "weights": weights_by_row(0.4).round(6)}
        inputs = {"priorities": priorities, "priority_exponent": alpha, "importance_exponent": 0.4}
        yield case("cpprb.PrioritizedReplayBuffer", inputs, outputs)


def n_step_replay() -> Iterable[Case]:
    """One env, observation i before step i; one sample per row whose window is complete."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import NStepReplayBuffer

    scalar = spaces.Box(-100, 100, (1,), np.float32)
    for ending in ("none", "terminated", "truncated"):
        buffer = NStepReplayBuffer(16, scalar, spaces.Discrete(2), device="cpu", n_envs=1, n_steps=3, gamma=0.9)
        for i in range(8):
            done = np.array([ending != "none" and i == 3])
            infos = [{"TimeLimit.truncated": ending == "truncated" and i == 3}]
            obs, after, action = np.array([[i]]), np.array([[i + 1]]), np.array([[0]])
            buffer.add(obs, after, action, np.array([i + 1.0]), done, infos)
        rows = np.arange(6)
        drawn = buffer._get_samples(rows, env=None)
        columns = ("observations", "rewards", "next_observations", "dones", "discounts")
        names = ("obs", "rewards", "next_obs", "terminated", "discounts")
        outputs = {name: getattr(drawn, column).reshape(-1) for name, column in zip(names, columns, strict=True)}
        inputs = {"rewards": np.arange(1.0, 9.0), "ending_at_step_3": ending, "n_step": 3, "gamma": 0.9}
        yield case("stable_baselines3 NStepReplayBuffer", inputs, outputs)


def rmsprop() -> Iterable[Case]:
    import torch
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    rng = np.random.default_rng(8)
    start, gradients = rng.normal(size=4), rng.normal(size=(6, 4))
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = RMSpropTFLike([parameter], lr=0.01, alpha=0.9, eps=1e-5)
    path = []
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
        path.append(parameter.detach().numpy().copy())
    inputs = {"start": start, "gradients": gradients, "learning_rate": 0.01, "decay": 0.9, "epsilon": 1e-5}
    yield case("stable_baselines3 RMSpropTFLike", inputs, {"parameters": path})


def running_moments() -> Iterable[Case]:
    from stable_baselines3.common.running_mean_std import RunningMeanStd

    rng = np.random.default_rng(9)
    statistics = RunningMeanStd(epsilon=1e-12, shape=(2,))
    batches = [rng.normal(3.0, 2.0, size=(size, 2)) for size in (3, 1, 5)]
    for batch in batches:
        statistics.update(batch)
    outputs = {"mean": statistics.mean, "variance": statistics.var}
    yield case("stable_baselines3 RunningMeanStd", {"batches": batches}, outputs)


def reward_normalization() -> Iterable[Case]:
    """Rewards of VecNormalize: the statistics include the returns of a step before its rewards are scaled."""
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.vec_env import VecNormalize

    rng = np.random.default_rng(10)
    rewards, dones = rng.normal(1.0, 2.0, size=(12, 3)), rng.random((12, 3)) < 0.2
    normalizer = VecNormalize.__new__(VecNormalize)
    normalizer.ret_rms = RunningMeanStd(epsilon=1e-12, shape=())
    normalizer.returns, normalizer.gamma, normalizer.epsilon = np.zeros(3), 0.9, 1e-8
    normalizer.norm_reward, normalizer.clip_reward = True, 10.0
    scaled = []
    for reward, done in zip(rewards, dones, strict=True):
        normalizer._update_reward(reward)
        scaled.append(normalizer.normalize_reward(reward))
        normalizer.returns[done] = 0.0
    yield case(
        "stable_baselines3 VecNormalize",
        {"rewards": rewards, "dones": dones, "gamma": 0.9},
        {"rewards": scaled, "return_variance": normalizer.ret_rms.var},
    )


def on_policy_update() -> Iterable[Case]:
    from on_policy_oracle import updates

    for source, inputs, outputs in updates():
        yield case(source, inputs, outputs)


def mpo() -> Iterable[Case]:
    """rlax: both constraints per dimension, all four terms of the loss. distrax: parts of the decoupled Gaussian."""
    jax = jax_in_float64()
    import distrax
    import rlax

    rng = np.random.default_rng(12)
    for samples, states, size in ((5, 4, 1), (8, 3, 2)):
        log_probs, q_values = rng.normal(size=(2, samples, states)) * 2
        inputs = {"log_probs": log_probs, "q_values": q_values, "temperature": rng.uniform(0.3, 2.0)}
        inputs |= {"mean_kl": rng.uniform(0, 0.1, (states, size)), "covariance_kl": rng.uniform(0, 0.1, (states, size))}
        inputs |= {"mean_multiplier": rng.uniform(0.1, 3, size), "covariance_multiplier": rng.uniform(0.1, 3, size)}
        limits = {"improvement_limit": 0.1, "mean_limit": 0.03, "covariance_limit": 0.01}

        def loss(values: dict[str, Any], limits: dict[str, float] = limits) -> Any:
            penalty = rlax.LagrangePenalty
            bounds = [
                (values[f"{name}_kl"], penalty(values[f"{name}_multiplier"], limits[f"{name}_limit"], True))
                for name in ("mean", "covariance")
            ]
            temperature = penalty(values["temperature"], limits["improvement_limit"])
            per_state, parts = rlax.mpo_loss(values["log_probs"], values["q_values"], temperature, bounds)
            return per_state.mean(), parts

        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        (total, parts), slopes = jax.value_and_grad(loss, has_aux=True)(arrays)
        slopes.pop("q_values")  # rlax does not stop this gradient; our loss never reaches the critic
        outputs = {"loss": total, "weights": parts.normalized_weights, "gradients": slopes}
        outputs |= {"temperature_loss": parts.temperature_loss.mean(), "policy_loss": parts.policy_loss.mean()}
        outputs |= {"kl_penalty": parts.kl_loss.mean(), "dual_loss": parts.alpha_loss.mean()}
        yield case("rlax.mpo_loss", inputs | limits, outputs)
    actions = rng.normal(size=(6, 3, 2))
    mean, log_std, target_mean, target_log_std = rng.normal(size=(4, 3, 2)) * 0.7
    inputs = {"actions": actions, "mean": mean, "log_std": log_std}
    inputs |= {"target_mean": target_mean, "target_log_std": target_log_std}
    target = distrax.Normal(target_mean, np.exp(target_log_std))
    moved = distrax.Normal(mean, np.exp(target_log_std))
    spread = distrax.Normal(target_mean, np.exp(log_std))
    outputs = {"log_probs": (moved.log_prob(actions) + spread.log_prob(actions)).sum(-1)}
    outputs |= {"mean_kl": target.kl_divergence(moved), "covariance_kl": target.kl_divergence(spread)}
    yield case("distrax.Normal", inputs, outputs)


def naf() -> Iterable[Case]:
    """The quadratic advantage is a Gaussian log-density with precision L L^T, minus its value at the mean."""
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(13)
    for size in (1, 2, 3, 4):
        mean, actions = rng.uniform(-1, 1, size), rng.uniform(-1, 1, (5, size))
        factor = np.tril(rng.normal(size=(size, size)), -1) + np.diag(np.exp(rng.normal(size=size)))
        density = multivariate_normal(mean, np.linalg.inv(factor @ factor.T))
        outputs = {"advantages": np.atleast_1d(density.logpdf(actions)) - density.logpdf(mean)}
        yield case("scipy multivariate_normal", {"mean": mean, "factor": factor, "actions": actions}, outputs)


def categorical_projection() -> Iterable[Case]:
    from distributional_oracle import projections

    return [case(*recorded) for recorded in projections()]


def categorical_q_learning() -> Iterable[Case]:
    from distributional_oracle import q_learning

    return [case(*recorded) for recorded in q_learning()]


def value_based(name: str) -> Callable[[], Iterable[Case]]:
    """The cases of a function of value_oracle.py."""
    return lambda: [case(*recorded) for recorded in getattr(import_module("value_oracle"), name)()]


def continuous(name: str) -> Callable[[], Iterable[Case]]:
    """The cases of a function of continuous_oracle.py."""
    return lambda: [case(*recorded) for recorded in getattr(import_module("continuous_oracle"), name)()]


def interquartile_mean() -> Iterable[Case]:
    """Runs x tasks: one task with five runs, as in a row of the zoo, several tasks, and scores with ties."""
    from rliable import library, metrics

    rng = np.random.default_rng(21)
    tied = np.array([500.0, 500.0, 500.0, 500.0, 321.97])[:, None]
    shapes = [(5, 1), (10, 1), (5, 3), (7, 4)]
    repetitions = 50_000
    for scores in [tied, *(100 * rng.normal(size=shape) + 50 * rng.normal(size=shape[1]) for shape in shapes)]:
        random = np.random.RandomState(0)
        point, interval = library.get_interval_estimates(
            {"agent": scores}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=repetitions, random_state=random
        )
        inputs = {"scores": scores, "repetitions": repetitions}
        outputs = {"iqm": float(point["agent"][0]), "interval": interval["agent"][:, 0]}
        yield case("rliable library.get_interval_estimates with metrics.aggregate_iqm", inputs, outputs)


def masked_categorical() -> Iterable[Case]:
    import masked_oracle

    for source, inputs, outputs in masked_oracle.cases():
        yield case(source, inputs, outputs)


def along_trajectories(name: str) -> Callable[[], list[Case]]:
    """The cases of a function of trajectory_oracle.py."""
    return lambda: [case(*recorded) for recorded in getattr(import_module("trajectory_oracle"), name)()]


def state_noise() -> Iterable[Case]:
    import state_noise_oracle

    for source, inputs, outputs in state_noise_oracle.cases():
        yield case(source, inputs, outputs)


def novelty() -> Iterable[Case]:
    import novelty_oracle

    for source, inputs, outputs in novelty_oracle.cases():
        yield case(source, inputs, outputs)


ORACLES: dict[str, Callable[[], Iterable[Case]]] = {
    "gae": gae,
    "vtrace": vtrace,
    "ppo_clip": ppo_clip,
    "policy_gradient": policy_gradient,
    "q_learning": q_learning,
    "double_q": double_q,
    "lambda_and_n_step_returns": lambda_and_n_step_returns,
    "tanh_gaussian": tanh_gaussian,
    "divergences": divergences,
    "prioritized_replay": prioritized_replay,
    "n_step_replay": n_step_replay,
    "rmsprop": rmsprop,
    "running_moments": running_moments,
    "reward_normalization": reward_normalization,
    "on_policy_update": on_policy_update,
    "categorical_projection": categorical_projection,
    "categorical_q_learning": categorical_q_learning,
    "mpo": mpo,
    "naf": naf,
    "quantile_loss": value_based("quantile_losses"),
    "quantile_q_learning": value_based("quantile_q_learning"),
    "q_lambda_returns": value_based("q_lambda_returns"),
    "noisy_layers": value_based("noisy_layers"),
    "tqc": continuous("tqc"),
    "td7": continuous("td7"),
    "crossq": continuous("crossq"),
    "redq": continuous("redq"),
    "batch_renorm": continuous("batch_renorm"),
    "interquartile_mean": interquartile_mean,
    "masked_categorical": masked_categorical,
    "transformed_n_step": along_trajectories("transformed_n_step"),
    "retrace": along_trajectories("retrace"),
    "state_noise": state_noise,
    "novelty": novelty,
}
PACKAGES = ("numpy", "torch", "jax", "rlax", "distrax", "stable-baselines3", "sb3-contrib", "torchrl", "cpprb")
PACKAGES += ("scipy", "rliable")


def main(names: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    installed = [package for package in PACKAGES if find_spec(package.replace("-", "_"))]
    versions = {package: version(package).split("+")[0] for package in installed}
    available = [name for name in ORACLES if (name == "interquartile_mean") == ("rliable" in versions)]
    if find_spec("TD7") is None:
        available = [name for name in available if name != "td7"]
    for name in names or available:
        cases = list(ORACLES[name]())
        document = {"recorded_by": "scripts/record_oracles.py", "versions": versions, "cases": cases}
        text = json.dumps(document, allow_nan=False)
        (FOLDER / f"{name}.json").write_text(text.replace('{"source"', '\n{"source"') + "\n")
        print(f"{name}: {len(cases)} cases")


if __name__ == "__main__":
    main(sys.argv[1:])
