"""Steps of training environments: the collector, the ends of episodes, and the rollouts that it writes."""
