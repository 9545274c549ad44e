"""Models with memory."""
