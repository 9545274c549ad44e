"""`train_sac`: the algorithm is in algorithms/sac.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_sac = trainer("sac")
