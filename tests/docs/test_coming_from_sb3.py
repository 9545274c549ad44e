"""docs/coming-from-sb3.md: every name in its tables gets the answer that the error message gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training import DQN
from rl_training.config.messages import sections
from rl_training.config.names_elsewhere import IMPORTS, answer
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError

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


@pytest.mark.parametrize("arguments", [("MlpPolicy",), ("CnnPolicy", "CartPole-v1"), ("MultiInputPolicy", object())])
def test_a_policy_is_answered_with_the_form_without_one(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match=rf"no policy argument here, .*'{arguments[0]}' out: DQN\('CartPole-v1'\)$"):
        DQN(*arguments)


def test_a_second_argument_without_a_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"only the environment .*: DQN\('CartPole-v1', seed=0\)$"):
        DQN("CartPole-v1", 3)


@pytest.mark.parametrize("name", IMPORTS)
def test_an_imported_name_gets_the_answer_of_the_page(name: str) -> None:
    with pytest.raises(ImportError, match=f"rl_training has no {name}: "):
        exec(f"from rl_training import {name}")
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    row = next(line for line in lines if name in line and line.startswith(("|", "print(")))
    words = set(re.findall(r"\w+_\w+|\bCallback\b|\bevaluate\b|needed", IMPORTS[name]))
    assert any(word in row for word in words), row


def test_other_names_are_simply_missing() -> None:
    assert not hasattr(rl_training, "NoSuchName")


def test_predict_is_deterministic_by_default() -> None:
    """The page warns of it, because SB3 samples."""
    import inspect

    from rl_training import PPO

    assert inspect.signature(PPO.predict).parameters["deterministic"].default is True
