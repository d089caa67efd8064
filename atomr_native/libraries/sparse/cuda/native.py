"""Descriptions of native calls, with the members of structs in C: of ``cython/libraries/cusparse/``."""

from __future__ import annotations

from dataclasses import dataclass

from ....builders.cuda.native import NativeStruct

__all__ = ["PatternCall", "PhaseCall", "SparseCall", "StructuredCall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseCall(NativeStruct):
    """A call with the members of ``atomr_sparse_spec``."""

    routine: int
    format: int
    rows: int
    columns: int
    nnz: int
    index_type: int
    value_type: int
    dense_type: int
    out_type: int
    compute_type: int
    op_a: int = 0
    op_b: int = 0
    algorithm: int = 0
    values: int
    offsets: int
    indices: int
    x: int
    y: int = -1
    z: int = -1
    extent: tuple[int, ...]
    step: tuple[int, ...]
    order: tuple[int, ...]
    factor: tuple[int, ...]
    factor_at: tuple[int, int]
    scratch: int = 0
    n_operands: int
    n_scalars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredCall(NativeStruct):
    """A call with the members of ``atomr_structured_spec``, of ``cython/libraries/cusparselt/``."""

    routine: int
    m: int
    n: int
    k: int
    step_a: int
    step_b: int
    turned_b: int
    step_d: int
    order_d: int
    type: int
    type_d: int
    compute: int
    a: int
    b: int
    d: int
    bias: int = -1
    alpha_at: int = -1
    beta_at: int = -1
    alpha: int = -1
    beta: int = -1
    relu: int = 0
    nowhere: int = 0
    configuration: int = -1
    compressed_bytes: int
    scratch: int = 0
    workspace_bytes: int
    n_operands: int
    n_scalars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternCall(NativeStruct):
    """A direct solver with the members of ``atomr_pattern_spec``, of ``cython/libraries/cudss/``."""

    n: int
    nnz: int
    batch: int
    value_type: int
    index_type: int
    kind: int
    view: int
    deterministic: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCall(NativeStruct):
    """A phase with the members of ``atomr_phase_spec``."""

    phase: int
    columns: int
    check: int
    bytes: int
    more: int
