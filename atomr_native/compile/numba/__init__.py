"""Numba's CUDA target and simulator; `api` is the only module that imports `numba.cuda`."""
