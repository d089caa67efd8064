"""Device code of quantisation."""
