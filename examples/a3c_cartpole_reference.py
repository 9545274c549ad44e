"""A3C on CartPole-v1, with four actors: train the packaged preset and evaluate the agent."""

from reference_run import main

if __name__ == "__main__":
    main("a3c/cartpole", __doc__)
