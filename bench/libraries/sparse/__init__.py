"""Cases of `device.sparse`."""
