"""What the doctor runs in processes of their own; each module has a `main` that ends by writing JSON.

They are started by `..subprocesses.command` without importing the package, so they use nothing of it.
"""
