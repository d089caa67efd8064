"""Matrices with two numbers in each four: pruning, compression, and products by sparse tensor cores."""
