"""Parts of networks: layers with their NumPy forms, first weights, precision."""
