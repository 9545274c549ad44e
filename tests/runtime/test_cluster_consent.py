"""A Ray cluster that a run from elsewhere names is not joined, started or even looked for until the user asks."""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint_helpers import sign_again
from cli_helpers import call
from rl_training import load
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError
from rl_training.runtime.fleet import fleet_setup
from rl_training.runtime.fleet.processes import ProcessFleet
from rl_training.runtime.setup.cluster_consent import PROOF_FIELD, ask_for_cluster, cluster_proof
from rl_training.runtime.workflows import resume, train
from run_cases import stop_at
from tiny_runs import managed, tiny_config

REFUSED = "a run that is not known to be yours names"
Become = Callable[[str], None]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The addresses of the clusters that runs used; their actors are processes in fact."""
    addresses: list[str | None] = []

    def fleet(config: TrainConfig, env: Any) -> ProcessFleet:
        addresses.append(config.runtime.address)
        return ProcessFleet(config, env)

    monkeypatch.setattr(fleet_setup, "_ray_fleet", fleet)
    return addresses


@pytest.fixture
def port() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def runtime(address: str | None = None) -> dict[str, Any]:
    return {"backend": "ray", "address": address}


def ray_run(folder: Path, address: str | None) -> Path:
    config = tiny_config("ppo", folder, runtime=runtime(address))
    return train(config, callback=stop_at(32), show=False).run_dir


@pytest.mark.parametrize("address", [None, "auto", "head.example:6379"])
def test_a_run_of_the_same_user_uses_its_cluster_again(
    address: str | None, joined: list[str | None], become: Become, tmp_path: Path
) -> None:
    resume(ray_run(tmp_path / "runs", address), show=False)
    assert joined == [address, address]


@pytest.mark.parametrize(
    ("address", "again", "instead"),
    [
        (None, "runtime.backend=ray", ["runtime.backend=process"]),
        ("auto", "runtime.address=auto", ["runtime.backend=process", "runtime.address=null"]),
        ("10.0.0.1:6379", "runtime.address=10.0.0.1:6379", ["runtime.backend=process", "runtime.address=null"]),
        ("[::1]:6379", "'runtime.address=\"[::1]:6379\"'", ["runtime.backend=process", "runtime.address=null"]),
    ],
)
def test_a_run_from_elsewhere_is_asked_for_and_both_ways_out_work(
    address: str | None, again: str, instead: list[str], joined: list[str | None], become: Become, tmp_path: Path
) -> None:
    run = ray_run(tmp_path / "runs", address)
    joined.clear()
    become("stranger")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    refused = call("resume", run, "--quiet")
    assert refused.code == 2 and len(refused.err.splitlines()) == 1
    assert f"{REFUSED} {'the Ray cluster ' + address if address else 'a Ray cluster on this machine'}" in refused.err
    assert f"--set {again}, or" in refused.err and f"--set {' --set '.join(instead)} (" in refused.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert joined == [] and not (tmp_path / "states" / "stranger").exists()

    words = [word for setting in instead for word in ("--set", setting)]
    assert call("resume", run, "--quiet", *words).code == 0 and joined == []
    become("owner")
    other = ray_run(tmp_path / "others", address)
    become("stranger")
    assert call("resume", other, "--quiet", *shlex.split(f"--set {again}")).code == 0
    resume(other, total_timesteps=96, show=False)  # whoever asks for it once is asked no more
    assert joined == [address, address, address]


@pytest.mark.parametrize("overrides", [{"log_every": 32}, {"runtime.actor_timeout": 9.0}, {"runtime.backend": "ray"}])
def test_settings_that_do_not_name_the_cluster_are_no_consent(
    overrides: dict[str, Any], joined: list[str | None], become: Become, tmp_path: Path
) -> None:
    run = ray_run(tmp_path / "runs", "head.example:6379")
    become("stranger")
    with pytest.raises(ConfigError, match=REFUSED):
        resume(run, overrides=overrides, show=False)


def test_an_address_that_was_changed_afterwards_is_not_looked_for(
    port: socket.socket, become: Become, tmp_path: Path
) -> None:
    """With the proof of the owner still in run.json, as for a run that someone borrowed and gave back."""
    run = train(tiny_config("ppo", tmp_path, runtime={"backend": "process"}), callback=stop_at(32), show=False).run_dir
    checkpoint = max((run / "checkpoints").glob("step-*"))
    config = json.loads((checkpoint / "config.json").read_text())
    own = tiny_config("ppo", tmp_path, runtime=runtime("head.example:6379"))
    info = json.loads((run / "run.json").read_text()) | cluster_proof(own)
    config["runtime"] |= runtime(f"127.0.0.1:{port.getsockname()[1]}")
    (checkpoint / "config.json").write_text(json.dumps(config))
    (run / "run.json").write_text(json.dumps(info))
    sign_again(checkpoint)
    with pytest.raises(ConfigError, match=REFUSED):
        resume(run, show=False)
    with pytest.raises(BlockingIOError):
        port.accept()


def test_a_saved_agent_from_elsewhere_trains_on_this_machine(
    joined: list[str | None], become: Become, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = managed("ppo", tmp_path / "runs", runtime=runtime("head.example:6379")).learn(show=False)
    load(f"{agent.run_dir}/best").learn(64, show=False)
    assert joined == ["head.example:6379"] * 2
    path = agent.save(tmp_path / "agent")
    become("stranger")
    capsys.readouterr()
    stranger = load(path).learn(64, show=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert "names the Ray cluster head.example:6379, so it is not used; actors are processes on this machine" in line
    assert joined == ["head.example:6379"] * 2 and stranger.config.runtime.backend == "process"
    with pytest.raises(ConfigError, match=REFUSED):
        load(agent.run_dir).learn(64, show=False)


def test_only_a_run_on_a_cluster_has_a_proof(become: Become, tmp_path: Path) -> None:
    assert cluster_proof(tiny_config("ppo", tmp_path, runtime={"backend": "process"})) == {}
    assert not (tmp_path / "states").exists()
    config = tiny_config("ppo", tmp_path, runtime=runtime("auto"))
    proof = cluster_proof(config)
    ask_for_cluster(config, config, (), proof)
    for other in ({}, {PROOF_FIELD: 3}, {PROOF_FIELD: "\ud800:"}, {"tracker_proof": proof[PROOF_FIELD]}):
        with pytest.raises(ConfigError, match=REFUSED):
            ask_for_cluster(config, config, (), other)
