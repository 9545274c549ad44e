"""Recurrent PPO on CartPole-v1 without velocities: train the packaged preset and evaluate the agent."""

from reference_run import main

if __name__ == "__main__":
    main("recurrent_ppo/cartpole_masked", __doc__)
