"""Cases of `device.solver`."""
