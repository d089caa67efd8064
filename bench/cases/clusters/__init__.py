"""Cases of clusters on Ray."""
