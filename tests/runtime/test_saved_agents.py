"""What a saved agent is good for: it acts on any device, starts a new run, and is refused when its parts disagree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.api import DQN, PPO
from rl_training.config.loading import load_config
from rl_training.errors import CheckpointError
from rl_training.runtime.workflows import agent_of, evaluate_checkpoint
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


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_loaded_agent_explores_as_much_as_when_it_was_saved(share: float, tmp_path: Path) -> None:
    """Its schedule uses the env steps of its checkpoint, not those of a new run."""
    exploration = {"start": 1.0, "end": 0.0, "over": 200 if share == 0.0 else 400}
    settings = {"exploration": exploration, "learning_starts": 20, "batch_size": 8, "buffer_size": 1000, **TINY}
    trained = DQN("CartPole-v1", output_dir=str(tmp_path), **settings).learn(200, show=False)
    agent = agent_of(trained.save(tmp_path / "agent"))
    assert agent.learner.env_steps == 200
    observations = np.zeros((2000, 4), np.float32)
    greedy, _ = agent.act(observations)
    sampled, _ = agent.act(observations, deterministic=False)
    assert np.mean(greedy != sampled) == pytest.approx(share / 2, abs=0.05)
