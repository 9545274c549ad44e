"""The commands of `rl-training`, one module each, and what they share: options, output and JSON observations."""
