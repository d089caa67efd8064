"""CUTLASS kernels as CUDA C++: `render` writes the source of a `Kernel`, `check` refuses others."""

from __future__ import annotations

from ....compile.cutlass.compiler import Compiled, compile_kernel, function_ltoir
from .kernel import FUNCTORS, REDUCTIONS, Kernel, Node, Operand, walk
from .render import check, render
from .rendering import Rendered

__all__ = [
    "FUNCTORS",
    "REDUCTIONS",
    "Compiled",
    "Kernel",
    "Node",
    "Operand",
    "Rendered",
    "check",
    "compile_kernel",
    "function_ltoir",
    "render",
    "walk",
]
