"""How agents are scored: constants that training, the command line and the zoo share. Imports nothing."""

from __future__ import annotations

FIRST_EVAL_SEED = 10_000  # episode i is reset with this seed + i, far from the seeds of training
SCORE_EPISODES = 100  # per seed, for the tables of the zoo
LONGEST_EPISODE = 200_000  # default of `eval_max_steps`: beyond every episode of the presets, a game of Atari too
MOST_EPISODES = 1_000_000  # of one evaluation
