"""Every algorithm learns, saves, loads and acts with other layers, blocks and first weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from rl_training.algorithms.common.compile.compiled_step import CompiledStep
from rl_training.config.algorithm_table import get_config_class
from rl_training.errors import ConfigError
from rl_training.models.blocks import SimbaBlock
from rl_training.runtime.agent import Agent
from rl_training.storage.checkpoints import load_checkpoint
from tiny_runs import EVERY_ALGORITHM, train_tiny

SIMBA: dict[str, Any] = {"hidden_sizes": (8, 8), "blocks": "simba", "activation": "relu", "initialization": "kaiming"}
WITHOUT_BLOCKS = {"iqn", "rainbow"}  # whose layers are multiplied with fractions, or noisy


@EVERY_ALGORITHM
def test_every_algorithm_trains_with_residual_blocks_and_another_critic(algorithm: str, tmp_path: Path) -> None:
    settings = dict(SIMBA)
    if algorithm in WITHOUT_BLOCKS:
        with pytest.raises(ConfigError, match=f"model.blocks: {algorithm} has no simba blocks; set model.blocks=mlp"):
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
