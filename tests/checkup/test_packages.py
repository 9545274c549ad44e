"""Python, required packages and extras: each fault has its line, and a sound installation has none."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import date
from importlib import metadata
from pathlib import Path

import pytest

from rl_training.checkup import packages, requirements
from rl_training.checkup.import_trial import Trial, try_imports
from rl_training.checkup.packages import check_dependencies, check_extras, check_python, extra_problem
from rl_training.checkup.requirements import Requirement, parse_requirement, satisfies
from rl_training.errors import install_hint

TESTED = [(3, 10), (3, 11), (3, 12), (3, 13)]
TODAY = date(2026, 11, 18)
NEEDED = [
    Requirement("numpy", ">=1.26"),
    Requirement("gymnasium", ">=1.1,<2"),
    Requirement("ale-py", ">=0.12", extra="atari"),
    Requirement("opencv-python-headless", ">=4.8", extra="atari"),
    Requirement("gymnasium", extras=("mujoco",), extra="mujoco"),
    Requirement("pytest", ">=8", extra="dev"),
]
HEALTHY = {"numpy": "2.4.6", "gymnasium": "1.4.0", "ale-py": "0.12.1", "opencv-python-headless": "5.0"}
SOUND = {module: Trial() for module in packages.modules_to_try(NEEDED)}


def test_a_sound_installation_has_neither_warnings_nor_failures() -> None:
    findings = [
        check_python((3, 12, 1), ">=3.10", TESTED, TODAY),
        *check_dependencies(NEEDED, HEALTHY.get, SOUND),
        *check_extras(NEEDED, HEALTHY.get, SOUND),
    ]
    assert [finding.status for finding in findings] == ["ok"] * 3
    assert findings[1].detail == "2 of 2 in range: numpy 2.4.6, gymnasium 1.4.0"
    assert findings[2].detail == "installed: atari, mujoco"


@pytest.mark.parametrize(
    ("version", "status", "text"),
    [
        ((3, 12, 1), "ok", "3.12.1, gets security fixes until October 2028"),
        ((3, 10, 14), "warn", "3.10.14 gets no security fixes since October 2026"),
        ((3, 14, 0), "warn", "3.14.0 is newer than the versions that rl_training is tested with"),
        ((3, 9, 2), "fail", "3.9.2, but rl_training needs Python >=3.10"),
    ],
)
def test_python(version: tuple[int, int, int], status: str, text: str) -> None:
    finding = check_python(version, ">=3.10", TESTED, TODAY)
    assert (finding.status, finding.detail) == (status, text)
    assert finding.fix == ("" if status == "ok" else "use Python 3.13")


@pytest.mark.parametrize(
    ("change", "text", "fix"),
    [
        ({"numpy": None}, "numpy is not installed", 'pip install "numpy>=1.26"'),
        ({"gymnasium": "2.0.1"}, "gymnasium 2.0.1 is outside >=1.1,<2", 'pip install "gymnasium>=1.1,<2"'),
    ],
)
def test_a_dependency_that_is_missing_or_has_the_wrong_version(
    change: Mapping[str, str | None], text: str, fix: str
) -> None:
    (finding,) = check_dependencies(NEEDED, (HEALTHY | dict(change)).get, SOUND)
    assert (finding.status, finding.detail, finding.fix) == ("fail", text, fix)


def test_a_dependency_that_cannot_be_imported() -> None:
    trials = SOUND | {"numpy": Trial("ImportError: libopenblas.so: cannot open")}
    (finding,) = check_dependencies(NEEDED, HEALTHY.get, trials)
    assert finding.status == "fail"
    assert finding.detail == "numpy cannot be imported (ImportError: libopenblas.so: cannot open)"
    assert finding.fix == "pip install --force-reinstall numpy"


def test_a_source_tree_without_metadata_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert requirements.package_requirements() is None
    (finding,) = check_dependencies(None, HEALTHY.get, {})
    assert finding.status == "warn" and "is not installed, only imported" in finding.detail
    assert list(check_extras(None, HEALTHY.get, {})) == []


def test_an_absent_extra_is_fine_and_names_the_installation() -> None:
    versions = {name: version for name, version in HEALTHY.items() if name in ("numpy", "gymnasium")}
    trials = SOUND | {"ale_py": Trial("ModuleNotFoundError: No module named 'ale_py'")}
    *_, finding = check_extras(NEEDED, versions.get, trials)
    assert (finding.status, finding.detail) == ("ok", "not installed: atari")
    assert finding.fix == install_hint("atari")
    problem = extra_problem("atari", NEEDED, versions.get, trials)
    assert problem == "ale-py is not installed; opencv-python-headless is not installed"


def test_half_an_extra_is_a_warning() -> None:
    versions = {name: version for name, version in HEALTHY.items() if name != "opencv-python-headless"}
    warning, *_ = check_extras(NEEDED, versions.get, SOUND)
    assert (warning.status, warning.detail) == ("warn", "atari: opencv-python-headless is not installed")


def test_what_another_extra_brought_along_does_not_make_half_an_extra() -> None:
    robotics = [
        Requirement("gymnasium-robotics", ">=1.4.2", extra="robotics"),
        Requirement("mujoco", "<=3.10", extra="robotics"),
    ]
    trials = SOUND | {"gymnasium_robotics": Trial("ModuleNotFoundError: No module named 'gymnasium_robotics'")}
    versions = HEALTHY | {"mujoco": "4.0.0"}
    working, absent = check_extras([*NEEDED, *robotics], versions.get, trials)
    assert (working.detail, absent.detail) == ("installed: atari, mujoco", "not installed: robotics")
    versions["gymnasium-robotics"] = "1.4.2"
    warning, _ = check_extras([*NEEDED, *robotics], versions.get, SOUND)
    assert (warning.status, warning.detail) == ("warn", "robotics: mujoco 4.0.0 is outside <=3.10")


def test_an_extra_that_cannot_be_imported_is_a_warning() -> None:
    trials = SOUND | {"cv2": Trial("ImportError: libGL.so.1: cannot open shared object file")}
    warning, *_ = check_extras(NEEDED, HEALTHY.get, trials)
    assert warning.status == "warn"
    assert warning.detail.startswith("atari: opencv-python-headless cannot be imported (ImportError: libGL.so.1")


def test_a_part_of_gymnasium_that_is_missing_is_an_absent_extra() -> None:
    trials = SOUND | {"mujoco": Trial("ModuleNotFoundError: No module named 'mujoco'")}
    working, absent = check_extras(NEEDED, HEALTHY.get, trials)
    assert (working.detail, absent.detail) == ("installed: atari", "not installed: mujoco")


@pytest.mark.parametrize(
    ("version", "allowed", "expected"),
    [
        ("2.6.0+cpu", ">=2.6", True),
        ("2.5.9", ">=2.6", False),
        ("1.10", ">=1.9,<2", True),
        ("2.0.0", ">=1.1,<2", False),
        ("0.4.3", ">=0.4.3", True),
        ("6", ">=6.0", True),
        ("4.3", "==4.*", True),
        ("5.0", "==4.*", False),
        ("1.4.5", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("3", "!=3.0", False),
        ("7.1", "", True),
    ],
)
def test_versions_in_ranges(version: str, allowed: str, expected: bool) -> None:
    assert satisfies(version, allowed) is expected


def test_our_own_metadata_is_understood() -> None:
    lines = metadata.requires("rl_training") or []
    assert len(lines) > 20
    assert all(parse_requirement(line) is not None for line in lines)
    assert parse_requirement('gymnasium[box2d]; extra == "box2d"') == Requirement("gymnasium", "", ("box2d",), "box2d")
    assert {"atari", "box2d", "mujoco"} <= packages.by_extra(requirements.package_requirements() or []).keys()
    assert "dev" not in packages.by_extra(requirements.package_requirements() or [])


def test_a_package_that_is_broken_neither_ends_the_check_nor_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        "loud_package": 'print(\'{"module": "raising_package", "error": null, "facts": {}}\')',
        "raising_package": "raise OSError('libfoo.so: cannot\\nopen')",
        "killing_package": "import os, signal; os.kill(os.getpid(), signal.SIGILL)",
        "leaving_package": "raise SystemExit(3)",
        "ending_package": "import os; os._exit(9)",
        "good_package": "",
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source + "\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    trials = try_imports([*sources, "no_such_package"])
    assert {name: trial.error for name, trial in trials.items()} == {
        "loud_package": None,
        "raising_package": "OSError: libfoo.so: cannot open",
        "killing_package": "importing it kills the process (SIGILL)",
        "leaving_package": "SystemExit: 3",
        "ending_package": "importing it ends the process with code 9",
        "good_package": None,
        "no_such_package": "ModuleNotFoundError: No module named 'no_such_package'",
    }


def test_what_a_package_writes_to_the_home_of_the_user_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from pathlib import Path\n(Path.home() / 'settings').write_text('mine')\n"
    (tmp_path / "writing_package.py").write_text(source)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert try_imports(["writing_package"])["writing_package"].error is None
    assert list(home.iterdir()) == []


def test_a_module_in_the_current_directory_does_not_shadow_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "yaml.py").write_text("raise ImportError('this is not PyYAML')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert try_imports(["yaml"])["yaml"].error is None
