"""What the tests of V-trace, IMPALA and APPO share: the paper's formula, slowly, and a way to watch an update."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from on_policy_helpers import value_of
from rl_training.data.rollout import Rollout


def by_the_paper(  # type: ignore[no-untyped-def]
    p, rho_bar=1.0, c_bar=1.0, pg_rho_bar=1.0, trace_lambda=1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Equation 1 as it stands, a sum over t with a product of c's; then the gradient's weight and target."""
    steps, envs = p["rewards"].shape
    weights = np.exp(p["log_probs"] - p["behavior_log_probs"])
    targets, gradients = np.zeros((2, steps, envs))

    def target(s: int, env: int) -> float:
        total, product = p["values"][s, env], 1.0
        for t in range(s, steps):
            delta = p["rewards"][t, env] + p["discounts"][t, env] * p["next_values"][t, env] - p["values"][t, env]
            total += product * min(rho_bar, weights[t, env]) * delta
            if p["ends"][t, env]:
                break
            product *= p["discounts"][t, env] * trace_lambda * min(c_bar, weights[t, env])
        return total

    for env in range(envs):
        for s in range(steps):
            targets[s, env] = target(s, env)
            following = p["next_values"][s, env]
            if s + 1 < steps and not p["ends"][s, env]:
                following = trace_lambda * target(s + 1, env) + (1 - trace_lambda) * following
            q = p["rewards"][s, env] + p["discounts"][s, env] * following
            gradients[s, env] = min(pg_rho_bar, weights[s, env]) * (q - p["values"][s, env])
    return targets, gradients


def problem_of(rollout: Rollout, model: Any, log_probs: np.ndarray, gamma: float) -> dict[str, np.ndarray]:
    """A rollout as the arrays that V-trace takes, row by row: who follows whom is decided here once more."""
    value = value_of(model)
    steps, envs = rollout.rewards.shape
    finals = zip(rollout.final_steps, rollout.final_envs, rollout.final_obs, strict=True)
    final = {(t, env): obs for t, env, obs in finals}
    values, next_values = np.zeros((2, steps, envs))
    for t in range(steps):
        for env in range(envs):
            values[t, env] = value(rollout.obs[t, env])
            following = rollout.last_obs[env] if t == steps - 1 else rollout.obs[t + 1, env]
            next_values[t, env] = value(final.get((t, env), following))
    return {
        "rewards": rollout.rewards.astype(np.float64),
        "values": values,
        "next_values": next_values,
        "discounts": np.where(rollout.terminated, 0.0, gamma),
        "ends": rollout.terminated | rollout.truncated,
        "log_probs": log_probs.astype(np.float64),
        "behavior_log_probs": rollout.extras["log_probs"].astype(np.float64),
    }


@torch.no_grad()
def log_probs_of(model: Any, rollout: Rollout) -> np.ndarray:
    """log pi(a|s) of every row under the model as it is now, [T, N]."""
    rows = [
        model.evaluate_actions(torch.from_numpy(obs), torch.from_numpy(actions))[0].numpy()
        for obs, actions in zip(rollout.obs, rollout.actions, strict=True)
    ]
    return np.stack(rows)


def watch_loss(algo: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Fills up with the arguments of every call of the algorithm's loss."""
    module = import_module(f"rl_training.algorithms.{algo}")
    loss, calls = getattr(module, f"{algo}_loss"), []

    def watched(log_probs: Any, entropy: Any, values: Any, batch: Any, config: Any, **options: Any) -> Any:
        calls.append({"log_probs": log_probs, "entropy": entropy, "values": values, "batch": batch, **options})
        return loss(log_probs, entropy, values, batch, config, **options)

    monkeypatch.setattr(module, f"{algo}_loss", watched)
    return calls
