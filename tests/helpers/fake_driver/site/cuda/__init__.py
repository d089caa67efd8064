"""A stand-in for the namespace of NVIDIA's packages, found before a regular package `cuda` that is installed.

What it does not replace comes from there.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
