"""What the algorithms share: mathematics as pure functions, and the base classes of learners."""
