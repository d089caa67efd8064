"""Cases of matrix products by `device.blas_lt`."""
