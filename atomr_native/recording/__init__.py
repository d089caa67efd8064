"""Recorded programs: messages listed once, and sent as one message any number of times."""
