"""Runs whose envs fail: what is learned from, what is counted, what is left to look at, and how it is seen again."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from cli_helpers import call
from collector_helpers import collector_of
from endless_env import EndlessEnv
from faulty_envs import FaultyEnv
from rl_training.algorithms.common.on_policy import policy_batch
from rl_training.api import DQN, PPO
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.factory import make_vector_env
from rl_training.envs.failures import HISTORY_BYTES, ActionHistory, EnvFailed
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError, EnvError
from rl_training.experiment.registry import get_spec
from rl_training.playback.crash_replay import reproduce
from rl_training.runtime.collection.collector import Collector
from rl_training.runtime.collection.steps import Episode
from rl_training.runtime.setup.loop_setup import build_loop
from rl_training.runtime.setup.run_envs import training_envs
from rl_training.runtime.workflows import train
from rl_training.storage.state_tree import state_hash
from rl_training.telemetry.recorder import read_metrics
from run_cases import CASES, metric_lines, saved_state
from tiny_runs import EVERY_ALGORITHM, tiny_config
from waiting import DEADLINE_SECONDS

TINY: dict[str, Any] = {"hidden_sizes": (8,), "eval_episodes": 1}
SUPPORT = Path(__file__).resolve().parents[1] / "support"


def broken_once(tmp_path: Path, how: str = "exit", **kwargs: Any) -> dict[str, Any]:
    (tmp_path / "times").write_bytes(b"x")
    return {"how": how, "times": str(tmp_path / "times"), **kwargs}


def collector_on(envs: Any) -> Collector:
    """With envs whose seeds are known: 20 and 21, which is the one that fails."""
    collector, _ = collector_of(envs)
    collector.obs = collector._encode(envs.reset(seed=20)[0])
    return collector


def test_the_step_that_broke_is_no_transition_and_what_came_before_ends_truncated_where_it_was_seen(
    tmp_path: Path,
) -> None:
    envs = make_vector_env(FaultyEnv, 2, env_kwargs=broken_once(tmp_path), backend="async")
    collector = collector_on(envs)
    rollout, episodes = collector.collect(7)
    # Env 1 fails in its fourth step, row 3; row 2 is its last good one and ends at what row 3 was decided on.
    assert rollout.valid[:, 1].tolist() == [True] * 3 + [False] + [True] * 3
    assert rollout.valid[:, 0].all() and not rollout.terminated[:, 1].any()
    assert rollout.truncated[:, 1].tolist() == [False, False, True, False, False, False, False]
    assert list(zip(rollout.final_steps, rollout.final_envs, strict=True)) == [(2, 1)]
    np.testing.assert_array_equal(rollout.final_obs, rollout.obs[3, 1:])
    assert rollout.obs[:, 1, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert rollout.episode_starts[:, 1].tolist() == [True, False, False, False, True, False, False]
    assert rollout.rewards[3, 1] == 0
    assert [episode.length for episode in episodes] == [6]  # of env 0; the broken one is no episode that was finished
    assert collector.env_step == 13
    # Env 1 is three steps into its new episode: the three that follow end it, with nothing of the broken one in it.
    assert collector.collect(3)[1] == [Episode(1.0 + 2 + 3 + 4 + 5 + 6, 6)]
    assert [failure.env_index for failure in collector.failures] == [1]
    envs.close()


class LinearValue:
    """V(s) = 10 * s[0], for tracing what is bootstrapped from where."""

    def value_numpy(self, obs: np.ndarray) -> np.ndarray:
        return 10.0 * obs[:, 0]

    def parameters(self) -> Any:
        return iter([torch.zeros(1)])


def test_gae_neither_bootstraps_nor_sums_across_a_break(tmp_path: Path) -> None:
    envs = make_vector_env(FaultyEnv, 2, env_kwargs=broken_once(tmp_path, length=100), backend="async")
    collector = collector_on(envs)
    rollout, _ = collector.collect(6)
    gamma, trace = 0.5, 0.5
    batch = policy_batch(rollout, LinearValue(), gamma=gamma, gae_lambda=trace)  # type: ignore[arg-type]
    # By hand. Rewards are 1, 2, 3; V is 0, 10, 20, and 30 at the last observation that was seen.
    deltas = [1 + gamma * 10 - 0, 2 + gamma * 20 - 10, 3 + gamma * 30 - 20]
    third = deltas[2]
    second = deltas[1] + gamma * trace * third
    first = deltas[0] + gamma * trace * second
    fifth_and_sixth = [1 + gamma * 10 - 0 + gamma * trace * (2 + gamma * 20 - 10), 2 + gamma * 20 - 10]
    rows = [advantage for advantage, env in zip(batch.advantages.tolist(), _envs_of(rollout), strict=True) if env == 1]
    np.testing.assert_allclose(rows, [first, second, third, *fifth_and_sixth], rtol=1e-6)
    envs.close()


def _envs_of(rollout: Any) -> list[int]:
    return [int(env) for step, env in np.argwhere(rollout.valid)]


def test_a_break_on_the_first_row_of_a_rollout_or_an_episode_ends_nothing_twice(tmp_path: Path) -> None:
    envs = make_vector_env(FaultyEnv, 2, env_kwargs=broken_once(tmp_path, fail_at=1, length=2), backend="async")
    collector = collector_on(envs)
    rollout, _ = collector.collect(3)
    assert rollout.valid[:, 1].tolist() == [False, True, True]
    assert not rollout.truncated.any() and len(rollout.final_steps) == 0
    assert rollout.terminated[:, 1].tolist() == [False, False, True]
    envs.close()


def test_an_info_of_the_env_that_speaks_of_restarts_is_no_break() -> None:
    class Talkative(FaultyEnv):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {"restarted": True, "broken": True})

    collector, _ = collector_of(make_vector_env(Talkative, 2, env_kwargs={"fail_at": -1}, backend="sync"))
    assert collector.collect(4)[0].valid.all()


@pytest.mark.parametrize("name", ["PanicsInStep", "RaisesWithoutText", "ReportsAList", "ReportsOurNames"])
def test_what_is_no_exception_and_odd_infos_are_failures_of_the_env_that_is_replaced(name: str) -> None:
    envs = make_vector_env(f"fuzz_envs:{name}-v0", 1, backend="async")
    envs.reset(seed=0)
    envs.step(np.zeros(1, np.int64))
    (failure,) = envs.unwrapped.failures
    assert failure.env_index == 0 and failure.call == "step"
    assert "its process" not in failure.reason, "the env itself is named, with the place in its code"
    envs.close()


def replay_rows(tmp_path: Path, **settings: Any) -> tuple[Any, dict[str, np.ndarray]]:
    config = load_config(
        {
            "algo": "dqn",
            "env_id": "callable:FaultyEnv",
            "vector_backend": "async",
            "num_envs": 2,
            "total_timesteps": 20,
            "env_kwargs": broken_once(tmp_path, length=100),
            "output_dir": str(tmp_path),
            "algo_kwargs": {"learning_starts": 15, "buffer_size": 50, "batch_size": 4, **settings},
        }
    )
    with training_envs(config, FaultyEnv) as envs:
        loop = build_loop(config, envs, Spaces(envs.single_observation_space, envs.single_action_space))
        envs.reset(seed=20)
        while loop.round() is not None:
            pass
        return loop.buffer, loop.buffer.export_rows(0, loop.buffer.rows_written)


def test_replay_draws_no_row_that_broke_and_no_window_crosses_it(tmp_path: Path) -> None:
    buffer, rows = replay_rows(tmp_path, n_step=3, gamma=0.5)
    assert rows["valid"][:, 1].tolist()[:6] == [True] * 3 + [False] + [True] * 2
    assert rows["truncated"][:, 1].tolist()[:5] == [False, False, True, False, False]
    assert not rows["truncated"][:, 0].any()
    np.testing.assert_array_equal(rows["next_obs"][2, 1], rows["obs"][3, 1])
    batch = buffer.sample(4000, np.random.default_rng(0))
    assert batch.indices is not None and 3 * 2 + 1 not in batch.indices
    by_row = {int(index) // 2: k for k, index in enumerate(batch.indices) if index % 2 == 1}
    # Rewards count the steps of an episode: 1, 2, 3 and then the break.
    for row, rewards, discount in ((0, 1 + 0.5 * 2 + 0.25 * 3, 0.125), (1, 2 + 0.5 * 3, 0.25), (2, 3.0, 0.5)):
        k = by_row[row]
        assert batch.rewards[k] == rewards and batch.discounts[k] == discount
        np.testing.assert_array_equal(batch.next_obs[k], rows["obs"][3, 1])


@pytest.mark.parametrize("name", ["ppo, envs in processes", "dqn, envs in processes, priorities and three steps"])
def test_training_with_envs_in_processes_equals_training_in_one_bit_for_bit(name: str, tmp_path: Path) -> None:
    results = []
    for backend in ("async", "sync"):
        config = CASES[name].config(tmp_path / backend, vector_backend=backend)
        results.append(train(config, show=False))
    assert metric_lines(results[0].run_dir) == metric_lines(results[1].run_dir)
    states = [saved_state(result.checkpoint) for result in results]
    assert state_hash(states[0]) == state_hash(states[1])


@EVERY_ALGORITHM
def test_every_algorithm_learns_on_after_a_break(algorithm: str, tmp_path: Path) -> None:
    (tmp_path / "times").write_bytes(b"xxx")
    box = "box" in get_spec(algorithm).actions and "discrete" not in get_spec(algorithm).actions
    kwargs = {"how": "exit", "fail_at": 5, "which": -1, "times": str(tmp_path / "times"), "box": box}
    config = tiny_config(algorithm, tmp_path)
    changes = {"env_id": "callable:FaultyEnv", "env_kwargs": kwargs, "vector_backend": "async", "log_every": 1}
    config = config.model_copy(update=changes)
    result = train(config, env=FaultyEnv, show=False)
    assert result.env_steps > 0.8 * config.total_timesteps and result.agent.learner.updates > 1
    assert [line for line in read_metrics(result.run_dir) if line["kind"] == "train"][-1]["env_restarts"] == 3


def config_of(tmp_path: Path, **changes: Any) -> TrainConfig:
    base = {
        "algo": "ppo",
        "env_id": "faulty_envs_for_runs:Faulty-v0",
        "vector_backend": "async",
        "num_envs": 2,
        "total_timesteps": 400,
        "log_every": 20,
        "output_dir": str(tmp_path),
        "env_timeout": DEADLINE_SECONDS,
        "model": {"hidden_sizes": (8,)},
        "eval_episodes": 1,
        "algo_kwargs": {"num_steps": 10, "minibatch_size": 20},
    }
    return load_config(base | changes)


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Envs by name, as the command line needs them."""
    (tmp_path / "faulty_envs_for_runs.py").write_text(
        f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\n"
        "import gymnasium\nfrom faulty_envs import FaultyEnv\n"
        "gymnasium.register('Faulty-v0', entry_point=FaultyEnv)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    gym.registry.pop("Faulty-v0", None)
    sys.modules.pop("faulty_envs_for_runs", None)


def any_env(tmp_path: Path, times: int, how: str, **kwargs: Any) -> dict[str, Any]:
    """Env kwargs with which whichever env comes first fails, `times` times in all."""
    (tmp_path / "times").write_bytes(b"x" * times)
    return {"how": how, "times": str(tmp_path / "times"), "which": -1, **kwargs}


def test_a_run_goes_on_after_failures_and_counts_them(registered: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, env_timeout=2.0, env_kwargs=any_env(tmp_path, 2, "sleep"))
    result = train(config, show=False)
    assert 380 < result.env_steps <= 400 and not result.interrupted
    lines = [line for line in read_metrics(result.run_dir) if line["kind"] == "train"]
    assert lines[-1]["env_restarts"] == 2 and lines[-1]["env_timeouts"] == 2
    files = sorted((result.run_dir / "crash").glob("env-*.json"))
    assert len(files) == 2
    document = json.loads(files[0].read_text())
    assert document["env_id"] == "faulty_envs_for_runs:Faulty-v0" and document["timed_out"] is True
    assert len(document["actions"]) == document["episode_step"] == 4 and document["env_step"] == 6


def test_a_run_that_cannot_go_on_says_where_and_leaves_what_fails_again(registered: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, env_kwargs={"how": "raise", "which": -1})
    with pytest.raises(EnvFailed) as caught:
        train(config, show=False)
    text = str(caught.value)
    assert "\n" not in text and caught.value.exit_code == 3
    assert "ZeroDivisionError: the wheel came off" in text and "3 times within 10 minutes" in text
    for word in ("seed ", "env step ", "step 4 of its episode", "last action "):
        assert word in text
    path = Path(text.split("rl-training reproduce ")[1])
    assert len(list(path.parent.glob("env-*.json"))) == 7  # with the three of each env that were survived
    document = json.loads(path.read_text())
    assert "in _fail" in document["trace"] and document["actions"]
    with pytest.raises(EnvFailed, match=r"the wheel came off \(action 4 of 4 in the file\)") as again:
        reproduce(path)
    assert isinstance(again.value.__cause__, ZeroDivisionError)
    assert json.loads((path.parent.parent / "run.json").read_text())["status"] == "failed"


def test_the_command_line_ends_with_one_line_and_reproduces_the_failure(registered: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, vector_backend="sync", env_kwargs={"how": "raise", "which": -1})
    (tmp_path / "config.yaml").write_text(json.dumps(config.model_dump(mode="json")))
    failed = call("train", tmp_path / "config.yaml", "--quiet")
    assert failed.code == 3
    (line,) = failed.err.strip().splitlines()
    assert line.startswith("error: env 0 failed in step (seed ") and "Traceback" not in failed.err
    path = line.split("rl-training reproduce ")[1]
    again = call("reproduce", path)
    assert again.code == 3
    assert "in _fail" in again.err and "ZeroDivisionError: the wheel came off" in again.err
    document = json.loads(Path(path).read_text()) | {"env_kwargs": {"fail_at": -1}}
    Path(path).write_text(json.dumps(document))
    calm = call("reproduce", path, "--json")
    assert calm.code == 0 and calm.json == {"failed": False, "steps": 4}


def test_an_evaluation_that_fails_is_one_line_with_a_crash_file(registered: Path, tmp_path: Path) -> None:
    class Unlucky(FaultyEnv):
        """Fails where evaluations begin: at their first seed."""

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            result = super().reset(seed=seed)
            self.chosen = seed == 10_000
            return result

    agent = PPO(Unlucky, output_dir=str(tmp_path), num_envs=1, num_steps=10, minibatch_size=10, **TINY)
    pattern = r"failed in step of an evaluation \(seed 10000, step 4 of its episode, last action \d\): faulty_envs"
    error = agent.learn(40, show=False).result.evaluation_error
    assert isinstance(error, EnvError) and re.search(pattern, str(error)), error
    path = str(error).split("reproduce ")[1]
    assert Path(path).name == "evaluation-step-40.json"
    with pytest.raises(EnvFailed, match="the wheel came off"):
        reproduce(path, env=Unlucky)


def test_a_vector_env_of_ones_own_that_raises_is_told_the_same_way(tmp_path: Path) -> None:
    class Broken(gym.vector.SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            raise OverflowError("too many cars")

    envs = Broken([FaultyEnv] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    agent = DQN(envs, num_envs=2, output_dir=str(tmp_path), **TINY)
    with pytest.raises(EnvError, match=r"the env failed in step \(seed \d+, env step 0, last act.*too many") as caught:
        agent.learn(200, show=False)
    path = Path(str(caught.value).split("reproduce ")[1])
    assert "OverflowError" in json.loads(path.read_text())["trace"]
    with pytest.raises(CheckpointError, match="the action history was too long"):
        reproduce(path)


def test_a_crash_file_of_later_episodes_restores_the_generator(tmp_path: Path) -> None:
    class Loaded(gym.Env[Any, Any]):
        """Fails when a die shows six: only the same random numbers fail at the same step."""

        def __init__(self) -> None:
            self.observation_space, self.action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            if self.np_random.random() < 0.02:
                raise ArithmeticError(f"unlucky number {self.np_random.random()}")
            return np.zeros(1, np.float32), 0.0, self.np_random.random() < 0.3, False, {}

    for short in (False, True):
        envs = make_vector_env(Loaded, 2, backend="sync")
        envs.reset(seed=4)
        if short:  # the seeded reset is forgotten; the episode's own is not
            envs._history._ring = np.empty((12, 2), np.int64)
        with pytest.raises(EnvFailed) as caught:
            while True:
                envs.step(np.array([0, 1]))
        failure = caught.value.failure
        assert (failure.random_state is not None) == short and envs._history.time > 12
        document = {"kind": "env failure", "env_id": "callable:Loaded", "env_kwargs": {}, "reason": failure.reason}
        document |= {"seed": failure.seed, "actions": failure.actions, "random_state": failure.random_state}
        path = tmp_path / f"{short}.json"
        path.write_text(json.dumps(document))
        with pytest.raises(EnvFailed) as again:
            reproduce(path, env=Loaded)
        assert str(caught.value.__cause__) == str(again.value.__cause__)
        # Both lines name the step of the episode, not the number of the action in the file.
        assert again.value.failure.episode_step == failure.episode_step < envs._history.time


def test_the_history_is_bounded_and_says_when_it_is_too_short() -> None:
    history = ActionHistory(2)
    history.begin([5, 6])
    actions = np.zeros((2, 1000), np.float32)
    rows = HISTORY_BYTES // actions.nbytes
    for number in range(rows):
        actions[:] = number
        history.add(actions)
    whole = history.failure(1, "step", "why").actions
    assert whole is not None and [action[0] for action in whole] == list(range(rows))
    history.add(actions)
    assert history.failure(1, "step", "why").actions is None
    assert history._ring is not None and history._ring.nbytes <= HISTORY_BYTES


def test_what_is_no_crash_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text, complaint in (
        ("{}", "not the crash file of an env"),
        ('{"kind": "env failure", "actions": []}', "not a complete crash file"),
    ):
        path.write_text(text)
        with pytest.raises(CheckpointError, match=complaint):
            reproduce(path)
    assert call("reproduce", tmp_path / "none.json").code == 2


def test_an_exception_of_the_env_is_one_line_with_its_place_and_cause(tmp_path: Path) -> None:
    sizes = {"num_envs": 1, "num_steps": 16, "minibatch_size": 8}
    agent = PPO(lambda: EndlessEnv(fail_at=7), output_dir=str(tmp_path), **sizes, **TINY)
    with pytest.raises(EnvError, match=r"endless_env\.py:\d+ in step: ZeroDivisionError: the wheel") as caught:
        agent.learn(64, show=False)
    assert isinstance(caught.value.__cause__, ZeroDivisionError) and "\n" not in str(caught.value)
