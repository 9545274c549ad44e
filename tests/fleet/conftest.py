"""One small Ray cluster for all tests of the Ray backend; they are in one group, so that one process starts it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_training.runtime.fleet.ray_setup import SMALLEST_STORE, keep_private


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """The address of a cluster with two CPUs, which outlives the runs that join it."""
    before = dict(os.environ)
    keep_private(joins=False)  # first: ray reads its settings when it is imported
    pytest.importorskip("ray", reason="the extra ray is not installed")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # for the envs of these tests
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder  # a short path: there are sockets in it
        Path(folder, "ray").mkdir()
        options = {"num_cpus": 2, "object_store_memory": SMALLEST_STORE, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=options)
        try:
            yield cluster.address
        finally:
            cluster.shutdown()
            os.environ.clear()
            os.environ.update(before)
