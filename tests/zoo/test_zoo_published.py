"""Published curves of a manifest: loading and validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl_training.errors import ConfigError
from rl_training.zoo.manifest import load_manifest
from zoo_helpers import CURVE, manifest_with_curve, row, write_manifest

CARTPOLE = "configs/ppo/cartpole.yaml"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": [[0, 1.0], [20, 2.0], [20, 3.0]]}, "point 3 is at step 20 after 20, steps must rise"),
        ({"points": [[20_000, 1.0], [10_000, 2.0]]}, "point 2 is at step 10,000 after 20,000, steps must rise"),
        ({"points": [[-5, 1.0], [10, 2.0]]}, "point 1 is at step -5, steps must be at least 0"),
        ({"points": [[0, 1.0], [10]]}, r"point 2 \[10.*\] must be \[steps, score\]"),
        ({"points": [[0, 1.0], [10, 2.0, 0.1]]}, "point 2 .* must be .* like all others"),
        ({"points": [[0, 1.0, -1.0], [10, 2.0, 0.1]]}, "point 1 has a deviation of -1, must be at least 0"),
        ({"points": [[0, 1.0]]}, "points: .* is not valid"),
        ({"points": [[0, 1.0], [10, "high"]]}, "points: 'high' is not valid"),
        ({"points": [[0, 1.0], [10, float("inf")]]}, "points: .* is not valid"),
        ({"points": "steep"}, "points: 'steep' is not valid"),
        ({"seeds": 0}, "seeds: 0 is not valid, expected integer >= 1 or null"),
        ({"uncounted_steps": -1}, "uncounted_steps: -1 is not valid, expected integer >= 0"),
        ({"protocol": "guess"}, "protocol 'guess' is not defined, protocols has exact"),
        ({"sauce": "peer"}, r"sauce: unknown key, did you mean source\?"),
    ],
)
def test_a_bad_curve_is_one_line_that_names_it(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"tiny.yaml, curve peer-cartpole: .*{message}") as caught:
        manifest_with_curve(tmp_path, **changes)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_row_must_name_a_defined_curve(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="row 1: curve 'other' is not defined, curves has none"):
        load_manifest(write_manifest(tmp_path, {}, [row(CARTPOLE, curve="other")]))
    path = write_manifest(tmp_path, {}, [row(CARTPOLE, curve="other")], curves={"one": CURVE, "two": CURVE})
    with pytest.raises(ConfigError, match="row 1: curve 'other' is not defined, curves has one, two"):
        load_manifest(path)


def test_a_row_in_a_separate_file_uses_the_curves_of_its_benchmark(tmp_path: Path) -> None:
    path = write_manifest(tmp_path, {}, ["one.yaml"], curves={"peer": CURVE})
    path.rename(tmp_path / "benchmark.yaml")
    (tmp_path / "one.yaml").write_text(json.dumps(row(CARTPOLE, curve="peer")))
    (alone,) = load_manifest(tmp_path / "one.yaml").entries
    assert alone.published is not None and alone == load_manifest(tmp_path / "benchmark.yaml").entries[0]


def test_a_curve_is_linear_between_points_counts_every_step_and_ends_where_it_ends(tmp_path: Path) -> None:
    published = manifest_with_curve(tmp_path).entries[0].published
    assert published is not None
    assert published.at(20_000) == (100.0, 10.0), "published at 10,000, after 10,000 steps that are not counted"
    assert published.at(40_000) == (200.0, 15.0), "half way; 20 and 40 over four seeds are errors of 10 and 20"
    assert published.at(9_999) is None and published.at(100_001) is None
    for changes in ({"seeds": None}, {"points": [point[:2] for point in CURVE["points"]]}):
        without = manifest_with_curve(tmp_path, **changes).entries[0].published
        assert without is not None and without.at(20_000) == (100.0, None)


def test_a_published_curve_has_its_first_and_last_points(tmp_path: Path) -> None:
    published = manifest_with_curve(tmp_path).entries[0].published
    assert published is not None
    for step in (published.steps[0], published.steps[-1]):
        assert published.at(step) is not None and published.at(step - 1e9) is None


def test_packaged_curves_are_the_published_figures() -> None:
    """Read off the JSON of thu-ml/tianshou; its own README has SAC's 12138.8 as the best of HalfCheetah."""
    entries = {e.name: e for name in ("mujoco", "atari") for e in load_manifest(name).entries}
    assert all(e.published is not None for e in load_manifest("mujoco").entries if "_v4" not in e.name)
    for name, step, score in (
        ("sac/halfcheetah", 200_000, 7877.4),
        ("sac/halfcheetah", 1_000_000, 12138.8),
        ("td3/halfcheetah", 200_000, 6488.1),
        ("ppo/halfcheetah", 184_320, 2466.4),
        ("sac/hopper", 100_000, 1765.9),
        ("td3/hopper", 500_000, 2669.7),
        ("ppo/hopper", 491_520, 1975.8),
        ("dqn/pong_atari", 800_000, 15.04),
        ("ppo/pong_atari", 1_000_000, 5.66),
    ):
        published = entries[name].published
        assert published is not None
        found = published.at(step)
        assert found is not None and found.score == score and found.standard_error is not None, name
        assert published.at(entries[name].preset.total_timesteps) is not None, f"{name}: the whole budget is covered"
