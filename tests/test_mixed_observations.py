"""Dict and Tuple observations with images: bytes of the agent's array, networks, replay, and whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from mixed_envs import MIXED, Lit, VectorNet, lit, lit_discrete
from on_policy_helpers import make_learner, model_config
from rl_training.data.mixed_store import MixedStore
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_layout import ReplayLayout
from rl_training.envs.goals import GoalColumns
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError, NumericalError
from rl_training.models.cnn.impala_resnet import ImpalaResNet
from rl_training.models.encoders.encoder import build_encoder
from rl_training.models.encoders.mixed_encoder import ChannelsFirst, FlatImage, MixedEncoder
from rl_training.models.encoders.normalizer import NumbersNormalizer, make_normalizer
from rl_training.models.encoders.observation_views import ObservationViews
from rl_training.runtime.agent import Agent
from rl_training.runtime.workflows import resume, train
from run_cases import assert_same_run, stop_at
from tiny_runs import EVERY_ALGORITHM, Blocks, managed, tiny_config

ACTIONS = gym.spaces.Discrete(2)
NUMBERS = 4 + 3 + 1
CAMERA_BYTES, MAP_BYTES = 12 * 10 * 3, 2 * 9 * 11


def samples(count: int, seed: int = 0, space: gym.Space[Any] = MIXED) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def test_images_stay_bytes_and_numbers_stay_numbers() -> None:
    spaces, given = Spaces(MIXED, ACTIONS), samples(5)
    encoded = spaces.encode(given)
    assert encoded.dtype == np.uint8 and encoded.shape == (5, 4 * NUMBERS + CAMERA_BYTES + MAP_BYTES)
    assert [image.name for image in spaces.images] == ["observation['camera']", "observation['map']"]
    for image, key in zip(spaces.images, ("camera", "map"), strict=True):
        expected = np.stack([sample[key] for sample in given])
        np.testing.assert_array_equal(encoded[:, image.start : image.stop].reshape(expected.shape), expected)
    one_hot = np.eye(3, dtype=np.float32)[[sample["inner"][1] - 1 for sample in given]]
    numbers = [
        np.stack([sample["inner"][0].ravel() for sample in given]),
        one_hot,
        np.stack([s["speed"] for s in given]),
    ]
    np.testing.assert_array_equal(spaces.numbers_of(encoded), np.concatenate(numbers, 1))
    batch = {key: np.stack([s[key] for s in given]) for key in ("camera", "map", "speed")}
    batch["inner"] = (np.stack([s["inner"][0] for s in given]), np.array([s["inner"][1] for s in given]))
    np.testing.assert_array_equal(spaces.encode(batch), encoded)


def test_an_encoder_sees_the_form_of_the_space_again() -> None:
    spaces, given = Spaces(MIXED, ACTIONS), samples(1)
    for count in (1, 3):
        rows = torch.from_numpy(spaces.encode(given * count))
        seen = ObservationViews(spaces)(rows)
        assert torch.equal(seen["camera"][0], torch.from_numpy(given[0]["camera"]))
        assert torch.equal(seen["map"][0], torch.from_numpy(given[0]["map"]))
        assert torch.equal(seen["inner"][0][0], torch.from_numpy(given[0]["inner"][0]))
        assert seen["inner"][1].shape == (count, 3) and seen["speed"].dtype == torch.float32


def test_an_action_mask_beside_an_image_is_one_byte_each_at_the_end() -> None:
    space = gym.spaces.Dict(
        {"camera": MIXED["camera"], "action_mask": gym.spaces.MultiBinary(2), "x": gym.spaces.Box(-1, 1, (1,))}
    )
    spaces = Spaces(space, ACTIONS)
    encoded = spaces.encode(
        [{"camera": MIXED["camera"].sample(), "action_mask": np.int8([0, 1]), "x": np.float32([0.5])}]
    )
    assert encoded.shape == (1, 4 + CAMERA_BYTES + 2) and spaces.feature_shape == (4 + CAMERA_BYTES,)
    np.testing.assert_array_equal(spaces.action_masks(encoded), [[False, True]])
    assert "action_mask" not in ObservationViews(spaces)(torch.from_numpy(encoded[:, :-2]))
    learner = make_learner("dqn", spaces, model={"encoder_size": 4})
    assert learner.act(encoded, explore=False).actions.tolist() == [1]


@pytest.mark.parametrize(
    ("shape", "image", "last"),
    [
        ((12, 10, 3), (3, 12, 10), True),
        ((2, 9, 11), (2, 9, 11), False),
        ((4, 20, 16, 3), (12, 20, 16), True),
        ((4, 1, 9, 8), (4, 9, 8), False),
    ],
)
def test_channels_come_first_and_frames_of_a_stack_are_channels(shape: Any, image: Any, last: bool) -> None:
    layout = ChannelsFirst(shape)
    assert layout.image == image and layout.colors_last == last
    pictures = torch.arange(2 * int(np.prod(shape))).reshape(2, *shape)
    moved = layout(pictures)
    assert moved.shape == (2, *image)
    place = (1, 2, 5, 6, 1) if len(shape) == 4 else (1, 5, 6, 1)
    if last:
        channel = 1 if len(shape) == 3 else 2 * 3 + 1
        assert moved[1, channel, 5, 6] == pictures[place]


def test_every_image_has_its_own_network_and_the_numbers_are_beside_them() -> None:
    spaces = Spaces(MIXED, ACTIONS)
    torch.manual_seed(0)
    encoder = build_encoder(spaces, model_config(encoder_size=5))
    assert isinstance(encoder, MixedEncoder) and encoder.output_size == NUMBERS + 5 + 5
    assert all(isinstance(part, ImpalaResNet) for part in encoder.encoders)
    given = samples(3)
    rows = spaces.encode(given)
    with torch.no_grad():
        features = encoder(torch.from_numpy(rows))
        torch.testing.assert_close(features[:, :NUMBERS], torch.from_numpy(spaces.numbers_of(rows)))
        camera = torch.from_numpy(np.stack([s["camera"] for s in given])).permute(0, 3, 1, 2)
        torch.testing.assert_close(features[:, NUMBERS : NUMBERS + 5], encoder.encoders[0](camera))
        changed = given[0] | {"map": 255 - given[0]["map"]}
        other = encoder(torch.from_numpy(spaces.encode([changed])))
    torch.testing.assert_close(other[0, : NUMBERS + 5], features[0, : NUMBERS + 5])
    assert not torch.allclose(other[0, NUMBERS + 5 :], features[0, NUMBERS + 5 :])
    tiny = Spaces(gym.spaces.Dict({"i": gym.spaces.Box(0, 255, (4, 5, 3), np.uint8)}), ACTIONS)
    small = build_encoder(tiny, model_config())
    assert isinstance(small, MixedEncoder) and isinstance(small.encoders[0], FlatImage)
    assert float(small(torch.full((1, 60), 255, dtype=torch.uint8)).max()) == pytest.approx(1.0)


def test_normalization_changes_the_numbers_and_leaves_the_images() -> None:
    spaces = Spaces(MIXED, ACTIONS)
    normalizer = make_normalizer(spaces, model_config(normalize_observations=True))
    assert isinstance(normalizer, NumbersNormalizer)
    rows = spaces.encode(samples(64))
    normalizer.update(rows)
    found = normalizer(torch.from_numpy(rows)).numpy()
    np.testing.assert_array_equal(normalizer.numpy(rows), found)
    np.testing.assert_array_equal(found[:, 4 * NUMBERS :], rows[:, 4 * NUMBERS :])
    numbers = spaces.numbers_of(found)
    np.testing.assert_allclose(numbers.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(numbers.std(0), 1, atol=1e-3)


def filled(num_envs: int = 2, capacity: int = 40, steps: int = 90, seed: int = 0) -> tuple[ReplayBuffer, list[Any]]:
    """A buffer after more steps than it holds, and every (obs, next_obs) row that was added."""
    spaces = Spaces(MIXED, ACTIONS)
    images = tuple((image.start, image.stop, image.shape) for image in spaces.images)
    layout = ReplayLayout(capacity, num_envs, spaces.observation_shape, np.uint8, (), "int64", images=images)
    buffer, rng, seen = ReplayBuffer(layout, gamma=0.9), np.random.default_rng(seed), []
    obs = spaces.encode(samples(num_envs, seed=1))
    for step in range(steps):
        following = spaces.encode(samples(num_envs, seed=step + 2))
        done = rng.random(num_envs) < 0.2
        flags = {"terminated": done, "truncated": np.zeros(num_envs, bool), "valid": np.ones(num_envs, bool)}
        buffer.add(obs, np.zeros(num_envs, np.int64), np.full(num_envs, step, np.float32), following, **flags)
        seen.append((obs, following))
        obs = spaces.encode(samples(num_envs, seed=1000 + step)) if done.any() else following
    return buffer, seen


def test_replay_returns_the_bytes_that_went_in_and_stores_each_frame_once() -> None:
    buffer, seen = filled()
    assert isinstance(buffer.observations, MixedStore)
    batch = buffer.sample(64, np.random.default_rng(0))
    for row, reward in enumerate(batch.rewards.tolist()):
        before, after = seen[int(reward)]
        assert any(np.array_equal(batch.obs[row].numpy(), each) for each in before)
        assert any(np.array_equal(batch.next_obs[row].numpy(), each) for each in after)
    whole = 2 * 40 * Spaces(MIXED, ACTIONS).observation_shape[0]
    assert buffer.observations.nbytes < 0.75 * whole
    assert buffer.observations.nbytes == MixedStore.predicted_bytes(buffer.layout)


def test_a_stack_of_images_with_a_dimension_of_its_own_shares_its_frames() -> None:
    """Each observation has three frames of four and one that is new: bytes as for single frames."""
    stack = gym.spaces.Box(0, 255, (4, 9, 8, 1), np.uint8)
    spaces = Spaces(gym.spaces.Dict({"stack": stack, "x": gym.spaces.Box(-1, 1, (1,))}), ACTIONS)
    frames = np.random.default_rng(0).integers(0, 256, (64, 9, 8, 1), dtype=np.uint8)
    rows = spaces.encode([{"stack": frames[t : t + 4], "x": np.float32([t / 60])} for t in range(60)])
    images = tuple((image.start, image.stop, image.shape) for image in spaces.images)
    layout = ReplayLayout(40, 1, spaces.observation_shape, np.uint8, (), "int64", images=images)
    buffer, zero, no = ReplayBuffer(layout, gamma=0.9), np.zeros(1, np.int64), np.zeros(1, bool)
    for t in range(59):
        buffer.add(rows[t : t + 1], zero, np.float32([t]), rows[t + 1 : t + 2], no, no)
    batch = buffer.sample(64, np.random.default_rng(0))
    for row, reward in enumerate(batch.rewards.to(torch.int64).tolist()):
        assert torch.equal(batch.obs[row], torch.from_numpy(rows[reward]))
        assert torch.equal(batch.next_obs[row], torch.from_numpy(rows[reward + 1]))
    assert len(buffer) == 40 and buffer.observations.nbytes == MixedStore.predicted_bytes(layout)
    one_frame = 9 * 8
    assert buffer.observations.nbytes < 40 * (1.5 * one_frame + 2 * 4 + 2 * 8), "an image is 4 frames, stored twice"


def test_a_buffer_with_images_is_saved_and_loaded_whole() -> None:
    buffer, _ = filled()
    other, _ = filled(steps=0)
    other.load_state_dict(buffer.state_dict())
    other.import_rows(buffer.oldest_row, buffer.export_rows(buffer.oldest_row, buffer.rows_written))
    one, two = (each.sample(32, np.random.default_rng(3)) for each in (buffer, other))
    assert torch.equal(one.obs, two.obs) and torch.equal(one.next_obs, two.next_obs)


@EVERY_ALGORITHM
def test_every_algorithm_trains_on_a_camera_and_a_number(algorithm: str, tmp_path: Path) -> None:
    from rl_training.experiment.registry import get_spec

    env = lit_discrete if "discrete" in get_spec(algorithm).actions else lit
    agent = managed(algorithm, tmp_path, env, encoder_size=4, normalize_observations=True, total_timesteps=48)
    agent.learn(48, show=False)
    observation = env().reset(seed=0)[0]
    path = agent.save(tmp_path / "agent")
    np.testing.assert_array_equal(type(agent).load(path).predict(observation)[0], agent.predict(observation)[0])


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_a_run_with_a_camera_resumes_exactly(algo: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"checkpoint_every": 16, "encoder_size": 4, "normalize_observations": True}
    if algo == "sac":
        changes |= {"random_shift": 1, "buffer_size": 40}
    configs = [tiny_config(algo, tmp_path / name, env_id="callable:lit", run_name="run", **changes) for name in "ab"]
    whole = train(configs[0], env=lit, show=False)
    half = train(configs[1], env=lit, show=False, callback=stop_at(32))
    assert_same_run(whole.run_dir, resume(half.run_dir, env=lit, show=False).run_dir)


def test_a_number_beside_an_image_that_is_not_finite_is_found(tmp_path: Path) -> None:
    class Broken(Lit):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            observation, *rest = super().step(action)
            return observation | {"sign": np.float32([np.nan])}, *rest  # type: ignore[return-value]

    agent = managed("sac", tmp_path, Broken)
    with pytest.raises(NumericalError, match="env 0 returned an observation that is not finite"):
        agent.learn(40, show=False)
    observation = lit().reset(seed=0)[0] | {"sign": np.float32([np.inf])}
    with pytest.raises(NumericalError, match="the observation is not finite"):
        Agent.predict(agent.agent, observation)


def test_a_part_without_numbers_is_refused_with_its_key_or_left_out(tmp_path: Path) -> None:
    class Talking(Lit):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gym.spaces.Dict({**self.observation_space.spaces, "words": gym.spaces.Text(9)})

        def _look(self) -> dict[str, Any]:
            return {**super()._look(), "words": "left"}

    with pytest.raises(EnvError, match=r"^observation\['words'\] has the space Text.*env_kwargs.observation_keys"):
        managed("ppo", tmp_path, Talking)
    agent = managed("ppo", tmp_path, Talking, env_kwargs={"observation_keys": ["sign", "camera"]}, encoder_size=4)
    agent.learn(32, show=False)
    assert list(agent.agent.spaces.observation_space.spaces) == ["camera", "sign"]
    with pytest.raises(EnvError, match="observation_keys: the observation has no 'colour', only camera, sign, words"):
        managed("ppo", tmp_path, Talking, env_kwargs={"observation_keys": ["colour"]})


@pytest.mark.parametrize(
    ("box", "advice"),
    [
        (gym.spaces.Box(0, 255, (12, 9), np.uint8), "(12, 9) of uint8 .*give it the shape (1, 12, 9)"),
        (gym.spaces.Box(0, 1, (9, 9, 3)), "(9, 9, 3) of float32 .*give it dtype uint8, from 0 to 255"),
        (gym.spaces.Box(0, 12, (8, 8), np.uint8), None),  # a board
        (gym.spaces.Box(0, 255, (12, 7), np.uint8), None),
        (gym.spaces.Box(0, 255, (9, 9, 3), np.uint8), None),
    ],
)
def test_a_picture_that_is_read_as_numbers_is_said_once(
    box: Any, advice: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = gym.spaces.Dict({"gray": box, "sign": gym.spaces.Box(-1.0, 1.0, (1,))})
    managed("ppo", tmp_path, lambda: Blocks(space, gym.spaces.Discrete(2)), encoder_size=4).learn(48)
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("is read as numbers, without a CNN; to make it an image, ") == (advice is not None)
    if advice is not None:
        start, _, end = advice.partition(" .*")
        assert f"observation['gray'] {start} is read" in told and end in told


def test_an_encoder_of_the_user_s_own_reads_a_picture_as_it_likes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = gym.spaces.Box(0, 255, (12, 9), np.uint8)
    managed("ppo", tmp_path, lambda: Blocks(box, gym.spaces.Discrete(2)), encoder=VectorNet).learn(48)
    assert "is read as numbers" not in " ".join(capsys.readouterr().err.split())


def test_goals_beside_images_are_refused_by_hindsight() -> None:
    goal = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    space = gym.spaces.Dict({"camera": MIXED["camera"], "achieved_goal": goal, "desired_goal": goal})
    with pytest.raises(
        EnvError, match=r"hindsight cannot replace goals beside images: leave observation\['camera'\] out"
    ):
        GoalColumns.of(Spaces(space, ACTIONS))


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_an_agent_learns_from_the_camera_and_the_number_together(algo: str, tmp_path: Path) -> None:
    """Neither part alone says anything about the best action: a random or constant policy scores -8."""
    settings: dict[str, Any] = {"encoder_size": 16, "hidden_sizes": (32, 32), "output_dir": str(tmp_path), "seed": 0}
    steps = 3000 if algo == "sac" else 12_000
    if algo == "sac":
        settings |= {"learning_starts": 300, "buffer_size": 3000, "batch_size": 64}
    import rl_training

    agent = getattr(rl_training, algo.upper())(lit, **settings).learn(steps, show=False)
    assert agent.evaluate(20).mean_return > -2.0
