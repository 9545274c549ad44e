"""Typed settings of a run. Nothing here imports torch or gymnasium: a bad config is refused at once."""
