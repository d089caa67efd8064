"""Cases of what the library does itself, a folder a subject; those of the libraries are in `bench.libraries`.

Each module has a tuple ``CASES``.  A case asks the public API only, and imports the package inside `device`, so that
twins and peers run without it.  Modules whose names begin with an underscore, and ``twin.c`` and ``native/*.c``, are
theirs alone.
"""
