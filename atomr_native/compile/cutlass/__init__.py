"""CUTLASS templates compiled at run time by NVRTC, and the parameters of their kernels, without nvcc or a GPU."""
