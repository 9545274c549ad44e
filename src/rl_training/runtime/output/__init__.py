"""What a run leaves behind: checkpoints, metric lines and their sinks, crash reports, the result."""
