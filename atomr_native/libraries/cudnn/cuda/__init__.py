"""Graphs of cuDNN on GPUs."""
