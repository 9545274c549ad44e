"""Runs with a compiled gradient step: a small case of each algorithm."""

from __future__ import annotations

from rl_training.algorithms.common.compile.compiled_step import CompiledStep
from rl_training.runtime.workflows import TrainResult
from run_cases import CASES, Case

OWN_CASES = {
    # 21 steps of 2 envs: the last rollout is shorter, and its minibatches take the plain way.
    "ppo": Case("ppo", steps=210, num_envs=2, settings={"num_steps": 16, "minibatch_size": 8, "update_epochs": 2}),
    "dqn": Case("dqn", settings={"learning_starts": 20, "batch_size": 8, "buffer_size": 500, "prioritized": True}),
}


def case_of(algo: str) -> Case:
    """The algorithm's own case, or its first one in `run_cases`, which test_exact_resume.py demands of each."""
    return OWN_CASES.get(algo) or next(case for case in CASES.values() if case.algo == algo)


def was_compiled(result: TrainResult) -> bool:
    parts = vars(result.agent.learner).values()
    return any(isinstance(part, CompiledStep) and part.was_used for part in parts)
