"""Expressions on CUDA devices, as generated CUDA C++."""
