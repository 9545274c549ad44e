"""What a saved agent is good for: it acts on any device, starts a new run, and is refused when its parts disagree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.api import PPO
from rl_training.config.loading import load_config
from rl_training.errors import CheckpointError
from rl_training.runtime.workflows import evaluate_checkpoint
from rl_training.storage.checkpoints import load_checkpoint

TINY: dict[str, Any] = {"hidden_sizes": (8,), "eval_episodes": 1}


def test_an_agent_trained_on_a_gpu_acts_on_the_cpu(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", output_dir=str(tmp_path), **TINY)
    agent.agent.config = agent.agent.config.model_copy(update={"device": "cuda"})
    saved = agent.save(tmp_path / "agent")
    assert load_checkpoint(saved).config["device"] == "cuda"
    assert evaluate_checkpoint(saved, episodes=1).mean_return > 0


def test_a_checkpoint_whose_parts_disagree_is_refused(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", output_dir=str(tmp_path), **TINY)
    agent.agent.config = load_config({"algo": "a2c", "env_id": "CartPole-v1"})
    with pytest.raises(CheckpointError, match="says ppo, but its config is for a2c"):
        evaluate_checkpoint(agent.save(tmp_path / "agent"), episodes=1)
