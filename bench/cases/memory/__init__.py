"""Cases of memory: allocation, and copies to a GPU and back."""
