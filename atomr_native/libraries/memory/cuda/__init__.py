"""Copies, fills and durable groups on CUDA devices."""
