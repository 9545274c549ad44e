"""`train_td7`: the algorithm is in algorithms/td7.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_td7 = trainer("td7")
