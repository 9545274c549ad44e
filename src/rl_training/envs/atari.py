"""Atari: many games at once on ale-py's C++ vector env for training, one game on Gymnasium's wrappers otherwise.

Both return uint8 images (stack, height, width), with three times as many channels in color, oldest frame first, black
before the first frame. A test steps both with the same actions and finds the same pixels and scores. They differ in
three points only:

- Random numbers: the number of idle frames at a start (from 0 in the vector env, from 1 in the wrappers) and sticky
  actions come from different generators, so equal seeds do not make equal games.
- `episodic_life` applies to training only: evaluation plays whole games.
- `max_frames` counts from the first observation in the vector env, from power-on in the wrappers.

The defaults of the vector env are not ours. It clips rewards, which loses the score: here rewards are raw, and the
learner clips them (`reward_clip`). Its `episodic_life` starts a NEW game after each lost life, so that a second life is
never played: here a lost life is reported as the end of an episode and the game continues. Its `final_obs` is undefined
in rows where no game ended. It cannot restore a state; exact resume goes through the barrier of a checkpoint.
"""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import wrappers
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rl_training.config.pixels import AtariOptions
from rl_training.envs.image_wrappers import stacked
from rl_training.errors import EnvError
from rl_training.program import pip

Array = np.ndarray


def is_atari(target: Any) -> bool:
    return isinstance(target, EnvSpec) and str(target.entry_point).startswith("ale_py")


class AtariVector(VectorEnv[Array, Array, Array]):
    """ale-py's vector env with raw scores, games that continue after a lost life, and true final observations.

    `infos["life_lost"]` marks rows whose episode ended for the learner while the game continues.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, options: AtariOptions):
        from ale_py import AtariVectorEnv

        height, width = options.height_and_width
        self.games = AtariVectorEnv(
            _game_of(spec),
            num_envs,
            num_threads=min(num_envs, _cores()),
            max_num_frames_per_episode=options.max_frames,
            repeat_action_probability=_stickiness(spec, options),
            full_action_space=options.full_action_space,
            autoreset_mode=AutoresetMode.SAME_STEP,
            img_height=height,
            img_width=width,
            grayscale=not options.color,
            stack_num=options.stack,
            frameskip=options.frame_skip,
            noop_max=options.noop_max,
            episodic_life=False,
            life_loss_info=options.episodic_life,
            reward_clipping=False,
            use_fire_reset=options.fire_reset,
        )
        self.spec, self.num_envs = spec, num_envs
        self.shape = (options.stack * (3 if options.color else 1), height, width)
        self.single_observation_space = gym.spaces.Box(0, 255, self.shape, np.uint8)
        self.single_action_space = self.games.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.lives = np.zeros(num_envs, np.int32)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        if isinstance(seed, int):
            # ale-py would count up from the seed, and runs with neighboring seeds would share games.
            seeds: Array | None = (np.random.SeedSequence(seed).generate_state(self.num_envs) >> 1).astype(np.int64)
        else:
            seeds = None if seed is None else np.array(seed, np.int64)
        observations, infos = self.games.reset(seed=seeds)
        self.lives = infos["lives"].copy()
        return self._images(observations), infos

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        raw, scores, terminated, truncated, infos = self.games.step(np.asarray(actions, np.int64))
        observations = self._images(raw)
        done = terminated | truncated
        lives, self.lives = self.lives, infos["lives"].copy()
        if done.any():
            # After a reset a game has at least as many lives as when it ended.
            life_lost = terminated & (self.lives < lives)
            final = self._images(infos["final_obs"]).copy()
            final[~done | life_lost] = observations[~done | life_lost]
            infos |= {"final_obs": final, "_final_obs": done, "life_lost": life_lost}
        return observations, scores.astype(np.float32), terminated, truncated, infos

    def _images(self, observations: Array) -> Array:
        if observations.ndim == 5:
            observations = np.moveaxis(observations, -1, 2)
        return observations.reshape(self.num_envs, *self.shape)


class FireAtReset(gym.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE in the first frame of a game, before any idle frames, as the vector env does."""

    def __init__(self, env: gym.Env[Any, Any]):
        super().__init__(env)
        self.fire: int = env.unwrapped.get_action_meanings().index("FIRE")  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.env.reset(seed=seed, options=options)
        observation, _, _, _, info = self.env.step(self.fire)
        return observation, info


def atari_env(spec: EnvSpec, options: AtariOptions, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    """One game that is played to its end and can be rendered; `kwargs` go to the emulator, for example render_mode."""
    _game_of(spec)
    settings = {
        "frameskip": 1,  # the wrapper skips frames, because it needs two of them to take their maximum
        "obs_type": "rgb",
        "repeat_action_probability": _stickiness(spec, options),
        "full_action_space": options.full_action_space,
        "max_num_frames_per_episode": options.max_frames,
    }
    env = gym.make(spec, disable_env_checker=True, **{**settings, **kwargs})
    if options.fire_reset and "FIRE" in env.unwrapped.get_action_meanings():  # type: ignore[attr-defined]
        env = FireAtReset(env)
    height, width = options.height_and_width
    env = wrappers.AtariPreprocessing(
        env,
        noop_max=options.noop_max,
        frame_skip=options.frame_skip,
        screen_size=(width, height),
        grayscale_obs=not options.color,
        grayscale_newaxis=True,
    )
    channels_first = gym.spaces.Box(0, 255, (3 if options.color else 1, height, width), np.uint8)
    env = wrappers.TransformObservation(env, lambda image: np.moveaxis(image, -1, 0), channels_first)
    return stacked(env, options.stack, axis=0)


def _stickiness(spec: EnvSpec, options: AtariOptions) -> float:
    own = float(spec.kwargs.get("repeat_action_probability", 0.0))
    return own if options.sticky_actions is None else options.sticky_actions


def _game_of(spec: EnvSpec) -> str:
    from ale_py import roms

    game = str(spec.kwargs["game"])
    try:
        path = roms.get_rom_path(game)
    except OSError:  # the file or its folder is missing or damaged
        path = None
    if path is None:
        raise EnvError(
            f"{spec.id} needs the ROM {game}, which belongs to ale-py and is missing: "
            f"{pip()} install --force-reinstall ale-py"
        )
    return game


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
