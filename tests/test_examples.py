"""The examples that teach: each runs as a program with its own small budget, and shows what it says."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rl_training.api import algorithms
from rl_training.config.algorithm_table import ALGORITHMS
from tiny_runs import ROOT

TEACHING = ["own_env", "own_algorithm", "masked_cards", "callback", "resume", "evaluate_and_record", "compare_seeds"]
LONGEST = 85  # lines: an example is read in one sitting


Run = Callable[[str], list[str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an example as a user would, in an empty directory, and returns the lines that it prints."""
    monkeypatch.chdir(tmp_path)

    def run_example(name: str) -> list[str]:
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run_example


@pytest.mark.parametrize("name", TEACHING)
def test_an_example_is_short_and_says_how_to_run_it(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert 30 <= len(text.splitlines()) <= LONGEST
    explanation = ast.get_docstring(ast.parse(text))
    assert explanation is not None and f"python examples/{name}.py" in explanation
    assert text.count("# ") >= 2, "a learner needs comments"


def test_own_env_is_learned(run: Run) -> None:
    first, second = run("own_env")
    mean_return = float(first.rpartition(" ")[2])
    assert mean_return > 0.3, "walking straight to the end pays 0.4 to 0.7"
    path = [int(position) for position in second.partition(": ")[2].split()]
    assert path == list(range(path[0], 8))


def test_masked_cards_are_played_better_than_at_random(run: Run) -> None:
    by_chance, careful, agent = (float(line.rpartition(" ")[2]) for line in run("masked_cards"))
    assert by_chance < 2.6
    assert careful > agent > by_chance + 0.4


@pytest.fixture
def own_algorithm_forgotten() -> Iterator[None]:
    """An algorithm that an example registers must not reach the tests over all algorithms."""
    yield
    ALGORITHMS.pop("repeat", None)
    algorithms._CLASSES.pop("repeat", None)


@pytest.mark.usefixtures("own_algorithm_forgotten")
def test_own_algorithm_learns_and_is_loaded_by_its_name(run: Run, tmp_path: Path) -> None:
    before, after, loaded = run("own_algorithm")
    assert float(after.split()[1]) > float(before.split()[1]) + 100
    assert loaded.startswith("Repeat('CartPole-v1', seed=0, env_steps=")
    metrics = (tmp_path / "runs" / "repeat-CartPole-v1-seed0" / "metrics.jsonl").read_text()
    assert '"worked": ' in metrics


def test_callback_prints_and_stops_at_its_target(run: Run) -> None:
    *lines, why, episodes, end = run("callback")
    assert lines and all(re.fullmatch(r" *\d+ steps: mean return +\d+\.\d", line) for line in lines)
    assert "finished: the evaluation at step " in why and re.match(r"[1-9]\d* of \d+ episodes had fewer", episodes)
    assert int(re.search(r"stopped after (\d+) steps", end)[1]) < 30_000  # type: ignore[index]


def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(run: Run) -> None:
    whole, crash, resumed, verdict = run("resume")
    assert "4800 steps" in crash and whole.endswith("8000 steps") and resumed.endswith("8000 steps")
    assert verdict == "all weights are equal, bit for bit"


def test_evaluation_and_a_gif(run: Run, tmp_path: Path) -> None:
    last, best, exploring, recorded = run("evaluate_and_record")
    for line in (last, best, exploring):
        assert float(re.search(r": +(\d+\.\d) \+-", line)[1]) > 20  # type: ignore[index]
    assert recorded.startswith("cartpole.gif: ")
    assert (tmp_path / "cartpole.gif").read_bytes()[:4] == b"GIF8"


def test_seeds_are_compared_in_a_table(run: Run, tmp_path: Path) -> None:
    head, *rows, total, advice = run("compare_seeds")
    assert head.split() == ["seed", "mean", "IQM", "run"]
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]
    means = [float(row.split()[1]) for row in rows]
    assert float(total.split()[1]) == pytest.approx(sum(means) / 3, abs=0.2)
    low, high = (float(number) for number in re.findall(r"\d+\.\d", total)[-2:])
    assert min(means) - 0.1 <= low <= high <= max(means) + 0.1
    assert "five or more" in advice
    assert len(list((tmp_path / "runs").iterdir())) == 3
