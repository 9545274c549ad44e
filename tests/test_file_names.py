"""Names of files: a name says what the file holds, and no two files share one."""

from __future__ import annotations

from collections import defaultdict

from house import MODULES, PACKAGE
from rl_training.config.algorithm_table import ALGORITHMS


def test_no_two_files_have_one_name() -> None:
    """`config/algorithms/x.py` holds the settings of `x.py`, so the two share a name, and so do shared parts."""
    homes: dict[tuple[bool, str], list[str]] = defaultdict(list)
    for path in MODULES.values():
        if path.stem != "__init__":
            place = path.relative_to(PACKAGE)
            homes[place.parts[:2] == ("config", "algorithms"), path.stem].append(str(place))
    assert [sorted(places) for places in homes.values() if len(places) > 1] == []


def test_every_settings_file_belongs_to_an_algorithm() -> None:
    """What algorithms share goes into `common/`, so that a new algorithm finds its place at a glance."""
    files = {path.stem for path in (PACKAGE / "config" / "algorithms").glob("*.py")} - {"__init__"}
    assert files == {row.file or row.name for row in ALGORITHMS.values()}


def test_no_file_repeats_the_name_of_its_folder() -> None:
    """`storage/storage.py` would say nothing that `storage/` does not."""
    assert [str(p.relative_to(PACKAGE)) for p in MODULES.values() if p.stem == p.parent.name] == []


def test_files_are_named_after_nouns() -> None:
    """A gerund names an activity, and an activity has no end: `saving.py` could hold anything about saving."""
    nouns = {"q_learning", "loading", "finding", "run_finding", "sitting", "traced_acting"}
    assert {path.stem for path in MODULES.values() if path.stem.endswith("ing")} <= nouns
