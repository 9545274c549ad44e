"""The picture of the package in docs/ is what the script draws from the source, and every room is in it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from house import LAYERS, MODULES, ROOT, longest_prefix

SCRIPT = ROOT / "scripts" / "draw_architecture.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_committed_picture_is_up_to_date(script: dict[str, Any]) -> None:
    assert script["main"](["--check"]) == 0, "run python scripts/draw_architecture.py"


def test_a_picture_that_is_out_of_date_is_refused(
    script: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "images" / "picture.svg"
    check = ["--check", "--output", str(output)]
    assert script["main"](check) == 1 and "is out of date" in capsys.readouterr().err
    assert script["main"](["--output", str(output)]) == 0
    assert script["main"](check) == 0
    output.write_text(output.read_text().replace("runtime/", "engine/"))
    assert script["main"](check) == 1


def test_every_room_is_drawn_with_its_modules(script: dict[str, Any]) -> None:
    picture = ElementTree.fromstring(script["render"]())
    texts = ["".join(element.itertext()) for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    rooms = {longest_prefix(module, LAYERS) for module in MODULES}
    assert {script["label"](room) for room in rooms} <= set(texts)
    counts = [int(text.split()[0]) for text in texts if text.endswith(" modules")]
    assert sum(counts) == sum(count for count in script["module_counts"]().values() if count > 1)
    assert {str(layer) for layer in LAYERS.values()} <= set(texts)


def test_no_text_leaves_its_box(script: dict[str, Any]) -> None:
    boxes = [box for _, row in script["rows"]() for box in row]
    assert len(boxes) > 10
    for box in boxes:
        inner = box.width - 2 * script["PADDING"]
        title = 0.62 * script["TITLE_SIZE"] * len(script["label"](box.room.prefix))  # bold letters are wider
        count = script["CHARACTER"] * script["TEXT_SIZE"] * len(f"{box.count} modules") if box.count > 1 else 0
        assert title + count <= inner, box.room
        longest = max(map(len, [*box.holds, *box.imports]))
        assert longest * script["CHARACTER"] * script["TEXT_SIZE"] <= inner, box.room


def test_imports_are_those_of_the_source(script: dict[str, Any]) -> None:
    imports = script["room_imports"]()
    assert {"rl_training.algorithms.common", "rl_training.config", "rl_training.envs"} <= set(
        imports["rl_training.runtime"]
    )
    assert imports["rl_training.storage"] == [] and imports["rl_training.telemetry"] == ["rl_training.storage"]
    assert all(LAYERS[target] > 0 for targets in imports.values() for target in targets)
