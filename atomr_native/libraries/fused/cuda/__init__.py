"""Launches of the fused kernels on CUDA devices."""
