"""`train_ppg`: the algorithm is in algorithms/ppg.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_ppg = trainer("ppg")
