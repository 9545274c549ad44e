"""`train_tqc`: the algorithm is in algorithms/tqc.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_tqc = trainer("tqc")
