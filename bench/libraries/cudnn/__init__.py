"""Benchmarks of cuDNN."""
