"""Boards of wall time: how long a user waits for a solved task, and what a machine has learned after some minutes."""
