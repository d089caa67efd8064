"""Plan builders of CUDA devices: from a plan specification to kernels, without touching the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import Unsupported
from .elementwise import build_elementwise
from .float8 import build_dequantize, build_quantize
from .fused import build_activate, build_activate_backward, build_dropout, build_rope
from .fused_norms import build_norm, build_norm_backward
from .fused_optimizers import build_adamw, build_sgd
from .groups import build_commit, build_restore
from .memory import build_copy, build_fill
from .reductions import build_reduce
from .softmax import build_softmax_cross_entropy
from .target import Argument, Built, KernelProgram, Launch, Target
from .user_kernel import build_kernel

__all__ = ["BUILDERS", "Argument", "Built", "KernelProgram", "Launch", "Target", "build"]

#: Operations that are compiled, by name.
BUILDERS: dict[str, Callable[[dict[str, Any], Target], Built]] = {
    "elementwise.program": build_elementwise,
    "elementwise.reduce": build_reduce,
    "elementwise.softmax_cross_entropy": build_softmax_cross_entropy,
    "float8.dequantize": build_dequantize,
    "float8.quantize": build_quantize,
    "fused.activate": build_activate,
    "fused.activate_backward": build_activate_backward,
    "fused.adamw": build_adamw,
    "fused.dropout": build_dropout,
    "fused.norm": build_norm,
    "fused.norm_backward": build_norm_backward,
    "fused.rope": build_rope,
    "fused.sgd": build_sgd,
    "group.commit": build_commit,
    "group.restore": build_restore,
    "memory.copy": build_copy,
    "memory.fill": build_fill,
}


def build(spec: dict[str, Any], target: Target) -> Built:
    """Build a plan from its specification; waits for the compiler, needs no device.

    Raises
    ------
    Unsupported
        If the operation is unknown, or NVRTC is missing.
    InvalidRequest
        If a literal of a program does not fit the integers which it meets.
    LibraryError
        If NVRTC refuses the target's architecture.
    """
    op = spec.get("op")
    if op == "noop":
        return Built("native", "noop")
    if op == "memory.workspace":
        return Built("native", "workspace")
    if op == "quarantined":
        return Built("refusal", str(spec["reason"]))
    if isinstance(op, str) and op.startswith("kernel."):
        return build_kernel(spec, target)
    if op not in BUILDERS:
        raise Unsupported(f"unknown operation {op!r} on a CUDA device; known: noop, {', '.join(sorted(BUILDERS))}")
    return BUILDERS[op](spec, target)
