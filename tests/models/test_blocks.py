"""Blocks of networks against torch's own layers, hand-made numbers and their forms in NumPy."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from on_policy_helpers import SPACES, model_config
from rl_training.errors import ConfigError
from rl_training.models.layers.blocks import ACTIVATIONS, AvgL1Norm, BatchNorm, Dropout, SimbaBlock, run
from rl_training.models.layers.initialization import initialize_layer
from rl_training.models.mlp import acting_forward, mlp, numpy_forward
from rl_training.models.mlp_continuous import MLPSquashedGaussianActorCritic
from rl_training.models.mlp_ppg import MLPPPGModel


def rows(*shape: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + 1.0


def moved(network: nn.Module) -> Any:
    """With parameters and statistics that are not those of the beginning."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for tensor in [*network.parameters(), *network.buffers()]:
            tensor.add_(0.5 * torch.rand(tensor.shape, generator=generator))
    return network


BLOCKS: dict[str, nn.Module] = {
    **{name: activation() for name, activation in ACTIVATIONS.items()},
    "layer_norm": nn.LayerNorm(6),
    "batch_norm": BatchNorm(6),
    "avg_l1_norm": AvgL1Norm(),
    "dropout": Dropout(0.5),
    "simba": SimbaBlock(6, "silu"),
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("place", ["first", "behind a layer", "twice"])
def test_a_block_acts_in_numpy_as_in_torch_and_leaves_its_input(name: str, place: str) -> None:
    block = moved(copy.deepcopy(BLOCKS[name]))
    layers = {"first": [block], "behind a layer": [nn.Linear(6, 6), block, nn.Linear(6, 2)], "twice": [block, block]}
    network = nn.Sequential(*layers[place])
    x = rows(9, 6)
    x[0], x[1, 0] = -200.0, 100.0  # where exp overflows
    before = x.numpy().copy()
    with torch.no_grad():
        expected = run(network, x).numpy()
    found = numpy_forward(network)(x.numpy())
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(x.numpy(), before)
    assert found.dtype == np.float32


def test_acting_follows_statistics_and_weights_that_change_in_place() -> None:
    network = nn.Sequential(nn.Linear(3, 4), BatchNorm(4), nn.LayerNorm(4), nn.ELU(), nn.Linear(4, 1))
    acting = acting_forward(network)
    first = acting(rows(5, 3).numpy())
    run(network, rows(50, 3, seed=1), batch_statistics=True)
    with torch.no_grad():
        assert not np.allclose(acting(rows(5, 3).numpy()), first)
        moved(network[2])
        np.testing.assert_allclose(acting(rows(5, 3).numpy()), run(network, rows(5, 3)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 6), (3, 5, 6)])
def test_batch_norm_equals_that_of_torch_in_both_modes(shape: tuple[int, ...]) -> None:
    ours = BatchNorm(6, momentum=0.1, epsilon=1e-5).double()
    theirs = nn.BatchNorm1d(6, momentum=0.1, eps=1e-5).double()
    with torch.no_grad():
        for parameter in (*ours.parameters(), *theirs.parameters()):
            parameter.copy_(torch.arange(6.0) - 2)
    for seed in range(4):
        x = rows(*shape, seed=seed).double().requires_grad_()
        y = x.detach().reshape(-1, 6).clone().requires_grad_()
        found, expected = ours(x, batch_statistics=True), theirs(y)
        torch.testing.assert_close(found.reshape(-1, 6), expected, rtol=1e-12, atol=1e-12)
        found.pow(3).sum().backward()
        expected.pow(3).sum().backward()
        assert x.grad is not None and y.grad is not None
        torch.testing.assert_close(x.grad.reshape(-1, 6), y.grad, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(ours.running_mean, theirs.running_mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(ours.running_variance, theirs.running_var, rtol=1e-12, atol=1e-12)
    theirs.eval()
    frozen = copy.deepcopy(ours.state_dict())
    x = rows(*shape, seed=9).double()
    torch.testing.assert_close(ours(x, batch_statistics=False).reshape(-1, 6), theirs(x.reshape(-1, 6)))
    torch.testing.assert_close(ours.state_dict(), frozen)  # running statistics are only read


def test_batch_norm_divides_by_the_biased_deviation() -> None:
    """[0, 2, 4] becomes +-1.22452 with CrossQ's epsilon; the unbiased deviation would give +-0.99988."""
    found = BatchNorm(1)(torch.tensor([[0.0], [2.0], [4.0]]), batch_statistics=True)
    torch.testing.assert_close(found.detach().ravel(), torch.tensor([-1.22452, 0.0, 1.22452]), rtol=0, atol=1e-5)


def test_the_mode_of_batch_norm_has_no_default_and_does_not_hang_on_train_and_eval() -> None:
    norm = BatchNorm(2)
    with pytest.raises(TypeError, match="batch_statistics"):
        norm(rows(4, 2))
    x = rows(4, 2)
    torch.testing.assert_close(norm.eval()(x, batch_statistics=True), BatchNorm(2).train()(x, batch_statistics=True))


def test_batch_norm_refuses_a_batch_of_one_row() -> None:
    with pytest.raises(ConfigError, match=r"^algo_kwargs.batch_size: batch norm needs at least 2 rows.* use a larger"):
        run(nn.Sequential(BatchNorm(3)), rows(1, 3), batch_statistics=True)
    run(nn.Sequential(BatchNorm(3)), rows(1, 3))  # acting


def test_avg_l1_norm_by_hand() -> None:
    torch.testing.assert_close(AvgL1Norm()(torch.tensor([[1.0, -3.0, 2.0]])), torch.tensor([[0.5, -1.5, 1.0]]))
    assert not AvgL1Norm()(torch.zeros(2, 3)).any()


def test_dropout_scales_what_its_mask_keeps_and_is_the_identity_without_one() -> None:
    x, mask = torch.tensor([[1.0, 2.0, -4.0]]), torch.tensor([[1.0, 0.0, 1.0]])
    network = nn.Sequential(Dropout(0.2), nn.ReLU(), Dropout(0.5))
    torch.testing.assert_close(run(network, x), torch.tensor([[1.0, 2.0, 0.0]]))
    torch.testing.assert_close(run(network, x, masks=[mask, mask]), torch.tensor([[2.5, 0.0, 0.0]]))


@pytest.mark.parametrize(("count", "word"), [(0, "fewer"), (1, "fewer"), (3, "more")])
def test_the_number_of_masks_is_that_of_the_dropout_layers(count: int, word: str) -> None:
    network = nn.Sequential(Dropout(0.2), Dropout(0.5))
    with pytest.raises(ValueError, match=f"{word} masks than Dropout"):
        run(network, rows(2, 3), masks=[torch.ones(2, 3)] * count)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_dropout_refuses_a_rate_that_is_no_probability(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"dropout: .* expected number >= 0 and < 1"):
        Dropout(rate)


def test_the_simba_network_is_the_one_of_the_figure() -> None:
    network = mlp(3, 2, model_config(hidden_sizes=(5, 5), blocks="simba", activation="relu"))
    first, one, two, norm, last = network
    assert [type(layer) for layer in network] == [nn.Linear, SimbaBlock, SimbaBlock, nn.LayerNorm, nn.Linear]
    x = h = first(rows(4, 3))
    for block in (one, two):
        layer_norm, wide, _, narrow = block.branch
        assert (wide.in_features, wide.out_features, narrow.out_features) == (5, 20, 5)
        h = h + narrow(torch.relu(wide(layer_norm(h))))
    torch.testing.assert_close(network(rows(4, 3)), last(norm(h)))
    assert not torch.allclose(h, x)


def test_layer_norm_stands_between_every_hidden_layer_and_its_activation() -> None:
    network = mlp(3, 2, model_config(hidden_sizes=(5, 4), layer_norm=True, activation="mish"))
    kinds = [nn.Linear, nn.LayerNorm, nn.Mish, nn.Linear, nn.LayerNorm, nn.Mish, nn.Linear]
    assert len(network) == len(kinds)
    assert all(isinstance(layer, kind) for layer, kind in zip(network, kinds, strict=True))


def test_actor_and_critic_have_their_own_networks() -> None:
    critic = {"hidden_sizes": (7, 7, 7), "activation": "elu", "blocks": "simba"}
    model = MLPSquashedGaussianActorCritic(SPACES["box"], model_config(critic=critic))
    assert sum(isinstance(layer, SimbaBlock) for layer in model.policy_network) == 0
    for network in model.critics:
        assert sum(isinstance(layer, SimbaBlock) for layer in network) == 3
        assert any(isinstance(layer, nn.ELU) for layer in network.modules())
    ppg = MLPPPGModel(SPACES["box"], model_config(critic={"layer_norm": True, "hidden_sizes": (9, 5)}))
    assert [type(layer) for layer in ppg.value_head] == [nn.Linear, nn.LayerNorm, nn.Tanh, nn.Linear]
    assert ppg.value_head[0].out_features == 5 and not any(isinstance(layer, nn.LayerNorm) for layer in ppg.trunk)


@pytest.mark.parametrize("method", ["orthogonal", "xavier", "kaiming", "torch"])
def test_a_layer_starts_with_the_deviation_that_its_method_promises(method: str) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(400, 400)
    start = layer.weight.detach().clone()
    initialize_layer(layer, method, 1.5)
    expected = {"torch": 1 / math.sqrt(3 * 400)}.get(method, 1.5 / math.sqrt(400))
    assert float(layer.weight.detach().std()) == pytest.approx(expected, rel=0.02)
    assert torch.equal(layer.weight, start) == (method == "torch")
    assert bool(layer.bias.any()) == (method == "torch")
