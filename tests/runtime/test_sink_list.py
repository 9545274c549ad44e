"""The setting `sinks` on every surface: what it means, what it refuses, and sinks of one's own."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import rl_training
from cli_helpers import call
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError, install_hint
from rl_training.runtime.output.sink_list import consent_text, permitted
from rl_training.runtime.workflows import resume, train
from rl_training.telemetry.sink_entries import SinkEntry, sinks_of
from rl_training.telemetry.sinks import Sink, SinkRun
from run_cases import stop_at
from tiny_runs import managed, tiny_config

OPENED: list[Any] = []


class Keeping(Sink):
    """Keeps all that it is given."""

    name = "keeping"

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.calls: list[Any] = []
        OPENED.append(self)

    def open(self, run: SinkRun) -> None:
        self.calls.append(("open", run.name, run.config["algo"], run.resumed_after))

    def write(self, line: dict[str, Any]) -> None:
        self.calls.append(("write", line["kind"], line["env_steps"]))

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


class OnlyWrite:
    """Not a subclass: the other methods are optional."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, line: dict[str, Any]) -> None:
        self.lines.append(line)


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "state"))
    OPENED.clear()


def named(*sinks: Any, **settings: Any) -> TrainConfig:
    return load_config({"algo": "ppo", "env_id": "CartPole-v1", "sinks": list(sinks), **settings})


# --- one truth ------------------------------------------------------------------------------------------------------


def test_the_short_forms_are_entries_of_the_same_list() -> None:
    old = sinks_of(named(tensorboard=True, wandb_project="mine"))
    new = sinks_of(named("tensorboard", {"sink": "wandb", "project": "mine"}))
    assert old == new == (SinkEntry("tensorboard"), SinkEntry("wandb", {"project": "mine"}))
    both = named({"sink": "wandb", "tags": ["a"]}, "tensorboard", tensorboard=True, wandb_project="mine")
    assert sinks_of(both) == (SinkEntry("wandb", {"tags": ["a"], "project": "mine"}), SinkEntry("tensorboard"))
    assert sinks_of(named()) == ()


def test_two_projects_are_a_conflict() -> None:
    with pytest.raises(ConfigError, match=r"wandb_project: 'a' and sinks \('b'\) name two projects; set wandb_project"):
        named({"sink": "wandb", "project": "b"}, wandb_project="a")


def test_one_entry_needs_no_list_and_the_setting_survives_a_file(tmp_path: Path) -> None:
    config = load_config({"algo": "ppo", "env_id": "CartPole-v1", "sinks": {"sink": "mlflow", "experiment": "x"}})
    assert config.sinks == ({"sink": "mlflow", "experiment": "x"},)
    assert load_config(json.loads(config.model_dump_json())) == config
    assert named(*config.sinks) == config


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sinks", "words"),
    [
        (["csv"], "leave csv out, every run has it"),
        (["wandb", "wandb"], "wandb is given twice"),
        ([{"project": "x"}], "needs the key sink"),
        ([{"sink": "wandb", "projct": "x"}], "wandb has no option projct; did you mean project?"),
        ([{"sink": "mlflow", "zzz": 1}], "its options are tracking_uri, experiment, tags"),
        ([{"sink": "tensorboard", "x{}": 1}], "tensorboard has no option x(); it has no options"),
        ([{"sink": "wandb", "tags": "a"}], "tags of wandb must be a list of words"),
        ([{"sink": "wandb", "mode": "of"}], "mode of wandb must be online or offline"),
        ([{"sink": "mlflow", "tags": ["a"]}], "tags of mlflow must be names with text"),
        ([{"sink": "trackio", "project": 3}], "project of trackio must be text"),
        (["no such; name"], "expected tensorboard, wandb, mlflow, trackio"),
        ([object()], "pass a sink object to PPO"),
        ([3], "a config takes names and mappings"),
        (["a:B"] * 17, "sinks"),
    ],
)
def test_a_wrong_entry_is_one_line(sinks: list[Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        named(*sinks)
    assert words in str(error.value) and str(error.value).startswith("sinks") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ("wanbd", "sinks: wanbd: there is no such sink, did you mean wandb?"),
        ("zzz", "known are tensorboard, wandb, mlflow, trackio; your own is module:Class"),
        ("no_such_module:Sink", "importing it failed with"),
        ("test_sink_list:Kepping", "did you mean Keeping?"),
        ("test_sink_list:OnlyWrite", "it is not a subclass of rl_training.Sink"),
        ({"sink": "test_sink_list:Keeping", "lable": "x"}, "it cannot be created"),
    ],
)
def test_an_unknown_sink_is_one_line_before_there_is_a_run(sink: Any, words: str, tmp_path: Path) -> None:
    sys.modules.setdefault("test_sink_list", sys.modules[__name__])
    with pytest.raises(ConfigError) as error:
        train(tiny_config("ppo", tmp_path / "runs", sinks=[sink]), show=False)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow", "trackio"])
def test_a_missing_package_is_named_before_there_is_a_run(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    outcome = call("train", "ppo/cartpole", "--set", f"sinks=[{name}]", "--output-dir", tmp_path / "runs")
    assert outcome.code == 2 and len(outcome.err.splitlines()) == 1
    assert f"sinks: {name} is not installed; {install_hint(name)}" in outcome.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("broken", ["open", "write", "flush", "close"])
def test_a_sink_that_raises_is_off_and_the_run_lives_on(
    broken: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("no such luck\nand more")

    sink = Keeping()
    monkeypatch.setattr(sink, broken, fail)
    result = train(tiny_config("ppo", tmp_path), sinks=[sink], show=False)
    told = [line for line in capsys.readouterr().err.splitlines() if "keeping" in line]
    assert result.env_steps == 64 and len(told) == 1


def test_a_sink_that_a_note_turned_off_gets_no_more_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding is noted while a line is written: the sink that fails then is closed before the line reaches it."""
    from rl_training.telemetry.recorder import Recorder

    class Noting(Sink):
        name = "noting"

        def write(self, line: dict[str, Any]) -> None:
            recorder.note("text", 1)

    class Failing(Keeping):
        def note(self, text: str, env_steps: int) -> None:
            raise RuntimeError("full")

    failing = Failing()
    with Recorder(tmp_path, sinks=[Noting(), failing]) as recorder:
        recorder.record({"env_steps": 1})
    assert failing.calls == ["close"] and capsys.readouterr().err.count("keeping logging is off") == 1


# --- sinks of one's own ---------------------------------------------------------------------------------------------


def test_objects_and_names_in_python(tmp_path: Path) -> None:
    keeping, only = Keeping(), OnlyWrite()
    agent = managed("ppo", tmp_path, sinks=["tensorboard", keeping, only], eval_every=32)
    assert agent.config.sinks == ("tensorboard",)
    agent.learn(show=False)
    opened = ("open", agent.run_dir.name, "ppo", None)
    assert keeping.calls[0] == opened and keeping.calls[-1] == "close" and "flush" in keeping.calls
    assert ("write", "eval", 64) in keeping.calls and only.lines[-1]["kind"] == "eval"
    assert list((agent.run_dir / "tensorboard").iterdir())
    agent.learn(64, show=False)  # the same objects are opened again
    assert keeping.calls.count("close") == 2 and keeping.calls.count(("open", agent.run_dir.name, "ppo", 64)) == 1
    extra = Keeping()
    rl_training.load(agent.run_dir).learn(64, show=False, sinks=[extra])
    assert extra.calls[0] == ("open", agent.run_dir.name, "ppo", 128)


@pytest.mark.parametrize(("item", "words"), [(Keeping, "pass an instance: Keeping()"), (3, "has no method write")])
def test_an_object_that_is_no_sink_is_refused(item: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sinks: ") as error:
        managed("ppo", tmp_path, sinks=[item])
    assert words in str(error.value)


def test_an_entry_point_and_an_address_are_made_with_their_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sys.modules.setdefault("test_sink_list", sys.modules[__name__])
    point = importlib.metadata.EntryPoint("keeping", "test_sink_list:Keeping", "rl_training.sinks")
    monkeypatch.setattr("rl_training.runtime.output.sink_list.entry_points", lambda group: [point])
    entries = [{"sink": "keeping", "label": "a"}, {"sink": "test_sink_list:Keeping", "label": "b"}]
    train(tiny_config("ppo", tmp_path, sinks=entries), show=False)
    made = [sink for sink in sys.modules["test_sink_list"].OPENED if sink.calls]  # type: ignore[attr-defined]
    assert [sink.label for sink in made] == ["a", "b"] and all(sink.calls[-1] == "close" for sink in made)
    with pytest.raises(ConfigError, match="did you mean keeping"):
        train(tiny_config("ppo", tmp_path, sinks=["keepin"]), show=False)


def test_sinks_change_no_number_and_a_resume_is_exact(tmp_path: Path) -> None:
    from rl_training.telemetry.recorder import read_metrics, without_wall_clock

    plain = train(tiny_config("ppo", tmp_path / "a", checkpoint_every=32), show=False).run_dir
    config = tiny_config("ppo", tmp_path / "b", checkpoint_every=32, sinks=["tensorboard"])
    parts = train(config, callback=stop_at(32), sinks=[Keeping()], show=False).run_dir
    resume(parts, sinks=[Keeping()], show=False)
    assert list(map(without_wall_clock, read_metrics(parts))) == list(map(without_wall_clock, read_metrics(plain)))


# --- consent --------------------------------------------------------------------------------------------------------


def entries(*sinks: Any) -> tuple[SinkEntry, ...]:
    return sinks_of(named(*sinks))


def test_of_a_strangers_run_only_what_is_named_now_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    stored = entries("tensorboard", "wandb", {"sink": "mlflow", "tracking_uri": "http://evil"}, "evil:Sink")
    now = (*stored, *entries("trackio"))
    assert permitted(now, stored, {}, None) == [*entries("tensorboard"), *entries("trackio")]
    (line,) = capsys.readouterr().err.splitlines()
    assert "wandb, mlflow ('http://evil'), evil:Sink" in line and "pass --trackers" in line
    assert permitted(now, stored, {}, True) == list(now)
    assert permitted(now, stored, {}, False) == list(entries("tensorboard"))
    changed = entries({"sink": "wandb", "project": "mine"})
    assert permitted(changed, stored, {}, None) == list(changed)


def test_a_stranger_s_own_sink_is_not_even_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.setdefault("test_sink_list", sys.modules[__name__])
    config = tiny_config("ppo", tmp_path / "runs", sinks=["test_sink_list:Keeping"])
    run = train(config, callback=stop_at(32), show=False).run_dir
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({key: info[key] for key in info if key != "tracker_proof"}))
    text = (run / "config.yaml").read_text()
    assert "test_sink_list:Keeping" in text and "tracker_proof" in info
    del sys.modules["test_sink_list"]
    capsys.readouterr()
    assert resume(run, show=False).env_steps == 64
    assert "test_sink_list" not in sys.modules and "nothing is sent there" in capsys.readouterr().err


def test_what_is_signed_depends_on_every_tracker_and_option_but_not_on_their_order() -> None:
    assert consent_text(entries({"sink": "wandb", "project": "mine"})) == "mine"  # as in runs of earlier versions
    assert consent_text(entries("tensorboard", {"sink": "wandb", "project": "mine"})) == "mine"
    texts = {
        consent_text(entries(*sinks))
        for sinks in (
            ["wandb"],
            ["mlflow"],
            ["wandb", "mlflow"],
            [{"sink": "wandb", "project": "mine", "entity": "them"}],
            [{"sink": "mlflow", "tracking_uri": "http://a"}],
            ["a:B"],
        )
    }
    assert len(texts) == 6
    assert consent_text(entries("wandb", "mlflow")) == consent_text(entries("mlflow", "wandb"))
