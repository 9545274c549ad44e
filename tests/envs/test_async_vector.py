"""Envs in processes of their own: equal to envs in this one, replaced when they fail, gone when their parent is."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from faulty_envs import WAYS, FaultyEnv
from rl_training.envs.env_runner import check_observation
from rl_training.envs.factory import autoreset_mode, make_vector_env
from rl_training.envs.failures import RESTARTED, EnvFailed
from rl_training.envs.processes import async_nursery, async_vector
from waiting import DEADLINE_SECONDS, wait_until

SLOW = {"sleep", "stop"}


class Nested(gym.Env[Any, Any]):
    """Observations of every supported kind; a box of actions that it keeps and changes."""

    def __init__(self) -> None:
        spaces = gym.spaces
        self.observation_space = spaces.Dict(
            {
                "box": spaces.Box(-9, 9, (2, 2), np.float64),
                "pair": spaces.Tuple((spaces.Discrete(5, start=2), spaces.MultiBinary(3))),
                "many": spaces.MultiDiscrete([4, 5]),
            }
        )
        self.action_space = spaces.Box(-1, 1, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.kept = np.zeros(3, np.float32)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {"start": self.np_random.random()}

    def step(self, action: Any) -> Any:
        reward = float(self.kept.sum())
        self.kept = action
        over = self.np_random.random()
        return self.observation_space.sample(), reward, over < 0.2, over > 0.9, {"over": over}


def faulty(how: str, tmp_path: Path, *, times: int | None = 1, num_envs: int = 3, **kwargs: Any) -> Any:
    # An env that hangs costs the whole timeout. The others must answer within it, on a busy machine too.
    timeout = 3.0 if how in SLOW else DEADLINE_SECONDS
    if times is not None:
        (tmp_path / "times").write_bytes(b"x" * times)
        kwargs["times"] = str(tmp_path / "times")
    return make_vector_env(FaultyEnv, num_envs, env_kwargs={"how": how, **kwargs}, backend="async", timeout=timeout)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return state_of(process) not in ("Z", "")


def state_of(process: int) -> str:
    """The letter of the kernel, such as T for stopped and Z for ended; nothing if the process is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def plain(value: Any) -> Any:
    """For comparing: arrays as their type and their bytes, whatever they are nested in."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [plain(inner) for inner in value]
    return (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", Nested])
def test_every_bit_is_that_of_the_envs_in_one_process(env: Any) -> None:
    both = [make_vector_env(env, 3, backend=backend) for backend in ("sync", "async")]
    assert [autoreset_mode(each) for each in both] == [AutoresetMode.SAME_STEP] * 2
    both[0].action_space.seed(1)
    for seed in (5, [7, 8, 9]):
        results: list[Any] = [each.reset(seed=seed) for each in both]
        for _ in range(40):
            assert plain(results[0]) == plain(results[1])
            actions = both[0].action_space.sample()
            results = [each.step(actions) for each in both]
    assert plain(results[0]) == plain(results[1])
    for each in both:
        each.close()


@pytest.mark.parametrize("how", WAYS)
def test_whatever_way_an_env_fails_it_is_replaced_and_the_others_go_on(how: str, tmp_path: Path) -> None:
    envs = faulty(how, tmp_path)
    envs.reset(seed=20)
    for number in range(1, 4):
        assert RESTARTED not in envs.step(np.array([0, number % 3, 2]))[4]
    before = envs.processes
    observations, rewards, terminated, truncated, infos = envs.step(np.array([0, 1, 2]))
    assert infos[RESTARTED].tolist() == [False, True, False]
    assert observations[:, 0].tolist() == [4, 0, 4] and rewards.tolist() == [4, 0, 4]
    assert not terminated.any() and not truncated.any()
    (failure,) = envs.failures
    assert (failure.env_index, failure.seed, failure.episode_step, failure.last_action) == (1, 21, 4, 1)
    assert failure.actions == [1, 2, 0, 1] and failure.timed_out == (how in SLOW)
    after = envs.processes
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
    assert not is_running(before[1])
    following = [envs.step(np.array([0, 1, 2])) for _ in range(3)]
    assert [step[0][1, 0] for step in following] == [1, 2, 3]
    assert [step[2][0] for step in following] == [False, True, False]
    envs.close()
    assert not any(is_running(process) for process in after)


def test_a_reset_that_fails_is_tried_again_with_the_same_seed(tmp_path: Path) -> None:
    envs = faulty("exit", tmp_path, fail_at=0)
    observations, _ = envs.reset(seed=20)
    calm = make_vector_env(FaultyEnv, 3, backend="sync")
    np.testing.assert_array_equal(observations, calm.reset(seed=20)[0])
    (failure,) = envs.failures
    assert (failure.call, failure.actions, failure.env_index) == ("reset", [], 1)
    envs.close()


def test_the_budget_of_one_env_ends_with_the_whole_story(tmp_path: Path) -> None:
    envs = faulty("segfault", tmp_path, times=None, which=1)
    envs.reset(seed=20)
    with pytest.raises(EnvFailed) as caught:
        for _ in range(40):
            envs.step(np.array([0, 2, 0]))
            # A replacement has a seed of its own: here each of them fails again.
            envs._next_seed = lambda index: 31
    assert str(caught.value) == (
        "env 1 failed in step (seed 31, step 4 of its episode, last action 2): its process was killed by SIGSEGV; it "
        "was already replaced 3 times within 10 minutes, which is the limit"
    )
    assert caught.value.exit_code == 3 and len(envs.failures) == 3
    envs.close()


def test_the_budget_of_a_run_counts_all_envs_and_that_of_an_env_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_vector, "WITHIN_SECONDS", 0.0)  # all failures are long ago
    monkeypatch.setattr(async_vector, "RESTARTS_PER_RUN", 5)
    envs = faulty("raise", tmp_path, times=None, num_envs=2, fail_at=1)
    envs._next_seed = lambda index: 31
    envs.reset(seed=20)
    with pytest.raises(EnvFailed, match="the run has reached its limit of 5 environment replacements"):
        for _ in range(10):
            envs.step(np.array([0, 2]))
    envs.close()


def test_a_constructor_that_fails_in_a_replacement_costs_the_budget(tmp_path: Path) -> None:
    class Fragile(FaultyEnv):
        def __init__(self, flag: str, **kwargs: Any) -> None:
            if not Path(flag).exists():
                raise OSError("no level file")
            super().__init__(**kwargs)

    flag = tmp_path / "level"
    flag.touch()
    envs = make_vector_env(Fragile, 2, env_kwargs={"flag": str(flag), "fail_at": 2}, backend="async")
    envs.reset(seed=20)
    envs.step(np.zeros(2, np.int64))
    flag.unlink()
    with pytest.raises(EnvFailed, match=r"env 1 failed in the making \(seed \d+\): OSError: no level file; it was"):
        envs.step(np.zeros(2, np.int64))
    envs.close()


@pytest.mark.parametrize(
    ("how", "timeout", "why"),
    [("exit", DEADLINE_SECONDS, "ended by itself with exit code 9"), ("sleep", 0.1, r"gave no answer within 0\.5 s")],
)
def test_a_constructor_that_takes_its_process_along_is_told_on_one_line(how: str, timeout: float, why: str) -> None:
    class Stillborn(FaultyEnv):
        def __init__(self) -> None:
            os._exit(9) if how == "exit" else time.sleep(1000)

    with pytest.raises(EnvFailed, match=f"the env failed in the making.*{why}"):
        make_vector_env(Stillborn, 2, backend="async", timeout=timeout)


def test_an_env_may_use_torch_in_its_process() -> None:
    """After a fork, torch would wait for threads that did not come along."""

    class Thinking(FaultyEnv):
        def step(self, action: Any) -> Any:
            big = torch.ones(700, 700)
            self.thought = float((big @ big).sum())
            return super().step(action)

    _ = torch.ones(700, 700) @ torch.ones(700, 700)
    envs = make_vector_env(Thinking, 2, env_kwargs={"fail_at": -1}, backend="async", timeout=DEADLINE_SECONDS)
    envs.reset(seed=0)
    envs.step(np.zeros(2, np.int64))
    assert envs.failures == []
    envs.close()


def test_replacements_are_seeded_by_what_came_before(tmp_path: Path) -> None:
    marks = []
    for _ in range(2):
        envs = faulty("exit", tmp_path)
        envs.reset(seed=20)
        rows = [envs.step(np.zeros(3, np.int64))[0][1, 1] for _ in range(5)]
        marks.append(rows)
        assert rows[2] != rows[3]
        envs.close()
    assert marks[0] == marks[1]


def test_workers_are_gone_when_their_parent_is_killed_even_stopped_ones(tmp_path: Path) -> None:
    program = (
        "import numpy as np, sys, time\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from faulty_envs import FaultyEnv\n"
        "from rl_training.envs.factory import make_vector_env\n"
        "kwargs = {'how': 'stop', 'fail_at': 1}\n"
        "first = make_vector_env('CartPole-v1', 2, backend='async')\n"
        "envs = make_vector_env(FaultyEnv, 2, env_kwargs=kwargs, backend='async')\n"
        "envs.reset(seed=20)\n"
        "everything = [each for one in (first, envs) for each in (*one.processes, *one._nursery.processes)]\n"
        "print(*everything, flush=True)\n"
        "envs.step(np.zeros(2, np.int64))\n"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parents[1] / "support")]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    processes = [int(word) for word in parent.stdout.readline().split()]
    assert len(processes) == 8 and all(is_running(process) for process in processes)
    # In the first step, one env stops itself.
    wait_until(lambda: any(state_of(process) == "T" for process in processes))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not any(is_running(process) for process in processes))


def test_vector_envs_can_be_closed_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one's processes have copies of the first one's sockets: they must not keep it open."""
    forced, force_end = [], async_nursery.Nursery._force_end
    monkeypatch.setattr(async_nursery, "CLOSING_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(async_nursery.Nursery, "_force_end", lambda each: forced.append(force_end(each)))
    first, second = (make_vector_env("CartPole-v1", 2, backend="async") for _ in range(2))
    first.close()
    second.reset(seed=0)
    second.close()
    assert not forced, "the processes did not end by themselves"


def test_nothing_is_left_behind_by_closing() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = descriptors()
    for _ in range(2):
        envs = make_vector_env("CartPole-v1", 2, backend="async")
        envs.reset(seed=0)
        processes = [*envs.processes, *envs._nursery.processes]
        envs.close()
        envs.close()
        assert not any(is_running(process) for process in processes)
    assert descriptors() == before


@pytest.mark.parametrize(
    ("value", "space", "problem"),
    [
        (np.zeros(3, np.float32), gym.spaces.Box(-1, 1, (2,)), r"shape \(3,\), its space has \(2,\)"),
        (np.zeros(2, np.complex64), gym.spaces.Box(-1, 1, (2,)), "complex64, its space has float32"),
        (0.5, gym.spaces.Discrete(3), "float64, its space has int64"),
        ({"a": 0}, gym.spaces.Dict({"b": gym.spaces.Discrete(2)}), "dict with the keys b"),
        ((0,), gym.spaces.Tuple([gym.spaces.Discrete(2)] * 2), "tuple of 2"),
        (None, gym.spaces.Box(-1, 1, (2,)), "shape"),
    ],
)
def test_observations_that_do_not_fit_their_space_are_refused(value: Any, space: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        check_observation(value, space)


def test_observations_that_a_cast_makes_fit_are_taken() -> None:
    check_observation([0.0, 1.0], gym.spaces.Box(-1, 1, (2,), np.float32))
    check_observation(np.int8(1), gym.spaces.Discrete(3))
    check_observation(np.zeros(2, np.int64), gym.spaces.Box(-1, 1, (2,), np.float32))
