"""Cases of actors written in Python."""
