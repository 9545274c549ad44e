"""scripts/check_floors.py: what its two environments install, what it runs in them, and how it ends."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_floors.py"


@pytest.fixture
def script() -> Any:
    return SimpleNamespace(**runpy.run_path(str(SCRIPT), run_name="check_floors"))


def test_the_oldest_environment_pins_every_dependency_to_its_lower_bound(script: Any) -> None:
    oldest = script.wanted("oldest")
    pinned = dict(word.split("==") for word in oldest if "==" in word)
    assert pinned["torch"] == "2.13" and pinned["gymnasium"] == "1.1" and pinned["pillow"] == "10.3"
    project = script.tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        name = re.match(r"[\w.-]+", requirement)[0]  # type: ignore[index]
        assert name in pinned, f"{requirement}: a dependency without a lower bound cannot be tested"
    assert "gymnasium[box2d]==1.2.3" not in oldest, "it would contradict the bound of the package itself"
    assert "box2d==2.3.10" in oldest, "tests make LunarLander"
    assert {"pytest>=8,<9.2"} <= set(oldest)


def test_the_newest_environment_takes_the_ranges_as_they_are(script: Any) -> None:
    newest = script.wanted("newest")
    assert "gymnasium>=1.1,<2" in newest and not [word for word in newest if "==" in word]


def test_a_pin_replaces_the_requirement_of_that_name(script: Any) -> None:
    for kind in ("oldest", "newest"):
        usual, pinned = script.wanted(kind), script.wanted(kind, ["torch==2.13.0"])
        changed = [word for word in pinned if word not in usual]
        assert changed == ["torch==2.13.0"] and len(pinned) == len(usual)


def test_an_unreadable_requirement_and_an_unknown_environment_are_refused(
    script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="cannot read the requirement"):
        script.oldest("@ file")
    with pytest.raises(SystemExit) as ended:
        script.main(["middle"])
    assert ended.value.code == 2 and "unknown environment 'middle'" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (1, 1)])
def test_it_builds_the_environments_runs_the_tests_and_fails_with_them(
    code: int, exit_code: int, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []

    def run(command: list[Any], **options: Any) -> Any:
        called.append([str(word) for word in command])
        is_test = "pytest" in called[-1]
        return SimpleNamespace(returncode=code if is_test else 0, stdout=" ".join(["1.0"] * len(script.SHOWN)))

    monkeypatch.setattr(script.subprocess, "run", run)
    monkeypatch.setattr(script.venv, "create", lambda folder, with_pip: called.append(["venv", str(folder)]))
    monkeypatch.setattr(script.shutil, "rmtree", lambda *_, **__: None)
    words = ["oldest", "--folder", str(tmp_path), "--pin", "numpy==2.0", "--", "tests/data"]
    assert script.main(words) == exit_code
    python = str(tmp_path / "oldest" / "bin" / "python")
    assert called[0] == ["venv", str(tmp_path / "oldest")]
    assert called[1][:4] == [python, "-m", "pip", "install"] and {"torch==2.13", "numpy==2.0"} <= set(called[1])
    assert called[2][-1] == str(ROOT) and "--no-deps" in called[2] and "-e" not in called[2]
    assert called[-1][:3] == [python, "-m", "pytest"] and called[-1][-1] == "tests/data"


def test_the_tests_that_it_runs_exist(script: Any) -> None:
    assert [path for path in script.CHECKED if not (ROOT / path).exists()] == []
