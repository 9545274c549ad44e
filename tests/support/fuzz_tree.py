"""The tree of files that cases change: runs, checkpoints, a crash file, a benchmark with results, and files outside."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

WORK, OUTSIDE, HOME, SCRATCH = "work", "outside", "home", "scratch"
PPO, DQN, CRASHED, OWN = "runs/ppo", "runs/dqn", "runs/crashed", "runs/own"  # OWN: with code of the user's own
R2D2, TD7, ACKTR, NOVEL, APEX = (f"runs/{name}" for name in ("r2d2", "td7", "acktr", "novel", "apex"))
NEWER = (R2D2, TD7, ACKTR, NOVEL, APEX)  # with memory, a kept policy, curvature, a bonus for novelty, shards of actors
REPLAY_CONFIG, SECRET = "replay.yaml", "../home/.local/state/rl_training/tracker_secret"
CONFIG, MANIFEST, PRESET, CRASH_FILE = "train.yaml", "zoo/tiny.yaml", "zoo/calm.yaml", "crash.json"
ZOO_RUNS, RESULTS, BAND = "runs/zoo", "report/results", "bands/calm.json"
HASHED_BYTES = 2**20

SMALL = {"total_timesteps": 64, "log_every": 16, "eval_episodes": 1, "checkpoint_every": 32, "device": "cpu"}
SMALL |= {"compile": "off"}  # compiling takes long, and it has a cache of its own
ROLLOUT = {"num_steps": 8, "minibatch_size": 8, "update_epochs": 1}
REPLAY = {"learning_starts": 16, "batch_size": 8, "buffer_size": 200, "prioritized": True, "n_step": 3}


WINDOWS = {"sequence_length": 6, "burn_in": 2, "memory_size": 8}
FEW_STEPS = {"num_steps": 8}
SETTINGS = {"dqn": REPLAY, "r2d2": REPLAY | WINDOWS, "td7": REPLAY | {"n_step": 1, "copy_every": 4}}
SETTINGS |= {"apex_dqn": REPLAY, "acktr": FEW_STEPS}


def config(name: str, algo: str = "ppo", env_id: str = "CartPole-v1", **changes: Any) -> dict[str, Any]:
    settings = SETTINGS.get(algo, ROLLOUT)
    model = {"hidden_sizes": [8]}
    base = {"algo": algo, "env_id": env_id, "run_name": name, "output_dir": "runs", "num_envs": 2, "model": model}
    return {**base, **SMALL, "algo_kwargs": settings, **changes}


def make_tree(root: Path) -> None:
    """Build the tree with the library itself, in the working directory of the cases. Changes the current directory."""
    for name in (WORK, OUTSIDE, HOME, SCRATCH, f"{OUTSIDE}/folder", f"{WORK}/zoo"):
        (root / name).mkdir(parents=True)
    for name in ("canary", "folder/file"):
        (root / OUTSIDE / name).write_text('{"canary": "nothing may change this file"}\n')
    os.environ["HOME"] = str(root / HOME)  # the runs belong to the user of the cases
    os.chdir(root / WORK)
    from rl_training.cli import main
    from rl_training.config.loading import load_config
    from rl_training.errors import EnvError
    from rl_training.runtime.workflows import train

    Path(CONFIG).write_text(json.dumps(config("new", vector_backend="sync"), indent=1))
    Path(REPLAY_CONFIG).write_text(json.dumps(config("new", "dqn", vector_backend="sync"), indent=1))
    train(load_config(config("dqn", "dqn")), show=False)
    train(load_config(config("r2d2", "r2d2")), show=False)
    short = {"env_kwargs": {"max_episode_steps": 20}}  # `play` keeps the pictures of an episode in memory
    train(load_config(config("td7", "td7", "Pendulum-v1", **short)), show=False)
    train(load_config(config("acktr", "acktr")), show=False)
    train(load_config(config("novel", algo_kwargs=ROLLOUT | {"novelty_coef": 0.5})), show=False)
    train(load_config(config("apex", "apex_dqn", runtime={"actors": 2, "backend": "inline"})), show=False)
    parts = {"wrappers": ["fuzz_parts:Wraps"], "sinks": [{"sink": "fuzz_parts:Listens", "project": "x"}]}
    own_model = {"hidden_sizes": [8], "encoder": "fuzz_parts:Encodes", "encoder_kwargs": {"width": 4}}
    train(load_config(config("own", model=own_model, **parts)), show=False)
    hooks = {"callbacks": ["fuzz_callbacks:Counts"], "log_info": ["score"], "patience": 9, "stop_at_return": 1e6}
    train(load_config(config("ppo", eval_every=32, **hooks)), show=False)
    _add_reports(Path(PPO))
    with contextlib.suppress(EnvError):
        train(load_config(config("crashed", env_id="fuzz_envs:RaisesInStep-v0", vector_backend="sync")), show=False)
    shutil.copy(next(Path(CRASHED, "crash").glob("*.json")), CRASH_FILE)
    _make_benchmark()
    for command in (
        ["table", MANIFEST, "--seeds", "3", "--output-dir", ZOO_RUNS, "--write", "report"],
        ["bands", MANIFEST, "--seeds", "3", "--output-dir", ZOO_RUNS, "--write", "bands"],
    ):
        code = main(["zoo", *command, "--json"])
        assert code == 0, f"zoo {command} exits with {code}"
    assert Path(BAND).is_file() and any(Path(RESULTS).rglob("*.json")), "the benchmark wrote other files"


def _add_reports(run: Path) -> None:
    """What a longer run has beside its metrics: findings and videos."""
    from rl_training.diagnosis.run_finding import Finding

    finding = Finding("dead_units", 32, "all units are dead", "the steps are too large", "lower learning_rate")
    (run / "findings.jsonl").write_text(json.dumps(finding.to_json()) + "\n")
    (run / "videos").mkdir()
    (run / "videos" / "step-000000000032.gif").write_bytes(b"GIF89a")


def _make_benchmark() -> None:
    from rl_training.zoo.manifest import load_manifest
    from rl_training.zoo.runs import Job, train_and_score

    preset = {key: value for key, value in config("x").items() if key not in ("run_name", "output_dir")}
    Path(PRESET).write_text(json.dumps(preset | {"env_id": "fuzz_envs:Calm-v0", "eval_every": 16}))
    row = {"config": "calm.yaml", "budget": 1000, "floor": 0.0, "bar": 1.0, "reference": 1.0}
    row |= {"source": "its definition", "protocol": "exact"}
    manifest = {"title": "Tiny", "about": "One row.", "protocols": {"exact": "known exactly"}, "rows": [row]}
    Path(MANIFEST).write_text(json.dumps(manifest))
    for entry in load_manifest(MANIFEST).entries:
        for seed in range(3):
            train_and_score(Job(entry, seed, ZOO_RUNS))


def remove_tree(root: Path) -> None:
    """Remove a tree, including directories that nobody may read."""
    if root.is_symlink() or not root.exists():
        return
    for folder, names, _ in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(root)


def facts_of(root: Path) -> dict[str, Any]:
    """What must not change: the kind, mode, links, size, time and content of every file, by relative path."""
    found: dict[str, Any] = {}
    waiting, start = [str(root)], len(str(root)) + 1
    while waiting:
        with contextlib.suppress(PermissionError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                facts: dict[str, Any] = {"mode": oct(status.st_mode), "links": 0}
                if stat.S_ISREG(status.st_mode):
                    facts |= {"size": status.st_size, "time": status.st_mtime_ns, "links": status.st_nlink}
                    facts["content"] = _hash(entry.path) if status.st_size <= HASHED_BYTES else ""
                elif stat.S_ISLNK(status.st_mode):
                    facts["target"] = os.readlink(entry.path)
                elif stat.S_ISDIR(status.st_mode):
                    waiting.append(entry.path)
                found[entry.path[start:]] = facts
    return found


def _hash(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return hashlib.sha256(file.read()).hexdigest()
    except PermissionError:
        return "unreadable"


def changes_between(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Paths that were created, removed or changed, with the reason."""
    changes = [f"{path} was created" for path in after.keys() - before.keys()]
    changes += [f"{path} was removed" for path in before.keys() - after.keys()]
    for path in before.keys() & after.keys():
        old, new = dict(before[path]), dict(after[path])
        # A file of the run that is replaced by rename gives its link back. That is no change of the file outside.
        old_links, new_links = old.pop("links"), new.pop("links")
        if new_links > old_links or old != new:
            names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
            changes.append(f"{path} was changed ({', '.join(names) or 'links'})")
    return sorted(changes)
