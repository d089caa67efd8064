"""Fill and copy on CUDA."""

from __future__ import annotations

import math
from typing import Any

from .codegen import MapOperand, alignment, broadcast_strides, convert, kernels, map_kernel
from .target import Built, Target

__all__ = ["build_copy", "build_fill"]


def _map(spec: dict[str, Any], body: list[str], target: Target) -> Built:
    """Build a kernel whose last operand is written, and whose others are read."""
    operands = spec["operands"]
    shape = tuple(operands[-1]["shape"])
    if math.prod(shape) == 0:
        return Built("native", "noop")
    last = len(operands) - 1
    mapped = [
        MapOperand(i, o["dtype"], broadcast_strides(o, shape), i < last, i == last) for i, o in enumerate(operands)
    ]
    source, launch = map_kernel(shape, mapped, spec["scalars"], [], body, target)
    dtypes = {o.dtype for o in mapped}
    return kernels(source, [launch], target, dtypes=dtypes, alignments=[alignment(o.dtype) for o in mapped])


def build_fill(spec: dict[str, Any], target: Target) -> Built:
    """Build ``memory.fill``: operand ``out``, scalars as `memory_ops.fill_scalars` makes them."""
    dtype = spec["operands"][0]["dtype"]
    if dtype.startswith("complex"):
        real = "float" if dtype == "complex64" else "double"
        value = f"make_{'c64' if dtype == 'complex64' else 'c128'}(({real})s0, ({real})s1)"
    else:
        source = spec["scalars"][0]
        value = convert("uint64" if dtype.startswith("u") else source, dtype, "s0")
    return _map(spec, [f"y0 = {value};"], target)


def build_copy(spec: dict[str, Any], target: Target) -> Built:
    """Build ``memory.copy``: operands ``src, out``; no scalars, unless it is a copy of consecutive bytes.

    ``staged``: from memory of the host or to it.
    """
    if spec["raw"]:
        return Built("native", "transfer" if spec.get("staged") else "copy")
    source, out = (o["dtype"] for o in spec["operands"])
    value = "(x0 != 0)" if source == "bool" else "x0"
    return _map(spec, [f"y1 = {convert(source, out, value)};"], target)
