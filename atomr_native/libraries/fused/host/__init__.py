"""Fused operations on the host device, by NumPy."""
