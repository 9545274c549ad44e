"""`rl-training dashboard`: the address, the port, a missing extra, the exported file; and the look."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from rl_training.analysis.chart import COLORS
from rl_training.cli import main
from rl_training.command_line import dashboard as command
from rl_training.dashboard import page, server
from rl_training.dashboard.metric_names import METRICS, SECTIONS, describe
from rl_training.dashboard.server import listen
from rl_training.errors import ConfigError
from stored_runs import store
from waiting import DEADLINE_SECONDS


def test_it_serves_on_the_loopback_address_until_it_is_stopped(tmp_path: Path) -> None:
    store(tmp_path, {100: 1.0})
    command = [sys.executable, "-m", "rl_training", "dashboard", "--output-dir", str(tmp_path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"dashboard of 1 run: (http://127\.0\.0\.1:\d+) ", line)
        assert match is not None, line
        answer = json.load(urllib.request.urlopen(f"{match[1]}/api/runs", timeout=DEADLINE_SECONDS))
        assert answer["names"] == ["ppo-seed0"]
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode in (0, 130) and errors == ""


def test_the_port_in_the_help_is_that_of_the_server() -> None:
    assert command.PORT == server.PORT


def test_a_taken_port_leads_to_the_next_one_and_says_so() -> None:
    told: list[str] = []
    with listen(0, told.append) as first:
        first.listen()
        port = first.getsockname()[1]
        assert told == [] and first.getsockname()[0] == "127.0.0.1"
        with listen(port, told.append) as second:
            other = second.getsockname()[1]
            assert other > port and told == [f"port {port} is taken; using {other}"]


def test_no_free_port_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ConfigError, match=r"--port: 80 and the ports after it cannot be used \(Permission denied\)"):
        listen(80, print)


def test_a_missing_extra_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "find_spec", lambda name: None if name in ("starlette", "plotly") else object())
    store(tmp_path, {100: 1.0})
    for words in ([], ["--export", str(tmp_path / "page.html")]):
        assert main(["dashboard", "--output-dir", str(tmp_path), *words]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: the dashboard needs starlette, plotly: install the extra `dashboard`")
        assert error.count("\n") == 1


def test_export_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(tmp_path / "runs", {100: 1.0})
    target = tmp_path / "page.html"
    assert main(["dashboard", "--output-dir", str(tmp_path / "runs"), "--export", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(target), "runs": 1, "notes": []}
    assert target.stat().st_size > 2**20
    assert main(["dashboard", "missing", "--output-dir", str(tmp_path / "runs")]) == 5
    assert "no such run" in capsys.readouterr().err


def test_the_look_has_the_colors_of_the_plots() -> None:
    text = (page.STATIC / "look.css").read_text(encoding="utf-8")
    found = re.findall(r"--series-\d: light-dark\((#\w+), #\w+\);", text)
    assert tuple(color.upper() for color in found) == tuple(color.upper() for color in COLORS)


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def test_words_can_be_read_on_light_and_dark_pages() -> None:
    text = (page.STATIC / "look.css").read_text(encoding="utf-8")
    colors = {name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\);", text)}
    words = ["ink", "ink-soft", "accent", *(f"series-{number}-text" for number in range(1, 8))]
    for theme in (0, 1):
        for word in words:
            assert contrast(colors[word][theme], colors["card"][theme]) >= 4.5, (word, theme)
        for state in ("good", "warn", "bad", "accent"):
            assert contrast(colors[state][theme], colors[f"{state}-soft"][theme]) >= 4.5, (state, theme)


def test_every_file_of_the_page_is_in_the_package() -> None:
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '"dashboard/static/*"' in declared
    assert {path.name for path in page.STATIC.iterdir()} == set(page.ASSETS) - {page.PLOTLY}


def test_metrics_have_words_and_a_section() -> None:
    sections = {*SECTIONS, "return", "shares"}
    assert all(words.section in sections for words in METRICS.values())
    assert describe("info_is_success")["section"] == "env" and describe("eval_info_speed")["title"] == "speed"
    assert describe("own_loss") == {"title": "own_loss", "unit": "", "section": "losses"}
    assert {describe(name)["section"] for name in ("policy_lag", "lag", "actors", "queue_fill")} == {"fleet"}
    assert describe("flagella")["section"] == "more"
