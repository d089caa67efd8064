"""Actors written in Python by the program, besides the library actors of devices; see docs/actors.md."""
