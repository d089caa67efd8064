"""Benchmarks: ``python -m bench`` measures atomr_native beside its C twins and its Python peers.

Every figure comes from interleaved rounds in one run on an idle machine; nothing here is a test of speed,
and no test asserts a time.
"""
