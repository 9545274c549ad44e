"""Settings of the networks: the critic apart from the actor, names of older versions, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.config.loading import load_config, save_config
from rl_training.config.model_config import ModelConfig
from rl_training.errors import ConfigError

BASE: dict[str, Any] = {"algo": "sac", "env_id": "Pendulum-v1"}


def refused(*overrides: Any, **base: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config({**BASE, **base}, *overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_critic_has_the_settings_of_the_actor_where_it_has_none() -> None:
    config = ModelConfig(hidden_sizes=(8, 8), activation="elu", layer_norm=True)
    assert config.for_critic() == config
    critic = ModelConfig(hidden_sizes=(8,), activation="elu", critic={"hidden_sizes": (9, 9), "layer_norm": True})
    assert critic.for_critic() == ModelConfig(hidden_sizes=(9, 9), activation="elu", layer_norm=True)
    off = ModelConfig(layer_norm=True, critic={"layer_norm": False})
    assert not off.for_critic().layer_norm  # false is a setting, null is none


def test_a_setting_of_the_critic_can_be_overridden_alone(tmp_path: Path) -> None:
    config = load_config(BASE, ["model.critic.layer_norm=true", "critic.hidden_sizes=[32, 32]"])
    assert config.model.critic is not None
    assert (config.model.critic.layer_norm, config.model.critic.hidden_sizes) == (True, (32, 32))
    assert config.model.hidden_sizes == (64, 64) and config.model.critic.blocks is None
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config
    again = load_config(config, {"critic.blocks": "simba", "critic.layer_norm": None})
    assert again.model.critic is not None and again.model.critic.hidden_sizes == (32, 32)
    assert load_config(again, ["critic=null"]).model.critic is None


@pytest.mark.parametrize(("old", "new"), [(True, "orthogonal"), (False, "torch")])
def test_the_old_name_of_the_initialization_is_read_everywhere(old: bool, new: str, tmp_path: Path) -> None:
    """In files of older versions, as an override of a file of today, and the other way round."""
    other = "torch" if old else "orthogonal"
    file = tmp_path / "old.yaml"
    file.write_text(f"algo: sac\nenv_id: Pendulum-v1\nmodel:\n  orthogonal_init: {str(old).lower()}\n")
    assert load_config(file).model.initialization == new
    assert load_config(file, [f"initialization={other}"]).model.initialization == other
    for given in ({"orthogonal_init": old}, {"model": {"orthogonal_init": old}}, {"model.orthogonal_init": old}):
        today = load_config({**BASE, "model": {"initialization": other}}, given)
        assert today.model.initialization == new
    assert ModelConfig.model_validate({"orthogonal_init": old}).initialization == new


def test_both_names_of_the_initialization_are_refused() -> None:
    message = refused(model={"orthogonal_init": True, "initialization": "torch"})
    assert message == (
        "model.orthogonal_init: is the old name of model.initialization, which is given too; remove one of them"
    )
    assert refused(["orthogonal_init=3"]).startswith("model.orthogonal_init: unknown key")


@pytest.mark.parametrize("algo", ["dqn", "c51", "naf"])
def test_an_algorithm_with_one_network_has_no_critic_to_set(algo: str) -> None:
    message = refused(["critic.layer_norm=true"], algo=algo)
    assert message.startswith(f"model.critic: {algo} has one network for values and actions; set model.hidden_sizes")


@pytest.mark.parametrize("place", ["model", "model.critic"])
@pytest.mark.parametrize("sizes", ["[8, 16]", "[]"])
def test_simba_blocks_need_one_width(place: str, sizes: str) -> None:
    message = refused([f"{place}.blocks=simba", f"{place}.hidden_sizes={sizes}"])
    assert message.startswith(f"{place}.hidden_sizes: simba blocks need one width, such as [128, 128]")
    assert message.endswith(f"these are {sizes}")


@pytest.mark.parametrize("place", ["model", "model.critic"])
def test_simba_blocks_take_no_second_layer_norm(place: str) -> None:
    message = refused([f"{place}.blocks=simba", "model.layer_norm=true"])
    assert message == f"{place}.layer_norm: simba blocks have layer norm already; set {place}.layer_norm=false"


def test_an_unknown_activation_lists_the_known_ones() -> None:
    assert "expected one of tanh, relu, elu, gelu, silu, leaky_relu, mish" in refused(["activation=swish"])
