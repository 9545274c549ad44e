"""Matrix products by oneDNN in compiled steps: the same sums in another order, and only where they were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms import get_learner
from rl_training.algorithms.common.compile import compiled_step
from rl_training.algorithms.common.compile.compiled_step import CompiledStep
from rl_training.algorithms.common.compile.products import (
    NARROWEST,
    fast_product,
    has_fast_products,
    use_fast_products,
)
from rl_training.algorithms.common.compile.trace import trace
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.replay_learner import ActorCriticLearner
from rl_training.experiment.registry import algorithm_names

ROWS, WIDE, NARROW = 96, 80, NARROWEST - 1
needs_them = pytest.mark.skipif(not has_fast_products(), reason="torch has no oneDNN here")


@dataclass
class Rows:
    obs: Tensor

    def __len__(self) -> int:
        return len(self.obs)


class Step:
    """A gradient step of a network with a narrow, a wide and a split layer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(NARROW, WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE), nn.ReLU())
        self.last = nn.Linear(2 * WIDE, WIDE)
        self.optimizer = Optimizer([*self.network.parameters(), *self.last.parameters()])
        self.optimizer.set_learning_rate(1e-3)

    def step(self, batch: Rows) -> tuple[dict[str, Tensor], Tensor]:
        hidden = self.network(batch.obs)
        left, right = self.last.weight.split(WIDE, 1)  # their columns are not contiguous
        values = F.linear(hidden, left, self.last.bias) + F.linear(hidden.detach(), right)
        loss = values.square().mean()
        return {"loss": loss.detach(), "norm": self.optimizer.step(loss)}, values.detach()


def rows() -> Rows:
    return Rows(torch.randn(ROWS, NARROW, generator=torch.Generator().manual_seed(1)))


@needs_them
def test_a_fast_product_is_the_product() -> None:
    left, right = torch.randn(2, ROWS, WIDE, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(fast_product(left, right), left @ right.T)


@needs_them
def test_only_wide_products_in_float32_are_replaced() -> None:
    count = lambda step: use_fast_products(trace(step, [rows()]).graph)  # noqa: E731
    # Forward: three. Backward: weights of three, inputs of two. Never the narrow first layer.
    assert count(Step().step) == 8
    weight = torch.randn(WIDE, NARROW)
    assert count(lambda batch: batch.obs @ weight.T) == 0
    wide = torch.randn(ROWS, WIDE, dtype=torch.float64)
    assert count(lambda batch: (wide @ wide.T) + batch.obs[:1, :1]) == 0


@needs_them
def test_a_compiled_step_with_fast_products_learns_what_a_plain_one_learns() -> None:
    plain, fast = Step(), Step()
    compiled = CompiledStep(fast.step, rows=ROWS, fast_products=True)
    for _ in range(3):
        (expected, values), (metrics, fast_values) = plain.step(rows()), compiled(rows())
    assert compiled.was_used and compiled.fast_products
    torch.testing.assert_close(fast_values, values, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(metrics, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fast.optimizer.vector, plain.optimizer.vector, rtol=1e-3, atol=1e-4)


@needs_them
def test_no_product_takes_the_slow_path_of_onednn(capfd: pytest.CaptureFixture[str]) -> None:
    compiled = CompiledStep(Step().step, rows=ROWS, fast_products=True)
    compiled(rows())
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        compiled(rows())
    calls = [line for line in capfd.readouterr().out.splitlines() if ",exec," in line]
    products = [line for line in calls if ",inner_product," in line or ",matmul," in line]
    assert len(products) == 8 and not [line for line in calls if ",ref" in line], calls


def test_a_torch_that_cannot_compile_them_compiles_the_usual_products(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(graph: Any) -> int:
        raise AttributeError("moved")

    monkeypatch.setattr(compiled_step, "use_fast_products", fail)
    weight = torch.ones(NARROW, 2)
    step = CompiledStep(lambda batch: ({"sum": (batch.obs @ weight).sum()}, weight), rows=ROWS, fast_products=True)
    metrics, _ = step(rows())
    torch.testing.assert_close(metrics["sum"], 2 * rows().obs.sum(), rtol=1e-4, atol=1e-3)
    assert not step.fast_products and step.was_used


def test_learners_with_actor_and_critics_ask_for_them() -> None:
    fast = {name for name in algorithm_names() if get_learner(name).fast_products}
    assert fast == {name for name in algorithm_names() if issubclass(get_learner(name), ActorCriticLearner)}
    assert {"sac", "td3", "ddpg", "d4pg", "mpo", "tqc", "crossq", "redq", "td7"} <= fast
