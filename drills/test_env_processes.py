"""Item 6: the processes of envs. If one is killed or stopped, the run continues or ends in time; none is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cli_helpers import wait_for
from figures import record_figure
from own_clock import OwnClock, left_after
from rl_training.config.loading import load_config
from rl_training.envs.factory import make_vector_env
from rl_training.envs.processes.async_vector import RESTARTS_PER_ENV
from rl_training.envs.processes.process_tree import descendants
from rl_training.runtime.workflows import train
from spawning_env import SpawningEnv, end_programs, started_programs

SUPPORT = Path(__file__).resolve().parent.parent / "tests" / "support"
MODULE = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
import gymnasium
from spawning_env import SpawningEnv
gymnasium.register("Spawning-v0", entry_point=SpawningEnv)
"""
MINUTES = 600.0


def start_run(folder: Path, steps: int = 10**9) -> subprocess.Popen[str]:
    """A run with four env processes, each of which has started four programs, that has written a metric line."""
    (folder / "spawning_module.py").write_text(MODULE)
    config = {"algo": "ppo", "env_id": "spawning_module:Spawning-v0", "num_envs": 4, "total_timesteps": steps}
    config |= {"vector_backend": "async", "env_kwargs": {"folder": str(folder)}, "output_dir": str(folder / "runs")}
    config |= {"env_timeout": 15.0, "compile": "off", "log_every": 128, "checkpoint_every": 512, "eval_episodes": 1}
    config |= {"algo_kwargs": {"num_steps": 32, "minibatch_size": 32}, "model": {"hidden_sizes": [8]}}
    (folder / "run.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-m", "rl_training", "train", str(folder / "run.yaml"), "--quiet"]
    environment = os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
    run = subprocess.Popen(command, env=environment, text=True, start_new_session=True)
    wait_for(lambda: any(path.stat().st_size for path in folder.glob("runs/*/metrics.jsonl")), run, MINUTES)
    return run


def shared_files() -> set[str]:
    """Files in shared memory that Python, torch or this library make. Other programs of the machine have theirs too."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("rl_training", "psm_", "sem.", "torch_"))}


def test_kill_9_leaves_no_process_and_no_program_of_an_env(tmp_path: Path) -> None:
    shared_before = shared_files()
    run = start_run(tmp_path)
    below = descendants(run.pid)
    programs = started_programs(tmp_path)
    own = sorted(set(below) - set(programs))
    assert len(own) == 6 and set(programs) < set(below) and len(programs) == 16  # keeper, nursery, four envs
    os.kill(own[-1], signal.SIGSTOP)  # one that cannot end by itself
    run.kill()
    run.wait()
    left = left_after(2.0, below)
    record_figure(6, "processes left 2 s after kill -9 of a run with 4 env processes and 16 programs", left, "= 0")
    assert shared_files() <= shared_before


def test_a_finished_run_leaves_no_program_of_an_env(tmp_path: Path) -> None:
    run = start_run(tmp_path, steps=2560)
    assert run.wait(MINUTES) == 0
    programs = started_programs(tmp_path)
    assert len(programs) == 16 + 4  # of the env that is evaluated, too
    # A daemon of an env that ran in the process that trains has no connection to it any more: it is not found.
    found = [process for process in programs if process not in started_programs(tmp_path, "daemon", run.pid)]
    left = left_after(0.5, found)
    end_programs(tmp_path)
    record_figure(6, "programs of envs left 0.5 s after the end of a run", left, "= 0")


def test_sigterm_is_in_time_with_a_stopped_nursery_and_a_dead_worker(tmp_path: Path) -> None:
    slowest, saved = 0.0, 0
    for number, with_dead_worker in enumerate((False, True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = start_run(folder)
        below = descendants(run.pid)
        keeper, nursery, *workers = sorted(set(below) - set(started_programs(folder)))
        for process in (keeper, nursery):
            os.kill(process, signal.SIGSTOP)
        if with_dead_worker:
            os.kill(workers[0], signal.SIGKILL)
        with OwnClock(run.pid) as clock:
            run.terminate()
            saved += run.wait(MINUTES) == 75
            slowest = max(slowest, clock.seconds)
        assert left_after(2.0, below) == 0
        (file,) = folder.glob("runs/*/run.json")
        assert json.loads(file.read_text())["status"] == "interrupted"
    record_figure(
        5, "SIGTERM with a stopped nursery, with and without a dead worker: exits with code 75, of 2", saved, "= 2"
    )
    record_figure(5, "SIGTERM with a stopped nursery, with and without a dead worker: slowest exit", slowest, "<= 10 s")


def test_a_run_survives_the_death_of_each_process_that_starts_its_envs(tmp_path: Path) -> None:
    base: dict[str, Any] = {"algo": "ppo", "env_id": "callable:SpawningEnv", "num_envs": 2, "total_timesteps": 640}
    base |= {"vector_backend": "async", "env_kwargs": {"folder": str(tmp_path), "ways": ["child", "fork"]}}
    base |= {"output_dir": str(tmp_path), "eval_episodes": 1, "env_timeout": 60.0}
    survived = 0
    for name, places in (("nursery", [1]), ("keeper", [0]), ("both", [0, 1]), ("nursery-twice", [1])):
        kills = iter([200, 400] if name == "nursery-twice" else [300])
        due = [next(kills)]

        def look(progress: Any, places: list[int] = places, kills: Any = kills, due: list[int] = due) -> None:
            if due and progress.env_steps >= due[0]:
                due[:] = [each for each in [next(kills, None)] if each is not None]
                own = [each for each in descendants(os.getpid()) if each not in started_programs(tmp_path)]
                keeper = min(own)
                chosen = [keeper, min(set(own) - {keeper})]
                for place in places:
                    os.kill(chosen[place], signal.SIGKILL)

        config = load_config(base | {"run_name": name}, {"num_steps": 20, "minibatch_size": 20, "hidden_sizes": [8]})
        result = train(config, env=SpawningEnv, callback=look, show=False)
        survived += result.env_steps > 500 and not list(result.run_dir.glob("crash/*"))
        end_programs(tmp_path)
    record_figure(
        6, "runs that survive the death of the nursery, its keeper, both, or two nurseries, of 4", survived, "= 4"
    )


def test_a_dead_worker_is_replaced_in_time_although_its_socket_is_held(tmp_path: Path) -> None:
    kwargs = {"folder": str(tmp_path)}
    envs: Any = make_vector_env(SpawningEnv, 4, env_kwargs=kwargs, backend="async", timeout=15.0)
    slowest = 0.0
    envs.reset(seed=0)
    for index in range(RESTARTS_PER_ENV):  # it may be the same env each time
        (tmp_path / "exit").touch()
        with OwnClock(os.getpid()) as clock:
            envs.step(np.zeros(4, np.int64))
            slowest = max(slowest, clock.seconds)
        assert len(envs.failures) == index + 1 and not envs.failures[-1].timed_out
    envs.close()
    end_programs(tmp_path)
    record_figure(
        6, "seconds to replace a dead env whose socket is held by a program that it started", slowest, "<= 2 s"
    )
