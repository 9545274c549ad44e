"""R2D2 on CartPole-v1 without velocities: train the packaged preset and evaluate the agent."""

from reference_run import main

if __name__ == "__main__":
    main("r2d2/cartpole_masked", __doc__)
