"""`train_naf`: the algorithm is in algorithms/naf.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_naf = trainer("naf")
