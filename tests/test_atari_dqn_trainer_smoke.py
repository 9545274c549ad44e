"""train_dqn on Atari: frames in the replay buffer, checkpoints that are evaluated and asked, clear refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_helpers import call
from rl_training.config.loading import load_config
from rl_training.data.frame_store import FrameStore
from rl_training.envs.factory import make_env, make_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError, EnvError
from rl_training.experiment.registry import get_spec
from rl_training.models.cnn.impala_resnet import ImpalaResNet
from rl_training.models.cnn.nature import NatureCNN
from rl_training.runtime.agent import restore_learner
from rl_training.runtime.dqn_trainer import train_dqn
from rl_training.runtime.loops import ReplayLoop
from rl_training.runtime.setup.loop_setup import build_loop
from rl_training.runtime.workflows import TrainResult, agent_of, evaluate_checkpoint, predict
from rl_training.storage.checkpoints import load_checkpoint, read_segment, replay_directory

TINY: dict[str, Any] = {
    "total_timesteps": 64,
    "num_envs": 2,
    "log_every": 32,
    "eval_episodes": 1,
    "learning_starts": 16,
    "batch_size": 4,
    "buffer_size": 500,
    "train_frequency": 8,
    "env_kwargs.atari.max_frames": 120,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    folder = str(tmp_path_factory.mktemp("atari"))
    return train_dqn(load_config("dqn/breakout_atari", TINY | {"output_dir": folder}), show=False)


def test_a_preset_trains_and_writes_a_checkpoint(trained: TrainResult) -> None:
    assert trained.env_steps == 64
    assert trained.agent.learner.updates == (64 - 16) // 8
    assert isinstance(trained.agent.learner.model.encoder, NatureCNN)
    assert trained.evaluation is not None and trained.evaluation.lengths == (pytest.approx(30, abs=9),)


def test_replay_rows_of_a_checkpoint_hold_every_frame_once(trained: TrainResult) -> None:
    checkpoint = load_checkpoint(trained.checkpoint)
    (segment,) = checkpoint.segments
    rows = read_segment(replay_directory(checkpoint.path), segment)
    assert rows["rewards"].shape == (32, 2)
    assert rows["frames"].shape[1:] == (1, 44, 44) and rows["frames"].dtype == np.uint8
    # One per step, and a whole stack for each of the few starts.
    assert 64 < len(rows["frames"]) <= 64 + 2 * 4 * 4


def test_a_checkpoint_is_evaluated_and_asked_without_a_word_about_its_encoder(trained: TrainResult) -> None:
    result = evaluate_checkpoint(trained.checkpoint, episodes=2)
    assert len(result.returns) == 2 and max(result.lengths) <= 30
    env = make_env("ALE/Breakout-v5", load_checkpoint(trained.checkpoint).config["env_kwargs"])
    image, _ = env.reset(seed=0)
    action = predict(trained.checkpoint, image)
    assert env.action_space.contains(action)
    assert isinstance(agent_of(trained.checkpoint).learner.model.encoder, NatureCNN)
    np.testing.assert_array_equal(predict(trained.checkpoint, np.stack([image] * 3)), [action] * 3)


def test_an_image_of_another_shape_is_told_what_was_expected(trained: TrainResult) -> None:
    with pytest.raises(EnvError, match=r"has shape \(44, 44, 4\): expected \(4, 44, 44\)"):
        predict(trained.checkpoint, np.zeros((44, 44, 4), np.uint8))


def test_a_checkpoint_of_another_encoder_is_refused_by_name(trained: TrainResult) -> None:
    checkpoint = load_checkpoint(trained.checkpoint)
    config = load_config(checkpoint.config, {"model.encoder": "impala"})
    agent = trained.agent
    learner = get_spec("dqn").learner(agent.spaces, config, agent.learner.streams)
    assert isinstance(learner.model.encoder, ImpalaResNet)
    with pytest.raises(CheckpointError, match=r"its encoder is nature, but this model has impala: .*model\.encoder"):
        restore_learner(learner, checkpoint)


def test_the_command_line_trains_evaluates_and_refuses_raw_frames(tmp_path: Path) -> None:
    settings = TINY | {"total_timesteps": 32, "run_name": "pixels", "env_kwargs.atari.image_size": 36}
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = ["train", "--config", "configs/dqn/breakout_atari.yaml", "--output-dir", str(tmp_path)]
    outcome = call(*command, *options)
    assert outcome.code == 0, outcome.err
    assert call("eval", str(tmp_path / "pixels"), "--episodes", "1").code == 0
    raw = call(*command, *options, "--set", "env_kwargs.atari=false")
    assert raw.code == 3
    assert "ALE/Breakout-v5 has raw Atari frames (210, 160, 3)" in raw.err


def test_the_loop_keeps_frames_and_not_stacks(tmp_path: Path) -> None:
    config = load_config("dqn/pong_atari", TINY | {"output_dir": str(tmp_path), "total_timesteps": 24})
    envs = make_vector_env(config.env_id, config.num_envs, env_kwargs=config.env_kwargs)
    loop = build_loop(config, envs, Spaces(envs.single_observation_space, envs.single_action_space))
    assert isinstance(loop, ReplayLoop) and isinstance(loop.buffer.observations, FrameStore)
    assert loop.buffer.observations.stack == 4
