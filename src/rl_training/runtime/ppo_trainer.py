"""`train_ppo`: the algorithm is in algorithms/ppo.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_ppo = trainer("ppo")
