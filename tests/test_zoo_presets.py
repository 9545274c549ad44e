"""Manifests of the zoo: real files, real presets, and a one-line error for every mistake."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli_helpers import call
from rl_training.config.loading import list_presets, load_config
from rl_training.errors import ConfigError
from rl_training.experiment.launcher import Outcome
from rl_training.experiment.registry import algorithm_names, get_spec
from rl_training.zoo.manifest import list_manifests, load_manifest, zoo_folder
from zoo_helpers import preset, row, write_manifest

CARTPOLE = "configs/ppo/cartpole.yaml"


def test_root_zoo_is_a_view_of_the_packaged_one(project_root: Path) -> None:
    assert (project_root / "zoo").resolve() == zoo_folder().resolve()
    assert (project_root / "zoo" / "README.md").is_file()
    for name in ("benchmark", "dqn_breakout", "ppo_breakout", "recurrent_ppo_breakout"):
        assert (project_root / "zoo" / "atari" / f"{name}.yaml").is_file()


def test_every_manifest_parses_and_points_to_real_configs(project_root: Path) -> None:
    assert list_manifests() == ["atari", "box2d", "classic", "mujoco"]
    for path in sorted(set((project_root / "zoo").rglob("*.yaml")) - set((project_root / "zoo" / "clock").rglob("*"))):
        data = yaml.safe_load(path.read_text())
        assert isinstance(data, dict), path
        for raw in data.get("rows", [data]):
            if isinstance(raw, str):
                assert (path.parent / raw).is_file()
            else:
                assert (project_root / raw["config"]).is_file(), raw["config"]
        for entry in load_manifest(path).entries:
            assert entry.preset == load_config(entry.name)
            assert entry.preset.algo == entry.name.split("/")[0]
            assert entry.preset.total_timesteps <= entry.row.budget


def test_a_preset_with_prioritized_replay_states_its_importance_exponent(project_root: Path) -> None:
    """Its benchmark was measured with that value, whatever the default is."""
    files = [yaml.safe_load(path.read_text()) for path in sorted((project_root / "configs").rglob("*.yaml"))]
    prioritized = [data for data in files if data.get("algo_kwargs", {}).get("prioritized")]
    assert prioritized
    for data in prioritized:
        assert "importance_exponent" in data["algo_kwargs"], (data["algo"], data["env_id"])


def test_every_packaged_preset_has_a_row_and_every_algorithm_a_preset() -> None:
    rows = [entry.name for name in list_manifests() for entry in load_manifest(name).entries]
    assert len(rows) == len(set(rows))
    mine = {name for name in list_presets() if name.split("/")[0] in algorithm_names()}
    assert mine - set(rows) == set()
    assert {name.split("/")[0] for name in rows} == set(algorithm_names())


COMPLETE = ["ppo", "a2c", "impala", "appo", "trpo", "ppg", "recurrent_ppo"]
COMPLETE += ["dqn", "c51", "ddpg", "d4pg", "td3", "sac", "naf", "mpo"]


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        ("cartpole", "discrete"),
        ("acrobot", "discrete"),
        ("mountaincar", "discrete"),
        ("pendulum", "box"),
        ("mountaincar_continuous", "box"),
        ("lunarlander", "discrete"),
        ("lunarlander_continuous", "box"),
    ],
)
def test_an_env_has_a_row_for_every_algorithm_that_takes_its_actions(env: str, kind: str) -> None:
    rows = {entry.name for name in ("classic", "box2d") for entry in load_manifest(name).entries}
    # Algorithms that came later have at least one row; tests/test_architecture.py checks that.
    takers = {name for name in COMPLETE if kind in get_spec(name).actions}
    assert len(takers) >= 9 and {f"{name}/{env}" for name in takers} <= rows


def test_a_manifest_is_found_by_name_and_path_outside_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for source in ("atari", "zoo/atari", "zoo/atari/benchmark.yaml", "atari/benchmark"):
        assert load_manifest(source).name == "atari"
    (one,) = load_manifest("zoo/atari/dqn_breakout.yaml").entries
    assert one in load_manifest("atari").entries
    with pytest.raises(ConfigError, match=r"clasic: no such manifest, did you mean classic\?"):
        load_manifest("clasic")
    with pytest.raises(ConfigError, match="no such manifest"):
        load_manifest("../configs/ppo/cartpole")


def test_a_manifest_in_the_working_directory_is_named_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    write_manifest(folder, {}, [row("configs/ppo/cartpole.yaml")]).rename(folder / "benchmark.yaml")
    monkeypatch.chdir(folder)
    assert [load_manifest(name).name for name in ("benchmark.yaml", "./benchmark.yaml")] == ["mine", "mine"]
    assert call("zoo", "table", "benchmark.yaml", "--seeds", 1, "--write", "out").code == 0
    assert (folder / "out" / "mine.md").is_file()
    assert "`rl-training zoo table MANIFEST --write DIR`" in (folder / "out" / "mine.md").read_text()


def test_rows_are_chosen_by_name_algorithm_or_env_and_long_ones_only_when_named() -> None:
    box2d = load_manifest("box2d")
    assert {entry.algorithm for entry in box2d.select(["ppo", "dqn"])} == {"ppo", "dqn"}
    assert {entry.environment for entry in box2d.select(["lunarlander"])} == {"LunarLander-v3"}
    assert not any(entry.row.long for entry in box2d.select())
    masked = "recurrent_ppo/lunarlander_masked"
    assert [entry.name for entry in box2d.select([masked])] == [masked]
    short, whole = ({entry.name for entry in box2d.select(["recurrent_ppo"], long=long)} for long in (False, True))
    assert short and whole == short | {masked} and masked not in short
    with pytest.raises(ConfigError, match=r"--only pppo: no such row in box2d, did you mean ppo\?"):
        box2d.select(["pppo"])
    with pytest.raises(ConfigError, match=r"no such row in box2d; known names: a2c, .*, lunarlander, ") as caught:
        box2d.select(["xyzzy"])
    assert "/" not in str(caught.value)  # only algorithms and envs; all pairs would fill the screen


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": "configs/ppo/cartpoel.yaml"}, r"row 1: config: .*did you mean ppo/cartpole\?"),
        ({"config": "configs/../../etc/passwd"}, "row 1: config: .*no such preset, and no such file"),
        ({"flor": 3}, r"row 1: flor: unknown key, did you mean floor\?"),
        ({"budget": 0}, "row 1: budget: 0 is not valid, expected integer >= 1"),
        ({"budget": 99_999}, "total_timesteps 100,000 exceeds the budget of 99,999"),
        ({"floor": 1.0}, "floor: 1 is above the bar of 0.9, must be at most the bar"),
        ({"bar": None}, "needs both floor and bar"),
        ({"must_stay_below": 150}, "needs either floor and bar, or must_stay_below"),
        ({"protocol": "guess"}, "protocol 'guess' is not defined, protocols has exact"),
        ({"source": ""}, "source: '' is not valid, expected non-empty text"),
        ({"reference": "good"}, "reference: 'good' is not valid, expected number or null"),
    ],
)
def test_a_bad_row_is_one_line_before_anything_runs(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_manifest(tmp_path, {}, [row(CARTPOLE) | changes])
    with pytest.raises(ConfigError, match=message) as caught:
        load_manifest(path)
    assert "\n" not in str(caught.value)
    outcome = call("zoo", "run", path, "--output-dir", tmp_path / "runs")
    assert outcome.code == 2 and outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"title": "x", "protocols": {}, "rows": []}, r"rows: \[\] is not valid, expected non-empty list \("),
        ({"title": "x", "protocols": {}}, "rows: missing"),
        ({"title": "x", "protocols": {}, "rows": [3]}, "row 1: 3 is not a mapping"),
        (
            {"title": "x", "protocols": {}, "rows": ["gone.yaml"]},
            r"row 1 \(gone.yaml\): no such file",
        ),
        (
            {"title": "x", "protocols": {}, "rows": ["sub/gone.yaml"]},
            r"row 1 \(sub/gone.yaml\): no such file",
        ),
        ({"title": "x", "protocols": {}, "rows": [""]}, r"row 1 \(\): no such file next to the manifest"),
        ({"title": "x", "protocols": {}, "rows": [".."]}, r"row 1 \(..\): no such file next to the manifest"),
        ({"titel": "x", "protocols": {}, "rows": [1]}, "title: missing|titel: unknown key"),
        ({"title": "x", "protocols": {"exact": ""}, "rows": [row(CARTPOLE)] * 2}, "ppo/cartpole appears twice"),
        (
            {"title": "x", "protocols": {"exact": ""}, "rows": [row(CARTPOLE, name=name) for name in ("a/b", "a-b")]},
            "row 2: a-b has the same run directories as a/b, rename one of them",
        ),
    ],
)
def test_a_bad_manifest_is_one_line(text: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps(text))
    with pytest.raises(ConfigError, match=message):
        load_manifest(path)


def test_selecting_only_long_rows_says_how_to_run_them(tmp_path: Path) -> None:
    problem = "all selected rows take hours; add --long, or name a row with --only"
    for words, request in (
        (("box2d", "--only", "lunarlander_masked"), "--only lunarlander_masked"),
        (("mujoco",), "mujoco"),
    ):
        outcome = call("zoo", "run", *words, "--output-dir", tmp_path / "runs")
        assert outcome.code == 2 and outcome.err == f"error: {request}: {problem}\n"


def test_a_row_name_is_1_to_50_characters_that_are_a_path_below_any_folder(tmp_path: Path) -> None:
    def load(name: str) -> str:
        return load_manifest(write_manifest(tmp_path, {}, [row(CARTPOLE, name=name)])).entries[0].name

    for good in ("x", "_x", "a.b/c-d", "0" * 50):
        assert load(good) == good
    for bad in ("0" * 51, "a/../b", "..", "-x", "a//b", "a/", "/a", "a b/c", "ä"):
        with pytest.raises(ConfigError, match=r"row 1: name: .* must be 1 to 50 letters, .* each part") as caught:
            load(bad)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", ["0", "-0.5", "1.5", "nan"])
def test_a_fraction_of_the_budget_is_between_0_and_1(share: str, tmp_path: Path) -> None:
    for command in (["zoo", "run", "classic"], ["zoo", "table", "classic"], ["check", "ppo/cartpole"]):
        outcome = call(*command, "--budget-fraction", share, "--output-dir", tmp_path / "runs")
        assert outcome.code == 2 and "--budget-fraction" in outcome.err


def test_custom_presets_are_found_next_to_their_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_manifest(tmp_path / "mine", {"quick": preset(), "other": preset(num_envs=16)})
    monkeypatch.chdir(tmp_path)
    loaded = load_manifest(path)
    assert [(entry.name, entry.preset.num_envs) for entry in loaded.entries] == [("quick", 8), ("other", 16)]


def test_a_row_in_a_subfolder_finds_its_preset_next_to_it(tmp_path: Path) -> None:
    write_manifest(tmp_path / "sub", {"quick": preset()})
    (tmp_path / "sub" / "row.yaml").write_text(json.dumps(row("quick.yaml")))
    (entry,) = load_manifest(write_manifest(tmp_path, {}, ["sub/row.yaml"])).entries
    assert entry.name == "quick" and entry.preset.total_timesteps == preset()["total_timesteps"]


def test_the_working_directory_does_not_change_the_meaning_of_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "mine"):
        (tmp_path / folder / "configs" / "ppo").mkdir(parents=True)
    settings = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 640}
    (tmp_path / "here" / CARTPOLE).write_text(json.dumps(settings))
    monkeypatch.chdir(tmp_path / "here")
    (planned,) = call("zoo", "run", "classic", "--only", "ppo/cartpole", "--seeds", 1, "--dry-run", "--json").json
    assert planned["steps"] == 100_000, "the packaged manifest names the packaged preset"
    path = write_manifest(tmp_path / "mine", {}, [row(CARTPOLE)])
    assert load_manifest(path).entries[0].preset == load_config("ppo/cartpole")
    # A file next to a custom manifest comes first.
    (tmp_path / "mine" / CARTPOLE).write_text(json.dumps(settings))
    assert load_manifest(path).entries[0].preset.total_timesteps == 640


def test_list_shows_manifests_and_rows() -> None:
    listed = {line["name"]: line for line in call("zoo", "list", "--json").json}
    assert set(listed) == {"atari", "box2d", "classic", "mujoco"}
    assert call("list", "zoo", "--json").json == list(listed.values())
    rows = call("zoo", "list", "mujoco", "--json").json
    assert listed["mujoco"]["rows"] == len(rows) >= 6
    assert {"HalfCheetah-v5", "Hopper-v5"} < {line["environment"] for line in rows}
    for name in ("dqn", "ppo", "recurrent_ppo"):
        assert f"atari/{name}_breakout" in call("zoo", "list").out
    shown = call("zoo", "list", "classic")
    assert shown.code == 0 and "ppo/cartpole" in shown.out and "475 / 495" in shown.out
    planned = call("zoo", "run", "classic", "--only", "ppo/cartpole", "--seeds", 2, "--dry-run", "--json").json
    assert [(job["row"], job["seed"], job["steps"]) for job in planned] == [
        ("ppo/cartpole", 0, 100_000),
        ("ppo/cartpole", 1, 100_000),
    ]


def run_script(path: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    monkeypatch.setattr(sys, "argv", [str(path), *words])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    return end.value.code


def test_scripts_are_thin_calls_on_the_same_code(
    project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    zoo, learning = (project_root / "scripts" / f"{name}.py" for name in ("benchmark_zoo", "check_learning"))
    for words in (("list",), ("--list",), ()):
        assert run_script(zoo, *words, monkeypatch=monkeypatch) == 0 and "classic" in capsys.readouterr().out
    words = ("run", "atari/ppo_breakout", "--seeds", "1", "--dry-run")
    assert run_script(zoo, *words, monkeypatch=monkeypatch) == 0
    assert "ppo/breakout_atari seed 0: 10,000,000 steps" in capsys.readouterr().out

    words = ("--only", "ppo/cartpole", "--only", "sac/lunarlander_continuous", "--table", "--output-dir", "none")
    assert run_script(learning, *words, monkeypatch=monkeypatch) == 1, "no row passes without a run"
    table = capsys.readouterr().out
    assert table.count("0 of 5 seeds") == 2 and "| sac/lunarlander_continuous |" in table


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "ppo/cartpoel"), "--only ppo/cartpoel: no such row in the zoo, did you mean ppo/cartpole?"),
        (("--only", "pong_atari"), "--only pong_atari: all selected rows take hours; add --long"),
        (("--jobs", "0"), "--jobs: 0 is not valid, must be at least 1"),
        (("--seeds", "0", "--table"), "--seeds: 0 is not valid, must be at least 1"),
        (("--seeds", "-3"), "--seeds: -3 is not valid, must be at least 1"),
    ],
)
def test_bad_arguments_of_check_learning_are_errors_in_one_line(
    words: tuple[str, ...],
    message: str,
    project_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # If the arguments were accepted, no run would start here.
    monkeypatch.setattr("rl_training.experiment.launcher.launch", lambda *_: Outcome({}, True))
    script = project_root / "scripts" / "check_learning.py"
    assert run_script(script, *words, monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_readme_names_the_layout_and_the_commands(project_root: Path) -> None:
    readme = (project_root / "README.md").read_text() + (project_root / "zoo" / "README.md").read_text()
    for word in (
        "zoo/atari/benchmark.yaml", "zoo/classic", "zoo/box2d", "zoo/mujoco", "scripts/benchmark_zoo.py",
        "rl-training zoo list", "rl-training zoo run", "rl-training zoo table", "rl-training check",
    ):  # fmt: skip
        assert word in readme, word
