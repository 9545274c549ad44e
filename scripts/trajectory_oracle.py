"""Reference values for targets along trajectories, R2D2's and Retrace, used by record_oracles.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import rlax

Recorded = tuple[str, dict[str, Any], dict[str, Any]]


def transformed_n_step() -> Iterator[Recorded]:
    """Targets and TD errors of single trajectories; the argmax is that of the online network (double Q-learning)."""
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(31)
    for steps, n_step, epsilon in ((6, 1, 1e-3), (9, 3, 1e-3), (5, 8, 1e-2), (7, 5, None)):
        q, online, target = 20 * rng.normal(size=(3, steps, 3))
        actions, rewards = rng.integers(3, size=steps), 5 * rng.normal(size=steps)
        discounts = np.where(rng.random(steps) < 0.2, 0.0, 0.97)
        pair = rlax.IDENTITY_PAIR if epsilon is None else _pair(epsilon)
        chosen = online.argmax(1)
        errors = rlax.transformed_n_step_q_learning(
            q, actions, target, chosen, rewards, discounts, n_step, tx_pair=pair
        )
        inputs = {"q": q, "actions": actions, "next_q_online": online, "next_q": target, "rewards": rewards}
        inputs |= {"discounts": discounts, "n_step": n_step, "epsilon": epsilon}
        yield "rlax.transformed_n_step_q_learning", inputs, {"errors": errors}
    values = np.array([-100.0, -1.0, -0.01, 0.0, 0.3, 10.0, 100.0])
    inputs = {"values": values, "epsilon": 1e-3}
    outputs = {"rescaled": rlax.signed_hyperbolic(values, 1e-3), "restored": rlax.signed_parabolic(values, 1e-3)}
    yield "rlax.signed_hyperbolic, rlax.signed_parabolic", inputs, outputs


def _pair(epsilon: float) -> Any:
    return rlax.TxPair(
        lambda x: rlax.signed_hyperbolic(x, epsilon),
        lambda x: rlax.signed_parabolic(x, epsilon),
    )


def retrace() -> Iterator[Recorded]:
    """Retrace targets of single trajectories: the error of rlax plus Q of the action taken."""
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(32)
    for steps, trace in ((5, 1.0), (8, 1.0), (6, 0.9), (4, 0.0)):
        q = 3 * rng.normal(size=(steps + 1, 3))
        policy, behavior = rng.dirichlet(np.ones(3), size=(2, steps + 1))
        actions, rewards = rng.integers(3, size=steps + 1), rng.normal(size=steps)
        discounts = np.where(rng.random(steps) < 0.2, 0.0, 0.95)
        taken = behavior[np.arange(1, steps + 1), actions[1:]]
        errors = rlax.retrace(
            q[:-1], q[1:], actions[:-1], actions[1:], rewards, discounts, policy[1:], taken, trace, eps=0.0
        )
        targets = np.asarray(errors) + q[np.arange(steps), actions[:-1]]
        inputs = {"q": q, "policy": policy, "behavior": behavior, "actions": actions[:-1], "rewards": rewards}
        inputs |= {"discounts": discounts, "trace_lambda": trace}
        yield "rlax.retrace", inputs, {"targets": targets}
