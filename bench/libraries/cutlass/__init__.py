"""Cases of `device.cutlass`."""
