"""Ape-X with D4PG on Pendulum-v1, with two actors: train the packaged preset and evaluate the agent."""

from reference_run import main

if __name__ == "__main__":
    main("apex_d4pg/pendulum", __doc__)
