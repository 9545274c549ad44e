"""scripts/calibrate_findings.py: what a report says of runs, what it keeps of them, and the page made from that."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training.diagnosis.rule_book import RULES
from rl_training.zoo.manifest import load_manifest
from zoo_helpers import install_env, preset, row, write_manifest

ROOT = Path(__file__).resolve().parents[2]
# The sick preset passes its row too, because its floor is low: what fires on it is wrong.
SIZES = {"num_steps": 16, "minibatch_size": 64, "update_epochs": 4}
WELL, SICK = SIZES | {"learning_rate": 0.005}, SIZES | {"learning_rate": 5.0}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("calibrate_findings")


@pytest.fixture
def kept(script: Any) -> Any:
    return importlib.import_module("kept_findings")


def call(script: Any, monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["calibrate_findings.py", *map(str, words)])
    return int(script.main())


def rows_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())["rows"]  # type: ignore[no-any-return]


def test_reports_keep_what_they_saw_after_the_runs_are_gone(
    script: Any, kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_env(tmp_path / "env", monkeypatch)
    sick = preset(algo_kwargs=SICK, total_timesteps=1024)
    rows = [row("well.yaml"), row("sick.yaml", floor=-5)]
    manifest = write_manifest(tmp_path, {"well": preset(algo_kwargs=WELL), "sick": sick}, rows)
    runs, file = tmp_path / "runs", tmp_path / "kept" / "findings.json"
    options = ["--manifests", manifest, "--kept", file]

    assert call(script, monkeypatch, "train", runs, *options, "--seeds", "0") == 0
    assert call(script, monkeypatch, "report", runs, *options, "--seeds", "0") == 1, "a rule fires on a run that passes"
    assert "sick seed 0:" in capsys.readouterr().out
    well, ill = rows_of(file)["well"]["seeds"]["0"], rows_of(file)["sick"]["seeds"]["0"]
    assert well["passed"] and well["fired"] == [] and well["score"] >= 0.8
    assert 0 < well["figures"]["approx_kl, median of 5"] < 0.1
    assert well["trained"].startswith("0.") and well["judged"] and well["rules"] == kept.rules_hash()
    assert ill["fired"] == ["steps_too_large"]

    # Another folder with another seed, on a day when the first folder is gone.
    shutil.rmtree(runs)
    assert call(script, monkeypatch, "train", runs, *options, "--seeds", "1", "--only", "well") == 0
    assert call(script, monkeypatch, "report", runs, *options, "--seeds", "1", "--only", "well") == 0
    assert set(rows_of(file)["well"]["seeds"]) == {"0", "1"} and rows_of(file)["sick"]["seeds"]["0"] == ill
    page = tmp_path / "page.md"
    page.write_text(f"| `steps_too_large` | x | 43 | old |\n\n{kept.BEGIN}\n{kept.END}\nend\n")
    assert call(script, monkeypatch, "page", *options, "--page", page) == 0
    text = " ".join(page.read_text().split())
    assert "keeps 3 runs that passed" in text and "fires on 1 of them: `steps_too_large` on sick seed 0." in text
    assert "(sick seed 0); median" in text and "old" not in text and text.endswith("end")

    # Another learning rate is another preset: what was kept of the old one says nothing about it.
    (tmp_path / "well.yaml").write_text(json.dumps(preset(algo_kwargs=WELL | {"learning_rate": 0.01})))
    assert call(script, monkeypatch, "report", runs, *options) == 0
    assert set(rows_of(file)) == {"sick"}


def seen(kept: Any, **changes: Any) -> Any:
    facts = {"score": 500.0, "passed": True, "fired": [], "figures": {"approx_kl": 0.01}}
    return kept.Seen(**facts | {"trained": "0.2.0", "judged": "0.2.0", "rules": kept.rules_hash()} | changes)


def test_what_is_said_of_the_kept_runs(kept: Any) -> None:
    (entry,) = [each for each in load_manifest("classic").entries if each.name == "ppo/cartpole"]
    found = {
        ("ppo/cartpole", 10): seen(kept, figures={"approx_kl": 0.02}),
        ("ppo/cartpole", 2): seen(kept, rules="0"),
        ("ppo/cartpole", 1): seen(kept, passed=False, figures={"approx_kl": 5.0}, fired=["steps_too_large"]),
        ("ppo/cartpole", 0): seen(kept),
    }
    document = kept.merge(kept.load(Path("missing.json")), [entry], found)
    assert list(document["rows"]["ppo/cartpole"]["seeds"]) == ["0", "1", "2", "10"]
    assert kept.worst(document) == {"approx_kl": (0.02, "ppo/cartpole seed 10")}, "sick runs do not count as healthy"
    text = kept.summary(document, 148)
    assert "keeps 3 runs that passed" in text and "1 of the 148 rows" in text and "and 1 rows have 3 seeds" in text
    assert "fires on 0 of them." in text and "1 run that did not pass" in text and "judged 1 run of" in text
    document["older"] = {"runs": 7, "about": "one each.", "worst": {"approx_kl": [0.3, ""]}}
    assert "Besides, there are 7 runs from before the file: one each." in kept.summary(document, 148)
    assert kept.cell("steps_too_large", kept.worst(document)) == "0.3"
    assert kept.cell("dead_units", {}) == "not measured"


def test_a_new_setting_with_a_default_keeps_the_hash_and_a_seed_is_no_other_preset(kept: Any) -> None:
    (entry,) = [each for each in load_manifest("classic").entries if each.name == "ppo/cartpole"]
    same = entry.preset.model_copy(update={"seed": 9, "threads": 1})
    assert kept.preset_hash(same) == kept.preset_hash(entry.preset)
    assert kept.preset_hash(entry.preset.model_copy(update={"num_envs": 3})) != kept.preset_hash(entry.preset)


def test_the_page_has_a_figure_of_every_rule_and_is_made_from_the_file(script: Any, kept: Any) -> None:
    assert set(kept.COLUMN) == {rule.name for rule in RULES}
    entries = script.every_entry()
    document = kept.merge(kept.load(kept.KEPT), entries, {})
    page = kept.PAGE.read_text(encoding="utf-8")
    assert kept.with_healthy_runs(page, document, len(entries)) == page, (
        "run: python scripts/calibrate_findings.py page"
    )
    for rule in RULES:
        assert f"| `{rule.name}` |" in page
    with pytest.raises(SystemExit, match="needs the lines"):
        kept.with_healthy_runs("no marks", document, len(entries))
