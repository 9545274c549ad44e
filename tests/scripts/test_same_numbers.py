"""scripts/same_numbers.py: what the comparison finds, what it ignores, and what a short run covers."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import rl_training
from rl_training.telemetry.metric_lines import MACHINE_FIELDS

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
CONFIGS = Path(rl_training.__file__).resolve().parent / "assets" / "configs"
PRESETS = sorted(path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("*.yaml"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


@pytest.fixture
def runs(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("same_numbers_runs")


LINES: list[dict[str, Any]] = [
    {"kind": "train", "env_steps": 10, "loss": 0.5, "wall_seconds": 1.0, "time_env": 0.2},
    {"kind": "eval", "env_steps": 10, "eval_mean_return": 3.0},
    {"kind": "train", "env_steps": 20, "loss": 0.25, "wall_seconds": 2.0, "time_env": 0.2},
]
STATE: dict[str, Any] = {
    "learner": {"updates": 3, "model": {"weight": {"$tensor": "learner/model/weight", "$kind": "torch"}}},
    "recent": [[1.0, 5]],
    "metrics_offset": 321,
}
TENSORS = {"learner/model/weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
ROWS = {"rewards": np.ones(4, np.float32)}


def make_run(
    folder: Path,
    lines: list[dict[str, Any]] = LINES,
    state: dict[str, Any] = STATE,
    tensors: dict[str, np.ndarray] = TENSORS,
    rows: dict[str, np.ndarray] = ROWS,
    manifest: dict[str, Any] | None = None,
) -> Path:
    """A run directory with one checkpoint and one replay segment."""
    checkpoint = folder / "checkpoints" / "step-000000000020"
    checkpoint.mkdir(parents=True)
    (folder / "replay").mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (checkpoint / "state.json").write_text(json.dumps(state))
    (checkpoint / "manifest.json").write_text(json.dumps({"number": 1, "created": str(folder)} | (manifest or {})))
    (checkpoint / "config.json").write_text(json.dumps({"compile": "off", "output_dir": str(folder)}))
    save_file(tensors, checkpoint / "tensors.safetensors")
    save_file(rows, folder / "replay" / "segment-0-4.safetensors")
    return folder


@pytest.fixture
def difference(script: Callable[[str], ModuleType], tmp_path: Path) -> Callable[..., str | None]:
    """The first difference between the plain run above and one with changes."""

    def compare(renamed: dict[str, str] | None = None, **changes: Any) -> str | None:
        old, new = make_run(tmp_path / "old"), make_run(tmp_path / "new", **changes)
        found: str | None = script("same_numbers_compare").first_difference(old, new, renamed)
        return found

    return compare


def changed_line(number: int, **values: Any) -> list[dict[str, Any]]:
    return [line | values if index == number else line for index, line in enumerate(LINES)]


def test_equal_runs_have_no_difference(difference: Callable[..., str | None]) -> None:
    assert difference() is None


def test_what_the_machine_decides_is_ignored(difference: Callable[..., str | None]) -> None:
    slower = changed_line(0, wall_seconds=9.0, time_env=0.9, failed_saves=1)
    assert difference(lines=slower, state=STATE | {"metrics_offset": 400}, manifest={"created": "later"}) is None


def test_the_list_of_machine_fields_is_that_of_the_library(script: Callable[[str], ModuleType]) -> None:
    assert script("same_numbers_compare").MACHINE_FIELDS == MACHINE_FIELDS


def test_the_order_of_keys_does_not_count(difference: Callable[..., str | None]) -> None:
    turned = [dict(reversed(line.items())) for line in LINES]
    assert difference(lines=turned, state=dict(reversed(STATE.items()))) is None


def test_a_changed_metric_is_named_with_its_step(difference: Callable[..., str | None]) -> None:
    found = difference(lines=changed_line(2, loss=0.25000001))
    assert found == "metrics.jsonl line 3 (train, step 20): loss is 0.25 in OLD, 0.25000001 in NEW"


@pytest.mark.parametrize("value", [3, True, None, "3.0"])
def test_a_metric_of_another_type_is_a_difference(difference: Callable[..., str | None], value: Any) -> None:
    found = difference(lines=changed_line(1, eval_mean_return=value))
    assert found is not None and "eval_mean_return is 3.0 in OLD" in found


def test_a_renamed_metric_is_found(difference: Callable[..., str | None]) -> None:
    renamed = [{key.replace("loss", "cost"): value for key, value in line.items()} for line in LINES]
    assert difference(lines=renamed) == "metrics.jsonl line 1 (train, step 10): loss only in OLD"


def test_a_missing_last_line_is_found(difference: Callable[..., str | None]) -> None:
    assert difference(lines=LINES[:-1]) == "metrics.jsonl: 3 lines in OLD, 2 lines in NEW"


def test_a_missing_line_in_the_middle_is_found(difference: Callable[..., str | None]) -> None:
    found = difference(lines=[LINES[0], LINES[2]])
    assert found == 'metrics.jsonl line 2 (eval, step 10): kind is "eval" in OLD, "train" in NEW'


def test_one_changed_bit_of_a_tensor_is_found(difference: Callable[..., str | None]) -> None:
    weight = TENSORS["learner/model/weight"].copy()
    weight.view(np.uint8)[1, 4] ^= 1
    found = difference(tensors={"learner/model/weight": weight})
    where = "checkpoint step-000000000020: tensor learner/model/weight"
    assert found == f"{where}: 1 of 6 elements differ, the first at 4"


@pytest.mark.parametrize("change", [lambda a: a.astype(np.float64), lambda a: a.reshape(3, 2)])
def test_another_dtype_or_shape_is_found(difference: Callable[..., str | None], change: Callable[..., Any]) -> None:
    found = difference(tensors={"learner/model/weight": change(TENSORS["learner/model/weight"])})
    assert found is not None and "learner/model/weight: F32[2, 3] in OLD" in found


def test_a_tensor_more_or_less_is_found(difference: Callable[..., str | None]) -> None:
    found = difference(tensors=TENSORS | {"learner/more": np.zeros(1, np.float32)})
    assert found == "checkpoint step-000000000020: tensor learner/more: only in NEW"


def test_a_changed_value_of_the_state_is_found(difference: Callable[..., str | None]) -> None:
    found = difference(state=STATE | {"recent": [[1.0, 6]]})
    assert found == "checkpoint step-000000000020: state.json: recent/0/1 is 5 in OLD, 6 in NEW"


def test_a_changed_manifest_is_found(difference: Callable[..., str | None]) -> None:
    assert difference(manifest={"number": 2}) == (
        "checkpoint step-000000000020: manifest.json: number is 1 in OLD, 2 in NEW"
    )


def test_changed_replay_rows_are_found(difference: Callable[..., str | None]) -> None:
    found = difference(rows={"rewards": np.array([1, 1, 1, 2], np.float32)})
    assert found == "replay segment-0-4.safetensors: tensor rewards: 1 of 4 elements differ, the first at 3"


RENAMED_STATE = {
    "agent": {"updates": 3, "network": {"weight": {"$tensor": "agent/network/weight", "$kind": "torch"}}},
    "recent": [[1.0, 5]],
}


def test_a_renamed_state_is_a_difference_unless_it_is_mapped(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    compare = script("same_numbers_compare").first_difference
    old = make_run(tmp_path / "old")
    new = make_run(
        tmp_path / "new", state=RENAMED_STATE, tensors={"agent/network/weight": TENSORS["learner/model/weight"]}
    )
    assert compare(old, new) == "checkpoint step-000000000020: tensor agent/network/weight: only in NEW"
    assert compare(old, new, {"learner": "agent", "learner/model": "agent/network"}) is None
    assert compare(old, new, {"learner": "agent"}) is not None


def test_what_is_added_is_a_difference_unless_it_is_declared(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    compare = script("same_numbers_compare").first_difference
    old = make_run(tmp_path / "old")
    state = STATE | {"loop": {"longest": 3}}
    new = make_run(tmp_path / "new", lines=changed_line(0, spread=0.5), state=state)
    assert "spread only in NEW" in str(compare(old, new))
    assert "loop/longest only in NEW" in str(compare(old, new, None, {"spread"}))
    assert compare(old, new, None, {"spread", "loop/longest"}) is None
    assert "spread only in OLD" in str(compare(new, old, None, {"spread", "loop/longest"}))


def test_runs_without_checkpoints_are_not_equal(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text('{"env_steps": 1}\n')
    assert (
        script("same_numbers_compare").first_difference(tmp_path / "old", tmp_path / "new")
        == "checkpoints: none in OLD"
    )


def test_the_report_counts_equal_presets(
    script: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = script("same_numbers")
    for preset in ("x/same", "x/other", "x/broken"):
        make_run(tmp_path / "old" / preset / "run")
        make_run(tmp_path / "new" / preset / "run", lines=LINES if preset == "x/same" else LINES[:-1])
    (tmp_path / "new" / "x" / "broken" / "error.txt").write_text("Traceback\n  ...\nValueError: no\n")
    old, new = (main.Side(name, tmp_path, tmp_path / name) for name in ("old", "new"))
    assert main.report(["x/same"], old, new) == 0
    assert capsys.readouterr().out == "1 of 1 presets are equal\n"
    assert main.report(["x/broken", "x/missing", "x/other", "x/same"], old, new) == 1
    assert capsys.readouterr().out.splitlines() == [
        "x/broken: NEW cannot run it: ValueError: no",
        "x/missing: OLD does not have it",
        "x/other: metrics.jsonl: 3 lines in OLD, 2 lines in NEW",
        "1 of 4 presets are equal",
    ]


def test_only_takes_beginnings_and_names_behind_the_slash(script: Callable[[str], ModuleType]) -> None:
    def chosen(*only: str) -> list[str]:
        return [preset for preset in PRESETS if script("same_numbers").is_chosen(preset, list(only))]

    assert chosen() == PRESETS
    assert {preset.partition("/")[0] for preset in chosen("ppo/")} == {"ppo"}
    atari = {"a2c", "acer", "acktr", "apex_dqn", "dqn", "ppo", "pqn", "qr_dqn", "rainbow", "recurrent_ppo"}
    assert {preset.partition("/")[0] for preset in chosen("atari")} == atari


def test_an_unknown_commit_is_one_line() -> None:
    command = [sys.executable, str(SCRIPTS / "same_numbers.py"), "no-such-commit"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith("no-such-commit: no such commit in ") and found.stderr.count("\n") == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_a_budget_evaluates_and_saves_in_the_middle_and_then_learns_more(preset: str, runs: ModuleType) -> None:
    whole = rl_training.load_config(preset)
    config = rl_training.load_config(preset, runs.budget(whole))
    assert config.num_envs == whole.num_envs and config.model == whole.model and config.algo == whole.algo
    assert config.vector_backend == whole.vector_backend
    assert (config.threads, config.compile) == (1, "off")
    settings = config.algo_kwargs
    if hasattr(settings, "num_steps"):
        rollout = settings.num_steps * config.num_envs
        learns_at = list(range(rollout, config.total_timesteps + 1, rollout))
    else:
        per_round = settings.gradient_steps / settings.train_frequency
        learns_at = list(range(settings.learning_starts, config.total_timesteps, round(1 / min(per_round, 1))))
        assert settings.buffer_size < config.total_timesteps  # it is overwritten
        assert 100 <= settings.learning_starts <= 200
    before = [step for step in learns_at if step <= config.checkpoint_every]
    after = [step for step in learns_at if step > config.checkpoint_every]
    assert len(before) >= 3 and len(after) >= 3
    assert before[0] < config.eval_every < config.checkpoint_every < config.total_timesteps <= 6000
    if hasattr(settings, "policy_phases"):
        # An auxiliary phase before the checkpoint and after it, and rollouts in the checkpoint that wait for theirs.
        assert len(before) >= settings.policy_phases and len(after) >= settings.policy_phases
        assert len(before) % settings.policy_phases != 0


def test_every_algorithm_has_a_run_that_is_resumed(runs: ModuleType) -> None:
    assert set(PRESETS) >= runs.RESUMED
    assert {preset.partition("/")[0] for preset in PRESETS} == {name.partition("/")[0] for name in runs.RESUMED}


def test_a_real_run_equals_its_repetition(
    script: Callable[[str], ModuleType], runs: ModuleType, tmp_path: Path
) -> None:
    for name in ("old", "new"):
        runs.run_preset("c51/cartpole", tmp_path / name, "off")
    old, new = (tmp_path / name / runs.RUN for name in ("old", "new"))
    compare = script("same_numbers_compare").first_difference
    assert compare(old, new) is None
    (segment, *_) = sorted((new / "replay").glob("*.safetensors"))
    rows = load_file(segment)
    rows["rewards"].flat[0] += 1
    save_file(rows, segment)
    found = compare(old, new)
    assert found is not None and found.startswith(f"replay {segment.name}: tensor rewards: 1 of ")
