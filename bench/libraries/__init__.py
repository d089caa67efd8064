"""Cases of the libraries, a folder a library under its own name; see `bench.cases`."""
