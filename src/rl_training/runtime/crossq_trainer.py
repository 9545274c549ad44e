"""`train_crossq`: the algorithm is in algorithms/crossq.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_crossq = trainer("crossq")
