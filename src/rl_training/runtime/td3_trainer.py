"""`train_td3`: the algorithm is in algorithms/td3.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_td3 = trainer("td3")
