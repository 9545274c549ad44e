"""Rollouts as one function: acting, sampling, batched classic control and episode boundaries, compiled together.

For small networks, a step of the collector is some fifty calls from Python around a few microseconds of arithmetic.
Here the same step is traced in torch: how the learner acts (`Learner.traced_acting`) and the physics of
`envs/batched_classic.py`. A loop around it is compiled (`algorithms/common/compile/compiled_loop.py`), and one call
fills the arrays of a rollout. Random numbers are drawn before the call, from the streams that the plain path draws from
and as many of them, so the two paths differ only in how they round.
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from rl_training.algorithms.common.compile.compiled_loop import CompiledLoop
from rl_training.algorithms.common.learner import Learner
from rl_training.envs.batched_classic import BATCHED_ENVS, BatchedVector
from rl_training.envs.spaces import Spaces

Outputs = dict[str, np.ndarray]

FEW_ENVS = 32  # up to here, counting by pairs of envs is faster than torch's cumulative sum, which is not compiled


def why_not_compiled(envs: VectorEnv, learner: Learner) -> str | None:
    """Why the rollouts of a run whose gradient steps are compiled are not, in words that follow "because"."""
    if type(envs) not in BATCHED_ENVS.values():
        return f"only {', '.join(BATCHED_ENVS)} have a compiled form, without wrappers"
    if learner.device.type != "cpu" or learner.low_precision:
        return "they need device=cpu and precision=float32"
    if learner.traced_acting() is None:
        return f"the way {type(learner).__name__} acts here has no compiled form"
    return None


class CompiledRollouts:
    """Rollouts of `num_steps` steps of every env as one function, which `compile` makes."""

    def __init__(self, envs: BatchedVector, spaces: Spaces, learner: Learner, num_steps: int):
        acting = learner.traced_acting()
        assert acting is not None
        self.num_steps = num_steps
        self._envs, self._learner, self._acting = envs, learner, acting
        self._scales_actions = spaces.action_kind == "box"
        # Made once, so that the trace finds them: a tensor that a step makes of numbers is made again in every step.
        self._bounds = [torch.from_numpy(bound) for bound in spaces.action_bounds]
        self._not_later = torch.ones(envs.num_envs, envs.num_envs, dtype=torch.bool).tril()
        self._most_draws = num_steps * envs.num_envs * len(envs.draws)  # if every step ended an episode
        self._loop: CompiledLoop | None = None

    @property
    def is_compiled(self) -> bool:
        return self._loop is not None

    def compile(self) -> None:
        """Make the function. No stream of the run is drawn from, and no env is stepped."""
        rng = np.random.default_rng(0)
        drawn, pool = self._draws(rng), rng.random(self._most_draws)
        self._loop = CompiledLoop(self._step, *self._inputs(drawn, pool, np.zeros(self._envs.num_envs)), learns=False)

    def collect(self, returns: np.ndarray) -> tuple[Outputs, Outputs, np.ndarray]:
        """What happens in `num_steps` steps [T, N, ...], the extras of acting in them, and `returns`.

        These are the returns so far [N] of the running episodes, before and after. The envs and all random streams are
        then where the plain path would leave them.
        """
        assert self._loop is not None
        envs, bits = self._envs, self._envs.np_random.bit_generator
        assert isinstance(bits, np.random.PCG64)
        drawn, pool = self._draws(self._learner.streams["exploration"]), envs.np_random.random(self._most_draws)
        (state, elapsed, after, used), (outputs, extras) = self._loop(*self._inputs(drawn, pool, returns))
        envs.state, envs.elapsed = state.numpy(), elapsed.numpy()
        bits.advance(int(used) - self._most_draws)  # back to the first number that no episode used
        return _arrays(outputs), _arrays(extras), after.numpy()

    def _draws(self, rng: np.random.Generator) -> np.ndarray:
        return self._acting.draws(rng, self.num_steps, self._envs.num_envs)

    def _inputs(
        self, drawn: np.ndarray, pool: np.ndarray, returns: np.ndarray
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """What the loop hands from step to step, what each step has of its own, and what is the same for all."""
        carry = [torch.from_numpy(array) for array in (self._envs.state, self._envs.elapsed, returns)]
        return [*carry, torch.zeros((), dtype=torch.int64)], [torch.from_numpy(drawn)], [torch.from_numpy(pool)]

    def _step(
        self, state: Tensor, elapsed: Tensor, returns: Tensor, used: Tensor, drawn: Tensor, pool: Tensor
    ) -> tuple[list[Tensor], tuple[dict[str, Tensor], dict[str, Tensor]]]:
        """One step of every env, in torch: the next carry, and what a rollout keeps of the step and of acting."""
        envs = self._envs
        obs = envs.observation(torch, state)
        actions, extras = self._acting.choose(obs, drawn)
        new_state, rewards, terminated = envs.dynamics(torch, state, self._env_actions(actions))
        elapsed, rewards = elapsed + 1, rewards.to(torch.float32)
        truncated = elapsed >= envs.limit
        returns = returns + rewards
        outputs = {
            "obs": obs,
            "actions": actions,
            "rewards": rewards,
            "terminated": terminated,
            "truncated": truncated,
            "next_obs": envs.observation(torch, new_state),
            "returns": returns,
            "lengths": elapsed,
        }
        done = terminated | truncated
        starts, used = self._starts(done, used, pool)
        carry = [torch.where(done, starts, new_state), torch.where(done, 0, elapsed), torch.where(done, 0.0, returns)]
        return [*carry, used], (outputs, extras)

    def _env_actions(self, actions: Tensor) -> Tensor:
        """As `Spaces.to_env_actions`. Discrete actions become float64, as NumPy makes them in the physics."""
        if not self._scales_actions:
            return actions.to(torch.float64)
        lowest, highest, half_range, center, low, high = self._bounds
        inside = torch.minimum(torch.maximum(actions, lowest), highest)
        return torch.minimum(torch.maximum(inside * half_range + center, low), high).to(torch.float32)

    def _starts(self, done: Tensor, used: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
        """Initial states for the envs that are done, from the numbers of the pool in the order of the plain path.

        A reset of `count` envs draws all first numbers of their states, then all second ones, and so on.
        """
        few = self._envs.num_envs <= FEW_ENVS
        rank = (done & self._not_later).sum(1) if few else done.cumsum(0)
        count, place, drawn = done.sum(), used + rank - 1, []
        for row, (lowest, highest) in enumerate(self._envs.draws):
            numbers = pool[torch.where(done, place + row * count, 0)]
            drawn.append(lowest + (highest - lowest) * numbers)
        return self._envs.start(torch, torch.stack(drawn)), used + len(drawn) * count


def _arrays(tensors: dict[str, Tensor]) -> Outputs:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
