"""Descriptions of native calls, with the members of structs in C: of ``cython/libraries/cusparse/``."""

from __future__ import annotations

from dataclasses import dataclass

from ....builders.cuda.native import NativeStruct

__all__ = ["SparseCall"]


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
