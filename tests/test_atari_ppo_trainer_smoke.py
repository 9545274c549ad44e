"""train_ppo on Atari: a shared encoder, raw scores of whole games, checkpoints that are evaluated and asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from painted_env import Painted
from rl_training import PPO
from rl_training.config.loading import load_config
from rl_training.envs.factory import make_env
from rl_training.experiment.registry import ALGORITHMS, get_config_class, get_spec
from rl_training.models.cnn.nature import NatureCNN
from rl_training.runtime.ppo_trainer import train_ppo
from rl_training.runtime.workflows import TrainResult, agent_of, evaluate_checkpoint, predict, train
from rl_training.storage.checkpoints import load_checkpoint
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import tiny_config

TINY: dict[str, Any] = {
    "total_timesteps": 96,
    "num_envs": 2,
    "log_every": 16,
    "eval_episodes": 1,
    "num_steps": 16,
    "minibatch_size": 16,
    "update_epochs": 2,
    "env_kwargs.atari.max_frames": 120,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    folder = str(tmp_path_factory.mktemp("atari"))
    return train_ppo(load_config("ppo/breakout_atari", TINY | {"output_dir": folder}), show=False)


def test_a_preset_trains_and_writes_a_checkpoint(trained: TrainResult) -> None:
    assert trained.env_steps == 96
    assert trained.agent.learner.updates == 3
    assert isinstance(trained.agent.learner.model.encoder, NatureCNN)
    lines = [line for line in read_metrics(trained.run_dir) if line["kind"] == "train"]
    assert all(np.isfinite([line["loss"], line["entropy"], line["grad_norm"]]).all() for line in lines)
    assert lines[-1]["episodes"] == 2  # games of 30 steps, though lives may have been lost in them


def test_a_checkpoint_is_evaluated_and_asked_without_a_word_about_its_encoder(trained: TrainResult) -> None:
    result = evaluate_checkpoint(trained.checkpoint, episodes=2)
    assert len(result.returns) == 2 and max(result.lengths) <= 30
    env = make_env("ALE/Breakout-v5", load_checkpoint(trained.checkpoint).config["env_kwargs"])
    image, _ = env.reset(seed=0)
    assert env.action_space.contains(predict(trained.checkpoint, image))
    assert isinstance(agent_of(trained.checkpoint).learner.model.encoder, NatureCNN)


def test_another_game_is_prepared_in_the_same_way(trained: TrainResult) -> None:
    """Breakout and Pong differ in their actions; a v4 id of the same game does not."""
    result = evaluate_checkpoint(trained.checkpoint, episodes=1, env="BreakoutNoFrameskip-v4")
    assert result.lengths[0] <= 30


def test_the_managed_class_trains_on_pixels_and_comes_back(tmp_path: Path) -> None:
    settings = {**TINY, "total_timesteps": 32, "env_kwargs.atari.image_size": 36, "output_dir": str(tmp_path)}
    ppo = PPO(preset="ppo/pong_atari", **settings).learn()
    saved = ppo.save(tmp_path / "agent")
    image, _ = make_env("ALE/Pong-v5", {"atari": {"image_size": 36}}).reset(seed=0)
    assert PPO.load(saved).predict(image)[0] == ppo.predict(image)[0]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if "discrete" in get_spec(name).actions])
def test_every_discrete_algorithm_trains_on_images(algorithm: str, tmp_path: Path) -> None:
    """An env that is not Atari: small pictures, grey and stacked by the options."""
    pixels = {"image": {"grayscale": True, "stack": 2}, "shape": [40, 36, 3]}
    settings = {"env_id": "callable:Painted", "env_kwargs": pixels, "encoder_size": 8, "num_envs": 2}
    settings |= {"total_timesteps": 32} if "learning_starts" in get_config_class(algorithm).model_fields else {}
    result = train(tiny_config(algorithm, tmp_path, **settings), env=Painted, show=False)
    assert result.agent.learner.updates > 0
    assert result.evaluation is not None and result.evaluation.returns == (8.0,)
    assert result.agent.spaces.observation_shape == (2, 40, 36)
