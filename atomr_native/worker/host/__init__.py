"""Plan builders of the host device: from a plan specification to something a lane can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..._blas_spec import ROUTINES
from ...errors import PlanQuarantined, Unsupported
from .blas import build_blas
from .elementwise import build_elementwise
from .float8 import build_dequantize, build_quantize
from .fused import build_activate, build_activate_backward
from .fused_norms import build_norm, build_norm_backward
from .fused_optimizers import build_adamw, build_sgd
from .fused_positions import build_dropout, build_rope
from .groups import build_commit, build_restore
from .matmul import build_grouped, build_matmul
from .memory import build_copy, build_fill
from .reductions import build_reduce, build_softmax_cross_entropy
from .user_kernel import build_kernel

__all__ = ["BUILDERS", "Built", "build"]


@dataclass(frozen=True, slots=True)
class Built:
    """What a lane runs for a plan.

    Attributes
    ----------
    kind : str
        ``"python"``: `run` is called with (arrays, scalars), under the GIL, and writes outputs in place; an exception
        becomes the message's error.  ``"native"``: `run` names a routine of the lanes.
    run : callable or str
    workspace : int
        Bytes of device memory that a run needs besides its operands.
    """

    kind: Literal["python", "native"]
    run: Callable[..., None] | str
    workspace: int = 0


#: Operations of Python runs, by name.
BUILDERS: dict[str, Callable[[dict[str, Any]], Callable[..., None]]] = {
    **{f"blas.{name}": build_blas for name in ROUTINES},
    "blas_lt.grouped": build_grouped,
    "blas_lt.matmul": build_matmul,
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


def _refusal(reason: str) -> Callable[..., None]:
    """Return the run of messages that were queued for a plan which has killed the worker twice."""

    def run(*_: Any) -> None:
        raise PlanQuarantined(reason)

    return run


def build(spec: dict[str, Any]) -> Built:
    """Build a plan from its specification; may import libraries, never touches device memory.

    Raises
    ------
    Unsupported
        If the operation is unknown, or a library that it needs is missing.
    """
    op = spec.get("op")
    if op == "noop":
        return Built("native", "noop")
    if op == "memory.workspace":
        return Built("native", "workspace")
    if op == "quarantined":
        return Built("python", _refusal(str(spec["reason"])))
    if op == "memory.copy" and spec["raw"]:
        return Built("native", "copy")
    if isinstance(op, str) and op.startswith("kernel."):
        return Built("python", build_kernel(spec))
    if op not in BUILDERS:
        raise Unsupported(f"unknown operation {op!r} on the host device; known: noop, {', '.join(sorted(BUILDERS))}")
    return Built("python", BUILDERS[op](spec))
