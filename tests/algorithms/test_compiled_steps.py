"""Compiled gradient steps: the same learning as the plain ones, and the same exactness when a run is resumed."""

from __future__ import annotations

import copy
import doctest
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from compiled_cases import compiled_functions
from rl_training.algorithms.common.compile.compiled_step import COMPILING, COMPILING_ANOTHER, CompiledStep, can_compile
from rl_training.algorithms.common.compile.trace import trace
from rl_training.algorithms.common.learner import UpdateResult
from rl_training.config.base import Schedule
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.registry import algorithm_names, get_config_class
from rl_training.runtime.auto_settings import compile_setting_on_resume, resolve_compile
from rl_training.runtime.compile_gain import planned_gradient_steps
from rl_training.runtime.loops import Loop
from rl_training.runtime.setup.loop_setup import build_loop
from rl_training.runtime.setup.run_envs import training_envs
from tiny_runs import tiny_config

COMPILABLE = [name for name in algorithm_names() if get_config_class(name).compilable]
# One of each kind in every run of the tests: minibatches of rollouts, replay, several optimizers in one graph.
QUICK = ("ppo", "dqn", "sac")
EVERY_COMPILABLE = pytest.mark.parametrize(
    "algo", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in COMPILABLE]
)


# One graph, but for the step that leaves the actor out of some rounds.
GRAPHS = {"td3": 2, "apex_td3": 2}


def moving_schedules(algo: str) -> dict[str, Any]:
    """Every schedule that the algorithm has, changing with each update: a number that is baked into a graph shows."""
    fields = get_config_class(algo).model_fields
    names = [name for name, field in fields.items() if isinstance(field.default, Schedule)]
    return {name: {"start": 2e-2, "end": 1e-3} if "rate" in name else {"start": 0.4, "end": 0.1} for name in names}


def loop_of(config: TrainConfig) -> Loop:
    with training_envs(config, None) as envs:
        return build_loop(config, envs, Spaces(envs.single_observation_space, envs.single_action_space))


def updates_of(config: TrainConfig) -> list[tuple[int, Any, UpdateResult]]:
    """Every update of a plain run: where it stood, what it learned from, and what it said."""
    loop = loop_of(config)
    seen: list[tuple[int, Any, UpdateResult]] = []
    plain = loop.learner.update

    def recording(batch: Any) -> UpdateResult:
        kept = copy.deepcopy(batch)
        seen.append((loop.learner.env_steps, kept, plain(batch)))
        return seen[-1][2]

    loop.learner.update = recording  # type: ignore[method-assign]
    for _ in loop:
        pass
    seen.append((0, loop.learner.state_dict(), UpdateResult({})))
    return seen


@EVERY_COMPILABLE
def test_compiled_updates_learn_what_plain_ones_learn_while_schedules_move(algo: str, tmp_path: Path) -> None:
    config = tiny_config(algo, tmp_path, compile="off", num_envs=2, total_timesteps=96, **moving_schedules(algo))
    *updates, (_, state, _) = updates_of(config)
    assert len({env_steps for env_steps, _, _ in updates}) > 2
    learner = loop_of(load_config(config, {"compile": "on"})).learner
    functions = compiled_functions(learner)
    assert functions
    for env_steps, batch, expected in updates:
        learner.clock.env_steps = env_steps
        result = learner.update(batch)
        assert set(result) == set(expected)
        for name in expected:
            torch.testing.assert_close(result[name], expected[name], rtol=1e-3, atol=1e-4, msg=f"{algo}: {name}")
    graphs = [len(each._graphs) if isinstance(each, CompiledStep) else int(each.was_used) for each in functions]
    assert sum(graphs) == GRAPHS.get(algo, 1), "nothing but a switch compiles anew"
    for parts in (found := learner.state_dict()["parts"], state["parts"]):
        del parts["streams"]  # acting drew from some of them
    assert_close(found, state["parts"])


def assert_close(found: Any, expected: Any, path: str = "state") -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for name in expected:
            assert_close(found[name], expected[name], f"{path}.{name}")
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4, msg=path)


def test_only_batches_of_the_usual_size_are_compiled() -> None:
    calls: list[str] = []
    step = CompiledStep(lambda batch: calls.append("plain"), rows=4)
    step._graphs[()] = lambda batch: calls.append("compiled")
    for rows in (4, 3, 4, 5):
        step(torch.zeros(rows))
    assert calls == ["compiled", "plain", "compiled", "plain"]


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"algo": "dqn", "algo_kwargs": {"train_frequency": 4, "learning_starts": 1000}}, 24_750),
        ({"algo": "dqn", "algo_kwargs": {"train_frequency": 8, "gradient_steps": -1, "learning_starts": 0}}, 100_000),
        ({"algo": "ppo", "algo_kwargs": {"minibatch_size": 100, "update_epochs": 5}}, 5_000),
        ({"algo": "a2c", "num_envs": 8, "algo_kwargs": {"num_steps": 5}}, 2_500),
    ],
)
def test_planned_gradient_steps(settings: dict[str, Any], steps: int) -> None:
    config = load_config({"env_id": "CartPole-v1", "total_timesteps": 100_000, **settings})
    assert planned_gradient_steps(config) == steps


def test_auto_compiles_runs_that_are_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    long, short = (
        load_config({"algo": "dqn", "env_id": "CartPole-v1", "total_timesteps": steps}, {"train_frequency": 1})
        for steps in (1_000_000, 10_000)
    )
    assert resolve_compile(long, "cpu") == "on"
    assert resolve_compile(long, "cuda") == "off"
    assert resolve_compile(short, "cpu") == "off"
    assert resolve_compile(load_config(long, {"compile": "off"}), "cpu") == "off"
    monkeypatch.setattr("rl_training.runtime.auto_settings.can_compile", lambda: False)
    assert resolve_compile(long, "cpu") == "off"
    with pytest.raises(ConfigError, match=r"compile: needs a C\+\+ compiler such as g\+\+, or use compile=off"):
        resolve_compile(load_config(long, {"compile": "on"}), "cpu")


def test_an_algorithm_without_a_step_to_compile_says_so() -> None:
    config = load_config({"algo": "trpo", "env_id": "CartPole-v1", "compile": "on"})
    with pytest.raises(ConfigError, match="compile: trpo has no step to compile, use compile=off"):
        resolve_compile(config, "cpu")


def test_a_step_that_may_stop_in_its_middle_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.runtime.compile_gain.Forecast.pays", True)
    config = tiny_config("ppo", tmp_path, target_kl=0.01)
    assert resolve_compile(load_config(config, {"target_kl": None}), "cpu") == "on"
    assert resolve_compile(config, "cpu") == "off"
    forced = load_config(config, {"compile": "on"})
    with pytest.raises(ConfigError, match=r"compile: ppo with algo_kwargs\.target_kl has no step to compile, use comp"):
        resolve_compile(forced, "cpu")
    # Runs of earlier versions say `on` where nothing was compiled: they go on as they were.
    assert compile_setting_on_resume(forced).compile == "off"
    assert compiled_functions(loop_of(forced).learner) == []


def test_there_is_a_compiler_here() -> None:
    assert can_compile(), "the tests above need g++"


class SharedVector:
    """A weight that is a view of the vector an optimizer changes, read again after the change."""

    def __init__(self) -> None:
        self.vector = torch.tensor([1.0, 2.0, 3.0, 4.0])
        self.weight = torch.nn.Parameter(self.vector[1:3])
        self.strided = self.vector[::2]

    def step(self, batch: Rows, rate: torch.Tensor, twice: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        loss = (batch.rows @ self.weight).square().mean()
        (gradient,) = torch.autograd.grad(loss, [self.weight])
        with torch.no_grad():
            self.vector[1:3].sub_(rate * gradient * (2 if twice else 1))
        return {"loss": loss.detach()}, (batch.rows @ self.weight.detach()) + self.strided.sum()


@dataclass
class Rows:
    rows: torch.Tensor

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class Batch(Rows):
    names: torch.Tensor


def test_a_traced_step_sees_its_own_changes_through_every_view() -> None:
    plain, compiled = SharedVector(), SharedVector()
    step = CompiledStep(compiled.step, rows=3)
    for number, twice in enumerate((False, True, False)):
        batch = Batch(torch.arange(6.0).reshape(3, 2) + number, torch.arange(3))
        rate = torch.tensor(0.01 * (number + 1))
        expected, found = plain.step(batch, rate, twice), step(batch, rate, twice)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(compiled.vector, plain.vector)
        torch.testing.assert_close(compiled.weight, plain.weight)
    assert len(step._graphs) == 2, "one for each value of the switch"


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Graphs run as they are; here is the number of compiler threads of each compilation, in an empty store."""
    import torch._inductor.config as settings

    started: list[int] = []

    def compiler(graph: Any, *_: Any) -> Any:
        started.append(settings.compile_threads)
        return torch.no_grad()(lambda tensors: graph(*tensors))

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("rl_training.algorithms.common.compile.compiler._compile_quickly", compiler)
    return started


def test_a_batch_may_have_one_tensor_only(compilations: list[int]) -> None:
    plain, compiled = SharedVector(), SharedVector()
    step = CompiledStep(compiled.step, rows=2)
    for number in range(2):
        batch = Rows(torch.arange(4.0).reshape(2, 2) + number)
        found = step(batch, torch.tensor(0.01), False)
        torch.testing.assert_close(found, plain.step(batch, torch.tensor(0.01), False))
    torch.testing.assert_close(compiled.vector, plain.vector)
    assert len(compilations) == 1


def test_a_softmax_with_a_temperature_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchInductor writes this one anew, and MPO has it: the temperature is a tensor."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    temperature = torch.nn.Parameter(torch.tensor([0.7]))
    step = CompiledStep(lambda batch: {"shares": (batch.rows / temperature.detach()).softmax(0)}, rows=3)
    rows = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(step(Rows(rows))["shares"], (rows / 0.7).softmax(0))


@pytest.mark.parametrize("number", [0.1, 3, None])
def test_only_a_bool_can_be_a_switch(number: Any) -> None:
    step = CompiledStep(SharedVector().step, rows=3)
    with pytest.raises(TypeError, match=r"argument 3 of a compiled step is a .*a switch must be a bool"):
        step(Batch(torch.ones(3, 2), torch.arange(3)), torch.tensor(0.1), number)
    assert not step.was_used


def test_the_compiler_has_no_pool_of_workers_and_its_settings_stay(compilations: list[int]) -> None:
    import torch._inductor.config as settings

    with settings.patch(compile_threads=3):
        CompiledStep(SharedVector().step, rows=1)(Rows(torch.ones(1, 2)), torch.tensor(0.1), False)
        assert (compilations, settings.compile_threads) == ([1], 3)


def test_tracing_leaves_the_state_as_it_was() -> None:
    owner = SharedVector()
    batch = Batch(torch.ones(3, 2), torch.arange(3))
    before = owner.vector.clone()
    traced = trace(owner.step, (batch, torch.tensor(0.1), True))
    assert torch.equal(owner.vector, before)
    assert [tensor.data_ptr() for tensor in traced.state] == [owner.vector.data_ptr()]


def test_the_example_of_a_trace_runs() -> None:
    module = sys.modules[trace.__module__]
    example = doctest.DocTestFinder().find(trace, globs=vars(module).copy())[0]
    report: list[str] = []
    assert len(example.examples) > 4
    assert doctest.DocTestRunner().run(example, out=report.append).failed == 0, "".join(report)


def test_a_step_says_that_it_is_compiled_before_the_compiler_starts(compilations: list[int]) -> None:
    said: list[tuple[str, int]] = []
    step = CompiledStep(SharedVector().step, rows=1, note=lambda line: said.append((line, len(compilations))))
    for twice in (False, False, True):
        step(Rows(torch.ones(1, 2)), torch.tensor(0.1), twice)
    step(Rows(torch.ones(2, 2)), torch.tensor(0.1), False)  # another size is not compiled
    assert (said, len(compilations)) == ([(COMPILING, 0), (COMPILING_ANOTHER, 1)], 2)


FORKS_AFTER_TRACING = """
import os, torch
from rl_training.algorithms.common.compile.trace import trace

weights = torch.ones(2)
trace(lambda rows: {"sums": rows @ weights}, [torch.ones(3, 2)])
for _ in range(2):  # here, and then in a process that is forked
    leaf = torch.ones(2, requires_grad=True)
    (leaf * 2).sum().backward()
    child = os.fork()
    if child:
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_that_is_forked_after_tracing_can_compute_gradients() -> None:
    """Actors are forked. With a build of torch for GPUs and no GPU, this fails if tracing comes before autograd."""
    done = subprocess.run([sys.executable, "-c", FORKS_AFTER_TRACING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
