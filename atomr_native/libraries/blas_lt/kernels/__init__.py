"""Device code of custom epilogues."""
