"""The processes behind async envs: whichever is killed or stopped, the envs continue and nothing is left behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.envs.factory import make_vector_env
from rl_training.envs.failures import RESTARTED
from rl_training.envs.processes import async_nursery, async_worker, forker
from rl_training.envs.processes.forker import Forker
from rl_training.errors import EnvError
from spawning_env import SpawningEnv, end_programs, is_running, started_programs, wait_until_gone
from waiting import wait_until

ACTIONS = np.zeros(2, np.int64)
HOUR = 3600.0  # an env timeout that no test waits for


@pytest.fixture
def envs(tmp_path: Path) -> Iterator[Any]:
    made = make_vector_env(SpawningEnv, 2, env_kwargs={"folder": str(tmp_path)}, backend="async", timeout=HOUR)
    made.reset(seed=0)
    yield made
    made.close()
    end_programs(tmp_path)


def all_processes(envs: Any, folder: Path) -> list[int]:
    return [*envs._nursery.processes, *envs.processes, *started_programs(folder)]


def kill_nursery(envs: Any) -> None:
    """Kill the nursery and wait until the kernel has ended its workers."""
    processes = [envs._nursery.processes[1], *envs.processes]
    os.kill(processes[0], signal.SIGKILL)
    wait_until_gone(processes)


def test_closing_ends_every_program_that_an_env_has_started(envs: Any, tmp_path: Path) -> None:
    everything = all_processes(envs, tmp_path)
    assert len(everything) == 12 and all(map(is_running, everything))
    envs.close()
    wait_until_gone(everything)


def test_a_killed_supervisor_leaves_nothing_not_even_with_a_stopped_keeper_and_a_stopped_nursery(
    tmp_path: Path,
) -> None:
    program = (
        "import sys, signal, os, time\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from spawning_env import SpawningEnv\n"
        "from rl_training.envs.factory import make_vector_env\n"
        "envs = make_vector_env(SpawningEnv, 2, env_kwargs={'folder': sys.argv[2]}, backend='async')\n"
        "for process in envs._nursery.processes: os.kill(process, signal.SIGSTOP)\n"
        "print(*envs.processes, *envs._nursery.processes, flush=True)\n"
        "time.sleep(600)\n"
    )
    support = str(Path(__file__).parents[1] / "support")
    command = [sys.executable, "-c", program, support, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        processes = [int(word) for word in parent.stdout.readline().split()]
        everything = [*processes, *started_programs(tmp_path)]
        os.killpg(parent.pid, signal.SIGKILL)  # the whole group, as `kill -9 %1` in a shell does it
    assert len(everything) == 12
    wait_until_gone(everything)


def test_a_killed_nursery_is_replaced_and_blames_no_env(envs: Any, tmp_path: Path) -> None:
    envs.step(ACTIONS)
    keeper, _ = envs._nursery.processes
    programs = started_programs(tmp_path)
    kill_nursery(envs)
    wait_until_gone(programs)
    _, rewards, terminated, truncated, infos = envs.step(ACTIONS)
    assert infos[RESTARTED].tolist() == [True, True]
    assert not rewards.any() and not terminated.any() and not truncated.any()
    assert envs.notes == [
        "replaced the process that starts the env processes: it was killed by SIGKILL; new episodes start"
    ]
    assert envs.failures == [] and envs._nursery.processes[0] == keeper
    assert RESTARTED not in envs.step(ACTIONS)[4]


def test_a_nursery_that_is_killed_before_a_reset_is_replaced(envs: Any) -> None:
    kill_nursery(envs)
    observations, _ = envs.reset(seed=5)
    assert observations.shape == (2, 2) and len(envs.notes) == 1 and envs.failures == []


def test_a_killed_keeper_is_not_even_noticed_and_closing_still_ends_everything(envs: Any, tmp_path: Path) -> None:
    before = envs.processes
    keeper, nursery = envs._nursery.processes
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not is_running(keeper))
    for _ in range(3):
        assert RESTARTED not in envs.step(ACTIONS)[4]
    assert envs.processes == before and envs.notes == [] and is_running(nursery)
    everything = all_processes(envs, tmp_path)
    envs.close()
    wait_until_gone(everything)


def test_keeper_and_nursery_killed_together_are_both_replaced(envs: Any, tmp_path: Path) -> None:
    before = [*envs._nursery.processes, *envs.processes]
    for process in envs._nursery.processes:
        os.kill(process, signal.SIGKILL)
    wait_until_gone(before)
    assert envs.step(ACTIONS)[4][RESTARTED].tolist() == [True, True]
    assert len(envs.notes) == 1 and envs.failures == []
    assert RESTARTED not in envs.step(ACTIONS)[4]


def test_a_nursery_that_is_killed_again_and_again_ends_the_run_and_no_env_is_named(envs: Any) -> None:
    for number in range(async_nursery.RESTARTS):
        kill_nursery(envs)
        envs.step(ACTIONS)
        assert len(envs.notes) == number + 1
    kill_nursery(envs)
    with pytest.raises(EnvError, match="starts the env processes was killed by SIGKILL; it was already rep") as caught:
        envs.step(ACTIONS)
    assert caught.value.exit_code == 3 and "env 0" not in str(caught.value) and "env 1" not in str(caught.value)
    assert envs.failures == []


@pytest.mark.parametrize("place", [0, 1])
def test_a_stopped_process_is_woken_when_it_is_needed(place: int, envs: Any, tmp_path: Path) -> None:
    """The env of one worker exits, so that a replacement is asked for; then everything is closed."""
    os.kill(envs._nursery.processes[place], signal.SIGSTOP)
    (tmp_path / "exit").touch()
    assert envs.step(ACTIONS)[4][RESTARTED].sum() == 1
    (failure,) = envs.failures
    assert failure.reason == "its process ended by itself with exit code 7" and envs.notes == []
    everything = all_processes(envs, tmp_path)
    for process in envs._nursery.processes:
        os.kill(process, signal.SIGSTOP)
    envs.close()
    wait_until_gone(everything)


def test_processes_that_never_answer_are_killed_at_one_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the keeper and the nursery get stuck, and the workers ignore that they are to end."""
    monkeypatch.setattr(Forker, "_end_all", lambda self, patience: time.sleep(600))
    monkeypatch.setattr(SpawningEnv, "close", lambda self: time.sleep(600))
    kwargs = {"folder": str(tmp_path), "ways": ["child"]}
    envs: Any = make_vector_env(SpawningEnv, 8, env_kwargs=kwargs, backend="async")
    everything = all_processes(envs, tmp_path)
    clock = FakeClock()
    monkeypatch.setattr(async_nursery, "time", clock)
    envs.close()
    assert clock.now - clock.start < async_nursery.CLOSING_SECONDS + 1
    wait_until_gone(everything)


class FakeClock:
    """Time passes only while someone sleeps: a deadline is tested without the speed of the machine."""

    start = now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        time.sleep(seconds / 10)


def test_a_nursery_that_does_not_answer_is_replaced(envs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen process cannot be woken. Here it is one that is stopped and not woken."""
    monkeypatch.setattr(forker, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(forker.ForkerClient, "wake", lambda self: None)
    os.kill(envs._nursery.processes[1], signal.SIGSTOP)
    (tmp_path / "exit").touch()
    envs.step(ACTIONS)
    (note,) = envs.notes
    assert "it gave no answer within 0.2 s" in note or "1.2 s" in note
    monkeypatch.undo()
    assert envs.step(ACTIONS)[0].shape == (2, 2)


def test_a_dead_worker_is_noticed_although_a_program_of_it_holds_its_socket(envs: Any, tmp_path: Path) -> None:
    """The timeout is an hour: if the death were noticed only then, the test would not end."""
    (tmp_path / "exit").touch()
    old = envs.processes
    infos = envs.step(ACTIONS)[4]
    (failure,) = envs.failures
    assert failure.reason == "its process ended by itself with exit code 7" and not failure.timed_out
    assert infos[RESTARTED].sum() == 1
    broken, healthy = (old[failure.env_index], old[1 - failure.env_index])
    # Its programs are gone with it, except those that are no longer known to be its own. The other env keeps its own.
    wait_until_gone(started_programs(tmp_path, "child", broken) + started_programs(tmp_path, "fork", broken))
    assert all(map(is_running, started_programs(tmp_path, worker=healthy)))


def test_a_worker_that_is_killed_takes_all_its_programs_along(envs: Any, tmp_path: Path) -> None:
    first = envs._workers[0]
    programs = started_programs(tmp_path, "child", first.process) + started_programs(tmp_path, "session", first.process)
    assert envs._nursery.end(first, 0.0) == -signal.SIGKILL
    wait_until_gone(programs)
    envs._workers[0] = envs._nursery.start(0)


def test_a_socket_of_a_worker_is_not_inherited_by_programs(envs: Any, tmp_path: Path) -> None:
    """subprocess closes files by default; os.system and C libraries do not."""
    for worker in envs.processes:
        for name in os.listdir(f"/proc/{worker}/fd"):
            if os.readlink(f"/proc/{worker}/fd/{name}").startswith("socket:"):
                flags = int(Path(f"/proc/{worker}/fdinfo/{name}").read_text().split("flags:")[1].split()[0], 8)
                assert flags & os.O_CLOEXEC


def test_signals_to_the_group_of_the_supervisor_reach_no_env(envs: Any, tmp_path: Path) -> None:
    """Ctrl-C and Ctrl-Z signal a process group. An env and its programs are not in it, so that the run can save."""
    below = all_processes(envs, tmp_path)
    assert os.getpgid(0) not in {os.getpgid(process) for process in below}
    assert os.getsid(0) not in {os.getsid(process) for process in below}
    assert {os.getpgid(process) for process in started_programs(tmp_path, "child")} == set(envs.processes)


def test_a_late_answer_is_not_taken_for_another_one() -> None:
    ours, theirs = socket.socketpair()
    client = forker.ForkerClient(os.getpid(), ours)
    forker_seconds, forker.ANSWER_SECONDS = forker.ANSWER_SECONDS, 0.05
    try:
        with pytest.raises(forker.ForkerGone, match=r"gave no answer within 0\.05 s"):
            client.end(1, 0.0)
        theirs.sendall(forker.ANSWER.pack(4711))
        with pytest.raises(forker.ForkerGone):
            client.end(2, 0.0)
        assert client.is_gone()
    finally:
        forker.ANSWER_SECONDS = forker_seconds
        ours.close()
        theirs.close()


def test_a_system_that_refuses_another_process_is_told_so_and_the_nursery_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    real, calls = forker.fork, iter([True])  # the keeper may fork the nursery, which may fork nothing
    monkeypatch.setattr(forker, "fork", lambda: real() if next(calls, False) else refuse())
    with pytest.raises(EnvError, match=r"cannot be made: .*Resource temporarily unavailable"):
        make_vector_env("CartPole-v1", 2, backend="async")


@pytest.mark.parametrize("asks_again", [False, True])
def test_a_forker_whose_client_was_killed_ends_its_children_without_a_word(
    asks_again: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """The end of a process resets the sockets from which it has not read everything."""
    ours, theirs = socket.socketpair()
    if process := os.fork():
        theirs.close()
        child, connection = forker.ForkerClient(process, ours).start()
        ours.sendall(b"end 1 0")
        select.select([ours], [], [])  # the answer stays unread
        if asks_again:  # then the next answer finds no reader
            os.kill(process, signal.SIGSTOP)
            ours.sendall(b"end 1 0")
        ours.close()
        os.kill(process, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        wait_until_gone([child])
        connection.close()
        assert capfd.readouterr().err == ""
    else:
        ours.close()
        forker.never_return(Forker(theirs, lambda connection, index: time.sleep(60)).serve)


def test_a_worker_whose_supervisor_was_killed_closes_its_env_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Noted(SpawningEnv):
        def close(self) -> None:
            (tmp_path / "closed").touch()

    ours, theirs = socket.socketpair()
    if process := os.fork():
        theirs.close()
        select.select([ours], [], [])  # the greeting stays unread
        ours.close()
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        assert (tmp_path / "closed").exists() and capfd.readouterr().err == ""
    else:
        ours.close()
        forker.never_return(lambda: async_worker.work([lambda: Noted(str(tmp_path), ways=())], theirs, 0))
