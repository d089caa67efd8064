"""Cases of `device.tensor`."""
