"""`train_impala`: the algorithm is in algorithms/impala.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_impala = trainer("impala")
