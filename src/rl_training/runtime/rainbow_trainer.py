"""`train_rainbow`: the algorithm is in algorithms/rainbow.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_rainbow = trainer("rainbow")
