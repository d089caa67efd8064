"""A device's memory: the allocator's segments, transfers, staging, growth, durable groups."""
