"""Pieces of device code that several shipped kernels use."""
