"""What is on the disk: checkpoints, run directories, replay segments, durable files."""
