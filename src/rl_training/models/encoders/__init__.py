"""From observations to features: views of the space, running statistics, encoders."""
