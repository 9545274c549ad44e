"""`train_recurrent_ppo`: the algorithm is in contrib/recurrent_ppo.py, the loop in runtime/loops.py."""

from rl_training.runtime.trainer import trainer

train_recurrent_ppo = trainer("recurrent_ppo")
