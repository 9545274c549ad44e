"""Every algorithm learns, saves, loads and acts with other layers, blocks and first weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from replay_helpers import BOX, make_batch, make_learner
from rl_training.algorithms.common.compile.compiled_step import CompiledStep
from rl_training.config.algorithm_table import get_config_class
from rl_training.errors import ConfigError
from rl_training.models.layers.blocks import SimbaBlock
from rl_training.runtime.agent import Agent
from rl_training.storage.checkpoints import load_checkpoint
from tiny_runs import EVERY_ALGORITHM, train_tiny

SIMBA: dict[str, Any] = {"hidden_sizes": (8, 8), "blocks": "simba", "activation": "relu", "initialization": "kaiming"}
# Whose layers are multiplied with fractions, noisy, or have batch norm.
WITHOUT_BLOCKS = {"iqn", "rainbow", "crossq"}


@EVERY_ALGORITHM
def test_every_algorithm_trains_with_residual_blocks_and_another_critic(algorithm: str, tmp_path: Path) -> None:
    settings = dict(SIMBA)
    if algorithm in WITHOUT_BLOCKS:
        with pytest.raises(ConfigError, match=f"model.blocks: {algorithm} has no simba blocks; set model.blocks=mlp"):
            train_tiny(algorithm, tmp_path, **settings)
        return
    if algorithm == "acktr":
        with pytest.raises(ConfigError, match=r"acktr has no layer norm, because K-FAC knows"):
            train_tiny(algorithm, tmp_path, **settings)
        return
    if get_config_class(algorithm).separate_critic:
        settings["critic"] = {"blocks": "mlp", "layer_norm": True, "activation": "gelu"}
    result = train_tiny(algorithm, tmp_path, **settings)
    model = result.agent.learner.model
    kinds = {type(layer) for layer in model.modules()}
    assert SimbaBlock in kinds and nn.LayerNorm in kinds
    assert (nn.GELU in kinds) == get_config_class(algorithm).separate_critic
    obs = np.zeros((2, *result.agent.spaces.observation_shape), np.float32)
    loaded = Agent.load(load_checkpoint(result.checkpoint))
    np.testing.assert_array_equal(loaded.act(obs)[0], result.agent.act(obs)[0])


@pytest.mark.parametrize("algorithm", ["sac", "td3", "ddpg", "d4pg", "mpo", "tqc", "td7", "redq"])
@pytest.mark.parametrize("critic", [{"layer_norm": True}, {"blocks": "simba"}], ids=["layer norm", "simba"])
def test_only_the_critics_and_their_targets_get_their_own_layers_and_learn(
    algorithm: str, critic: dict[str, Any]
) -> None:
    kind = SimbaBlock if "blocks" in critic else nn.LayerNorm
    learner = make_learner(algorithm, BOX, model={"critic": critic})
    models = [learner.model, learner.target.module]
    for model in models:
        critics = model.critic if algorithm == "d4pg" else model.critics
        assert any(isinstance(layer, kind) for layer in critics.modules())
        assert not any(isinstance(layer, kind) for layer in model.policy_network.modules())
    norms = [layer for layer in learner.model.modules() if isinstance(layer, nn.LayerNorm)]
    before = [norm.weight.detach().clone() for norm in norms]
    for number in range(2):
        assert all(value.isfinite() for value in learner.update(make_batch(BOX, 16, number)).values())
    trained = {id(parameter) for parameter in learner.critic_optimizer.parameters}
    moved = [not (norm.weight == old).all() for norm, old in zip(norms, before, strict=True)]
    assert moved == [id(norm.weight) in trained for norm in norms] and any(moved)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sac", "ppo"])
def test_blocks_compile_and_learn_the_same(algorithm: str, tmp_path: Path) -> None:
    settings = {**SIMBA, "critic": {"blocks": "mlp", "layer_norm": True, "activation": "elu"}}
    if algorithm == "sac":
        settings["weight_decay"] = 0.1
    plain, compiled = (
        train_tiny(algorithm, tmp_path / choice, compile=choice, **settings).agent.learner for choice in ("off", "on")
    )
    assert any(isinstance(part, CompiledStep) and part.was_used for part in vars(compiled).values())
    for one, two in zip(plain.model.parameters(), compiled.model.parameters(), strict=True):
        np.testing.assert_allclose(one.detach(), two.detach(), rtol=1e-3, atol=1e-4)
