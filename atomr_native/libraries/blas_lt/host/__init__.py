"""Matrix products on the host device, by NumPy and SciPy's BLAS."""
