"""The table of algorithms, algorithms of other packages, and a start-up without heavy imports."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import pytest

from config_cases import BASE, BUILT_IN, refused, write
from rl_training.config.base import AlgorithmConfig, StrictModel
from rl_training.config.loading import load_config
from rl_training.experiment import registry


@pytest.mark.parametrize("algo", BUILT_IN)
def test_table_follows_one_naming_rule(algo):
    entry = registry.ALGORITHMS[algo]
    # What is spelled out in capitals stays so; a word before it is written as a word.
    name = {"recurrent_ppo": "RecurrentPPO"}.get(algo, algo.upper())
    room = "contrib" if algo == "recurrent_ppo" else "algorithms"
    assert entry.config == f"rl_training.config.{algo}:{name}Config"
    assert entry.spec == f"rl_training.runtime.{algo}_trainer:{algo.upper()}_SPEC"
    assert entry.learner == f"rl_training.{room}.{algo}:{name}"
    config_class = registry.get_config_class(algo)
    assert issubclass(config_class, AlgorithmConfig) and issubclass(config_class, StrictModel)


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
        "from rl_training.experiment.registry import Entry\n"
        "class ExtraConfig(AlgorithmConfig):\n    boldness: int = 1\n"
        "NAME = 'extra'\n"
        "ENTRY = Entry('extra_algorithms:ExtraConfig', 'extra_algorithms:NAME', 'extra_algorithms:NAME')\n",
        "extra_algorithms.py",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registry.algorithm_names() == [*BUILT_IN, "broken", "extra", "wrong"]
    assert "extra_algorithms" not in sys.modules
    config = load_config({**BASE, "algo": "extra"}, ["boldness=3"])
    assert config.model_dump()["algo_kwargs"]["boldness"] == 3
    assert (registry.get_spec("extra"), registry.get_learner("extra")) == ("extra", "extra")
    assert "cannot be imported" in refused({**BASE, "algo": "broken"})
    assert "is not a" in refused({**BASE, "algo": "wrong"})
    monkeypatch.delitem(sys.modules, "extra_algorithms")


def test_a_bad_preset_is_refused_within_a_second_and_without_torch_or_gymnasium(tmp_path):
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
    durations = [math.inf]
    # The quickest of a few: another process on the same machine must not fail this.
    while min(durations) >= 1.0 and len(durations) <= 8:
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        durations.append(time.perf_counter() - start)
    message, imported = done.stdout.splitlines()
    assert "did you mean algo_kwargs.learning_rate?" in message
    assert imported == "[]"
    assert min(durations) < 1.0
