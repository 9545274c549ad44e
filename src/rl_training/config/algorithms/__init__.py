"""The settings of each algorithm: `config/algorithms/x.py` belongs to `algorithms/x.py`, and nothing else is here.

What several algorithms share is in `common/`. No torch here.
"""
