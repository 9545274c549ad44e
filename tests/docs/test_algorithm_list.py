"""The README lists what the algorithm table has, and listing algorithms costs no heavy import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rl_training.config.algorithm_table import ALGORITHMS


def test_readme_has_the_list_that_the_script_writes(project_root: Path) -> None:
    script = project_root / "scripts" / "algorithm_list.py"
    done = subprocess.run([sys.executable, str(script), "--check"], timeout=120)
    assert done.returncode == 0, "run: python scripts/algorithm_list.py"


def test_the_page_on_configuration_has_the_tables_that_the_script_writes(project_root: Path) -> None:
    script = project_root / "scripts" / "defaults_table.py"
    done = subprocess.run([sys.executable, str(script), "--check"], timeout=120)
    assert done.returncode == 0, "run: python scripts/defaults_table.py"


def test_the_list_names_every_algorithm_once(project_root: Path) -> None:
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    for row in ALGORITHMS.values():
        assert readme.count(f"`{row.name}` |") == 1
        assert f"| {row.title} |" in readme


def test_list_algorithms_imports_neither_torch_nor_gymnasium() -> None:
    program = (
        "import sys\n"
        "from rl_training.cli import main\n"
        "assert main(['list', 'algorithms', '--json']) == 0\n"
        "heavy = {'torch', 'gymnasium'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [row["name"] for row in json.loads(done.stdout)] == list(ALGORITHMS)
