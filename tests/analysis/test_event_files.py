"""`rl-training tensorboard`: event files of any run, read back with TensorBoard's own reader."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, tiny_config
from rl_training import ExperimentManager
from rl_training.analysis import event_files
from rl_training.analysis.event_files import serve_events, write_events
from rl_training.errors import ConfigError, RLTrainingError
from stored_runs import store


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def contents(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def test_a_run_without_the_sink_has_the_events_of_one_with_it(tmp_path: Path) -> None:
    manager = ExperimentManager(tmp_path / "runs")
    without = manager.run(tiny_config("ppo", eval_every=32), show=False)
    with_sink = manager.run(tiny_config("ppo", eval_every=32, tensorboard=True), show=False)
    before = contents(without.path)
    folders = write_events([without.path, with_sink.path], tmp_path / "events")
    assert [folder.name for folder in folders] == [without.name, with_sink.name]
    assert contents(without.path) == before  # nothing is written to the run
    own, made = scalars(with_sink.path / "tensorboard"), scalars(folders[1])
    assert set(own) == set(made) and "train/entropy" in own and "eval/mean_return" in own
    assert own == made
    same = {tag for tag in own if not tag.startswith("time/")}
    assert {tag: scalars(folders[0])[tag] for tag in same} == {tag: own[tag] for tag in same}


def test_writing_again_replaces_our_files_and_no_others(tmp_path: Path) -> None:
    store(tmp_path / "runs", {100: 1.0, 200: 2.0})
    for _ in range(2):
        (folder,) = write_events(["latest"], tmp_path / "events", output_dir=tmp_path / "runs")
        (folder / "mine.txt").write_text("x")
    assert scalars(folder)["eval/mean_return"] == [(100, 1.0), (200, 2.0)]
    assert len(list(folder.iterdir())) == 2


def test_runs_of_one_name_get_two_folders(tmp_path: Path) -> None:
    first, second = store(tmp_path / "a", {1: 1.0}), store(tmp_path / "b", {1: 2.0})
    assert [path.name for path in write_events([first, second], tmp_path / "x")] == ["ppo-seed0", "ppo-seed0-2"]


class FakeServer:
    """A TensorBoard that ends after it was looked at a few times."""

    def __init__(self, looks: list[Any], code: int = 0) -> None:
        self.looks, self.code, self.returncode = looks, code, 0
        self.command: list[str] = []

    def __call__(self, command: list[str]) -> FakeServer:
        self.command = command
        return self

    def poll(self) -> int | None:
        if not self.looks:
            self.returncode = self.code
            return self.code
        self.looks.pop(0)()
        return None

    def terminate(self) -> None: ...
    def wait(self) -> None: ...


def test_the_server_listens_on_loopback_follows_and_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store(tmp_path, {100: 1.0})
    seen: list[list[tuple[int, float]]] = []

    def look() -> None:
        seen.append(scalars(Path(server.command[server.command.index("--logdir") + 1]) / path.name)["eval/mean_return"])

    def train() -> None:
        line = '{"kind": "eval", "env_steps": 200, "eval_mean_return": 2.0}\n'
        (path / "metrics.jsonl").write_text((path / "metrics.jsonl").read_text() + line)

    def resume() -> None:
        (path / "metrics.jsonl").write_text('{"kind": "eval", "env_steps": 150, "eval_mean_return": 7.0}\n')

    server = FakeServer([look, train, look, resume, look])
    monkeypatch.setattr(event_files.subprocess, "Popen", server)
    serve_events([path], sleep=lambda seconds: None)
    assert seen == [[(100, 1.0)], [(100, 1.0), (200, 2.0)], [(150, 7.0)]]
    assert server.command[server.command.index("--host") + 1] == "127.0.0.1"
    assert not Path(server.command[server.command.index("--logdir") + 1]).exists()


def test_a_server_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files.subprocess, "Popen", FakeServer([], code=2))
    with pytest.raises(RLTrainingError, match="exit code 2"):
        serve_events([store(tmp_path, {1: 1.0})], sleep=lambda seconds: None)


def test_the_command_only_writes_if_asked(tmp_path: Path) -> None:
    store(tmp_path / "runs", {1: 1.0})
    options = ["--output-dir", tmp_path / "runs", "--no-serve"]
    outcome = call("tensorboard", *options, "--logdir", tmp_path / "x")
    assert outcome.code == 0 and outcome.out == f"wrote event files of 1 run to {tmp_path / 'x'}\n"
    assert call("tensorboard", *options, "--logdir", tmp_path / "x", "--json").json == [str(tmp_path / "x/ppo-seed0")]
    refused = call("tensorboard", *options)
    assert refused.code == 2 and "--logdir" in refused.err


def test_a_directory_inside_a_run_or_a_file_is_refused(tmp_path: Path) -> None:
    path = store(tmp_path / "runs", {1: 1.0})
    with pytest.raises(ConfigError, match="inside the run"):
        write_events([path], path / "events")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_events([path], tmp_path / "file")


def test_without_the_extra_the_message_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, {1: 1.0})
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    outcome = call("tensorboard", "--output-dir", tmp_path)
    assert outcome.code == 2 and outcome.err.count("\n") == 1 and "extra `tensorboard`" in outcome.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_and_removes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    ended: list[str] = []
    server = FakeServer([lambda: os.kill(os.getpid(), number), lambda: None])
    monkeypatch.setattr(server, "terminate", lambda: ended.append("terminated"))
    monkeypatch.setattr(event_files.subprocess, "Popen", server)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt):
            serve_events([store(tmp_path, {1: 1.0})], sleep=lambda seconds: None)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert ended == ["terminated"]
    assert not Path(server.command[server.command.index("--logdir") + 1]).exists()
