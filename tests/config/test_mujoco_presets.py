"""Each MuJoCo preset creates its environment, learns a little and is evaluated. Needs the extra mujoco."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.config.loading import load_config
from rl_training.runtime.workflows import train
from rl_training.zoo.manifest import load_manifest

SMALL = {"ppo": {"num_steps": 128}}
SMALL_REPLAY = {"learning_starts": 250, "buffer_size": 1_000}
ACTIONS = {"halfcheetah": 6, "hopper": 3, "walker2d": 6, "ant": 8}


@pytest.mark.parametrize("preset", [entry.name for entry in load_manifest("mujoco").entries])
def test_a_tiny_run_of_the_preset_works(preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes warnings to a file in the working directory
    changes: dict[str, Any] = {
        "total_timesteps": 256,
        "eval_every": 0,
        "eval_episodes": 1,
        "checkpoint_every": 0,
        "compile": "off",
    }
    changes |= {"threads": 1, "output_dir": str(tmp_path), "env_kwargs": {"max_episode_steps": 50}}
    algo, _, name = preset.partition("/")
    config = load_config(preset, changes | SMALL.get(algo, SMALL_REPLAY))
    result = train(config, show=False)
    assert result.env_steps == 256 and result.evaluation is not None
    assert result.agent.spaces.action_shape == (ACTIONS[name.partition("_")[0]],)


def test_presets_have_the_published_settings() -> None:
    """The settings of the papers and curves: scores are comparable only with the same settings."""
    for name in ("halfcheetah", "hopper"):
        sac, td3 = load_config(f"sac/{name}"), load_config(f"td3/{name}")
        for config in (sac, td3):
            assert config.total_timesteps == 1_000_000 and config.model.hidden_sizes == (256, 256)
            settings = config.algo_kwargs.model_dump()
            assert (settings["gamma"], settings["tau"], settings["batch_size"]) == (0.99, 0.005, 256)
            step_size = 1e-3 if config is sac else 3e-4  # for SAC that of the published curve, not of the paper
            assert settings["actor_learning_rate"] == settings["critic_learning_rate"] == step_size
        assert sac.algo_kwargs.model_dump()["temperature"] == "auto"
        assert td3.algo_kwargs.model_dump()["policy_delay"] == 2
        ppo = load_config(f"ppo/{name}")
        settings = ppo.algo_kwargs.model_dump()
        assert ppo.num_envs * settings["num_steps"] == 2048 and settings["minibatch_size"] == 64
        assert (settings["gamma"], settings["gae_lambda"], settings["update_epochs"]) == (0.99, 0.95, 10)
        assert settings["learning_rate"] == {"start": 3e-4, "end": 0, "over": None}
        assert settings["normalize_rewards"] and ppo.model.normalize_observations
