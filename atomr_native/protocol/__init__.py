"""The protocol between program and workers: frames with descriptors, messages, errors on the wire."""
