"""Pieces of CUDA plans: targets, code generation, sequences of native steps, workspaces, the tuner."""
