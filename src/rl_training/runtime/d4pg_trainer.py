"""`train_d4pg`: the algorithm is in algorithms/d4pg.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_d4pg = trainer("d4pg")
