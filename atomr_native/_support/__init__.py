"""Helpers without knowledge of devices: argument checks, time-outs, threads, the disk cache, the console."""
