"""Every field of every config refuses misspelled names, wrong types and values out of range."""

from __future__ import annotations

from typing import Any

import pytest

from config_cases import BUILT_IN, every_field, out_of_range, place, refused
from rl_training.config.base import Schedule, leaf_types
from rl_training.config.loading import describe_config
from rl_training.config.messages import sections
from rl_training.config.train_config import TrainConfig

UNBOUNDED = {"stop_at_return", "initial_log_std", "target_entropy", "support_low", "support_high"}


@pytest.mark.parametrize(("algo", "section", "name"), every_field())
def test_a_misspelled_name_of_every_field_is_refused_with_its_dotted_key_and_a_suggestion(algo, section, name):
    dotted = f"{section}.{name}" if section else name
    message = refused(place(algo, section, name + "x", 1))
    assert message.startswith(f"{dotted}x: unknown key, did you mean ")
    assert dotted in message.split("did you mean ")[1]


@pytest.mark.parametrize(("algo", "section", "name"), every_field())
def test_wrong_type_for_every_field_is_refused_with_its_dotted_key(algo, section, name):
    accepted = leaf_types(sections(TrainConfig, algo)[section].model_fields[name].annotation)
    wrong: list[Any] = [[[]], float("nan"), [{"a": 1}]]
    if str not in accepted or name in ("threads", "checkpoint_every", "temperature", "target_entropy"):
        wrong += ["abc", "\x1b[31mred\n" * 50]
    if bool not in accepted:
        wrong += [True, [False]]
    if accepted & {bool, str, dict, tuple} and not accepted & {int, float}:
        wrong += [1, 2.5]
    if int in accepted and float not in accepted:
        wrong += [1.5, "1.5"]
    dotted = f"{section}.{name}" if section else name
    for value in wrong:
        message = refused(place(algo, section, name, value))
        assert message.startswith(dotted), (value, message)
        assert len(message) < 400


@pytest.mark.parametrize(("algo", "section", "name"), every_field())
def test_out_of_range_value_of_every_number_is_refused_with_the_allowed_range(algo, section, name):
    accepted = leaf_types(sections(TrainConfig, algo)[section].model_fields[name].annotation)
    if name == "hidden_sizes":
        assert f"{section}.hidden_sizes[1]: 0 is not valid" in refused(place(algo, section, name, [8, 0]))
        return
    bad = out_of_range(algo, section, name)
    is_number = bool(accepted & {int, float, Schedule})
    assert is_number == (bool(bad) or name in UNBOUNDED), (
        f"{name} has no bounds: declare them (ge, gt, le, lt), or add it to UNBOUNDED"
    )
    dotted = f"{section}.{name}" if section else name
    for value in bad:
        message = refused(place(algo, section, name, value))
        assert message.startswith(f"{dotted}: {value} is "), message
        assert "expected" in message and any(sign in message for sign in (">", "<"))


@pytest.mark.parametrize("algo", BUILT_IN)
def test_every_setting_is_described_by_one_sentence(algo):
    rows = describe_config(algo)
    assert [row.key for row in rows][:2] == ["algo", "env_id"]
    assert {"model.hidden_sizes", "algo_kwargs.gamma"} <= {row.key for row in rows}
    for row in rows:
        assert row.description.endswith(".") and "\n" not in row.description, row
        assert row.type and "class" not in row.type and "typing" not in row.type, row


def test_described_types_and_defaults_read_like_yaml():
    rows = {row.key: row for row in describe_config("dqn")}
    assert rows["threads"][1:3] == ("auto or integer >= 1 and <= 1024", "auto")
    assert rows["checkpoint_every"][1:3] == ("auto or integer >= 0", "auto")
    assert rows["algo_kwargs.gamma"][1:3] == ("number > 0 and <= 1", "0.99")
    assert rows["algo_kwargs.gradient_steps"].type == "-1 or integer >= 1"
    assert rows["algo_kwargs.exploration"].default == "{start: 1.0, end: 0.05, over: null}"
    assert rows["algo_kwargs.tau"][1:3] == ("number > 0 and <= 1 or null", "null")
    assert rows["model.hidden_sizes"][1:3] == ("list of at most 100 integers >= 1 and <= 65536", "[64, 64]")
    assert rows["env_id"].default == "required"
