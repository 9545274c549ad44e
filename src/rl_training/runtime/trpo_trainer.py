"""`train_trpo`: the algorithm is in algorithms/trpo.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_trpo = trainer("trpo")
