"""`train_a2c`: the algorithm is in algorithms/a2c.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_a2c = trainer("a2c")
