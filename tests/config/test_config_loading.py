"""Load presets, files and overrides; open untrusted YAML safely."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_cases import BASE, refused, write
from disk_layer import DiskLayer, Faults
from rl_training.config import loading as loading
from rl_training.config import yaml_text
from rl_training.config.base import Schedule
from rl_training.config.loading import list_presets, load_config, save_config
from rl_training.config.train_config import ModelConfig, TrainConfig
from rl_training.errors import ConfigError
from rl_training.experiment import registry


@pytest.fixture
def presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "presets"
    (root / "ppo").mkdir(parents=True)
    (root / "dqn").mkdir()
    write(
        root / "ppo",
        "algo: ppo\nenv_id: CartPole-v1\nnum_envs: 8\nenv_kwargs: {a: 1}\n"
        "algo_kwargs:\n  num_steps: 32\n  learning_rate: 1e-3\n",
        "cartpole.yaml",
    )
    write(root / "dqn", "algo: dqn\nenv_id: CartPole-v1\n", "cartpole.yaml")
    monkeypatch.setattr(loading, "_preset_root", lambda: root)
    return root


def test_defaults_then_preset_then_overrides(presets):
    config = load_config("ppo/cartpole", ["num_steps=64", "seed=3"])
    assert (config.seed, config.num_envs, config.total_timesteps) == (3, 8, 100_000)
    assert config.algo_kwargs.num_steps == 64
    assert config.algo_kwargs.learning_rate == Schedule(start=1e-3, end=1e-3)


def test_presets_are_found_from_any_directory_by_name_or_by_their_path_in_the_repository(
    presets, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert list_presets() == ["dqn/cartpole", "ppo/cartpole"]
    expected = load_config("ppo/cartpole")
    assert load_config("configs/ppo/cartpole.yaml") == expected
    assert load_config("ppo/cartpole.yaml") == expected


def test_a_file_wins_over_the_preset_its_path_spells(presets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ppo").mkdir()
    write(tmp_path / "ppo", "algo: ppo\nenv_id: Mine-v0\n", "cartpole.yaml")
    assert load_config("ppo/cartpole.yaml").env_id == "Mine-v0"
    assert load_config("ppo/cartpole").env_id == "CartPole-v1"


def test_unknown_presets_and_files_say_how_to_find_the_right_one(presets):
    message = refused("ppo/cartpol")
    assert message.startswith("ppo/cartpol: ") and "did you mean ppo/cartpole?" in message
    assert "rl-training list configs" in message
    assert "no such file" in refused("nowhere/else.yaml")
    for strange in ("", "\0", "../../etc/passwd", "x" * 5000, "."):
        refused(strange)


def test_another_algorithm_for_a_preset_refuses_keys_that_it_does_not_have(presets):
    advice = "algo: ppo/cartpole has settings of ppo that dqn does not have; use `rl-training train dqn/cartpole`"
    assert refused("ppo/cartpole", ["algo=dqn"]) == advice


@pytest.mark.parametrize("text", ["canary: 1", "algo: [ppo]\ncanary: 1", "algo: {}\ncanary: 1"])
def test_a_file_without_the_name_of_an_algorithm_is_refused_with_another_or_without(text, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    for overrides in ([], ["algo=dqn"]):
        assert refused(file, overrides)


def test_overrides_may_be_dotted_nested_or_bare_and_never_change_the_source():
    source = {**BASE, "env_kwargs": {"a": 1}, "algo_kwargs": {"gamma": 0.9}}
    config = load_config(
        source,
        {
            "env_kwargs": {"b": {"c": 2}},
            "env_kwargs.b.d": 3,
            "model.activation": "relu",
            "hidden_sizes": [32],
        },
    )
    assert config.env_kwargs == {"a": 1, "b": {"c": 2, "d": 3}}
    assert (config.model.activation, config.model.hidden_sizes) == ("relu", (32,))
    assert config.algo_kwargs.gamma == 0.9
    assert source == {**BASE, "env_kwargs": {"a": 1}, "algo_kwargs": {"gamma": 0.9}}


def test_override_texts_are_read_as_yaml():
    config = load_config(
        BASE,
        ["learning_rate=1e-3", "model={hidden_sizes: [8]}", "run_name='007'", "target_kl=null", "seed = 5"],
    )
    assert config.algo_kwargs.learning_rate.start == 1e-3
    assert (config.model.hidden_sizes, config.run_name, config.seed) == ((8,), "007", 5)
    assert load_config(BASE, ["env_id=package.module:Env-v0"]).env_id == "package.module:Env-v0"


def test_bare_names_follow_the_overridden_algorithm():
    config = load_config(BASE, ["double=true", "algo=dqn"])
    assert config.algo_kwargs.double is True


def test_part_of_a_schedule_can_be_overridden_on_a_number_a_mapping_or_the_default():
    number = load_config({**BASE, "algo_kwargs": {"learning_rate": 1e-3}}, ["learning_rate.end=0"])
    assert number.algo_kwargs.learning_rate == Schedule(start=1e-3, end=0.0)
    default = load_config({**BASE, "algo": "dqn"}, ["exploration.over=500"])
    assert default.algo_kwargs.exploration == Schedule(start=1.0, end=0.05, over=500)
    whole = load_config(default, {"exploration": {"start": 0.5, "end": 0.1}})
    assert whole.algo_kwargs.exploration == Schedule(start=0.5, end=0.1, over=None)


def test_broken_overrides_are_refused():
    assert "expected key=value" in refused(BASE, ["seed"])
    assert "expected key=value" in refused(BASE, ["=3"])
    assert refused(BASE, ["env_id=[1"]).startswith("env_id: ")
    assert "not allowed" in refused(BASE, ["env_id=*alias"])
    assert refused(BASE, ["seed.x=1"]).startswith("seed: ")
    assert "has no keys to set" in refused({**BASE, "model": 3}, ["model.activation=relu"])
    assert "did you mean algo_kwargs.learning_rate?" in refused(BASE, ["lerning_rate=1"])


def test_errors_say_whether_the_file_or_an_override_is_to_blame(tmp_path):
    path = write(tmp_path, "algo: ppo\nenv_id: CartPole-v1\nalgo_kwargs:\n  # why\n  gamma: 7\n")
    assert "run.yaml, line 5: algo_kwargs.gamma: 7 is not valid" in refused(path)
    assert refused(path, ["gamma=8"]).startswith("algo_kwargs.gamma: 8 is not valid")
    assert "run.yaml: env_id: missing" in refused(write(tmp_path, "algo: ppo\n"))


def test_a_saved_config_has_every_value_in_field_order_and_loads_equal(tmp_path):
    config = load_config(
        {**BASE, "algo": "dqn", "env_kwargs": {"text": "1e-4", "word": "no", "list": [1, 1]}},
        ["priority_epsilon=1e-12", "importance_exponent.end=1"],
    )
    path = tmp_path / "config.yaml"
    save_config(config, path)
    assert load_config(path) == config
    data = yaml_text.read_file(path, "config.yaml").data
    assert list(data) == [name for name in TrainConfig.model_fields if name != "defaults"]  # nothing is left to them
    assert list(data["model"]) == list(ModelConfig.model_fields)
    assert list(data["algo_kwargs"]) == list(registry.get_config_class("dqn").model_fields)
    assert [item.name for item in tmp_path.iterdir()] == ["config.yaml"]


def test_a_config_is_on_the_disk_before_it_takes_its_name(tmp_path):
    operations = []
    with DiskLayer(tmp_path, operations.append):
        save_config(load_config(BASE), tmp_path / "config.yaml")
    kinds = [operation.kind for operation in operations]
    assert kinds.index("fsync") < kinds.index("rename")
    assert operations[kinds.index("rename")].data == tmp_path / "config.yaml"


def test_a_config_that_cannot_be_written_is_one_line_and_leaves_the_old_one(tmp_path):
    path = tmp_path / "config.yaml"
    save_config(load_config(BASE), path)
    before = path.read_bytes()
    with (
        DiskLayer(tmp_path, Faults(lambda number, operation: operation.kind == "rename")),
        pytest.raises(ConfigError, match=r"config\.yaml: cannot be written \(No space left on device\)"),
    ):
        save_config(load_config(BASE, ["seed=5"]), path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["config.yaml"]


def test_packaged_presets_are_valid_and_in_the_folder_of_their_algorithm():
    names = list_presets()
    assert "ppo/cartpole" in names
    for name in names:
        config = load_config(name)
        assert name.split("/")[0] == config.algo
        assert TrainConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("2e6", 2e6),
        ("1E3", 1e3),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("1_000_000", 1_000_000),
        ("010", 10),
        ("1:30", "1:30"),
        ("no", "no"),
        ("on", "on"),
        ("2020-01-01", "2020-01-01"),
        ("1.2.3", "1.2.3"),
        ("true", True),
        ("~", None),
        ("", None),
        ("'1e-4'", "1e-4"),
    ],
)
def test_scalars_mean_what_they_look_like(text, value):
    data = yaml_text.parse(text, "test").data
    assert data == value and type(data) is type(value)


@pytest.mark.parametrize(
    ("addition", "line", "words"),
    [
        ("seed: 1\nseed: 2\n", 4, "'seed' appears twice"),
        ("model: {activation: tanh, activation: relu}\n", 3, "'activation' appears twice"),
        ("seed: &a 1\n", 3, "anchors and aliases"),
        ("seed: *a\n", 3, "anchors and aliases"),
        ("seed: !!int 1\n", 3, "tags"),
        ("seed: !!python/object/apply:os.getcwd []\n", 3, "tags"),
        ("model: " + "[" * 50_000, 3, "deeper than 20"),
        ("model:\n" + "".join("  " * depth + "a:\n" for depth in range(1, 30)), 23, "deeper than 20"),
        ("seed: " + "9" * 10_000 + "\n", 3, "too long"),
        ("seed: 1e999\n", 3, "too large"),
        ("1: a\n", 3, "keys must be text"),
        ("? [a]\n: 1\n", 3, "keys must be text"),
        ("seed: [1\n", 4, "expected"),
        ("a: \x01\n", 3, "not allowed"),
        ("---\na: 1\n", 3, "single document"),
    ],
)
def test_dangerous_or_broken_yaml_is_refused_with_file_and_line(tmp_path, addition, line, words):
    message = refused(write(tmp_path, "algo: ppo\nenv_id: CartPole-v1\n" + addition))
    assert f"run.yaml, line {line}: " in message and words in message


def test_twenty_levels_are_read_and_one_more_is_refused():
    assert yaml_text.parse("[" * 20 + "1" + "]" * 20, "test").data
    with pytest.raises(ConfigError, match="deeper than 20"):
        yaml_text.parse("[" * 21 + "1" + "]" * 21, "test")


@pytest.mark.parametrize("content", ["", "- a\n", "text\n", "3\n", "# only a comment\n"])
def test_top_level_must_be_a_mapping(tmp_path, content):
    assert "top level must be a mapping" in refused(write(tmp_path, content))


def test_files_that_are_too_large_or_not_text_are_refused(tmp_path):
    assert "larger than 64 KB" in refused(write(tmp_path, "#" * (64 * 1024 + 1)))
    with pytest.raises(ConfigError, match="longer than 64 KB"):
        load_config("ppo/cartpole", ["seed=" + "1" * 70_000])
    binary = tmp_path / "run.yaml"
    binary.write_bytes(b"algo: ppo\n\xff\xfe")
    assert "line 2: not UTF-8" in refused(binary)


LONG_NUMBERS = {
    "digits and a letter": "1" * 20_000 + "x",
    "digits, a dot, digits and a letter": "1" * 10_000 + "." + "1" * 10_000 + "x",
    "digits with underscores": "1_" * 10_000 + "x",
    "digits only": "1" * 20_000,
    "an exponent": "1e" + "1" * 20_000 + "x",
}


@pytest.mark.parametrize("number", LONG_NUMBERS.values(), ids=LONG_NUMBERS)
@pytest.mark.parametrize("way", ["file", "override", "mapping"])
def test_a_long_number_is_refused_in_time_proportional_to_its_length(tmp_path, number, way):
    started = time.process_time()
    if way == "file":
        message = refused(write(tmp_path, f"algo: ppo\nenv_id: CartPole-v1\nseed: {number}\n"))
    else:
        change = [f"seed={number}"] if way == "override" else {"seed": number}
        with pytest.raises(ConfigError) as caught:
            load_config("ppo/cartpole", change)
        message = str(caught.value)
    assert time.process_time() - started < 2
    assert "seed" in message or "too long" in message
    assert len(message) < 500 and "\n" not in message


def test_the_largest_file_is_read_in_less_than_two_seconds():
    text = "a: [" + "[1]," * (16 * 1024 - 2) + "]"
    assert len(text) <= yaml_text.LARGEST_FILE
    started = time.process_time()
    yaml_text.parse(text, "test")
    assert time.process_time() - started < 2


def test_thousands_of_unknown_keys_are_counted_without_a_word_about_each():
    started = time.process_time()
    with pytest.raises(ConfigError, match=r"^key0: unknown key.*and 19999 more errors"):
        load_config({"algo": "ppo", "env_id": "CartPole-v1", **{f"key{number}": 0 for number in range(20_000)}})
    assert time.process_time() - started < 2


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["1e-4", "no", "0x1", "1:30", "~", "- a", "a: b", ".inf", "!x", "&a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_written_data_is_read_back_unchanged(data):
    assert yaml_text.parse(yaml_text.dump(data), "test").data == data
