"""Bytes of arrays, from process to process: by descriptors on one machine, and by TCP between machines.

Each process that has arrays of others' interest runs a `Server`; receivers ask it, so a transfer involves no engine.
"""
