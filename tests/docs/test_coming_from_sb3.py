"""docs/coming-from-sb3.md: every name in its tables gets the answer that the error message gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rl_training.config.messages import sections
from rl_training.config.names_elsewhere import answer
from rl_training.config.train_config import TrainConfig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from-sb3.md"


def settings_of(algo: str) -> set[str]:
    return {name for model in sections(TrainConfig, algo).values() for name in model.model_fields}


def rows() -> list[tuple[str, str, list[str]]]:
    """SB3's name, the algorithm and our names, from the table of settings."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Settings\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| `(\w+)` \| (\w+) \| (`[^|]+`) \|", section, re.MULTILINE)
    return [(name, algo, re.findall(r"`(\w+)`", ours)) for name, algo, ours in cells]


@pytest.mark.parametrize(("name", "algo", "ours"), rows(), ids=lambda value: str(value))
def test_the_table_says_what_the_error_message_says(name: str, algo: str, ours: list[str]) -> None:
    found = answer(name, settings_of(algo))
    assert found is not None and found[0] == ours


def test_the_table_is_read() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Settings\n")[2].partition("\n## ")[0]
    assert len(rows()) == section.count("\n| `") >= 27


def test_names_that_are_said_to_be_the_same_exist_here() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    same = text.partition("Same name and meaning: ")[2].partition(". Defaults")[0]
    groups = {"": ("ppo", "dqn", "td3", "sac"), "PPO": ("ppo",), "DQN, TD3 and SAC": ("dqn", "td3", "sac")}
    groups |= {"TD3": ("td3",), "SAC": ("sac",)}
    assert same.count(";") == 4
    for part in same.split(";"):
        names, algorithms = re.findall(r"`(\w+)`", part), groups[part.partition(" of ")[2].strip(" .")]
        assert names and all(set(names) <= settings_of(algo) for algo in algorithms), part


def test_predict_is_deterministic_by_default() -> None:
    """The page warns of it, because SB3 samples."""
    import inspect

    from rl_training import PPO

    assert inspect.signature(PPO.predict).parameters["deterministic"].default is True
