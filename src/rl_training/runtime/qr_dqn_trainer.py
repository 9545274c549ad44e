"""`train_qr_dqn`: the algorithm is in algorithms/qr_dqn.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_qr_dqn = trainer("qr_dqn")
