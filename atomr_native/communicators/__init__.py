"""Communicators: messages that several devices of one System run together."""
