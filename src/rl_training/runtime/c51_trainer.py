"""`train_c51`: the algorithm is in algorithms/c51.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_c51 = trainer("c51")
