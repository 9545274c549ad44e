"""Memory: what is left within the limits of containers and jobs, and what a replay buffer will take of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.data import replay_memory
from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_layout import ReplayLayout
from rl_training.errors import ConfigError

MEGABYTE = 2**20


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine made of files: `machine(path, text)` writes one of them."""
    monkeypatch.setattr(replay_memory, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(replay_memory, "PROC", tmp_path / "proc")

    def write(path: str, text: object) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    write("proc/meminfo", "MemTotal: 90000 kB\nMemAvailable: 80000 kB")
    return write


def limit_v2(machine: Any, folder: str, limit: object, used: int, cached: int = 0) -> None:
    machine(f"cgroup{folder}/memory.max", limit)
    machine(f"cgroup{folder}/memory.current", used)
    machine(f"cgroup{folder}/memory.stat", f"anon 5\ninactive_file {cached}\nslab 3")


def test_without_a_limit_it_is_what_the_machine_has(machine: Any) -> None:
    assert replay_memory.available_bytes() == 80_000 * 1024
    limit_v2(machine, "", "max", 10)
    assert replay_memory.available_bytes() == 80_000 * 1024


def test_the_limit_of_the_own_job_counts_wherever_it_is_nested(machine: Any) -> None:
    machine("proc/self/cgroup", "0::/slurm/job_7/step_0")
    limit_v2(machine, "/slurm", 50 * MEGABYTE, 8 * MEGABYTE)
    assert replay_memory.available_bytes() == 42 * MEGABYTE
    limit_v2(machine, "/slurm/job_7", 20 * MEGABYTE, 15 * MEGABYTE)
    assert replay_memory.available_bytes() == 5 * MEGABYTE
    limit_v2(machine, "/slurm/job_7/step_0", "max", 15 * MEGABYTE)
    limit_v2(machine, "/slurm/job_8", 1 * MEGABYTE, 0)  # somebody else's
    assert replay_memory.available_bytes() == 5 * MEGABYTE


def test_what_is_only_cached_is_not_used(machine: Any) -> None:
    machine("proc/self/cgroup", "0::/job")
    limit_v2(machine, "/job", 20 * MEGABYTE, 19 * MEGABYTE, cached=10 * MEGABYTE)
    assert replay_memory.available_bytes() == 11 * MEGABYTE


def test_control_groups_of_version_one_count_too(machine: Any) -> None:
    machine("proc/self/cgroup", "12:cpu,cpuacct:/other\n4:memory:/docker/abc\n0::/")
    machine("cgroup/memory/docker/abc/memory.limit_in_bytes", 30 * MEGABYTE)
    machine("cgroup/memory/docker/abc/memory.usage_in_bytes", 12 * MEGABYTE)
    machine("cgroup/memory/docker/abc/memory.stat", f"cache 9\ntotal_inactive_file {2 * MEGABYTE}")
    assert replay_memory.available_bytes() == 20 * MEGABYTE


def test_a_path_that_only_the_outside_knows_leaves_the_containers_own_limit(machine: Any) -> None:
    machine("proc/self/cgroup", "0::/../../kubepods/pod1")
    limit_v2(machine, "", 9 * MEGABYTE, 2 * MEGABYTE)
    assert replay_memory.available_bytes() == 7 * MEGABYTE


def test_the_limit_at_the_root_counts_where_the_kernel_lists_no_group(machine: Any) -> None:
    limit_v2(machine, "", 5000, 2000)
    assert replay_memory.available_bytes() == 3000


def test_above_eighty_percent_is_refused_with_a_size_that_fits(machine: Any) -> None:
    machine("proc/self/cgroup", "0::/job")
    limit_v2(machine, "/job", 100 * MEGABYTE, 0)
    machine("proc/meminfo", "MemAvailable: 9000000 kB")
    replay_memory.check_replay_fits(80 * MEGABYTE, 1000)
    with pytest.raises(
        ConfigError, match=r"needs 0\.1 GB, but only 80% of the 0\.1 GB .*: set buffer_size=\d+"
    ) as caught:
        replay_memory.check_replay_fits(81 * MEGABYTE, 1000)
    assert caught.value.exit_code == 2
    fitting = int(str(caught.value).split("buffer_size=")[1].split()[0])
    replay_memory.check_replay_fits(81 * MEGABYTE * fitting // 1000, fitting)


def all_arrays(value: Any, seen: set[int]) -> int:
    """Bytes of every array that an object holds, each piece of memory once."""
    if isinstance(value, np.ndarray):
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if id(owner) in seen:
            return 0
        seen.add(id(owner))
        return owner.nbytes
    if isinstance(value, dict):
        return sum(all_arrays(each, seen) for each in value.values())
    if isinstance(value, (list, tuple)):
        return sum(all_arrays(each, seen) for each in value)
    ours = type(value).__module__.startswith("rl_training") and hasattr(value, "__dict__")
    return all_arrays(vars(value), seen) if ours else 0


IMAGES = ((4, 84, 84), "uint8")
VECTORS = ((4,), "float32", (), "int64")
BUFFERS: dict[str, tuple[ReplayLayout, dict[str, Any]]] = {
    "vectors": (ReplayLayout(10_000, 1, *VECTORS), {}),
    "wide vectors and actions": (ReplayLayout(10_000, 1, (376,), "float32", (17,), "float32"), {}),
    "three steps": (ReplayLayout(10_000, 1, *VECTORS), {"n_step": 3}),
    "priorities": (ReplayLayout(10_000, 1, *VECTORS), {"prioritized": PriorityOptions()}),
    "images whole": (ReplayLayout(1_000, 1, *IMAGES, (), "int64"), {}),
    "frames once": (ReplayLayout(1_000, 1, *IMAGES, (), "int64", stack=4), {}),
    "color, priorities": (
        ReplayLayout(1_000, 1, (6, 42, 42), "uint8", (), "int64", stack=2),
        {"prioritized": PriorityOptions()},
    ),
}


@pytest.mark.parametrize("num_envs", [1, 7])
@pytest.mark.parametrize("name", BUFFERS)
def test_every_array_of_a_buffer_is_predicted_within_one_percent(name: str, num_envs: int) -> None:
    layout, options = BUFFERS[name]
    layout = replace(layout, num_envs=num_envs)
    predicted = ReplayBuffer.predicted_bytes(layout, prioritized="prioritized" in options)
    found = all_arrays(ReplayBuffer(layout, gamma=0.99, **options), set())
    assert found == pytest.approx(predicted, rel=0.01)
