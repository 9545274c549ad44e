"""`train_appo`: the algorithm is in algorithms/appo.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_appo = trainer("appo")
