"""Device code of random numbers, and the formulas that the host device shares with it."""
