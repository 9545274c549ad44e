"""Bands are made from seeds; a correct run stays inside, a run with a broken loss leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cli_helpers import call
from rl_training.algorithms import ppo
from rl_training.analysis.curves import Curve
from rl_training.config.loading import list_presets, load_config
from rl_training.errors import ConfigError
from rl_training.runtime import workflows
from rl_training.zoo.band import ARRAYS, band_of, band_path, first_outside, load_band, make_band, save_band
from rl_training.zoo.band_check import Check, check_preset, smallest_fraction
from rl_training.zoo.manifest import list_manifests, load_manifest, zoo_folder
from rl_training.zoo.report import curves_of
from rl_training.zoo.results import gather
from rl_training.zoo.runs import Job, share_of, train_and_score
from zoo_helpers import STEPS, curve, entry_of, install_env, preset, write_manifest

CANNOT_TELL = {"mpo/mountaincar_continuous"}
CANNOT_TELL |= {"a2c/pong_atari", "acer/pong_atari"}  # within 300,000 steps
NOT_RUN = {f"{algo}/{env}_v4" for algo in ("td7", "crossq") for env in ("halfcheetah", "hopper", "walker2d", "ant")}
NOT_RUN |= {"sac/halfcheetah_v4_layer_norm", "sac/ant_v4_layer_norm", "sac/walker2d_v4_simba"}
NOT_RUN |= {"tqc/lunarlander_continuous", "tqc/bipedalwalker", "apex_dqn/lunarlander", "apex_dqn/pong_atari"}
NOT_RUN |= {f"{algo}/pong_atari" for algo in ("qr_dqn", "rainbow", "pqn")}
NOT_RUN |= {"ppo/pong_atari_84", "dqn/pong_atari_84", "ppo/breakout_atari_3h"}
NOT_RUN |= {f"{algo}/lunarlander" for algo in ("qr_dqn", "iqn")}
LEARNS = [curve([1, 2, 3, 4], [0.0, 50.0 + seed, 100.0, 100.0]) for seed in range(5)]


def test_band_spans_the_running_means_of_the_seeds_with_a_margin() -> None:
    band = make_band(entry_of(), LEARNS, 0.0)
    assert band.steps.tolist() == [1, 2, 3, 4] and band.seeds == 5 and not band.control
    margin = 20.0  # a fifth of the range of 100, more than half the width of 2
    low = np.array([0.0, 25.0, 50.0, 62.5]) - margin
    low[1] = 6.35  # not 5: a tenth of the way from what an untrained agent has, 0, to the best, 63.5
    np.testing.assert_allclose(band.low, low)
    np.testing.assert_allclose(band.high, np.array([0.0, 27.0, 154 / 3, 254 / 4]) + margin)
    assert all(band.judge(each).passed for each in LEARNS)


def test_a_wide_band_is_wider_by_half_its_width_and_one_without_spread_by_a_hundredth() -> None:
    wide = make_band(entry_of(), [curve([1, 2], [level, level]) for level in (0.0, 40.0, 100.0)], -1e9)
    assert (wide.low.tolist(), wide.high.tolist()) == ([-50.0, -50.0], [150.0, 150.0])
    same = make_band(entry_of(), [curve([1, 2], [200.0, 200.0])] * 3, -1e9)
    assert (same.low.tolist(), same.high.tolist()) == ([198.0, 198.0], [202.0, 202.0])


def test_a_band_ends_with_its_shortest_seed() -> None:
    short = make_band(entry_of(), [*LEARNS[:2], LEARNS[2].until(3)], 0.0)
    assert short.steps.tolist() == [1, 2, 3]
    later = curve([1, 2, 3, 9, 10], [0.0, 60.0, 100.0, -1e6, -1e6])
    verdict = short.judge(later)
    assert verdict.passed and verdict.steps.tolist() == [1, 2, 3], "the band has no value for the rest"
    assert short.judge(curve([1, 2, 3.002], [0.0, 60.0, -900.0])).left_at == 2, "a few steps late is still the end"
    assert short.share(100) == 0.03 and short.share(3) == 1.0
    assert replace(short, steps=np.array([1.0, 2.0, 95.0])).share(100) == 1.0, "whole rollouts end a little early"


def test_a_failed_check_names_the_step_where_the_curve_left() -> None:
    band = make_band(entry_of(), LEARNS, 0.0)
    fallen = band.judge(curve([1, 2, 3, 4], [0.0, 0.0, 0.0, 240.0]))
    sentence = Check("ppo/cartpole", 5, 4, Path("runs/x"), band, fallen).sentence()
    assert "left the band at step 2: running mean 0.0, band 6.4 to 47.0" in sentence
    assert fallen.summary()["left_at"] == 2


def test_a_curve_leaves_its_band_below_and_a_control_above() -> None:
    band = make_band(entry_of(), LEARNS, 0.0)
    never, at_once = curve([1, 2, 3, 4], [0.0] * 4), curve([1, 2, 3, 4], [100.0] * 4)
    assert band.judge(never).left_at == 1 and band.tells_from == 2
    assert band.judge(at_once).passed, "learning faster is not a failure"
    assert band.judge(never.until(1)).passed, "no agent has learned anything at the start"
    control = make_band(
        entry_of("ppo/cartpole_masked", floor=None, bar=None, must_stay_below=150), [curve([1, 2], [40, 45])] * 3, 9.0
    )
    assert control.judge(curve([1, 2], [0, 0])).passed and not control.judge(curve([1, 2], [40, 500])).passed


def test_a_check_that_ends_too_early_is_not_conclusive() -> None:
    band = make_band(entry_of(), LEARNS, 0.0)
    sentences = [
        Check("ppo/cartpole", 5, stop, Path("runs/x"), band, band.judge(LEARNS[0].until(stop))).sentence()
        for stop in (1, 4)
    ]
    assert sentences[0].endswith("not conclusive: an untrained agent leaves the band only at step 2")
    assert not band.judge(curve([1, 2], [0.0, 0.0])).passed, "from this step it is conclusive"
    assert sentences[1] == ("ppo/cartpole seed 5: inside the band up to step 4: running mean 62.5, band 42.5 to 83.5")


def test_the_margin_is_halved_at_most_to_stay_above_an_untrained_agent() -> None:
    wide = [curve([1, 2, 3], [0.0, 0.0, 3.0 * last]) for last in (10.0, 20.0, 50.0)]  # means so far: 0, 0, 10 to 50
    whole, half = 10 - 30, 10 - 15
    cases = ((-50.0, whole), (-20.0, -20 + 0.1 * 70), (-10.0, half), (-5.2, half), (-5.0, whole), (0.0, whole))
    for untrained, expected in cases:
        assert make_band(entry_of(), wide, untrained).low[-1] == pytest.approx(expected), untrained


def test_a_band_that_contains_an_untrained_agent_is_not_conclusive() -> None:
    band = make_band(entry_of(), LEARNS, 200.0)
    at_once = Check("ppo/cartpole", 5, 4, Path("runs/x"), band, band.judge(LEARNS[0]))
    assert band.tells_from is None
    assert at_once.sentence().endswith("; not conclusive: an untrained agent (about 200.0) would be inside too")
    only_last = make_band(entry_of(), [curve([1, 2], [0.0, 100.0])] * 3, 0.0)
    assert only_last.tells_from == 2 and only_last.judge(curve([1, 2], [0.0, 0.0])).left_at == 1


@pytest.mark.parametrize(
    ("outside", "expected"),
    [([0, 0, 0], None), ([0, 1, 0, 0], None), ([0, 1, 1, 0], 1), ([0, 1, 0, 1], 3), ([], None)],
)
def test_one_evaluation_outside_is_chance_two_in_a_row_or_the_last_are_not(
    outside: list[int], expected: int | None
) -> None:
    assert first_outside(np.array(outside, bool)) == expected


def test_band_needs_seeds_and_survives_its_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs 3 finished seeds with evaluations, found 2"):
        make_band(entry_of(), LEARNS[:2], 0.0)
    band = make_band(entry_of(), LEARNS, 0.0)
    path = save_band(band, tmp_path)
    assert path == tmp_path / "ppo" / "cartpole.json" and path.stat().st_size < 5_000
    read = load_band(path)
    np.testing.assert_allclose(read.low, band.low, rtol=1e-4)
    assert (read.tells_from, read.seeds, read.settings) == (band.tells_from, 5, band.settings)
    with pytest.raises(ConfigError, match=r"settings have changed since the band cartpole\.json of ppo/cartpole"):
        band_of("ppo/cartpole", entry_of("a2c/cartpole").preset, path)
    with pytest.raises(ConfigError, match=r"no band at .*zoo bands"):
        band_of("ppo/none", entry_of().preset, None)
    assert read.untrained == 0.0
    whole = json.loads(path.read_text())
    hostile = [
        *(whole | {key: value} for key in ("untrained", "seeds") for value in (None, "x", [], 10**400)),
        *(whole | {"steps": [step] * len(whole["steps"])} for step in (0.0, 10**400)),
        *(whole | change for change in ({"settings": "ppo/cartpole"}, {"name": 3}, {"control": 3})),
        *(whole | change for change in ({"tells_from": "x"}, {"tells_from": []})),
    ]
    for wrong in (
        {},
        [],
        None,
        whole | {"low": [1.0]},
        whole | {"high": "x"},
        whole | {key: [] for key in ARRAYS},
        *hostile,
    ):
        path.write_text(json.dumps(wrong))
        with pytest.raises(ConfigError, match="not a band"):
            load_band(path)


def test_packaged_bands_belong_to_the_presets_as_they_are() -> None:
    entries = {entry.name: entry for name in list_manifests() for entry in load_manifest(name).entries}
    paths = sorted((zoo_folder() / "bands").rglob("*.json"))
    assert len(paths) >= 20
    for path in paths:
        name = path.relative_to(zoo_folder() / "bands").with_suffix("").as_posix()
        band = band_of(name, entries[name].preset, None)
        assert band.name == name and band.seeds >= (3 if entries[name].row.long else 5)
        assert (band.low < band.high).all() and (np.diff(band.steps) > 0).all()


def test_every_preset_that_has_run_has_a_band() -> None:
    assert {name for name in list_presets() if not band_path(name).is_file()} == NOT_RUN


def test_an_untrained_agent_leaves_packaged_bands() -> None:
    """Except for controls, and for presets of which a stored seed did not learn for most of its run."""
    bands = [load_band(path) for path in sorted((zoo_folder() / "bands").rglob("*.json"))]
    assert {band.name for band in bands if band.tells_from is None and not band.control} <= CANNOT_TELL
    for band in bands:
        flat = Curve(band.steps, np.full(band.steps.size, band.untrained), band.steps)
        assert band.judge(flat).passed == (band.tells_from is None), band.name


def test_the_smallest_fraction_in_the_error_of_a_check_is_enough() -> None:
    for name in list_presets():
        if name in NOT_RUN:
            continue
        band, total = load_band(band_path(name)), load_config(name).total_timesteps
        assert share_of(total, smallest_fraction(band, total)) >= band.steps[0], name


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A preset and its band, made by the command from three seeds that were trained here."""
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        install_env(folder / "env", patch)
        manifest = write_manifest(folder, {"quick": preset()})
        (entry,) = load_manifest(manifest).entries
        for seed in range(3):
            train_and_score(Job(entry, seed, str(folder / "runs")))
        written = call(
            "zoo", "bands", manifest, "--seeds", 3, "--output-dir", folder / "runs", "--write", folder, "--json"
        )
        assert written.json == [str(folder / "quick.json")]
        assert len(curves_of(entry, gather([entry], 3, str(folder / "runs"))[entry.name])) == 3
    return folder / "quick.yaml", folder / "quick.json"


def test_a_check_that_was_interrupted_has_no_verdict(
    tiny: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "train", lambda *_, **__: SimpleNamespace(interrupted=True, env_steps=512))
    with pytest.raises(KeyboardInterrupt):
        check_preset(str(tiny[0]), band_file=tiny[1], output_dir=str(tmp_path))


def test_steps_of_a_band_are_not_rounded(tmp_path: Path) -> None:
    band = make_band(entry_of(), [curve([500_224, 1_000_448], [0.0, 1.0])] * 3, 0.0)
    assert load_band(save_band(band, tmp_path)).steps.tolist() == [500_224, 1_000_448]


def test_bands_of_older_settings_are_removed(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"quick": preset()})
    (entry,) = load_manifest(manifest).entries
    path = save_band(make_band(entry, LEARNS, 0.0), tmp_path / "bands")
    command = ("zoo", "bands", manifest, "--output-dir", tmp_path / "runs", "--write", tmp_path / "bands", "--json")
    assert call(*command).json == [] and path.exists(), "not finished here, but still true"
    write_manifest(tmp_path, {"quick": preset(eval_episodes=7)})
    outcome = call(*command)
    assert outcome.code == 0 and f"removed {path}" in outcome.err and not path.exists()


def check(tiny: tuple[Path, Path], tmp_path: Path, *options: Any) -> Any:
    return call("check", tiny[0], "--band", tiny[1], "--output-dir", tmp_path / "runs", "--quiet", *options)


def test_a_sound_run_passes_the_check(tiny: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_env(tmp_path / "env", monkeypatch)
    outcome = check(tiny, tmp_path, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["passed"] and outcome.json["seed"] == 3, "a seed that the band does not contain"
    assert [point[0] for point in outcome.json["curve"]] == list(range(256, STEPS + 1, 256))
    part = check(tiny, tmp_path, "--budget-fraction", 0.5, "--seed", 3, "--json").json
    assert part["curve"] == outcome.json["curve"][:4], "the first part of the same run, not a shorter run"
    stored = load_config(Path(part["run_dir"]) / "config.yaml")
    assert stored.total_timesteps == STEPS, "schedules stay those of the full budget"
    assert check(tiny, tmp_path, "--budget-fraction", 0.2, "--seed", 7, "--json").json["seed"] == 7
    nothing = check(tiny, tmp_path, "--budget-fraction", 0.01)
    assert nothing.code == 2 and "before the first evaluation" in nothing.err


def test_a_check_ends_with_a_band_of_part_of_the_budget(
    tiny: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_env(tmp_path / "env", monkeypatch)
    folder = tiny[0].parent
    made = call(
        *("zoo", "bands", folder / "tiny.yaml", "--seeds", 3, "--budget-fraction", 0.5),
        *("--output-dir", folder / "runs", "--write", tmp_path, "--json"),
    )
    assert made.json == [str(tmp_path / "quick.json")]
    whole, part = load_band(tiny[1]), load_band(tmp_path / "quick.json")
    np.testing.assert_array_equal(part.steps, whole.steps[whole.steps <= STEPS / 2])
    outcome = check((tiny[0], tmp_path / "quick.json"), tmp_path, "--json").json
    assert outcome["passed"] and outcome["stop"] == STEPS / 2
    assert [point[0] for point in outcome["curve"]] == part.steps.tolist()


def test_a_broken_loss_fails_the_check(
    tiny: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_env(tmp_path / "env", monkeypatch)
    sound = ppo.ppo_policy_loss
    monkeypatch.setattr(ppo, "ppo_policy_loss", lambda *arguments: -sound(*arguments))
    outcome = check(tiny, tmp_path)
    assert outcome.code == 1 and outcome.out == ""
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1 and "left the band at step" in outcome.err
    report = check(tiny, tmp_path, "--json")
    assert report.code == 1 and json.loads(report.out)["passed"] is False


def test_checking_a_preset_without_a_band_is_one_line(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("{algo: ppo, env_id: CartPole-v1}")
    outcome = call("check", own, "--output-dir", tmp_path / "runs")
    assert outcome.code == 2 and "own: no band" in outcome.err and outcome.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()
