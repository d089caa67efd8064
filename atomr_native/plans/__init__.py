"""Plans: specifications, calls, the table of a device's plans, replies, workspaces, and the base of library actors."""
