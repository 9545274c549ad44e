"""The speed benchmark: its modes run for our library, and its rows add up. The numbers need an idle machine."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rl_training.config.loading import load_config

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("parts")


def plain(parts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not compile: the numbers do not matter here."""
    monkeypatch.setattr("rl_training.runtime.auto_settings.resolve_compile", lambda *_: "off")


def test_every_workload_is_a_valid_config(parts: ModuleType) -> None:
    for work in parts.WORKS.values():
        assert load_config(work.ours).algo in work.title.lower().replace("recurrentppo", "recurrent_ppo")


# Names of our settings in the peers.
THEIR_NAMES = {
    "num_steps": "n_steps",
    "minibatch_size": "batch_size",
    "update_epochs": "n_epochs",
    "batch_size": "batch_size",
    "train_frequency": "train_freq",
    "learning_starts": "learning_starts",
    "buffer_size": "buffer_size",
}
EPOCHS = {"update_epochs": "update_epochs"}
OTHER_NAMES = {
    "pufferlib": EPOCHS | {"num_steps": "bptt_horizon", "minibatch_size": "minibatch_size"},
    "cleanrl": EPOCHS | {"num_steps": "num_steps"},
}


def test_both_sides_of_a_workload_have_the_same_settings(parts: ModuleType) -> None:
    for name, work in parts.WORKS.items():
        config, peer = load_config(work.ours), work.peer
        assert config.num_envs == peer["envs"], name
        names = OTHER_NAMES.get(work.package, THEIR_NAMES)
        compared = [key for key in names if hasattr(config.algo_kwargs, key) and names[key] in peer["kwargs"]]
        assert len(compared) >= {"a2c": 1, "ppo-atari-cleanrl": 2}.get(name, 3), name
        for key in compared:
            assert getattr(config.algo_kwargs, key) == peer["kwargs"][names[key]], f"{name}: {key}"
        if name != "recurrent-ppo" and "atari" not in name:
            assert list(config.model.hidden_sizes) == peer["net"], name
    recurrent = load_config(parts.WORKS["recurrent-ppo"].ours).algo_kwargs
    assert (recurrent.memory_size, recurrent.sequence_length) == (64, recurrent.num_steps)


@pytest.mark.parametrize("name", ["a2c", "dqn", "recurrent-ppo"])
def test_the_parts_of_a_step_add_up(name: str, parts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plain(parts, monkeypatch)
    row = parts.breakdown([name], 0.3)[-1]
    steps, *cells = (cell.strip().replace(",", "") for cell in row.strip("|").split("|")[1:])
    assert float(steps) > 0
    assert len(cells) == len(parts.PARTS)
    unknown = [part for part, cell in zip(parts.PARTS, cells, strict=True) if cell == "-"]
    assert unknown == (["rollouts"] if name == "dqn" else ["rollouts", "storing", "sampling"])
    shares = [float(cell) for cell in cells if cell != "-"]
    assert all(share >= -1 for share in shares)
    assert sum(shares) == pytest.approx(100, abs=4)


def test_growth_has_a_row_for_every_size_and_names_the_larger_part(
    parts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain(parts, monkeypatch)
    growth = importlib.import_module("growth")
    picture = tmp_path / "growth.png"
    lines = growth.growth([], 0.05, envs=(1, 4), widths=(16,), replays=(1_000, 3_000), picture=picture)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| \d", line)]
    assert [row[:2] for row in rows[:3]] == [["1", "64"], ["4", "64"], ["8", "16"]]
    for row in rows[:3]:
        total, collecting, learning = map(float, row[3:6])
        assert total == pytest.approx(collecting + learning, abs=0.15) and min(collecting, learning) > 0
        assert row[6] == ("learning" if learning > collecting else "collecting")
    assert [row[0] for row in rows[3:]] == ["1,000", "3,000"]
    assert all(float(cell) >= 0 for row in rows[3:] for cell in row[2:])
    assert picture.stat().st_size > 5_000


def test_growth_says_where_the_larger_part_changes(parts: ModuleType) -> None:
    growth = importlib.import_module("growth")
    sizes = [growth.Size(envs, 64, collecting, 5.0) for envs, collecting in ((1, 9.0), (4, 6.0), (16, 4.0))]
    assert growth.changes("envs", sizes) == ["From 16 (envs) on, learning takes more time than collecting."]
    assert growth.changes("envs", sizes[:2]) == ["Collecting is the larger part at every number of envs."]


def test_the_cost_of_checkpoints_is_the_time_training_waits_for_them(parts: ModuleType) -> None:
    checkpoint_cost = importlib.import_module("checkpoint_cost")
    cost = checkpoint_cost.saving_cost("ppo/cartpole", steps=22_000)
    assert cost.every == 20_000 and len(cost.seconds) == 2  # one during the run, one at the end
    assert 0 < cost.median < 1 and 0 < cost.share < 0.5


def test_short_runs_that_auto_compiles_are_measured_both_ways(
    parts: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    startup = importlib.import_module("startup")
    used = {"auto": 2.0, "off": 4.0}
    monkeypatch.setattr(startup, "_whole_run", lambda words, setting, steps: used[setting])
    runs = (("ppo/cartpole", 2_048), ("ppo --env Pendulum-v1", 10_000_000))
    off, on = (
        [cell.strip() for cell in row.strip("|").split("|")] for row in startup.short_runs([], 0.0, 3, runs)[-2:]
    )
    assert (off[:3], off[4:]) == (["ppo/cartpole", "2,048", "off"], ["", "", "1"])  # too few steps to compile
    assert re.fullmatch(r"compiling takes about \d+ s and saves about 0 s", off[3])
    assert on[2] == "on" and on[4:] == ["2.0 (2.0 .. 2.0)", "4.0 (4.0 .. 4.0)", "0.50"]


def test_the_seconds_of_a_short_run_are_those_of_its_processor(parts: ModuleType) -> None:
    startup = importlib.import_module("startup")
    assert 0 < startup._whole_run("ppo/cartpole", "off", 256) < 60


@pytest.fixture
def commits(parts: ModuleType) -> ModuleType:
    return importlib.import_module("commits")


def test_two_commits_are_measured_once_for_each_work_of_ours(parts: ModuleType, commits: ModuleType) -> None:
    assert commits.chosen_works("") == [name for name in parts.WORKS if not name.endswith(("-sbx", "-jax", "-cleanrl"))]
    atari = ["ppo-atari", "dqn-atari", "ppo-atari-bfloat16", "dqn-atari-bfloat16"]
    assert commits.chosen_works("breakout") == atari
    assert commits.chosen_works("no such row") == []


@pytest.mark.parametrize(("new", "verdict"), [([98.0, 300.0, 96.0], "within 3 %"), ([96.9, 96.9, 200.0], "SLOWER")])
def test_the_median_of_the_pairs_decides_which_commit_is_slower(
    new: list[float], verdict: str, commits: ModuleType
) -> None:
    row = commits.Row("a work", [100.0, 100.0, 100.0], new)
    assert row.is_slower == (verdict == "SLOWER")
    spread = f"({min(new) / 100:.3f} .. {max(new) / 100:.3f})"
    assert str(row) == f"| a work | 100 | {sorted(new)[1]:,.0f} | {sorted(new)[1] / 100:.3f} {spread} | {verdict} |"


def test_both_commits_are_measured_with_a_worker_of_their_own(
    parts: ModuleType, commits: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = parts.WORKS["a2c"]
    monkeypatch.setitem(parts.WORKS, "a2c", dataclasses.replace(work, ours=work.ours | {"compile": "off"}))
    row = commits.measure(commits.task_of_work("a2c"), [BENCHMARKS.parent, BENCHMARKS.parent], pairs=2, window=0.05)
    assert row.title == work.title and len(row.old) == len(row.new) == 2
    assert min(*row.old, *row.new) > 0


class FakeWorker:
    def __init__(self, *rates: float):
        self.rates = list(rates)

    def rate(self, seconds: float) -> float:
        return self.rates.pop(0)


@pytest.mark.parametrize(
    ("loads", "chosen", "calm"),
    [
        ([0.05], 0, True),
        ([0.5, 0.02], 1, True),  # the first pair was disturbed and is measured again
        ([0.5, 0.3, 0.4], 1, False),  # none was calm: the calmest counts
        ([None], 0, True),  # the system does not tell
    ],
)
def test_a_pair_is_measured_again_while_other_programs_run(
    loads: list[float | None], chosen: int, calm: bool, parts: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = importlib.import_module("speed")
    clock, foreign = [0.0], [0.0]
    left = list(loads)

    class Ours(FakeWorker):
        def rate(self, seconds: float) -> float:
            clock[0] += 10.0
            load = left.pop(0)
            foreign[0] += 10.0 * (load or 0.0)
            return super().rate(seconds)

    monkeypatch.setattr(speed.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(speed, "foreign_seconds", lambda: None if loads == [None] else foreign[0])
    pair = speed.calmest_pair(FakeWorker(1.0, 2.0, 3.0), Ours(10.0, 20.0, 30.0), 5.0)
    assert (pair.peer, pair.ours, pair.is_calm) == (1.0 + chosen, 10.0 * (1 + chosen), calm)
    assert left == [], "no pair is measured more often than that"
    row = speed.Comparison(parts.WORKS["a2c"], [pair.ours], [pair.peer], 1, int(not calm)).row()
    assert ("† 1 of 1 pairs" in row) == (not calm)


def test_the_work_of_this_process_and_its_children_is_not_foreign(parts: ModuleType) -> None:
    speed = importlib.import_module("speed")
    before, own = speed.foreign_seconds(), speed.family_seconds(speed.os.getpid())
    if before is None:
        pytest.skip("this system does not count processor time")
    spin = "import time\nwhile time.process_time() < 1.0: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert speed.family_seconds(speed.os.getpid()) - own >= 0.9


def test_without_the_peers_the_error_says_how_to_install_them(tmp_path: Path) -> None:
    for script in BENCHMARKS.glob("*.py"):
        folder = tmp_path / "benchmarks"
        folder.mkdir(exist_ok=True)
        (folder / script.name).write_text(script.read_text())
    found = subprocess.run([sys.executable, folder / "speed.py"], capture_output=True, text=True, check=False)
    assert found.returncode != 0
    assert "run `make bench-setup` first" in found.stderr


def test_the_page_shows_what_bfloat16_costs_in_learning(parts: ModuleType) -> None:
    learning = importlib.import_module("bfloat16_learning")
    assert learning.area([[0, 1.0], [1, 3.0], [3, 3.0]]) == pytest.approx(8 / 3)
    rows = learning.table(json.loads(learning.KEPT.read_text()))[2:]
    page = (learning.RESULTS.parent / "speed.md").read_text()
    assert len(rows) == 4 and all(row.replace("|  |", "| |") in page for row in rows)
