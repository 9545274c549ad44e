"""The dashboard as one file: everything inside, nothing asked for, hostile names harmless."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rl_training.dashboard.export_file import export_dashboard
from rl_training.dashboard.page import inline_script
from rl_training.errors import CheckpointError, ConfigError
from stored_runs import store

HOSTILE = "<_script><script>alert(1)<!--&'\""


class Page(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self._is_data = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._is_data = dict(attrs).get("id") == "data"

    def handle_data(self, data: str) -> None:
        if self._is_data:
            self.data += data

    def handle_endtag(self, tag: str) -> None:
        self._is_data = False


@pytest.fixture
def exported(tmp_path: Path) -> tuple[str, Page]:
    runs = tmp_path / "runs"
    store(runs, {100: 1.0, 200: 2.25}, losses={50: 0.5, 100: 0.125})
    odd = store(runs, {100: 1.0}, seed=1)
    odd.rename(runs / HOSTILE.replace("/", "_"))
    (runs / "ppo-seed0" / "videos").mkdir()
    (runs / "ppo-seed0" / "videos" / "step-5.gif").write_bytes(b"GIF89a;")
    written = export_dashboard([], tmp_path / "deep" / "page.html", output_dir=runs)
    text = written.path.read_text(encoding="utf-8")
    assert written.runs == 2
    return text, Page(text)


def test_nothing_is_loaded_from_anywhere(exported: tuple[str, Page]) -> None:
    _, page = exported
    loading = [
        (tag, name) for tag, attrs in page.tags for name in ("src", "srcset", "poster", "action") if name in attrs
    ]
    assert loading == []
    links = [attrs.get("href") or "" for tag, attrs in page.tags if tag in ("link", "a")]
    assert all(link.startswith(("data:", "/", "#")) for link in links)
    assert not [tag for tag, _ in page.tags if tag in ("iframe", "object", "embed", "base", "form")]
    assert [attrs for tag, attrs in page.tags if tag == "link"] == [
        {"rel": "icon", "href": next(attrs["href"] for tag, attrs in page.tags if tag == "link")}
    ]


def test_own_styles_and_scripts_name_no_other_host(exported: tuple[str, Page]) -> None:
    static = Path(__file__).parents[2] / "src" / "rl_training" / "dashboard" / "static"
    for path in static.iterdir():
        found = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", path.read_text(encoding="utf-8")))
        assert found <= {"http://www.w3.org"}, path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", path.read_text())


def test_the_data_is_that_of_the_runs(exported: tuple[str, Page]) -> None:
    data = json.loads(exported[1].data)
    series = data["runs"]["ppo-seed0"]["metrics"]["series"]
    assert series["eval_mean_return"]["y"] == [1, 2.25] and series["loss"]["y"] == [0.5, 0.125]
    assert data["runs"]["ppo-seed0"]["run"]["facts"]["videos"][0]["data"].startswith("data:image/gif;base64,R0lG")
    assert {each["name"] for each in data["listing"]["rows"]} == set(data["listing"]["names"])
    assert data["compare"]["eval_mean_return"]["panels"][0]["lines"]


def test_a_hostile_name_ends_no_script(exported: tuple[str, Page]) -> None:
    text, page = exported
    data: dict[str, Any] = json.loads(page.data)
    assert HOSTILE in data["listing"]["names"]
    assert "alert(1)<!--" not in text and "<script>alert" not in text
    assert sum(tag == "script" for tag, _ in page.tags) == 10, "data, plotly and eight of our own"


def test_a_script_cannot_end_its_own_element() -> None:
    assert "</script" not in inline_script("a = '</script>'; b = '<!-- x'") and "<!--" not in inline_script("'<!--'")


def test_what_cannot_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--export page\.txt: the dashboard is an \.html file"):
        export_dashboard([], "page.txt", output_dir=tmp_path)
    with pytest.raises(CheckpointError, match="has no runs to export"):
        export_dashboard([], tmp_path / "page.html", output_dir=tmp_path)
    store(tmp_path / "runs", {100: 1.0})
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        export_dashboard([], tmp_path / "file" / "page.html", output_dir=tmp_path / "runs")


def test_videos_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store(tmp_path / "runs", {100: 1.0})
    (run / "videos").mkdir()
    for number in range(3):
        (run / "videos" / f"step-{number}.gif").write_bytes(b"GIF89a" + bytes(100))
    monkeypatch.setattr("rl_training.dashboard.export_file.MOST_PICTURES", 250)
    written = export_dashboard([], tmp_path / "page.html", output_dir=tmp_path / "runs")
    assert written.notes == ("1 videos are left out: they have more than 0 MB together",)
