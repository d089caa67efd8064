"""The life of a device: supervision and restart, control, statistics, configuration."""
