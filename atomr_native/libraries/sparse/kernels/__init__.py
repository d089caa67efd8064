"""Device code of sparse products in Numba; imported only to compile or to simulate."""
