"""What runs: workflows make a session, and a session goes through a loop.

`setup/` is what a run is made from, `collection/` steps its environments, `fleet/` has its actors, `callbacks/` watch
it, and `output/` is what it leaves behind. `x_trainer.py` is the training function of the algorithm `x`.
"""
