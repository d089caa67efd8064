"""From a description to a source: each family has a module of its own."""

from __future__ import annotations

from dataclasses import replace

from . import checks, convolution80, gemm80, gemm90, grouped80, grouped90
from .kernel import Kernel, walk
from .rendering import Rendered
from .tree import STORES
from .types import BITS

__all__ = ["check", "render"]

check = checks.check
_FAMILIES = {
    ("convolution", "sm_80"): convolution80.render,
    ("gemm", "sm_80"): gemm80.render,
    ("gemm", "sm_90a"): gemm90.render,
    ("grouped", "sm_80"): grouped80.render,
    ("grouped", "sm_90a"): grouped90.render,
}
#: Most bits of results whose rounding hides that of short arithmetic.
_SHORT = 16


def render(kernel: Kernel) -> Rendered:
    """Return the source of a kernel; the same text for equal descriptions.

    Raises
    ------
    Unsupported
        As `check`.
    """
    check(kernel)
    stored = [kernel.d.dtype, *(node.dtype for node in walk(kernel.tree) if node.op in STORES)]
    brief = kernel.compute == "float32" and max(BITS[dtype] for dtype in stored) <= _SHORT
    return replace(_FAMILIES[kernel.family, kernel.arch](kernel), brief=brief)
