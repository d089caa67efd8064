"""A stand-in for NVIDIA's bindings, for workers on the fake driver: only NVRTC is there."""

__version__ = "13.0.0"
