"""An encoder of the user: any `nn.Module` class that says how many features it returns."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from rl_training.config.model_config import ModelConfig
from rl_training.config.own_classes import given_class, is_allowed
from rl_training.envs.env_specs import import_user_module
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError, RLTrainingError, raise_interrupts
from rl_training.models.encoders.observation_views import ObservationViews, quiet_rows, seen_space
from rl_training.text import clean_text, describe_error, one_line

TRIAL_ROWS = 2


class OwnEncoder(nn.Module):
    """`MyEncoder(observation_space, **encoder_kwargs)` on observations in the form of that space.

    It is tried once before training, so that a wrong shape is one line and not an error within a step.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig):
        super().__init__()
        self.mask_size = spaces.mask_size
        given = given_class(config.encoder)  # may have another name than the config, if it was passed for a checkpoint
        self.name = config.encoder.partition(":")[2] if given is None else clean_text(given.__name__, 60)
        self.is_finite = True  # on the observations that it was tried with
        self._views = ObservationViews(spaces)
        self.network = self._build(_class_of(config.encoder), spaces, config.encoder_kwargs)
        self.output_size = self._features()
        rows = torch.from_numpy(quiet_rows(spaces, TRIAL_ROWS))
        if any(is_lazy(tensor) for _, tensor in self._tensors()):
            with torch.no_grad():
                self(rows)  # lazy layers take their shape and their first weights from it
        self._try(rows)
        self._check_parameters(rows)

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
            network: nn.Module = given(seen_space(spaces), **kwargs)
        except BaseException as error:
            raise _failure(f"{self.name}(observation_space, **encoder_kwargs) failed", error) from error
        return network

    def _features(self) -> int:
        try:
            size = getattr(self.network, "out_features", None)
        except BaseException as error:
            raise _failure(f"out_features of {self.name} failed", error) from error
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            number = "the number of its outputs, an int >= 1"
            if size is None:
                raise _refusal(f"{self.name} has no out_features; set self.out_features to {number}")
            raise _refusal(f"out_features of {self.name} is {one_line(repr(size), 60)}; it must be {number}")
        return size

    @torch.no_grad()
    def _try(self, rows: Tensor) -> None:
        """Call the network with several rows and with one, as one environment does.

        Its shapes must fit, and it must neither draw random numbers nor change itself or what it is given.
        """
        generator = torch.get_rng_state()
        # A tensor counts its changes. Comparing values would miss a statistic that has already settled.
        state = {name: (tensor, tensor._version) for name, tensor in self._tensors()}
        given = rows._version
        for batch in (rows, rows[:1]):
            self._check_outputs(self(batch), len(batch))
            self._check_nothing_new(state)
            if not torch.equal(generator, torch.get_rng_state()):
                raise _refusal(
                    f"{self.name} draws random numbers in forward, which a resumed run could not repeat; "
                    "remove dropout and noise"
                )
            if any(part is not state[name][0] or part._version != state[name][1] for name, part in self._tensors()):
                raise _refusal(
                    f"{self.name} changes its buffers in forward, so acting would change it; use LayerNorm "
                    "in place of BatchNorm"
                )
            if rows._version != given:
                raise _refusal(
                    f"{self.name} changes the observations that it is given, which others use too; replace operations "
                    "in place, such as mul_ and +=, by new tensors"
                )

    def _check_nothing_new(self, known: Container[str]) -> None:
        """A tensor that comes into being in forward is neither moved nor restored with the others."""
        for kind, tensors in (
            ("parameter", self.network.named_parameters()),
            ("buffer", self.network.named_buffers()),
        ):
            for name, _ in tensors:
                if name not in known:
                    raise _refusal(f"{self.name} creates the {kind} {name} in forward; make it in __init__")

    def _check_outputs(self, outputs: Any, rows: int) -> None:
        shape = tuple(getattr(outputs, "shape", ()))
        if not isinstance(outputs, Tensor) or shape != (rows, self.output_size):
            found = shape if isinstance(outputs, Tensor) else type(outputs).__name__
            raise _refusal(
                f"{self.name} returned {found} for {rows} observation{'s' * (rows > 1)}, expected "
                f"{(rows, self.output_size)}, because its out_features is {self.output_size}"
            )
        if outputs.dtype != torch.float32:
            raise _refusal(f"{self.name} returned {outputs.dtype}, expected torch.float32; convert its output")
        # No refusal: the env may never send such an observation, and older agents must load.
        self.is_finite = self.is_finite and bool(outputs.isfinite().all())

    def _check_parameters(self, rows: Tensor) -> None:
        """Every parameter that learns must be float32, and the output must depend on it."""
        learning = {name: parameter for name, parameter in self.network.named_parameters() if parameter.requires_grad}
        for name, parameter in learning.items():
            if parameter.dtype != torch.float32:
                raise _refusal(
                    f"{self.name} has the parameter {name} of {parameter.dtype}, expected torch.float32; convert it "
                    "with .float(), or freeze it with requires_grad_(False)"
                )
        if not learning:
            return
        with torch.enable_grad():
            total = self(rows).sum()
        gradients: tuple[Tensor | None, ...] = (None,) * len(learning)
        if total.requires_grad:
            gradients = torch.autograd.grad(total, list(learning.values()), allow_unused=True)
        unused = [name for name, gradient in zip(learning, gradients, strict=True) if gradient is None]
        if unused:
            raise _refusal(
                f"{self.name} has the parameter {unused[0]}, but its output has no gradient in it; remove it, or "
                "freeze it with requires_grad_(False)"
            )

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.network.named_parameters()
        yield from self.network.named_buffers()

    @torch.no_grad()
    def seconds_per_call(self, rows: Tensor) -> float:
        """The time of one call on these rows: the shortest of a few."""
        times = []
        for _ in range(5):
            started = time.perf_counter()
            self(rows)
            times.append(time.perf_counter() - started)
        return min(times)


def notes_on(model: Any, spaces: Spaces, num_envs: int) -> list[str]:
    """What a user should know about the encoder of a run, once."""
    if (price := price_of(model, spaces, num_envs)) is None:
        return spaces.flat_pictures()
    if model.encoder.is_finite:
        return [price]
    return [
        price,
        f"{model.encoder.name} returns numbers that are not finite for observations of zeros; if the env sends one, "
        "the run stops there: keep divisions and logarithms away from zero",
    ]


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
        if module == "__main__":  # trusted, but this program is another one than the script
            raise _refusal(not_trusted(name)) from None
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
    if module == "__main__":
        return (
            f"{name} is code of a script or notebook, which no other program can import; if you know it, pass "
            f"encoder={attribute} in Python, and put it into a module before you train again"
        )
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
