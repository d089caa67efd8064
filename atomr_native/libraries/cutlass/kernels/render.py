"""From a description to a source: each family has a module of its own."""

from __future__ import annotations

from . import checks, convolution80, gemm80, gemm90, grouped80, grouped90
from .kernel import Kernel
from .rendering import Rendered

__all__ = ["check", "render"]

check = checks.check
_FAMILIES = {
    ("convolution", "sm_80"): convolution80.render,
    ("gemm", "sm_80"): gemm80.render,
    ("gemm", "sm_90a"): gemm90.render,
    ("grouped", "sm_80"): grouped80.render,
    ("grouped", "sm_90a"): grouped90.render,
}


def render(kernel: Kernel) -> Rendered:
    """Return the source of a kernel; the same text for equal descriptions.

    Raises
    ------
    Unsupported
        As `check`.
    """
    check(kernel)
    return _FAMILIES[kernel.family, kernel.arch](kernel)
