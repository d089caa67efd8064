"""Matrix products on CUDA devices, by cuBLASLt and kernels beside it."""
