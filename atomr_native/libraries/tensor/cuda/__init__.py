"""Builders of tensor operations for CUDA devices."""
