"""Compiled gradient steps: trace one call, turn it into a graph, compile the graph."""
