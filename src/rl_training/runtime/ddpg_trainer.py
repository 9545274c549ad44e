"""`train_ddpg`: the algorithm is in algorithms/ddpg.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_ddpg = trainer("ddpg")
