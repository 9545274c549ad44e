"""Run the notebooks of examples/notebooks and store what they show, for the site: python scripts/run_notebooks.py

Needs the extra `notebooks`. The suite runs them with small budgets (tests/docs/test_notebooks.py).
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SECONDS_PER_CELL = 1800


def executed(path: Path, folder: Path, budget_divisor: int = 1) -> NotebookNode:
    """The notebook with its outputs, after running it in `folder`; step counts such as 50_000 can be divided."""
    notebook = nbformat.read(path, as_version=4)
    sources = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            sources[cell.id] = cell.source
            cell.source = re.sub(r"\b\d+_000\b", lambda match: str(int(match[0]) // budget_divisor), cell.source)
    client = NotebookClient(notebook, timeout=SECONDS_PER_CELL, resources={"metadata": {"path": str(folder)}})
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # wall-clock times
        if cell.cell_type == "code":
            cell.source = sources[cell.id]
            for output in cell.outputs:
                output.get("transient", {}).clear()
    notebook.metadata.language_info = {"name": "python"}  # not the version of this machine
    return notebook


def main() -> None:
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        path.write_text(nbformat.writes(notebook, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
