"""Callbacks: the base class, those that come with the library, and the list that a session calls."""
