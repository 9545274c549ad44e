"""`train_mpo`: the algorithm is in algorithms/mpo.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_mpo = trainer("mpo")
