"""Expressions on the host device, by NumPy."""
