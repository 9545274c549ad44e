"""`train_iqn`: the algorithm is in algorithms/iqn.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_iqn = trainer("iqn")
