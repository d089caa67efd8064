"""Direct solvers by cuDSS: phases of a solver, which share what the worker keeps for it."""

from __future__ import annotations

import weakref
from typing import Final

from ...._lib import cudss
from ...._lib.cudss import CONSTANTS, DirectPhase, DirectSolver
from ....builders.context import Built
from ....builders.cuda.context import CudaContext, library_file
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..attributes import DirectAttributes
from .native import PatternCall, PhaseCall

__all__ = ["build_direct"]

_TYPES: Final = {"float32": "R_32F", "float64": "R_64F", "complex64": "C_32F", "complex128": "C_64F"}
#: The first version that numbers its settings as this module does.
_OLDEST: Final = 10000
_solvers: weakref.WeakValueDictionary[tuple[int, int], DirectSolver] = weakref.WeakValueDictionary()


def _kind(how: DirectAttributes) -> str:
    if how.kind == "positive":
        return "HPD" if how.dtype.startswith("complex") else "SPD"
    if how.kind == "hermitian" and not how.dtype.startswith("complex"):
        return "SYMMETRIC"
    return how.kind.upper()


def _solver(spec: PlanSpec[DirectAttributes], context: CudaContext) -> DirectSolver:
    how = spec.attributes
    indices, values = spec.operands[1], spec.operands[2]
    return DirectSolver(
        context.backend,
        PatternCall(
            n=how.n, nnz=indices.shape[0], batch=how.batch or 1,
            value_type=CONSTANTS[f"CUDA_{_TYPES[values.dtype]}"],
            index_type=CONSTANTS["CUDA_R_64I" if indices.dtype == "int64" else "CUDA_R_32I"],
            kind=CONSTANTS[f"CUDSS_MTYPE_{_kind(how)}"], view=CONSTANTS[f"CUDSS_MVIEW_{how.triangle.upper()}"],
            deterministic=int(how.deterministic or context.deterministic), columns=how.room,
        ),
    )  # fmt: skip


def build_direct(spec: PlanSpec[DirectAttributes], context: CudaContext) -> Built:
    """Build ``sparse.direct``.

    Raises
    ------
    Unsupported
        Without cuDSS, with a version before 1.0, and for a batch that is to be deterministic.
    """
    how = spec.attributes
    if how.batch is not None and how.batch > 1 and (how.deterministic or context.deterministic):
        raise Unsupported(
            f"a batch of {how.batch} matrices: cuDSS is deterministic for a single one, a.with_values(a.values[i])",
            rule="sparse.deterministic", lifted_by=("batch", "deterministic"),
        )  # fmt: skip
    library_file("cublas")  # cuDSS needs it, and it may be in another package
    version = cudss.load(library_file("cudss"))
    if version < _OLDEST:
        raise Unsupported(
            f"cuDSS {version // 10000}.{version // 100 % 100} is too old; allowed: 1.0 or newer", rule="sparse.cudss",
            lifted_by=("cudss",),
        )  # fmt: skip
    key = (id(context.backend), how.number)
    solver = _solvers.get(key)
    if solver is None:
        solver = _solvers[key] = _solver(spec, context)
    columns = spec.operands[5].shape[-2] if how.phase == "solve" else 1
    call = PhaseCall(
        phase=CONSTANTS[f"ATOMR_DIRECT_{how.phase.upper()}"], columns=columns, check=int(how.check),
        bytes=spec.operands[3].shape[0], more=0 if how.phase == "analyse" else spec.operands[4].shape[0],
    )  # fmt: skip
    return Built(DirectPhase(context.backend, solver, call))
