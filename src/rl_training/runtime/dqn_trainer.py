"""`train_dqn`: the algorithm is in algorithms/dqn.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_dqn = trainer("dqn")
