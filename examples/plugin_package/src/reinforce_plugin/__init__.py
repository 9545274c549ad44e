"""The row of the algorithm. The classes are addresses, so a list of algorithms does not import torch."""

from __future__ import annotations

from rl_training.config.algorithm_table import EVERY_ACTION, Algorithm

REINFORCE = Algorithm(
    "reinforce",
    title="REINFORCE with a baseline",
    paper="Machine Learning 8 (1992)",
    loop="on-policy",
    actions=EVERY_ACTION,
    config="reinforce_plugin.reinforce:ReinforceConfig",
    learner="reinforce_plugin.reinforce:Reinforce",
)
