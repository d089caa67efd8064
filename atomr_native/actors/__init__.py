"""Actors of the program's own, beside those of the library; see docs/actors.md."""
