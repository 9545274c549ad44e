"""What the tests of the settings share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.errors import ConfigError
from rl_training.experiment.config import load_config

BASE = {"algo": "ppo", "env_id": "CartPole-v1"}
BUILT_IN = ["ppo", "a2c", "impala", "appo", "trpo", "ppg", "recurrent_ppo"]
BUILT_IN += ["dqn", "c51", "ddpg", "d4pg", "td3", "sac", "naf", "mpo"]


def refused(source: Any, overrides: Any = ()) -> str:
    """The message of the refusal, which is always a single printable line."""
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    message = str(caught.value)
    assert message.isprintable(), repr(message)
    assert caught.value.exit_code == 2
    return message


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
