"""The documentation site: it builds offline without a warning, and has a page for everything that can be looked up."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest

import rl_training
from rl_training.command_line.app import COMMANDS
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.loading import describe_config, list_presets

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from docs_curves import kept_curves  # noqa: E402
from docs_reference import CURVES, REPORTS  # noqa: E402

pytestmark = pytest.mark.xdist_group("site")  # it is built once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(ROOT / "scripts" / "build_docs.py"), "--output", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0 and done.stderr == "", done.stderr[-3000:]
    return target / "html"


class Parts(HTMLParser):
    """The text of a page, and what a browser fetches to show it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.without_words: list[str] = []
        self.words: list[str] = []
        self.html = page.read_text(encoding="utf-8")
        self.feed(self.html)
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.tags.append(tag)
        if tag == "img" and not values.get("alt"):
            self.without_words.append(values.get("src") or "")
        if tag in ("script", "img", "iframe", "source"):
            self.fetched.append(values.get("src") or "")
        elif tag == "link" and values.get("rel") in ("stylesheet", "preload", "icon", "preconnect"):
            self.fetched.append(values.get("href") or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def words(text: str) -> str:
    """Without punctuation: the site has typographic quotes and dashes."""
    return " ".join(re.findall(r"[A-Za-z0-9]+", text))


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        assert (site / page.relative_to(ROOT).with_suffix(".html")).is_file(), page


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        outside = [link for link in Parts(page).fetched if re.match(r"(https?:)?//", link)]
        assert outside == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import\s+['\"]?https?:", style.read_text(encoding="utf-8")), (
            style
        )


def test_a_search_fetches_nothing(site: Path) -> None:
    """A page from a disk may not fetch another one, so results have no summaries."""
    options = (site / "_static" / "documentation_options.js").read_text(encoding="utf-8")
    assert re.search(r"SHOW_SEARCH_SUMMARY: false", options)


def test_every_picture_has_words(site: Path) -> None:
    missing = {page.name: found for page in site.rglob("*.html") if (found := Parts(page).without_words)}
    assert missing == {}


def test_the_home_page_leads_to_what_only_the_site_has(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    for page in ("algorithms", "settings", "commands", "errors", "api"):
        assert home.count(f'href="reference/{page}.html"') >= 2, "in the sidebar and in a table"
    assert "make docs" not in home


def test_pictures_open_in_full_and_long_names_break(site: Path) -> None:
    page = (site / "docs" / "benchmarks.html").read_text(encoding="utf-8")
    pictures = re.findall(r'<img [^>]*src="([^"]+)"', page)
    assert pictures and all(f'href="{picture}"' in page for picture in pictures)
    assert "a3c/<wbr>cartpole" in page


def test_notebooks_are_pages_with_their_outputs(site: Path) -> None:
    for notebook in (ROOT / "examples" / "notebooks").glob("*.ipynb"):
        page = Parts(site / notebook.relative_to(ROOT).with_suffix(".html"))
        assert {"svg", "img"} <= set(page.tags) and "env steps" in page.text


def test_pictures_and_local_links_of_all_pages_lead_somewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for link in Parts(page).fetched:
            path = link.partition("?")[0]
            assert not path or path.startswith("data:") or (page.parent / path).is_file(), f"{page}: {link}"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_has_its_page(site: Path, name: str) -> None:
    page = Parts(site / "reference" / "algorithms" / f"{name}.html")
    text, row = page.text, ALGORITHMS[name]
    docstring = inspect.cleandoc(import_module(str(row.learner).partition(":")[0]).__doc__ or "")
    assert words(docstring.partition("\n")[0]) in words(text)
    assert "math" in page.tags, "its equations are drawn"
    settings = [each for each in describe_config(name) if each.key.startswith("algo_kwargs.")]
    assert settings
    for each in settings:
        assert each.key.removeprefix("algo_kwargs.") in text and words(each.description) in words(text), each.key
    presets = [preset for preset in list_presets() if preset.startswith(f"{name}/")]
    assert presets and [preset for preset in presets if f"rl-training train {preset}" not in text] == []
    assert re.search(rf'href="https://[^"]+"[^>]*>{re.escape(row.paper)}</a>', page.html), "a link to its paper"
    kept = list(kept_curves(name, [REPORTS / "results", CURVES / "results"]))
    assert page.tags.count("figure") == len(kept), "a learning curve for each row whose runs are kept"
    for entry, _ in kept:
        assert entry.environment in text


def test_each_command_setting_and_public_name_is_on_the_site(site: Path) -> None:
    commands = Parts(site / "reference" / "commands.html").text
    assert [name for name in COMMANDS if f"rl-training {name}" not in commands] == []
    assert "--budget-fraction" in commands
    settings = Parts(site / "reference" / "settings.html").text
    shared = [row.key for row in describe_config("ppo") if not row.key.startswith("algo_kwargs.")]
    assert [key for key in shared if key not in settings] == []
    names = Parts(site / "reference" / "api.html").text
    assert [name for name in rl_training.__all__ if name not in names and name != "__version__"] == []
