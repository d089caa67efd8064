"""Kernels for batches of small matrices: a group of the lanes of a warp factors each of them in registers."""
