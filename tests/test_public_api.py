"""The managed API, for every registered algorithm: build, learn, predict, evaluate, save, load."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rl_training
from rl_training.api.algorithms import managed_class
from rl_training.config.algorithm_table import EVERY_ACTION
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.experiment.registry import ALGORITHMS, get_spec
from rl_training.runtime.loops import Progress
from rl_training.storage.state_tree import state_hash
from tiny_runs import EVERY_ALGORITHM, STEPS, Blocks, class_name, env_of, managed, some_observations

ANY_ACTION = [name for name, row in ALGORITHMS.items() if row.actions == EVERY_ACTION]
VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
OBSERVATIONS = {
    "box": VECTOR,
    "discrete": spaces.Discrete(4, start=1),
    "tuple": spaces.Tuple((spaces.Discrete(3), VECTOR)),
    "nested": spaces.Dict(
        {"place": VECTOR, "inner": spaces.Dict({"room": spaces.Discrete(2), "doors": spaces.MultiBinary(2)})}
    ),
}
ACTIONS = {
    "discrete": spaces.Discrete(3, start=-1),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 5.0], np.float32)),
}


def learner_hash(algorithm: Any) -> str:
    return state_hash(algorithm.agent.learner.state_dict())


def weights(algorithm: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in algorithm.agent.learner.model.parameters()])


def stop_after(rounds: int) -> Iterator[bool]:
    yield from [True] * (rounds - 1)
    yield False


@EVERY_ALGORITHM
def test_learn_returns_itself_and_tells_where_the_run_is(algorithm: str, tmp_path: Path) -> None:
    run = managed(algorithm, tmp_path)
    assert run.run_dir is None and run.result is None and run.env_steps == 0
    untrained = learner_hash(run)
    assert run.learn(show=False) is run
    assert learner_hash(run) != untrained
    assert run.run_dir.parent == tmp_path and (run.run_dir / "config.yaml").is_file()
    assert run.env_steps == run.result.env_steps and STEPS * 0.6 < run.env_steps <= STEPS
    assert run.config.algo == algorithm and run.config.env_id == env_of(algorithm)
    assert class_name(algorithm) in repr(run) and str(run.env_steps) in repr(run)


@EVERY_ALGORITHM
def test_saved_agent_acts_bit_for_bit_like_the_one_in_memory(algorithm: str, tmp_path: Path) -> None:
    run = managed(algorithm, tmp_path, normalize_observations=True).learn(show=False)
    path = run.save(tmp_path / "agent")
    assert sorted(file.name for file in path.iterdir()) == [
        "config.json", "manifest.json", "state.json", "tensors.safetensors",
    ]  # fmt: skip
    observations = some_observations(algorithm)
    expected = {flag: run.predict(observations, deterministic=flag)[0] for flag in (True, False)}
    for loaded in (type(run).load(path), rl_training.load(path)):
        assert type(loaded) is type(run)
        assert loaded.config == run.config and loaded.env_steps == run.env_steps
        assert loaded.agent.learner.env_steps == run.agent.learner.env_steps == run.env_steps
        for deterministic, actions in expected.items():
            np.testing.assert_array_equal(loaded.predict(observations, deterministic=deterministic)[0], actions)


@EVERY_ALGORITHM
def test_predict_one_and_many(algorithm: str, tmp_path: Path) -> None:
    run = managed(algorithm, tmp_path)
    env = gym.make(env_of(algorithm))
    observations = some_observations(algorithm)
    batch, _ = run.predict(observations)
    assert len(batch) == len(observations)
    for observation, expected in zip(observations, batch, strict=True):
        action, state = run.predict(observation)
        assert env.action_space.contains(action) and (state is None) == (algorithm not in ("recurrent_ppo", "r2d2"))
        np.testing.assert_allclose(action, expected, atol=1e-6)


@EVERY_ALGORITHM
def test_evaluate_repeats_itself_and_changes_nothing(algorithm: str, tmp_path: Path) -> None:
    run = managed(algorithm, tmp_path).learn(show=False)
    before = learner_hash(run)
    first, second = run.evaluate(2), run.evaluate(2)
    assert first == second and len(first.returns) == 2
    # Alone or side by side, the networks round differently in the last place.
    assert run.evaluate(1, seed=10_001).returns[0] == pytest.approx(first.returns[1], rel=1e-3)
    assert learner_hash(run) == before
    assert run.evaluate(1).summary() == run.result.evaluation.summary()
    with pytest.raises(ConfigError, match="episodes"):
        run.evaluate(0)


@EVERY_ALGORITHM
def test_callback_sees_progress_and_stops_the_run_which_learn_then_completes(algorithm: str, tmp_path: Path) -> None:
    answers = stop_after(3)
    seen: list[Progress] = []

    def callback(progress: Progress) -> bool:
        seen.append(progress)
        return next(answers)

    run = managed(algorithm, tmp_path).learn(callback=callback, show=False)
    assert len(seen) == 3 and run.env_steps == seen[-1].env_steps < STEPS * 0.9
    assert run.result.interrupted and run.result.evaluation is None
    first_run = run.run_dir
    run.learn(show=False)
    assert run.run_dir == first_run and list(tmp_path.iterdir()) == [first_run]
    assert not run.result.interrupted and run.env_steps > STEPS * 0.9
    finished = learner_hash(run)
    assert learner_hash(run.learn(show=False)) == finished, "a run that is complete has nothing to learn"


def test_a_callback_that_asks_the_object_gets_the_agent_of_the_run(tmp_path: Path) -> None:
    run = managed("ppo", tmp_path)
    untrained, seen = learner_hash(run), []

    def callback(progress: Progress) -> bool:
        seen.append(learner_hash(run))
        return len(seen) < 2

    run.learn(callback=callback, show=False)
    assert len({untrained, *seen}) == 3 and learner_hash(run) == seen[-1]
    resumed = rl_training.load(run.run_dir)
    resumed.learn(callback=lambda progress: seen.append(learner_hash(resumed)), show=False)
    assert len(set(seen)) == len(seen) > 3 and learner_hash(resumed) == seen[-1]


def test_after_a_learn_that_failed_the_object_has_the_agent_it_started_with(tmp_path: Path) -> None:
    run = managed("ppo", tmp_path)
    untrained = learner_hash(run)

    def callback(progress: Progress) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        run.learn(callback=callback, show=False)
    assert learner_hash(run) == untrained


@EVERY_ALGORITHM
def test_learning_again_extends_the_run_like_a_longer_resume(algorithm: str, tmp_path: Path) -> None:
    run = managed(algorithm, tmp_path / "a", run_name="again").learn(48, show=False)
    updates = run.agent.learner.updates
    run.learn(32, show=False)
    assert run.config.total_timesteps == 80 and 48 < run.env_steps <= 80
    assert run.agent.learner.updates > updates
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["again"]

    stepwise = managed(algorithm, tmp_path / "b").learn(48, show=False)
    loaded = type(run).load(stepwise.run_dir).learn(32, show=False)
    assert learner_hash(loaded) == learner_hash(run), "a loaded run goes on exactly"
    assert loaded.run_dir == stepwise.run_dir


@EVERY_ALGORITHM
def test_learning_from_a_saved_agent_is_a_new_run_from_its_state(algorithm: str, tmp_path: Path) -> None:
    run = managed(algorithm, tmp_path, run_name="first").learn(show=False)
    loaded = rl_training.load(run.save(tmp_path / "agent"))
    parts = run.agent.learner.state_dict()["parts"]
    start: list[int] = []

    def callback(progress: Progress) -> bool:
        start.append(progress.updates)
        return True

    updates = run.agent.learner.updates
    loaded.learn(show=False, callback=callback)
    assert loaded.run_dir != run.run_dir and loaded.run_dir.name == "first-2"
    assert 0 <= start[0] - updates <= 2 and start[-1] > updates
    assert loaded.agent.learner.state_dict()["parts"].keys() == parts.keys()
    assert learner_hash(loaded) != learner_hash(run)


@EVERY_ALGORITHM
def test_env_can_be_a_callable(algorithm: str, tmp_path: Path) -> None:
    made: list[gym.Env[Any, Any]] = []

    def make_it(**keywords: Any) -> gym.Env[Any, Any]:
        made.append(gym.make(env_of(algorithm), **keywords))
        return made[-1]

    run = managed(algorithm, tmp_path, make_it, num_envs=2, env_kwargs={"max_episode_steps": 7}).learn(show=False)
    assert run.config.env_id == "callable:make_it" and "make_it" in run.run_dir.name
    assert run.result.evaluation.lengths[0] <= 7, "the keywords hold for the evaluation too"
    assert run.evaluate(1) == run.result.evaluation

    loaded = type(run).load(run.run_dir)
    loaded.predict(some_observations(algorithm))
    for action in (loaded.evaluate, loaded.learn):
        with pytest.raises(EnvError, match=r"make_it.*pass env="):
            action()
    loaded = type(run).load(run.run_dir, make_it)
    assert loaded.evaluate(1) == run.result.evaluation
    assert loaded.learn(16, show=False).env_steps > run.env_steps


@EVERY_ALGORITHM
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP], ids=lambda mode: mode.name)
def test_env_can_be_a_vector_env_which_stays_open(algorithm: str, mode: AutoresetMode, tmp_path: Path) -> None:
    envs = SyncVectorEnv([partial(gym.make, env_of(algorithm))] * 3, autoreset_mode=mode)
    run = managed(algorithm, tmp_path, envs, eval_env=env_of(algorithm)).learn(show=False)
    assert run.config.num_envs == 3 and run.config.env_id == "callable:SyncVectorEnv"
    assert run.result.evaluation is not None and run.evaluate(1) == run.result.evaluation
    envs.reset()
    assert run.learn(24, show=False).env_steps > STEPS * 0.9
    assert not envs.closed

    blind = managed(algorithm, tmp_path, envs).learn(show=False)
    assert blind.result.evaluation is None
    with pytest.raises(EnvError, match="pass env=, or eval_env= to evaluate"):
        blind.evaluate(1)
    envs.close()


def test_vector_env_and_num_envs_must_agree(tmp_path: Path) -> None:
    envs = SyncVectorEnv([partial(gym.make, "CartPole-v1")] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(EnvError, match=r"num_envs is 4 .* has 2 envs"):
        managed("ppo", tmp_path, envs, num_envs=4).learn(show=False)


@pytest.mark.parametrize("algorithm", ANY_ACTION)
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("observations", OBSERVATIONS)
def test_on_policy_algorithms_take_every_space(algorithm: str, observations: str, actions: str, tmp_path: Path) -> None:
    # Actions outside their space fail inside the env, observations that are encoded wrongly inside the model.
    make = partial(Blocks, OBSERVATIONS[observations], ACTIONS[actions])
    run = managed(algorithm, tmp_path, make, num_envs=2).learn(show=False)
    assert run.result.evaluation.returns == (5.0,)
    loaded = type(run).load(run.save(tmp_path / "agent"), make)
    assert loaded.evaluate(2).lengths == (5, 5)
    env = make()
    observation, _ = env.reset(seed=1)
    expected, _ = run.predict(observation)
    action, _ = loaded.predict(observation)
    assert ACTIONS[actions].contains(action)
    np.testing.assert_array_equal(action, expected)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in ANY_ACTION])
@pytest.mark.parametrize("observations", ["discrete", "nested"])
def test_replay_algorithms_take_structured_observations(algorithm: str, observations: str, tmp_path: Path) -> None:
    actions = ACTIONS["discrete" if env_of(algorithm) == "CartPole-v1" else "box"]
    run = managed(algorithm, tmp_path, partial(Blocks, OBSERVATIONS[observations], actions), num_envs=2)
    assert run.learn(show=False).evaluate(1).returns == (5.0,)


@pytest.mark.parametrize("algorithm", ["dqn", "ddpg", "td3", "sac", "naf", "mpo"])
def test_actions_that_do_not_fit_are_refused_at_once_and_name_what_fits(algorithm: str, tmp_path: Path) -> None:
    env, kind = ("Pendulum-v1", "box") if algorithm == "dqn" else ("CartPole-v1", "discrete")
    others = ", ".join(name for name in ALGORITHMS if kind in get_spec(name).actions)
    assert "ppo" in others and algorithm not in others
    with pytest.raises(EnvError, match=f"{algorithm} takes .* {env} has .*: use {others}"):
        managed(algorithm, tmp_path / "runs", env)
    assert not (tmp_path / "runs").exists()


def test_settings_go_by_bare_name_and_win_over_the_preset() -> None:
    ppo = rl_training.PPO("Acrobot-v1", preset="ppo/cartpole", gamma=0.9, hidden_sizes=[4], seed=7)
    assert ppo.config.env_id == "Acrobot-v1" and ppo.config.seed == 7
    assert ppo.config.algo_kwargs.gamma == 0.9 and ppo.config.model.hidden_sizes == (4,)
    packaged = rl_training.load_config("ppo/cartpole")
    assert ppo.config.algo_kwargs.gae_lambda == packaged.algo_kwargs.gae_lambda
    assert rl_training.PPO(preset=packaged).config == packaged == rl_training.PPO(preset="ppo/cartpole").config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": "CartPole-v1", "gama": 0.9}, r"gama: unknown key, did you mean algo_kwargs\.gamma"),
        ({"env": "CartPole-v1", "gamma": 1.5}, r"algo_kwargs\.gamma: 1\.5 is not valid"),
        ({"env": "CartPole-v1", "algo": "dqn"}, "algo: not a setting here, PPO is ppo"),
        ({"env": "CartPole-v1", "env_id": "Acrobot-v1"}, "env_id: not a setting here"),
        ({"preset": "dqn/cartpole"}, "preset: dqn/cartpole is a preset of dqn; use DQN"),
        ({"preset": "ppo/cartpol"}, "did you mean ppo/cartpole"),
        ({}, r"env: missing; pass one, for example PPO\('CartPole-v1'\)"),
    ],
)
def test_bad_settings_are_refused_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        rl_training.PPO(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPol-v1", "did you mean 'CartPole-v1'"),
        ("callable:make_it", "Python object make_it, .*pass env="),
        (lambda: "no env", "returned str, not a gymnasium.Env"),
    ],
)
def test_env_that_cannot_be_made_is_refused_by_the_constructor(env: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        rl_training.PPO(env)


def test_an_environment_object_is_refused_with_what_to_pass_instead() -> None:
    env = gym.make("CartPole-v1")
    way_out = "pass its id ('CartPole-v1') or a function that makes it (lambda: gym.make('CartPole-v1'))"
    with pytest.raises(EnvError) as caught:
        rl_training.PPO(env)  # type: ignore[arg-type]
    assert str(caught.value) == f"env: got an environment object; {way_out}"
    with pytest.raises(EnvError, match="pass its class CartPoleEnv, or a function that makes it"):
        rl_training.PPO(type(env.unwrapped)())  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [0, -5])
def test_learn_refuses_a_budget_that_is_none(steps: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="total_timesteps"):
        managed("ppo", tmp_path).learn(steps)


def test_load_with_the_wrong_class_names_the_right_one(tmp_path: Path) -> None:
    path = managed("a2c", tmp_path).save(tmp_path / "agent")
    with pytest.raises(CheckpointError, match=r"a2c, not ppo.*A2C\.load"):
        rl_training.PPO.load(path)
    assert isinstance(rl_training.load(path), rl_training.A2C)


def test_load_refuses_what_is_no_checkpoint(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(CheckpointError, match=str(path)):
            rl_training.load(path)


def test_load_refuses_an_env_with_other_spaces(tmp_path: Path) -> None:
    path = managed("ppo", tmp_path).save(tmp_path / "agent")
    with pytest.raises(EnvError, match="Acrobot-v1 has other spaces"):
        rl_training.PPO.load(path, "Acrobot-v1")
    assert rl_training.PPO.load(path, "CartPole-v0").config.env_id == "CartPole-v0"


def test_load_finds_runs_by_name_latest_and_best(tmp_path: Path) -> None:
    run = managed("ppo", tmp_path, run_name="mine", eval_every=16).learn(show=False)
    for name in ("mine", "latest", "mine/latest"):
        assert rl_training.load(name, output_dir=tmp_path).run_dir == run.run_dir
    best = rl_training.load("mine/best", output_dir=tmp_path)
    assert best.run_dir is None and best.env_steps <= run.env_steps


def test_loading_an_earlier_checkpoint_goes_on_from_there(tmp_path: Path) -> None:
    run = managed("a2c", tmp_path, checkpoint_every=16, keep_checkpoints=5).learn(show=False)
    checkpoints = sorted((run.run_dir / "checkpoints").glob("step-*"))
    final = learner_hash(run)
    loaded = rl_training.load(checkpoints[1])
    assert loaded.env_steps < run.env_steps and learner_hash(loaded) != final
    seen: list[int] = []
    loaded.learn(show=False, callback=lambda progress: seen.append(progress.env_steps))
    assert seen[0] <= loaded.env_steps - 32, "it did start from there"
    assert learner_hash(loaded) == final


def test_save_replaces_a_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    run = managed("ppo", tmp_path)
    path = run.save(tmp_path / "deep" / "agent")
    before = learner_hash(rl_training.load(path))
    run.learn(show=False)
    assert run.save(path) == path
    assert learner_hash(rl_training.load(path)) == learner_hash(run) != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match="not an rl_training checkpoint"):
        run.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_untrained_network_is_the_one_that_training_starts_from(tmp_path: Path) -> None:
    start = weights(managed("ppo", tmp_path, seed=5))
    still = managed("ppo", tmp_path, seed=5, learning_rate=0.0).learn(show=False)
    assert torch.equal(weights(still), start)
    assert not torch.equal(weights(managed("ppo", tmp_path, seed=6)), start)


def test_small_portions_add_up(tmp_path: Path) -> None:
    # A portion too small for a rollout is not lost: it waits for the next one.
    run = managed("ppo", tmp_path, num_steps=64)
    steps = [run.learn(10, show=False).env_steps for _ in range(7)]
    assert steps[0] == 10 and steps[-1] > 40
    assert run.config.total_timesteps == 70


def test_loaded_run_counts_more_steps_from_where_it_ended(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_steps": 64, "vector_backend": "sync"}
    finished = managed("ppo", tmp_path, **settings).learn(70, show=False)
    assert finished.env_steps == 64, "six steps are too few for another rollout"
    assert rl_training.load(finished.run_dir).learn(60, show=False).config.total_timesteps == 130
    stopped = managed("ppo", tmp_path, **settings).learn(200, callback=lambda progress: False, show=False)
    assert rl_training.load(stopped.run_dir).learn(60, show=False).config.total_timesteps == 64 + 60


def test_every_class_is_found_by_the_name_in_a_checkpoint() -> None:
    for algorithm in ALGORITHMS:
        assert managed_class(algorithm) is getattr(rl_training, class_name(algorithm))
    with pytest.raises(ConfigError, match="unknown algorithm"):
        managed_class("nonsense")


def test_record_writes_a_moving_picture(tmp_path: Path) -> None:
    recording = managed("ppo", tmp_path).record(tmp_path / "agent.gif")
    assert recording.path.stat().st_size > 1000 and len(recording.returns) == 1
