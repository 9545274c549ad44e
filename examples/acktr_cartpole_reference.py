"""ACKTR on CartPole-v1: train the packaged preset and evaluate the agent."""

from reference_run import main

if __name__ == "__main__":
    main("acktr/cartpole", __doc__)
