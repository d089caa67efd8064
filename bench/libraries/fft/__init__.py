"""Cases of `device.fft`."""
