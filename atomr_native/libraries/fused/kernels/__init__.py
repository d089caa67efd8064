"""Device code of the fused operations."""
