"""`train_pqn`: the algorithm is in algorithms/pqn.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_pqn = trainer("pqn")
