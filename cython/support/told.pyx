"""Functions with another answer to keywords that they do not know; see atomr_native/_support/options.py."""

cdef extern from "support/told_function.h":
    object told_type()

ToldFunction = told_type()


def _function():
    """Lend its type."""


#: The type of functions of this package's native modules.
NativeFunction = type(_function)
