"""Actors that step the environments of a run, and the learner's side of them."""
