"""The solver's routines on GPUs, by cuSOLVER and cuBLAS."""
