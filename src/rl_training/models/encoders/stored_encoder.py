"""Whether an encoder of the user's own is the one that a checkpoint was trained with: what can be said if it is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.config.own_classes import is_class_name
from rl_training.errors import CheckpointError, ConfigError
from rl_training.models.encoders.own_encoder import OwnEncoder
from rl_training.text import one_line

NOT_THE_ONE = "not the class that the checkpoint was trained with"


def check_class(given: Any, name: str) -> None:
    """Refuse what is passed for the encoder `name` of a checkpoint and is not a class, such as its name."""
    if isinstance(given, type):
        return
    module, _, attribute = name.partition(":")
    shown = one_line(repr(given), 60) if isinstance(given, str) else f"a value of the type {type(given).__name__}"
    # No other program can import a script or notebook.
    trusting = "" if module == "__main__" else f", or trust={module!r}"
    raise ConfigError(f"encoder: {shown} is not a class; pass the class itself, encoder={attribute}{trusting}")


def check_tensors(path: Path, saved: Mapping[str, Any], model: Any) -> None:
    """Refuse a model with an encoder of the user's own whose tensors are not those that the checkpoint has."""
    encoder = next((part for part in model.modules() if isinstance(part, OwnEncoder)), None)
    if encoder is None:
        return
    # A state may also have entries that are no tensors.
    own = {name: tuple(part.shape) for name, part in model.state_dict().items() if hasattr(part, "shape")}
    stored = {name: tuple(part.shape) for name, part in saved.items() if hasattr(part, "shape")}
    for name in [*own, *stored]:
        if own.get(name) != stored.get(name):
            there, here = (str(shapes.get(name, "missing")) for shapes in (stored, own))
            raise CheckpointError(
                f"{path}: {one_line(name, 200)} is {there} in the checkpoint and {here} with {encoder.name}, so that "
                f"is {NOT_THE_ONE}"
            )


def or_other_class(config: Mapping[str, Any]) -> str:
    """The other reason why a model may be too large for a checkpoint: the end of a sentence."""
    model = config.get("model")
    encoder = model.get("encoder") if isinstance(model, Mapping) else None
    return f", or its encoder is {NOT_THE_ONE}" if isinstance(encoder, str) and is_class_name(encoder) else ""
