"""`train_droq`: the algorithm is in algorithms/redq.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_droq = trainer("droq")
