"""Only for other modules of this package: it has no names for Python."""
