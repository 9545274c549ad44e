"""Networks and distributions. Everything a policy needs to act, normalization too, is inside the model.

A network `mlp_x.py` belongs to an algorithm or a family. What it is made of is in `layers/`, `encoders/` and `cnn/`;
networks with a memory are in `recurrent/`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.models.mlp_acer import MLPACERModel
    from rl_training.models.mlp_actor_critic import MLPActorCritic
    from rl_training.models.mlp_c51 import MLPC51Network
    from rl_training.models.mlp_continuous import MLPDeterministicActorCritic, MLPSquashedGaussianActorCritic
    from rl_training.models.mlp_crossq import MLPCrossQModel
    from rl_training.models.mlp_d4pg import MLPD4PGModel
    from rl_training.models.mlp_iqn import MLPIQNNetwork
    from rl_training.models.mlp_mpo import MLPMPOModel
    from rl_training.models.mlp_naf import MLPNAFModel
    from rl_training.models.mlp_ppg import MLPPPGModel
    from rl_training.models.mlp_q import MLPQNetwork
    from rl_training.models.mlp_quantiles import MLPQuantileNetwork
    from rl_training.models.mlp_rainbow import MLPRainbowNetwork
    from rl_training.models.mlp_redq import MLPREDQModel
    from rl_training.models.mlp_td7 import MLPTD7Model
    from rl_training.models.mlp_tqc import MLPTQCModel
    from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic
    from rl_training.models.recurrent.recurrent_q import RecurrentQNetwork

_HOMES = {
    "LSTMActorCritic": "recurrent.lstm_actor_critic",
    "MLPACERModel": "mlp_acer",
    "MLPActorCritic": "mlp_actor_critic",
    "MLPC51Network": "mlp_c51",
    "MLPCrossQModel": "mlp_crossq",
    "MLPD4PGModel": "mlp_d4pg",
    "MLPDeterministicActorCritic": "mlp_continuous",
    "MLPIQNNetwork": "mlp_iqn",
    "MLPMPOModel": "mlp_mpo",
    "MLPNAFModel": "mlp_naf",
    "MLPPPGModel": "mlp_ppg",
    "MLPQNetwork": "mlp_q",
    "MLPQuantileNetwork": "mlp_quantiles",
    "MLPREDQModel": "mlp_redq",
    "MLPRainbowNetwork": "mlp_rainbow",
    "MLPSquashedGaussianActorCritic": "mlp_continuous",
    "MLPTD7Model": "mlp_td7",
    "MLPTQCModel": "mlp_tqc",
    "RecurrentQNetwork": "recurrent.recurrent_q",
}

__all__ = [
    "LSTMActorCritic",
    "MLPACERModel",
    "MLPActorCritic",
    "MLPC51Network",
    "MLPCrossQModel",
    "MLPD4PGModel",
    "MLPDeterministicActorCritic",
    "MLPIQNNetwork",
    "MLPMPOModel",
    "MLPNAFModel",
    "MLPPPGModel",
    "MLPQNetwork",
    "MLPQuantileNetwork",
    "MLPREDQModel",
    "MLPRainbowNetwork",
    "MLPSquashedGaussianActorCritic",
    "MLPTD7Model",
    "MLPTQCModel",
    "RecurrentQNetwork",
]


def __getattr__(name: str) -> Any:
    # On demand: torch takes long to import.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
