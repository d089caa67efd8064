"""Cases of messages that several devices run together."""
