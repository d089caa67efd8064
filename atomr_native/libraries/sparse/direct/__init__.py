"""Direct solvers of sparse systems: analysis, factorization, solves."""
