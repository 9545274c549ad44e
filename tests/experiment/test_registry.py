"""The table of algorithms, algorithms of other packages, and a start-up without heavy imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import rl_training
from config_cases import BASE, BUILT_IN, refused, write
from rl_training.config import algorithm_table
from rl_training.config.algorithm_table import Algorithm
from rl_training.config.base import AlgorithmConfig, ReplayConfig, RolloutConfig, StrictModel
from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.runtime.trainer import trainer


@pytest.mark.parametrize("algo", BUILT_IN)
def test_row_leads_to_a_config_and_a_learner(algo):
    spec, row = registry.get_spec(algo), registry.get_algorithm(algo)
    assert (spec.name, spec.title, spec.paper, spec.actions) == (row.name, row.title, row.paper, row.actions)
    assert spec.learner is registry.get_learner(algo) and spec.learner.__name__ == row.class_name
    assert spec.config is registry.get_config_class(algo) and spec.config.__name__ == f"{row.class_name}Config"
    assert issubclass(spec.config, AlgorithmConfig) and issubclass(spec.config, StrictModel)
    loops = {"on-policy": "OnPolicyLoop", "replay": "ReplayLoop", "on-policy, replay": "RolloutReplayLoop"}
    assert spec.loop.__name__ == loops[row.loop]
    assert issubclass(spec.config, ReplayConfig if row.loop == "replay" else RolloutConfig)


@pytest.mark.parametrize("algo", BUILT_IN)
def test_trainer_refuses_the_config_of_another_algorithm(algo):
    other = "dqn" if algo != "dqn" else "ppo"
    with pytest.raises(ConfigError, match=rf"^algo: train_{algo} got a config for {other}; use rl_training.train$"):
        trainer(algo)(load_config({**BASE, "algo": other}))


def test_a_script_registers_an_algorithm_of_its_own(monkeypatch):
    monkeypatch.setattr(algorithm_table, "ALGORITHMS", dict(registry.ALGORITHMS))
    config, learner = registry.get_config_class("td3"), registry.get_learner("td3")
    registry.register(Algorithm("mine", "My own", "none", "replay", ("box",), config=config, learner=learner))
    assert load_config({**BASE, "algo": "mine"}, ["tau=0.5"]).algo_kwargs.tau == 0.5
    assert registry.get_spec("mine").learner is learner and rl_training.MINE.algorithm == "mine"
    with pytest.raises(ConfigError, match=r"^algo: ppo is already registered, choose another name$"):
        registry.register(Algorithm("ppo", "My own", "none", "replay", ("box",)))


def test_unknown_algorithm_lists_all_and_the_nearest():
    message = refused({**BASE, "algo": "pppo"})
    assert message.startswith("algo: ") and message.endswith("did you mean ppo?")
    assert all(name in message for name in BUILT_IN)
    assert "did you mean sac?" in refused({**BASE, "algo": "SAC"})
    refused({**BASE, "algo": "x\x1b\n" * 100})


def test_another_package_adds_an_algorithm_by_entry_point(tmp_path, monkeypatch):
    info = tmp_path / "extra_algorithms-1.0.dist-info"
    info.mkdir()
    write(info, "Metadata-Version: 2.1\nName: extra-algorithms\nVersion: 1.0\n", "METADATA")
    write(
        info,
        "[rl_training.algorithms]\nextra = extra_algorithms:ENTRY\nbroken = extra_missing:ENTRY\n"
        "wrong = extra_algorithms:NAME\n",
        "entry_points.txt",
    )
    write(
        tmp_path,
        "from rl_training.config.base import AlgorithmConfig\n"
        "from rl_training.config.algorithm_table import Algorithm\n"
        "class ExtraConfig(AlgorithmConfig):\n    boldness: int = 1\n"
        "NAME = 'extra'\n"
        "ENTRY = Algorithm('extra', 'Extra', 'none', 'replay', ('box',),\n"
        "    config='extra_algorithms:ExtraConfig', learner='extra_algorithms:NAME')\n",
        "extra_algorithms.py",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registry.algorithm_names() == [*BUILT_IN, "broken", "extra", "wrong"]
    assert "extra_algorithms" not in sys.modules
    config = load_config({**BASE, "algo": "extra"}, ["boldness=3"])
    assert config.model_dump()["algo_kwargs"]["boldness"] == 3
    assert registry.get_spec("extra").learner == registry.get_learner("extra") == "extra"
    assert "cannot be imported" in refused({**BASE, "algo": "broken"})
    assert "is not a" in refused({**BASE, "algo": "wrong"})
    monkeypatch.delitem(sys.modules, "extra_algorithms")


def test_a_bad_preset_is_refused_quickly_and_without_torch_or_gymnasium(tmp_path):
    path = write(tmp_path, "algo: ppo\nenv_id: CartPole-v1\nalgo_kwargs: {lerning_rate: 1}\n")
    code = (
        "import sys\n"
        "from rl_training.errors import ConfigError\n"
        "from rl_training.experiment import registry\n"
        "from rl_training.config.loading import describe_config, list_presets, load_config\n"
        "for name in registry.algorithm_names(): describe_config(name)\n"
        "list_presets()\n"
        "try: load_config(sys.argv[1])\n"
        "except ConfigError as error: print(error)\n"
        "print([name for name in ('torch', 'gymnasium') if name in sys.modules])\n"
    )
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    after = os.times()
    # Processor time, and ten times of what is usual: on a busy machine it doubles.
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    message, imported = done.stdout.splitlines()
    assert "did you mean algo_kwargs.learning_rate?" in message
    assert imported == "[]"
    assert seconds < 5.0
