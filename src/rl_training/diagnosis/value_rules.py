"""Rules about what is learned: values, gradients, and the units of the networks."""

from __future__ import annotations

import math
from typing import Any

from rl_training.config.train_config import TrainConfig
from rl_training.diagnosis.run_finding import Finding
from rl_training.diagnosis.stream_summary import KEPT, StreamSummary

NOTHING_EXPLAINED = 0.05
EARLY = 0.2  # share of the budget in which a critic need not explain anything
SMALL_SPREAD = 0.25  # of the largest spread so far: returns have become nearly equal, and there is little to explain
FEW_EPISODES = 10  # that must have ended: before, the returns are mostly the critic's own guesses
WORSE_THAN_THE_MEAN = 10.0
REACH = 2.0
BEYOND_IN_A_ROW = 3
LONG_GRADIENTS_IN_A_ROW = 5
LONG_GRADIENT, LONG_WITHOUT_LIMIT = 300.0, 1000.0
DEAD, DEAD_IN_A_ROW = 0.75, 3  # for a single observation, half of the units of a new ReLU network are 0
CLIPPED_SUPPORT = 0.02
GRADIENTS = ("grad_norm", "critic_grad_norm", "actor_grad_norm")


def value_learns_nothing(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """The critic is no better than a constant, though the returns differ."""
    if not stream.has("explained_variance") or stream.env_steps < EARLY * config.total_timesteps:
        return None
    explained, spread = stream.middle("explained_variance", KEPT), stream.middle("target_std", KEPT)
    loss, widest = stream.middle("value_loss", KEPT), stream.highest("target_std")
    if explained is None or spread is None or loss is None or widest is None or explained >= NOTHING_EXPLAINED:
        return None
    # Some returns cannot be predicted. A critic that has learned their mean, at least, is not far above this loss.
    of_the_mean = 0.5 * spread**2
    if stream.episodes < FEW_EPISODES or spread < SMALL_SPREAD * widest or loss <= WORSE_THAN_THE_MEAN * of_the_mean:
        return None
    share = round(max(explained, -9.99), 2) + 0.0  # "0%", not "-0%"
    return Finding(
        "value_learns_nothing",
        stream.env_steps,
        f"the critic explains {share:.0%} of the returns, whose standard deviation is {spread:.3g}",
        "its loss is too weak, or its targets are too large for its learning rate",
        "raise value_coef or learning_rate, or scale rewards down (reward_scale, normalize_rewards)",
        {"explained_variance": explained, "target_std": spread, "value_loss": loss},
    )


def gradients_too_long(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """Gradients are far beyond the norm that they are clipped to, line after line."""
    limit = getattr(config.algo_kwargs, "max_grad_norm", None)
    bound = LONG_WITHOUT_LIMIT if limit is None else LONG_GRADIENT * limit
    for name in GRADIENTS:
        values = stream.last(name, LONG_GRADIENTS_IN_A_ROW) if stream.has(name) else []
        if not values or min(values) <= bound:
            continue
        times = "" if limit is None else f", {values[-1] / limit:,.0f} times max_grad_norm"
        return Finding(
            "gradients_too_long",
            stream.env_steps,
            f"{name} is {values[-1]:.3g}{times}",
            "rewards or values are too large, and clipping leaves only the direction of the largest errors",
            "scale rewards down (reward_scale, or normalize_rewards where the algorithm has it)",
            {name: values[-1], "max_grad_norm": limit or 0.0, "reward_max": stream.newest("reward_max") or 0.0},
        )
    return None


def q_beyond_reach(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """Q is more than twice what any episode could have earned. Atoms of a distribution cannot leave their support."""
    settings: Any = config.algo_kwargs
    if not stream.has("q_mean") or not stream.has("reward_max") or hasattr(settings, "support_high"):
        return None
    values, reward, longest = (
        stream.last("q_mean", BEYOND_IN_A_ROW),
        stream.newest("reward_max"),
        stream.newest("longest_episode"),
    )
    if not values or not reward or not longest:
        return None
    # The bonus for entropy of a soft Q is part of what a step earns.
    bonus = (
        abs((stream.newest("temperature") or 0.0) * (stream.newest("entropy") or 0.0))
        if hasattr(settings, "temperature")
        else 0.0
    )
    horizon = min(longest, math.inf if settings.gamma >= 1 else 1 / (1 - settings.gamma))
    reach = (reward + bonus) * horizon
    if min(map(abs, values)) <= REACH * reach:
        return None
    return Finding(
        "q_beyond_reach",
        stream.env_steps,
        f"Q is {values[-1]:.3g} on average, but the rewards so far allow at most {reach:.3g}",
        "the estimates feed on themselves",
        "let the target network follow more slowly (smaller tau, larger target_update_every), lower the learning rate, "
        "or lower gamma",
        {"q_mean": values[-1], "reach": reach, "reward_max": reward, "longest_episode": longest},
    )


def dead_units(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """Most hidden units answer every observation alike."""
    share = stream.middle("dead_units", DEAD_IN_A_ROW) if stream.has("dead_units") else None
    if share is None or share <= DEAD:
        return None
    kind = "are saturated" if config.model.activation == "tanh" else "are 0"
    return Finding(
        "dead_units",
        stream.env_steps,
        f"{share:.0%} of the hidden units {kind} for every observation",
        "large steps or large observations have pushed them out of the range in which they learn",
        "lower learning_rate, set model.normalize_observations=true, or change model.activation",
        {"dead_units": share},
    )


def support_too_narrow(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """Targets of a distributional critic lie outside its support, in two lines in a row: one line proves little."""
    values = stream.last("support_clipped", 2) if stream.has("support_clipped") else []
    if not values or min(values) <= CLIPPED_SUPPORT:
        return None
    settings: Any = config.algo_kwargs
    low, high = getattr(settings, "support_low", 0.0), getattr(settings, "support_high", 0.0)
    return Finding(
        "support_too_narrow",
        stream.env_steps,
        f"{values[-1]:.0%} of the mass of the targets lies outside the support [{low:g}, {high:g}]",
        "returns are larger than the support, and are clipped to its edge",
        "widen support_low and support_high, or lower reward_scale",
        {"support_clipped": values[-1], "support_low": low, "support_high": high},
    )
