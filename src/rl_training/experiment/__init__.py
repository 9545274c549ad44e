"""Loading configs, the table of algorithms, and the management of runs."""
