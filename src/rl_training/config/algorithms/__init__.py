"""The settings of each algorithm: `config/algorithms/x.py` belongs to `algorithms/x.py`. No torch here."""
