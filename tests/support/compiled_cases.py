"""Runs with a compiled gradient step: a small case of each algorithm."""

from __future__ import annotations

from rl_training.algorithms.common.compile.compiled_loop import CompiledEpochs
from rl_training.algorithms.common.compile.compiled_step import CompiledStep
from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.on_policy import GradientSteps
from rl_training.runtime.workflows import TrainResult
from run_cases import CASES, Case

OWN_CASES = {
    # 21 steps of 2 envs: the last rollout is shorter, and its minibatches take the plain way.
    "ppo": Case("ppo", steps=210, num_envs=2, settings={"num_steps": 16, "minibatch_size": 8, "update_epochs": 2}),
    # The cases in run_cases have minibatches of other sizes than `minibatch_size`, which are never compiled.
    "pqn": Case(
        "pqn",
        steps=210,
        num_envs=2,
        model={"layer_norm": True},
        settings={"num_steps": 16, "minibatch_size": 8, "update_epochs": 2},
    ),
    "dqn": Case("dqn", settings={"learning_starts": 20, "batch_size": 8, "buffer_size": 500, "prioritized": True}),
}


def case_of(algo: str) -> Case:
    """The algorithm's own case, or its first one in `run_cases`, which test_exact_resume.py demands of each."""
    return OWN_CASES.get(algo) or next(case for case in CASES.values() if case.algo == algo)


def was_compiled(result: TrainResult) -> bool:
    return any(function.was_used for function in compiled_functions(result.agent.learner))


def compiled_functions(learner: Learner) -> list[CompiledStep | CompiledEpochs]:
    """Everything of a learner that may be compiled, used or not."""
    functions: list[CompiledStep | CompiledEpochs] = []
    for part in vars(learner).values():
        functions += part.functions if isinstance(part, GradientSteps) else []
        functions += [part] if isinstance(part, CompiledStep) else []
    return functions
