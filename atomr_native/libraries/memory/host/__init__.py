"""Copies, fills and durable groups on the host device."""
