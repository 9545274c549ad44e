"""What the command line needs besides its words: output, inspection, observations from JSON."""
