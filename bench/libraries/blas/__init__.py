"""Cases of `device.blas`."""
