"""Checks before a run: the machine, an environment, and a planned run."""
