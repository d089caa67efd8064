"""Descriptions of native calls, with the members of structs in C: of ``cusolver/``, and of a cuBLAS call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....builders.cuda.native import NativeStruct

__all__ = ["DecompositionCall", "RefinementCall", "SolverCall", "SolverVerdict", "TriangleCall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverCall(NativeStruct):
    """A call with the members of ``atomr_solver_spec``."""

    routine: int
    type: int
    uplo: int = 0
    trans: int = 0
    m: int
    n: int
    k: int = 0
    a: int = -1
    b: int = -1
    pivots: int = -1
    info: int = -1
    scratch: int = -1
    step: tuple[int, int]
    batch: int
    jump: tuple[int, int]
    pointers: int = -1
    n_operands: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecompositionCall(NativeStruct):
    """A call with the members of ``atomr_decomposition_spec``."""

    routine: int
    type: int
    job: int = 0
    uplo: int = 0
    side: int = 0
    trans: int = 0
    m: int
    n: int
    k: int = 0
    a: int
    values: int
    b: int = -1
    c: int = -1
    info: int
    scratch: int
    step: tuple[int, int, int]
    batch: int
    jump: tuple[int, int, int, int]
    group: int = 1
    range: int = 0
    first: int = 0
    last: int = 0
    above: int = 0
    up_to: int = 0
    found: int = -1
    n_operands: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinementCall(NativeStruct):
    """A call with the members of ``atomr_refinement_spec``."""

    main: int
    lowest: int
    solver: int
    most: int
    n: int
    k: int
    a: int
    b: int
    x: int
    iterations: int
    info: int
    scratch: int
    step: tuple[int, int, int]
    batch: int
    jump: tuple[int, int, int]
    n_operands: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TriangleCall(NativeStruct):
    """A triangular solve with the members of ``atomr_blas_spec``, see ``cython/libraries/cublas/call.h``.

    Its operands are A, B and, of a batch, arrays of addresses; its scalar is alpha.
    """

    routine: int
    type: int
    conjugated: int = 0
    side: int = 0
    uplo: int
    trans_a: int
    trans_b: int = 0
    diag: int
    m: int
    n: int
    k: int = 0
    step: tuple[int, int, int]
    operand: tuple[int, int, int] = (0, 1, -1)
    alpha: int = 0
    beta: int = -1
    alpha_imag: int = -1
    beta_imag: int = -1
    batch: int
    jump: tuple[int, int, int]
    pointers: int = -1
    scratch: int = 0
    scratch_bytes: int = 0
    n_operands: int
    n_scalars: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverVerdict(NativeStruct):
    """What info numbers mean, with the members of ``atomr_verdict_spec``, and the operation's name."""

    kind: int
    axes: int
    extents: tuple[int, ...]
    form: int
    operation: str

    def fields(self) -> dict[str, Any]:
        """Return the members by name."""
        return {"kind": self.kind, "axes": self.axes, "extents": self.extents, "form": self.form}
