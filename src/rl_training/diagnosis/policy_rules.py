"""Rules about the policy: how far it moves in an update, whether it still explores, and whether it keeps its skill."""

from __future__ import annotations

from rl_training.config.train_config import TrainConfig
from rl_training.diagnosis.run_finding import Finding
from rl_training.diagnosis.stream_summary import StreamSummary

LARGE_KL, HUGE_KL = 0.1, 1.0
TINY_KL = 1e-6
LOW_ENTROPY = 0.15
STEADY = 5  # lines that a median is taken of
MOST_NOISE_EPISODES = 10  # fewer episodes per evaluation say little
# Four is too few: a run of PPO on CartPole fell from 476 to below 194 in four evaluations, and ended at 500.
FALLEN_IN_A_ROW, FALLEN_AT_THE_END = 6, 2
CLEAR_GAIN = 3.0  # standard deviations between episodes


def steps_too_large(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """The policy moves too far: a median of KL divergences, or a single one that no policy survives."""
    if not stream.has("approx_kl"):
        return None
    newest, middle = stream.newest("approx_kl") or 0.0, stream.middle("approx_kl", STEADY) or 0.0
    if newest <= HUGE_KL and middle <= LARGE_KL:
        return None
    kl = newest if newest > HUGE_KL else middle
    return Finding(
        "steps_too_large",
        stream.env_steps,
        f"one update moves the policy by a KL divergence of {kl:.2g} (healthy runs stay below {LARGE_KL:g})",
        "the steps are too large and undo what was learned",
        "lower learning_rate, about tenfold"
        + (" (or set target_kl=0.02)" if hasattr(config.algo_kwargs, "target_kl") else ""),
        {"approx_kl": kl, "learning_rate": stream.newest("learning_rate") or 0.0},
    )


def policy_stands_still(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """The policy does not move although it should: early in the run, with a learning rate near its start."""
    # With one pass over a rollout, the divergence is measured before the policy has moved.
    one_pass = getattr(config.algo_kwargs, "update_epochs", 1) < 2
    if one_pass or not stream.has("approx_kl") or stream.env_steps > config.total_timesteps / 2:
        return None
    middle, rate, first = (
        stream.middle("approx_kl", STEADY),
        stream.newest("learning_rate"),
        stream.first("learning_rate"),
    )
    if middle is None or middle >= TINY_KL or (rate is not None and first is not None and rate < first / 2):
        return None
    return Finding(
        "policy_stands_still",
        stream.env_steps,
        f"one update moves the policy by a KL divergence of only {middle:.1g}",
        "the steps are too small to learn anything in this budget",
        "raise learning_rate, about tenfold",
        {"approx_kl": middle, "learning_rate": rate or 0.0},
    )


def entropy_gone(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """A policy of discrete actions is nearly deterministic before half time, and has lost half of what it gained."""
    if not stream.has("entropy_share") or stream.env_steps > config.total_timesteps / 2:
        return None
    share, score = stream.middle("entropy_share", STEADY), stream.newest("mean_return")
    best, first = stream.highest("mean_return"), stream.first("mean_return")
    if share is None or share >= LOW_ENTROPY or score is None or best is None or first is None:
        return None
    if score >= best - abs(best - first) / 2 - 1e-9 * abs(best):
        return None
    return Finding(
        "entropy_gone",
        stream.env_steps,
        f"the entropy of the policy is {share:.1%} of its maximum before half time, at a return of {score:.4g} after "
        f"{best:.4g}",
        "it has stopped exploring before it was good",
        "raise entropy_coef (0.01 is a start) or lower learning_rate",
        {"entropy_share": share, "mean_return": score, "best_mean_return": best},
    )


def fell_from_peak(stream: StreamSummary, config: TrainConfig) -> Finding | None:
    """Evaluations lost more than half of what was gained: six in a row, or the last two of the run."""
    evaluations = stream.evaluations
    at_the_end = stream.env_steps >= 0.99 * config.total_timesteps
    needed = FALLEN_AT_THE_END if at_the_end else FALLEN_IN_A_ROW
    if not stream.is_evaluation or config.eval_episodes < MOST_NOISE_EPISODES or evaluations.count <= needed:
        return None
    # By the first evaluation a run may have learned much already; the first return of training is nearer to no skill.
    untrained = stream.first("mean_return")
    start = evaluations.first if untrained is None else min(evaluations.first, untrained)
    gained = evaluations.best - start
    newest = list(evaluations.recent)[-needed:]
    if gained <= CLEAR_GAIN * evaluations.noise or max(newest) >= evaluations.best - gained / 2:
        return None
    return Finding(
        "fell_from_peak",
        stream.env_steps,
        f"evaluations fell to {newest[-1]:.4g} after {evaluations.best:.4g} at step {evaluations.best_at:,}",
        "training undoes what it learned",
        "use the best agent, which is kept as RUN/best, and let learning_rate fall to 0 over the run",
        {"eval_mean_return": newest[-1], "best": evaluations.best, "best_env_steps": evaluations.best_at},
    )
