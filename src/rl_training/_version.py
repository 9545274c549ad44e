"""The version. It is written in this file and nowhere else."""

__version__ = "0.2.0.dev0"
