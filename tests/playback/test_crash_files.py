"""Crash files that no run has written: refused in one line, before an environment is blamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call
from rl_training.errors import CheckpointError
from rl_training.playback.crash_replay import read_crash_file, reproduce

GOOD: dict[str, Any] = {
    "kind": "env failure",
    "env_id": "CartPole-v1",
    "env_kwargs": {},
    "seed": 1,
    "actions": [0, 1, 0],
    "random_state": None,
    "reason": "ValueError: no such mode",
}
GENERATOR = {"bit_generator": "PCG64", "state": {"state": 1, "inc": 1}, "has_uint32": 0, "uinteger": 0}


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "crash.json"
    path.write_text(json.dumps({**GOOD, **changes}))
    return path


def test_a_complete_file_is_replayed(tmp_path: Path) -> None:
    assert reproduce(write(tmp_path)) == 3
    assert reproduce(write(tmp_path, random_state=GENERATOR)) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("env_id", value) for value in (None, 3, "", ["a"], "x" * 501)],
        *[("env_kwargs", value) for value in (None, 3, "ab", [["a", 1]])],
        *[("seed", value) for value in (-1, "x", 1.5, [], True, 2**64)],
        *[("actions", value) for value in ("abc", {"a": 1}, 3, [0] * 200_001)],
        *[("random_state", value) for value in (3, "x", [])],
        *[("reason", value) for value in (None, 3, {})],
    ],
)
def test_a_field_of_the_wrong_kind_is_named(tmp_path: Path, name: str, value: Any) -> None:
    path = write(tmp_path, **{name: value})
    with pytest.raises(CheckpointError, match=f"{name} is not valid"):
        reproduce(path)
    outcome = call("reproduce", path)
    assert outcome.code == 5 and len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("name", [name for name in GOOD if name != "kind"])
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "crash.json"
    path.write_text(json.dumps({key: value for key, value in GOOD.items() if key != name}))
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        read_crash_file(path)


@pytest.mark.parametrize("action", [None, "x", {}, [1], [[]], 1.5, 1e308, 10**30, 5, -1, [[0], [0, 1]]])
def test_an_action_outside_the_space_is_not_given_to_the_env(tmp_path: Path, action: Any) -> None:
    outcome = call("reproduce", write(tmp_path, actions=[0, action]))
    assert outcome.code == 5
    assert "action 2 of 2 is not in Discrete(2)" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"bit_generator": "PCG64"},
        {"bit_generator": "MT19937", "state": {}},
        {**GENERATOR, "state": {"state": -1, "inc": 1}},
        {**GENERATOR, "state": {"state": 10**400, "inc": 1}},
        {**GENERATOR, "state": 3},
    ],
)
def test_a_forged_random_state_is_the_fault_of_the_file(tmp_path: Path, state: dict[str, Any]) -> None:
    outcome = call("reproduce", write(tmp_path, random_state=state))
    assert outcome.code == 5
    assert "random_state does not fit" in outcome.err and "Traceback" not in outcome.err


def test_text_of_a_crash_file_is_printed_as_one_clean_line(tmp_path: Path) -> None:
    outcome = call("reproduce", write(tmp_path, reason="\x1b[31mred\nand more" + "y" * 10_000))
    assert outcome.code == 0
    (line,) = outcome.err.splitlines()
    assert line.startswith("recorded: [31mred and more") and len(line) < 1100


def test_long_keywords_of_an_env_are_shortened_in_the_message(tmp_path: Path) -> None:
    outcome = call("reproduce", write(tmp_path, env_kwargs={"x": "y" * 100_000}))
    assert outcome.code == 3 and len(outcome.err) < 3000
