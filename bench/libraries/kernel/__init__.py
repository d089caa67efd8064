"""Cases of users' kernels, `device.kernel` and `device.cuda_kernel`."""
