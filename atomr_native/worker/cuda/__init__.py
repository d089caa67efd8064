"""Workers of CUDA devices."""
