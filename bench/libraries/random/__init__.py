"""Cases of `device.fused`, and of softmax cross entropy."""
