"""rlax reference values for return distributions, used by record_oracles.py: projection, C51 losses and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import rlax

Recorded = tuple[str, dict[str, Any], dict[str, Any]]
SUPPORT = np.linspace(-3.0, 5.0, 9)


def projections() -> Iterator[Recorded]:
    """Rows inside the support, rows clipped at one or both ends, terminal rows, and exact hits of atoms."""
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(12)
    for support in (SUPPORT, np.linspace(0.0, 1.0, 2), np.linspace(-10.0, 10.0, 51)):
        probabilities = _softmax(2 * rng.normal(size=(8, len(support))))
        rewards, discounts = 3 * rng.normal(size=8), rng.choice([0.97, 0.97**3, 0.0], 8)
        rewards[:3], discounts[:3] = (0.0, support[1] - support[0], 100.0), (1.0, 1.0, 0.9)
        atoms = rewards[:, None] + discounts[:, None] * support
        answer = jax.vmap(rlax.categorical_l2_project, (0, 0, None))(atoms, probabilities, support)
        inputs = {"rewards": rewards, "discounts": discounts, "next_probabilities": probabilities, "support": support}
        yield "rlax.categorical_l2_project", inputs, {"projected": answer}


def q_learning() -> Iterator[Recorded]:
    """Cross-entropy losses of C51, plain and double, and their gradients with respect to all logits."""
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(13)
    for double in (False, True):
        logits, next_logits = rng.normal(size=(2, 6, 4, len(SUPPORT)))
        actions, rewards = rng.integers(4, size=6), rng.normal(size=6)
        discounts = np.where(rng.random(6) < 0.3, 0.0, 0.9)
        next_q_online = rng.normal(size=(6, 4))
        inputs = {"logits": logits, "actions": actions, "rewards": rewards, "discounts": discounts}
        inputs |= {"next_logits": next_logits, "support": SUPPORT}
        if double:
            inputs["next_q_online"] = next_q_online
        function = rlax.categorical_double_q_learning if double else rlax.categorical_q_learning
        selector = (next_q_online,) if double else ()

        def losses(logits: Any, inputs: Any = inputs, function: Any = function, selector: Any = selector) -> Any:
            columns = (inputs[name] for name in ("actions", "rewards", "discounts"))
            axes = (None, 0, 0, 0, 0, None, 0, *(0 for _ in selector))
            batched = jax.vmap(function, axes)
            return batched(SUPPORT, logits, *columns, SUPPORT, inputs["next_logits"], *selector)

        slope = jax.grad(lambda logits, losses=losses: losses(logits).mean())(logits)
        yield f"rlax.{function.__name__}", inputs, {"losses": losses(logits), "gradient_of_mean": slope}


def _softmax(logits: np.ndarray) -> np.ndarray:
    mass = np.exp(logits)
    return mass / mass.sum(-1, keepdims=True)
