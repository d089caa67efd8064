"""Workers of the host device."""
