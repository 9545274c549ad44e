"""Fixtures of the tests of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Be another user, with another state directory."""

    def switch(name: str) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states" / name))
        monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "states" / name))

    switch("owner")
    return switch
