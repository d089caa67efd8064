"""Cases of `device.elementwise`."""
