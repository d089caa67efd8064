"""Cases of messages: sending, asking, awaiting, order, placement and restarts."""
