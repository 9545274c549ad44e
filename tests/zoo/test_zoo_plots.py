"""Pictures of benchmarks: every line can be told from the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_training.analysis.chart import FAINT
from rl_training.zoo.plots import COLORS, _draw_all, _draw_matrix, _draw_panels, _seeds_text, plot_overview
from zoo_helpers import curve, entry_of


def rows_of(*algorithms: str) -> list[Any]:
    """Rows of one env with a curve of their own each; the name of a preset may follow its algorithm."""
    rows = []
    for number, name in enumerate(algorithms):
        algorithm, _, preset_name = name.partition("/")
        entry = replace(entry_of(reference=None), name=f"{algorithm}/{preset_name or 'cartpole'}")
        preset = entry.preset.model_copy(update={"algo": algorithm})
        rows.append((replace(entry, preset=preset), [curve([10_000, 100_000], [0.0, 100.0 + number])]))
    return rows


def test_many_algorithms_get_a_panel_each_with_the_others_behind() -> None:
    from matplotlib.colors import to_hex

    names = ["ppo", "a2c", "trpo", "ppg", "dqn", "c51", "dqn/cartpole_again", "dqn/other"]
    figure = _draw_panels("CartPole-v1", rows_of(*names))
    panels = [axes for axes in figure.axes if axes.get_visible()]
    titles = [axes.get_title("left") for axes in panels]
    assert titles == ["ppo", "a2c", "trpo", "ppg", "dqn", "c51", "dqn (again)", "dqn (other)"], (
        "short enough for a panel"
    )
    for number, axes in enumerate(panels):
        ends = {float(line.get_ydata()[-1]): to_hex(line.get_color()).upper() for line in axes.get_lines()}
        own = ends.pop(100.0 + number)
        assert own == (COLORS[1] if names[number].startswith(("dqn", "c51")) else COLORS[0]).upper()
        assert set(ends.values()) <= {FAINT.upper(), "#333333"} and len(ends) >= 6
        faint = [line for line in axes.get_lines() if to_hex(line.get_color()).upper() == FAINT.upper()]
        assert len(faint) == len(names) - 1, "the others, and not the one in front"


def test_an_overview_of_many_algorithms_has_a_row_per_algorithm_and_a_column_per_env(tmp_path: Path) -> None:
    many, few = rows_of("ppo", "a2c", "trpo", "ppg", "dqn", "c51", "impala"), rows_of("dqn")
    figure = _draw_matrix("Classic", [("CartPole-v1", many), ("Acrobot-v1", few)])
    assert len(figure.axes) == 14
    drawn = [bool(axes.get_lines()) for axes in figure.axes]
    assert drawn[::2] == [True] * 7 and sum(drawn[1::2]) == 1, "an algorithm without a row has an empty place"
    width, height = figure.get_size_inches()
    assert width < height, "it fits a page"
    words = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"ppo", "impala", "CartPole-v1\n0 to 106", "Acrobot-v1\n0 to 100"} <= words
    assert figure.get_suptitle() == "Classic: mean return over env steps, one seed per curve"
    assert figure.get_supxlabel().endswith("empty: not in this benchmark")
    twice = _draw_matrix("Classic", [("CartPole-v1", rows_of("ppo", "dqn", "dqn/cartpole_again"))])
    assert "a second preset" in twice.get_supxlabel() and "a second preset" not in figure.get_supxlabel()
    partial = _draw_matrix("Classic", [("CartPole-v1", many)], is_whole=False)
    assert partial.get_supxlabel().endswith("empty: not in this benchmark, or no curve is kept")
    assert plot_overview("Classic", [("CartPole-v1", many)], tmp_path / "many.png")
    assert plot_overview("Classic", [("CartPole-v1", few)], tmp_path / "few.png")


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ([1, 1], "one seed per curve"),
        ([5, 5], "median and middle half of 5 seeds"),
        ([1, 5, 3], "median and middle half of 1 to 5 seeds"),
    ],
)
def test_a_picture_says_how_many_seeds_its_curves_have(seeds: list[int], expected: str) -> None:
    rows = [
        (entry, curves * number) for (entry, curves), number in zip(rows_of("ppo", "a2c", "dqn"), seeds, strict=False)
    ]
    assert _seeds_text(rows) == expected


def test_few_algorithms_in_one_plot_have_a_color_each() -> None:
    from matplotlib.figure import Figure

    from rl_training.config.algorithm_table import ALGORITHMS

    apart = [*ALGORITHMS][::7][:5]  # they would share a color if it came from their place among all algorithms
    rows = rows_of(*apart)
    lines = _draw_all(Figure().subplots(), rows)
    assert list(lines) == apart and len({line.get_color() for line in lines.values()}) == len(apart)
