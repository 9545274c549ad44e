"""`rl-training plot`: groups, bands, files and refusals. Pictures are checked by what is drawn, not pixel by pixel."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_helpers import call
from rl_training import plot_runs
from rl_training.analysis import run_plot
from rl_training.errors import CheckpointError, ConfigError
from stored_runs import store


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two learning rates with three seeds each, and a third one with a single seed."""
    folder = tmp_path / "runs"
    for rate in (0.1, 0.01):
        for seed in range(3):
            scores = {100: seed + rate, 200: seed + 10 * rate, 300: seed + 100 * rate}
            store(folder, scores, seed=seed, learning_rate=rate, losses={100: 5.0, 300: 1.0})
    store(folder, {100: 1.0, 300: 2.0}, learning_rate=0.5)
    return folder


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were drawn."""
    figures: list[Any] = []
    original = run_plot._draw

    def draw(*arguments: Any) -> Any:
        figures.append(original(*arguments))
        return figures[-1]

    monkeypatch.setattr(run_plot, "_draw", draw)
    return figures


def legend(figure: Any) -> list[str]:
    return [text.get_text().strip() for text in figure.legends[0].get_texts()]


def test_runs_are_grouped_by_their_settings_without_the_seed(runs: Path, tmp_path: Path, drawn: list[Any]) -> None:
    plot = plot_runs([runs], tmp_path / "x.png")
    assert [(group.label, group.seeds) for group in plot.groups] == [
        ("learning_rate 0.1", 3),
        ("learning_rate 0.01", 3),
        ("learning_rate 0.5", 1),
    ]
    (figure,) = drawn
    assert legend(figure) == [
        "learning_rate 0.1 (3 seeds)",
        "learning_rate 0.01 (3 seeds)",
        "learning_rate 0.5 (1 seed, no band)",
    ]
    assert plot.path.read_bytes().startswith(b"\x89PNG")


def test_labels_differ_and_name_what_learns_before_budgets(tmp_path: Path) -> None:
    """Budgets, evaluations and stop rules differ too: the learning rate must not be lost behind them."""
    folder = tmp_path / "runs"
    plain = {"total_timesteps": 100, "eval_every": 10, "stop_at_return": 1.0, "patience": 3, "checkpoint_every": 50}
    store(folder, {100: 1.0}, learning_rate=0.1, **plain)
    store(folder, {100: 1.0}, learning_rate=0.2, **plain)
    other = {"total_timesteps": 200, "eval_every": 20, "stop_at_return": 2.0, "patience": 4, "checkpoint_every": 60}
    store(folder, {100: 1.0}, learning_rate=0.2, **other)
    store(folder, {100: 1.0}, learning_rate=0.2, **{**other, "checkpoint_every": 70})
    store(folder, {100: 1.0}, learning_rate=0.2, seed=1, log_info=["x"], record_every=5, **plain)
    labels = [group.label for group in plot_runs([folder], tmp_path / "x.png").groups]
    assert len(set(labels)) == len(labels) == 4, "what is only logged or recorded does not make a group"
    assert [label.split(",")[0] for label in labels] == ["learning_rate 0.1"] + 3 * ["learning_rate 0.2"]
    assert "checkpoint_every 60" in labels[2] and "checkpoint_every 70" in labels[3]


def test_the_line_is_the_median_and_the_band_the_middle_half(runs: Path, tmp_path: Path, drawn: list[Any]) -> None:
    plot_runs(["learning_rate=0.1"], tmp_path / "x.png", output_dir=runs)
    (axes,) = drawn[0].axes
    (line,) = [line for line in axes.lines if len(line.get_xdata()) > 1]
    values = np.interp([100, 200, 300], line.get_xdata(), line.get_ydata())
    np.testing.assert_allclose(values, [1.1, 2.0, 11.0], atol=0.03)  # on a grid of 200 points
    band = axes.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == pytest.approx((0.6, 11.5))  # quartiles of seeds 0, 1, 2: half a seed to either side


def test_runs_with_one_evaluation_are_dots(tmp_path: Path, drawn: list[Any]) -> None:
    for seed, score in enumerate([1.0, 2.0, 6.0]):
        store(tmp_path / "runs", {100: score}, seed=seed)
    plot = plot_runs([tmp_path / "runs"], tmp_path / "x.png")
    (line,) = drawn[0].axes[0].get_lines()
    assert line.get_marker() == "o" and line.get_xydata().tolist() == [[100.0, 2.0]]
    assert plot.notes == (
        "CartPole-v1: eval_mean_return was logged once in each run, so there are dots and no lines; runs with "
        "eval_every have more, and so has --metric mean_return",
    )
    store(tmp_path / "runs", {100: 1.0, 200: 2.0}, seed=3)
    assert not any("dots" in note for note in plot_runs([tmp_path / "runs"], tmp_path / "x.png").notes)


def test_every_metric_and_every_env_has_a_panel(runs: Path, tmp_path: Path, drawn: list[Any]) -> None:
    store(runs, {100: 1.0}, algo="sac", env_id="Pendulum-v1", name="sac-a", losses={100: 3.0})
    plot = plot_runs([runs], tmp_path / "x.png", metrics=["eval_mean_return", "loss"])
    assert len(drawn[0].axes) == 4
    assert "sac (1 seed, no band)" in legend(drawn[0])
    assert any("has no loss" in note for note in plot.notes)  # the single run of learning rate 0.5


def test_by_groups_by_one_setting(runs: Path, tmp_path: Path, drawn: list[Any]) -> None:
    plot_runs([runs], tmp_path / "x.png", by="seed")
    assert legend(drawn[0]) == ["seed 0 (3 seeds)", "seed 1 (2 seeds)", "seed 2 (2 seeds)"]


def test_a_run_that_repeats_another_replaces_it(runs: Path, tmp_path: Path) -> None:
    store(runs, {100: 9.0, 300: 9.0}, seed=1, learning_rate=0.1, name="again")
    plot = plot_runs([runs], tmp_path / "x.png")
    assert [run.name for run in plot.groups[0].runs if run.config.seed == 1] == ["again"]
    assert "ppo-seed1 is left out: again repeats its settings and seed" in plot.notes


def test_a_short_run_is_named(runs: Path, tmp_path: Path) -> None:
    store(runs, {100: 9.0}, seed=7, learning_rate=0.1)
    (note,) = plot_runs(["learning_rate=0.1"], tmp_path / "x.png", output_dir=runs).notes
    assert "drawn to step 100" in note and "300" in note


class Tags(HTMLParser):
    """The tags of a page, and the text outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_names_no_other_host_and_runs_no_script(runs: Path, tmp_path: Path) -> None:
    plot_runs([runs], tmp_path / "x.html", metrics=["eval_mean_return", "loss"])
    text = (tmp_path / "x.html").read_text()
    assert "http" not in text and "//" not in text and "@import" not in text
    page = Tags()
    page.feed(text)
    names = {tag for tag, _ in page.tags}
    assert "svg" in names and not names & {"script", "link", "img", "iframe", "object", "image", "foreignobject"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name == "src" for name in attributes)
        assert (attributes.get("xlink:href") or "#").startswith("#")
    assert "learning_rate 0.01" in page.text and "ppo-seed2-2" in page.text


def test_names_of_a_stranger_are_text_on_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    path = store(folder, {100: 1.0, 200: 2.0}, env_kwargs={"x": "<script>alert(1)</script>$a$"})
    store(folder, {100: 1.0, 200: 2.0}, env_kwargs={"x": "_b\x1b[2J"}, name="other")
    path.rename(folder / "<b>bold<b>")
    plot_runs([folder], tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text()
    assert "<script" not in text and "<b>" not in text and "\x1b" not in text
    assert "&lt;script&gt;" in text and "&lt;b&gt;bold" in text


def test_equal_runs_give_equal_files(runs: Path, tmp_path: Path) -> None:
    for name in ("x.png", "x.svg", "x.html"):
        contents = []
        for _ in range(2):
            plot_runs([runs], tmp_path / name)
            contents.append((tmp_path / name).read_bytes())
        assert contents[0] == contents[1], name


def test_an_unknown_metric_names_the_closest_and_all(runs: Path, tmp_path: Path) -> None:
    outcome = call("plot", runs, "--metric", "los", "-o", tmp_path / "x.png")
    assert outcome.code == 2 and outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert "did you mean loss? There are: eval_episodes, eval_mean_return, eval_std_return, loss" in outcome.err
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["nothing"], 5, "no such run"),
        (["ppo-sed1"], 5, "did you mean ppo-seed1"),
        (["gama=0.9"], 2, "did you mean gamma"),
        (["gamma=0.1"], 5, "no run in"),
        (["*", "--by", "lerning_rate"], 2, "did you mean learning_rate"),
        (["*", "-o", "x.pdf"], 2, ".png, .html or .svg"),
        (["*", "-o", "/dev/null/x.png"], 2, "cannot be written"),
    ],
)
def test_bad_input_is_one_line(words: list[str], code: int, text: str, runs: Path) -> None:
    outcome = call("plot", *words, "--output-dir", runs)
    assert outcome.code == code and outcome.err.count("\n") == 1 and text in outcome.err


def test_runs_without_metrics_are_refused(tmp_path: Path) -> None:
    store(tmp_path, {})
    with pytest.raises(ConfigError, match="no metrics yet"):
        plot_runs([tmp_path], tmp_path / "x.png")


def test_a_damaged_config_is_an_error_of_one_line(runs: Path, tmp_path: Path) -> None:
    (runs / "ppo-seed1" / "config.yaml").write_text("algo: [")
    with pytest.raises(ConfigError) as error:
        plot_runs([runs], tmp_path / "x.png")
    assert "\n" not in str(error.value) and "config.yaml" in str(error.value)
    assert len(plot_runs(["learning_rate=0.1"], tmp_path / "x.png", output_dir=runs).groups[0].runs) == 2


def test_without_matplotlib_the_message_names_the_extra(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="extra `plots`"):
        plot_runs([runs], tmp_path / "x.png")


def test_the_command_prints_groups_and_file(runs: Path, tmp_path: Path) -> None:
    outcome = call("plot", "learning_rate=0.1", "--output-dir", runs, "-o", tmp_path / "x.png")
    assert outcome.code == 0 and re.search(r"ppo: 3 seeds\nwrote .*x\.png\n", outcome.out)
    summary = call("plot", "latest", "--output-dir", runs, "-o", tmp_path / "x.svg", "--json").json
    assert summary["groups"] == [{"label": "ppo", "seeds": 1, "runs": ["ppo-seed0-3"]}]


def test_forged_numbers_and_steps_are_left_out(tmp_path: Path) -> None:
    path = store(tmp_path, {100: 1.0, 200: 2.0})
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "eval", "env_steps": 1e400, "eval_mean_return": 3}\n')
        file.write('{"kind": "eval", "env_steps": 300, "eval_mean_return": 1e308}\n')
        file.write('{"kind": "eval", "env_steps": "x", "eval_mean_return": 4}\nnot json\n')
    assert plot_runs([path], tmp_path / "x.png").notes == ()


def test_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such run"):
        plot_runs(["latest"], tmp_path / "x.png", output_dir=tmp_path)
