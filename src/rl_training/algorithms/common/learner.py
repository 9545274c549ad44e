"""The learner: what an algorithm is to the rest of the library. It acts, it updates, it has state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import TypeVar

from rl_training.algorithms.common.compile.compiled_step import CompiledStep
from rl_training.algorithms.common.counters import Clock
from rl_training.algorithms.common.dead_units import dead_units
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.optimizer import Optimizer, vectors_of
from rl_training.algorithms.common.rewards import ReturnNormalizer
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.algorithms.common.traced_acting import TracedActing, policy_sampling, samples_as_traced, takes_vectors
from rl_training.config.base import AlgorithmConfig, RolloutConfig, Schedule
from rl_training.config.train_config import TrainConfig
from rl_training.data.gradient_push import Moments
from rl_training.data.replay_layout import Column
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError
from rl_training.models.encoders.encoder import check_same_encoder
from rl_training.models.layers.precision import use_low_precision
from rl_training.models.parameter_limit import networks_within_memory

Config = TypeVar("Config", bound=AlgorithmConfig, default=Any)
Network = TypeVar("Network", bound=nn.Module)


@dataclass(slots=True)  # not frozen: every step makes one, and a frozen one takes three times as long
class Action:
    """What `act` decides: actions on the policy's own scale, and what the update needs to know about them."""

    actions: np.ndarray
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    memory: Any = None


@dataclass(frozen=True, slots=True)
class UpdateResult(Mapping[str, Tensor]):
    """Named metrics of one update, and new priorities for the sampled rows when replay is prioritized."""

    metrics: dict[str, Tensor]
    priorities: np.ndarray | None = None

    def __getitem__(self, name: str) -> Tensor:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)


class FinishedEpisode(Protocol):
    """What a learner is told about a training episode: its raw return, and its steps."""

    @property
    def total_reward(self) -> float: ...
    @property
    def length(self) -> int: ...


class Learner(ABC, Generic[Config]):
    """Base of every algorithm: `class PPO(Learner[PPOConfig])`. It never steps an env, logs, or touches a file.

    The training loop shapes the rewards that `update` sees, shows observations to `observe`, and advances `clock`.

    State is found, not listed: every attribute that has a `state_dict` (networks, targets, optimizers, normalizers,
    noise, counters, random streams) is saved and restored, together with `updates`.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    config: Config
    model: Any
    policies: ClassVar[tuple[str, ...]] = ()  # names, if evaluation can choose: `evaluated_policy` is one of them
    evaluated_policy: str = ""
    fast_products: ClassVar[bool] = False  # wide matrix products of a compiled step by oneDNN
    probe_every: ClassVar[int] = 100  # updates between two looks at the hidden units, which cost a forward pass

    def __init_subclass__(cls, **options: Any) -> None:
        """Take `config_class` from the brackets of `Learner[PPOConfig]`."""
        super().__init_subclass__(**options)
        for base in cls.__dict__.get("__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, AlgorithmConfig):
                    cls.config_class = argument

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        if not isinstance(config.algo_kwargs, self.config_class):
            raise ConfigError(
                f"algo: {type(self).__name__} needs a {self.config_class.__name__}, but the settings of this "
                f"{config.algo} run are a {type(config.algo_kwargs).__name__}",
                key="algo",
            )
        self.config = cast(Config, config.algo_kwargs)
        self.spaces = spaces
        self.model_config = config.model
        self.total_timesteps = config.total_timesteps
        self.num_envs = config.num_envs
        self.note: Callable[[str], None] = lambda text: None  # a run shows such lines above its progress
        self.compiles = config.compile == "on" and self.config.why_not_compilable() is None
        self.device = resolve_device(config.device)
        self.low_precision = config.precision == "bfloat16"
        self.streams = streams
        self.clock = Clock()
        self.updates = 0
        self.reward_scale, self.reward_clip = self.config.reward_scale, self.config.reward_clip
        normalizes = isinstance(self.config, RolloutConfig) and self.config.normalize_rewards
        self.return_normalizer = ReturnNormalizer(self.config.gamma, self.num_envs) if normalizes else None
        self._scheduled_optimizers: list[tuple[Optimizer, Schedule]] = []
        self._acting_tensors: list[Tensor] | None = None

    # What an algorithm does.

    def act(
        self,
        obs: np.ndarray,
        *,
        explore: bool,
        episode_starts: np.ndarray | None = None,
        memory: Any = None,
    ) -> Action:
        """Actions for encoded observations [N, ...]. Without `explore` it is deterministic and draws no numbers.

        This one asks the policy of an on-policy model: actions with their log-probabilities.
        """
        return Action(*self.model.act(obs, self.streams["exploration"] if explore else None))

    def traced_acting(self) -> TracedActing | None:
        """How `act` explores in a compiled rollout, or None if that has no such form.

        This one samples from a policy of vectors, if no subclass has changed how that acts.
        """
        samples = self._only_samples() and samples_as_traced(self.model)
        return policy_sampling(self.model) if samples and takes_vectors(self.model) else None

    def _only_samples(self) -> bool:
        return type(self).act is Learner.act

    def replay_columns(self, spaces: Spaces) -> Mapping[str, Column]:
        """What a replay of rollouts keeps of each step beside the transition: extras of `act`, by name."""
        return {}

    def remember(self, obs: np.ndarray, episode_starts: np.ndarray, memory: Any) -> Any:
        """The memory after observations that others choose actions for, such as the random warm-up."""
        return memory

    def take_place(self, index: int) -> None:
        """Act from here on as actor `index` of the run. Actors that explore alike need not know their place."""

    @abstractmethod
    def update(self, batch: Any) -> UpdateResult:
        """Learn from one rollout or one replay batch, whose rewards are shaped already."""

    # What the training loop does for it.

    def observe(self, obs: np.ndarray, valid: np.ndarray | None = None) -> None:
        """Take new observations, the valid ones, into the model's statistics if it keeps any; each of them once."""
        if (moments := self.moments_of(obs, valid)) is not None:
            self.observe_moments(moments)

    def moments_of(self, obs: np.ndarray, valid: np.ndarray | None = None) -> Moments | None:
        """What `observe` takes into the statistics, if the model keeps any and there is something to take."""
        normalizer = getattr(self.model, "normalizer", None)
        if normalizer is None:
            return None
        if self.spaces.mask_size:
            obs = obs[..., : -self.spaces.mask_size]
        rows = obs if valid is None else obs[valid]
        moments: Moments | None = normalizer.moments_of(rows) if len(rows) else None
        return moments

    def observe_moments(self, moments: Moments) -> None:
        """`observe` of observations that are elsewhere."""
        self.model.normalizer.merge(moments)

    def episodes(self, finished: Sequence[FinishedEpisode]) -> None:
        """Hear of the training episodes that ended in this step. Only the replay loop tells, after its updates."""

    def shape_rewards(self, rewards: np.ndarray) -> np.ndarray:
        """Scale, then clip. The return that is logged stays raw."""
        if self.reward_scale != 1.0:
            rewards = rewards * np.float32(self.reward_scale)
        if self.reward_clip is not None:
            rewards = np.clip(rewards, -self.reward_clip, self.reward_clip)
        return rewards

    # What an actor in another process needs.

    def acting_tensors(self) -> list[Tensor]:
        """The tensors that `act` reads, in as few pieces as possible: the weights and statistics of the model."""
        return [*vectors_of(self.model.parameters()), *self.model.buffers()]

    def acting_state(self) -> list[np.ndarray]:
        """The values of `acting_tensors` as they are now. On the CPU they are views, which follow the learner."""
        return [tensor.cpu().numpy() for tensor in self._acting()]

    def adopt(self, state: Sequence[np.ndarray]) -> None:
        """Act from here on like the learner that `acting_state` came from. Tensors are filled, never replaced."""
        for tensor, array in zip(self._acting(), state, strict=True):
            tensor.copy_(torch.from_numpy(array))

    def _acting(self) -> list[Tensor]:
        """`acting_tensors`, collected once: to walk through the modules takes longer than to copy small networks."""
        if self._acting_tensors is None:
            self._acting_tensors = [tensor.detach() for tensor in self.acting_tensors()]
        return self._acting_tensors

    # What an algorithm is built from.

    def build(self, make: Callable[[], Network]) -> Network:
        """The network that `make` constructs, with weights from the run's `init` stream, on the run's device.

        torch's global generator is left as it was. Networks that do not fit into memory are a ConfigError.
        """
        with torch.random.fork_rng(devices=[]), networks_within_memory():
            torch.manual_seed(self.streams.seed_for("init"))
            network = make().to(self.device)
        if self.low_precision:
            use_low_precision(network)
        return network

    def add_optimizer(
        self, trained: nn.Module | Iterable[nn.Parameter], learning_rate: Schedule, **settings: Any
    ) -> Optimizer:
        """An optimizer that `set_learning_rates` keeps on its schedule; it clips gradients as the config says."""
        parameters = trained.parameters() if isinstance(trained, nn.Module) else trained
        optimizer = Optimizer(parameters, **({"max_grad_norm": self.config.max_grad_norm} | settings))
        self._scheduled_optimizers.append((optimizer, learning_rate))
        return optimizer

    def set_learning_rates(self) -> None:
        for optimizer, learning_rate in self._scheduled_optimizers:
            optimizer.set_learning_rate(self.scheduled(learning_rate))

    def compiled(self, step: Callable[..., Any], *, rows: int) -> Callable[..., Any]:
        """`step(batch, ...)`, compiled if the run asks for it; `rows` is the usual size of a batch."""
        if not self.compiles:
            return step
        return CompiledStep(step, rows, lambda text: self.note(text), fast_products=self.fast_products)

    def probe(self, forward: Callable[[], Any]) -> Metrics:
        """The share of dead units in a call of `forward`, in every `probe_every`-th update; else nothing."""
        share = None if self.updates % self.probe_every else dead_units(self.model, forward)
        return {} if share is None else {"dead_units": share}

    # Time and state.

    @property
    def env_steps(self) -> int:
        return self.clock.env_steps

    def scheduled(self, schedule: Schedule) -> float:
        """The value of a schedule at this point of the run."""
        return schedule.at(self.clock.env_steps, self.total_timesteps)

    def scheduled_tensor(self, schedule: Schedule) -> Tensor:
        """`scheduled` as a metric, or for a compiled step, which would keep a Python number as it is now."""
        return torch.tensor(self.scheduled(schedule), device=self.device)

    def _parts(self) -> dict[str, Any]:
        """Everything that has state, by name; the counter of a copied target counts as a part."""
        parts = {name: part for name, part in vars(self).items() if hasattr(part, "state_dict")}
        targets = {name: part for name, part in parts.items() if isinstance(part, TargetNetwork)}
        parts |= {f"{name}_copies": part.copies for name, part in targets.items() if part.copies is not None}
        return dict(sorted(parts.items()))

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "parts": {name: part.state_dict() for name, part in self._parts().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        parts = self._parts()
        if parts.keys() != state["parts"].keys():
            odd = ", ".join(sorted(parts.keys() ^ state["parts"].keys()))
            raise ValueError(f"the saved parts do not fit this learner: {odd}")
        check_same_encoder(state["parts"].get("model", ()), self.model.state_dict())
        for name, part_state in state["parts"].items():
            parts[name].load_state_dict(part_state)
        self.updates = int(state["updates"])


def resolve_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not device_is_here(name):
        count = f"there are {torch.cuda.device_count()} CUDA devices" if name.startswith("cuda") else "torch has none"
        raise ConfigError(
            f"device: {name} is not available here ({count}), use device=auto or device=cpu", key="device"
        )
    return torch.device(name)


def device_is_here(name: str) -> bool:
    """Whether torch can use the device."""
    kind, _, index = name.partition(":")
    if kind == "mps":
        return torch.backends.mps.is_available()
    return kind != "cuda" or (torch.cuda.is_available() and int(index or 0) < torch.cuda.device_count())
