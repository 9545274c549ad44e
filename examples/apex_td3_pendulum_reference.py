"""Ape-X with TD3 on Pendulum-v1, with two actors: train the packaged preset and evaluate the agent."""

from reference_run import main

if __name__ == "__main__":
    main("apex_td3/pendulum", __doc__)
