"""Reading finished and living runs: their scores, curves and records, side by side."""
