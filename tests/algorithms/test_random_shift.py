"""Random shifts of images against a slow loop, and where they apply."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from mixed_envs import MIXED
from on_policy_helpers import make_learner
from rl_training.algorithms.common.random_shift import RandomShift, shift
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError

BOX = gym.spaces.Box(-1.0, 1.0, (2,))


@pytest.mark.parametrize("shape", [(2, 7, 6), (7, 6, 3), (2, 7, 6, 3)])
def test_a_shift_repeats_the_border(shape: tuple[int, ...]) -> None:
    last = shape[-1] == 3
    images = torch.randint(0, 256, (4, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    offsets = torch.tensor([[0, 2, -3, 9], [0, -1, 4, -9]])
    found = shift(images, offsets, colors_last=last)
    assert found.shape == images.shape and found.dtype == torch.uint8
    assert torch.equal(found[0], images[0])
    rows_at = -3 if last else -2
    for index in range(4):
        for row in range(7):
            for column in range(6):
                from_row = min(max(row + int(offsets[0, index]), 0), 6)
                from_column = min(max(column + int(offsets[1, index]), 0), 5)
                expected = images[index].select(rows_at, from_row).select(rows_at + 1, from_column)
                assert torch.equal(found[index].select(rows_at, row).select(rows_at + 1, column), expected)


def test_only_images_move_each_by_its_own_draw_within_the_limit() -> None:
    spaces = Spaces(MIXED, BOX)
    rows = torch.from_numpy(spaces.encode([MIXED.sample() for _ in range(40)]))
    moved = RandomShift(spaces, 1)(rows, np.random.default_rng(0))
    numbers = 4 * spaces.vector_size
    assert torch.equal(moved[:, :numbers], rows[:, :numbers])
    camera = spaces.images[0]
    before, after = (each[:, camera.start : camera.stop].reshape(-1, 12, 10, 3) for each in (rows, moved))
    found = set()
    for one, two in zip(before, after, strict=True):
        fits = [
            (d, r)
            for d in (-1, 0, 1)
            for r in (-1, 0, 1)
            if torch.equal(one[1 + d : 11 + d, 1 + r : 9 + r], two[1:11, 1:9])
        ]
        assert len(fits) == 1
        found.add(fits[0])
    assert len(found) == 9


def test_the_next_observation_has_a_draw_of_its_own_and_the_replayed_batch_stays() -> None:
    space = gym.spaces.Box(0, 255, (2, 36, 36), np.uint8)
    learner = make_learner("sac", Spaces(space, BOX), model={"encoder_size": 8}, random_shift=4)
    images = torch.randint(0, 256, (8, 2, 36, 36), dtype=torch.uint8)
    batch = Transitions(images, torch.zeros(8, 2), torch.zeros(8), images, torch.ones(8))
    kept = images.clone()
    seen = learner.augmented(batch)
    assert not torch.equal(seen.obs, seen.next_obs) and torch.equal(images, kept)
    assert not torch.equal(seen.obs, images) and not torch.equal(seen.next_obs, images)
    learner.update(batch)


@pytest.mark.parametrize("algo", ["sac", "td3", "ddpg", "d4pg", "mpo", "tqc", "td7", "crossq", "redq", "droq"])
def test_shifts_without_images_are_refused(algo: str) -> None:
    with pytest.raises(ConfigError, match=r"algo_kwargs.random_shift: 4 needs images, but the observations have none"):
        make_learner(algo, "box", random_shift=4)
