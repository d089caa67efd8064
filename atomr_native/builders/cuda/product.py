"""The native description of a product."""

from __future__ import annotations

from dataclasses import dataclass

from .native import NativeStruct

__all__ = ["ProductDescription"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductDescription(NativeStruct):
    """A product with the members of ``atomr_matmul_spec``, see ``cython/libraries/cublaslt/plan.h``.

    Its operands are the first matrix, the second, and D, then C if it is read; its scalars are alpha and beta.
    """

    m: int
    n: int
    k: int
    batch: int
    type_a: int
    type_b: int
    type_c: int
    type_d: int
    type_bias: int = -1
    type_aux: int = -1
    compute: int
    scale: int
    trans_a: int
    trans_b: int
    order_a: int
    order_b: int
    ld_a: int
    ld_b: int
    ld_c: int
    ld_d: int
    step_a: int
    step_b: int
    step_c: int
    step_d: int
    epilogue: int
    step_bias: int = 0
    ld_aux: int = 0
    step_aux: int = 0
    clear_aux: int = 0
    fast_accum: int = 0
    reduced_precision: int
    mode_a: int = 0
    mode_b: int = 0
    a: int = 0
    b: int = 1
    c: int
    d: int = 2
    bias: int = -1
    aux: int = -1
    bias_grad: int = -1
    a_scale: int = -1
    b_scale: int = -1
    d_scale: int = -1
    amax: int = -1
    alpha_at: int = -1
    beta_at: int = -1
    alpha: int = 0
    beta: int = 1
    alpha_imag: int
    beta_imag: int
    n_operands: int
    n_scalars: int
    pointers: int = -1
    members: int = 0
    apart: int = 0
    zero: int = 0
    workspace_bytes: int
    has_algo: int = 0
    algo: tuple[int, ...] = (0,) * 8
