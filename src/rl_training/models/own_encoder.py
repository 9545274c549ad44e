"""An encoder of the user: any `nn.Module` class that says how many features it returns."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.config.model_config import ModelConfig
from rl_training.config.own_classes import given_class, is_allowed
from rl_training.envs.env_specs import import_user_module
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError, RLTrainingError, raise_interrupts
from rl_training.models.observation_views import ObservationViews
from rl_training.text import describe_error

TRIAL_ROWS = 2


class OwnEncoder(nn.Module):
    """`MyEncoder(observation_space, **encoder_kwargs)` on observations in the form of that space.

    It is tried once before training, so that a wrong shape is one line and not an error within a step.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig):
        super().__init__()
        self.mask_size = spaces.mask_size
        self.name = config.encoder.partition(":")[2]
        self._views = ObservationViews(spaces)
        self.network = self._build(_class_of(config.encoder), spaces, config.encoder_kwargs)
        self.output_size = self._features()
        self._try(torch.zeros((TRIAL_ROWS, *spaces.feature_shape), dtype=_torch_type(spaces)))

    def forward(self, rows: Tensor) -> Tensor:
        try:
            features: Tensor = self.network(self._views(rows))
        except BaseException as error:
            raise _failure(f"{self.name} failed on a batch of {len(rows)}", error) from error
        return features

    def _build(self, given: type[Any], spaces: Spaces, kwargs: dict[str, Any]) -> nn.Module:
        if not issubclass(given, nn.Module):
            raise _refusal(f"{self.name} is not a subclass of torch.nn.Module, make it one")
        try:
            network: nn.Module = given(spaces.observation_space, **kwargs)
        except BaseException as error:
            raise _failure(f"{self.name}(observation_space, **encoder_kwargs) failed", error) from error
        return network

    def _features(self) -> int:
        try:
            size = getattr(self.network, "out_features", None)
        except BaseException as error:
            raise _failure(f"out_features of {self.name} failed", error) from error
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise _refusal(
                f"{self.name} has no out_features; set self.out_features to the number of its outputs, an integer >= 1"
            )
        return size

    @torch.no_grad()
    def _try(self, rows: Tensor) -> None:
        """Run the network once: its shape must fit, and it must neither draw random numbers nor change itself."""
        generator = torch.get_rng_state()
        state = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        outputs = self(rows)
        shape = tuple(getattr(outputs, "shape", ()))
        if not isinstance(outputs, Tensor) or shape != (TRIAL_ROWS, self.output_size):
            found = shape if isinstance(outputs, Tensor) else type(outputs).__name__
            raise _refusal(
                f"{self.name} returned {found} for {TRIAL_ROWS} observations, expected "
                f"{(TRIAL_ROWS, self.output_size)}, because its out_features is {self.output_size}"
            )
        if outputs.dtype != torch.float32:
            raise _refusal(f"{self.name} returned {outputs.dtype}, expected torch.float32; convert its output")
        if not torch.equal(generator, torch.get_rng_state()):
            raise _refusal(
                f"{self.name} draws random numbers in forward, which a resumed run could not repeat; "
                "remove dropout and noise"
            )
        if any(not torch.equal(tensor, self.network.state_dict()[name]) for name, tensor in state.items()):
            raise _refusal(
                f"{self.name} changes its buffers in forward, so acting would change it; use LayerNorm "
                "in place of BatchNorm"
            )

    @torch.no_grad()
    def seconds_per_call(self, rows: Tensor) -> float:
        """The time of one call on these rows: the shortest of a few."""
        times = []
        for _ in range(5):
            started = time.perf_counter()
            self(rows)
            times.append(time.perf_counter() - started)
        return min(times)


def price_of(model: Any, spaces: Spaces, num_envs: int) -> str | None:
    """What acting through an encoder of the user's own costs here, in words; None without such an encoder."""
    encoder = getattr(model, "encoder", None)
    if not isinstance(encoder, OwnEncoder):
        return None
    rows = torch.zeros((num_envs, *spaces.feature_shape), dtype=_torch_type(spaces))
    seconds = encoder.seconds_per_call(rows.to(next(model.parameters()).device))
    return (
        f"{encoder.name} has no NumPy form, so acting calls it through torch: {seconds * 1e3:.2g} ms for each step of "
        f"{num_envs} environment{'s' * (num_envs > 1)}"
    )


def _class_of(name: str) -> type[Any]:
    """The class that was handed over under this name, or the one of its module if that is allowed."""
    given = given_class(name)
    if given is not None:
        return given
    module, _, attribute = name.partition(":")
    if not is_allowed(name):
        raise _refusal(not_trusted(name))
    try:
        found = getattr(import_user_module(module), attribute)
    except BaseException as error:  # the module is the user's, and may raise anything
        raise_interrupts(error)
        raise _refusal(
            f"{name} cannot be imported ({describe_error(error)}); correct the name, or pass the class in Python "
            "(encoder=...)"
        ) from None
    if not isinstance(found, type):
        raise _refusal(f"{name} is not a class; name a subclass of torch.nn.Module")
    return found


def not_trusted(name: str) -> str:
    """Why a name from a checkpoint is not followed, and what to do if it should be."""
    module, _, attribute = name.partition(":")
    return (
        f"{name} is code of the module {module}, which is not trusted; if you know it, pass encoder={attribute} or "
        f"trust={module!r} in Python, or --trust {module}"
    )


def _failure(what: str, error: BaseException) -> RLTrainingError:
    """The error for what the code of the user raised, which may be anything: `sys.exit` must not end a run quietly."""
    raise_interrupts(error)
    return error if isinstance(error, RLTrainingError) else _refusal(f"{what}: {describe_error(error)}")


def _torch_type(spaces: Spaces) -> torch.dtype:
    return torch.uint8 if spaces.observation_dtype.name == "uint8" else torch.float32


def _refusal(text: str) -> ConfigError:
    return ConfigError(f"model.encoder: {text}", key="model.encoder")
