"""Cases of `device.float8`."""
