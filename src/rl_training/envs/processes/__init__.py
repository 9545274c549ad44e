"""Environments in processes of their own: the async vector env, its workers and what starts and ends them."""
