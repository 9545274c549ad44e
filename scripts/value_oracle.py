"""Reference values for quantiles, Q(lambda) and noisy layers, used by record_oracles.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import rlax
import torch

Recorded = tuple[str, dict[str, Any], dict[str, Any]]


def quantile_losses() -> Iterator[Recorded]:
    """Losses, averaged over the rows, and their gradients in the estimates.

    rlax sums over the estimates of a row; sb3-contrib sums (QR-DQN) or averages (TQC).
    """
    from sb3_contrib.common.utils import quantile_huber_loss

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(21)
    quantiles, targets, taus = 2 * rng.normal(size=(4, 5)), 2 * rng.normal(size=(4, 3)), rng.uniform(size=(4, 5))
    inputs = {"quantiles": quantiles, "targets": targets, "taus": taus, "reduction": "sum"}

    def mean_loss(estimates: Any) -> Any:
        return jax.vmap(rlax.quantile_regression_loss, (0, 0, 0, None))(estimates, taus, targets, 1.0).mean()

    loss, slope = jax.value_and_grad(mean_loss)(quantiles)
    yield "rlax.quantile_regression_loss", inputs, {"loss": loss, "gradient": slope}

    midpoints = (np.arange(5) + 0.5) / 5
    for reduction in ("sum", "mean"):
        estimates = torch.tensor(quantiles, requires_grad=True)
        sums = reduction == "sum"
        loss = quantile_huber_loss(estimates, torch.tensor(targets), sum_over_quantiles=sums)
        loss.backward()
        inputs = {"quantiles": quantiles, "targets": targets, "taus": midpoints, "reduction": reduction}
        yield "sb3_contrib quantile_huber_loss", inputs, {"loss": loss.item(), "gradient": estimates.grad}


def quantile_q_learning() -> Iterator[Recorded]:
    """Losses of QR-DQN, plain and double, and their gradients in all quantiles. rlax has actions last: [N, A]."""
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(22)
    taus = (np.arange(5) + 0.5) / 5
    for double in (False, True):
        quantiles, next_quantiles, online = 2 * rng.normal(size=(3, 6, 4, 5))
        actions, rewards = rng.integers(4, size=6), rng.normal(size=6)
        discounts = np.where(rng.random(6) < 0.3, 0.0, 0.9)
        inputs = {"quantiles": quantiles, "actions": actions, "rewards": rewards, "discounts": discounts}
        inputs |= {"next_quantiles": next_quantiles, "taus": taus}
        selector = online if double else next_quantiles
        if double:
            inputs["next_q_online"] = online.mean(2)

        def losses(quantiles: Any, inputs: Any = inputs, selector: Any = selector) -> Any:
            columns = (inputs[name] for name in ("actions", "rewards", "discounts"))
            batched = jax.vmap(rlax.quantile_q_learning, (0, None, 0, 0, 0, 0, 0, None))
            last = (np.swapaxes(rows, 1, 2) for rows in (selector, inputs["next_quantiles"]))
            return batched(quantiles.swapaxes(1, 2), taus, *columns, *last, 1.0)

        slope = jax.grad(lambda quantiles, losses=losses: losses(quantiles).mean())(quantiles)
        yield "rlax.quantile_q_learning", inputs, {"losses": losses(quantiles), "gradient_of_mean": slope}


def q_lambda_returns() -> Iterator[Recorded]:
    """Q(lambda) targets. rlax: one trajectory, with termination. torchrl: both kinds of ends, several trajectories."""
    from torchrl.objectives.value.functional import td_lambda_return_estimate

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(23)
    for steps, gamma, trace in ((6, 0.9, 0.65), (8, 0.99, 0.95), (5, 0.97, 0.0), (5, 0.9, 1.0)):
        q, next_q, rewards = rng.normal(size=(steps, 3)), rng.normal(size=(steps, 3)), rng.normal(size=steps)
        actions = rng.integers(3, size=steps)
        discounts = np.where(rng.random(steps) < 0.2, 0.0, gamma)
        errors = rlax.q_lambda(q, actions, rewards, discounts, next_q, np.full(steps, trace))
        inputs = {"rewards": rewards, "next_values": next_q.max(1), "discounts": discounts, "q_lambda": trace}
        inputs["ends"] = discounts == 0
        yield "rlax.q_lambda", inputs, {"returns": errors + q[np.arange(steps), actions]}
    for gamma, trace in ((0.99, 0.65), (0.9, 0.5)):
        shape = (3, 7)
        rewards, next_values = rng.normal(size=(2, *shape))
        terminated = rng.random(shape) < 0.2
        truncated = (rng.random(shape) < 0.25) & ~terminated
        columns = (next_values, rewards, terminated | truncated, terminated)
        answer = td_lambda_return_estimate(gamma, trace, *(torch.from_numpy(c)[..., None] for c in columns))
        inputs = {"rewards": rewards.T, "next_values": next_values.T, "discounts": np.where(terminated, 0.0, gamma).T}
        inputs |= {"ends": (terminated | truncated).T, "q_lambda": trace}
        yield "torchrl td_lambda_return_estimate", inputs, {"returns": answer[..., 0].numpy().T}


def noisy_layers() -> Iterator[Recorded]:
    """Outputs of torchrl's NoisyLinear and gradients of their sum, with the noise that the layer drew."""
    from torchrl.envs.utils import ExplorationType, set_exploration_type
    from torchrl.modules import NoisyLinear

    torch.manual_seed(24)
    layer = NoisyLinear(3, 2, std_init=0.5).double()
    layer.reset_noise()
    x = torch.randn(4, 3, dtype=torch.float64)
    with set_exploration_type(ExplorationType.RANDOM):  # otherwise it adds no noise
        outputs = layer(x)
    outputs.square().sum().backward()
    names = ("weight_mu", "bias_mu", "weight_sigma", "bias_sigma")
    inputs = {name: getattr(layer, name).detach() for name in names} | {"x": x}
    # It keeps f(e_out) f(e_in)^T and f(e_out) only.
    inputs |= {"weight_noise": layer.weight_epsilon, "bias_noise": layer.bias_epsilon}
    slopes = {name: getattr(layer, name).grad for name in names}
    yield "torchrl NoisyLinear", inputs, {"outputs": outputs.detach(), "gradients": slopes}
