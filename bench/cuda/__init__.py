"""C programs that need a CUDA device, and the Python libraries that are measured beside them."""
