"""Kernels of transforms in Numba, see `atomr_native.compile.shipped`."""
