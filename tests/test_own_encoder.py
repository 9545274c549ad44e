"""Encoders of the user's own: every algorithm, exact resume, trust, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import Tensor, nn
from typer.testing import CliRunner

import rl_training
from checkpoint_helpers import run_python, sign_again
from masked_envs import Strict
from mixed_envs import CameraEncoder, PretrainedNet, VectorNet, lit
from rl_training.algorithms.common.compile.compiled_step import CompiledStep
from rl_training.command_line.app import app
from rl_training.command_line.common.output import show_result
from rl_training.config import own_classes
from rl_training.config.loading import load_config
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError, ConfigError
from rl_training.models.encoders.observation_views import quiet_rows
from rl_training.models.encoders.own_encoder import OwnEncoder, price_of
from rl_training.models.encoders.stored_encoder import check_class
from rl_training.runtime.workflows import evaluate_checkpoint, predict, resume, train
from run_cases import assert_same_run, stop_at
from tiny_runs import EVERY_ALGORITHM, managed, some_observations, tiny_config, train_tiny

NAME = "mixed_envs:VectorNet"


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test hands over or trusts ends with it."""
    for name, empty in (("_given", {}), ("_allowed", set()), ("_trusted", set())):
        monkeypatch.setattr(own_classes, name, empty)


@EVERY_ALGORITHM
def test_every_algorithm_learns_acts_and_resumes_exactly_with_an_own_encoder(algorithm: str, tmp_path: Path) -> None:
    """Its frozen part stays as it is, as a pretrained one must."""
    settings: dict[str, Any] = {
        "encoder": PretrainedNet,
        "encoder_kwargs": {"width": 5},
        "normalize_observations": True,
    }
    settings |= {"checkpoint_every": 16, "run_name": "run"}
    if algorithm == "td7":
        settings["copy_every"] = 5  # its encoder learns aside, and is copied then
    configs = [tiny_config(algorithm, tmp_path / name, **settings) for name in "ab"]
    whole = train(configs[0], show=False)
    half = train(configs[1], show=False, callback=stop_at(32))
    assert_same_run(whole.run_dir, resume(half.run_dir, show=False, encoder=PretrainedNet).run_dir)
    learner = whole.agent.learner
    assert isinstance(learner.model.encoder, OwnEncoder) and learner.model.encoder.output_size == 5
    tensors = [(name, part) for name, part in flat_state(learner.state_dict()) if ".network." in name]
    frozen = [part for name, part in tensors if name.endswith("frozen.weight")]
    learned = [part for name, part in tensors if name.endswith(".layer.weight")]
    assert frozen and all(torch.equal(part, torch.eye(len(part))) for part in frozen)
    assert any(not torch.equal(part, torch.eye(*part.shape)) for part in learned)
    obs = some_observations(algorithm, 3)
    again = rl_training.load(whole.run_dir, encoder=PretrainedNet)
    np.testing.assert_array_equal(again.predict(obs)[0], whole.agent.predict(obs)[0])


def flat_state(state: Any, name: str = "") -> list[tuple[str, Tensor]]:
    """The tensors of a nested state with the path of each."""
    if isinstance(state, Tensor):
        return [(name, state)]
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    return [found for key, part in items for found in flat_state(part, f"{name}.{key}")]


class AttentionNet(nn.Module):
    """Each number is a token."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.token, self.attention = nn.Linear(1, 4), nn.MultiheadAttention(4, 1, batch_first=True)
        self.out_features = 4

    def forward(self, obs: Tensor) -> Tensor:
        tokens = self.token(obs[..., None])
        attended: Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return attended.mean(1)


def test_attention_has_the_second_derivative_that_trpo_needs(tmp_path: Path) -> None:
    managed("trpo", tmp_path, encoder=AttentionNet).learn(32, show=False)


class LazyNet(nn.Module):
    """Its layer takes its shape from the first batch, which `called` shows to it in the constructor."""

    def __init__(self, space: Any, called: bool = False) -> None:
        super().__init__()
        self.layer, self.out_features = nn.LazyLinear(6), 6
        if called:
            self.layer(torch.zeros(1, *space.shape))

    def forward(self, obs: Tensor) -> Tensor:
        return torch.relu(self.layer(obs))


@pytest.mark.parametrize("called", [False, True])
def test_lazy_layers_train_and_resume_exactly(called: bool, tmp_path: Path) -> None:
    settings = {"encoder": LazyNet, "encoder_kwargs": {"called": called}, "checkpoint_every": 16, "run_name": "run"}
    configs = [tiny_config("ppo", tmp_path / name, **settings) for name in "ab"]
    whole = train(configs[0], show=False)
    half = train(configs[1], show=False, callback=stop_at(32))
    assert_same_run(whole.run_dir, resume(half.run_dir, show=False, encoder=LazyNet).run_dir)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_compiled_step_learns_the_same_with_an_own_encoder(algo: str, tmp_path: Path) -> None:
    plain, compiled = (
        train_tiny(algo, tmp_path / choice, compile=choice, encoder=VectorNet).agent.learner for choice in ("off", "on")
    )
    assert any(isinstance(part, CompiledStep) and part.was_used for part in vars(compiled).values())
    for one, two in zip(plain.model.parameters(), compiled.model.parameters(), strict=True):
        np.testing.assert_allclose(one.detach(), two.detach(), rtol=1e-3, atol=1e-4)


def test_a_dict_with_an_image_reaches_the_encoder_in_its_own_form(tmp_path: Path) -> None:
    agent = managed("sac", tmp_path, lit, encoder=CameraEncoder, encoder_kwargs={"width": 7}).learn(48, show=False)
    assert agent.config.model.encoder == "mixed_envs:CameraEncoder"
    assert agent.config.model.encoder_kwargs == {"width": 7}


class JoinedNet(nn.Module):
    """Takes every part of a Dict, by the shapes that its space says."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.space, self.out_features = space, 4
        self.layer = nn.Linear(sum(int(np.prod(part.shape)) for part in space.values()), 4)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        features: Tensor = self.layer(torch.cat(list(observations.values()), 1))
        return features


@pytest.mark.parametrize(("masks", "key"), [("key", "seen"), ("method", "observation")])
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_space_and_observations_of_an_encoder_have_no_action_mask(
    algo: str, masks: str, key: str, tmp_path: Path
) -> None:
    agent = managed(algo, tmp_path, lambda: Strict(masks=masks), encoder=JoinedNet).learn(48, show=False)
    assert list(agent.agent.learner.model.encoder.network.space) == [key]


def test_acting_says_its_price() -> None:
    agent = managed("ppo", "unused", encoder=VectorNet)
    text = price_of(agent.agent.learner.model, agent.agent.spaces, 2)
    assert text is not None and text.startswith("VectorNet has no NumPy form, so acting calls it through torch: ")
    assert text.endswith(" ms for each step of 2 environments")
    assert price_of(managed("ppo", "unused").agent.learner.model, agent.agent.spaces, 2) is None


def test_a_run_says_the_price_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tiny_config("ppo", tmp_path, encoder=VectorNet, num_envs=2))
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("VectorNet has no NumPy form") == 1 and "ms for each step of 2 environments" in told


def stored_run(tmp_path: Path) -> Path:
    run = train(tiny_config("ppo", tmp_path, encoder=NAME), show=False).run_dir
    own_classes._given.clear()
    own_classes._allowed.clear()
    return run


def test_a_config_that_is_trained_with_is_obeyed_and_its_checkpoint_is_not(tmp_path: Path) -> None:
    run = stored_run(tmp_path)
    text = f"its encoder {NAME} is code of the module mixed_envs, which is not trusted; if you know it, pass "
    for load in (
        lambda: rl_training.load(run),
        lambda: resume(run, total_timesteps=128, show=False),
        lambda: evaluate_checkpoint(run),
        lambda: predict(run, [0.0] * 4),
    ):
        with pytest.raises(
            CheckpointError, match=f"{text}encoder=VectorNet or trust='mixed_envs' in Python, or --trust"
        ):
            load()


@pytest.mark.parametrize(
    "options", [{"encoder": VectorNet}, {"trust": "mixed_envs"}, {"trust": ["other", "mixed_envs"]}]
)
def test_a_class_that_is_handed_over_or_trusted_is_used(tmp_path: Path, options: dict[str, Any]) -> None:
    run = stored_run(tmp_path)
    assert rl_training.load(run, **options).predict([0.0] * 4)[0] in (0, 1)
    own_classes._given.clear()
    own_classes._trusted.clear()
    assert len(evaluate_checkpoint(run, episodes=1, **options).returns) == 1


def test_a_class_of_a_script_is_asked_for_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line cannot import a script or notebook, so its option would not help."""
    monkeypatch.setattr(VectorNet, "__module__", "__main__")
    agent = managed("ppo", tmp_path, encoder=VectorNet).save(tmp_path / "agent")
    own_classes._given.clear()
    own_classes._allowed.clear()
    with pytest.raises(CheckpointError, match=r"is code of a script or notebook, .* pass encoder=VectorNet") as caught:
        rl_training.load(agent)
    assert "--trust" not in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises((CheckpointError, ConfigError), match=r"script or notebook, .* pass encoder=VectorNet"):
        rl_training.load(agent, trust="__main__")  # its class is not in this program
    own_classes._trusted.clear()
    assert rl_training.load(agent, encoder=VectorNet).predict([0.0] * 4)[0] in (0, 1)


@pytest.mark.parametrize("given", [VectorNet(Box(0, 1, (4,))), lambda space: VectorNet(space)])
def test_what_is_not_a_class_is_refused_with_the_way_out(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^model.encoder: .* expected the class itself, .* model.encoder_kwargs$"):
        managed("ppo", "unused", encoder=given)


@pytest.mark.parametrize("given", [NAME, VectorNet(Box(0, 1, (4,))), lambda space: VectorNet(space)])
def test_what_is_passed_to_load_and_is_no_class_is_one_line(tmp_path: Path, given: Any) -> None:
    run = stored_run(tmp_path)
    text = r"^encoder: .* is not a class; pass the class itself, encoder=VectorNet, or trust='mixed_envs'$"
    for load in (rl_training.load, resume, evaluate_checkpoint):
        with pytest.raises(ConfigError, match=text):
            load(run, encoder=given)
    assert rl_training.load(run, trust="mixed_envs").predict([0.0] * 4)[0] in (0, 1)


class Bad(nn.Module):
    """Refused for the reason that `kind` names."""

    def __init__(self, observation_space: Any, kind: str = "none") -> None:
        super().__init__()
        if kind == "raises":
            raise RuntimeError("no such layer")
        self.kind, self.layer = kind, nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3, affine=False)
        self.register_buffer("settled", torch.ones(1))
        if kind == "unused":
            self.head = nn.Linear(3, 1)
        if kind == "weights":
            self.layer.double()
        if kind != "none":
            self.out_features: Any = {"text": "3", "zero": 0, "float": 3.0}.get(kind, 3)

    def forward(self, observations: Tensor) -> Any:
        if self.kind == "in place":
            observations.mul_(0.5)
        if self.kind == "weights":
            return self.layer(observations.double()).float()
        outputs = self.layer(observations)
        if self.kind == "late buffer" and not hasattr(self, "grid"):
            self.register_buffer("grid", torch.zeros(3))
        if self.kind == "late layer" and not hasattr(self, "late"):
            self.late = nn.Linear(3, 3)
        if self.kind == "settled":
            self.settled.fill_(1.0)
        if self.kind == "dropout":
            return torch.dropout(outputs, 0.5, True)
        if self.kind == "batch norm":
            return self.norm(outputs)
        if self.kind == "fails":
            raise ValueError("cannot see")
        if self.kind == "squeezed":
            return outputs.squeeze(0)
        changed = {
            "detached": outputs.detach(),
            "wide": outputs.repeat(1, 2),
            "tuple": (outputs,),
            "double": outputs.double(),
            "not finite": outputs / observations.norm(dim=1, keepdim=True),
        }
        return changed.get(self.kind, outputs)


class NarrowNet(VectorNet):
    """Not the class that a checkpoint of `VectorNet` was trained with."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, width=5)


class BareNet(VectorNet):
    """Has no layer norm."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        del self.layers[1]


class WideNet(VectorNet):
    """Larger than all that a checkpoint holds."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, width=10_000)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Bad, "model.encoder: Bad has no out_features"),
        (
            NarrowNet,
            r"encoder.network.layers.0.weight is \(6, 4\) in the checkpoint and \(5, 4\) with NarrowNet, so that",
        ),
        (
            BareNet,
            r"encoder.network.layers.1.weight is \(6,\) in the checkpoint and missing with BareNet, so that is not",
        ),
        (WideNet, "or its encoder is not the class that the checkpoint was trained with$"),
    ],
)
def test_a_class_that_does_not_fit_is_one_line_and_forgotten(tmp_path: Path, given: Any, text: str) -> None:
    run = stored_run(tmp_path)
    for load in (rl_training.load, resume, evaluate_checkpoint):
        with pytest.raises(CheckpointError if load is not resume else (CheckpointError, ConfigError), match=text) as e:
            load(run, encoder=given)
        assert "\n" not in str(e.value) and "Error(s)" not in str(e.value)
        with pytest.raises(CheckpointError, match="is not trusted"):
            rl_training.load(run)
    assert rl_training.load(run, encoder=VectorNet).env_steps == 64
    with pytest.raises(CheckpointError, match=text):
        rl_training.load(run, encoder=given)
    assert rl_training.load(run).env_steps == 64, "the class that fitted is still known"


def test_a_script_is_not_offered_as_a_module_to_trust() -> None:
    with pytest.raises(
        ConfigError, match=r"^encoder: '__main__:Eye' is not a class; pass the class itself, encoder=Eye$"
    ):
        check_class("__main__:Eye", "__main__:Eye")


def test_the_trial_uses_observations_that_the_space_has() -> None:
    """Zeros would be a fault of the trial where the env sends none: the sum of a one-hot code is never zero."""
    space = Dict(
        {
            "box": Box(np.array([-1, 2], np.float32), np.array([1, 3], np.float32)),
            "pair": Tuple((Discrete(3, start=1), MultiDiscrete([2, 2]), MultiBinary(2))),
            "action_mask": MultiBinary(2),
        }
    )
    rows = quiet_rows(Spaces(space, Discrete(2)), 2)
    assert rows.tolist() == [[0, 2, 1, 0, 0, 1, 0, 1, 0, 0, 0]] * 2
    rows = quiet_rows(Spaces(Dict({"camera": Box(0, 255, (1, 8, 8), np.uint8), "x": Box(2, 3, (1,))}), Discrete(2)), 1)
    assert rows.dtype == np.uint8 and rows[0, :4].view(np.float32) == 2 and not rows[0, 4:].any()


def test_trust_covers_the_modules_inside_and_no_other_names() -> None:
    own_classes.trust("my_package")
    assert own_classes.is_allowed("my_package:A") and own_classes.is_allowed("my_package.nets.deep:A")
    assert not own_classes.is_allowed("my_package_evil:A") and not own_classes.is_allowed("my:A")
    with pytest.raises(ConfigError, match="trust: a b is not the name of a module"):
        own_classes.trust("a b")


def test_the_command_line_has_the_same_lock(tmp_path: Path) -> None:
    run = stored_run(tmp_path)
    for command in (["predict", str(run), "--obs", "[0,0,0,0]"], ["eval", str(run), "--episodes", "1"]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code != 0 and isinstance(result.exception, CheckpointError)
        assert CliRunner().invoke(app, [*command, "--trust", "mixed_envs"]).exit_code == 0
        own_classes._trusted.clear()


def test_the_commands_that_a_run_prints_at_its_end_work_as_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    show_result(train(tiny_config("ppo", tmp_path, encoder=NAME), show=False))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "--trust mixed_envs" in line]
    starts = [next(i for i, word in enumerate(words) if word in ("eval", "play", "resume")) for words in lines]
    commands = {words[0]: words[start:] for words, start in zip(lines, starts, strict=True)}
    assert list(commands) == ["evaluate", "watch", "train"]
    for words in commands.values():
        own_classes._given.clear()
        own_classes._allowed.clear()
        own_classes._trusted.clear()
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output


def test_a_stranger_s_checkpoint_imports_nothing(tmp_path: Path) -> None:
    """A config that names a module with effects is refused before the module is looked for."""
    (tmp_path / "evil_nets.py").write_text("open('owned', 'w').close()\nclass Net: ...\n")
    agent = managed("ppo", tmp_path).save(tmp_path / "agent")
    config = json.loads((agent / "config.json").read_text())
    config["model"]["encoder"] = "evil_nets:Net"
    (agent / "config.json").write_text(json.dumps(config))
    sign_again(agent)
    program = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import rl_training
from rl_training.errors import CheckpointError
from rl_training.runtime.workflows import predict
calls = rl_training.load, rl_training.PPO.load, rl_training.evaluate_checkpoint, lambda path: predict(path, [0.0] * 4)
for call in calls:
    try:
        call({str(agent)!r})
    except CheckpointError as error:
        assert "evil_nets, which is not trusted" in str(error) and "\\n" not in str(error)
    else:
        raise SystemExit("loaded")
assert "evil_nets" not in sys.modules
"""
    finished = run_python(program)
    assert finished.returncode == 0, finished.stderr
    assert not (tmp_path / "owned").exists() and not Path("owned").exists()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("none", "Bad has no out_features; set self.out_features to the number of its outputs"),
        ("text", "out_features of Bad is '3'; it must be the number of its outputs, an int >= 1"),
        ("zero", "out_features of Bad is 0; it must be"),
        ("float", "out_features of Bad is 3.0; it must be the number of its outputs, an int >= 1"),
        ("raises", r"Bad\(observation_space, \*\*encoder_kwargs\) failed: .*no such layer"),
        ("fails", "Bad failed on a batch of 2: .*cannot see"),
        ("wide", r"Bad returned \(2, 6\) for 2 observations, expected \(2, 3\), because its out_features is 3"),
        ("tuple", r"Bad returned tuple for 2 observations, expected \(2, 3\)"),
        ("double", "Bad returned torch.float64, expected torch.float32"),
        ("dropout", "Bad draws random numbers in forward, which a resumed run could not repeat"),
        ("batch norm", "Bad changes its buffers in forward.* use LayerNorm in place of BatchNorm"),
        ("settled", "Bad changes its buffers in forward"),
        ("late buffer", r"Bad creates the buffer grid in forward; make it in __init__"),
        ("late layer", r"Bad creates the parameter late.weight in forward; make it in __init__"),
        ("in place", "Bad changes the observations that it is given, .*; replace operations in place"),
        ("squeezed", r"Bad returned \(3,\) for 1 observation, expected \(1, 3\)"),
        ("unused", r"Bad has the parameter head.weight, but its output has no gradient in it; remove it, or freeze it"),
        ("detached", "Bad has the parameter layer.weight, but its output has no gradient in it"),
        ("weights", r"Bad has the parameter layer.weight of torch.float64, expected torch.float32; convert it"),
    ],
)
def test_an_encoder_that_cannot_work_is_one_line_before_training(kind: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^model.encoder: {text}") as caught:
        managed("ppo", "unused", encoder=Bad, encoder_kwargs={"kind": kind})
    assert "\n" not in str(caught.value)


def test_an_encoder_that_fails_on_zeros_only_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The env may never send zeros, and an agent that has learned so must load."""
    agent = managed("ppo", tmp_path, encoder=Bad, encoder_kwargs={"kind": "not finite"})
    agent.learn(64, show=True)
    assert "Bad returns numbers that are not finite for observations of zeros" in capsys.readouterr().err
    loaded = rl_training.load(agent.save(tmp_path / "agent"), encoder=Bad)
    assert loaded.env_steps == agent.env_steps


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"encoder": "natur"},
            "model.encoder: 'natur' is not valid, expected one of auto, mlp, nature, impala, or module",
        ),
        ({"encoder": "no_such_module:Net"}, "model.encoder: no_such_module:Net cannot be imported"),
        ({"encoder": "mixed_envs:NoNet"}, "model.encoder: mixed_envs:NoNet cannot be imported"),
        ({"encoder": "mixed_envs:lit"}, "model.encoder: mixed_envs:lit is not a class"),
        ({"encoder": "pathlib:Path"}, "model.encoder: Path is not a subclass of torch.nn.Module"),
        ({"encoder": NAME, "encoder_size": 3}, "model.encoder_size: an encoder of your own says its size with"),
        ({"encoder_kwargs": {"width": 3}}, "model.encoder_kwargs: auto takes none"),
    ],
)
def test_settings_that_name_no_encoder_are_one_line(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        managed("ppo", "unused", **settings)


def test_two_threads_may_hand_over_classes_of_one_name() -> None:
    first, second = own_classes.handed_over("any:Net", VectorNet), own_classes.handed_over("any:Net", CameraEncoder)
    first.__enter__()
    second.__enter__()
    failure = ValueError("it does not fit")
    for each, left in ((first, CameraEncoder), (second, VectorNet)):
        with pytest.raises(ValueError, match="does not fit"):
            each.gen.throw(failure)  # type: ignore[attr-defined]
        assert own_classes.given_class("any:Net") is left
    own_classes._given.pop("any:Net")


def test_a_handed_class_must_belong_to_an_own_encoder(tmp_path: Path) -> None:
    path = managed("ppo", tmp_path).save(tmp_path / "agent")
    with pytest.raises(ConfigError, match=r"encoder: .* has the encoder auto, leave it out"):
        rl_training.load(path, encoder=VectorNet)


def test_the_name_of_a_class_survives_the_config() -> None:
    config = load_config({"algo": "ppo", "env_id": "CartPole-v1"}, {"encoder": VectorNet, "encoder_kwargs.width": 3})
    assert config.model.encoder == NAME and load_config(config) == config
    assert "torch" in sys.modules
