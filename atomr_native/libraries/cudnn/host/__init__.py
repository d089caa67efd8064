"""Graphs of cuDNN on the host device, by NumPy: the reference."""
