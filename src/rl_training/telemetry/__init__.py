"""What a run reports: the metric stream, its sinks and the console."""
