"""The notebooks run from their first cell to the last, and the site shows what they showed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training.telemetry.notebook_view import EVALUATION, TRAINING

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
sys.path.insert(0, str(ROOT / "scripts"))

from docs_notebooks import notebook_page  # noqa: E402

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def panels(notebook: Any) -> list[str]:
    pages = [
        "".join(output["data"]["text/html"]) for output in outputs(notebook) if "text/html" in output.get("data", {})
    ]
    return [page for page in pages if re.search(r"[\d,]+ of [\d,]+ steps", page)]


@each
def test_the_notebook_runs_with_a_small_budget(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nbclient", reason="needs the extra notebooks, which make setup installs")
    pytest.importorskip("ipykernel", reason="needs the extra notebooks, which make setup installs")
    from run_notebooks import executed

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = executed(path, tmp_path, budget_divisor=25)
    assert [output for output in outputs(notebook) if output["output_type"] == "error"] == []
    (panel,) = panels(notebook)  # one output that was replaced, not a line every few seconds
    assert "100%" in panel and "took" in panel
    assert any(
        "data:image/gif;base64," in "".join(output["data"].get("text/html", ""))
        for output in outputs(notebook)
        if "data" in output
    )


@each
def test_the_stored_outputs_are_whole(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    (panel,) = panels(notebook)
    for color in (TRAINING, EVALUATION):
        assert f'stroke="{color}"' in panel, "an older look: run python scripts/run_notebooks.py"
    assert not [output for output in outputs(notebook) if output["output_type"] == "error"]
    assert path.stat().st_size < 1_000_000
    assert not re.search(r"/(tmp|home|root|work|Users)/", path.read_text(encoding="utf-8"))


@each
def test_the_page_has_every_cell_and_output(path: Path) -> None:
    page = notebook_page(path)
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert "".join(cell["source"]) in page
    assert "data:image/gif;base64," in page and "<svg" in page


def test_html_of_an_output_is_one_block(tmp_path: Path) -> None:
    output = {"output_type": "display_data", "data": {"text/html": ["<p>a\n", "\n", "b</p>"]}}
    cells = [
        {"cell_type": "code", "source": ["x = 1"], "outputs": [output, {"output_type": "stream", "text": ["1\n"]}]}
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    fence = "`" * 6
    expected = (
        f'{fence}python\nx = 1\n{fence}\n\n<div class="cell-output"><p>a b</p></div>\n\n{fence}text\n1\n{fence}\n'
    )
    assert notebook_page(tmp_path / "a.ipynb") == expected
