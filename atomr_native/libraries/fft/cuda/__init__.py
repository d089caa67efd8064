"""Fourier transforms on CUDA devices, by cuFFT."""
