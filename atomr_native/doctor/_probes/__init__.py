"""Probes that the doctor runs in separate processes; each module has a `main` that writes JSON at its end.

`..subprocesses.command` starts them without importing the package, so they do not use it.
"""
