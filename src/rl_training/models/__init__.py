"""Networks and distributions. Everything a policy needs to act, normalisation too, is inside the model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.models.mlp_actor_critic import MLPActorCritic
    from rl_training.models.mlp_continuous import MLPDeterministicActorCritic, MLPSquashedGaussianActorCritic
    from rl_training.models.mlp_mpo import MLPMPOModel
    from rl_training.models.mlp_naf import MLPNAFModel
    from rl_training.models.mlp_ppg import MLPPPGModel
    from rl_training.models.mlp_q import MLPQNetwork

_HOMES = {
    "MLPActorCritic": "mlp_actor_critic",
    "MLPDeterministicActorCritic": "mlp_continuous",
    "MLPMPOModel": "mlp_mpo",
    "MLPNAFModel": "mlp_naf",
    "MLPPPGModel": "mlp_ppg",
    "MLPQNetwork": "mlp_q",
    "MLPSquashedGaussianActorCritic": "mlp_continuous",
}

__all__ = [
    "MLPActorCritic",
    "MLPDeterministicActorCritic",
    "MLPMPOModel",
    "MLPNAFModel",
    "MLPPPGModel",
    "MLPQNetwork",
    "MLPSquashedGaussianActorCritic",
]


def __getattr__(name: str) -> Any:
    # On demand: torch takes long to import.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
